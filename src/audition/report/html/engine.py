"""Charts of the engine: acceptance, KV cache, readings over time, GPUs, boots, the run's course. Pure; figures are the judge's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from audition.judge.result import LegResult, Result
from audition.report.documents import Table
from audition.report.html.blocks import Chart, Missing, PageBlock
from audition.report.html.data import Folder
from audition.report.html.speed import arms_of, leg_name, legs_json
from audition.report.words import number, workloads_of
from audition.spike.model import Spike
from audition.units import NoData

_ENOUGH_READINGS = 4
"""Fewer readings show no course over time."""


def positions_chart(result: Result, spike: Spike) -> PageBlock:
    """Acceptance rate by draft position, one panel a workload (alone first, then under load), one line a leg."""
    users = {w.name: w.users for w in spike.workloads}
    names = [n for n in sorted(workloads_of(result), key=lambda n: users.get(n, 0)) if any(n in x.acceptance for x in result.legs)]
    if not names:
        return Missing(
            "Acceptance by draft position", "no leg has counters of accepted drafts; without speculative decoding there are none"
        )
    panels: list[dict[str, Any]] = []
    rows: list[list[str]] = []
    said: list[str] = []
    for name in names:
        curves: list[dict[str, Any]] = [
            {"leg": x.index, "arm": x.arm, "rates": x.acceptance[name]} for x in result.legs if name in x.acceptance
        ]
        load = "1 user, alone" if users.get(name, 1) == 1 else f"{users[name]} users at once"
        for curve in curves:
            rates = ", ".join(f"{100 * r:.1f} %" for r in curve["rates"])
            said.append(f"{name}, leg {curve['leg']}: {rates}")
            rows.append([name, load, str(curve["leg"]), curve["arm"], *(f"{100 * r:.1f}" for r in curve["rates"])])
        panels.append({"title": f"{name} ({load})", "curves": curves, "label": f"{name}: {said[-1]}"})
    depth = max(len(c["rates"]) for p in panels for c in p["curves"])
    rows = [row + ["-"] * (4 + depth - len(row)) for row in rows]
    return Chart(
        "positions",
        "Share of drafts accepted at each draft position",
        "Acceptance rate by draft position. " + "; ".join(said),
        {"panels": panels, "depth": depth, "arms": arms_of(result)},
        Table(["workload", "load", "leg", "arm", *(f"position {n + 1} (%)" for n in range(depth))], rows),
        arms=list(dict.fromkeys(c["arm"] for p in panels for c in p["curves"])),
    )


def leg_bars(result: Result, figures: Sequence[tuple[str, str, str]], caption: str, what: str) -> PageBlock:
    """Bars of figures that a leg has once. ``figures``: (metric, title, unit)."""
    panels: list[dict[str, Any]] = []
    rows: list[list[str]] = []
    reason = "no leg has it"
    for metric, title, unit in figures:
        found = [(leg, leg.figure("", metric)) for leg in result.legs]
        bars = [{"name": leg_name(leg), "arm": leg.arm, "value": f.value, "text": number(f.value)}
                for leg, f in found if f is not None and f.value is not None]  # fmt: skip
        missing = [f"{leg_name(leg)}: {f.missing}" for leg, f in found if f is not None and f.value is None]
        if not bars:
            reason = missing[0] if missing else reason
            continue
        panels.append(_panel(title, unit, bars))
        values = {str(bar["name"]): str(bar["text"]) for bar in bars}
        rows.append([f"{title} ({unit})", *(values.get(leg_name(leg), "-") for leg in result.legs)])
    if not panels:
        return Missing(what, reason)
    return _bars_chart(result, panels, caption, Table(["figure", *(leg_name(leg) for leg in result.legs)], rows))


def _panel(title: str, unit: str, bars: list[dict[str, Any]]) -> dict[str, Any]:
    label = f"{title} in {unit}: " + "; ".join(f"{bar['name']} {bar['text']}" for bar in bars)
    return {"title": title, "unit": unit, "bars": bars, "label": label}


def _bars_chart(result: Result, panels: list[dict[str, Any]], caption: str, table: Table) -> Chart:
    said = ". ".join(panel["label"] for panel in panels)
    return Chart("bars", caption, f"{caption}. {said}", {"panels": panels, "arms": arms_of(result)}, table)


def readings_chart(result: Result, folder: Folder, workload: str) -> PageBlock | None:
    """Generated tokens a second and KV cache use over one workload, as ``/metrics`` said; None when it was too short."""
    found = [(leg, d.readings) for leg in result.legs if (d := folder.of(leg.index, workload)) and len(d.readings) > 1]
    if max((len(readings) for _, readings in found), default=0) < _ENOUGH_READINGS:
        return None
    panels: list[dict[str, Any]] = []
    rows: list[list[str]] = []
    for key, title, unit, factor in (("tok_s", "Generated tokens", "tok/s", 1.0), ("kv_usage", "KV cache in use", "%", 100.0)):
        curves: list[dict[str, Any]] = []
        for leg, readings in found:
            at = [(r.at, getattr(r, key)) for r in readings]
            points = [[t, v * factor] for t, v in at if v is not None]
            if points:
                curves.append({"leg": leg.index, "arm": leg.arm, "points": points})
                rows += [[title, unit, leg_name(leg), f"{t:.1f}", number(v)] for t, v in points]
        if curves:
            label = f"{title} in {unit} over {workload}: {len(curves)} legs, {sum(len(c['points']) for c in curves)} readings"
            panels.append({"title": title, "unit": unit, "curves": curves, "label": label})
    if not panels:
        return None
    return Chart(
        "series",
        "The engine over time, by its own counters (everybody's requests)",
        ". ".join(str(p["label"]) for p in panels),
        {"panels": panels, "arms": arms_of(result)},
        Table(["figure", "unit", "leg", "seconds since the start", "value"], rows),
        arms=list(dict.fromkeys(leg.arm for leg, _ in found)),
    )


def _gpus(leg: LegResult) -> list[dict[str, Any]]:
    host = leg.facts.get("host")
    rows = host.get("gpus") if isinstance(host, dict) else None
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def gpu_reason(result: Result) -> str:
    """Why no GPU figure was recorded, as far as the records say."""
    for leg in result.legs:
        host = leg.facts.get("host")
        why = host.get("gpus_missing") if isinstance(host, dict) else ""
        if isinstance(why, str) and why:
            return f"{why[0].upper()}{why[1:]}." + (" A rehearsal uses no GPU." if result.rehearsal else "")
    texts = [c.text for c in result.caveats if c.code == "no-gpu-telemetry"]
    return f"{texts[0][0].upper()}{texts[0][1:]}." if texts else "The records hold no GPU figures and no reason."


_GPU_ROWS = (
    ("memory_used_mib_max", "Memory used, largest", "MiB"),
    ("power_w_mean", "Power, mean", "W"),
    ("power_w_max", "Power, largest", "W"),
    ("energy_j", "Energy over the leg", "J"),
    ("use_mean", "Time with a kernel running, mean", "%"),
    ("temperature_c_max", "Temperature, largest", "°C"),
    ("power_capped", "Samples at the power cap", "%"),
)


def gpu_chart(result: Result, gpus: Sequence[int]) -> PageBlock:
    """Memory, power and energy of each watched GPU and leg, as the leg's record has them."""
    found = [(leg, gpu) for leg in result.legs for gpu in _gpus(leg) if not gpus or gpu.get("index") in gpus]
    if not found:
        return Missing("GPU memory, power and energy", gpu_reason(result))
    panels: list[dict[str, Any]] = []
    rows: list[list[str]] = []
    for key, title, unit in _GPU_ROWS:
        factor = 100.0 if unit == "%" else 1.0
        bars: list[dict[str, Any]] = []
        for leg, gpu in found:
            value = gpu.get(key)
            if isinstance(value, int | float) and not isinstance(value, bool):
                name = f"{leg_name(leg)}, GPU {gpu.get('index', '?')}"
                bars.append({"name": name, "arm": leg.arm, "value": value * factor, "text": number(value * factor)})
        rows += [[title, unit, bar["name"], bar["text"]] for bar in bars]
        if bars and key in ("memory_used_mib_max", "power_w_mean", "energy_j"):
            panels.append(_panel(title, unit, bars))
    if not panels:
        return Missing("GPU memory, power and energy", "the cards told none of them")
    return _bars_chart(
        result, panels, "GPU memory, power and energy, leg by leg", Table(["figure", "unit", "leg and GPU", "value"], rows)
    )


def _seconds(leg: LegResult, marker: str) -> float | None:
    markers = leg.facts.get("boot_markers")
    values = markers.get(marker) if isinstance(markers, dict) else None
    try:
        return max(float(v) for v in values) if isinstance(values, list) and values else None
    except (TypeError, ValueError):
        return None


def boots_chart(result: Result) -> PageBlock:
    """How long each boot took, and on what, by the engine's own log. The rest is what the log puts no time to."""
    bars, rows = [], []
    for leg in result.legs:
        boot = leg.boot
        if boot is None:
            continue
        if boot.seconds is None:
            what = "ran already" if boot.source == "already-running" else boot.failure or "did not boot"
            rows.append([leg_name(leg), what, "-", "-", "-", "-"])
            continue
        load, init, graphs = (_seconds(leg, marker) for marker in ("load_s", "init_engine_s", "graph_capture_s"))
        parts = [("load weights", load), ("profile, KV cache, compile, graphs", init)]
        known = sum(v for _, v in parts if v is not None)
        if known <= boot.seconds:
            parts.append(("all else", boot.seconds - known))
        else:
            parts = [("boot", boot.seconds)]
        segments = [{"name": name, "seconds": v} for name, v in parts if v]
        clean = "booted" if boot.clean else boot.failure or "failed"
        bars.append(
            {
                "name": leg_name(leg),
                "arm": leg.arm,
                "total": boot.seconds,
                "text": f"{number(boot.seconds)} s",
                "segments": segments,
            }
        )
        cells = [number(v) if v is not None else "-" for v in (boot.seconds, load, init, graphs)]
        rows.append([leg_name(leg), clean, *cells])
    header = ["leg", "boot", "whole (s)", "load weights (s)", "init engine (s)", "of which graph capture (s)"]
    if not bars:
        return Missing("Boot timelines", "; ".join(f"{row[0]}: {row[1]}" for row in rows) or "no leg was reached")
    said = "; ".join(f"{bar['name']} {bar['text']}" for bar in bars)
    return Chart(
        "boots", "Boots: from start to the first real completion, and what the engine's log says it did",
        f"Seconds to boot: {said}", {"bars": bars, "arms": arms_of(result)}, Table(header, rows),
    )  # fmt: skip


def course_chart(result: Result, folder: Folder) -> PageBlock:
    """The whole run on one time axis: boots, probes, workloads, restore. A boot is drawn as ending where its leg begins."""
    zero = result.started_at
    spans: list[dict[str, Any]] = []

    def add(row: str, arm: str, kind: str, name: str, *, begin: float, end: float) -> None:
        spans.append({"row": row, "arm": arm, "kind": kind, "name": name, "begin": begin - zero, "end": end - zero})

    for leg in result.legs:
        if leg.started_at is None or leg.ended_at is None:
            continue
        name = leg_name(leg)
        if leg.boot is not None and leg.boot.seconds:
            add(name, leg.arm, "boot", "boot", begin=leg.started_at - leg.boot.seconds, end=leg.started_at)
        add(name, leg.arm, "leg", "probes, warm-up and records", begin=leg.started_at, end=leg.ended_at)
        for (index, workload), drawn in folder.drawn.items():
            if index == leg.index and not isinstance(drawn.record, NoData):
                at = drawn.record.started_at
                add(name, leg.arm, "workload", workload, begin=at, end=at + drawn.record.wall_s)
    restore = folder.restore
    if not isinstance(restore, NoData):
        began, ended = restore.get("began"), restore.get("ended")
        if isinstance(began, int | float) and isinstance(ended, int | float):
            add("restore", result.production, "restore", "bring production back", begin=began, end=ended)
    if not spans:
        return Missing("Course of the run", "no leg was reached")
    spans.sort(key=lambda s: (s["begin"], s["kind"] != "leg"))
    rows = [[s["row"], s["name"], f"{s['begin']:.1f}", f"{s['end'] - s['begin']:.1f}"] for s in spans]
    names = [*(leg_name(leg) for leg in result.legs), *(["restore"] if any(s["kind"] == "restore" for s in spans) else [])]
    said = [
        f"{s['row']} {s['name']} from {s['begin']:.0f} s for {s['end'] - s['begin']:.0f} s"
        for s in spans
        if s["kind"] != "workload"
    ]
    return Chart(
        "course", "The run at a glance: what occupied the GPUs, and when", f"Course of the run: {'; '.join(said)}",
        {"spans": spans, "rows": names, "legs": legs_json(result), "arms": arms_of(result)},
        Table(["where", "what", "began (s since the run's start)", "took (s)"], rows),
    )  # fmt: skip
