"""One run from a loaded spike to an exit code: prepare, conduct, judge, write records. The verbs `run` and `rehearse` end here."""

from __future__ import annotations

import json
import os
import shutil
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from audition import __version__
from audition.errors import (
    EXIT_INTERNAL,
    EXIT_NOT_RESTORED,
    AuditionError,
    Refused,
)
from audition.judge.folder import EXIT_OF_VERDICT, judge_folder
from audition.judge.records import RunRecord
from audition.judge.result import Result
from audition.load.workload import check_inputs
from audition.report.mask import mask
from audition.report.writer import write_records
from audition.run import preparing
from audition.run.announcing import Announcer
from audition.run.checking import check_again
from audition.run.conductor import BEFORE_TOUCHING, Conductor, OnPoint, RunEnd, no_point
from audition.run.events import SignalHeard, VerdictReached, run_planned
from audition.run.folder import RunFolder, write_atomically
from audition.run.interrupts import Interrupts
from audition.run.journal import Journal
from audition.run.leg import LegMeter
from audition.run.profiles import image_digests, write_profiles
from audition.run.reporter import Reporter
from audition.run.slot import in_slot, require_slot, say_slot
from audition.run.surroundings import Identity, World
from audition.spike.parse import LoadedSpike, resolve
from audition.swap.plan import Step, make_plan
from audition.wayback import state
from audition.wayback.lock import state_root

REHEARSAL_PROBE_S = 20.0  # longest wait for one answer to a probe in a rehearsal
RESOLVED = "spike.resolved.json"


def no_begin() -> None:
    """Nobody waits for the begin."""


@dataclass(frozen=True)
class Options:
    """How to run. ``ledger``: the simulated GPUs of a rehearsal; ``records_base``: where a relative records folder begins.

    ``screen``: draw one where standard error is a terminal; ``events``: a file descriptor for JSON lines. ``on_begin`` is called
    once, when the guard is armed and before production is touched, and may still refuse. ``notes``: the caller's warnings, for the
    terminal and the records.
    """

    rehearsal: bool = False
    fault: str | None = None
    quiet: bool = False
    root: Path | None = None
    ledger: Path | None = None
    records_base: Path | None = None
    screen: bool = False
    events: int | None = None
    on_begin: Callable[[], None] = no_begin
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Finished:
    """A run that is over. ``result`` None: it could not be judged, ``problem`` says why."""

    exit_code: int
    run_dir: Path
    result: Result | None
    end: RunEnd
    problem: str = ""


def run_spike(loaded: LoadedSpike, options: Options = Options(), on_point: OnPoint = no_point) -> Finished:
    """Run a spike to its end. Raises AuditionError only when nothing was touched, and then leaves nothing behind; otherwise
    production was restored, or ``exit_code`` is 7."""
    now = time.time()
    date = time.strftime("%Y-%m-%d", time.localtime(now))
    reporter = Reporter(rehearsal=options.rehearsal, quiet=options.quiet, screen=options.screen, events=options.events)
    identity = preparing.new_identity(loaded.spike, options.root or state_root(), date)
    made = _Made()
    announcer: Announcer | None = None
    try:
        check_files(loaded)
        loaded = _in_its_slot(loaded, options, now, reporter)
        conductor, record, secrets = _prepare(loaded, options, identity=identity, reporter=reporter, made=made, on_point=on_point)
        if not options.rehearsal:
            announcer = Announcer(loaded.spike, os.environ, warn=reporter.warn, shown=reporter.shown)
            reporter.also(announcer)
        end = conductor.conduct()
        made.over = True
        assert made.folder is not None
        finished = _finish(loaded, options, folder=made.folder, record=record, end=end, secrets=secrets)
        reporter.tell(_reached(finished))
        return finished
    except BaseException:
        made.discard()
        if announcer is not None:
            announcer.refused()
        raise
    finally:  # not earlier: a late signal must not end the process before its records are written
        if announcer is not None:
            reporter.flush()
            announcer.finish()
        if made.interrupts is not None:
            made.interrupts.uninstall()
        reporter.close()


def check_files(loaded: LoadedSpike) -> None:
    """What the spike file names can be read: fault signatures, prompts, traces. Raises BadInput. Quick, so asked before a wait."""
    preparing.check_signatures(loaded)
    for workload in loaded.spike.workloads:
        check_inputs(workload, loaded.folder)


@dataclass
class _Made:
    """What preparing has made so far, to be removed again when the run is refused."""

    state_dir: Path | None = None
    folder: RunFolder | None = None
    interrupts: Interrupts | None = None
    over: bool = False

    def discard(self) -> None:
        """Nothing was touched: leave no run folder and no state behind. Where a restore plan lies, something may have been."""
        if self.over:
            return
        if self.state_dir is not None and (self.state_dir / state.PLAN).exists():
            return
        for path in (self.folder.path if self.folder else None, self.state_dir):
            if path is not None:
                shutil.rmtree(path, ignore_errors=True)


def _prepare(
    loaded: LoadedSpike, options: Options, *, identity: Identity, reporter: Reporter, made: _Made, on_point: OnPoint
) -> tuple[Conductor, RunRecord, list[str]]:
    """Find everything out, refuse what must be refused, and put the conductor together. Production is not touched."""
    spike = loaded.spike
    try:
        identity.state_dir.mkdir(parents=True, mode=0o700)
    except OSError as cause:
        hint = "set AUDITION_STATE to a folder that can be written"
        raise Refused(f"the state folder {identity.state_dir} cannot be made", seen=str(cause), next_step=hint) from cause
    made.state_dir = identity.state_dir
    engines = preparing.make_engines(spike, loaded.folder, identity)
    secrets = preparing.secret_values_if_known(spike, engines, dict(os.environ))
    reporter.secrets = secrets
    for text in options.notes:
        reporter.warn(text)
    warnings = [*options.notes, *preparing.check(spike, engines, reporter)]
    gpu = preparing.gpu_plan(spike, options.ledger)
    secrets = preparing.secret_values(spike, list(engines.values()), dict(os.environ))
    reporter.secrets = secrets
    sidecars = preparing.find_interfering(spike, engines)
    for text in sidecars.said:
        reporter.say(text)
    warnings += check_again(loaded, engines, identity.root, rehearsal=options.rehearsal, reporter=reporter)
    records = resolve(options.records_base or loaded.folder, spike.records.folder)
    name = f"{spike.name}_rehearsal" if options.rehearsal else spike.name
    folder = made.folder = RunFolder.create(records, name, identity.date)
    reporter.say(f"records: {folder.path}")
    record = RunRecord(
        identity.run_id, spike.name, mask(spike.question, secrets), options.rehearsal, options.fault, __version__, time.time(),
        [leg.arm for leg in spike.planned_legs()],
    )  # fmt: skip
    folder.write_run(record)
    write_atomically(folder.path / "spike.yaml", mask(loaded.source, secrets))
    write_atomically(folder.path / RESOLVED, preparing.public_spike(spike, secrets))
    write_profiles(folder.path, spike, engines, secrets)
    meter = LegMeter(spike, folder, engines, reporter, secrets, options.rehearsal, loaded.folder)
    meter.digests = image_digests(spike, engines, os.environ)
    meter.notes = [("before", text) for text in warnings]
    if options.rehearsal:
        meter.probe_deadline_s = REHEARSAL_PROBE_S
    world = World(
        spike,
        identity=identity,
        engines=engines,
        folder=folder,
        spike_folder=loaded.folder,
        meter=meter,
        reporter=reporter,
        gpu=gpu,
        sidecars=sidecars.plans,
        others=lambda: preparing.other_targets(spike, engines),
    )
    made.interrupts = Interrupts(lambda name, before: reporter.tell(SignalHeard(name, before, _heard(name, before))))
    made.interrupts.install()
    steps = make_plan(spike, sidecars=bool(sidecars.plans))
    reporter.tell(run_planned(spike, steps, str(folder.path)))
    conductor = Conductor(
        spike,
        steps=steps,
        engines=engines,
        around=world,
        open_journal=lambda: Journal(identity.state_dir / "journal.sqlite", world.fence),
        reporter=reporter,
        interrupts=made.interrupts,
        on_point=_with_begin(steps, options, reporter, on_point),
    )
    return conductor, record, secrets


def _with_begin(steps: list[Step], options: Options, reporter: Reporter, on_point: OnPoint) -> OnPoint:
    """``on_point`` that also tells of the begin: the last point at which a run is only refused."""
    last = [step.key for step in steps if step.kind in BEFORE_TOUCHING][-1]

    def point(step: str, where: str) -> None:
        on_point(step, where)
        if (step, where) == (last, "after-done"):
            reporter.flush()
            options.on_begin()

    return point


def _in_its_slot(loaded: LoadedSpike, options: Options, now: float, reporter: Reporter) -> LoadedSpike:
    """The spike with the end of the slot that is free now as the end of its window. Raises Refused when none is."""
    if options.rehearsal:
        return loaded
    slot = require_slot(loaded, now)
    if text := say_slot(loaded, slot):
        reporter.say(text)
    return in_slot(loaded, slot)


def _heard(signal_name: str, before: int) -> str:
    if before == 0:
        return f"{signal_name}: ending the leg and bringing production back; this takes as long as production's start"
    return f"{signal_name} again: production is being brought back; this is not cut short"


def _finish(
    loaded: LoadedSpike, options: Options, *, folder: RunFolder, record: RunRecord, end: RunEnd, secrets: list[str]
) -> Finished:
    back = end.restored.verified if end.restored is not None else None
    record = replace(record, ended_at=time.time(), ended=end.ended, end_reason=mask(end.reason, secrets), production_back=back)
    try:
        folder.write_run(record)
        if end.restored is not None:
            report = mask(json.dumps(end.restored.to_data(), indent=1), secrets)
            write_atomically(folder.path / "restore.json", report + "\n")
        judged, result = judge_folder(folder.path)
        write_records(folder.path, result, judged, loaded.folder, not options.rehearsal, secrets=secrets)
    except (AuditionError, OSError) as cause:
        return Finished(_exit_code(end, None), folder.path, None, end, f"the records could not be written: {cause}")
    except Exception as cause:  # noqa: BLE001 - production is back; a fault in judging must not hide that
        where = "".join(traceback.format_exception(cause)[-3:])
        problem = f"judging failed: {cause!r}; the raw records are complete, try: audition judge {folder.path}\n{where}"
        return Finished(_exit_code(end, None), folder.path, None, end, problem)
    return Finished(_exit_code(end, result), folder.path, result, end)


def _reached(finished: Finished) -> VerdictReached:
    restored, result = finished.end.restored, finished.result
    return VerdictReached(
        "none" if result is None else result.verdict,
        finished.exit_code,
        (finished.problem,) if result is None else tuple(result.reasons),
        None if restored is None else restored.verified,
        str(finished.run_dir),
    )


def _exit_code(end: RunEnd, result: Result | None) -> int:
    if end.restored is not None and not end.restored.verified:
        return EXIT_NOT_RESTORED
    if result is None:
        return EXIT_INTERNAL
    if end.error is not None and result.verdict == "INCONCLUSIVE":
        return EXIT_INTERNAL
    return EXIT_OF_VERDICT[result.verdict]


def shout_not_restored(finished: Finished) -> str:
    """What a person must read and type when production could not be restored."""
    report = finished.end.restored
    if report is None:
        return ""
    lines = ["PRODUCTION IS NOT BACK.", *(f"  {problem}" for problem in report.problems), "Type, in this order:"]
    return "\n".join([*lines, *(f"  {command}" for command in report.manual)])
