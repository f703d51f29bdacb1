"""A rehearsal from beginning to end: simulated production in a private world, the whole spike run in it, everything ended."""

from __future__ import annotations

import shutil
import socket
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from audition.engines.base import Engine
from audition.errors import InternalError
from audition.run import preparing
from audition.run.conductor import OnPoint, no_point
from audition.run.rehearsal import rehearsed
from audition.run.starting import Finished, Options, no_begin, run_spike
from audition.spike.model import Spike
from audition.spike.parse import LoadedSpike

NOT_PARKED = "a rehearsal restarts its simulated arms: parking (restore.strategy: park) is not rehearsed"


def rehearse(
    loaded: LoadedSpike,
    *,
    fault: str | None = None,
    quiet: bool = False,
    records_base: Path | None = None,
    screen: bool = False,
    events: int | None = None,
    on_begin: Callable[[], None] = no_begin,
    on_point: OnPoint = no_point,
) -> Finished:
    """Rehearse a spike. Its own state, GPU ledger and port: it never meets a real run. Raises AuditionError like ``run_spike``."""
    world = Path(tempfile.mkdtemp(prefix="audition-rehearsal-"))
    ledger, truth = world / "gpus", world / "truth"
    ledger.mkdir()
    truth.mkdir()
    try:
        spike = rehearsed(loaded.spike, port=_free_port(), ledger=str(ledger), truth=str(truth), fault=fault)
        staged = replace(loaded, spike=spike)
        outside = preparing.new_identity(spike, world / "before", "rehearsal")
        production = preparing.make_engine(spike, spike.production, loaded.folder, outside)
        production.start()
        try:
            outcome = production.wait_ready(lambda: False, lambda _line: None)
            if outcome.kind != "ready":
                raise InternalError(
                    f"the simulated production did not start: {outcome.kind} {outcome.detail}", seen=outcome.excerpt[-1500:]
                )
            options = Options(
                True,
                fault,
                quiet,
                root=world / "state",
                ledger=ledger,
                records_base=records_base,
                screen=screen,
                events=events,
                on_begin=on_begin,
                notes=(NOT_PARKED,) if loaded.spike.restore.strategy == "park" else (),
            )
            return run_spike(staged, options, on_point)
        finally:
            _end(production, spike, loaded.folder, world)
    finally:
        shutil.rmtree(world, ignore_errors=True)


def _end(production: Engine, spike: Spike, folder: Path, world: Path) -> None:
    """Stop the simulated production, whoever started its present boot."""
    production.stop()
    again = preparing.make_engine(spike, spike.production, folder, preparing.new_identity(spike, world / "after", "rehearsal"))
    if again.observe().state == "running":
        again.stop()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
