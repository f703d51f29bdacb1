"""The tables against the packages themselves: a plain search in their sources, and the real parser of vLLM 0.32."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from audition.errors import BadInput
from audition.profile.flag import Flag
from audition.profile.tables import Life, table, tables
from audition.units import NoData

DATA = Path(__file__).parent / "data"
MEMBERSHIP: dict[str, dict[str, bool]] = json.loads((DATA / "membership.json").read_text(encoding="utf-8"))["versions"]
REAL: dict[str, dict[str, Any]] = json.loads((DATA / "parser-0.32.0.json").read_text(encoding="utf-8"))["options"]
EXAMPLES = {
    "--speculative-config", "--no-enable-prefix-caching", "--default-chat-template-kwargs", "--swap-space", "-tp", "-sc",
    "--language-model-only",
    "--override-generation-config", "--limit-mm-per-prompt", "--reasoning-parser", "--prefix-caching-hash-algo",
}  # fmt: skip


def test_the_sample_covers_the_releases_and_the_example_profiles() -> None:
    assert list(MEMBERSHIP) == list(tables().versions)
    assert len(MEMBERSHIP) >= 12
    assert {"0.9.2", "0.19.1", "0.24.0", "0.32.0"} <= set(MEMBERSHIP)
    minors = {tuple(v.split(".")[:2]) for v in MEMBERSHIP}
    assert minors >= {("0", str(n)) for n in range(9, 34)}
    assert all(set(sample) >= EXAMPLES for sample in MEMBERSHIP.values())


@pytest.mark.parametrize("version", list(MEMBERSHIP))
def test_every_flag_of_the_example_profiles_is_judged_as_the_sources_say(version: str) -> None:
    have = table(version)
    judged = {flag: have.has(flag) for flag in MEMBERSHIP[version]}
    assert judged == MEMBERSHIP[version]
    assert True in judged.values()
    assert False in judged.values()


def test_the_table_has_exactly_the_options_of_the_real_parser() -> None:
    have = table("0.32.0").flags.values()
    assert {frozenset(flag.forms) for flag in have} == {frozenset(names.split(",")) for names in REAL}


CAPTURED: dict[str, Any] = json.loads((DATA / "real-options.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("version", CAPTURED["versions"])
def test_each_captured_release_has_exactly_the_options_of_its_real_parser(version: str) -> None:
    index = CAPTURED["versions"].index(version)
    real = {name for name, marks in CAPTURED["options"].items() if marks[index] == "x"}
    shown = {
        form
        for flag in table(version).flags.values()
        for form in ((flag.name, *flag.also, *flag.inverse) if flag.inverse else flag.forms)
    }
    assert shown == real
    assert len(real) > 150


ACTIONS = {"BooleanOptionalAction": "bool", "_StoreTrueAction": "switch", "_AppendAction": "append", "_HelpAction": "help"}
UNLIKE = {"--mm-processor-device"}
"""Its choices depend on the machine, so the table has them open."""


@pytest.mark.parametrize("names", sorted(REAL))
def test_each_option_of_the_real_parser_has_its_kind_choices_and_default(names: str) -> None:
    real, flag = REAL[names], _flag(names)
    wanted = ACTIONS.get(real["action"]) or {"+": "list", "?": "optional"}.get(str(real.get("nargs")))
    assert flag.kind == wanted if wanted else flag.kind in {"value", "json"}
    choices = None if flag.choices is None else sorted(map(str, flag.choices))
    if flag.name not in UNLIKE:
        assert choices == (None if "choices" not in real else [c for c in real["choices"] if c != "None"])
    if isinstance(real["default"], dict) and "class" in real["default"]:
        return  # an object of vLLM's: the table tells its text, or what it is made from
    assert (flag.default == real["default"]) or (isinstance(flag.default, NoData) and real["default"] == {})


def _flag(names: str) -> Flag:
    have = table("0.32.0")
    first = names.split(",", maxsplit=1)[0]
    return have.flags[first] if not first.startswith("-") else have.spellings[first]


@pytest.mark.parametrize(
    ("asked", "used", "exact", "words"),
    [
        ("0.19.1", "0.19.1", True, ""),
        ("v0.24.0+cu130", "0.24.0", True, ""),
        ("0.20", "0.20.0", True, ""),
        ("0.19.2", "0.19.1", False, "nearest earlier release"),
        ("0.19.2rc1.dev205+g07351e088", "0.19.1", False, "nearest earlier release"),
        ("0.25.0rc1", "0.25.0", False, "before the release of 0.25.0"),
        ("0.8.5", "0.9.2", False, "older than every table"),
        ("99.1", "0.33.0", False, "newer than every table"),
        ("0.1.dev493+g4d9600003", "0.33.0", False, "without a release's tag"),
        ("0.1.1.dev50+geed1f3d0c", "0.33.0", False, "without a release's tag"),
    ],
)
def test_a_version_without_a_table_is_judged_by_a_neighbour_and_says_so(asked: str, used: str, exact: bool, words: str) -> None:
    have = table(asked)
    assert (have.version, have.exact, have.asked) == (used, exact, asked if not exact or asked != used else used)
    assert words in have.note
    assert bool(have.note) is not exact


@pytest.mark.parametrize("text", ["", "nightly", "latest", "v", "1"])
def test_a_text_that_names_no_version_is_bad_input(text: str) -> None:
    with pytest.raises(BadInput, match="names no version"):
        table(text)


@pytest.mark.parametrize(
    ("method", "since", "gone"),
    [
        ("ngram", "0.9.2", None), ("qwen3_next_mtp", "0.10.2", None), ("mtp", "0.11.0", None), ("suffix", "0.11.1", None),
        ("qwen3_5_mtp", "0.17.0", None), ("ngram_gpu", "0.18.0", None), ("dflash", "0.20.0", None), ("dspark", "0.25.0", None),
        ("medusa", "0.9.2", "0.33.0"), ("mlp_speculator", "0.9.2", "0.33.0"),
    ],
)  # fmt: skip
def test_methods_of_speculation_come_and_go_as_known(method: str, since: str, gone: str | None) -> None:
    life = tables().life_of_method(method)
    assert isinstance(life, Life)
    assert life.since == since
    assert life.gone == gone if gone else isinstance(life.gone, NoData)


def test_rejection_methods_and_keys_of_the_speculative_config() -> None:
    def choices(version: str) -> tuple[Any, ...] | None:
        return table(version).configs["SpeculativeConfig"].keys["rejection_sample_method"].choices

    assert choices("0.18.0") == ("probabilistic", "strict")
    assert choices("0.19.1") == ("probabilistic", "strict", "synthetic")
    assert choices("0.22.0") == ("standard", "synthetic")
    assert choices("0.25.0") == ("block", "standard", "synthetic")
    assert choices("0.33.0") == ("block", "fly", "standard", "synthetic")
    gone = tables().life_of_key("SpeculativeConfig", "disable_by_batch_size")
    came = tables().life_of_key("SpeculativeConfig", "num_speculative_tokens_per_batch_size")
    assert isinstance(gone, Life)
    assert isinstance(came, Life)
    assert (gone.last < "0.17", came.since) == (True, "0.24.0")


def test_prefix_caching_of_hybrid_models_is_on_from_0_28() -> None:
    said = {version: table(version).hybrid_prefix_caching for version in tables().versions}
    assert said["0.19.1"] is False
    assert said["0.27.1"] is False
    assert said["0.28.0"] is True
    assert said["0.33.0"] is True
    assert isinstance(said["0.9.2"], NoData)


def test_kv_cache_types_methods_and_registered_names() -> None:
    old, new = table("0.19.1"), table("0.24.0")
    assert "turboquant_k8v4" not in _named(old.kv_cache_dtypes)
    assert "turboquant_k8v4" in _named(new.kv_cache_dtypes)
    assert "fp8" in _named(table("0.33.0").kv_cache_dtypes)
    assert "qwen3_coder" in old.lists["tool-parsers"]
    assert "qwen3" in old.lists["reasoning-parsers"]
    assert {"awq_marlin", "compressed-tensors", "gptq_marlin"} <= set(new.lists["quantization"])


def _named(values: tuple[str, ...] | NoData) -> tuple[str, ...]:
    assert not isinstance(values, NoData)
    return values


def test_the_data_file_is_small_and_says_where_its_facts_come_from() -> None:
    text = (files("audition.profile") / "data" / "flags.json").read_text(encoding="utf-8")
    raw = json.loads(text)
    assert len(text) < 600_000
    assert all(
        one["archive"].startswith(f"vllm-{version}") and len(one["sha256"]) == 64 for version, one in raw["versions"].items()
    )
    facts = [fact for stretches in raw["flags"].values() for _, _, fact in stretches]
    assert all(fact["src"].startswith("vllm/") or fact["src"] == "argparse" for fact in facts)
    assert tables().archive("0.19.1") == "vllm-0.19.1.tar.gz"
