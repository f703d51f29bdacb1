"""Command lines: against outcomes captured from the real parser of vLLM 0.32, and each kind of finding by itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audition.profile.arguments import DEFAULT_MODEL, Parsed, parse
from audition.profile.finding import Finding, worst
from audition.profile.tables import table, tables
from audition.profile.words import serve_words
from audition.units import NoData

LINES: list[dict[str, Any]] = json.loads((Path(__file__).parent / "data" / "parser-0.32.0.json").read_text(encoding="utf-8"))[
    "command_lines"
]
STRICTER = {"--reasoning-parser nope", "--speculative-config [1]", "--speculative-config 3"}
"""The parser lets these through, and the server ends with an error later: audition says so at once."""
LAXER = {"--attention-config.backend NOPE", "--mm-processor-device cuda"}
"""Values whose set is known to the running program only; the second depends on the machine."""


@pytest.mark.parametrize("line", LINES, ids=lambda line: " ".join(line["argv"])[:60])
def test_a_command_line_is_accepted_and_typed_as_by_the_real_parser(line: dict[str, Any]) -> None:
    parsed = parse(line["argv"], table("0.32.0"))
    rest = " ".join(line["argv"][1:])
    accepted = (line["accepted"] or rest in LAXER) and rest not in STRICTER
    assert (worst(parsed.findings) != "blocking") is accepted, parsed.findings
    for name, value in line.get("values", {}).items():
        assert parsed.given("--" + name.replace("_", "-")) == value


def one(argv: list[str], version: str = "0.19.1") -> Finding:
    findings = parse(["m", *argv], table(version)).findings
    assert len(findings) == 1, findings
    return findings[0]


@pytest.mark.parametrize(
    ("argv", "level", "code", "text", "hint"),
    [
        (["--max-model-length", "1"], "blocking", "unknown-flag", "nor has any version from 0.9.2 to 0.33.0", "--max-model-len?"),
        (["--prefix-match-unit", "1"], "blocking", "unknown-flag", "known from 0.26.0 on", "0.26.0 or newer"),
        (["--swap-space", "4"], "blocking", "unknown-flag", "dropped in 0.18.0 (0.17.1 was the last", "take --swap-space out"),
        (["--cuda-graph-sizes", "1"], "blocking", "unknown-flag", "renamed to --cudagraph-capture-sizes", "write --cudagraph"),
        (["--disable-log-requests"], "blocking", "unknown-flag", "probably replaced by --no-enable-log-requests", "write --no-"),
        (["--eplb-window-size", "9"], "blocking", "unknown-flag", "replaced by --eplb-config.window_size", "write --eplb-"),
        (["--kv-cache-dtype", "turboquant_k8v4"], "blocking", "bad-choice", "known from 0.20.0 on", "fp8"),
        (["--kv-cache-dtype", "fp9"], "blocking", "bad-choice", "nor does any version", "choose from auto"),
        (["--calculate-kv-scales"], "warning", "deprecated", "deprecated", "drop"),
        (["--port", "80x"], "blocking", "bad-number", "whole number", "--port"),
        (["--gpu-memory-utilization", "0,9"], "blocking", "bad-number", "'0,9'", "--gpu-memory-utilization 0.9"),
        (["--max-model-len", "1.5K"], "blocking", "bad-number", "decimal point", "1.5k"),
        (["--port"], "blocking", "missing-value", "nothing follows", "--port=VALUE"),
        (["--port", "--enforce-eager"], "blocking", "missing-value", "next word is an option", "--port=VALUE"),
        (["--enable-prefix-caching=false"], "blocking", "unexpected-value", "takes no value", "--no-enable-prefix-caching"),
        (["--enable-prefix-caching", "false"], "blocking", "stray-word", "'false' stands alone", "take it out"),
        (["--port", "1", "--port", "2"], "warning", "given-twice", "two values; the last one counts", "first one"),
        (["--port", "1", "--port=1"], "warning", "given-twice", "the same value", "first one"),
        (["--tensor-parallel", "2"], "warning", "abbreviated", "short for --tensor-parallel-size", "write --tensor-parallel-size"),
        (["--max", "2"], "blocking", "ambiguous", "could be --max-", "in full"),
        (["--help"], "blocking", "help", "no server starts", "take --help out"),
        (["--config", "x.yaml"], "warning", "config-file", "not judged", ""),
        (["--port", "${PORT}"], "warning", "variable-left", "still holds a variable", "resolve"),
        (["--tool-call-parser", "qwen3_code"], "warning", "unknown-value", "without --enable-auto-tool-choice", "qwen3_coder"),
        (["--reasoning-parser", "qwen9"], "blocking", "unknown-value", "registers no parser 'qwen9'", "qwen3"),
        (["--enable-auto-tool-choice"], "blocking", "missing-partner", "wants --tool-call-parser", "--tool-call-parser"),
        (["--quantization", "awq_marlinn"], "warning", "unknown-value", "no quantisation", "awq_marlin"),
    ],
)  # fmt: skip
def test_each_fault_has_its_finding(argv: list[str], level: str, code: str, text: str, hint: str) -> None:
    finding = one(argv)
    assert (finding.level, finding.code) == (level, code)
    assert text in finding.text
    assert hint in finding.hint


@pytest.mark.parametrize(
    ("value", "text", "hint"),
    [
        ('{"method":"mtp",num_speculative_tokens:3}', "at character 17", "quotes around the keys"),
        ("{'method':'mtp'}", "at character 2", '{"method":"mtp"}'),
        ('{"method":"mtp","enforce_eager":True}', "at character 33", "small letters"),
        ('{"method":"mtp",}', "at character 1", "comma"),
        ('{"method":"mtp"', "at character 16", "brackets"),
    ],
)
def test_bad_json_is_named_with_its_place_and_its_usual_cause(value: str, text: str, hint: str) -> None:
    finding = one(["--speculative-config", value])
    assert (finding.level, finding.code) == ("blocking", "bad-json")
    assert text in finding.text
    assert hint in finding.hint


@pytest.mark.parametrize(
    ("version", "level", "words"),
    [("0.19.1", "blocking", "ends with an error"), ("0.11.0", "warning", "drops it without a word")],
)
def test_an_unknown_key_is_an_error_where_the_version_forbids_it_and_else_dropped(version: str, level: str, words: str) -> None:
    finding = one(["--speculative-config", '{"method":"ngram","num_speculative_tokens":3,"prompt_lookup_maxx":4}'], version)
    assert (finding.level, finding.code) == (level, "unknown-key")
    assert words in finding.text
    assert "'prompt_lookup_max'" in finding.hint


def test_a_key_of_another_version_says_when_it_is_known() -> None:
    old = one(["--speculative-config", '{"method":"ngram","num_speculative_tokens":3,"disable_by_batch_size":8}'])
    new = one(["--speculative-config", '{"method":"mtp","attention_backend":"FLASHINFER"}'])
    assert "the last to know it" in old.text
    assert "known from 0.21.0 on" in new.text


def test_dotted_forms_make_one_json_value_and_replace_one_given_whole() -> None:
    argv = [
        "m",
        "--speculative_config.method",
        "mtp",
        "--speculative-config.num_speculative_tokens=3",
        "-cc.cudagraph_capture_sizes+=1,2",
    ]
    parsed = parse(argv, table("0.32.0"))
    assert parsed.given("--speculative-config") == {"method": "mtp", "num_speculative_tokens": 3}
    assert parsed.given("--compilation-config") == {"cudagraph_capture_sizes": ["1", "2"]}
    mixed = parse(["m", "-sc", '{"method":"mtp"}', "-sc.num_speculative_tokens", "3"], table("0.32.0"))
    assert mixed.given("--speculative-config") == {"num_speculative_tokens": 3}
    assert [f.code for f in mixed.findings] == ["given-twice"]


@pytest.mark.parametrize(
    ("version", "flag", "value"),
    [
        ("0.10.2", "--compilation-config", {"level": "3"}),
        ("0.11.2", "--compilation-config", {"mode": "3"}),
        ("0.12.0", "--optimization-level", "3"),
    ],
)
@pytest.mark.parametrize("argv", [["-O3"], ["-O", "3"], ["-O=3"]])
def test_short_levels_mean_what_the_version_makes_of_them(argv: list[str], version: str, flag: str, value: object) -> None:
    parsed = parse(["m", *argv], table(version))
    given_value = parsed.given(flag)
    assert (
        given_value == value or given_value == {k: int(v) for k, v in value.items()}
        if isinstance(value, dict)
        else given_value == value
    )
    assert not parsed.findings


def test_from_0_33_on_enable_and_disable_turn_each_other_off() -> None:
    argv = ["m", "--disable-prefix-caching", "--enable-custom-all-reduce"]
    new = parse(argv, table("0.33.0"))
    assert (new.given("--enable-prefix-caching"), new.given("--disable-custom-all-reduce"), new.findings) == (False, False, ())
    assert parse(["m", "--no-enable-prefix-caching"], table("0.33.0")).given("--enable-prefix-caching") is False
    old = parse(argv, table("0.32.0")).findings
    assert [f.code for f in old] == ["unknown-flag", "unknown-flag"]
    assert all("known from 0.33.0 on" in f.text for f in old)


def test_an_option_that_comes_back_says_so() -> None:
    finding = one(["--disable-log-requests"], "0.24.0")
    assert "dropped in 0.17.0 (0.16.0 was the last to have it) and is known again from 0.33.0 on" in finding.text
    assert not parse(["m", "--disable-log-requests"], table("0.33.0")).findings


def test_the_model_is_the_first_bare_word_or_the_option() -> None:
    have = table("0.19.1")
    assert parse(["vllm", "serve", "a/b", "-tp", "2"], have).model == "a/b"
    assert parse(["-tp", "2", "a/b"], have).model == "a/b"
    assert parse(["--model=a/b"], have).model == "a/b"
    assert [f.code for f in parse(["a/b", "--model", "c/d"], have).findings] == ["stray-word"]
    bare = parse(["-tp", "2"], have)
    assert (bare.model, [f.code for f in bare.findings]) == (DEFAULT_MODEL, ["model-missing"])
    refused = parse(["--served-model-name", "x"], have)
    assert isinstance(refused.model, NoData)
    assert worst(refused.findings) == "blocking"


def test_a_version_without_a_table_is_said_with_the_arguments() -> None:
    assert [f.code for f in parse(["m"], table("0.19.2")).findings] == ["version-guessed"]


def test_values_and_defaults() -> None:
    parsed = parse(["m", "--max-model-len", "128K", "--no-enable-prefix-caching", "--served-model-name", "a", "b"], table("0.19.1"))
    assert parsed.given("--max-model-len") == 131072
    assert parsed.given("--enable-prefix-caching") is False
    assert parsed.given("--served-model-name") == ["a", "b"]
    assert isinstance(parsed.given("--port"), NoData)
    assert parsed.effective("--port") == 8000
    assert parsed.effective("--gpu-memory-utilization") == 0.9
    assert isinstance(parsed.effective("--prefix-match-unit"), NoData)


def test_no_finding_shows_a_secret() -> None:
    argv = ["m", "--api-key", "sk-hidden", "--api-key", "sk-other", "--api-kee", "sk-third", "--hf-token", "hf_hidden"]
    said = " ".join(f.text + f.hint for f in parse(argv, table("0.32.0")).findings)
    assert "sk-" not in said
    assert "hf_" not in said


@pytest.mark.parametrize(
    "argv",
    [
        ["vllm", "serve", "m", "--port", "1"],
        ["/opt/venv/bin/vllm", "serve", "m", "--port", "1"],
        ["python3", "-m", "vllm.entrypoints.openai.api_server", "m", "--port", "1"],
        ["python", "-m", "vllm.entrypoints.cli.main", "serve", "m", "--port", "1"],
        ["serve", "m", "--port", "1"],
        ["m", "--port", "1"],
        ["bash", "-lc", "export A=1; exec vllm serve m --port 1 2>&1 | tee log"],
        ["/bin/sh", "-e", "-c", "set -e\nVLLM_X=1 vllm serve m \\\n  --port 1 &\nwait"],
        ["nohup", "vllm", "serve", "m", "--port", "1"],
    ],
)
def test_the_arguments_are_found_behind_any_way_to_start_the_server(argv: list[str]) -> None:
    assert serve_words(argv) == ["m", "--port", "1"]


def test_a_script_with_an_open_quote_is_one_clear_finding() -> None:
    parsed = parse(["sh", "-c", "vllm serve m --api-key 'abc"], table("0.19.1"))
    assert [(f.level, f.code) for f in parsed.findings] == [("blocking", "unreadable-script")]


FORMS = st.sampled_from(
    [*sorted(table("0.32.0").spellings)[::7], "-O", "-O3", "--", "-", "-1", "--x.y", "-tp", "--speculative-config.method"]
)
WORDS = st.one_of(
    FORMS, st.text(max_size=12), st.sampled_from(['{"a":1}', "{", "3", "1k", "None", "", "=", "--=", "--a=b", "-.", "--.", "--.+"])
)


@given(st.lists(WORDS, max_size=8), st.sampled_from(tables().versions))
@settings(max_examples=150, deadline=None)
def test_no_list_of_words_breaks_the_reading(argv: list[str], version: str) -> None:
    parsed = parse(argv, table(version))
    assert isinstance(parsed, Parsed)
    assert all(setting.flag.name == name for name, setting in parsed.settings.items())
    assert parsed.findings == parse(argv, table(version)).findings


COMPOSE = Path(__file__).parents[1] / "data" / "compose"


def service(file: str, name: str) -> list[str]:
    """The command of a service as compose resolves it, behind its entry point."""
    found = json.loads((COMPOSE / f"{file}.config.json").read_text(encoding="utf-8"))["services"][name]
    return [word.replace("$$", "$") for word in [*(found["entrypoint"] or []), *found["command"]]]


def test_a_script_as_entry_point_gives_its_last_command_with_spliced_json() -> None:
    parsed = parse(service("script-entrypoint", "engine"), table("0.27.1"))
    assert parsed.model == "cyankiwi/Qwen3.8-27B-AWQ-INT4"
    assert parsed.given("--speculative-config") == {"method": "mtp", "num_speculative_tokens": 3}
    assert (parsed.given("--max-num-seqs"), parsed.findings) == (16, ())


def test_no_release_takes_all_arguments_of_the_list_command() -> None:
    argv = service("list-command", "vllm")
    unknown = {
        v: {f.text.split(" has no ")[1].split(":")[0] for f in parse(argv, table(v)).findings if f.code == "unknown-flag"}
        for v in tables().versions
    }
    assert unknown["0.17.1"] == {"-sc"}
    assert unknown["0.19.1"] == {"--swap-space"}
    assert all(unknown.values())


@pytest.mark.parametrize(
    ("version", "codes"),
    [
        ("0.19.1", {"bad-choice"}),  # TurboQuant is no part of the stock release
        ("0.24.0", set()),
        ("0.33.0", set()),
        ("0.8.4", {"version-guessed", "bad-choice", "unknown-flag", "unknown-value"}),
    ],
)
def test_the_reference_production_by_version(version: str, codes: set[str]) -> None:
    assert {f.code for f in parse(service("production", "vllm-medium"), table(version)).findings} == codes


def test_the_reference_candidate_is_clean_on_its_version() -> None:
    parsed = parse(service("candidate-mtp", "vllm-medium"), table("0.19.1"))
    assert (parsed.findings, parsed.model) == ((), "cyankiwi/Qwen3.6-35B-A3B-AWQ-4bit")
    assert parsed.given("--override-generation-config") == {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "min_p": 0.0}
