"""The tests of the contract of engines. A test file imports them all and gives a fixture ``bench``; no bench is built here."""

from __future__ import annotations

import os

from audition.engines.base import BootOutcome, Engine
from audition.wayback.health import completion, served_models
from audition.wayback.proctable import port_answers
from contract.factories import Bench


def boot(engine: Engine, lines: list[str] | None = None) -> BootOutcome:
    engine.start()
    return engine.wait_ready(lambda: False, (lines if lines is not None else []).append)


def port_of(engine: Engine) -> int:
    return engine.target().port


def test_a_whole_life(bench: Bench) -> None:
    engine = bench.make(bench.good)
    lines: list[str] = []
    assert engine.observe().state == "absent"
    assert not [finding for finding in engine.preflight() if finding.level == "blocking"]
    outcome = boot(engine, lines)
    assert outcome.kind == "ready", outcome
    assert engine.alive()
    assert engine.boot_id()
    assert engine.endpoint.model in served_models(engine.endpoint)
    assert completion(engine.endpoint, {"prompt": "x", "max_tokens": 4})
    seen = engine.observe()
    assert seen.state == "running"
    assert seen.identity == engine.boot_id()
    assert lines, "log lines are passed on while booting"
    assert engine.log_since_start().read_text().splitlines()[0].strip()
    stopped = engine.stop()
    assert stopped.proved, stopped
    assert not engine.alive()
    assert engine.boot_id() == ""
    assert engine.observe().state == "absent"
    assert not port_answers(port_of(engine))


def test_starting_and_stopping_twice_changes_nothing(bench: Bench) -> None:
    engine = bench.make(bench.good)
    assert engine.stop().proved
    assert boot(engine).kind == "ready"
    first = engine.boot_id()
    engine.start()
    assert engine.boot_id() == first
    assert engine.stop().proved
    assert engine.stop().proved


def test_each_start_is_another_boot_with_its_own_log(bench: Bench) -> None:
    engine = bench.make(bench.good)
    assert boot(engine).kind == "ready"
    first, first_log = engine.boot_id(), engine.log_since_start().read_text()
    assert engine.stop().proved
    assert boot(engine).kind == "ready"
    assert engine.boot_id() not in ("", first)
    assert len(engine.log_since_start().read_text()) < 2 * len(first_log)


def test_a_crash_at_boot_is_told(bench: Bench) -> None:
    engine = bench.make(bench.crashing)
    outcome = boot(engine)
    assert outcome.kind == "exited", outcome
    assert outcome.exit_code == bench.crash_code
    assert outcome.excerpt.strip()
    assert not engine.alive()
    assert engine.stop().proved


def test_a_silent_boot_is_told(bench: Bench) -> None:
    engine = bench.make(bench.hanging)
    outcome = boot(engine)
    assert outcome.kind == "silent", outcome
    assert engine.stop().proved


def test_another_model_is_never_ready(bench: Bench) -> None:
    engine = bench.make(bench.wrong_model)
    outcome = boot(engine)
    assert outcome.kind == "wrong-model", outcome
    assert "another" in outcome.detail


def test_giving_up_is_obeyed(bench: Bench) -> None:
    engine = bench.make(bench.hanging)
    engine.start()
    assert engine.wait_ready(lambda: True, lambda line: None).kind == "interrupted"


def test_the_target_is_enough_to_stop_it(bench: Bench) -> None:
    from audition.wayback.servers import server_of

    engine = bench.make(bench.good)
    assert boot(engine).kind == "ready"
    server = server_of(engine.target(), production=False)
    assert server.view().boot_id == engine.boot_id()
    assert server.stop(5.0).proved
    assert not engine.alive()


def test_what_it_is_started_with_is_known_without_looking(bench: Bench) -> None:
    """Before a start, while it runs and when it is gone: the same answer, and nothing on disk changes through asking."""
    engine = bench.make(bench.good)
    given = engine.invocation()
    assert given.argv
    assert boot(engine).kind == "ready"
    assert engine.invocation().argv == given.argv
    engine.stop()
    assert engine.invocation().argv == given.argv


def test_it_knows_its_processes(bench: Bench) -> None:
    engine = bench.make(bench.good)
    assert boot(engine).kind == "ready"
    mine = [pid for name in os.listdir("/proc") if name.isdigit() and engine.owns(pid := int(name))]
    assert mine
    assert os.getpid() not in mine
    engine.stop()
    assert not any(engine.owns(pid) for pid in mine)
