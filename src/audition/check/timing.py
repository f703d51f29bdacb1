"""Rules about time: the plan as a timeline, its length against the window, and what to cut when it does not fit. Pure.

Lengths are estimates, each with its source: earlier runs, the healthcheck's ``start_period``, what the spike
file states, or a stated assumption. The restore deadline is the run's own: end of the window - (slowest cold start x 1.5 + 60 s).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from audition.check.facts import ArmFacts, Facts
from audition.check.finding import Entry, Finding, Level
from audition.spike.model import Gate, Leg, Spike, Workload
from audition.units import NoData, format_duration
from audition.windows.events import ZoneNeeded
from audition.windows.slots import HORIZON, Slot, show_instant, slot_for

ASSUMED_TOK_S = 30.0
"""Tokens a second of one stream, where no earlier run tells: slow for the servers that facts are known of (25 to 120 tok/s)."""
PROBES_S = 60.0
"""Probes of one leg, in seconds: a handful of short answers, one after the other. Own choice."""
STOP_S = 30.0
"""From the first signal to a proved end, in seconds, beyond the drain. Own choice; `stop.grace` is the limit."""
_STATED = "restore.slowest_cold_start"
MARGIN, SLACK_S = 1.5, 60.0
"""The restore deadline's factor and seconds (goal of the way back: production's slowest known cold start x 1.5 + 60 s)."""


@dataclass(frozen=True)
class Plan:
    """The timeline. ``legs_end_s``: when the last leg ends; ``end_s``: when production is back; seconds from the beginning."""

    entries: tuple[Entry, ...]
    legs_end_s: float
    end_s: float


def restore_s(spike: Spike) -> float:
    """What bringing production back may take, in seconds."""
    return spike.restore.slowest_cold_start * MARGIN + SLACK_S


def plan(facts: Facts, legs: list[Leg] | None = None) -> Plan:
    """The timeline of a run that begins now, or with these legs instead of the planned ones."""
    spike = facts.spike
    at, current, entries = 0.0, spike.production.name, []

    def add(seconds: float, what: str, source: str) -> None:
        nonlocal at
        entries.append(Entry(at, seconds, what, source))
        at += seconds

    arms = {arm.name: arm for arm in facts.arms}
    for place, leg in enumerate(legs if legs is not None else spike.planned_legs()):
        if leg.arm != current:
            add(*_stop(spike, current))
            add(*_boot(facts, arms[leg.arm], f"boot {leg.arm}"))
            current = leg.arm
        add(*_leg(facts, place, leg))
    legs_end = at
    if current != spike.production.name:
        add(*_stop(spike, current))
        add(*_boot(facts, facts.production, "bring production back"))
    add(spike.restore.hold, "production must hold", "restore.hold")
    return Plan(tuple(entries), legs_end, at)


def _stop(spike: Spike, arm: str) -> tuple[float, str, str]:
    if arm == spike.production.name:
        return spike.drain.budget + STOP_S, f"drain and stop {arm}", "drain.budget, at most"
    return STOP_S, f"stop {arm}", "assumed"


def _leg(facts: Facts, place: int, leg: Leg) -> tuple[float, str, str]:
    """One leg with its probes and workloads as one line."""
    parts = [(PROBES_S, "assumed", "probes")] if facts.spike.probes else []
    parts += [(*workload_s(facts, leg.arm, workload), workload.name) for workload in facts.spike.leg_workloads(leg)]
    names = ", ".join(name for _, _, name in parts)
    sources = "; ".join(dict.fromkeys(source for _, source, _ in parts if source != "assumed")) or "assumed"
    return sum(seconds for seconds, _, _ in parts), f"leg {place + 1} {leg.arm}: {names}", sources


def _boot(facts: Facts, arm: ArmFacts, what: str) -> tuple[float, str, str]:
    seconds, source = boot_s(facts.spike, arm)
    return seconds, what, source


def boot_s(spike: Spike, arm: ArmFacts) -> tuple[float, str]:
    """Seconds of a boot and where that comes from: the slowest earlier one, the healthcheck's allowance, or the slowest stated."""
    if arm.boots:
        times = "time" if len(arm.boots) == 1 else "times"
        return max(arm.boots), f"slowest of {len(arm.boots)} earlier {times}"
    if not isinstance(arm.container, NoData) and not isinstance(arm.container.start_period_s, NoData):
        return arm.container.start_period_s, "start_period of its healthcheck"
    return spike.restore.slowest_cold_start, _STATED


def workload_s(facts: Facts, arm: str, workload: Workload) -> tuple[float, str]:
    """Seconds of one workload with its warm-up, and where that comes from."""
    known = facts.times.workloads.get((arm, workload.name))
    answer = workload.max_tokens / ASSUMED_TOK_S
    rounds = -(-(workload.warmup if workload.warmup is not None else workload.users) // workload.users)
    warm = rounds * answer
    if known is not None:
        return known + warm, "earlier runs"
    if workload.duration is not None:
        return workload.duration + warm + answer, "its duration"
    if workload.trace is not None:
        length = facts.times.traces.get(workload.trace, NoData("not read"))
        return (length if not isinstance(length, NoData) else 600.0) + answer, "its trace"
    requests = workload.requests or 1
    if workload.rate is not None:
        return requests / workload.rate + answer, "its rate"
    return -(-requests // workload.users) * answer + warm, f"assumed {ASSUMED_TOK_S:.0f} tok/s a user"


def about_time(facts: Facts) -> Iterator[Finding]:
    """Whether the plan fits into the window and its calendars, and what to cut when it does not."""
    made, window = plan(facts), facts.spike.window
    whole = format_duration(made.end_s)
    yield from _boot_limits(facts)
    for rule in window.calendars:
        if rule.name not in facts.calendars:
            text = f"calendar {rule.name} lies at an address; a check uses no network, so what it says is not known here"
            yield _say("warning", "calendar-not-fetched", text, "audition run fetches it, and begins only in a free slot")
    if window.closes is None and not facts.calendars:
        if window.calendars:
            return
        text = f"the run takes about {whole}; the spike names no window, so nothing ends it before the legs are done"
        yield _say("warning", "window-missing", text, 'window: {closes: "..."}   (an instant with its time zone)')
        return
    try:
        slot, said = _slot(facts)
    except ZoneNeeded as error:
        yield _say("blocking", "zone-needed", error.what, error.next_step)
        return
    yield from said
    if slot is None:
        return
    if slot.end is None:
        yield _say("ok", "window", f"the run takes about {whole}, and nothing is in its way for {HORIZON.days} days")
        return
    left = (slot.end - slot.start).total_seconds()
    latest = left - restore_s(facts.spike)
    due = show_instant(slot.end - timedelta(seconds=restore_s(facts.spike)), window)
    kept = format_duration(restore_s(facts.spike))
    until = f" ({slot.until} then)" if slot.until and slot.until != "the window closes" else ""
    yield _say("ok", "restore-deadline", f"restoring begins at {due} at the latest, {kept} before the end{until}")
    if made.legs_end_s <= latest:
        spare = format_duration(latest - made.legs_end_s)
        yield _say("ok", "window", f"the run takes about {whole} of a window of {format_duration(left)}; {spare} to spare")
        return
    yield from _too_long(facts, made, latest)


def _slot(facts: Facts) -> tuple[Slot | None, list[Finding]]:
    """The slot that counts: from now, from when the window opens, or the next free one; None without one. Raises ZoneNeeded."""
    spike = facts.spike
    known = [rule for rule in spike.window.calendars if rule.name in facts.calendars]
    window = spike.window.model_copy(update={"calendars": known})
    begin = datetime.fromtimestamp(facts.now, UTC)
    if window.opens is not None and window.opens > begin:
        begin = window.opens
    found = slot_for(window, facts.calendars, begin, restore_s(spike))
    if isinstance(found, Slot):
        return found, []
    if found.next_free is None:
        return None, [_say("blocking", "no-slot", f"no run can begin: {found.reason}", "agree another slot")]
    start = show_instant(found.next_free.start, window)
    text = f"no run can begin now: {found.reason}. The next free slot begins at {start}"
    return found.next_free, [_say("warning", "no-slot-now", text, f"audition run SPIKE --at {found.next_free.start.isoformat()}")]


def _too_long(facts: Facts, made: Plan, latest: float) -> Iterator[Finding]:
    over = format_duration(made.legs_end_s - latest)
    spike = facts.spike
    text = f"the legs take about {format_duration(made.legs_end_s)}, {format_duration(latest)} are left for them: {over} too long"
    cuts = list(proposals(facts, latest))
    boot, source = boot_s(spike, facts.candidate)
    if boot > latest and source != _STATED:
        text += f"; not even the candidate's boot would end ({format_duration(boot)}, {source})"
        yield _say("blocking", "window-too-short", text, "agree a longer slot" + _listed(cuts))
        return
    text += "; the legs that do not fit are cut off, and the verdict may be INCONCLUSIVE"
    yield _say("warning", "window-too-short", text, "agree a longer slot, or cut" + _listed(cuts))


@dataclass(frozen=True)
class Cut:
    """One way to make a run shorter, as it would be written in the spike file."""

    what: str
    saves_s: float
    fits: bool


def proposals(facts: Facts, latest: float) -> Iterator[Cut]:
    """What could be left out, each on its own, the one that costs least evidence first: workloads of little weight, then legs."""
    spike, legs, whole = facts.spike, facts.spike.planned_legs(), plan(facts).legs_end_s
    deciding = {gate.workload for gate in _flat(spike) if gate.workload is not None and not gate.shadow}
    for workload in spike.workloads:
        if workload.name not in deciding and len(spike.workloads) > 1:
            shorter = plan(_without(facts, workload.name), legs).legs_end_s
            yield Cut(f"the workload {workload.name} (no gate decides by it)", whole - shorter, shorter <= latest)
    if len(legs) > 3:
        for kept in range(len(legs) - 2, 2, -2):
            shorter = plan(facts, legs[:kept]).legs_end_s
            names = ", ".join(leg.arm for leg in legs[:kept])
            yield Cut(f"the last {len(legs) - kept} legs: legs: [{names}]", whole - shorter, shorter <= latest)
    half = replace(facts, spike=spike.model_copy(update={"workloads": [_halved(w) for w in spike.workloads]}))
    shorter = plan(half, legs).legs_end_s
    if shorter < whole - 60 and not facts.times.workloads:
        yield Cut("half of the requests of each workload", whole - shorter, shorter <= latest)


def _halved(workload: Workload) -> Workload:
    requests = max(workload.requests // 2, workload.users) if workload.requests is not None else None
    duration = workload.duration / 2 if workload.duration is not None else None
    return workload.model_copy(update={"requests": requests, "duration": duration})


def _without(facts: Facts, name: str) -> Facts:
    kept = [workload for workload in facts.spike.workloads if workload.name != name]
    return replace(facts, spike=facts.spike.model_copy(update={"workloads": kept}))


def _flat(spike: Spike) -> Iterator[Gate]:
    waiting = list(spike.gates)
    while waiting:
        gate = waiting.pop(0)
        yield gate
        waiting += [*(gate.all or []), *(gate.any or [])]


def _listed(cuts: list[Cut]) -> str:
    rows = [f"\n- {cut.what}: saves {format_duration(cut.saves_s)}{'' if cut.fits else ', not enough alone'}" for cut in cuts]
    return "".join(rows)


def _boot_limits(facts: Facts) -> Iterator[Finding]:
    for arm in facts.arms:
        limit = facts.spike.arm(arm.name).boot.limit
        seconds, source = boot_s(facts.spike, arm)
        if arm.boots and seconds > limit:
            text = f"its slowest earlier boot took {format_duration(seconds)}, `boot.limit` is {format_duration(limit)}"
            yield Finding("time", "warning", "boot-limit", arm.name, text, f"boot: {{limit: {round(seconds * 1.5 / 60)}m}}")
        else:
            text = f"a boot is reckoned with {format_duration(seconds)} ({source})"
            yield Finding("time", "ok", "boot", arm.name, text)
    slowest = facts.spike.restore.slowest_cold_start
    if facts.production.boots and max(facts.production.boots) > slowest:
        text = f"an earlier boot took {format_duration(max(facts.production.boots))}, more than {format_duration(slowest)}"
        hint = f"restore: {{slowest_cold_start: {round(max(facts.production.boots))}s}}"
        yield Finding("time", "warning", "slowest-cold-start", facts.production.name, text, hint)


def _say(level: Level, code: str, text: str, hint: str = "") -> Finding:
    return Finding("time", level, code, "", text, hint)
