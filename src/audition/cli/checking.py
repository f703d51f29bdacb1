"""A check from the command line: engines as a run would make them, options understood, secrets masked in what is shown."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from audition.check.checking import Scope, check
from audition.check.finding import Report, Row
from audition.check.look_arms import Given
from audition.errors import BadInput
from audition.report.mask import MASK, MIN_LENGTH, mask
from audition.run import preparing
from audition.spike.parse import LoadedSpike
from audition.spike.problems import nearest
from audition.wayback.lock import state_root

_RELEASE = re.compile(r"v?([0-9]{1,6}\.[0-9]{1,6}\.[0-9]{1,6})")
MOST_GPU_MEMORY_MIB = 2**30
"""A pebibyte: beyond any GPU, and small enough for every figure that is made of it. Own choice."""


def check_file(
    loaded: LoadedSpike,
    *,
    checkpoints: Sequence[str] = (),
    versions: Sequence[str] = (),
    elsewhere: bool = False,
    gpu_memory_mib: int | None = None,
) -> Report:
    """The report, without secrets. Raises BadInput for options that name no arm, folder or release."""
    arms = [arm.name for arm in loaded.spike.arms]
    if gpu_memory_mib is not None and gpu_memory_mib > MOST_GPU_MEMORY_MIB:
        raise BadInput("--gpu-memory: no GPU has that much", next_step="give MiB, for example --gpu-memory 81559")
    folders = {name: _folder(name, text) for name, text in _pairs(checkpoints, "--checkpoint", arms)}
    releases = {}
    for name, text in _pairs(versions, "--vllm", arms):
        release = _RELEASE.fullmatch(text)
        if release is None:
            raise BadInput(f"--vllm {name}: {text[:60]!r} is no release", next_step=f"for example --vllm {name}=0.19.1")
        releases[name] = release[1]
    root = state_root()
    identity = preparing.new_identity(loaded.spike, root, "check")
    engines = preparing.make_engines(loaded.spike, loaded.folder, identity)
    scope = Scope(here=not elsewhere, state=root, given=Given(folders, releases, gpu_memory_mib))
    report = check(loaded, engines, scope)
    return masked(report, preparing.secret_values_if_known(loaded.spike, engines, dict(os.environ)))


def masked(report: Report, secrets: Sequence[str]) -> Report:
    """The report without secrets: line by line, so that no line's end is taken for the beginning of a value."""

    def hide(text: str) -> str:
        return "\n".join(mask(line, secrets) for line in text.split("\n"))

    def hide_values(text: str) -> str:  # in text to paste, names of variables must stay as they are
        for secret in sorted(secrets, key=len, reverse=True):
            text = text.replace(secret, MASK) if len(secret) >= MIN_LENGTH else text
        return text

    contrast = report.contrast
    if contrast is not None:
        rows = tuple(Row(row.what, hide(row.arm), hide(row.reference_arm)) for row in contrast.rows)
        contrast = replace(contrast, rows=rows, unknown=hide(contrast.unknown))
    return replace(
        report,
        findings=tuple(replace(found, text=hide(found.text), hint=hide(found.hint)) for found in report.findings),
        contrast=contrast,
        control=tuple(replace(paste, text=hide_values(paste.text)) for paste in report.control),
    )


def _folder(name: str, text: str) -> Path:
    """The folder of a checkpoint. Raises BadInput when it is none."""
    try:
        folder = Path(text).expanduser()
        there = folder.is_dir()
    except (RuntimeError, ValueError, OSError) as error:  # ``~nobody``, a zero byte, a name that is too long
        said = error.strerror if isinstance(error, OSError) else str(error)
        raise BadInput(f"--checkpoint {name}: {text[:100]!r} names no folder ({said})", next_step="give its full path") from error
    if not there:
        raise BadInput(f"--checkpoint {name}: there is no folder {folder}", next_step="name the folder that holds config.json")
    return folder


def _pairs(given: Sequence[str], option: str, arms: list[str]) -> list[tuple[str, str]]:
    found = []
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not value:
            raise BadInput(f"{option} {text[:60]}: expected ARM=...", next_step=f"for example {option} {arms[0]}=...")
        if name not in arms:
            raise BadInput(f"{option}: no arm is called {name[:60]!r}", next_step=nearest(name, arms))
        found.append((name, value))
    return found
