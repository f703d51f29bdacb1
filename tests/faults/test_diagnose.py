from __future__ import annotations

import json
from itertools import zip_longest
from pathlib import Path

import pytest

from audition.faults.clean import clean_line
from audition.faults.matcher import Diagnosis, diagnose
from audition.faults.signature import PHASES, parse_signature, shipped_signatures

LOGS = Path(__file__).parent.parent / "data" / "logs"
EXPECTED = {
    "att4_deepcopy_poison": "deepcopy-poison",
    "engine_dead_exit_zero": "worker-died",
    "free_memory_after_swap": "gpu-memory-not-free",
    "kv_too_small_for_max_len": "kv-too-small",
    "low_prefix_hit_mtp": "prefix-hits-lost-mtp",
    "mtp_weights_absent_zero_acceptance": "mtp-head-absent",
    "nccl_hang_no_p2p": "nccl-hang",
    "oom_kv_alloc": "cuda-out-of-memory",
    "port_in_use": "port-in-use",
    "stall_zero_generation_mtp_async": "stall-zero-generation",
    "crash_during_request.synthetic": "synthetic-acceptance-unsupported",
    "fail_bad_json": "bad-argument-value",
    "fail_bad_spec_field": "bad-config-field",
    "fail_kv_gt_memory": "kv-exceeds-memory",
    "fail_maxlen_gt_kvcache": "kv-too-small",
    "fail_no_mtp_head": "no-mtp-head",
    "fail_unknown_flag": "unknown-argument",
    "fail_wrong_model_path": "model-not-found",
}


def lines_of(name: str) -> list[str]:
    return (LOGS / "failed" / f"{name}.log").read_text().splitlines(keepends=True)


def names(found: list[Diagnosis]) -> list[str]:
    return [d.name for d in found]


def test_every_failed_log_is_expected() -> None:
    assert {p.stem for p in (LOGS / "failed").glob("*.log")} == set(EXPECTED)


@pytest.mark.parametrize(("log", "name"), EXPECTED.items())
def test_the_root_cause_comes_first(log: str, name: str) -> None:
    found = diagnose(lines_of(log))
    assert found[0].name == name
    assert found[0].remedy
    assert found[0].excerpt
    kinds = [d.kind for d in found]
    assert kinds == sorted(kinds, key=["cause", "symptom", "wrapper"].index)


@pytest.mark.parametrize("path", sorted((LOGS / "healthy").glob("*.log")), ids=lambda p: p.stem)
def test_a_healthy_log_matches_nothing(path: Path) -> None:
    assert diagnose(path.read_text().splitlines()) == []


WRAPS = {
    "compose": lambda t: f"vllm-1  | {t}",
    "docker": lambda t: f"2026-05-17T20:29:58.123456789Z {t}",
    "journald": lambda t: f"May 17 20:29:58 gpu-host docker[4242]: {t}",
    "kubernetes": lambda t: f"2026-05-17T20:29:58.123Z stderr F {t}",
    "json": lambda t: json.dumps({"log": t + "\n", "stream": "stderr", "time": "2026-05-17T20:29:58Z"}, separators=(",", ":")),
    "colour": lambda t: f"\x1b[1;36m{t}\x1b[0;0m",
}


@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize("log", EXPECTED)
def test_prefixes_do_not_hide_the_cause(log: str, wrap: str) -> None:
    wrapped = [WRAPS[wrap](line.rstrip("\n")) for line in lines_of(log) if not line.startswith("#")]
    assert diagnose(wrapped)[0].name == EXPECTED[log]


def test_logs_of_interleaved_processes_are_told_apart() -> None:
    a, b = lines_of("oom_kv_alloc"), (LOGS / "healthy" / "vllm-0.32-cpu-mtp3.log").read_text().splitlines(keepends=True)
    mixed = [line for pair in zip_longest(a, b) for line in pair if line is not None]
    assert diagnose(mixed)[0].name == "cuda-out-of-memory"


def test_captures_tell_the_figures() -> None:
    found = diagnose(lines_of("free_memory_after_swap"))[0]
    assert found.captures == {"device": "cuda:0", "free": "3.11", "total": "23.99"}
    assert found.origin == "environment"
    assert diagnose(lines_of("low_prefix_hit_mtp"))[0].captures == {"before": "92.1", "after": "71.3"}


def test_an_unknown_failure_gives_the_innermost_exception_and_the_last_lines() -> None:
    log = [
        "(EngineCore pid=7) ERROR 05-17 20:29:58 [core.py:1136] EngineCore failed to start.",
        "(EngineCore pid=7) ERROR 05-17 20:29:58 [core.py:1136] Traceback (most recent call last):",
        '(EngineCore pid=7) ERROR 05-17 20:29:58 [core.py:1136]   File "x.py", line 1, in f',
        "(EngineCore pid=7) ERROR 05-17 20:29:58 [core.py:1136] acme.errors.FlangeError: the flange is loose",
        "Traceback (most recent call last):",
        "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
    ]
    found = diagnose(log)
    assert found[0].name == "unknown"
    assert found[0].title == "acme.errors.FlangeError: the flange is loose"
    assert "Failed core proc" in found[0].excerpt
    assert found[1].name == "engine-core-failed"


def test_a_handled_exception_before_the_server_was_ready_is_no_failure() -> None:
    log = ["Traceback (most recent call last):", "ValueError: optional thing", "INFO:     Application startup complete."]
    assert diagnose(log) == []


def test_acceptance_that_collapses_is_not_a_missing_head() -> None:
    good = "SpecDecoding metrics: Mean acceptance length: 2.6, Accepted: 156 tokens, Drafted: 192 tokens"
    bad = "SpecDecoding metrics: Mean acceptance length: 1.0, Accepted: 0 tokens, Drafted: 400 tokens"
    assert names(diagnose([good, bad, bad])) == ["acceptance-collapse"]
    assert names(diagnose([good, bad, good])) == []
    assert names(diagnose([bad, bad])) == ["mtp-head-absent"]


def test_a_stall_that_ends_is_no_stall() -> None:
    stuck = "Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 0.0 tokens/s, Running: 3 reqs"
    going = "Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 88.0 tokens/s, Running: 3 reqs"
    assert names(diagnose([stuck, going, stuck])) == []
    assert names(diagnose([stuck, stuck])) == ["stall-zero-generation"]


def test_silence_counts_only_at_the_end() -> None:
    log = lines_of("nccl_hang_no_p2p")
    assert names(diagnose([*log, "(Worker_TP0 pid=266) INFO 07-11 03:00:46 [x.py:1] and on it goes"])) == []


def test_causes_are_found_wherever_blocks_of_lines_begin() -> None:
    noise = ["(APIServer pid=1) INFO 07-02 08:59:50 [loggers.py:1] nothing to see"] * 255
    for shift in range(0, 256, 51):
        found = diagnose([*noise[:shift], *lines_of("att4_deepcopy_poison")])
        assert found[0].name == "deepcopy-poison"
        assert found[0].line_number == 15 + shift


def test_empty_input_has_no_diagnosis() -> None:
    assert diagnose([]) == []


def test_signatures_are_whole_and_their_anchors_are_literal_parts_of_the_matches() -> None:
    signatures = shipped_signatures()
    assert len(signatures) >= 35
    assert len({s.name for s in signatures}) == len(signatures)
    for s in signatures:
        assert s.phase in PHASES
        assert s.cause.endswith(".")
        assert s.remedy.endswith(".")
        for p in s.patterns:
            plain = p.regex.pattern.replace("\\", "")
            assert p.anchor in plain, s.name


@pytest.mark.parametrize("text", ["name = 'x'", "name = 'x'\nphase = 'load'\nkind = 'cause'\n[[patterns]]\nanchor='a'\nregex='('"])
def test_a_broken_signature_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="signature x"):
        parse_signature(text)


def test_prefixes_are_taken_off() -> None:
    line = clean_line("\x1b[36m(EngineCore pid=214)\x1b[0m ERROR 05-17 20:29:58 [core.py:1136] ValueError: no\n")
    assert (line.process, line.level, line.text) == ("EngineCore pid=214", "ERROR", "ValueError: no")
    assert clean_line("plain text | with a bar").text == "plain text | with a bar"
