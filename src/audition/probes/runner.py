"""Runs probes by name. What must not live here: the probes themselves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from audition.errors import BadInput
from audition.judge.records import ProbeRecord
from audition.load.client import Endpoint
from audition.probes.ask import Asker
from audition.probes.behaviour import conversation, long_prompt, thinking, tool_call
from audition.probes.canary import canary
from audition.probes.greedy import greedy_equality

DEADLINE_S = 180.0  # longest wait for one answer; 2,048 tokens of thinking take 17 s at 120 tok/s

_PROBES: dict[str, Callable[[Asker], Awaitable[ProbeRecord]]] = {
    "canary": canary,
    "conversation": conversation,
    "thinking": thinking,
    "tool_call": tool_call,
    "long_prompt": long_prompt,
}


async def run_probes(
    endpoint: Endpoint, names: Sequence[str], *, reference: Mapping[str, str] | None = None, deadline_s: float = DEADLINE_S
) -> list[ProbeRecord]:
    """One record for each name, in order. ``reference``: production's greedy answers (see ``reference_answers``), if recorded.

    What the server does never raises: a probe that cannot be judged has ``passed`` None. Raises BadInput for an unknown name.
    """
    for name in names:
        if name not in _PROBES and name != "greedy_equality":
            raise BadInput(f"there is no probe `{name}`", next_step=f"choose from {', '.join([*_PROBES, 'greedy_equality'])}")
    asker = Asker(endpoint, deadline_s)
    records: list[ProbeRecord] = []
    for name in names:
        records.append(await (greedy_equality(asker, reference) if name == "greedy_equality" else _PROBES[name](asker)))
    return records
