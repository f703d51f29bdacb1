"""One leg: probes, workloads, engine log, host, as records on disk. Measuring itself is done by ``load`` and ``probes``."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from audition.engines.base import BootOutcome, Engine
from audition.errors import AuditionError, InternalError
from audition.faults.matcher import Diagnosis, diagnose
from audition.judge.records import BootRecord, Caveat, LegRecord, ProbeRecord, WorkloadRecord
from audition.load.workload import Progress, run_workload
from audition.observe.gpu import GpuProcess, energy_per_1000_tokens
from audition.observe.host import HostSampler, HostSummary, gpu_caveat
from audition.observe.logs import facts_for_leg, read_log
from audition.observe.prometheus import ACCEPTED, DRAFT_TOKENS, DRAFTS, GENERATED
from audition.probes.greedy import reference_answers
from audition.probes.runner import run_probes
from audition.report.mask import mask
from audition.run.events import LegProgressed, WorkloadMeasured
from audition.run.folder import RunFolder
from audition.run.rehearsal import SHORTENED
from audition.run.reporter import Reporter
from audition.spike.model import Arm, Leg, Spike, Workload
from audition.units import NoData
from audition.wayback.files import cut_lines, read_bounded, until
from audition.wayback.proctable import redacted
from audition.wayback.server import WaybackError

T = TypeVar("T")
LegOutcome = Literal["complete", "engine-died", "cut", "failed"]
DEAD = frozenset({"engine-died", "engine-hangs"})
_PROBE_DEADLINE_S = 180.0
KEPT = (2 * 2**20, 6 * 2**20)  # first and last bytes kept of a log: the boot stands at its beginning, a death at its end
SHORT = (2**18, 3 * 2**18)  # when the run is given up and production waits
LONGEST_LINE = 8192  # characters
_MARGIN = 4096  # read beyond the cut, so that a secret across it is seen whole and masked
_PIECE = 2**18


def in_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run one coroutine to its end in a uvloop of its own."""
    import uvloop  # noqa: PLC0415 - lazily: only runs that measure need it

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


@dataclass
class LegMeter:
    """Measures legs into a run folder. ``secrets``: values that must not reach a record. ``notes``: (code, text) of what was seen
    outside a leg and belongs into the record of the next one. ``digests``: arm -> digest of its image."""

    spike: Spike
    folder: RunFolder
    engines: Mapping[str, Engine]
    reporter: Reporter
    secrets: list[str]
    rehearsal: bool
    base: Path
    probe_deadline_s: float = _PROBE_DEADLINE_S
    greedy_reference: dict[str, str] | None = None
    notes: list[tuple[str, str]] = field(default_factory=list)
    digests: Mapping[str, str] = field(default_factory=dict)
    _progress: LegProgressed | None = None  # of the running workload

    def measure(self, number: int, leg: Leg, boot: BootRecord, give_up: Callable[[], bool]) -> LegRecord:
        """Probes, then every workload, until the end or until the engine dies or the run is cut. On disk when this returns."""
        arm, engine = self.spike.arm(leg.arm), self.engines[leg.arm]
        out = self.folder.leg_folder(number, leg.arm)
        started, done = time.time(), list[WorkloadRecord]()
        outcome: LegOutcome = "complete"
        detail = ""
        with HostSampler(gpus=None if self.rehearsal else self.spike.gpus) as host:
            probes = self._probes(arm, engine, give_up)
            self.folder.write_probes(number, leg.arm, probes)
            for workload in self.spike.leg_workloads(leg):
                if give_up():
                    outcome, detail = "cut", "the run was cut before all workloads were measured"
                    break
                record = in_loop(self._workload(number, engine, workload, out, give_up))
                done.append(record)
                self._say(number, arm, record)
                outcome, detail = self._judge(engine, record)
                if outcome != "complete":
                    break
        caveats = host.caveats(_own(engine)) + ([] if self.rehearsal else gpu_caveat(self.spike.gpus))
        caveats += [Caveat(code, "note", self._masked(text)) for code, text in self.notes]
        self.notes.clear()
        if self.rehearsal and number == 1:
            caveats.append(Caveat("rehearsal", "note", f"shortened for the rehearsal: {SHORTENED}"))
        facts = self._started_with(engine)
        if (summary := host.summary()) is not None:
            facts["host"] = summary.as_facts()
            if (energy := _energy(summary, done)) is not None:
                facts["energy_j_per_1000_tokens"] = energy
        diagnosis = self._log(number, leg.arm, engine, facts, give_up)
        if outcome == "engine-died" and diagnosis:
            detail = f"{detail}: {diagnosis[0].title}"
        boot = self._of_image(boot, leg.arm)
        return self._write(
            number, arm, outcome=outcome, detail=detail, started=started, boot=boot, done=done, facts=facts, caveats=caveats
        )

    def failed_boot(self, number: int, leg: Leg, boot: BootRecord) -> LegRecord:
        """The record of a leg whose engine did not start."""
        arm = self.spike.arm(leg.arm)
        facts = self._started_with(self.engines[leg.arm])
        self._log(number, leg.arm, self.engines[leg.arm], facts, lambda: False)
        now = time.time()
        boot = self._of_image(boot, leg.arm)
        record = LegRecord(number, arm.name, arm.role, "boot-failed", boot.failure, now, now, boot, [], facts, [])
        self.folder.write_leg(record)
        return record

    def boot_record(self, arm: str, outcome: BootOutcome) -> BootRecord:
        """What the log of a failed boot says, with the failure in words first.

        Raises InternalError when audition's own files failed: that says nothing about the server.
        """
        engine = self.engines[arm]
        blame_ourselves(engine, f"the boot of {arm} failed")
        found = diagnose(_lines(_log_of(engine), KEPT, lambda: False))
        cause = found[0] if found else None
        words = {
            "exited": "the server exited during its boot",
            "silent": "the boot printed nothing for too long and counts as hung",
            "overrun": "the boot took longer than its limit",
            "wrong-model": "the port answers, but with another model",
            "broken": "the server answers, but a completion does not work",
        }
        failure = words.get(outcome.kind, outcome.kind)
        if outcome.exit_code is not None:
            failure += f" (exit code {outcome.exit_code})"
        failure += f": {cause.title}" if cause else (f": {outcome.detail}" if outcome.detail else "")
        return BootRecord(
            "booted",
            engine.boot_id(),
            None,
            clean=False,
            failure=self._masked(failure),
            signature=cause.name if cause else None,
            excerpt=self._masked(cause.excerpt if cause and cause.excerpt else outcome.excerpt),
            exit_code=outcome.exit_code,
            origin=cause.origin if cause else "unknown",
        )

    def _started_with(self, engine: Engine) -> dict[str, Any]:
        """Arguments and image, for the record of a leg. What cannot be asked for is left out: the leg is over by now."""
        facts: dict[str, Any] = {}
        try:
            given = engine.invocation()
        except (AuditionError, WaybackError):
            return facts
        if given.argv:
            facts["arguments"] = [self._masked(word) for word in redacted(given.argv)]
        if given.image:
            facts["image"] = given.image
        return facts

    def _of_image(self, boot: BootRecord, arm: str) -> BootRecord:
        return boot if boot.image_digest is not None or arm not in self.digests else replace(boot, image_digest=self.digests[arm])

    # -- parts ----------------------------------------------------------------------------------------------------------

    def _masked(self, text: str) -> str:
        return mask(text, self.secrets)

    def _probes(self, arm: Arm, engine: Engine, give_up: Callable[[], bool]) -> list[ProbeRecord]:
        names = self.spike.probes
        if not names:
            return []
        reference = None if arm.role == "production" else self.greedy_reference
        records = in_loop(
            run_probes(engine.endpoint, names, reference=reference, deadline_s=self.probe_deadline_s, give_up=give_up)
        )
        if arm.role == "production" and self.greedy_reference is None:
            self.greedy_reference = reference_answers(records)
        for record in records:
            if record.passed is False:
                self.reporter.warn(f"{arm.name}: probe {record.probe} failed: {record.detail}")
        return [ProbeRecord(r.probe, r.passed, self._masked(r.detail), self._masked(r.evidence)) for r in records]

    def _workload(
        self, number: int, engine: Engine, workload: Workload, out: Path, give_up: Callable[[], bool]
    ) -> Coroutine[Any, Any, WorkloadRecord]:
        arm = self.spike.arm(engine.arm)
        self._progress = None

        def progress(now: Progress) -> None:
            told = progressed(number, arm, now)
            if now.phase == "measuring":
                self._progress = told
            self.reporter.tell(told)

        return run_workload(
            engine.endpoint,
            workload,
            leg_salt=f"{self.folder.path.name}-{number}",
            seed=1,
            out_dir=out,
            alive=engine.alive,
            give_up=give_up,
            on_progress=progress,
            base=self.base,
        )

    def _say(self, number: int, arm: Arm, record: WorkloadRecord) -> None:
        voids = [caveat.text for caveat in record.caveats if caveat.effect == "void"]
        self.reporter.tell(measured(number, arm, record, self._progress))
        for text in voids:
            self.reporter.warn(f"{arm.name}, {record.workload}: {text}")

    def _judge(self, engine: Engine, record: WorkloadRecord) -> tuple[LegOutcome, str]:
        codes = {caveat.code: caveat.text for caveat in record.caveats}
        dead = next((codes[code] for code in DEAD if code in codes), None)
        if dead is not None or not engine.alive():
            blame_ourselves(engine, f"the server of {engine.arm} died or hung in workload {record.workload}")
            return "engine-died", f"the server died or hung in workload {record.workload}" + (f" ({dead})" if dead else "")
        if not record.complete:
            return "cut", f"workload {record.workload} was cut short"
        return "complete", ""

    def _log(
        self, number: int, arm: str, engine: Engine, facts: dict[str, Any], give_up: Callable[[], bool]
    ) -> list[Diagnosis]:  # fmt: skip
        """Copy the engine's log, bounded and masked, take its figures into ``facts``, and return what it says went wrong.

        Production waits for this when the run is given up: then only a short piece is looked at. Raises InternalError.
        """
        path = _log_of(engine)
        target = self.folder.leg_folder(number, arm) / "engine.log"
        try:
            if not give_up():
                found = self._look(path, target, KEPT, facts, give_up)
                if not give_up():
                    return found
            return self._look(path, target, SHORT, facts, lambda: False)
        except OSError as cause:
            raise InternalError(f"the log of {arm} cannot be copied to {target}", seen=str(cause)) from cause

    def _look(
        self, path: Path, target: Path, kept: tuple[int, int], facts: dict[str, Any], stop: Callable[[], bool]
    ) -> list[Diagnosis]:  # fmt: skip
        facts.update(facts_for_leg(read_log(line[:LONGEST_LINE] for line in _lines(path, kept, stop))))
        spare = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        try:
            with spare.open("w", encoding="utf-8") as file:
                for text in self._masked_pieces(_lines(path, kept, stop)):
                    file.write(text)
                file.flush()
                os.fsync(file.fileno())
            spare.replace(target)
        finally:
            spare.unlink(missing_ok=True)
        return diagnose(line[:LONGEST_LINE] for line in _lines(path, kept, stop))

    def _masked_pieces(self, lines: Iterator[str]) -> Iterator[str]:
        """Masked text in pieces of whole lines; in one piece when a secret has several lines."""
        most = sum(KEPT) if any("\n" in secret for secret in self.secrets) else _PIECE
        waiting: list[str] = []
        size = 0
        for line in lines:
            waiting.append(line if len(line) <= LONGEST_LINE else self._masked(line)[:LONGEST_LINE])
            size += len(waiting[-1]) + 1
            if size >= most:
                yield self._masked("\n".join(waiting)) + "\n"
                waiting, size = [], 0
        if waiting:
            yield self._masked("\n".join(waiting)) + "\n"

    def _write(
        self, number: int, arm: Arm, *, outcome: LegOutcome, detail: str, started: float, boot: BootRecord,
        done: list[WorkloadRecord], facts: dict[str, Any], caveats: list[Caveat],
    ) -> LegRecord:  # fmt: skip
        record = LegRecord(
            number, arm.name, arm.role, outcome, self._masked(detail), started, time.time(), boot,
            [w.workload for w in done], facts, caveats,
        )  # fmt: skip
        self.folder.write_leg(record)
        return record


def _own(engine: Engine) -> Callable[[GpuProcess], bool] | None:
    """Which processes on a GPU are the server's; None when that cannot be told, as of one that has died meanwhile."""
    if not engine.alive() or engine.owns(os.getpid()) is None:
        return None
    return lambda process: engine.owns(process.pid) is True


def _energy(summary: HostSummary, done: Sequence[WorkloadRecord]) -> float | None:
    """Joules for 1,000 generated tokens of the workloads, of all GPUs over the whole leg: probes, warm-up and pauses are in it."""
    tokens = sum(record.counters.get(GENERATED, 0.0) for record in done if record.counters is not None)
    return energy_per_1000_tokens(summary.gpus, tokens)


def progressed(number: int, arm: Arm, now: Progress) -> LegProgressed:
    """The client's progress as an event, with the figures that follow from it."""
    rate: float | NoData = NoData("no time has passed")
    if isinstance(now.tokens, NoData):
        rate = now.tokens
    elif now.elapsed_s > 0:
        rate = now.tokens / now.elapsed_s
    return LegProgressed(
        number, arm.name, arm.role, now.workload, now.phase, now.done, now.planned, now.failed, now.elapsed_s,
        now.tokens, rate, now.ttft_p50_s, *_acceptance(now.counters, "the engine has told no drafts yet"),
    )  # fmt: skip


def measured(number: int, arm: Arm, record: WorkloadRecord, last: LegProgressed | None) -> WorkloadMeasured:
    """The end of a workload as an event: the client's last figures, and acceptance from the counters at rest."""
    unknown = NoData("the client told no figures while it ran")
    rate, ttft = (unknown, unknown) if last is None else (last.output_tok_s, last.ttft_p50_s)
    acceptance = _acceptance(record.counters or {}, record.counters_missing or "the engine drafted nothing")
    requests = NoData("an old record") if record.requests_recorded is None else record.requests_recorded
    return WorkloadMeasured(
        number, arm.name, arm.role, record.workload, record.complete, record.wall_s, requests, rate, ttft, *acceptance
    )


def _acceptance(counters: Mapping[str, float], missing: str) -> tuple[float | NoData, float | NoData]:
    """Accepted / draft tokens, and 1 + accepted / drafts, as in ``judge.metrics``."""
    accepted, tokens, drafts = (counters.get(name, 0.0) for name in (ACCEPTED, DRAFT_TOKENS, DRAFTS))
    if tokens <= 0 or drafts <= 0:
        return NoData(missing), NoData(missing)
    return accepted / tokens, 1 + accepted / drafts


def blame_ourselves(engine: Engine, what: str) -> None:
    """Raise InternalError when a server may have died because audition's own files for it are gone or cannot take any more."""
    process = engine.invocation().process
    if process is None:
        return
    state_dir = Path(process.identity_file).parent.parent.parent
    trouble = ""
    if not state_dir.is_dir():
        trouble = f"audition's working folder {state_dir} is gone"
    elif Path(process.log_file).is_relative_to(state_dir):
        space = os.statvfs(state_dir)
        if space.f_bavail * space.f_frsize < _PIECE:
            trouble = f"the disk of {state_dir}, where the server's log goes, is full"
    if trouble:
        raise InternalError(f"{what}, but that may be audition's own fault", seen=trouble, next_step="put it right and run again")


def _log_of(engine: Engine) -> Path:
    """The copy of an engine's log. Raises InternalError when it cannot be made: that says nothing about the server."""
    try:
        return engine.log_since_start()
    except OSError as cause:
        raise InternalError(f"the log of {engine.arm} cannot be copied", seen=str(cause)) from cause


def _lines(path: Path, kept: tuple[int, int], stop: Callable[[], bool]) -> Iterator[str]:
    """The first and the last lines of a log copy, each cut to a length that a person could read (and a margin)."""
    try:
        for line in cut_lines(until(read_bounded(path, 0, *kept), stop), LONGEST_LINE + _MARGIN):
            yield line.decode("utf-8", "replace")
    except FileNotFoundError:
        return
