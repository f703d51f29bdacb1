"""Suspend and resume: the engine stops, its memory moves out at a stated rate, and later comes back.

Health stays 200 meanwhile and requests wait, as measured with vLLM 0.24.0 under the driver's checkpoint calls.
What must not live here: HTTP.
"""

from __future__ import annotations

import asyncio

from audition.simulated.core import PARKED_MIB, EngineCore
from audition.simulated.engine import Engine
from audition.simulated.settings import Settings

MIB = 1024 * 1024


class ParkError(RuntimeError):
    """The move is not possible now: wrong state, or no room on a GPU to come back to."""


class Park:
    """The state of one engine: running, suspending, suspended or resuming."""

    def __init__(self, settings: Settings, engine: Engine, core: EngineCore) -> None:
        self.settings = settings
        self.engine = engine
        self.core = core
        self.state = "running"

    def _seconds(self, gb_s: float) -> float:
        return self.settings.gpu_memory_mib * MIB * len(self.core.gpus) / (gb_s * 1e9)

    async def suspend(self) -> None:
        """Stop after the current step and move the memory of all GPUs out. Raises ParkError unless running."""
        if self.state != "running":
            raise ParkError(f"cannot suspend: the engine is {self.state}")
        self.state = "suspending"
        self.engine.pause()
        await self.engine.quiet.wait()
        await asyncio.sleep(self._seconds(self.settings.suspend_gb_s))
        self.core.hold(PARKED_MIB)
        self.state = "suspended"

    async def resume(self) -> None:
        """Move the memory back and go on. Raises ParkError unless suspended and all GPUs have room."""
        if self.state != "suspended":
            raise ParkError(f"cannot resume: the engine is {self.state}")
        full = self.core.first_full_gpu()
        if full is not None:
            raise ParkError(f"cannot resume: GPU {full[0]} has only {full[1]} MiB free")
        self.state = "resuming"
        self.core.hold_share(1.0)
        await asyncio.sleep(self._seconds(self.settings.resume_gb_s))
        self.state = "running"
        self.engine.resume()
