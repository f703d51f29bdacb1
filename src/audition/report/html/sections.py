"""What the report says, part by part, as blocks. Pure; figures and wording come from the judge and from ``words``."""

from __future__ import annotations

from collections.abc import Callable

from audition.judge.gates import GateResult
from audition.judge.result import LegResult, Result
from audition.report.documents import Bullets, Paragraph, Table
from audition.report.html import answers, engine, speed, surroundings
from audition.report.html.blocks import Card, Details, Grid, Missing, PageBlock, Section
from audition.report.html.data import Folder
from audition.report.progress import progress_lines
from audition.report.words import (
    contrast_lines,
    figures_table,
    gate_value,
    legs_table,
    limit,
    noise_lines,
    number,
    percent,
    separation_table,
    workloads_of,
)
from audition.spike.model import Spike
from audition.units import NoData


def sections(result: Result, spike: Spike, folder: Folder) -> list[Section]:
    """All parts of the report, in order. A part without anything to say says so; one whose records have an unexpected form says
    that, and the others stand."""
    parts: list[tuple[str, str, Callable[[], list[PageBlock]]]] = [
        ("criteria", "Criteria", lambda: _criteria(result)),
        ("course", "Course of the run", lambda: _course(result, spike, folder)),
        ("ratios", "Candidate beside production", lambda: _ratios(result, spike)),
        ("workloads", "Workloads", lambda: _workloads(result, spike, folder)),
        ("users", "Throughput against users", lambda: [speed.users_chart(result, spike)]),
        ("acceptance", "Acceptance of drafts", lambda: _acceptance(result, spike)),
        ("kv", "KV cache and prefix cache", lambda: _kv(result)),
        ("gpus", "GPU memory, power and energy", lambda: [engine.gpu_chart(result, spike.gpus)]),
        ("boots", "Boots", lambda: [engine.boots_chart(result), *answers.failed_boots(result)]),
        ("difference", "What the arms differ in", lambda: _difference(result)),
        ("probes", "Probes", lambda: answers.probes(result, spike)),
        ("hypotheses", "Hypotheses", lambda: _hypotheses(result)),
        ("caveats", "Caveats", lambda: _caveats(result)),
        ("restore", "How production came back", lambda: surroundings.restore(result, folder)),
        ("environment", "Environment", lambda: surroundings.environment(result, spike)),
        ("reproduce", "How to reproduce", lambda: surroundings.reproduce(result, folder)),
    ]
    return [Section(name, title, _made(title, make)) for name, title, make in parts]


def _made(title: str, make: Callable[[], list[PageBlock]]) -> list[PageBlock]:
    try:
        return make()
    except (TypeError, ValueError, KeyError, AttributeError, IndexError, ArithmeticError) as error:
        return [Missing(title, f"The records that it is made from have an unexpected form ({type(error).__name__}: {error}).")]


def _criteria(result: Result) -> list[PageBlock]:
    rows: list[list[str]] = []
    depths: list[int] = []

    def add(gate: GateResult, depth: int) -> None:
        name = f"{gate.name} (shadow: decides nothing)" if gate.shadow else gate.name
        legs = ", ".join(map(str, gate.legs))
        rows.append([name, gate.outcome, limit(gate), gate_value(gate), legs, f"{gate.samples:,}" if gate.samples else ""])
        depths.append(depth)
        for part in gate.parts:
            add(part, depth + 1)

    for gate in result.gates:
        add(gate, 0)
    if not rows:
        return [Paragraph("The spike file has no criteria.")]
    table = Table(["criterion", "outcome", "limit", "value [95 % interval]", "legs", "samples"], rows)
    grid = Grid(
        "Criteria, written before the run", table, badges=frozenset({1}), depths=depths, wide=frozenset({3}), show_caption=False
    )
    return [
        Paragraph("Written before the run. A criterion whose interval holds its limit is unknown."),
        grid,
        Details("How each value was made", [_basis(result)]),
    ]


def _basis(result: Result) -> Grid:
    rows: list[list[str]] = []

    def add(gate: GateResult) -> None:
        rows.append([gate.name, gate.rule, gate.basis or "-", gate.why])
        for part in gate.parts:
            add(part)

    for gate in result.gates:
        add(gate)
    return Grid(
        "Rules and methods of the criteria", Table(["criterion", "rule", "method", "finding"], rows), wide=frozenset({1, 2, 3})
    )


def _course(result: Result, spike: Spike, folder: Folder) -> list[PageBlock]:
    blocks: list[PageBlock] = []
    lines = progress_lines(result)
    if lines:
        blocks += [Paragraph("This run is not whole. How far it got, and what is missing:"), Bullets(lines)]
    legs = legs_table(result)
    order = [0, 1, 2, 4, 5, 3]
    table = Table([legs.header[i] for i in order], [[row[i] for i in order] for row in legs.rows])
    blocks += [engine.course_chart(result, folder), Grid("Legs in time order", table, badges=frozenset({5}), show_caption=False)]
    blocks.append(_measured(result, spike, folder))
    return blocks


def _measured(result: Result, spike: Spike, folder: Folder) -> PageBlock:
    """What was measured, workload by workload and leg by leg."""
    rows = [[w.name, *(_state(leg, w.name, folder) for leg in result.legs)] for w in spike.workloads]
    header = ["workload", *(speed.leg_name(leg) for leg in result.legs)]
    return Grid("What was measured", Table(header, rows), badges=frozenset(range(1, len(header))))


def _state(leg: LegResult, workload: str, folder: Folder) -> str:
    drawn = folder.of(leg.index, workload)
    if drawn is None:
        return "missing" if leg.outcome != "missing" else "missing: not reached"
    if isinstance(drawn.record, NoData):
        return f"missing: {drawn.record.reason}"
    state = "complete" if drawn.record.complete else "cut short"
    figure = leg.figure(workload, "output_tok_s")
    if figure is not None and figure.value is None and drawn.record.complete:
        return f"void: {figure.missing}"
    return f"{state}: {drawn.recorded:,} requests in {drawn.record.wall_s:,.1f} s"


def _ratios(result: Result, spike: Spike) -> list[PageBlock]:
    keys = [(w, "output_tok_s", "") for w in workloads_of(result)]
    keys += [(w, "decode_tok_s", "p50") for w in workloads_of(result)]
    blocks: list[PageBlock] = [
        speed.ratios_chart(result, spike, keys, "Speed in every workload: paired ratio with 95 % interval", by_workload=True)
    ]
    blocks += _noise(result)
    table = separation_table(result)
    if table is not None:
        blocks.append(Grid("Effects that the control arms separate", table, head=0))
    return blocks


def _noise(result: Result) -> list[PageBlock]:
    """How far legs of one arm differ in throughput, and how large a true difference would have been found."""
    arms = speed.arms_of(result)
    rows = []
    for workload in workloads_of(result):
        spreads = {n.arm: percent(n.spread) for n in result.noise if (n.workload, n.metric) == (workload, "output_tok_s")}
        c = speed.comparison_of(result, workload, "output_tok_s", "")
        least = percent(c.detectable_ratio - 1) if c is not None and c.detectable_ratio is not None else "-"
        if spreads:
            rows.append([workload, *(spreads.get(arm, "-") for arm in arms), least])
    if not rows:
        return []
    header = ["workload", *(f"legs of {arm} differ by" for arm in arms), "would have been found (power 80 %) from"]
    return [
        Grid(
            "Noise of the throughput between legs of one arm, and the least true difference that would have been found",
            Table(header, rows),
        ),
        Details("The same in words, with boots", [Bullets(noise_lines(result))]),
    ]


def _workloads(result: Result, spike: Spike, folder: Folder) -> list[PageBlock]:
    blocks: list[PageBlock] = []
    planned = [w.name for w in spike.workloads]
    for name in [*planned, *(n for n in workloads_of(result) if n not in planned)]:
        inner: list[PageBlock] = [speed.legs_chart(result, spike, name)]
        if not isinstance(inner[0], Missing):
            inner += [speed.workload_ratios(result, spike, name), speed.distributions_chart(result, folder, name)]
            readings = engine.readings_chart(result, folder, name)
            inner += [readings] if readings is not None else []
            figures = figures_table(result, name)
            if figures is not None:
                inner.append(Grid(f"Main figures of {name}, leg by leg", figures))
            inner.append(Details(f"All figures of {name}", [_all_figures(result, name)]))
        blocks.append(Card(_workload_title(name, spike), inner))
    return blocks


def _workload_title(name: str, spike: Spike) -> str:
    workload = next((w for w in spike.workloads if w.name == name), None)
    if workload is None:
        return name
    if workload.open_loop:
        return f"{name}: open loop" + (f", {workload.rate:g} requests/s" if workload.rate else "")
    return f"{name}: {workload.users} user{'s' if workload.users != 1 else ''}"


def _all_figures(result: Result, workload: str) -> PageBlock:
    """Every figure that the judge has of a workload, in the units of the catalogue, with the reason where there is none."""
    keys = list(dict.fromkeys((f.metric, f.stat, f.unit) for leg in result.legs for f in leg.figures if f.workload == workload))
    rows = []
    for metric, stat, unit in keys:
        found = [leg.figure(workload, metric, stat) for leg in result.legs]
        cells = ["-" if f is None else number(f.value) if f.value is not None else "no data" for f in found]
        if any(cell not in ("-", "no data") for cell in cells):
            rows.append([f"{metric} {stat}".strip(), unit, *cells])
    header = ["figure", "unit", *(speed.leg_name(leg) for leg in result.legs)]
    return Grid(f"All figures of {workload}; without any data: {_without(result, workload)}", Table(header, rows))


def _without(result: Result, workload: str) -> str:
    keys = list(dict.fromkeys((f.metric, f.stat) for leg in result.legs for f in leg.figures if f.workload == workload))
    empty = []
    for metric, stat in keys:
        found = [f for leg in result.legs if (f := leg.figure(workload, metric, stat)) is not None]
        if all(f.value is None for f in found):
            empty.append((f"{metric} {stat}".strip(), found[0].missing))
    reasons: dict[str, list[str]] = {}
    for name, why in empty:
        reasons.setdefault(why.partition(": ")[2] or why, []).append(name)
    return "; ".join(f"{', '.join(names)} ({why})" for why, names in reasons.items()) or "none"


def _acceptance(result: Result, spike: Spike) -> list[PageBlock]:
    blocks: list[PageBlock] = [engine.positions_chart(result, spike)]
    rows = _by_workload(result, ("acceptance_rate", "acceptance_length"))
    if rows:
        blocks.append(Grid("Acceptance by workload", Table(["figure", *(speed.leg_name(leg) for leg in result.legs)], rows)))
    return blocks


def _kv(result: Result) -> list[PageBlock]:
    figures = [("kv_capacity_tokens", "KV capacity", "tokens"), ("max_concurrency", "Requests of full length at once", "requests")]
    blocks: list[PageBlock] = [engine.leg_bars(result, figures, "KV cache, as the engine states it at boot", "KV capacity")]
    rows = _by_workload(result, ("prefix_hit_rate",))
    if rows:
        blocks.append(
            Grid(
                "Prefix cache hits, share of queried tokens", Table(["figure", *(speed.leg_name(leg) for leg in result.legs)], rows)
            )
        )
    missing = [f for leg in result.legs for f in leg.figures if f.metric == "prefix_hit_rate" and f.value is None and f.missing]
    if missing:
        reasons = dict.fromkeys(f.missing for f in missing)
        blocks.append(Details(f"Prefix hit rates without data: {len(missing)}", [Bullets(list(reasons))]))
    lines = {leg.arm: leg.facts.get("kv_lines") for leg in result.legs if isinstance(leg.facts.get("kv_lines"), list)}
    if lines:
        items = [f"{arm}: {line}" for arm, found in lines.items() if isinstance(found, list) for line in found]
        blocks.append(Details("The engine's own lines", [Bullets(items)]))
    return blocks


def _by_workload(result: Result, metrics: tuple[str, ...]) -> list[list[str]]:
    rows = []
    for workload in workloads_of(result):
        for metric in metrics:
            found = [leg.figure(workload, metric) for leg in result.legs]
            if any(f is not None and f.value is not None for f in found):
                unit, factor = speed.shown(metric)
                cells = ["-" if f is None or f.value is None else number(f.value * factor) for f in found]
                rows.append([f"{workload}: {speed.NAMES[metric].lower()} ({unit})", *cells])
    return rows


def _difference(result: Result) -> list[PageBlock]:
    lines = contrast_lines(result)
    blocks: list[PageBlock] = [Bullets(lines)] if lines else [Paragraph("By their arguments and images, in nothing.")]
    for contrast in result.contrasts:
        if contrast.differences:
            rows = [[d.flag, d.reference, d.arm] for d in contrast.differences]
            title = f"Arguments in which {contrast.arm} differs from {contrast.reference_arm}"
            blocks.append(Grid(title, Table(["argument", contrast.reference_arm, contrast.arm], rows), wide=frozenset({1, 2})))
        if contrast.images:
            blocks.append(Bullets([f"image: {image}" for image in contrast.images]))
    return blocks


def _hypotheses(result: Result) -> list[PageBlock]:
    if not result.hypotheses:
        return [Paragraph("The spike file names none.")]
    table = Table(
        ["hypothesis", "outcome", "claim", "evidence", "so"],
        [[h.name, h.outcome, h.claim, h.why, h.text or "-"] for h in result.hypotheses],
    )
    blocks: list[PageBlock] = [Grid("Hypotheses", table, badges=frozenset({1}), wide=frozenset({2, 3, 4}), show_caption=False)]
    for h in result.hypotheses:
        if h.excerpt:
            blocks.append(
                Details(f"{h.name}: the lines of the log", [answers.log_excerpt(h.excerpt)], opened=h.outcome == "refuted")
            )
    return blocks


def _caveats(result: Result) -> list[PageBlock]:
    if not result.caveats:
        return [Paragraph("None were noted.")]
    ordered = sorted(result.caveats, key=lambda c: c.effect != "void")
    rows = [[c.where, c.effect, c.text, c.code] for c in ordered]
    grid = Grid(
        "Caveats",
        Table(["where", "effect", "what was seen", "code"], rows),
        badges=frozenset({1}),
        wide=frozenset({0, 2}),
        show_caption=False,
    )
    return [Paragraph("void: the data never decide. note: told beside the result, changes nothing."), grid]
