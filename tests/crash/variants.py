"""Crash worlds with a changed spike, and runs through the real command line that a test can watch and send signals to."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from audition.run.journal import read_entries
from audition.swap.journal import Entry
from crash.containers import ContainerWorld
from crash.world import World
from environments.docker_engine import DockerEngine

ONE_REQUEST = "{name: one, users: 1, requests: 1, max_tokens: 4, warmup: 0, prompts: prose}"
FOR_SECONDS = "{{name: one, users: 1, duration: {seconds}s, max_tokens: 4, warmup: 0, prompts: prose}}"
HOLD = "hold: 100ms"
LEGS = "legs: [prod, cand, prod]"
Edits = dict[str, str]


def longer(seconds: float) -> Edits:
    """Every leg's workload lasts so many seconds."""
    return {ONE_REQUEST: FOR_SECONDS.format(seconds=seconds)}


def edited(text: str, edits: Edits) -> str:
    """The text with every edit made; an edit that finds nothing is an error of the test."""
    for old, new in edits.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


class EditedWorld(World):
    """A process world whose spike text differs by ``edits`` (old text → new text)."""

    def __init__(self, folder: Path, edits: Edits) -> None:
        self.edits = edits
        super().__init__(folder)

    def spike_text(self) -> str:
        return edited(super().spike_text(), self.edits)


class EditedContainerWorld(ContainerWorld):
    """A container world whose spike text and profiles differ by edits."""

    def __init__(self, folder: Path, docker: DockerEngine, edits: Edits, *, profiles: dict[str, Edits] | None = None) -> None:
        self.edits, self.profile_edits = edits, profiles or {}
        super().__init__(folder, docker)

    def spike_text(self) -> str:
        text = edited(super().spike_text(), self.edits)
        for name, edits in self.profile_edits.items():
            profile = self.folder / name
            profile.write_text(edited(profile.read_text(), edits))
        return text


class Cli:
    """``audition run`` as a real process in a session of its own; what it says goes to a file."""

    def __init__(self, here: World, name: str = "cli") -> None:
        self.log = here.folder / f"{name}.log"
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "audition", "run", str(here.spike)],
                env={**here.env, "PYTHONUNBUFFERED": "1"}, cwd=here.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip

    @property
    def pid(self) -> int:
        return self.process.pid

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def says(self, text: str) -> bool:
        """Whether it has said so by now. A run that has ended says nothing new: then its whole log is shown."""
        if text in self.said():
            return True
        assert self.process.poll() is None, f"the run ended with {self.process.returncode} before saying {text!r}:\n{self.said()}"
        return False

    def end(self, limit_s: float = 120) -> int:
        return self.process.wait(limit_s)

    def kill(self) -> None:
        if self.process.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
            self.process.wait()


def run_record(here: World) -> dict[str, Any]:
    """The run.json of the only run in this world's records."""
    [folder] = (here.folder / "_iteration_log").iterdir()
    return dict(json.loads((folder / "run.json").read_text()))


def restore_record(here: World) -> dict[str, Any]:
    """The restore.json of the only run in this world's records."""
    [folder] = (here.folder / "_iteration_log").iterdir()
    return dict(json.loads((folder / "restore.json").read_text()))


def state_folder(here: World) -> Path:
    """The state folder of the only run in this world."""
    [folder] = (here.folder / "state" / "runs").iterdir()
    return folder


def journal_of(here: World) -> list[Entry]:
    """The journal of the only run in this world."""
    return read_entries(state_folder(here) / "journal.sqlite")


def verdict_of(said: str) -> str:
    """The verdict that a run printed."""
    found = re.search(r"\b(NO-GO|INCONCLUSIVE|GO)\b", said)
    assert found, said
    return found.group(1)
