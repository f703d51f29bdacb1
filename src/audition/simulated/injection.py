"""Decides, request by request and token by token, when a fault of the running server strikes.

What must not live here: faults of the boot (see `boot`) and carrying a fault out.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from audition.simulated.faults import Fault, find
from audition.simulated.settings import Settings


@dataclass(frozen=True, slots=True)
class Sabotage:
    """What will go wrong with one request; None or False where nothing does. Counts are in generated tokens."""

    status: int | None = None
    hang: bool = False
    degenerate: bool = False
    stall_after: int | None = None
    error_after: int | None = None


class Injector:
    """Counts requests and draws the seeded shares. Request numbers start at 1 and count accepted completions."""

    def __init__(self, settings: Settings) -> None:
        self._faults = settings.faults
        self._draw = Random(f"{settings.seed}\x00faults")
        self.requests = 0
        self.streams = 0
        self._death = self._find("die-mid-leg")
        collapse = self._find("acceptance-collapse")
        self.collapse_after = None if collapse is None else collapse.count("after_tokens")

    def _find(self, kind: str) -> Fault | None:
        return find(self._faults, kind)

    def _strikes(self, kind: str) -> Fault | None:
        """The fault when it is asked for, has begun, and (where it has a share) the draw falls into the share."""
        fault = self._find(kind)
        if fault is None or self.requests <= fault.count("after_requests"):
            return None
        if "share" in fault.parameters and self._draw.random() >= fault.number("share"):
            return None
        return fault

    def next_request(self, stream: bool) -> Sabotage:
        """Count one request and say what will go wrong with it."""
        self.requests += 1
        self.streams += stream
        status = self._strikes("http-5xx")
        error = self._strikes("error-in-200") if stream else None
        stall = self._find("stall-stream") if stream else None
        return Sabotage(
            status=None if status is None else status.count("status"),
            hang=self._strikes("hang") is not None,
            degenerate=self._strikes("degenerate-text") is not None,
            stall_after=stall.count("after_tokens") if stall and self.streams == stall.count("request") else None,
            error_after=None if error is None else error.count("after_tokens"),
        )

    def death(self, generated: int) -> str | None:
        """The mode in which the server dies now ("kill" or "exit0"), after so many generated tokens, or None."""
        if self._death is None:
            return None
        requests, tokens = self._death.count("after_requests"), self._death.count("after_tokens")
        due = (requests and self.requests >= requests) or (tokens and generated >= tokens)
        if not due:
            return None
        mode = self._death.text("mode")
        self._death = None
        return mode
