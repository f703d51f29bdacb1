"""The self-audit of a workload: what lessens trust in its figures, as caveats. Pure. Every threshold stands here with its source.

What must not live here: measuring, and the judge's own rules (how many samples a percentile needs).
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from audition.judge.records import Caveat, ClientStats, RequestRecord
from audition.load.telemetry import Timeline
from audition.load.vitals import quantile
from audition.observe.prometheus import GENERATED, PREFIX_HITS, PREFIX_QUERIES, SUCCESS, TTFT
from audition.spike.model import Workload

MAX_CLIENT_CPU = 0.8
"""Share of one core. Above it the mean wait of an event for the client exceeds two service times: rho / (2 (1 - rho)) of an M/D/1
queue (Pollaczek 1930, Khinchine 1932), and grows without bound."""

LATE_NOTE_S, LATE_VOID_S = 0.010, 0.100
"""p99 of the loop's lag and of the schedule slip. 10 ms is about one decode step of the reference engine (7.6 to 10 ms a token), so
single gaps are no longer to be read; at 100 ms the time to first token of a short prompt is wrong by its own size."""

MAX_FOREIGN_SHARE = 0.05
"""Share of the engine's output tokens, or of its finished requests, that the client did not ask for. Six identical runs of one
configuration spread by 6.9 %: foreign work of that size cannot be told from a difference between arms."""

TOKEN_NOTE_SHARE = 0.005
"""Client and engine must count the same tokens; half a percent leaves room for the last step of an aborted request."""

TEMPLATE_TOKENS = 32
"""Tokens in front of the salt that every request shares (chat template, default system prompt), rounded up to two blocks of 16."""

WARM_NOTE_SHARE, WARM_VOID_SHARE = 0.10, 0.50
"""Prefix hits beyond the template, as a share of the prompt tokens beyond the template. A warm cache raised throughput by 86 % in
vllm#52884; when half of the prompts came from the cache, the time to first token says nothing about prefill."""

TTFT_SLACK_S, TTFT_SLACK_SHARE = 0.050, 0.10
"""How much later than the engine the client may see first tokens on average: HTTP, tokenizing and the way. vLLM counts from the
arrival in its own process; 50 ms is about what tokenizing 30,000 tokens takes there. Own choice."""

TTFT_EARLY_S = 0.002
"""The client cannot see a token before the engine makes it; 2 ms leave room for rounding in the engine's sums."""

COLLAPSED_SHARE = 0.5
"""A minute whose drafts brought less than this share of what the best earlier minute's brought, counts as a collapse. In one
incident acceptance fell to 0 after 14,500 generated tokens and stayed there until a restart; 0.79 became 0.48 under mere load."""

SOME_ACCEPTANCE = 0.1
"""Accepted tokens a draft below which a minute says nothing about a collapse. Own choice."""

FEW_PER_USER = 3
"""Requests for each user below which the steady window rests on the first answers alone. Own choice."""


@dataclass(frozen=True)
class Evidence:
    """What the audit looks at. ``counters``: differences over the measured part, None when there are none.

    ``timeline``: what the engine said meanwhile. ``survived``: whether a short request was answered afterwards, None: not asked.
    ``ended``: code and reason of an early end, ("", "") without one. ``continuous``: whether the server counted along.
    """

    workload: Workload
    records: Sequence[RequestRecord]
    counters: dict[str, float] | None
    counters_missing: str
    restarted: str
    at_rest: bool
    client: ClientStats
    ended: tuple[str, str]
    continuous: bool
    steady: bool
    timeline: Timeline = field(default_factory=Timeline)
    clock_trouble: str = ""
    survived: bool | None = None


def audit(evidence: Evidence) -> list[Caveat]:
    """All caveats of one workload."""
    out: list[Caveat] = []
    code, reason = evidence.ended
    if code:
        sent = len(evidence.records)
        planned = f" of {evidence.workload.requests}" if evidence.workload.requests else ""
        out.append(Caveat(code, "void", f"{reason}; {sent}{planned} requests had been sent"))
    if evidence.restarted:
        out.append(Caveat("engine-restarted", "void", evidence.restarted))
    out += _outcomes(evidence)
    out += _client(evidence)
    out += _over_time(evidence)
    if evidence.counters is not None:
        out += _foreign(evidence, evidence.counters)
        out += _prefix(evidence, evidence.counters)
        out += _first_tokens(evidence, evidence.counters)
        if not evidence.at_rest:
            out.append(Caveat("engine-not-at-rest", "note", "the engine was not idle when its counters were read"))
    elif not evidence.restarted:
        out.append(Caveat("no-counters", "note", evidence.counters_missing or "the engine gave no counters"))
    return out


def _outcomes(evidence: Evidence) -> list[Caveat]:
    records, out = evidence.records, []
    good = [record for record in records if record.outcome == "ok"]
    if records and not good:
        kinds = ", ".join(sorted({record.outcome for record in records}))
        out.append(Caveat("all-failed", "void", f"all {len(records)} requests failed ({kinds}): {records[0].detail[:200]}"))
    elif len(good) < len(records):
        failed = [record for record in records if record.outcome != "ok"]
        out.append(
            Caveat("failures", "note", f"{len(failed)} of {len(records)} requests failed, the first: {failed[0].detail[:200]}")
        )
    if not records and not evidence.ended[0]:
        out.append(Caveat("no-requests", "void", "no request was sent"))
    if evidence.survived is False:
        out.append(Caveat("not-survived", "void", "the server did not answer a short request afterwards"))
    if good and len(good) < FEW_PER_USER * evidence.workload.users:
        out.append(Caveat("few-requests", "note", f"{len(good)} answers from {evidence.workload.users} users"))
    if good and not evidence.steady and not evidence.workload.open_loop:
        out.append(Caveat("never-all-busy", "note", "there was no time in which all users had an open request"))
    estimated = sum(1 for record in good if record.tokens_estimated)
    if estimated:
        text = f"{estimated} answers came without usage: their tokens are estimated as the number of events"
        out.append(Caveat("tokens-estimated", "note", text))
    elif good and not evidence.continuous:
        out.append(Caveat("no-continuous-usage", "note", "the server does not say how many tokens each event holds"))
    return out


def _client(evidence: Evidence) -> list[Caveat]:
    client, out = evidence.client, []
    share = client.cpu_s / client.wall_s if client.wall_s > 0 else 0.0
    if share > MAX_CLIENT_CPU * client.processes:
        out.append(Caveat("client-bound", "void", f"the client used {share:.0%} of {client.processes} core(s)"))
    slips = [record.sent - record.scheduled for record in evidence.records if record.sent is not None]
    for code, name, late in (
        ("loop-lag", "the client's event loop ran late", client.loop_lag_p99),
        ("client-late", "requests were sent late", quantile(slips, 0.99)),
    ):
        if late is not None and late > LATE_NOTE_S:
            effect = "void" if late > LATE_VOID_S and code == "loop-lag" else "note"
            out.append(Caveat(code, effect, f"{name}: p99 {late * 1000:.0f} ms"))  # type: ignore[arg-type]
    return out


def _over_time(evidence: Evidence) -> list[Caveat]:
    """What only shows over time: clocks, requests of others that were open, a collapse of acceptance."""
    out: list[Caveat] = []
    if evidence.clock_trouble:
        effect = "void" if "suspended" in evidence.clock_trouble else "note"
        out.append(Caveat("clock-trouble", effect, evidence.clock_trouble))  # type: ignore[arg-type]
    if not evidence.workload.open_loop:
        most = max(((p.running or 0) + (p.waiting or 0) for p in evidence.timeline.points), default=0)
        if most > evidence.workload.users:
            text = f"the engine held {most:.0f} requests at a time, of which at most {evidence.workload.users} were ours"
            out.append(Caveat("foreign-requests", "note", text))
    best = 0.0
    for number, minute in enumerate(evidence.timeline.minutes):
        if minute.acceptance_length is None:
            continue
        gain = minute.acceptance_length - 1
        if best > SOME_ACCEPTANCE and gain < COLLAPSED_SHARE * best:
            text = f"drafts brought {gain:.2f} tokens in minute {number + 1}, after {best:.2f} in an earlier one"
            out.append(Caveat("acceptance-collapsed", "note", text))
            break
        best = max(best, gain)
    return out


def first_token_at(record: RequestRecord) -> float | None:
    """When the first event with text arrived, seconds since t0; None when none did."""
    at = 0
    for gap, _, kind in struct.iter_unpack("<IHB", base64.b64decode(record.events)):
        at += gap
        if kind:
            return float(at) / 1e6
    return None


def _first_tokens(evidence: Evidence, counters: dict[str, float]) -> list[Caveat]:
    """Client and engine on the mean time to first token, where both saw the same requests."""
    seen = [(record, first_token_at(record)) for record in evidence.records if record.outcome == "ok" and record.sent is not None]
    times = [first - record.sent for record, first in seen if first is not None and record.sent is not None]
    count, total = counters.get(f"{TTFT}_count", 0.0), counters.get(f"{TTFT}_sum")
    if total is None or not times or len(times) != len(evidence.records) or count != len(times):
        return []
    client, engine = sum(times) / len(times), total / count
    if -TTFT_EARLY_S <= client - engine <= TTFT_SLACK_S + TTFT_SLACK_SHARE * engine:
        return []
    text = f"mean time to first token: {client * 1000:.0f} ms at the client, {engine * 1000:.0f} ms by the engine"
    return [Caveat("ttft-disagreement", "note", text)]


def foreign_work(evidence: Evidence, counters: dict[str, float]) -> tuple[float, float]:
    """(tokens, requests) that the engine finished and the client did not ask for.

    A request that failed may have made up to ``max_tokens`` tokens that the client never saw; they are not called foreign.
    """
    tokens = 0.0
    for record in evidence.records:
        seen = record.completion_tokens or 0
        whole = record.outcome == "ok" and not record.tokens_estimated
        tokens += seen if whole else max(seen, evidence.workload.max_tokens)
    sent = sum(1 for record in evidence.records if record.sent is not None)
    return max(0.0, counters.get(GENERATED, 0.0) - tokens), max(0.0, counters.get(SUCCESS, 0.0) - sent)


def _foreign(evidence: Evidence, counters: dict[str, float]) -> list[Caveat]:
    tokens, requests = foreign_work(evidence, counters)
    made, finished = counters.get(GENERATED, 0.0), counters.get(SUCCESS, 0.0)
    token_share = tokens / made if made else 0.0
    request_share = requests / finished if finished else 0.0
    text = f"the engine made {tokens:.0f} of {made:.0f} tokens and finished {requests:.0f} of {finished:.0f} requests for others"
    if token_share > MAX_FOREIGN_SHARE or (request_share > MAX_FOREIGN_SHARE and requests > 1):
        return [Caveat("foreign-traffic", "void", text)]
    if requests > 0:
        return [Caveat("foreign-traffic", "note", text)]
    return _agreement(evidence, made)


def _agreement(evidence: Evidence, made: float) -> list[Caveat]:
    if any(record.outcome != "ok" or record.tokens_estimated for record in evidence.records):
        return []
    counted = sum(record.completion_tokens or 0 for record in evidence.records)
    apart = abs(made - counted) / max(made, counted, 1.0)
    if apart <= TOKEN_NOTE_SHARE:
        return []
    text = f"the client counted {counted} output tokens, the engine {made:.0f}"
    return [Caveat("token-disagreement", "void" if apart > MAX_FOREIGN_SHARE else "note", text)]


def _prefix(evidence: Evidence, counters: dict[str, float]) -> list[Caveat]:
    hits, queries = counters.get(PREFIX_HITS, 0.0), counters.get(PREFIX_QUERIES, 0.0)
    template = TEMPLATE_TOKENS * len(evidence.records)
    surplus, own = hits - template, max(queries - template, 1.0)
    if queries <= 0 or surplus <= WARM_NOTE_SHARE * own:
        return []
    effect = "void" if surplus > WARM_VOID_SHARE * own else "note"
    text = f"{hits:.0f} of {queries:.0f} prompt tokens came from the prefix cache although every prompt was salted"
    return [Caveat("prefix-cache-warm", effect, text)]  # type: ignore[arg-type]
