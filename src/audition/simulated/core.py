"""The API server's side of its EngineCore process: start it, tell it how much memory to hold, notice its death.

What must not live here: the process itself (see `worker`).
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

from audition.simulated.faults import find
from audition.simulated.ledger import read_ledger
from audition.simulated.settings import Settings

PARKED_MIB = 4  # what a suspended process keeps on a GPU (measured with vLLM 0.24.0)


class CoreDied(RuntimeError):
    """The EngineCore process is gone."""


class EngineCore:
    """A running EngineCore process. It is in the same process group and session as its parent."""

    def __init__(self, settings: Settings, tensor_parallel_size: int) -> None:
        self.settings = settings
        self.gpus = settings.gpus or tuple(range(tensor_parallel_size))
        orphan = find(settings.faults, "orphan-worker")
        options = {"ledger": settings.gpu_ledger, "orphan_s": orphan.number("max_s") if orphan else 0}
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(__file__).with_name("worker.py")), json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.pid = self._process.pid
        self._acknowledged()

    def _acknowledged(self) -> None:
        assert self._process.stdout is not None
        if self._process.stdout.readline() != b"ok\n":
            raise CoreDied(f"EngineCore {self.pid} died")

    def hold(self, mib: int) -> None:
        """Hold so many MiB on each GPU from now on. Raises CoreDied."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"gpus": {str(gpu): mib for gpu in self.gpus}}).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise CoreDied(f"EngineCore {self.pid} died") from error
        self._acknowledged()

    def hold_share(self, share: float) -> None:
        """Hold a share of the full memory on each GPU."""
        self.hold(round(self.settings.gpu_memory_mib * share))

    def first_full_gpu(self) -> tuple[int, int] | None:
        """A GPU on which others hold too much for this server, with the MiB free there; None when all fit."""
        if not self.settings.gpu_ledger:
            return None
        holders = [holder for holder in read_ledger(self.settings.gpu_ledger).holders if holder.pid != self.pid]
        for gpu in self.gpus:
            free = self.settings.gpu_total_mib - sum(holder.gpus.get(gpu, 0) for holder in holders)
            if free < self.settings.gpu_memory_mib:
                return gpu, max(0, free)
        return None

    def watch(self) -> int:
        """A pidfd that becomes readable when the process ends."""
        return os.pidfd_open(self.pid)

    def let_go(self) -> None:
        """Tell the process to end and wait for it, unless the fault says that it outlives its parent."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        if find(self.settings.faults, "orphan-worker") is None:
            self._process.wait()
