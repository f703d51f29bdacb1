"""The records that join measuring and judging: what a run leaves on disk, as frozen dataclasses with their encoding.

Times inside a workload are seconds on the monotonic clock of the measuring process, relative to the workload's start
(``t0``). Wall-clock instants are Unix seconds. A value that was not measured is ``None`` here and becomes ``NoData`` with a
reason in ``audition.judge``. No statistics here, no file handling beyond encode and decode.

Layout of a run folder (all paths relative to it)::

    run.json                                        RunRecord
    spike.yaml                                      the spike file as given
    profiles/<arm>.json                             what each arm is started from, without secrets
    legs/01-<arm>/leg.json                          LegRecord
    legs/01-<arm>/engine.log                        what the engine printed during the leg
    legs/01-<arm>/probes.json                       list of ProbeRecord
    legs/01-<arm>/<workload>.json                   WorkloadRecord
    legs/01-<arm>/<workload>.requests.jsonl         one RequestRecord a line
    restore.json                                    how production came back
    result.json decision.md summary.txt ...         derived from all of the above by ``audition judge``
    MANIFEST                                        SHA-256 of every file; see ``report.manifest``
"""

from __future__ import annotations

import base64
import json
import struct
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, NamedTuple

SCHEMA = 1
ROW_BYTES = 7
"""Bytes of one packed event; see ``pack_events``."""

Outcome = Literal["ok", "http-error", "error-in-stream", "dropped", "stalled", "deadline", "refused", "protocol", "cancelled"]
EVENT_CONTENT, EVENT_REASONING, EVENT_TOOL, EVENT_EMPTY = 1, 2, 4, 0


@dataclass(frozen=True)
class StreamEvent:
    """One server-sent event with a delta. ``at`` in seconds since the workload's t0; ``tokens`` None when the server did not say.

    ``kind`` is a bit set of EVENT_CONTENT, EVENT_REASONING, EVENT_TOOL; EVENT_EMPTY for the role chunk and empty deltas.
    """

    at: float
    tokens: int | None
    kind: int


def pack_events(events: list[StreamEvent]) -> str:
    """Events as base64 of rows of 7 bytes: microseconds since the last event (u32), tokens (u16, 65535 = unknown), kind (u8)."""
    rows, previous = bytearray(), 0
    for event in events:
        at = round(event.at * 1e6)
        gap = min(max(at - previous, 0), 0xFFFFFFFF)
        previous += gap
        rows += struct.pack("<IHB", gap, 65535 if event.tokens is None else min(event.tokens, 65534), event.kind)
    return base64.b64encode(bytes(rows)).decode("ascii")


def unpack_events(text: str) -> list[StreamEvent]:
    """The inverse of ``pack_events``, to the microsecond. Raises ValueError or struct.error on anything else."""
    out, at = [], 0
    for gap, tokens, kind in struct.iter_unpack("<IHB", base64.b64decode(text, validate=True)):
        at += gap
        out.append(StreamEvent(at / 1e6, None if tokens == 65535 else tokens, kind))
    return out


class StreamTimes(NamedTuple):
    """What the events of one request come to, in this order in its JSON form. Times in seconds since the workload's t0.

    ``first``: first event with text; ``answer``: first with answer text or a tool call; ``last``: last with text or tokens, None
    where the request never got there. ``events``: how many from ``first`` on carry text or tokens. ``first_tokens``: tokens of the
    first of them; ``event_tokens``: tokens of all of them; None when the server did not say.
    """

    first: float | None
    answer: float | None
    last: float | None
    events: int
    first_tokens: int | None
    event_tokens: int | None


def filled_events(events: list[StreamEvent]) -> list[StreamEvent]:
    """Events from the first one with text on that carry text or tokens: at a natural stop the last event is empty, yet holds the
    end-of-text token, whose step took its time like any other."""
    first = next((place for place, event in enumerate(events) if event.kind), len(events))
    return [event for event in events[first:] if event.kind or event.tokens]


def stream_times(events: list[StreamEvent]) -> StreamTimes:
    """The times of one request's events; see ``StreamTimes``."""
    filled = filled_events(events)
    if not filled:
        return StreamTimes(None, None, None, 0, None, None)
    answer = next((e.at for e in filled if e.kind & (EVENT_CONTENT | EVENT_TOOL)), None)
    counts = [e.tokens for e in filled if e.tokens is not None]
    whole = sum(counts) if len(counts) == len(filled) else None
    return StreamTimes(filled[0].at, answer, filled[-1].at, len(filled), filled[0].tokens, whole)


@dataclass(frozen=True)
class RequestRecord:
    """One request. Times in seconds since the workload's t0. ``events`` packed by ``pack_events``.

    ``completion_tokens`` and ``prompt_tokens`` come from the server's ``usage``; ``tokens_estimated`` says that there was none and
    ``completion_tokens`` counts events instead. ``stream`` is made from ``events`` when the line is written, so that judging needs
    not unpack every event; records without it are read all the same.
    """

    index: int
    user: int
    prompt_id: str
    scheduled: float
    sent: float | None
    headers: float | None
    end: float
    outcome: Outcome
    detail: str = ""
    http_status: int | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    tokens_estimated: bool = False
    finish_reason: str | None = None
    events: str = ""
    stream: StreamTimes | None = field(default=None, compare=False)

    def to_line(self) -> str:
        """One JSON line, without the newline."""
        stream = self.stream if self.stream is not None else stream_times(unpack_events(self.events))
        return json.dumps({**self.__dict__, "stream": stream}, separators=(",", ":"), ensure_ascii=False)

    @staticmethod
    def from_line(line: str) -> RequestRecord:
        """Inverse of ``to_line``. Raises ValueError, TypeError or KeyError on a line that is no request record."""
        return request_from_dict(json.loads(line))


def request_from_dict(data: dict[str, Any]) -> RequestRecord:
    """RequestRecord from its JSON form. Raises TypeError on anything else."""
    stream = data.get("stream")
    if stream is not None:
        data["stream"] = StreamTimes(*stream)
    if data.keys() != _REQUEST_FIELDS:
        return RequestRecord(**data)
    record = object.__new__(RequestRecord)  # the constructor of a frozen class takes five times as long, and there may be 100,000
    object.__setattr__(record, "__dict__", data)
    return record


_REQUEST_FIELDS = {f.name for f in fields(RequestRecord)}


@dataclass(frozen=True)
class Caveat:
    """Something that lessens trust. ``effect`` void: the data never decide; note: reported beside the result."""

    code: str
    effect: Literal["void", "note"]
    text: str


@dataclass(frozen=True)
class ClientStats:
    """How the load client itself fared. CPU seconds of the client process(es); loop lag in seconds."""

    cpu_s: float
    wall_s: float
    loop_lag_p99: float | None = None
    processes: int = 1


@dataclass(frozen=True)
class WorkloadRecord:
    """One workload of one leg. ``counters``: differences of the engine's counters over the measured part (name -> value; by place
    ``spec_decode_num_accepted_tokens_per_pos[0]``), without the ``vllm:`` prefix and ``_total`` suffix; ``gauges_after`` likewise.
    ``requests_recorded``: lines written to ``requests_file``, so that a file cut at a line end is noticed.
    ``steady_window``: begin and end of the time in which all users were busy, as ``audition.load.arrivals`` defines it, or None."""

    workload: str
    users: int
    started_at: float
    wall_s: float
    complete: bool
    requests_file: str
    counters: dict[str, float] | None = None
    counters_missing: str = ""
    gauges_after: dict[str, float] | None = None
    client: ClientStats | None = None
    caveats: list[Caveat] = field(default_factory=list)
    ignore_eos: bool = False
    requests_recorded: int | None = None
    steady_window: list[float] | None = None


@dataclass(frozen=True)
class ProbeRecord:
    """One pass/fail check. ``passed`` None: could not be judged, ``detail`` says why. ``evidence`` is what the server answered."""

    probe: str
    passed: bool | None
    detail: str
    evidence: str = ""


@dataclass(frozen=True)
class BootRecord:
    """How the engine of a leg came to run. ``seconds`` from start to the first real completion, None when it already ran.
    ``origin``: whose fault a failed boot is; `environment` (port taken, GPU memory still held) says nothing about the arm."""

    source: Literal["booted", "already-running"]
    boot_id: str
    seconds: float | None
    clean: bool
    failure: str = ""
    signature: str | None = None
    excerpt: str = ""
    exit_code: int | None = None
    image_digest: str | None = None
    origin: Literal["candidate", "environment", "unknown"] = "unknown"


@dataclass(frozen=True)
class LegRecord:
    """One leg. ``outcome`` complete: every workload ran to its end. ``facts``: figures of the engine's log and API."""

    index: int
    arm: str
    role: str
    outcome: Literal["complete", "boot-failed", "engine-died", "cut", "failed"]
    detail: str
    started_at: float
    ended_at: float
    boot: BootRecord
    workloads: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    caveats: list[Caveat] = field(default_factory=list)


@dataclass(frozen=True)
class RunRecord:
    """One run of a spike. ``rehearsal`` marks every record derived from it. ``ended``: how the run itself ended."""

    run_id: str
    spike: str
    question: str
    rehearsal: bool
    fault: str | None
    audition_version: str
    started_at: float
    legs_planned: list[str]
    ended_at: float | None = None
    ended: Literal["complete", "early-end", "interrupted", "failed", "running"] = "running"
    end_reason: str = ""
    production_back: bool | None = None
    schema: int = SCHEMA


def to_json(record: Any) -> str:
    """Any of these dataclasses as indented JSON with a final newline. Half characters (lone surrogates), which no file can hold,
    become replacement characters."""
    return whole_characters(json.dumps(asdict(record), indent=1, ensure_ascii=False, sort_keys=False)) + "\n"


def whole_characters(text: str) -> str:
    """The text with a replacement character in place of each lone surrogate."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def leg_from_dict(data: dict[str, Any]) -> LegRecord:
    """LegRecord from its JSON form. Raises TypeError or KeyError on anything else."""
    return LegRecord(**{**data, "boot": BootRecord(**data["boot"]), "caveats": [Caveat(**c) for c in data["caveats"]]})


def workload_from_dict(data: dict[str, Any]) -> WorkloadRecord:
    """WorkloadRecord from its JSON form. Raises TypeError or KeyError on anything else."""
    client = ClientStats(**data["client"]) if data.get("client") else None
    return WorkloadRecord(**{**data, "client": client, "caveats": [Caveat(**c) for c in data["caveats"]]})
