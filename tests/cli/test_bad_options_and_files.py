"""`init` and `check` where an option, an argument of vLLM or a file is nonsense: one clear message, never a traceback or a wait."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from audition.cli.checking import check_file
from audition.cli.initialising import initialise, write
from audition.errors import BadInput, Refused
from audition.spike.parse import load_spike

SPIKE = """\
audition: 1
name: trial
question: Is it faster?
records: {{folder: records}}
arms:
  - name: prod
    role: production
    engine: {{kind: process, command: "vllm serve m {odd}"}}
    endpoint: {{url: "http://127.0.0.1:9", model: m}}
  - name: cand
    role: candidate
    engine: {{kind: process, command: "vllm serve m {odd}"}}
    endpoint: {{url: "http://127.0.0.1:9", model: m}}
workloads: [{{name: single, requests: 4}}]
gates: [{{metric: failure_share, workload: single, at_most: 0}}]
{more}
"""


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AUDITION_STATE", str(tmp_path / "state"))
    return tmp_path


def spike(folder: Path, odd: str = "", more: str = "") -> Path:
    path = folder / "spike.yaml"
    path.write_text(SPIKE.format(odd=odd, more=more))
    return path


ODD = [
    *("--max-model-len ²", "--tensor-parallel-size ²", f"--max-model-len {'9' * 4400}", "--gpu-memory-utilization nan"),
    *("--gpu-memory-utilization inf", f"--max-num-seqs {'9' * 400}", f"--max-model-len {'9' * 400}k"),
    *(f"--hf-overrides {'[' * 20_000}", f"--hf-overrides={'[' * 20_000}"),
]


@pytest.mark.parametrize("odd", ODD, ids=lambda text: text[:40])
@pytest.mark.parametrize("version", ["0.19.1", None])
def test_an_odd_value_is_a_finding(state: Path, odd: str, version: str | None) -> None:
    versions = [f"{arm}={version}" for arm in ("prod", "cand")] if version else []
    report = check_file(load_spike(spike(state, odd)), versions=versions, elsewhere=True, gpu_memory_mib=80_000)
    codes = {"bad-number", "bad-json", "value-not-understood"}
    found = {arm: finding for finding in report.findings if finding.code in codes for arm in finding.arm.split(", ")}
    assert set(found) == {"prod", "cand"}
    assert found["prod"].level == "warning", "production runs so"
    assert all(len(finding.text) < 400 for finding in found.values())


BAD = [
    {"checkpoints": ["cand=~nobodyx/y"]}, {"checkpoints": [f"cand={'x' * 5000}"]}, {"versions": [f"cand=0.{'1' * 5000}.1"]},
    {"versions": ["cand=0.²1.1"]}, {"gpu_memory_mib": int("9" * 400)},
]  # fmt: skip


@pytest.mark.parametrize("options", BAD, ids=lambda options: str(options)[:30])
def test_odd_options_of_a_check(state: Path, options: dict[str, list[str]]) -> None:
    with pytest.raises(BadInput) as caught:
        check_file(load_spike(spike(state)), elsewhere=True, **options)  # type: ignore[arg-type]
    assert len(caught.value.what) < 400


@pytest.mark.parametrize(
    "given",
    [{"gpus": "²"}, {"gpus": "9" * 5000}, {"production": ("a.yml",), "candidate": ("~nobodyx/c.yml",)}],
    ids=["superscript", "long", "home"],
)
def test_odd_options_of_init(tmp_path: Path, given: dict[str, object]) -> None:
    with pytest.raises(BadInput) as caught:
        initialise(tmp_path / "spike.yaml", {"production": ("a.yml",), **given}, force=False, no_input=True, as_json=False)
    assert len(caught.value.what) < 400
    assert list(tmp_path.iterdir()) == []


def test_pipes_in_the_place_of_files_do_not_hold_up_a_check(state: Path) -> None:
    os.mkfifo(state / "free.ics")
    (state / "zero.ics").symlink_to("/dev/zero")
    run = state / "records" / "trial_2026-01-01"
    run.mkdir(parents=True)
    os.mkfifo(run / "run.json")
    calendars = "[{name: free, file: free.ics, rule: never during}, {name: zero, file: zero.ics, rule: never during}]"
    path = spike(state, more=f"window: {{zone: Europe/Berlin, calendars: {calendars}}}")
    done = subprocess.run(
        [sys.executable, "-m", "audition", "check", str(path), "--elsewhere", "--json"],
        capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip
    assert done.stderr == ""
    assert "not a plain file" in json.dumps(json.loads(done.stdout)["findings"])


def test_a_pipe_is_no_place_for_a_spike_file(tmp_path: Path) -> None:
    out = tmp_path / "pipe"
    os.mkfifo(out)
    with pytest.raises(BadInput, match="no regular file"):
        initialise(out, {}, force=True, no_input=True, as_json=False)
    assert out.is_fifo()


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    out = tmp_path / "spike.yaml"
    out.write_text("written by hand\n")
    out.chmod(0o640)
    with pytest.raises(BadInput, match="UTF-8"):
        write(out, "question: \udcff\n", force=True)
    assert out.read_text() == "written by hand\n"
    with pytest.raises(Refused):
        write(out, "new\n", force=False)
    assert out.read_text() == "written by hand\n"
    write(out, "new\n", force=True)
    assert (out.read_text(), out.stat().st_mode & 0o777) == ("new\n", 0o640)
    assert [path.name for path in tmp_path.iterdir()] == ["spike.yaml"]


def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    """A limit on the length of files stands for the disk: the write fails half-way, as it does there."""
    out = tmp_path / "spike.yaml"
    out.write_text("written by hand\n")
    program = (
        "import resource, signal, sys\n"
        "from pathlib import Path\n"
        "from audition.cli.initialising import write\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
        "write(Path(sys.argv[1]), 'x' * 1000, force=True)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(out)], capture_output=True, text=True, check=False)
    assert "BadInput" in done.stderr
    assert out.read_text() == "written by hand\n"
    assert [path.name for path in tmp_path.iterdir()] == ["spike.yaml"]
