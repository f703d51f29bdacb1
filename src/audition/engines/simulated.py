"""The engine of arms played by the simulated server: a process engine whose command is made from the arm's arguments and settings.

What the simulation does lives in ``audition.simulated``, which is started as a program and never imported.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from audition.engines.parking import ParkBeside
from audition.engines.process import Declared, ProcessEngine
from audition.errors import InternalError
from audition.spike.model import Arm
from audition.spike.model import SimulatedEngine as SimulatedSpec


def simulated_process(arm: Arm, folder: Path, environ: Mapping[str, str], args: list[str], settings: Mapping[str, Any]) -> Declared:
    """The process that plays ``arm`` with vLLM's arguments ``args``; address and model name come from the arm's endpoint unless
    given."""
    parts = urlsplit(arm.endpoint.url)
    added = {"--host": parts.hostname or "127.0.0.1", "--port": str(parts.port or 80), "--served-model-name": arm.endpoint.model}
    given = {word.partition("=")[0] for word in args}
    extra = [word for flag, value in added.items() if flag not in given for word in (flag, value)]
    env = {name: value for name, value in environ.items() if not name.startswith("AUDITION_")}
    env["AUDITION_SIM"] = json.dumps(dict(settings))
    key = arm.endpoint.api_key_env
    if key is not None and key in environ:
        env["VLLM_API_KEY"] = environ[key]
    return Declared([sys.executable, "-P", "-m", "audition.simulated", "serve", *args, *extra], env, folder.resolve())


class SimulatedEngine(ProcessEngine):
    """One arm that is a simulated server; see ``base.Engine``. ``settings`` are added to those of the spike file (e.g. the GPU
    ledger)."""

    def __init__(
        self,
        arm: Arm,
        folder: Path,
        state_dir: Path,
        token: str,
        *,
        production: bool,
        production_port: int | None = None,
        settings: Mapping[str, Any] | None = None,
        environ: Mapping[str, str] | None = None,
        park_beside: ParkBeside | None = None,
    ) -> None:
        environ = dict(os.environ if environ is None else environ)
        if not isinstance(arm.engine, SimulatedSpec):
            raise InternalError(f"arm {arm.name} is not a simulated engine")
        declared = simulated_process(arm, folder, environ, list(arm.engine.args), {**arm.engine.settings, **(settings or {})})
        super().__init__(
            arm,
            folder,
            state_dir,
            token,
            production=production,
            production_port=production_port,
            declared=declared,
            environ=environ,
            park_beside=park_beside,
        )
