"""Words and numbers shared by all records: how a figure, an instant, a gate and a comparison are said. Pure."""

from __future__ import annotations

from datetime import UTC, datetime

from audition.judge.compare import Comparison, Noise
from audition.judge.confounds import NOT_SET, Contrast
from audition.judge.gates import GateResult
from audition.judge.result import LegResult, Result
from audition.report.documents import Table
from audition.spike.metrics import METRICS

REHEARSAL = "REHEARSAL: the servers were simulated. No figure below was measured on a real server."
MAIN_FIGURES = (
    ("output_tok_s", ""),
    ("decode_tok_s", "p50"),
    ("ttft", "p50"),
    ("time_to_first_answer_token", "p50"),
    ("tpot", "p50"),
    ("acceptance_rate", ""),
    ("acceptance_length", ""),
    ("prefix_hit_rate", ""),
    ("failure_share", ""),
)
LEG_FIGURES = ("kv_capacity_tokens", "max_concurrency", "boot_s")


def number(value: float) -> str:
    """A figure with four significant digits, never in scientific notation between 0.0001 and 10^9."""
    if value == 0:
        return "0"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    text = f"{value:.4g}"
    return text if "e" not in text else f"{value:.6f}".rstrip("0").rstrip(".")


def percent(share: float) -> str:
    """A share as a percentage with one decimal below ten: ``4.2 %``, ``28 %``."""
    return f"{100 * share:.{1 if abs(share) < 0.1 else 0}f} %"


def instant(at: float | None) -> str:
    """An instant in UTC to the second; ``not recorded`` when there is none."""
    return "not recorded" if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def day(at: float) -> str:
    """The day of an instant in UTC."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d")


def span(value: float | None, low: float | None, high: float | None, missing: str = "") -> str:
    """A value with its interval: ``128.2 [98.1, 167.4]``; ``no data`` with the reason when there is none."""
    if value is None:
        return f"no data ({missing})" if missing else "no data"
    if low is None or high is None or low == high:
        return number(value)
    return f"{number(value)} [{number(low)}, {number(high)}]"


def gate_value(gate: GateResult) -> str:
    """What a gate saw, in one cell."""
    if gate.kind in ("probe", "all", "any"):
        return gate.why
    text = span(gate.value, gate.low, gate.high, gate.missing)
    return f"{text} {gate.unit}" if gate.value is not None and gate.unit else text


def limit(gate: GateResult) -> str:
    """The threshold of a gate, in one cell."""
    parts = [f"≥ {gate.at_least:g}" if gate.at_least is not None else "", f"≤ {gate.at_most:g}" if gate.at_most is not None else ""]
    text = " and ".join(part for part in parts if part)
    return text or {"probe": "passes", "all": "all hold", "any": "one holds"}.get(gate.kind, "")


def gates_table(result: Result) -> Table:
    """Every gate with its parts, in the order of the spike file."""
    rows: list[list[str]] = []

    def add(gate: GateResult, depth: int) -> None:
        name = "  " * depth + (f"{gate.name} (shadow)" if gate.shadow else gate.name)
        rows.append([gate.outcome, name, limit(gate), gate_value(gate), ", ".join(map(str, gate.legs)), str(gate.samples or "")])
        for part in gate.parts:
            add(part, depth + 1)

    for gate in result.gates:
        add(gate, 0)
    return Table(["outcome", "criterion", "limit", "value [95 % interval]", "legs", "samples"], rows)


def legs_table(result: Result) -> Table:
    """One row a leg: what happened, how it booted."""
    rows = []
    for leg in result.legs:
        boot = leg.boot
        how = "-" if boot is None else boot.source.replace("-", " ") if boot.clean else f"failed: {boot.failure or 'no detail'}"
        if boot is not None and boot.seconds is not None and boot.clean:
            how += f" in {number(boot.seconds)} s"
        rows.append([str(leg.index), leg.arm, leg.role, leg.outcome, how, instant(leg.started_at)])
    return Table(["leg", "arm", "role", "outcome", "boot", "started"], rows)


def workloads_of(result: Result) -> list[str]:
    """The workloads that any leg has figures of, in the order of the spike file."""
    return list(dict.fromkeys(f.workload for leg in result.legs for f in leg.figures if f.workload))


def leg_values(legs: list[LegResult], workload: str, metric: str, stat: str) -> list[float]:
    """The figures of some legs, in order; legs without the figure are left out."""
    found = [leg.figure(workload, metric, stat) for leg in legs]
    return [f.value for f in found if f is not None and f.value is not None]


def ratio_text(comparison: Comparison | None) -> str:
    """The ratio of a comparison in one cell."""
    if comparison is None or comparison.ratio is None:
        return "-"
    text = span(comparison.ratio, comparison.low, comparison.high)
    return text if comparison.low is not None else f"{text} (one pair, no interval)"


def figures_table(result: Result, workload: str) -> Table | None:
    """The main figures of one workload ("" for those of whole legs), leg by leg, with the paired ratio. None without any."""
    arms = list(dict.fromkeys(leg.arm for leg in result.legs))
    names = [(m, "") for m in LEG_FIGURES] if not workload else list(MAIN_FIGURES)
    rows: list[list[str]] = []
    for metric, stat in names:
        cells = [
            " / ".join(number(v) for v in leg_values([x for x in result.legs if x.arm == arm], workload, metric, stat)) or "-"
            for arm in arms
        ]
        if all(cell == "-" for cell in cells):
            continue
        found = next((c for c in result.comparisons if _is(c, result, workload, metric, stat)), None)
        label = f"{metric} {stat}".strip() + (f" ({METRICS[metric].unit})" if METRICS[metric].unit else "")
        rows.append([label, *cells, ratio_text(found)])
    ratio = f"{result.candidate} / {result.production} [95 %]"
    return Table(["figure, leg by leg", *arms, ratio], rows) if rows else None


def _is(c: Comparison, result: Result, workload: str, metric: str, stat: str) -> bool:
    return (c.arm, c.reference_arm, c.workload, c.metric, c.stat) == (result.candidate, result.production, workload, metric, stat)


def noise_lines(result: Result) -> list[str]:
    """The noise floor and the detectable difference of each workload's throughput."""
    lines = []
    for workload in workloads_of(result):
        for noise in (n for n in result.noise if n.workload == workload and n.metric == "output_tok_s"):
            values = ", ".join(number(v) for v in noise.values)
            lines.append(
                f"{workload}: legs of {noise.arm} differ by {percent(noise.spread)} in output_tok_s ({values}; {_boots(noise)})."
            )
        for c in (c for c in result.comparisons if _is(c, result, workload, "output_tok_s", "")):
            if c.detectable_ratio is not None:
                least = c.detectable_ratio - 1
                lines.append(f"{workload}: a true difference of {percent(least)} or more would have been found (power 80 %).")
    return lines


def _boots(noise: Noise) -> str:
    """Which legs share a boot, and how far boots and legs of one boot are apart."""
    count = len(set(noise.boots))
    if count == len(noise.boots):
        return "each from a boot of its own"
    if count == 1:
        return "all from one boot"
    parts = [f"from boots {', '.join(map(str, noise.boots))}"]
    if noise.within_boot is not None and noise.between_boots is not None:
        parts.append(f"{percent(noise.within_boot)} within a boot, {percent(noise.between_boots)} between boots")
    return ": ".join(parts)


def outcome_sentence(result: Result) -> str:
    """What the verdict means for production, in one sentence."""
    if result.verdict == "GO":
        return f"Every criterion holds: replacing {result.production} by {result.candidate} may be considered."
    if result.verdict == "NO-GO":
        return f"Stay on {result.production}: {result.candidate} does not meet the criteria."
    return f"Stay on {result.production} for now: this run cannot decide."


def production_sentence(result: Result) -> str:
    """Whether production is back."""
    if result.production_back is None:
        return "Whether production is back is not recorded."
    return "Production is back and verified." if result.production_back else "PRODUCTION IS NOT BACK."


def differences_text(contrast: Contrast) -> str:
    """In what two arms differ, in one phrase: ``--speculative-config (not set -> {...}), the image``."""
    parts = [f"{d.flag} ({_short(d.reference)} -> {_short(d.arm)})" for d in contrast.differences]
    if contrast.images:
        parts.append("the image")
    return ", ".join(parts)


def _short(value: str) -> str:
    return value if value == NOT_SET or len(value) <= 120 else value[:117] + "..."


def contrast_lines(result: Result) -> list[str]:
    """What production and candidate differ in, whether that confounds their ratio, and what the controls separate."""
    first, *others = result.contrasts
    return [*_main_contrast(first, bool(others)), *(_control_contrast(c, result) for c in others)]


def _main_contrast(c: Contrast, controlled: bool) -> list[str]:
    if c.unknown:
        image = " The images differ." if c.images else ""
        return [f"What else {c.arm} and {c.reference_arm} differ in is not known ({c.unknown}).{image}"]
    if not c.things:
        return []
    if c.things == 1:
        return [f"{c.arm} differs from {c.reference_arm} only in {differences_text(c)}."]
    lines = [f"CONFOUNDED: {c.arm} differs from {c.reference_arm} in {c.things} things: {differences_text(c)}."]
    if not controlled:
        lines.append(
            "The ratio is the effect of all of them together. A control arm (the candidate without the one thing on trial) would "
            "tell what that thing does by itself."
        )
    return lines


def _control_contrast(c: Contrast, result: Result) -> str:
    thing = c.arm == result.candidate
    what = "the thing on trial" if thing else "everything else"
    if c.unknown:
        return f"{c.arm} / {c.reference_arm} is meant to be {what}, but what they differ in is not known ({c.unknown})."
    if not c.things:
        return f"{c.arm} and {c.reference_arm} start with the same arguments: their ratio is noise."
    confounded = " CONFOUNDED: these are several." if thing and c.things > 1 else ""
    return f"{c.arm} / {c.reference_arm} is {what}: {differences_text(c)}.{confounded}"


def separation_table(result: Result) -> Table | None:
    """With a control arm: the whole effect, the thing itself and everything else, for each workload's throughput. None without."""
    if len(result.contrasts) < 2:
        return None
    rows = []
    for workload in workloads_of(result):
        for contrast in result.contrasts:
            wanted = (contrast.arm, contrast.reference_arm, workload, "output_tok_s")
            found = next((c for c in result.comparisons if (c.arm, c.reference_arm, c.workload, c.metric) == wanted), None)
            whole = (contrast.arm, contrast.reference_arm) == (result.candidate, result.production)
            what = "all together" if whole else "the thing itself" if contrast.arm == result.candidate else "everything else"
            rows.append([workload, what, f"{contrast.arm} / {contrast.reference_arm}", ratio_text(found)])
    return Table(["workload", "effect of", "output_tok_s of", "ratio [95 %]"], rows) if rows else None
