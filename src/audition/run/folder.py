"""The run folder: where a run leaves its records. Nothing is ever overwritten by a later run. Statistics live in ``judge``."""

from __future__ import annotations

import os
import re
from pathlib import Path

from audition.errors import Refused
from audition.judge.records import LegRecord, ProbeRecord, RunRecord, to_json

_MOST_RUNS_A_DAY = 1000


def write_atomically(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a whole file or nothing: temporary file, fsync, rename. Raises OSError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(path)


class RunFolder:
    """``<records folder>/<spike>_<date>``, with ``_2``, ``_3`` … for further runs on one day."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @staticmethod
    def create(records: Path, spike: str, date: str) -> RunFolder:
        """A new folder that did not exist before, made atomically. Raises Refused when the place cannot be written."""
        for number in range(1, _MOST_RUNS_A_DAY):
            path = records / (f"{spike}_{date}" if number == 1 else f"{spike}_{date}_{number}")
            try:
                path.mkdir(parents=True)
            except FileExistsError:
                continue
            except OSError as cause:
                raise Refused(
                    f"the run folder {path} cannot be made",
                    seen=str(cause),
                    next_step="set `records.folder` in the spike file to a folder that can be written",
                ) from cause
            return RunFolder(path)
        raise Refused(f"{records} holds {_MOST_RUNS_A_DAY} runs of {spike} for {date} already")

    def write_run(self, record: RunRecord) -> None:
        """``run.json``, replaced as the run goes on."""
        write_atomically(self.path / "run.json", to_json(record))

    def leg_folder(self, index: int, arm: str) -> Path:
        """``legs/NN-<arm>``, made when it is not there. ``index`` counts from 1."""
        path = self.path / "legs" / f"{index:02d}-{re.sub(r'[^A-Za-z0-9._-]', '_', arm)}"
        path.mkdir(parents=True, exist_ok=True)
        return path

    def write_leg(self, record: LegRecord) -> None:
        """``legs/NN-<arm>/leg.json``."""
        write_atomically(self.leg_folder(record.index, record.arm) / "leg.json", to_json(record))

    def write_probes(self, index: int, arm: str, probes: list[ProbeRecord]) -> None:
        """``legs/NN-<arm>/probes.json``."""
        text = "[" + ",\n".join(to_json(probe).strip() for probe in probes) + "]\n"
        write_atomically(self.leg_folder(index, arm) / "probes.json", text)
