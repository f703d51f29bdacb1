"""Runs probes by name. What must not live here: the probes themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from audition.errors import BadInput
from audition.judge.records import ProbeRecord
from audition.load.client import Endpoint
from audition.probes.ask import Asker
from audition.probes.behaviour import conversation, long_prompt, thinking, tool_call
from audition.probes.canary import canary
from audition.probes.formats import json_schema, vision
from audition.probes.greedy import greedy_equality

_POLL_S = 0.5
DEADLINE_S = 180.0  # longest wait for one answer; 2,048 tokens of thinking take 17 s at 120 tok/s

_PROBES: dict[str, Callable[[Asker], Coroutine[Any, Any, ProbeRecord]]] = {
    "canary": canary,
    "conversation": conversation,
    "thinking": thinking,
    "tool_call": tool_call,
    "json_schema": json_schema,
    "vision": vision,
    "long_prompt": long_prompt,
}


async def run_probes(
    endpoint: Endpoint,
    names: Sequence[str],
    *,
    reference: Mapping[str, str] | None = None,
    deadline_s: float = DEADLINE_S,
    give_up: Callable[[], bool] = lambda: False,
) -> list[ProbeRecord]:
    """One record for each name, in order. ``reference``: production's greedy answers (see ``reference_answers``), if recorded.

    ``give_up`` is asked twice a second in a thread; once it is True, the remaining probes are cut. What the server does never
    raises: a probe that cannot be judged has ``passed`` None. Raises BadInput for an unknown name.
    """
    for name in names:
        if name not in _PROBES and name != "greedy_equality":
            raise BadInput(f"there is no probe `{name}`", next_step=f"choose from {', '.join([*_PROBES, 'greedy_equality'])}")
    asker = Asker(endpoint, deadline_s)
    records: list[ProbeRecord] = []
    for name in names:
        probe = greedy_equality(asker, reference) if name == "greedy_equality" else _PROBES[name](asker)
        record = await _unless(give_up, probe)
        if record is None:
            return records + [ProbeRecord(cut, None, "the run was cut before this probe ended") for cut in names[len(records) :]]
        records.append(record)
    return records


async def _unless(give_up: Callable[[], bool], probe: Coroutine[Any, Any, ProbeRecord]) -> ProbeRecord | None:
    """The probe's record, or None when ``give_up`` came first; the probe is then cancelled."""
    task = asyncio.create_task(probe)
    try:
        while not task.done():
            if await asyncio.to_thread(give_up):
                return None
            await asyncio.wait((task,), timeout=_POLL_S)
        return task.result()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
