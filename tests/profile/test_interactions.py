"""Speculation and the interactions on record: each record holds on a case of its own, and not without each of its conditions."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field

import pytest

from audition.profile.arguments import parse
from audition.profile.finding import LEVELS, Finding, worst
from audition.profile.interactions import ModelFacts, interactions, records
from audition.profile.speculation import Speculation, speculation_of
from audition.profile.tables import table, tables
from audition.units import NoData

HYBRID = ModelFacts("qwen3_5_moe", True, True, "compressed-tensors", 1, 262_144, 8.9)
DENSE = ModelFacts("qwen3", False, False, "", 0, 40_960, 9.0)
MTP = ["--speculative-config", '{"method":"mtp","num_speculative_tokens":3}']
CACHED = ["--enable-prefix-caching"]
SEGMENTS = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True,max_split_size_mb:512"}


@dataclass(frozen=True)
class Case:
    """Arguments, model, version and variables in which a record holds, and others in which it must not."""

    argv: list[str]
    version: str = "0.24.0"
    facts: ModelFacts = HYBRID
    environment: dict[str, str] = field(default_factory=dict)
    not_argv: list[str] | None = None
    not_facts: ModelFacts | None = None
    not_version: str = ""


def ngram(k: int) -> list[str]:
    return ["-sc", json.dumps({"method": "ngram", "num_speculative_tokens": k, "prompt_lookup_max": 4})]


CASES: dict[str, Case] = {
    "mtp-prefix-caching-corrupts": Case([*MTP, *CACHED], not_argv=MTP, not_facts=DENSE),
    "mtp-prefix-hits-fall": Case(MTP, version="0.28.0", not_version="0.27.1"),
    "hybrid-prefix-block": Case(CACHED, not_argv=["--no-enable-prefix-caching"], not_facts=DENSE),
    "gdn-five-drafts": Case(ngram(5), not_argv=ngram(4), not_facts=DENSE),
    "gdn-mtp-illegal-access": Case(MTP, not_argv=ngram(3), not_facts=DENSE),
    "gdn-acceptance-dies-at-32768": Case(MTP, not_argv=[*MTP, "--max-model-len", "32768"], not_facts=DENSE),
    "turboquant-speculation": Case([*ngram(2), "--kv-cache-dtype", "turboquant_k8v4"], facts=DENSE, not_argv=ngram(2)),
    "turboquant-drafter-dtype": Case([*MTP, "--kv-cache-dtype", "turboquant_4bit_nc"], not_argv=[*MTP, "--kv-cache-dtype", "fp8"]),
    "speculation-strict-tools": Case(MTP, environment={"VLLM_ENFORCE_STRICT_TOOL_CALLING": "1"}, not_argv=[], not_version="0.25.0"),
    "speculation-tool-grammar": Case([*MTP, "--enable-auto-tool-choice", "--tool-call-parser", "hermes"], not_argv=MTP),
    "ngram-tool-parser": Case(
        [*ngram(3), "--tool-call-parser", "qwen3_coder"], not_argv=[*ngram(3), "--tool-call-parser", "hermes"]
    ),
    "quantised-mtp-heads": Case(MTP, not_facts=dataclasses.replace(HYBRID, quantisation="")),
    "fp8-checkpoint-mtp-ada": Case(
        MTP, not_argv=[*MTP, "--kv-cache-dtype", "fp8"], not_facts=dataclasses.replace(HYBRID, compute_capability=9.0)
    ),
    "mtp-slower-than-without": Case(MTP, not_facts=DENSE),
    "mtp-batch-shrinks": Case(MTP, version="0.28.0", not_version="0.27.1"),
    "mtp-async-scheduling-stall": Case(MTP, not_argv=[*MTP, "--no-async-scheduling"]),
    "sleep-draft-weights": Case([*MTP, "--enable-sleep-mode"], not_argv=MTP),
    "sleep-expandable-segments": Case(
        ["--enable-sleep-mode"], version="0.19.1", environment=SEGMENTS, not_argv=[], not_version="0.20.1"
    ),
    "kv-connector-expandable-segments": Case(
        ["--kv-transfer-config", '{"kv_connector":"NixlConnector"}'], environment=SEGMENTS, not_argv=[]
    ),
    "xxhash-missing": Case([*CACHED, "--prefix-caching-hash-algo", "xxhash"], not_argv=CACHED),
    "kv-size-formula": Case([], version="0.20.0", not_version="0.20.1", not_facts=DENSE),
    "qwen35-too-new": Case([], version="0.16.0", not_version="0.17.0", not_facts=DENSE),
}


def found(argv: list[str], version: str, facts: ModelFacts, environment: dict[str, str]) -> dict[str, Finding]:
    return {f.code: f for f in interactions(parse(["m", *argv], table(version)), facts, version, environment=environment)}


def test_every_record_has_a_case_a_public_reference_and_known_versions() -> None:
    assert {record.code for record in records()} == set(CASES)
    for record in records():
        assert record.level in LEVELS
        assert record.references
        assert all(url.startswith("https://github.com/") for url in record.references)
        assert {v for v in (record.since, record.last) if v} <= set(tables().versions)
        assert record.text.endswith(".")
        assert record.hint


@pytest.mark.parametrize("code", list(CASES))
def test_a_record_holds_in_its_case(code: str) -> None:
    case = CASES[code]
    finding = found(case.argv, case.version, case.facts, case.environment)[code]
    record = next(record for record in records() if record.code == code)
    assert (finding.level, finding.reference) == (record.level, record.references[0])
    assert "not known" not in finding.text


@pytest.mark.parametrize("code", list(CASES))
def test_a_record_does_not_hold_without_its_conditions(code: str) -> None:
    case = CASES[code]
    others = [
        (
            case.not_argv if case.not_argv is not None else case.argv,
            case.not_version or case.version,
            case.not_facts or case.facts,
            case.environment,
        )
    ]
    if case.not_argv is not None:
        others.append((case.not_argv, case.version, case.facts, case.environment))
    if case.not_facts is not None:
        others.append((case.argv, case.version, case.not_facts, case.environment))
    if case.not_version:
        others.append((case.argv, case.not_version, case.facts, case.environment))
    if case.environment:
        others.append((case.argv, case.version, case.facts, {}))
    for argv, version, facts, environment in others:
        assert code not in found(argv, version, facts, environment), (argv, version)


def test_what_is_not_known_of_the_model_leaves_a_warning_that_says_so() -> None:
    unread = found([*MTP, *CACHED], "0.24.0", ModelFacts(), {})
    assert "whether the model mixes attention with recurrent layers" in unread["mtp-prefix-caching-corrupts"].text
    assert "how the checkpoint is quantised" in unread["quantised-mtp-heads"].text
    assert all(f.level == "warning" for f in unread.values())
    assert "qwen35-too-new" not in found([], "0.16.0", ModelFacts(), {})


def test_the_reference_candidate_meets_these_records() -> None:
    argv = [
        *MTP,
        "--no-enable-prefix-caching",
        "--kv-cache-dtype",
        "fp8",
        "--enable-auto-tool-choice",
        "--tool-call-parser",
        "qwen3_coder",
    ]
    assert set(found(argv, "0.19.1", HYBRID, {})) == {
        "gdn-mtp-illegal-access", "gdn-acceptance-dies-at-32768", "speculation-tool-grammar", "quantised-mtp-heads",
        "mtp-slower-than-without", "mtp-async-scheduling-stall", "kv-size-formula", "k-beyond-layers",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("layers", "k", "level", "code"),
    [(1, 1, "ok", ""), (1, 3, "ok", "k-beyond-layers"), (2, 4, "ok", "k-beyond-layers"),
     (2, 3, "blocking", "k-no-multiple"), (0, 1, "blocking", "mtp-without-layers")],
)  # fmt: skip
def test_drafted_tokens_against_the_layers_of_the_checkpoint(layers: int, k: int, level: str, code: str) -> None:
    facts = dataclasses.replace(HYBRID, mtp_layers=layers)
    said = found(["-sc", json.dumps({"method": "mtp", "num_speculative_tokens": k})], "0.19.1", facts, {})
    assert [f.level for c, f in said.items() if c == code] == ([level] if code else [])
    assert ("k-no-multiple" in said or "mtp-without-layers" in said) is (level == "blocking")


def asked(argv: list[str], version: str = "0.19.1") -> Speculation:
    speculation = speculation_of(parse(["m", *argv], table(version)))
    assert speculation is not None
    return speculation


def test_method_number_and_drafter_are_read_from_every_form() -> None:
    for argv, version in [
        (MTP, "0.19.1"),
        (["-sc.method=mtp", "-sc.num_speculative_tokens=3"], "0.32.0"),
        (["--spec-method", "mtp", "--spec-tokens", "3"], "0.32.0"),
    ]:
        speculation = asked(argv, version)
        assert (speculation.method, speculation.k, speculation.by_mtp, speculation.findings) == ("mtp", 3, True, ())
    drafter = asked(["-sc", '{"model":"a/draft","num-speculative-tokens":2,"nope":1}'], "0.32.0")
    assert (drafter.model, drafter.k, drafter.unknown_keys, drafter.by_mtp) == ("a/draft", 2, ("nope",), False)
    assert isinstance(drafter.method, NoData)
    assert asked(["-sc", '{"method":"mtp"}'], "0.32.0").k == NoData("num_speculative_tokens is not given")


@pytest.mark.parametrize(
    "argv", [[], ["--speculative-config", "null"], ["--speculative-config", "None"], ["--speculative-config", "{broken"]]
)
def test_no_speculation_is_none(argv: list[str]) -> None:
    assert speculation_of(parse(["m", *argv], table("0.24.0"))) is None


@pytest.mark.parametrize(
    ("config", "version", "level", "code", "words"),
    [
        ('{"method":"mtp","num_speculative_tokens":3}', "0.10.2", "blocking", "method-unknown", "known from 0.11.0 on"),
        ('{"method":"medusa","num_speculative_tokens":3}', "0.33.0", "blocking", "method-unknown", "0.32.0 was the last"),
        ('{"method":"mpt","num_speculative_tokens":3}', "0.19.1", "blocking", "method-unknown", "did you mean 'mtp'?"),
        ('{"method":"qwen3_next_mtp","num_speculative_tokens":3}', "0.19.1", "warning", "method-deprecated", "takes it for 'mtp'"),
        ('{"num_speculative_tokens":3}', "0.19.1", "blocking", "method-missing", "neither a method nor a drafter"),
        ('{"method":"ngram"}', "0.19.1", "blocking", "count-missing", "wants num_speculative_tokens"),
        ('{"method":"mtp","num_speculative_tokens":"3"}', "0.19.1", "blocking", "count-bad", "without quotes"),
        ('{"method":"mtp","num_speculative_tokens":0}', "0.19.1", "blocking", "count-bad", "1 or more"),
    ],
)  # fmt: skip
def test_findings_about_the_method_and_the_number(config: str, version: str, level: str, code: str, words: str) -> None:
    (finding,) = asked(["--speculative-config", config], version).findings
    assert (finding.level, finding.code) == (level, code)
    assert words in f"{finding.text} {finding.hint}"


def test_a_key_given_twice_is_refused_as_by_vllm() -> None:
    assert [f.code for f in asked([*MTP, "--spec-tokens", "2"], "0.32.0").findings] == ["given-twice"]


def test_findings_check_themselves_and_the_worst_counts() -> None:
    with pytest.raises(ValueError, match="level must be one of"):
        Finding("bad", "x", "y")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="needs a code"):
        Finding("ok", "", "y")
    assert worst([]) == "ok"
    assert worst([Finding("warning", "a", "b"), Finding("blocking", "a", "b"), Finding("ok", "a", "b")]) == "blocking"
