"""What ``audition bench`` does: choose workloads, find the model, measure one after the other, and show the figures.

What must not live here: measuring (see ``audition.load``) and the formulas of metrics (see ``audition.judge``).
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
from pydantic import ValidationError

from audition.errors import EXIT_INCONCLUSIVE, EXIT_REFUSED, AuditionError, BadInput
from audition.judge.load import LegData, RunData, WorkloadData
from audition.judge.metrics import Measure, Value, acceptance_per_position, measure_run
from audition.judge.records import BootRecord, LegRecord, RequestRecord, RunRecord, WorkloadRecord
from audition.load.client import fetch
from audition.load.programme import PROGRAMME, REFERENCE, closed_loop, greedy
from audition.load.workload import Progress, run_workload
from audition.observe.gpu import energy_per_1000_tokens
from audition.observe.host import HostSampler, HostSummary
from audition.observe.prometheus import GENERATED
from audition.run.interrupts import Interrupts
from audition.spike.metrics import METRICS
from audition.spike.model import Spike, Workload
from audition.spike.problems import nearest
from audition.units import NoData, parse_duration

_CLASSES = ("prose", "code", "dialogue", "reasoning", "tools", "mixed")
_SHOWN = (
    ("ttft", ("p50", "p95")), ("time_to_first_answer_token", ("p50",)), ("tpot", ("p50", "p95")), ("decode_tok_s", ("p50",)),
    ("inter_chunk_latency", ("p50", "p99")), ("e2e_latency", ("p50",)), ("tokens_per_event", ("mean",)),
    ("schedule_slip", ("p99",)),
    ("output_tok_s", ("",)), ("output_tok_s_whole", ("",)), ("requests_per_s", ("",)), ("failure_share", ("",)),
    ("acceptance_rate", ("",)), ("acceptance_length", ("",)), ("prefix_hit_rate", ("",)),
)  # fmt: skip
_MODELS_LIMIT_S = 10.0


class NothingMeasured(AuditionError):
    """There is no figure to show: no server, or not one request succeeded."""

    exit_code = EXIT_REFUSED
    kind = "nothing was measured"


# -- choosing -----------------------------------------------------------------------------------------------------------


def workloads_of(users: str | None, names: Sequence[str], shape: Mapping[str, Any], sampling: str) -> list[Workload]:
    """The workloads that the options ask for. Raises BadInput."""
    given = {key: value for key, value in shape.items() if value is not None and value is not False}
    if shape.get("thinking") is False:
        given["thinking"] = False
    chosen = [_named(name) for name in _expanded(names)]
    open_loop = "rate" in given or "trace" in given
    if open_loop and users is not None:
        raise BadInput("--users belongs to a closed loop", next_step="leave it out beside --rate or --trace")
    if users is not None or (not chosen and not open_loop):
        chosen += [closed_loop(number, 512) for number in _numbers(users or "1,5,16")]
    if open_loop:
        chosen.append(Workload(name="open-loop", requests=20, max_tokens=512))
    chosen = [_shaped(workload, given) for workload in chosen]
    if sampling == "greedy":
        chosen = [greedy(workload) for workload in chosen]
    elif sampling == "both":
        chosen = [each for workload in chosen for each in (workload, greedy(workload))]
    if len({workload.name for workload in chosen}) < len(chosen):
        raise BadInput("a workload was given twice", next_step="name each one once")
    return chosen


def _expanded(names: Sequence[str]) -> list[str]:
    return [one for name in names for one in (REFERENCE if name == "reference" else (name,))]


def _named(name: str) -> Workload:
    if name not in PROGRAMME:
        near = nearest(name, [*PROGRAMME, "reference"])
        raise BadInput(f"there is no workload `{name}`", seen=near, next_step=f"choose from reference, {', '.join(PROGRAMME)}")
    return PROGRAMME[name]


def _numbers(text: str) -> list[int]:
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = [0]
    if not all(1 <= number <= 4096 for number in numbers):
        raise BadInput(f"--users {text}: expected numbers from 1 to 4096", next_step="write them with commas, e.g. --users 1,5,16")
    return numbers


def _shaped(workload: Workload, given: Mapping[str, Any]) -> Workload:
    """The workload with what the options change in it."""
    data = workload.model_dump(exclude_unset=True)
    for key in ("max_tokens", "thinking", "ignore_eos", "processes", "rate", "arrivals", "burstiness", "trace", "prompt_tokens"):
        if key in given:
            data[key] = given[key]
    if "prompt_tokens" in given:
        data["prompts"] = "long"
    elif "prompts" in given:
        data.pop("prompts", None)
        data.pop("prompt_tokens", None)
        data["prompts" if given["prompts"] in _CLASSES else "prompts_file"] = given["prompts"]
    if "requests" in given or "duration" in given or "trace" in given:
        data.pop("requests", None)
        data.pop("duration", None)
    try:
        if "requests" in given:
            data["requests"] = given["requests"]
        if "duration" in given:
            data["duration"] = parse_duration(given["duration"])
        return Workload.model_validate(data)
    except ValidationError as error:
        said = "; ".join(problem["msg"].removeprefix("Value error, ") for problem in error.errors())
        raise BadInput(f"the options do not fit together: {said}", next_step="audition bench --help") from error
    except ValueError as error:
        raise BadInput(f"--duration: {error}", next_step="write e.g. --duration 2m") from error


# -- the server ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Server:
    """Where the server answers."""

    url: str
    model: str
    api_key: str | None = None


def base_url(text: str) -> str:
    """The URL without a path; ``/v1`` at its end may be given. Raises BadInput for anything that is no http or https URL."""
    parts = urlsplit(text)
    try:
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:  # a port that is none
        good = False
    if not good or parts.path.rstrip("/") not in ("", "/v1") or parts.query or any(c.isspace() for c in text):
        raise BadInput(f"{text!r} is no base URL of a server", next_step="give e.g. http://127.0.0.1:8000")
    return f"{parts.scheme}://{parts.netloc}"


@dataclass(frozen=True)
class Bench:
    """A server that can be measured."""

    server: Server

    @staticmethod
    def at(url: str, model: str | None, api_key_env: str | None) -> Bench:
        """Find the server. Raises BadInput for a bad URL or a variable that is not set, NothingMeasured without a server."""
        base = base_url(url)
        key = None
        if api_key_env is not None:
            key = os.environ.get(api_key_env)
            if not key:
                raise BadInput(f"the variable {api_key_env} is not set", next_step=f"export {api_key_env}=...")
        return Bench(Server(base, model or _first_model(Server(base, "", key)), key))

    def run(self, workloads: Sequence[Workload], out: Path | None, *, quiet: bool) -> Report:
        """Measure one workload after the other."""
        stop = Interrupts(lambda name, before: click.echo(f"{name}: ending with what there is", err=True))
        stop.install()
        try:
            with ExitStack() as stack:
                folder = out or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="audition-bench-")))
                folder.mkdir(parents=True, exist_ok=True)
                host = stack.enter_context(HostSampler())
                rows = []
                for workload in workloads:
                    if stop.requested:
                        break
                    rows.append(self._one(workload, folder, stop, quiet))
                summary = host.summary()
                energy = _energy(summary, rows)
                caveats = [caveat.text for caveat in host.caveats()]
        finally:
            stop.uninstall()
        facts = summary.as_facts() if summary is not None else {}
        return Report(self.server, rows, {**facts, "energy_j_per_1000_tokens": energy}, caveats)

    def _one(self, workload: Workload, folder: Path, stop: Interrupts, quiet: bool) -> Row:
        if not quiet:
            click.echo(f"{workload.name} ...", err=True)

        def say(now: Progress) -> None:
            planned = f" of {now.planned}" if now.planned else ""
            if not quiet and now.phase == "measuring" and os.isatty(2):
                click.echo(f"\r  {now.done}{planned} requests, {now.failed} failed, {now.elapsed_s:.0f} s ", nl=False, err=True)

        salt = f"bench-{time.time_ns()}"
        work = run_workload(
            self.server, workload, leg_salt=salt, seed=1, out_dir=folder, alive=lambda: True,
            give_up=lambda: stop.requested, on_progress=say,
        )  # fmt: skip
        import uvloop  # noqa: PLC0415 - lazily: only what measures needs it

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            record = runner.run(work)
        lines = _json_lines(folder / record.requests_file)
        told = _json_lines(folder / f"{record.workload}.telemetry.jsonl")
        minutes = [row for row in map(json.loads, told) if "minute" in row]
        return row_of(workload, record, [RequestRecord.from_line(line) for line in lines], minutes)


def _energy(summary: HostSummary | None, rows: Sequence[Row]) -> float | None:
    """Joules for 1,000 generated tokens of all GPUs of this machine over all workloads, boots and pauses between them included."""
    tokens = sum(row.record.counters.get(GENERATED, 0.0) for row in rows if row.record.counters is not None)
    return energy_per_1000_tokens(summary.gpus, tokens) if summary is not None else None


def _first_model(server: Server) -> str:
    exchange = asyncio.run(fetch(server, "GET", "/v1/models", deadline_s=_MODELS_LIMIT_S))
    if exchange.outcome != "ok":
        status = f"HTTP {exchange.status}" if exchange.status else exchange.detail
        hint = "give --api-key-env NAME" if exchange.status in (401, 403) else "start the server, or check the URL"
        raise NothingMeasured(f"no model list at {server.url}/v1/models: {status}", next_step=hint)
    try:
        return str(json.loads(exchange.body)["data"][0]["id"])
    except (ValueError, KeyError, IndexError, TypeError):
        raise NothingMeasured(
            f"{server.url}/v1/models lists no model",
            seen=exchange.body[:200].decode("utf-8", "replace"),
            next_step="give --model NAME",
        ) from None


# -- figures ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """One workload with its figures: (metric, statistic) -> value, or why there is none."""

    workload: Workload
    record: WorkloadRecord
    figures: dict[tuple[str, str], Value]
    per_position: list[float] | NoData
    minutes: list[dict[str, Any]] = field(default_factory=list)

    @property
    def all_failed(self) -> bool:
        """Whether not one request succeeded."""
        share = self.figures["failure_share", ""]
        return isinstance(share, NoData) or share.value >= 1.0

    @property
    def voids(self) -> list[str]:
        """Why the figures are not to be trusted."""
        return [caveat.text for caveat in self.record.caveats if caveat.effect == "void"]

    def as_data(self) -> dict[str, Any]:
        """The row as JSON values; an absent figure is an object with its reason."""
        figures: dict[str, Any] = {}
        for (name, stat), value in self.figures.items():
            shown = {"missing": value.reason} if isinstance(value, NoData) else {"value": value.value, "samples": value.samples}
            key = f"{name}.{stat}" if stat else name
            figures[key] = {**shown, "unit": METRICS[name].unit}
        return {
            "workload": self.workload.model_dump(exclude_none=True),
            "trusted": not self.voids,
            "figures": figures,
            "acceptance_per_position": None if isinstance(self.per_position, NoData) else self.per_position,
            "minutes": self.minutes,
            "record": asdict(self.record),
        }


def row_of(workload: Workload, record: WorkloadRecord, requests: list[RequestRecord], minutes: list[dict[str, Any]]) -> Row:
    """The figures of one measured workload, by the judge's own formulas. Caveats do not hide them here; they are shown beside."""
    sound = replace(record, caveats=[], complete=True)
    boot = BootRecord("already-running", "", None, clean=True)
    leg = LegRecord(1, "server", "candidate", "complete", "", record.started_at, record.started_at, boot, [workload.name])
    data = LegData(1, "server", leg, (), workloads={workload.name: WorkloadData(workload.name, sound, tuple(requests))})
    run = RunRecord("bench", "bench", "-", False, None, "", record.started_at, ["server"])
    unlimited = workload.model_copy(update={"requests": None if workload.requests else workload.requests})
    values = measure_run(RunData(run, (data,), NoData("nothing was swapped")), _as_spike(unlimited))[0].values
    figures = {(metric, stat): value for (name, metric, stat), value in values.items() if name == workload.name}
    return Row(workload, record, figures, acceptance_per_position(record), minutes)


def _as_spike(workload: Workload) -> Spike:
    """The judge reads workloads out of a spike; its arms play no part."""
    arms = [
        {"name": name, "role": role, "engine": {"kind": "simulated"}, "endpoint": {"url": "http://127.0.0.1:1", "model": "-"}}
        for name, role in (("other", "production"), ("server", "candidate"))
    ]
    gates = [{"metric": "failure_share", "workload": workload.name, "at_most": 0}]
    spike = {"audition": 1, "name": "bench", "question": "-", "arms": arms, "legs": ["server"], "gates": gates}
    whole = Spike.model_validate({**spike, "workloads": [{"name": workload.name, "requests": 1}]})
    return whole.model_copy(update={"workloads": [workload]})


@dataclass(frozen=True)
class Report:
    """All rows of a bench. ``host``: figures of this machine meanwhile."""

    server: Server
    rows: list[Row]
    host: dict[str, Any]
    notes: list[str]

    @property
    def exit_code(self) -> int:
        """0; 4 when a workload has not one successful request; 5 when none has, so that nothing was measured."""
        if all(row.all_failed for row in self.rows):
            return EXIT_REFUSED
        return EXIT_INCONCLUSIVE if any(row.all_failed for row in self.rows) else 0

    def as_json(self) -> str:
        """The report as indented JSON with a newline."""
        body = {
            "url": self.server.url, "model": self.server.model, "exit_code": self.exit_code,
            "workloads": [row.as_data() for row in self.rows], "host": self.host, "notes": self.notes,
        }  # fmt: skip
        return json.dumps(body, ensure_ascii=False, indent=1) + "\n"

    def as_text(self) -> str:
        """The report for people."""
        lines = [f"{self.server.model} at {self.server.url}"]
        for row in self.rows:
            lines += ["", *_row_text(row)]
        lines += [f"note: {text}" for text in self.notes]
        if energy := self.host.get("energy_j_per_1000_tokens"):
            lines.append(f"energy: {energy:.0f} J for 1,000 tokens, all GPUs of this machine")
        elif missing := self.host.get("gpus_missing"):
            lines.append(f"no GPU figures: {missing}")
        if not self.rows:
            lines.append("nothing was measured")
        return "\n".join(lines) + "\n"


def _row_text(row: Row) -> list[str]:
    workload = row.workload
    kind = f"{workload.users} user(s)"
    if workload.open_loop:
        kind = "after a trace" if workload.rate is None else f"at {workload.rate:g} a second"
    lines = [f"{workload.name}: {kind}, {row.record.requests_recorded} requests, {row.record.wall_s:.1f} s"]
    if row.all_failed:
        lines.append(f"  ERROR: not one request succeeded: {'; '.join(row.voids) or 'no request was sent'}")
        return lines
    lines += [f"  NOT TO BE TRUSTED: {text}" for text in row.voids]
    if workload.ignore_eos:
        lines.append("  note: natural ends were ignored (--ignore-eos), acceptance says nothing")
    absent: dict[str, list[str]] = {}
    for name, stats in _SHOWN:
        values = [(stat, row.figures[name, stat]) for stat in stats]
        shown = [f"{stat} {_figure(v.value, METRICS[name].unit)}".strip() for stat, v in values if isinstance(v, Measure)]
        if not shown:
            reason = next(v.reason for _, v in values if isinstance(v, NoData))
            absent.setdefault(reason.partition(": ")[2] or reason, []).append(name)
        else:
            lines.append(f"  {name:28} {', '.join(shown)}")
    if not isinstance(row.per_position, NoData):
        lines.append(f"  {'acceptance by position':28} {', '.join(f'{rate:.2f}' for rate in row.per_position)}")
    if len(row.minutes) > 1:
        told = [m["acceptance_length"] for m in row.minutes]
        lines.append(f"  {'acceptance length by minute':28} {', '.join('-' if a is None else f'{a:.2f}' for a in told)}")
    lines += [f"  no {', '.join(dict.fromkeys(names))}: {reason}" for reason, names in absent.items()]
    lines += [f"  note: {caveat.text}" for caveat in row.record.caveats if caveat.effect == "note"]
    return lines


def _figure(value: float, unit: str) -> str:
    if unit in ("s", "s/token"):
        return f"{value * 1000:.1f} ms{unit[1:]}" if value < 10 else f"{value:.1f} {unit}"
    return f"{value:.1%}" if unit == "share" else f"{value:.1f} {unit}" if value < 100 else f"{value:.0f} {unit}"


def _json_lines(path: Path) -> list[str]:
    """The lines of a file of JSON lines. Only a line feed ends one: strings may hold what Unicode calls a line separator."""
    return [line for line in path.read_text(encoding="utf-8").split("\n") if line]
