"""Real vLLM on the CPU for tests: where it is, and why it is not there when it is not. Installed by `make live-env`."""

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from environments.vllm_cpu.install import HERE, MODEL, MODEL_STAMP, STAMP, UNAVAILABLE, VENV


@dataclass(frozen=True)
class LiveVllm:
    """Paths into the installed environment. `serve` is a script: `serve MODEL_DIR PORT [vllm arguments...]`, in the foreground."""

    python: Path
    vllm: Path
    model_dir: Path
    serve: Path


def why_not() -> str | None:
    """Why real vLLM is not tested, as a sentence; None when it is there."""
    if os.environ.get("AUDITION_LIVE") == "0":
        return "Real vLLM is left out on request (AUDITION_LIVE=0)."
    if UNAVAILABLE.exists():
        return UNAVAILABLE.read_text().strip()
    if not (STAMP.exists() and MODEL_STAMP.exists()):
        return "Real vLLM for the CPU is not installed; run `make live-env`."
    return None


@pytest.fixture(scope="session")
def live_vllm() -> LiveVllm:
    """The installed vLLM. Skips, with the reason, where it cannot be had."""
    if reason := why_not():
        pytest.skip(reason)
    return LiveVllm(VENV / "bin" / "python", VENV / "bin" / "vllm", MODEL, HERE / "serve.sh")
