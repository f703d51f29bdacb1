"""Charts of speed: figures leg by leg, paired ratios, latency distributions, throughput. Pure; figures are the judge's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from audition.judge.compare import Comparison
from audition.judge.result import LegResult, Result
from audition.report.documents import Table
from audition.report.html.blocks import Chart, Missing, PageBlock
from audition.report.html.data import MEASURES, SHARES, Drawn, Folder
from audition.report.words import number, ratio_text
from audition.spike.metrics import METRICS
from audition.spike.model import Gate, Spike
from audition.units import NoData

NAMES = {
    "output_tok_s": "Throughput",
    "decode_tok_s": "Decode speed of one stream",
    "ttft": "Time to first token",
    "time_to_first_answer_token": "Time to first answer token",
    "tpot": "Time per output token",
    "inter_chunk_latency": "Gap between chunks",
    "e2e_latency": "Whole request",
    "acceptance_length": "Acceptance length",
    "acceptance_rate": "Acceptance rate",
    "prefix_hit_rate": "Prefix cache hits",
    "failure_share": "Failed requests",
    "kv_capacity_tokens": "KV capacity",
    "max_concurrency": "Requests of full length at once",
    "boot_s": "Boot",
}
_LEG_BY_LEG = (("output_tok_s", ""), ("decode_tok_s", "p50"), ("ttft", "p50"), ("e2e_latency", "p50"))
_RATIOS = (("output_tok_s", ""), ("decode_tok_s", "p50"), ("ttft", "p50"), ("tpot", "p50"), ("e2e_latency", "p50"))
_BESIDE_USERS = {"name", "users", "requests", "duration", "warmup", "survival", "deadline", "silence", "goodput", "processes"}
"""Keys of a workload that may differ between two points of one line of throughput against users."""

_MILLI = {"ttft", "time_to_first_answer_token", "tpot", "inter_chunk_latency"}


def shown(metric: str) -> tuple[str, float]:
    """Unit in which a metric is drawn, and by what its value is multiplied for that: short times in milliseconds, shares in %."""
    unit = METRICS[metric].unit
    if metric in _MILLI:
        return unit.replace("s", "ms", 1), 1000.0
    return ("%", 100.0) if unit == "share" else (unit, 1.0)


def arms_of(result: Result) -> list[str]:
    """All arms: production, the candidate, then the others in the order of the legs."""
    return list(dict.fromkeys([result.production, result.candidate, *(leg.arm for leg in result.legs)]))


def leg_name(leg: LegResult) -> str:
    """A leg in a table's header."""
    return f"leg {leg.index}, {leg.arm}"


def legs_json(result: Result) -> list[dict[str, Any]]:
    """The legs in time order."""
    return [{"leg": leg.index, "arm": leg.arm} for leg in result.legs]


def metric_name(metric: str, stat: str) -> str:
    """``Time to first token, p50``."""
    return f"{NAMES.get(metric, metric)}{f', {stat}' if stat else ''}"


def legs_chart(result: Result, spike: Spike, workload: str) -> PageBlock:
    """Figures of one workload, one panel a figure, legs in time order; limits of absolute gates as lines."""
    panels: list[dict[str, Any]] = []
    rows: list[list[str]] = []
    for metric, stat in _LEG_BY_LEG:
        unit, factor = shown(metric)
        found = [leg.figure(workload, metric, stat) for leg in result.legs]
        values = [None if f is None or f.value is None else f.value * factor for f in found]
        if all(value is None for value in values):
            continue
        why = ["" if f is None or f.value is not None else f.missing for f in found]
        points = [
            {"leg": leg.index, "arm": leg.arm, "value": v, "why": w, "text": "" if v is None else number(v)}
            for leg, v, w in zip(result.legs, values, why, strict=True)
        ]
        limits = [{"value": at * factor, "text": text} for at, text in _limits(spike, workload, metric, stat)]
        title = metric_name(metric, stat)
        label = f"{title} in {unit}: " + "; ".join(_said(leg, v, w) for leg, v, w in zip(result.legs, values, why, strict=True))
        panels.append(
            {"title": title, "unit": unit, "better": METRICS[metric].better, "points": points, "limits": limits, "label": label}
        )  # fmt: skip
        rows.append([f"{title} ({unit})", *("-" if v is None else number(v) for v in values)])
    if not panels:
        return Missing(f"Figures of {workload}", _first_reason(result, workload))
    return Chart(
        "legs",
        "Leg by leg, in time order",
        f"Figures of {workload}, leg by leg in time order. " + ". ".join(panel["label"] for panel in panels),
        {"panels": panels, "legs": legs_json(result), "arms": arms_of(result)},
        Table(["figure", *(leg_name(leg) for leg in result.legs)], rows),
        arms=list(dict.fromkeys(leg.arm for leg in result.legs)),
    )


def _said(leg: LegResult, value: float | None, why: str) -> str:
    return f"leg {leg.index} {leg.arm} {f'no data ({why})' if value is None else number(value)}"


def _first_reason(result: Result, workload: str) -> str:
    reasons = [f.missing for leg in result.legs for f in leg.figures if f.workload == workload and f.missing]
    return reasons[0] if reasons else "no leg measured it"


def _metric_gates(gates: Sequence[Gate]) -> Iterator[Gate]:
    for gate in gates:
        if gate.metric is not None:
            yield gate
        yield from _metric_gates([*(gate.all or []), *(gate.any or [])])


def _limits(spike: Spike, workload: str, metric: str, stat: str, *, ratio: bool = False) -> list[tuple[float, str]]:
    """Limits that gates set on a figure of the candidate, with their texts."""
    out: list[tuple[float, str]] = []
    for gate in _metric_gates(spike.gates):
        default = "p50" if METRICS[gate.metric or ""].scope == "requests" else ""
        key = (gate.workload or "", gate.metric, gate.stat or default)
        if key != (workload, metric, stat) or (gate.ratio_to is not None) is not ratio:
            continue
        if (gate.arm or spike.candidate.name) != spike.candidate.name:
            continue
        unit, factor = shown(metric)
        for sign, at in (("≥", gate.at_least), ("≤", gate.at_most)):
            if at is not None:
                out.append((at, f"gate {sign} {number(at if ratio else at * factor)}{'' if ratio else ' ' + unit}"))
    return list(dict.fromkeys(out))


def comparison_of(result: Result, workload: str, metric: str, stat: str) -> Comparison | None:
    """The comparison of candidate and production for one figure."""
    wanted = (result.candidate, result.production, workload, metric, stat)
    return next((c for c in result.comparisons if (c.arm, c.reference_arm, c.workload, c.metric, c.stat) == wanted), None)


def ratios_chart(
    result: Result, spike: Spike, keys: Sequence[tuple[str, str, str]], caption: str, *, by_workload: bool
) -> PageBlock:
    """Paired ratios candidate / production with their 95 % intervals. ``keys``: (workload, metric, stat) of each row."""
    rows: list[dict[str, Any]] = []
    cells: list[list[str]] = []
    for workload, metric, stat in keys:
        c = comparison_of(result, workload, metric, stat)
        if c is None or c.ratio is None:
            continue
        name = f"{workload}: {metric_name(metric, stat).lower()}" if by_workload else metric_name(metric, stat)
        reading = _reading(c)
        rows.append({
            "name": name, "ratio": c.ratio, "low": c.low, "high": c.high, "text": ratio_text(c), "reading": reading,
            "pairs": [p.ratio for p in c.pairs],
            "limits": [{"value": at, "text": text} for at, text in _limits(spike, workload, metric, stat, ratio=True)],
        })  # fmt: skip
        pairs = ", ".join(f"leg {p.leg} / {' and '.join(map(str, p.reference_legs))}: {number(p.ratio)}" for p in c.pairs)
        cells.append([name, ratio_text(c), pairs, reading])
    title = f"{result.candidate} / {result.production}"
    if not rows:
        return Missing(f"Ratios {title}", "no pair of legs has the figures that a ratio needs")
    return Chart(
        "ratios",
        caption,
        f"Paired ratios {title} with 95 % intervals. " + ". ".join(f"{r['name']}: {r['text']}, {r['reading']}" for r in rows),
        {"rows": rows, "title": title},
        Table(["figure", f"{title} [95 %]", "pairs of legs", "reading"], cells),
        note="Point: ratio over all pairs. Bar: 95 % interval over legs. Small rings: single pairs. Whether more or less than 1 is "
        "better depends on the figure; the words at the right say it.",
    )


def _reading(c: Comparison) -> str:
    """How an interval lies to 1, in words."""
    better = METRICS[c.metric].better
    if c.low is None or c.high is None:
        return "one pair, no interval"
    if c.low <= 1 <= c.high:
        return "not told apart from 1"
    if better == "neither":
        return "different"
    return "better" if (c.low > 1) is (better == "higher") else "worse"


def workload_ratios(result: Result, spike: Spike, workload: str) -> PageBlock:
    """The ratios of one workload's main figures."""
    return ratios_chart(result, spike, [(workload, m, s) for m, s in _RATIOS], "Paired ratio with 95 % interval", by_workload=False)


def distributions_chart(result: Result, folder: Folder, workload: str) -> PageBlock:
    """Latency distributions of one workload as step curves, one panel a measure, one curve a leg."""
    panels: list[dict[str, Any]] = []
    header = ["share of requests", *(leg_name(leg) for leg in result.legs)]
    rows: list[list[str]] = []
    reasons: list[str] = []
    for measure in MEASURES:
        unit, factor = shown(measure)
        curves, columns = [], []
        for leg in result.legs:
            drawn = folder.of(leg.index, workload)
            values = drawn.curves[measure] if drawn is not None else NoData(f"leg {leg.index} left no {workload}")
            if isinstance(values, NoData):
                reasons.append(values.reason)
                columns.append(["-"] * len(SHARES))
            else:
                scaled = [v * factor for v in values]
                curves.append({"leg": leg.index, "arm": leg.arm, "values": scaled})
                columns.append([number(v) for v in scaled])
        if curves:
            title = NAMES[measure]
            label = f"{title} in {unit}, cumulative: {_curves_said(result, workload, measure)}"
            panels.append({"title": title, "unit": unit, "curves": curves, "label": label})
            for n, share in enumerate(SHARES):
                rows.append([f"{title} ({unit}), {100 * share:g} %", *(column[n] for column in columns)])
    if not panels:
        return Missing(f"Latency distributions of {workload}", reasons[0] if reasons else "no leg measured it")
    return Chart(
        "ecdf",
        "Latency distributions: share of requests (or gaps) that took at most so long, one curve a leg",
        f"Cumulative latency distributions of {workload}. " + ". ".join(p["label"] for p in panels),
        {"panels": panels, "shares": list(SHARES), "arms": arms_of(result)},
        Table(header, rows),
        arms=list(dict.fromkeys(c["arm"] for p in panels for c in p["curves"])),
        note=_thinned([folder.of(leg.index, workload) for leg in result.legs]),
    )


def _curves_said(result: Result, workload: str, measure: str) -> str:
    unit, factor = shown(measure)
    said = []
    for leg in result.legs:
        half = leg.figure(workload, measure, "p50")
        if half is not None and half.value is not None:
            said.append(f"leg {leg.index} {leg.arm} p50 {number(half.value * factor)} {unit}")
    return ", ".join(said)


def _thinned(drawn: Sequence[Drawn | None]) -> str:
    some = [d for d in drawn if d is not None and d.taken < d.recorded]
    if not some:
        return ""
    least, of = min((d.taken, d.recorded) for d in some)
    return f"Thinned for drawing: every n-th request, {least:,} of {of:,} in the leg with the fewest. Figures use all."


def users_chart(result: Result, spike: Spike) -> PageBlock:
    """Throughput of each leg against the number of users. Workloads that differ in users alone are joined by a line."""
    users = {w.name: w.users for w in spike.workloads if not w.open_loop}
    families: dict[str, str] = {}
    kinds: dict[str, str] = {}
    for w in spike.workloads:
        same = repr(sorted(w.model_dump(mode="json", exclude=_BESIDE_USERS).items()))
        families[w.name] = kinds.setdefault(same, w.name)
    points: list[dict[str, Any]] = []
    for leg in result.legs:
        for name, count in users.items():
            figure = leg.figure(name, "output_tok_s")
            if figure is not None and figure.value is not None:
                points.append(
                    {"leg": leg.index, "arm": leg.arm, "users": count, "workload": name, "value": figure.value,
                     "family": families[name]}
                )  # fmt: skip
    if not points:
        return Missing("Throughput against users", "no leg has a throughput of a closed loop")
    rows: list[list[str]] = []
    for name in dict.fromkeys(p["workload"] for p in points):
        by_leg = {p["leg"]: p["value"] for p in points if p["workload"] == name}
        rows.append(
            [str(name), str(users[str(name)]), *(number(by_leg[x.index]) if x.index in by_leg else "-" for x in result.legs)]
        )
    said = "; ".join(
        f"{p['workload']} ({p['users']} users), leg {p['leg']} {p['arm']}: {number(float(p['value']))}" for p in points
    )
    return Chart(
        "users",
        "Output tokens a second of all users together, against the number of users; one line a leg",
        f"Throughput in tok/s against users. {said}",
        {"points": points, "arms": arms_of(result)},
        Table(["workload", "users", *(f"{leg_name(leg)} (tok/s)" for leg in result.legs)], rows),
        arms=list(dict.fromkeys(str(p["arm"]) for p in points)),
    )
