"""How production came back, where the run took place, and how to do it again. Pure."""

from __future__ import annotations

from typing import Any

from audition.judge.result import Result
from audition.report.documents import Bullets, Code, Paragraph, Table
from audition.report.environment import arguments_for, environment_of, said, shell_line
from audition.report.html.blocks import Details, Grid, Missing, PageBlock
from audition.report.html.data import Folder
from audition.report.html.speed import arms_of, leg_name
from audition.report.words import instant, number, production_sentence
from audition.spike.model import Spike
from audition.units import NoData

_SHOWN_ELSEWHERE = {"arguments", "boot_markers", "kv_lines", "kv_capacity_tokens", "max_concurrency", "gpus"}


def restore(result: Result, folder: Folder) -> list[PageBlock]:
    """What was done and checked until production counted as back."""
    blocks: list[PageBlock] = [Paragraph(production_sentence(result))]
    record = folder.restore
    if isinstance(record, NoData):
        return [*blocks, Missing("How it came back", record.reason)]
    steps = [
        [str(s.get("step", "?")), _ok(s.get("ok")), _seconds(s.get("seconds")), str(s.get("detail", ""))]
        for s in _rows(record, "steps")
    ]
    if steps:
        table = Table(["step", "outcome", "took (s)", "what was seen"], steps)
        blocks.append(
            Grid("Steps of bringing production back", table, badges=frozenset({1}), wide=frozenset({3}), show_caption=False)
        )
    for name, title in (("problems", "Problems"), ("warnings", "Warnings"), ("manual", "What to type")):
        items = [str(item) for item in record.get(name) or []] if isinstance(record.get(name), list) else []
        if items:
            blocks += [Paragraph(f"{title}:"), Bullets(items)]
    return blocks


def _rows(record: dict[str, Any], name: str) -> list[dict[str, Any]]:
    rows = record.get(name)
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _ok(value: Any) -> str:
    return {True: "ok", False: "failed"}.get(value, "unknown") if isinstance(value, bool) else "unknown"


def _seconds(value: Any) -> str:
    return f"{value:.1f}" if isinstance(value, int | float) and not isinstance(value, bool) else "-"


def environment(result: Result, spike: Spike) -> list[PageBlock]:
    """Versions, GPUs, image and arguments of each arm; the host of each leg."""
    names = arms_of(result)
    found = [environment_of(result, arm, spike.gpus) for arm in names]
    rows = [
        ["engine version", *(said(e.engine_version) for e in found)],
        ["GPUs", *(said(e.gpus) for e in found)],
        ["driver", *(said(e.driver) for e in found)],
        ["torch", *(said(e.torch) for e in found)],
        ["image digest", *(said(e.image_digest) for e in found)],
        ["CPUs", *(said(e.cpus) for e in found)],
    ]
    blocks: list[PageBlock] = [
        Grid("Environment of each arm", Table(["what", *names], rows), wide=frozenset(range(1, len(names) + 1)), show_caption=False)
    ]
    for arm in names:
        words = arguments_for(result, spike, arm)
        if isinstance(words, NoData):
            blocks.append(Missing(f"Arguments of {arm}", words.reason))
        else:
            blocks.append(Details(f"Arguments of {arm}", [Code(shell_line(words), "arguments")]))
    hosts = _hosts(result)
    if hosts:
        blocks.append(Details("The host during each leg", hosts))
    return blocks


def _hosts(result: Result) -> list[PageBlock]:
    facts = [(leg, leg.facts.get("host")) for leg in result.legs]
    known = [(leg, host) for leg, host in facts if isinstance(host, dict)]
    keys = list(
        dict.fromkeys(k for _, h in known for k, v in h.items() if k not in _SHOWN_ELSEWHERE and not isinstance(v, dict | list))
    )
    if not known:
        return []
    rows = [[key, *(_fact(host.get(key)) for _, host in known)] for key in keys]
    return [Grid("The host during each leg", Table(["figure", *(leg_name(leg) for leg, _ in known)], rows))]


def _fact(value: Any) -> str:
    if value is None or value == "":
        return "-"
    return number(float(value)) if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def reproduce(result: Result, folder: Folder) -> list[PageBlock]:
    """The commands, with the spike file as it was given."""
    verb = "rehearse" if result.rehearsal else "run"
    commands = [
        "# the spike again; spike.yaml lies beside this report",
        f"audition {verb} spike.yaml{f' --fault {result.fault}' if result.fault else ''}",
        "",
        "# the verdict and this report again from the records, to the same bytes; RUN is the folder of this report",
        "audition judge RUN",
        "audition report RUN",
    ]
    blocks: list[PageBlock] = [
        Code("\n".join(commands), "commands"),
        Bullets([
            f"run: {result.run_id}",
            f"began: {instant(result.started_at)}",
            f"ended: {instant(result.ended_at)}",
            f"audition: {result.audition_version}",
        ]),
        Paragraph("MANIFEST in the same folder holds a hash of every file; `sha256sum -c MANIFEST` checks them."),
    ]  # fmt: skip
    if isinstance(folder.spike_text, NoData):
        return [*blocks, Missing("The spike file", folder.spike_text.reason)]
    return [*blocks, Details("The spike file as it was given", [Code(folder.spike_text, "spike.yaml")])]
