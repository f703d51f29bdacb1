"""The faults the simulated server can commit on demand: one table of kinds, their parameters, and the parser.

What must not live here: committing a fault. Each is carried out where it belongs (boot, engine, app, worker).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

FAULT_KINDS: dict[str, str] = {
    "boot-crash": "The boot prints a given log and the process exits with a given code.",
    "oom": "The boot runs out of GPU memory while the KV cache is allocated (torch.OutOfMemoryError) and exits 1.",
    "boot-hang": "The boot stops printing at some line and the server is never ready.",
    "slow-boot": "The boot takes longer by a factor, or by a number of seconds.",
    "die-mid-leg": "The server dies under load, after a number of requests or generated tokens.",
    "stall-stream": "One streamed answer stops in the middle while its connection stays open.",
    "degenerate-text": "Answers repeat one phrase for ever while every health check stays green.",
    "acceptance-collapse": "Draft acceptance falls to zero after a number of generated tokens, until a restart.",
    "http-5xx": "A share of the requests is answered with HTTP 500 or 503.",
    "error-in-200": "A share of the streams ends with an error event inside a 200 response.",
    "ignore-sigterm": "SIGTERM and SIGINT are ignored, so that only SIGKILL stops the server.",
    "orphan-worker": "The EngineCore process outlives its API server and keeps its GPU memory.",
    "wrong-model-name": "The server lists and serves another model name than the one asked for.",
    "hang": "The health check stays 200 while completions are never answered.",
}

FAULT_PARAMETERS: dict[str, dict[str, object]] = {
    # text or log (a path) is printed; after: the boot line, by a part of its text, before which the boot stops.
    "boot-crash": {"text": "", "log": "", "exit_code": 1, "after": "Starting to load model"},
    "oom": {},
    "boot-hang": {"after": "Starting to load model"},
    "slow-boot": {"factor": 1.0, "seconds": 0.0},
    # mode exit0: the EngineCore is killed, the API server says EngineDeadError and exits 0 (vLLM #48966).
    # mode kill: the API server kills itself with SIGKILL. A count of 0 is not looked at.
    "die-mid-leg": {"after_requests": 0, "after_tokens": 0, "mode": "kill"},
    # request: which streamed request since boot (first is 1); after_tokens: how many tokens it still gets.
    "stall-stream": {"request": 1, "after_tokens": 8},
    "degenerate-text": {"after_requests": 0},
    "acceptance-collapse": {"after_tokens": 0},
    "http-5xx": {"share": 0.1, "status": 500, "after_requests": 0},
    "error-in-200": {"share": 0.1, "after_tokens": 4, "after_requests": 0},
    "ignore-sigterm": {},
    # max_s: the orphan ends by itself after so many seconds, so that nothing is left for ever.
    "orphan-worker": {"max_s": 600.0},
    "wrong-model-name": {"name": "another-model"},
    "hang": {"after_requests": 0},
}


class FaultError(ValueError):
    """A fault entry that cannot be understood: unknown kind or parameter, or a value of the wrong type."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault to commit, with every parameter of its kind filled in."""

    kind: str
    parameters: Mapping[str, object] = field(default_factory=dict)

    def text(self, name: str) -> str:
        """The parameter as a string."""
        return str(self.parameters[name])

    def number(self, name: str) -> float:
        """The parameter as a float."""
        value = self.parameters[name]
        assert isinstance(value, int | float)
        return float(value)

    def count(self, name: str) -> int:
        """The parameter as an integer."""
        return int(self.number(name))


def _check(kind: str, name: str, value: object, default: object) -> None:
    if isinstance(default, str):
        good = isinstance(value, str)
    else:
        good = isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
    if not good:
        wanted = "a string" if isinstance(default, str) else "a number, zero or more"
        raise FaultError(f"fault {kind}: {name} must be {wanted}, not {value!r}")


def parse_faults(entries: object) -> tuple[Fault, ...]:
    """Read the `faults` list of the settings. Raises FaultError naming the entry that is wrong."""
    if not isinstance(entries, list | tuple):
        raise FaultError(f"faults must be a list of objects, not {entries!r}")
    faults = []
    for entry in entries:
        if not isinstance(entry, Mapping) or not isinstance(entry.get("kind"), str):
            raise FaultError(f"a fault is an object with a kind, not {entry!r}")
        kind = entry["kind"]
        if kind not in FAULT_KINDS:
            raise FaultError(f"unknown fault kind {kind!r}; known: {', '.join(sorted(FAULT_KINDS))}")
        defaults = FAULT_PARAMETERS[kind]
        given = {name: value for name, value in entry.items() if name != "kind"}
        for name, value in given.items():
            if name not in defaults:
                known = ", ".join(sorted(defaults)) or "none"
                raise FaultError(f"fault {kind} has no parameter {name!r}; known: {known}")
            _check(kind, name, value, defaults[name])
        filled = {**defaults, **given}
        if kind == "die-mid-leg" and filled["mode"] not in ("kill", "exit0"):
            raise FaultError(f"fault die-mid-leg: mode must be kill or exit0, not {filled['mode']!r}")
        faults.append(Fault(kind, filled))
    return tuple(faults)


def find(faults: tuple[Fault, ...], kind: str) -> Fault | None:
    """The first fault of this kind, or None when it was not asked for."""
    return next((fault for fault in faults if fault.kind == kind), None)
