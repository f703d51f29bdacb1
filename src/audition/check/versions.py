"""Releases of vLLM in the names of images and packages and in what servers say. Pure: texts in, a release or nothing out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePath

_TAG = re.compile(r"(?:^|/)[\w.-]*vllm[\w.-]*(?:/[\w.-]+)?:v?([0-9]{1,6}\.[0-9]{1,6}\.[0-9]{1,6})(?:[.\w-]*)?(?:@|$)")
_RELEASE = re.compile(r"v?(0\.[0-9]{1,6}\.[0-9]{1,6})(?:$|[^\d.])")


def of_image(reference: str) -> str:
    """The release in an image's tag, e.g. ``0.19.1`` of ``vllm/vllm-openai:v0.19.1-cu130``; empty when it names none.

    Images of vLLM's own and those called after it are read so; a patched image's number counts only where it looks like a release
    of vLLM, all of which begin with 0 to this day.
    """
    found = _TAG.search(reference)
    return found[1] if found and _RELEASE.match(found[1]) else ""


def of_text(text: str) -> str:
    """The release in a version text, e.g. ``0.24.0`` of ``0.24.0+cu130``; empty for anything else."""
    found = _RELEASE.match(text.strip())
    return found[1] if found else ""


def of_packages(names: Sequence[str]) -> str:
    """The release in names of installed packages such as ``vllm-0.24.0.dist-info``."""
    for name in names:
        base = PurePath(name).name
        if base.startswith("vllm-") and base.endswith(".dist-info"):
            return of_text(base.removeprefix("vllm-"))
    return ""


def known_as_hybrid(model: str) -> bool:
    """Whether a model's name is of a family that mixes full attention with recurrent layers: Qwen3-Next, Qwen3.5, Qwen3.6.

    Only for when no checkpoint can be read; facts of the family are in vllm#38182 and vllm#40691.
    """
    return bool(re.search(r"qwen3(?:[-_.]?next|\.[5-9])", model.lower()))
