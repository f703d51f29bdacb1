"""What two arms do not share, on the reference example and by single arguments."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml

from audition.profile.arguments import Parsed, parse
from audition.profile.difference import Change, defaults_given, difference
from audition.profile.tables import table
from audition.units import NoData

EXAMPLE = Path(__file__).parents[2] / "examples" / "mtp-k3"


def profile(file: str, version: str) -> Parsed:
    """The arguments of an example's service, its variables replaced by their defaults."""
    command = yaml.safe_load((EXAMPLE / file).read_text(encoding="utf-8"))["services"]["vllm-medium"]["command"]
    resolved = re.sub(r"\$\{\w+(?::-([^}]*))?\}", lambda found: found[1] or "given", command)
    return parse(shlex.split(resolved), table(version))


def arms(left: str = "0.19.1", right: str = "0.19.1") -> dict[str, Change]:
    found = difference(profile("medium-qwen36.yml", left), profile("medium-qwen36-mtp-spike.yml", right), hybrid=True)
    return {change.flag: change for change in found}


def test_the_reference_arms_differ_in_these_arguments_and_no_others() -> None:
    assert set(arms()) == {
        "--default-chat-template-kwargs", "--disable-custom-all-reduce", "--enable-prefix-caching", "--gpu-memory-utilization",
        "--kv-cache-dtype", "--limit-mm-per-prompt", "--max-model-len", "--prefix-caching-hash-algo", "--speculative-config",
    }  # fmt: skip
    caching, speculation = arms()["--enable-prefix-caching"], arms()["--speculative-config"]
    assert (caching.left, caching.right, caching.kind) == ("on", "off", "differs")
    assert "off is the default of vLLM 0.19.1 anyway" in caching.text
    assert (speculation.kind, speculation.left) == ("only-right", "nothing")
    assert all(change.counts for change in arms().values())


@pytest.mark.parametrize(
    ("version", "hybrid", "said"),
    [("0.19.1", True, True), ("0.27.1", True, True), ("0.28.0", True, False), ("0.19.1", False, False)],
)
def test_no_enable_prefix_caching_is_named_as_the_default_where_it_is(version: str, hybrid: bool, said: bool) -> None:
    found = [
        c
        for c in defaults_given(profile("medium-qwen36-mtp-spike.yml", version), hybrid=hybrid)
        if c.flag == "--enable-prefix-caching"
    ]
    assert bool(found) is said
    assert all("--no-enable-prefix-caching is given, and is the default" in c.text and not c.counts for c in found)


def test_without_a_look_at_the_model_the_default_of_prefix_caching_is_not_claimed() -> None:
    candidate = profile("medium-qwen36-mtp-spike.yml", "0.19.1")
    assert "--enable-prefix-caching" not in {c.flag for c in defaults_given(candidate)}
    assert "--enable-prefix-caching" not in {c.flag for c in defaults_given(candidate, hybrid=NoData("no folder"))}


def between(
    left: list[str], right: list[str], versions: tuple[str, str] = ("0.19.1", "0.19.1"), *, hybrid: bool = True
) -> list[Change]:
    return difference(parse(["m", *left], table(versions[0])), parse(["m", *right], table(versions[1])), hybrid=hybrid)


def test_what_one_arm_gives_and_is_its_default_anyway_does_not_count() -> None:
    (change,) = between(["--gpu-memory-utilization", "0.9"], [])
    assert (change.kind, change.counts) == ("default-given", False)
    (change,) = between([], ["--no-enable-prefix-caching"])
    assert (change.kind, change.counts) == ("default-given", False)
    (change,) = between([], ["--no-enable-prefix-caching"], hybrid=False)
    assert (change.kind, change.counts) == ("only-right", True)


def test_defaults_that_differ_by_version_are_named_though_nobody_gives_them() -> None:
    found = {change.flag: change for change in between([], [], ("0.19.1", "0.28.0"))}
    caching = found["--enable-prefix-caching"]
    assert (caching.kind, caching.left, caching.right) == ("default-differs", "off", "on")
    assert "in vLLM 0.19.1" in caching.text
    assert "--enable-prefix-caching" not in {change.flag for change in between([], [], ("0.19.1", "0.28.0"), hybrid=False)}
    given = {change.flag: change for change in between(["--no-enable-prefix-caching"], [], ("0.19.1", "0.28.0"))}[
        "--enable-prefix-caching"
    ]
    assert (given.kind, given.counts) == ("only-left", True)
    assert "the default of vLLM 0.19.1, but not of 0.28.0" in given.text


def test_json_is_compared_by_key_and_spelling_does_not_matter() -> None:
    assert between(["-tp", "2", "--max-model-len", "32K"], ["--tensor_parallel_size=2", "--max-model-len", "32768"]) == []
    left, right = '{"method":"mtp","num_speculative_tokens":3}', '{"num_speculative_tokens":1,"method":"mtp"}'
    (change,) = between(["--speculative-config", left], ["--speculative-config", right])
    assert change.text == "--speculative-config differs in num_speculative_tokens: 3 and 1"


def test_addresses_do_not_count_and_secrets_are_not_shown() -> None:
    found = between(["--port", "5002", "--api-key", "sk-one"], ["--port", "5003", "--api-key", "sk-two"])
    assert {change.flag for change in found} == {"--port", "--api-key"}
    assert not any(change.counts for change in found)
    assert "sk-" not in repr(found)


def test_another_model_is_the_first_difference() -> None:
    first = difference(parse(["a", "-tp", "2"], table("0.19.1")), parse(["b"], table("0.19.1")))[0]
    assert (first.flag, first.left, first.right) == ("model", "a", "b")
