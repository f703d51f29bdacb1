"""Engines that must honour the contract. Another engine joins by adding its factory to ``FACTORIES``.

A factory gets a scratch folder and returns a ``Bench``; where an engine cannot run on this machine it calls ``pytest.skip`` with
the reason.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from audition.engines.base import Engine
from audition.engines.process import ProcessEngine
from audition.engines.simulated import SimulatedEngine
from audition.spike.model import Arm
from wayback.tiny_world import ENGINE, free_port


@dataclass
class Bench:
    """Engines of one kind for the contract. Each builder gives an engine that nothing has started; ``clean`` ends everything."""

    good: Callable[[], Engine]
    crashing: Callable[[], Engine]
    hanging: Callable[[], Engine]
    wrong_model: Callable[[], Engine]
    engines: list[Engine] = field(default_factory=list)
    crash_code: int | None = None

    def make(self, build: Callable[[], Engine]) -> Engine:
        engine = build()
        self.engines.append(engine)
        return engine

    def clean(self) -> None:
        for engine in self.engines:
            engine.stop()


def _arm(name: str, engine: Mapping[str, object], port: int, model: str, boot: dict[str, object] | None = None) -> Arm:
    return Arm.model_validate(
        {
            "name": name,
            "role": "candidate",
            "engine": engine,
            "endpoint": {"url": f"http://127.0.0.1:{port}", "model": model},
            "boot": {"limit": 30, "silence": 30, **(boot or {})},
            "stop": {"grace": 5},
        }
    )


def process_bench(folder: Path) -> Bench:
    def build(*options: str, model: str = "tiny", boot: dict[str, object] | None = None) -> Engine:
        port = free_port()
        command = [sys.executable, ENGINE, "--port", str(port), *options]
        arm = _arm(f"arm-{port}", {"kind": "process", "command": command}, port, model, boot)
        return ProcessEngine(arm, folder, folder / "state", f"token-{port}", production=False)

    return Bench(
        good=build,
        crashing=lambda: build("--exit-at-boot", "3"),
        hanging=lambda: build("--hang-at-boot", boot={"silence": 1}),
        wrong_model=lambda: build("--model", "another"),
        crash_code=3,
    )


def simulated_bench(folder: Path) -> Bench:
    def build(
        *, model: str = "tiny", args: tuple[str, ...] = (), boot: dict[str, object] | None = None, **settings: object
    ) -> Engine:
        port = free_port()
        spec = {"kind": "simulated", "args": ["example/model", *args], "settings": {"boot_s": 0.3, **settings}}
        arm = _arm(f"arm-{port}", spec, port, model, boot)
        return SimulatedEngine(arm, folder, folder / "state", f"token-{port}", production=False)

    return Bench(
        good=build,
        crashing=lambda: build(args=("--no-such-flag",)),
        hanging=lambda: build(boot_s=60.0, boot={"silence": 3}),
        wrong_model=lambda: build(args=("--served-model-name", "another")),
        crash_code=2,
    )


FACTORIES: dict[str, Callable[[Path], Bench]] = {"process": process_bench, "simulated": simulated_bench}
