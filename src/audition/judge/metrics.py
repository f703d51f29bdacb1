"""Computes every metric of the catalogue for every leg. One value a leg, workload, metric and statistic, or the reason why not.

Comparing legs and judging values belong to ``compare`` and ``gates``. Formulas are those of ``audition.spike.metrics``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from audition.judge.estimate import Sample, ratio_jackknife_se
from audition.judge.load import Garbled, LegData, RunData
from audition.judge.records import RequestRecord, WorkloadRecord
from audition.judge.timing import Timing, gaps_between_events, steady_window, timing_of, tokens_between
from audition.judge.validity import MAX_FAILURE_SHARE, MIN_TAIL, leg_problem, workload_record, workload_requests
from audition.spike.metrics import METRICS, STATS
from audition.spike.model import Gate, Spike
from audition.spike.workload import Limits
from audition.units import NoData

Key = tuple[str, str, str]
"""(workload or "", metric, statistic or "")."""

_SHARES = {"p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": 0.99}
DEFAULT_STAT = "p50"
MAX_GAPS = 50_000
"""Gaps between events that are looked at in one workload of one leg. The relative error of the count beyond a p99 is then
1 / sqrt(500) = 4 %, well below the noise between legs."""


@dataclass(frozen=True)
class Measure:
    """One figure of one leg. ``samples``: observations behind it; ``se``: standard error within the leg, None when unknown."""

    value: float
    samples: int
    se: float | None = None


Value = Measure | NoData


@dataclass(frozen=True)
class LegSheet:
    """All figures of one leg. ``boot``: identity of the process that served it, empty when it is not known."""

    index: int
    arm: str
    values: dict[Key, Value]
    boot: str = ""

    def get(self, key: Key) -> Value:
        """The figure, or NoData when this leg has none."""
        return self.values.get(key, NoData(f"leg {self.index} ({self.arm}) has no {describe(key)}"))


def describe(key: Key) -> str:
    """A key in words: ``p95 ttft of users-16``."""
    workload, metric, stat = key
    return f"{stat + ' ' if stat else ''}{metric}{' of ' + workload if workload else ''}"


def gate_key(gate: Gate) -> Key:
    """The key of a metric gate. Raises KeyError for a metric that the catalogue does not hold."""
    name = gate.metric or ""
    metric = METRICS[name]
    stat = (gate.stat or DEFAULT_STAT) if metric.scope == "requests" else ""
    return ("" if metric.scope == "leg" else gate.workload or "", name, stat)


def measure_run(run: RunData, spike: Spike) -> list[LegSheet]:
    """The sheets of all legs, planned or found, in order."""
    return [LegSheet(leg.index, leg.arm, _measure_leg(leg, spike), _boot_of(leg)) for leg in run.legs]


def _boot_of(leg: LegData) -> str:
    return "" if isinstance(leg.record, NoData) else leg.record.boot.boot_id


def _measure_leg(leg: LegData, spike: Spike) -> dict[Key, Value]:
    values = _leg_metrics(leg)
    names = [w.name for w in spike.workloads if w.name in leg.workloads]
    planned = spike.planned_legs()
    if 1 <= leg.index <= len(planned):
        names += [w.name for w in spike.leg_workloads(planned[leg.index - 1]) if w.name not in names]
    for name in names:
        values.update(_workload_metrics(leg, name, spike))
    return values


def _leg_metrics(leg: LegData) -> dict[Key, Value]:
    record = leg.record
    names = [m.name for m in METRICS.values() if m.scope == "leg"]
    if isinstance(record, NoData):
        return {("", name, ""): record for name in names}
    where = f"leg {leg.index} ({leg.arm})"
    out: dict[Key, Value] = {}
    seconds = record.boot.seconds
    out["", "boot_s", ""] = (
        Measure(seconds, 1) if seconds is not None and record.boot.clean else NoData(f"{where} did not boot in this run")
    )
    problem = leg_problem(leg)
    for name in ("max_concurrency", "kv_capacity_tokens"):
        out["", name, ""] = problem if problem is not None else _fact(record.facts, name, where)
    return out


def _fact(facts: dict[str, object], name: str, where: str) -> Value:
    value = facts.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return NoData(f"{where}: the engine's log gave no `{name}`")
    return Measure(float(value), 1)


def _workload_metrics(leg: LegData, name: str, spike: Spike) -> dict[Key, Value]:
    out: dict[Key, Value] = {}
    record = workload_record(leg, name)
    counters = record if isinstance(record, NoData) else _counter_metrics(record, f"leg {leg.index} ({leg.arm}), {name}")
    requests = workload_requests(leg, name, spike)
    limits = next((workload.goodput for workload in spike.workloads if workload.name == name), None)
    figures = (
        requests if isinstance(requests, NoData) else _request_metrics(requests, limits, f"leg {leg.index} ({leg.arm}), {name}")
    )
    for metric in METRICS.values():
        if metric.scope == "leg":
            continue
        source = counters if metric.source.startswith("vllm:") else figures
        for stat in STATS if metric.scope == "requests" else ("",):
            missing = NoData(f"leg {leg.index} ({leg.arm}), {name}: {metric.name} was not computed")
            out[name, metric.name, stat] = source if isinstance(source, NoData) else source.get((metric.name, stat), missing)
    return out


Figures = dict[tuple[str, str], Value]


def _counter_metrics(record: WorkloadRecord, where: str) -> Figures | NoData:
    """Acceptance and prefix hits from differences of the engine's counters."""
    counters = record.counters
    if counters is None:
        return NoData(f"{where}: no counters ({record.counters_missing or 'the engine gave none'})")
    backwards = sorted(name for name, value in counters.items() if value < 0)
    if backwards:
        return NoData(f"{where}: counter {backwards[0]} went backwards, the engine was restarted")

    def share(part: str, whole: str, plus: float = 0.0) -> Value:
        if part not in counters or whole not in counters:
            return NoData(f"{where}: the engine has no counter {whole if whole not in counters else part}")
        if counters[whole] == 0:
            return NoData(f"{where}: {whole} did not move")
        return Measure(plus + counters[part] / counters[whole], int(counters[whole]))

    return {
        ("acceptance_rate", ""): share("spec_decode_num_accepted_tokens", "spec_decode_num_draft_tokens"),
        ("acceptance_length", ""): share("spec_decode_num_accepted_tokens", "spec_decode_num_drafts", plus=1.0),
        ("prefix_hit_rate", ""): share("prefix_cache_hits", "prefix_cache_queries"),
    }


def acceptance_per_position(record: WorkloadRecord) -> list[float] | NoData:
    """Acceptance rate at draft position 0, 1, ...: accepted tokens at the position / drafts."""
    counters = record.counters or {}
    drafts = counters.get("spec_decode_num_drafts", 0.0)
    rates: list[float] = []
    while (name := f"spec_decode_num_accepted_tokens_per_pos[{len(rates)}]") in counters:
        if drafts <= 0:
            return NoData("no drafts were made")
        rates.append(counters[name] / drafts)
    return rates or NoData(record.counters_missing or "the engine has no counters per position")


def _request_metrics(requests: tuple[RequestRecord, ...], limits: Limits | None, where: str) -> Figures | NoData:
    if not requests:
        return NoData(f"{where}: no requests")
    try:
        timings = [timing_of(r) for r in requests]
        return _timed_metrics(timings, limits, where)
    except Garbled as error:
        return NoData(f"{where}: {error}")


def _timed_metrics(timings: list[Timing], limits: Limits | None, where: str) -> Figures:
    good = sorted((t for t in timings if t.ok), key=_in_time)
    failed = len(timings) - len(good)
    out: Figures = {("failure_share", ""): Measure(failed / len(timings), len(timings))}
    out["goodput", ""] = _goodput(timings, good, limits, where)
    if failed > MAX_FAILURE_SHARE * len(timings) or not good:
        fair = NoData(f"{where}: {failed} of {len(timings)} requests failed, the rest is no fair sample")
        for metric in METRICS.values():
            if metric.scope != "leg" and metric.name not in ("failure_share", "goodput"):
                out.update(dict.fromkeys(((metric.name, s) for s in (*STATS, "")), fair))
        return out
    out.update(_distributions(good, where))
    out.update(_rates(timings, good, where))
    return out


def _goodput(timings: list[Timing], good: list[Timing], limits: Limits | None, where: str) -> Value:
    """Requests a second that succeeded and kept every limit; a failed one keeps none. A request of one token has no TPOT."""
    if limits is None:
        return NoData(f"{where}: the workload states no limits for single requests")
    whole = _whole(timings)
    if whole <= 0:
        return NoData(f"{where}: no time passed")
    if limits.tpot is not None and any(t.later_tokens is None or t.record.tokens_estimated for t in good):
        return NoData(f"{where}: the server did not say how many tokens the events held, so nobody knows who kept the TPOT")
    return Measure(sum(_kept(t, limits) for t in good) / whole, len(timings))


def _kept(t: Timing, limits: Limits) -> bool:
    if t.first is None or t.last is None:
        return False
    pairs = [(t.first - t.record.scheduled, limits.ttft), (t.record.end - t.record.scheduled, limits.e2e)]
    if t.later_tokens:
        pairs.append(((t.last - t.first) / t.later_tokens, limits.tpot))
    return all(limit is None or seconds <= limit for seconds, limit in pairs)


def _whole(timings: list[Timing]) -> float:
    """Seconds from the first scheduled send to the last end."""
    return max(t.record.end for t in timings) - min(t.record.scheduled for t in timings)


def _in_time(t: Timing) -> tuple[float, int]:
    return t.record.scheduled, t.record.index


def _distributions(good: list[Timing], where: str) -> Figures:
    seen = [t for t in good if t.first is not None and t.last is not None]
    counted = [t for t in seen if t.tokens is not None and not t.record.tokens_estimated]
    paced = [(t.last - t.first, t.later_tokens) for t in counted if t.later_tokens and t.last > t.first]  # type: ignore[operator]
    columns: dict[str, list[float]] = {
        "ttft": [t.first - t.record.scheduled for t in seen],  # type: ignore[operator]
        "time_to_first_answer_token": [t.answer - t.record.scheduled for t in seen if t.answer is not None],
        "tpot": [seconds / tokens for seconds, tokens in paced],
        "inter_chunk_latency": _gaps(good),
        "e2e_latency": [t.record.end - t.record.scheduled for t in good],
        "decode_tok_s": [tokens / seconds for seconds, tokens in paced],
        "tokens_per_event": [t.tokens / t.events for t in counted],  # type: ignore[operator]
        "schedule_slip": [t.record.sent - t.record.scheduled for t in good if t.record.sent is not None],
    }
    out: Figures = {}
    for name, values in columns.items():
        sample = Sample(values)
        out.update({(name, stat): _stat(sample, stat, name, where) for stat in STATS})
    return out


def _gaps(good: list[Timing]) -> list[float]:
    """Seconds between events. Of very many, those of every n-th request in time order; ``samples`` says how many were taken."""
    every = max(1, math.ceil(sum(t.events for t in good) / MAX_GAPS))
    return [gap / 1e6 for gap in gaps_between_events(good[::every])]


def _stat(sample: Sample, stat: str, name: str, where: str) -> Value:
    count = len(sample)
    if not count:
        why = "the server did not say how many tokens the events held" if name in ("tpot", "decode_tok_s") else "nothing was seen"
        return NoData(f"{where}: no {name} ({why})")
    if stat == "mean":
        return Measure(sample.mean(), count, sample.mean_se())
    share = _SHARES[stat]
    needed = math.ceil(MIN_TAIL / (1 - share) - 1e-9) if share > 0.5 else 1
    if count < needed:
        return NoData(f"{where}: {stat} of {name} needs {needed} values, there are {count}")
    return Measure(sample.percentile(share), count, sample.percentile_se(share))


def _rates(timings: list[Timing], good: list[Timing], where: str) -> Figures:
    whole = _whole(timings)
    out: Figures = {}
    uncounted = [t for t in good if t.tokens is None or t.record.tokens_estimated]
    if whole <= 0:
        return dict.fromkeys(
            (("output_tok_s", ""), ("output_tok_s_whole", ""), ("requests_per_s", "")), NoData(f"{where}: no time passed")
        )
    out["requests_per_s", ""] = Measure(len(good) / whole, len(good))
    if uncounted:
        missing = NoData(f"{where}: the server gave no token count (usage) for {len(uncounted)} of {len(good)} requests")
        return {**out, ("output_tok_s", ""): missing, ("output_tok_s_whole", ""): missing}
    out["output_tok_s_whole", ""] = Measure(math.fsum(t.tokens or 0 for t in timings) / whole, len(timings))
    out["output_tok_s", ""] = _steady_throughput(timings, good, where)
    return out


def _steady_throughput(timings: list[Timing], good: list[Timing], where: str) -> Value:
    """Tokens inside the steady window / its length. Its error: that of tokens / duration over requests in blocks of time, so that
    the waves of a closed loop in step are not taken for noise."""
    window = steady_window(timings)
    if window is None:
        return NoData(f"{where}: there was no moment in which all users were busy")
    begin, end = window
    inside = math.fsum(tokens_between(t, begin, end) for t in timings)
    if inside <= 0:
        return NoData(f"{where}: no token arrived while all users were busy")
    relative = ratio_jackknife_se([(float(t.tokens or 0), t.record.end - t.record.scheduled) for t in good])
    rate = inside / (end - begin)
    return Measure(rate, len(timings), None if relative is None else relative * rate)
