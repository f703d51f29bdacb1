"""The life of one simulated server: the command line, the boot, then serving (see `serving`).

What must not live here: HTTP routes, scheduling, log texts, signals after the boot.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import fields

from audition.simulated.arguments import ArgumentsError, ServeArguments, SpeculativeError, parse_arguments
from audition.simulated.boot import Boot, BootFailed
from audition.simulated.console import emit, fail
from audition.simulated.faults import FAULT_KINDS, FAULT_PARAMETERS, find
from audition.simulated.settings import Settings, SettingsError, load_settings

HELP = (
    "usage: python -m audition.simulated serve [model_tag] [vLLM's options]\n\n"
    "A vLLM-shaped server without a model; it listens on loopback only. Its settings come as JSON, or as the path of a\n"
    "JSON file, in AUDITION_SIM. Keys with their defaults (units and meaning: audition/simulated/settings.py):\n"
)


def help_text() -> str:
    """Usage, every setting with its default, every fault with its parameters."""
    keys = [f"  {item.name} = {getattr(Settings(), item.name)!r}" for item in fields(Settings)]
    kinds = [f"  {kind}: {sentence} {FAULT_PARAMETERS[kind] or ''}".rstrip() for kind, sentence in FAULT_KINDS.items()]
    return "\n".join([HELP.rstrip("\n"), *keys, "", 'Faults, as "faults": [{"kind": ..., parameters}]:', *kinds]) + "\n"


def rates_of(arguments: ServeArguments, settings: Settings) -> tuple[float, ...]:
    """Unconditional acceptance by position, k of them; empty without speculative decoding. Raises SettingsError."""
    spec = arguments.speculative
    if spec is None:
        return ()
    if spec.synthetic_rates is not None:
        return spec.synthetic_rates
    if spec.tokens > len(settings.acceptance):
        raise SettingsError(
            f"AUDITION_SIM: acceptance states {len(settings.acceptance)} positions, but --speculative-config asks for "
            f"{spec.tokens} tokens; state one rate for each"
        )
    return settings.acceptance[: spec.tokens]


def main(words: Sequence[str]) -> int:
    """Run the server; returns the exit code."""
    started = time.monotonic()
    if not words or words[0] in ("-h", "--help") or words[0] != "serve":
        (emit if words and words[0] in ("-h", "--help") else fail)(help_text())
        return 0 if words and words[0] in ("-h", "--help") else 2
    try:
        settings = load_settings(os.environ)
        arguments = parse_arguments(words[1:], os.environ)
        rates = rates_of(arguments, settings)
    except (SettingsError, ArgumentsError) as error:
        fail(str(error))
        return 2
    except SpeculativeError as error:
        fail(f"Traceback (most recent call last):\npydantic_core._pydantic_core.ValidationError: {error}")
        return 1
    max_model_len = arguments.max_model_len or settings.model_max_len
    if find(settings.faults, "ignore-sigterm") is not None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        booted = Boot(arguments, settings, max_model_len, started).run()
    except BootFailed as error:
        return error.code
    from audition.simulated.serving import Serving  # noqa: PLC0415  (uvicorn is only needed after the boot)

    return Serving(arguments, settings, rates, max_model_len, booted).run()
