from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from audition.faults.clean import clean_line
from audition.faults.matcher import Diagnosis, diagnose, diagnose_blocks, read_blocks
from audition.faults.signature import PHASES, parse_signature, shipped_signatures
from faults.corpus import EXPECTED, FAILED, HEALTHY, WRAPS, failed_lines, interleaved, long_healthy_log, mixed_corpus


def lines_of(name: str) -> list[str]:
    return (FAILED / f"{name}.log").read_text().splitlines(keepends=True)


def names(found: list[Diagnosis]) -> list[str]:
    return [d.name for d in found]


def test_every_failed_log_is_expected() -> None:
    assert {p.stem for p in FAILED.glob("*.log")} == set(EXPECTED)


@pytest.mark.parametrize(("log", "name"), EXPECTED.items())
def test_the_root_cause_comes_first(log: str, name: str) -> None:
    found = diagnose(lines_of(log))
    assert found[0].name == name
    assert found[0].remedy
    assert found[0].excerpt
    kinds = [d.kind for d in found]
    assert kinds == sorted(kinds, key=["cause", "symptom", "wrapper"].index)


@pytest.mark.parametrize("path", HEALTHY, ids=lambda p: p.stem)
def test_a_healthy_log_matches_nothing(path: Path) -> None:
    assert diagnose(path.read_text().splitlines()) == []


@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize("log", EXPECTED)
def test_prefixes_do_not_hide_the_cause(log: str, wrap: str) -> None:
    wrapped = [WRAPS[wrap](line) for line in failed_lines(log)]
    assert diagnose(wrapped)[0].name == EXPECTED[log]


def test_logs_of_interleaved_processes_are_told_apart() -> None:
    mixed = interleaved(failed_lines("oom_kv_alloc"), HEALTHY[2].read_text().splitlines())
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


def hits(*rates: float, drafting: bool) -> list[str]:
    lines = []
    for rate in rates:
        lines.append(f"Engine 000: Avg prompt throughput: 5.0 tokens/s, Running: 8 reqs, Prefix cache hit rate: {rate:.1f}%")
        if drafting:
            lines.append("SpecDecoding metrics: Mean acceptance length: 2.6, Accepted: 156 tokens, Drafted: 192 tokens")
    return lines


def test_prefix_hits_are_lost_only_when_drafting_begins() -> None:
    ready = "INFO:     Application startup complete."
    assert names(diagnose([*hits(90, 92, drafting=False), *hits(70, drafting=True)])) == ["prefix-hits-lost-mtp"]
    assert diagnose([*hits(90, 92, drafting=False), *hits(89, drafting=True)]) == []
    assert diagnose([*hits(90, 92, drafting=False), ready, *hits(0, 20, 40, drafting=True)]) == []  # a cold cache after a restart
    assert diagnose(hits(0, 90, 60, 90, drafting=True)) == []  # other traffic
    assert diagnose(hits(90, 60, 90, drafting=False)) == []
    both = [*hits(90, drafting=False), *hits(70, drafting=True), ready, *hits(90, drafting=True)]
    assert names(diagnose(both)) == ["prefix-hits-lost-mtp"]


def test_a_log_of_many_restarts_is_healthy() -> None:
    part = long_healthy_log(1_500_000, 3)
    assert diagnose_blocks([part] * 4) == []


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
    assert len(signatures) >= 60
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


ONE_LINERS = {
    "INFO:     KeyboardInterrupt: terminated error": "terminated-while-starting",
    "[rank0]:[E1001 16:06:04 x.cpp:607] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(": "nccl-timeout",
    "container vllm-1 has no healthcheck configured": "healthcheck-missing",
    'level=warning msg="The \\"HF_TOKEN\\" variable is not set. Defaulting to a blank string."': "variable-not-set",
    'WARN[0000] The "HF_CACHE" variable is not set. Defaulting to a blank string.': "variable-not-set",
    "error while interpolating services.vllm.command: required variable MODEL is missing a value: set it": "variable-required",
    'docker: Error: Conflict. The container name "/vllm" is already in use by container "ab12".': "container-name-taken",
    "ValueError: Total number of attention heads (16) must be divisible by tensor parallel size (3).": "heads-not-divisible",
    "ValueError: Quantization method specified in the model config (awq) does not match the quantization": "quantization-mismatch",
    "ValueError: The quantization method fp8 is not supported. Minimum capability: 89. Current: 75.": "gpu-too-old-for-method",
    "ValueError: No valid attention backend found for cuda with head_size": "no-attention-backend",
    "ValueError: There is no module or parameter named 'mtp.fc.weight' in Qwen3_5MoeMTP": "quantised-head-misload",
    "KeyError: 'model.layers.0.mlp.experts.w2_weight_scale'": "quantised-head-misload",
    "safetensors_rust.SafetensorError: Error while deserializing header: MetadataIncompleteBuffer": "checkpoint-corrupt",
    "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`": "no-memory-for-kv",
    "OSError: [Errno 12] Cannot allocate memory": "cannot-allocate-host-memory",
    "RuntimeError: No CUDA GPUs are available": "gpu-not-visible",
    "nvidia-container-cli: initialization error: nvml error: driver/library version mismatch: unknown": "driver-mismatch",
    "NVRM: Xid (PCI:0000:41:00): 79, pid=4242, GPU has fallen off the bus.": "gpu-fault",
    "RuntimeError: CUDA error: device-side assert triggered": "device-assert",
    "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`": "cublas-failed",
    "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 131072": "triton-resources",
    "torch._inductor.exc.InductorError: CalledProcessError": "compile-failed",
    "RuntimeError: Failed to find C compiler. Please specify via CC environment variable.": "compiler-missing",
    "ImportError: cannot import name 'GenerationMixin' from 'transformers'": "library-mismatch",
    "PermissionError: [Errno 13] Permission denied: '/root/.cache/vllm'": "permission-denied",
    "OSError: [Errno 24] Too many open files": "too-many-files",
    "KeyError: 'invalid tool call parser: qwen9 (chose from { hermes })'": "parser-unknown",
    "TimeoutError: Timed out waiting for engine core processes to start.": "engine-start-timeout",
    "zmq.error.ZMQError: Address already in use (addr='tcp://10.0.0.2:5557')": "port-in-use",
    "kernel: Memory cgroup out of memory: Killed process 4242 (VLLM::EngineCor) total-vm:1kB": "host-out-of-memory",
}


@pytest.mark.parametrize(("line", "name"), ONE_LINERS.items(), ids=ONE_LINERS.values())
def test_a_single_line_tells_the_cause(line: str, name: str) -> None:
    assert names(diagnose([line]))[0] == name


BOOT = "INFO 12-01 04:11:54 [utils.py:233] non-default args: {'model': 'acme/Model'}"
READY = "INFO:     Application startup complete."
LAST_WORDS = {
    "bash: vllm: command not found": "command-not-found",
    "/entrypoint.sh: line 3: vllm: command not found": "command-not-found",
    "zsh: command not found: vllm": "command-not-found",
    "/bin/sh: 1: vllm: not found": "command-not-found",
    "bash: line 1: /opt/env/bin/vllm: No such file or directory": "command-not-found",
    "env: ‘vllm’: No such file or directory": "command-not-found",
    "exec /opt/start: no such file or directory": "command-not-found",
    "Killed": "killed",
    '/entrypoint.sh: line 12:     7 Killed                  vllm serve "$@"': "killed",
    "zsh: killed     vllm serve": "killed",
    "Segmentation fault (core dumped)": "segmentation-fault",
    "Terminated": "terminated",
    "RuntimeError: simulated boot crash": "unknown",
    "ERROR 12-01 04:11:54 [core.py:1] acme.FlangeError: loose": "unknown",
}


@pytest.mark.parametrize(("last", "name"), LAST_WORDS.items())
def test_last_words_tell_of_a_failure(last: str, name: str) -> None:
    assert names(diagnose([last])) == [name]
    assert names(diagnose([BOOT, "INFO 12-01 04:11:55 [x.py:1] and on", last])) == [name]
    assert names(diagnose([BOOT, READY, last])) == [name]


@pytest.mark.parametrize("text", [t for t, name in LAST_WORDS.items() if name != "segmentation-fault"])
def test_the_same_words_before_a_server_was_ready_or_has_shut_down_are_no_failure(text: str) -> None:
    assert diagnose([text, BOOT, READY]) == []
    assert diagnose([BOOT, READY, "INFO:     Application shutdown complete.", "INFO:     Finished server process [1]", text]) == []


def test_an_exception_of_a_request_is_not_the_end_of_a_ready_server() -> None:
    access = 'INFO:     127.0.0.1:56174 - "GET /metrics HTTP/1.1" 200 OK'
    assert diagnose([BOOT, READY, "ValueError: one bad request", access]) == []
    assert diagnose([BOOT, "WARNING 12-01 04:11:54 [x.py:1] ImportError: optional"]) == []


@pytest.mark.parametrize(
    ("lines", "ending"),
    [
        ([BOOT, READY], "ready"),
        (['INFO:     10.0.0.9:60114 - "POST /v1/chat/completions HTTP/1.1" 200 OK'], "ready"),
        ([BOOT], "unfinished"),
        ([BOOT, READY, BOOT], "unfinished"),
        ([BOOT, READY, BOOT, "INFO 12-01 [x.py:1] Engine 000: Avg generation throughput: 3.0 tokens/s, Running: 1 reqs"], "ready"),
        (["INFO 12-01 04:11:55 [x.py:1] in the middle of something"], "unfinished"),
        (["milk, eggs"], "nothing known"),
        (["", "  "], "empty"),
        ([], "empty"),
    ],
)
def test_a_log_without_a_failure_says_whether_that_means_anything(lines: list[str], ending: str) -> None:
    whole = "".join(f"{line}\n" for line in lines).encode()
    for blocks in ([whole], [whole[i : i + 7] for i in range(0, len(whole), 7)]):
        told = read_blocks(blocks)
        assert (told.diagnoses, told.ending) == ([], ending)


@pytest.mark.parametrize("path", HEALTHY[:3], ids=lambda p: p.stem)
def test_a_healthy_log_ends_ready(path: Path) -> None:
    assert read_blocks([path.read_bytes()]).ending == "ready"


@pytest.mark.parametrize(
    ("last", "name"),
    [
        ("Loading safetensors checkpoint shards:  40% Completed | 2/5", "silent-weights"),
        ("Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):  12%", "silent-compile"),
        ("world_size=2 rank=1 local_rank=1 distributed_init_method=tcp://127.0.0.1:4242 backend=nccl", "silent-distributed"),
    ],
)
def test_silence_has_a_place(last: str, name: str) -> None:
    begin = "(APIServer pid=1) INFO 07-11 03:00:12 [utils.py:261] non-default args: {'model': 'acme/Model'}"
    health = '(APIServer pid=1) INFO:     127.0.0.1:55002 - "GET /health HTTP/1.1" 503 Service Unavailable'
    engine = f"(Worker_TP0 pid=266) INFO 07-11 03:00:45 [x.py:113] {last}"
    assert names(diagnose([begin, engine])) == [name]
    assert names(diagnose([begin, engine, health, health])) == [name]
    assert diagnose([begin, engine, "(EngineCore pid=9) INFO 07-11 03:00:46 [x.py:1] and on it goes"]) == []
    assert diagnose([begin, engine, "(APIServer pid=1) INFO:     Application startup complete.", health]) == []


@pytest.mark.parametrize("size", [1, 7, 100, 4096, 1 << 20])
def test_pieces_of_any_size_give_the_same(size: int) -> None:
    noise = long_healthy_log(20_000, 1)
    log = noise + ("\n".join(failed_lines("att4_deepcopy_poison")) + "\n").encode() + noise
    pieces = [log[i : i + size] for i in range(0, len(log), size)]
    assert diagnose_blocks(pieces) == diagnose_blocks([log])
    assert diagnose_blocks(pieces)[0].line_number == noise.count(b"\n") + 14


def test_a_log_without_line_ends_is_read_to_its_end() -> None:
    assert names(diagnose_blocks([b"x" * 200_000, b" RuntimeError: No CUDA GPUs are available"])) == ["gpu-not-visible"]


def test_a_traceback_that_never_ends_is_given_up() -> None:
    log = ["Traceback (most recent call last):", *["  and on"] * 600, "ValueError: somebody else's"]
    assert diagnose([*log, "INFO:     Application startup complete."]) == []


def test_a_long_healthy_log_matches_nothing() -> None:
    assert diagnose_blocks([long_healthy_log(3_000_000, 2)]) == []


def test_every_case_of_a_mixed_corpus_gets_its_class() -> None:
    wrong = []
    for case in mixed_corpus(seed=5, rounds=1):
        found = names(diagnose(case.lines))
        if (found[0] if found else None) != case.expected:
            wrong.append((case.name, found))
    assert wrong == []


def run_cli(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "audition", "diagnose", *arguments], input=stdin, capture_output=True, check=False, timeout=120
    )


def test_the_command_reads_files_and_standard_input() -> None:
    path = str(FAILED / "oom_kv_alloc.log")
    done = run_cli(path)
    assert done.returncode == 3
    assert done.stdout.startswith(b"cuda-out-of-memory: ")
    piped = run_cli("-", "--json", stdin=(FAILED / "oom_kv_alloc.log").read_bytes())
    assert piped.returncode == 3
    assert json.loads(piped.stdout)[0]["diagnoses"][0]["captures"] == {"wanted": "1.02 GiB"}
    several = run_cli(path, str(HEALTHY[0]))
    assert b"== " in several.stdout
    assert b"Nothing wrong was found." in several.stdout


def test_the_exit_code_of_the_command_tells_known_from_unknown(tmp_path: Path) -> None:
    assert run_cli(str(HEALTHY[1])).returncode == 0
    log = b"Traceback (most recent call last):\n  File x\nacme.FlangeError: the flange is loose\n"
    unknown = run_cli("-", stdin=log)
    assert unknown.returncode == 4
    assert b"unknown: acme.FlangeError: the flange is loose" in unknown.stdout
    assert run_cli(str(tmp_path / "nowhere.log")).returncode == 2


def test_a_log_that_tells_nothing_is_not_called_sound(tmp_path: Path) -> None:
    empty = run_cli("-", stdin=b"")
    assert (empty.returncode, empty.stdout.splitlines()[0]) == (4, b"Nothing is known: the log is empty.")
    cut = run_cli("-", "--json", stdin=f"{BOOT}\n".encode())
    assert cut.returncode == 4
    assert json.loads(cut.stdout) == [{"log": "-", "ending": "unfinished", "diagnoses": []}]
    both = run_cli("-", str(FAILED / "oom_kv_alloc.log"), stdin=b"")
    assert both.returncode == 3


def test_what_is_no_text_is_named_and_a_truncated_log_is_read(tmp_path: Path) -> None:
    whole = HEALTHY[1].read_bytes()
    for number, data in enumerate(
        (gzip.compress(whole), whole.decode().encode("utf-16"), sys.executable.encode() + bytes(range(256)) * 9)
    ):
        path = tmp_path / f"{number}.log"
        path.write_bytes(data)
        done = run_cli(str(path))
        assert (done.returncode, done.stdout) == (2, b""), number
        assert b"is no text" in done.stderr
    assert run_cli("-", stdin=bytes(5000) + whole).returncode == 0
