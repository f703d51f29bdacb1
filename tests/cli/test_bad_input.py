"""Bad input from the command line: each one clear message, exit 2 or 5, nothing started, nothing left behind."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from audition.wayback.proctable import scan

TINY = Path(__file__).parent.parent / "engines" / "tiny_engine.py"

GOOD = """\
audition: 1
name: bad
question: Is bad input refused?
arms:
  - name: prod
    role: production
    engine: {{kind: process, command: "{python} -I -S {tiny} --port {port} --model m"}}
    endpoint: {{url: "http://127.0.0.1:{port}", model: m}}
  - name: cand
    role: candidate
    engine: {{kind: process, command: "{python} -I -S {tiny} --port {port} --model m"}}
    endpoint: {{url: "http://127.0.0.1:{port}", model: m}}
workloads: [{{name: one, users: 1, requests: 1}}]
gates: [{{metric: failure_share, workload: one, at_most: 0}}]
"""


class Place:
    """A folder with a spike file, and the command line run in it."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, port
        self.before = set(scan())

    def spike(self, change: Callable[[str], str] = lambda text: text) -> Path:
        path = self.folder / "spike.yaml"
        path.write_text(change(GOOD.format(python=sys.executable, tiny=TINY, port=self.port)))
        return path

    def audition(self, *arguments: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-m", "audition", *arguments],
            cwd=self.folder, capture_output=True, text=True, timeout=100, check=False, stdin=subprocess.DEVNULL,
            env={**os.environ, "AUDITION_STATE": str(self.folder / "state")},
        )  # fmt: skip
        return done.returncode, done.stderr + done.stdout

    def left_behind(self) -> list[str]:
        """Run folders, state of runs, and processes of this folder."""
        out = [str(path) for path in self.folder.glob("_iteration_log/*")]
        out += [str(path) for path in self.folder.glob("state/runs/*")]
        for pid in set(scan()) - self.before:
            try:
                line = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
                if str(self.folder) in line or str(self.folder) in os.readlink(f"/proc/{pid}/cwd"):
                    out.append(line)
            except OSError:
                continue
        return out


@pytest.fixture
def place(tmp_path: Path, free_port: Callable[[], int]) -> Place:
    return Place(tmp_path, free_port())


CASES: dict[str, tuple[Callable[[str], str], str]] = {
    "does not parse": (lambda text: text.replace("arms:", "arms: ["), "spike.yaml:5"),
    "wrong type": (lambda text: text.replace("users: 1", "users: many"), "users"),
    "unknown key": (lambda text: text.replace("workloads:", "worklods:"), "workloads"),
    "two arms with one name": (lambda text: text.replace("name: cand", "name: prod"), "prod"),
    "gate on an unknown metric": (lambda text: text.replace("failure_share", "failure_shore"), "failure_share"),
    "hypothesis on an unknown signature": (
        lambda text: text + "hypotheses: [{name: h, claim: c, refuted_by: deepcopy-poisn}]\n",
        "deepcopy-poison",
    ),
    "empty leg list": (lambda text: text + "legs: []\n", "legs"),
}


@pytest.mark.parametrize("verb", ["run", "rehearse"])
@pytest.mark.parametrize("case", sorted(CASES))
def test_a_spike_file_that_is_wrong_is_bad_input(case: str, verb: str, place: Place) -> None:
    change, word = CASES[case]
    code, said = place.audition(verb, str(place.spike(change)))
    assert code == 2, said
    assert "spike.yaml" in said
    assert word in said
    assert "Traceback" not in said
    assert place.left_behind() == []


@pytest.mark.parametrize("verb", ["run", "rehearse"])
def test_a_missing_file_is_bad_input(verb: str, place: Place) -> None:
    code, said = place.audition(verb, "nowhere.yaml")
    assert code == 2
    assert "nowhere.yaml" in said
    assert place.left_behind() == []


def test_a_folder_that_is_no_run_is_bad_input(place: Place) -> None:
    code, said = place.audition("judge", str(place.folder))
    assert code == 2
    assert str(place.folder) in said
    assert "Traceback" not in said


def test_production_that_does_not_run_is_refused(place: Place) -> None:
    code, said = place.audition("run", str(place.spike()))
    assert code == 5, said
    assert "not running" in said
    assert "if_not_running" in said
    assert place.left_behind() == []


def test_a_port_held_by_a_stranger_is_refused(place: Place) -> None:
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", place.port))
        stranger.listen()
        code, said = place.audition("run", str(place.spike()))
    assert code == 5, said
    assert str(place.port) in said
    assert "Traceback" not in said
    assert place.left_behind() == []


def test_a_command_that_does_not_exist_is_refused(place: Place) -> None:
    code, said = place.audition("run", str(place.spike(lambda text: text.replace(sys.executable, "no-such-server"))))
    assert code == 5, said
    assert "no-such-server" in said
    assert place.left_behind() == []


def test_an_env_file_that_is_not_there_is_bad_input(place: Place) -> None:
    missing = place.spike(lambda text: text.replace('--model m"}', '--model m", env_files: [nowhere.env]}', 1))
    code, said = place.audition("run", str(missing))
    assert code == 2, said
    assert "nowhere.env" in said
    assert place.left_behind() == []


def test_a_state_folder_that_cannot_be_made_is_refused(place: Place) -> None:
    (place.folder / "state").write_text("a file where a folder should be")
    code, said = place.audition("run", str(place.spike()))
    assert code == 5, said
    assert "AUDITION_STATE" in said


def test_an_unknown_verb_and_an_unknown_option_are_bad_input(place: Place) -> None:
    assert place.audition("rehears")[0] == 2
    assert place.audition("run", "--quickly", "spike.yaml")[0] == 2


def test_errors_are_json_under_json(place: Place) -> None:
    import json

    code, said = place.audition("run", "nowhere.yaml", "--json")
    assert code == 2
    assert json.loads(said)["exit_code"] == 2
