"""A datapoint for the upstream project, ready to be posted as it is. Pure.

Nothing private: no path, host, address, name or key of this machine or team. What is not known is said to be not recorded, never
filled in. A rehearsal never poses as a measurement. Issue drafts live in ``issue_draft``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from audition.judge.confounds import parse_arguments
from audition.judge.result import LegResult, PlacedCaveat, Result
from audition.report.documents import Bullets, Code, Document, Heading, Paragraph, to_markdown
from audition.report.environment import Environment, arguments_for, said, shared_environment, shell_line, without_neutral
from audition.report.privacy import private_free, private_names, public_image
from audition.report.progress import progress_lines
from audition.report.terminal import contrast_blocks, figure_blocks
from audition.report.words import REHEARSAL, day, leg_values, noise_lines, number
from audition.spike.model import Spike
from audition.units import NoData

PUBLIC_CAVEATS = frozenset({
    "acceptance-collapsed", "client-bound", "clock-trouble", "engine-not-at-rest", "engine-restarted", "few-requests",
    "foreign-requests", "foreign-traffic", "gpu-throttled", "ignore-eos", "never-all-busy", "no-continuous-usage", "no-counters",
    "no-requests", "not-survived", "one-boot", "prefix-cache-warm", "rehearsal", "token-disagreement", "tokens-estimated",
    "ttft-disagreement",
})  # fmt: skip
"""Caveats whose texts hold audition's own words and figures only. Of all others a datapoint says that they exist, not what they
say: they quote servers, and name processes, users and containers of the machine."""

_STATED = {"kv_capacity_tokens": "KV capacity, tokens, boot by boot", "max_concurrency": "maximum concurrency, boot by boot"}


def upstream_markdown(result: Result, spike: Spike) -> str | None:
    """A datapoint ready to post, or None when no leg of the candidate ran to its end: then there is nothing to report."""
    document = upstream_document(result, spike)
    return None if document is None else private_free(to_markdown(document), private_names(result, spike))


def upstream_document(result: Result, spike: Spike) -> Document | None:
    """The datapoint, names not yet taken out; None when there is nothing to report."""
    legs = [leg for leg in result.legs if leg.arm == result.candidate and leg.outcome == "complete"]
    if not legs:
        return None
    mark = "REHEARSAL, not a measurement: " if result.rehearsal else ""
    doc: Document = [Heading(1, f"{mark}Datapoint: {result.candidate} beside {result.production}")]
    if result.rehearsal:
        doc.append(Paragraph(f"**{REHEARSAL} Do not post this.**"))
    doc += [Paragraph(result.question), *setup_blocks(result, spike)]
    doc += figure_blocks(result, 2)
    doc += contrast_blocks(result, 2)
    acceptance = _acceptance(legs)
    if acceptance:
        doc += [Heading(2, "Acceptance by draft position"), Bullets(acceptance)]
    doc += [Heading(2, "Method"), Paragraph(_method(result))]
    noise = noise_lines(result)
    if noise:
        doc.append(Bullets(noise))
    caveats = [*artificial(result, spike), *progress_lines(result), *public_caveats(result.caveats)]
    if caveats:
        doc += [Heading(2, "Caveats"), Bullets(caveats)]
    return doc


def setup_blocks(result: Result, spike: Spike) -> Document:
    """Hardware, versions, image, boots and the exact arguments of the candidate."""
    seen = shared_environment(result, result.candidate, spike.gpus)
    production = shared_environment(result, result.production, spike.gpus)
    booted = [leg for leg in result.legs if leg.arm == result.candidate and leg.boot is not None and leg.boot.source == "booted"]
    failed = [leg for leg in booted if leg.boot is not None and not leg.boot.clean]
    gpus = "none, the servers were simulated" if result.rehearsal else said(seen.gpus)
    items = [
        f"GPU: {gpus}",
        f"driver: {'none, the servers were simulated' if result.rehearsal else said(seen.driver)}",
        f"vLLM: {said(seen.engine_version)}{' (stated by the simulated server)' if result.rehearsal else ''}",
        f"torch: {said(seen.torch)}",
        f"image: {image_of(seen)}",
        f"{result.production}: vLLM {said(production.engine_version)}, image {_digest(production)}",
    ]
    items += [f"{label}: {text}" for name, label in _STATED.items() if (text := _stated(result, name))]
    clean = len(booted) - len(failed)
    items.append(f"boots of {result.candidate}: {len(booted)}, of which {clean} clean and {len(failed)} failed")
    return [Heading(2, "Setup"), Bullets(items), *arguments_blocks(result, spike, result.candidate)]


def image_of(seen: Environment) -> str:
    """The image by its name and digest, as far as they were recorded and others can know them."""
    if isinstance(seen.image, NoData):
        return _digest(seen)
    return f"{public_image(seen.image, said(seen.image_digest))}, {_digest(seen)}"


def _digest(seen: Environment) -> str:
    return said(seen.image_digest) if not isinstance(seen.image_digest, NoData) else "digest not recorded"


def _stated(result: Result, metric: str) -> str:
    legs = [leg for leg in result.legs if leg.arm == result.candidate]
    return " / ".join(number(v) for v in leg_values(legs, "", metric, ""))


def arguments_blocks(result: Result, spike: Spike, arm: str) -> Document:
    """The arguments of one arm as a line to copy, and which were left out because they are about the machine alone."""
    words = arguments_for(result, spike, arm)
    if isinstance(words, NoData):
        return [Paragraph(f"Arguments of {arm}: {words.reason}.")]
    kept, dropped = without_neutral(words)
    note = f", without {', '.join(f'`{flag}`' for flag in dropped)}, which do not change the speed" if dropped else ""
    return [Paragraph(f"Arguments of {arm}{note}:"), Code(shell_line(kept), "sh")]


def artificial(result: Result, spike: Spike) -> list[str]:
    """What was not real about the model, as its own arguments say."""
    words = arguments_for(result, spike, result.candidate)
    flags = {} if isinstance(words, NoData) else parse_arguments(words)
    lines = []
    if flags.get("--load-format") == "dummy":
        lines.append("The weights were random (`--load-format dummy`): speeds are real, answers and their length are not.")
    if _synthetic(flags.get("--speculative-config", "")):
        lines.append("Acceptance of drafts was set, not earned (synthetic rejection): it says nothing about the model's drafts.")
    return lines


def _synthetic(text: str) -> bool:
    try:
        config = json.loads(text)
    except ValueError:
        return False
    return isinstance(config, dict) and config.get("rejection_sample_method") == "synthetic"


def public_caveats(caveats: Sequence[PlacedCaveat]) -> list[str]:
    """Caveats in one line a text, with the places where it was seen; those that quote the machine by name of their kind only."""
    public: dict[tuple[str, str, str], list[str]] = {}
    private: dict[str, int] = {}
    for c in caveats:
        if c.code in PUBLIC_CAVEATS:
            public.setdefault((c.effect, c.text, c.code), []).append(c.where)
        else:
            private[c.code] = private.get(c.code, 0) + 1
    lines = [f"{effect}: {text} ({code}; {'; '.join(places)})" for (effect, text, code), places in public.items()]
    if private:
        kinds = ", ".join(private)
        lines.append(f"Further notes speak of the machine and are left out here; their kinds: {kinds}.")
    return lines


def _method(result: Result) -> str:
    done = [leg for leg in result.legs if leg.outcome == "complete"]
    order = ", ".join(leg.arm for leg in done)
    verb = "Rehearsed" if result.rehearsal else "Measured"
    return (
        f"{verb} on {day(result.started_at)} in interleaved legs ({order}) with `audition` {result.audition_version}. "
        "Ratios pair each candidate leg with the production legs around it; intervals are 95 %, over legs. Tokens are counted from "
        "`usage`, not from chunks; acceptance comes from differences of the engine's counters within each leg."
    )


def _acceptance(legs: Sequence[LegResult]) -> list[str]:
    return [
        f"leg {leg.index}, {workload}: {', '.join(number(r) for r in rates)}"
        for leg in legs
        for workload, rates in leg.acceptance.items()
    ]
