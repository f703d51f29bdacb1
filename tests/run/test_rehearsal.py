"""Whole rehearsals, as a person runs them: real processes for production, candidate and guard; every fault on demand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from audition.simulated.faults import FAULT_KINDS
from audition.wayback.proctable import scan

HERE = Path(__file__).parent
GO, NO_GO = 0, 3

EXPECTED: dict[str, tuple[int, str]] = {
    # fault: exit code, a word of the reason
    "boot-crash": (NO_GO, "cannot boot"),
    "oom": (NO_GO, "cannot boot"),
    "boot-hang": (NO_GO, "cannot boot"),
    "slow-boot": (GO, ""),
    "die-mid-leg": (NO_GO, "died"),
    "stall-stream": (NO_GO, "failure_share"),
    "degenerate-text": (NO_GO, "canary"),
    "acceptance-collapse": (NO_GO, "acceptance_length"),
    "http-5xx": (NO_GO, "500"),
    "error-in-200": (NO_GO, "failure_share"),
    "ignore-sigterm": (GO, ""),
    "orphan-worker": (GO, ""),
    "wrong-model-name": (NO_GO, "cannot boot"),
    "hang": (NO_GO, "cannot boot"),
}


def rehearse(folder: Path, *arguments: str) -> tuple[int, dict[str, Any], str]:
    done = subprocess.run(
        [sys.executable, "-m", "audition", "rehearse", *arguments, "--json"],
        cwd=folder, capture_output=True, text=True, timeout=280, check=False, stdin=subprocess.DEVNULL,
        env={**os.environ, "TMPDIR": str(folder)},
    )  # fmt: skip
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout), done.stderr


def spike_in(folder: Path) -> str:
    (folder / "spike.yaml").write_text((HERE / "faults_spike.yaml").read_text())
    return str(folder / "spike.yaml")


def left_running(folder: Path) -> list[str]:
    """Processes that still have the rehearsal's private folder in their command line or as the place of their output."""
    lines = {pid: _command(pid) for pid in scan()}
    return [line for pid, line in lines.items() if (str(folder) in line or "audition.simulated" in line) and _is_ours(pid, folder)]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def _is_ours(pid: int, folder: Path) -> bool:
    try:
        places = [os.readlink(f"/proc/{pid}/{name}") for name in ("cwd", "fd/1")]
    except OSError:
        return False
    return any(place.startswith(str(folder)) for place in places)


@pytest.mark.slow
def test_a_rehearsal_without_a_fault_says_go_and_leaves_its_records(tmp_path: Path) -> None:
    code, said, stderr = rehearse(tmp_path, spike_in(tmp_path))
    assert code == GO, said["result"]["reasons"]
    assert said["result"]["verdict"] == "GO"
    assert said["result"]["rehearsal"] is True
    assert said["restored"]["verified"] is True
    run = Path(said["run_dir"])
    assert run.parent == tmp_path / "_iteration_log"
    for name in ("run.json", "result.json", "summary.txt", "decision.md", "restore.json", "spike.yaml", "spike.resolved.json"):
        assert (run / name).stat().st_size > 0, name
    for name in ("summary.txt", "decision.md"):
        assert "REHEARSAL" in (run / name).read_text()
    assert all(line.startswith("REHEARSAL") for line in stderr.splitlines() if line.strip())
    assert left_running(tmp_path) == []


@pytest.mark.slow
def test_judging_again_gives_the_same_bytes(tmp_path: Path) -> None:
    code, said, _ = rehearse(tmp_path, spike_in(tmp_path))
    run = Path(said["run_dir"])
    before = {name: (run / name).read_bytes() for name in ("result.json", "summary.txt", "decision.md")}
    again = subprocess.run([sys.executable, "-m", "audition", "judge", str(run)], capture_output=True, text=True, check=False)
    assert again.returncode == code
    assert before == {name: (run / name).read_bytes() for name in before}
    assert again.stdout == before["summary.txt"].decode()


@pytest.mark.slow
def test_a_second_run_on_one_day_overwrites_nothing(tmp_path: Path) -> None:
    spike = spike_in(tmp_path)
    _, first, _ = rehearse(tmp_path, spike, "--fault", "oom")
    kept = {path: path.read_bytes() for path in Path(first["run_dir"]).rglob("*") if path.is_file()}
    _, second, _ = rehearse(tmp_path, spike, "--fault", "oom")
    assert first["run_dir"] != second["run_dir"]
    assert kept == {path: path.read_bytes() for path in kept}


def test_every_fault_has_an_expectation() -> None:
    assert set(EXPECTED) == set(FAULT_KINDS)


@pytest.mark.slow
@pytest.mark.parametrize("fault", sorted(EXPECTED))
def test_every_fault_ends_with_production_back_and_the_right_verdict(fault: str, tmp_path: Path) -> None:
    code, said, _ = rehearse(tmp_path, spike_in(tmp_path), "--fault", fault)
    expected, word = EXPECTED[fault]
    reasons = " ".join(said["result"]["reasons"])
    assert said["restored"]["verified"] is True
    assert said["restored"]["problems"] == []
    assert code == expected, reasons
    assert word in reasons
    assert left_running(tmp_path) == []


@pytest.mark.slow
def test_a_rehearsal_says_that_it_does_not_park(tmp_path: Path) -> None:
    spike = Path(spike_in(tmp_path))
    spike.write_text(spike.read_text() + "\nrestore: {strategy: park}\n")
    _, said, errors = rehearse(tmp_path, str(spike), "--fault", "boot-crash")
    assert said["restored"]["verified"] is True
    assert "parking (restore.strategy: park) is not rehearsed" in errors
    assert "is not rehearsed" in (Path(said["run_dir"]) / "legs" / "01-plain" / "leg.json").read_text()


def test_an_unknown_fault_is_bad_input_and_starts_nothing(tmp_path: Path) -> None:
    code, said, _ = rehearse(tmp_path, spike_in(tmp_path), "--fault", "earthquake")
    assert code == 2
    assert "earthquake" in said["what"]
    assert "oom" in said["next"]
    assert not (tmp_path / "_iteration_log").exists()
