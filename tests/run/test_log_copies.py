"""Engine logs of any size and content: bounded, masked, cut, and never held against a server when audition's own files fail."""

from __future__ import annotations

import os
import shutil
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from audition.engines.base import BootOutcome, Engine, Invocation
from audition.errors import InternalError
from audition.run.folder import RunFolder
from audition.run.leg import KEPT, LONGEST_LINE, SHORT, LegMeter, blame_ourselves
from audition.run.reporter import Reporter
from audition.spike.model import Spike
from audition.wayback.files import copy_bounded, cut_lines, read_bounded
from audition.wayback.plan import ProcessTarget

SECRET = "planted-secret-value"


class LoggedEngine:
    """An engine of which only the log and the place of its files matter."""

    arm = "candidate"

    def __init__(self, folder: Path) -> None:
        self.state = folder / "state"
        arm = self.state / "arms" / "candidate"
        arm.mkdir(parents=True)
        self.log = arm / "server.log"
        self.process = ProcessTarget([], {}, "/", str(self.log), str(arm / "identity.json"), "t")

    def log_since_start(self) -> Path:
        return self.log

    def invocation(self) -> Invocation:
        return Invocation([], {}, process=self.process)

    def boot_id(self) -> str:
        return "boot"


def meter(folder: Path, engine: LoggedEngine) -> LegMeter:
    run = folder / "run"
    run.mkdir()
    reporter = Reporter(rehearsal=False, quiet=True)
    engines = {"candidate": cast(Engine, engine)}
    return LegMeter(cast(Spike, None), RunFolder(run), engines, reporter, [SECRET], rehearsal=False, base=folder)


def copied(
    folder: Path, engine: LoggedEngine, give_up: Callable[[], bool] = lambda: False
) -> tuple[str, dict[str, Any], list[str]]:
    facts: dict[str, Any] = {}
    found = meter(folder, engine)._log(1, "candidate", cast(Engine, engine), facts, give_up)
    return (folder / "run/legs/01-candidate/engine.log").read_text(), facts, [one.name for one in found]


VERSION = "INFO 01-01 10:00:00 [api_server.py:1] vLLM API server version 0.9.1\n"
DEATH = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"


def test_a_huge_log_keeps_its_beginning_and_its_end_in_little_memory(tmp_path: Path) -> None:
    engine = LoggedEngine(tmp_path)
    block = "".join(f"line {number} of the middle, with {SECRET}\n" for number in range(20_000)).encode()
    with engine.log.open("wb") as file:
        file.write(VERSION.encode())
        for _ in range(80):
            file.write(block)
        file.write(DEATH.encode())
    tracemalloc.start()
    text, facts, found = copied(tmp_path, engine)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    size = engine.log.stat().st_size
    assert size > 7 * sum(KEPT)
    assert peak < 4 * sum(KEPT), f"{peak} bytes at the peak for a log of {size}"
    assert len(text) <= sum(KEPT) + 200
    assert text.startswith(VERSION)
    assert text.endswith(DEATH)
    assert "bytes of the log are left out here]" in text
    assert SECRET not in text
    assert facts["engine_version"] == "0.9.1"
    assert found


def test_no_line_is_torn_and_the_count_of_what_is_left_out_is_right(tmp_path: Path) -> None:
    source = tmp_path / "log"
    lines = [f"{number:07d} {SECRET}" for number in range(50_000)]
    source.write_text("before the start\n" + "\n".join(lines) + "\n")
    start = len("before the start\n")
    written = copy_bounded(source, start, tmp_path / "copy", 200_000, 300_000)
    text = (tmp_path / "copy").read_text()
    assert written == len(text) <= 500_100
    assert (tmp_path / "copy").stat().st_mode & 0o777 == 0o600
    kept = [line for line in text.splitlines() if line and not line.startswith("[")]
    assert set(kept) <= set(lines)
    assert (kept[0], kept[-1]) == (lines[0], lines[-1])
    said = next(int(line[1:].split()[0]) for line in text.splitlines() if line.startswith("["))
    assert said == source.stat().st_size - start - sum(len(line) + 1 for line in kept)
    assert copy_bounded(source, start, tmp_path / "copy", 2**21, 2**21) == source.stat().st_size - start


@pytest.mark.parametrize("size", [0, 1, 99, 100, 101, 5000])
def test_what_fits_is_kept_whole_also_without_ends_of_line(tmp_path: Path, size: int) -> None:
    source = tmp_path / "log"
    data = bytes(range(256)) * 20
    source.write_bytes(data[:size])
    got = b"".join(read_bounded(source, 0, 40, 60))
    assert got == data[:size] if size <= 100 else b"bytes of the log are left out" in got


def test_lines_are_cut_however_the_stream_is_cut() -> None:
    data = b"ab\ncd\r\n\nlong-long-long\rend"
    for size in range(1, len(data)):
        pieces = [data[at : at + size] for at in range(0, len(data), size)]
        assert [line for line in cut_lines(pieces, 6) if line] == [b"ab", b"cd", b"long-l", b"end"]


def test_garbage_and_endless_lines_are_cut_and_a_secret_across_the_cut_is_masked(tmp_path: Path) -> None:
    engine = LoggedEngine(tmp_path)
    across = "y" * (LONGEST_LINE - 8) + SECRET + "z" * 1_000_000
    engine.log.write_bytes(os.urandom(300_000) + b"\n" + across.encode() + b"\n" + b"a-" * 500_000 + b"\n" + DEATH.encode())
    text, _, found = copied(tmp_path, engine)
    assert max(map(len, text.split("\n"))) <= LONGEST_LINE
    assert SECRET[:8] not in text
    assert text.endswith(DEATH)
    assert found


def test_a_secret_of_several_lines_is_masked(tmp_path: Path) -> None:
    engine = LoggedEngine(tmp_path)
    secret = "-----BEGIN KEY-----\nAbCdEf\n-----END KEY-----"
    engine.log.write_text(f"filler\n{secret}\n" * 40_000)
    one = meter(tmp_path, engine)
    one.secrets.append(secret)
    one._log(1, "candidate", cast(Engine, engine), {}, lambda: False)
    assert "AbCdEf" not in (tmp_path / "run/legs/01-candidate/engine.log").read_text()


def test_production_does_not_wait_for_a_long_log(tmp_path: Path) -> None:
    engine = LoggedEngine(tmp_path)
    engine.log.write_text(VERSION + "filler\n" * 1_000_000 + DEATH)
    asked = iter([False] * 5 + [True] * 10_000)
    text, facts, found = copied(tmp_path, engine, lambda: next(asked))
    assert len(text) <= sum(SHORT) + 200
    assert text.startswith(VERSION)
    assert text.endswith(DEATH)
    assert facts["engine_version"] == "0.9.1"
    assert found


def test_an_engine_without_a_log_leaves_an_empty_one(tmp_path: Path) -> None:
    text, _, found = copied(tmp_path, LoggedEngine(tmp_path))
    assert (text, found) == ("", [])


def test_audition_blames_itself_when_its_own_files_are_gone(tmp_path: Path) -> None:
    engine = LoggedEngine(tmp_path)
    blame_ourselves(cast(Engine, engine), "the server died")
    one = meter(tmp_path, engine)
    assert one.boot_record("candidate", BootOutcome("exited", 1.0, exit_code=3)).clean is False
    shutil.rmtree(engine.state)
    with pytest.raises(InternalError, match="own fault") as caught:
        one.boot_record("candidate", BootOutcome("exited", 1.0, exit_code=3))
    assert f"{engine.state} is gone" in caught.value.seen


def test_a_log_that_cannot_be_copied_is_no_death_of_the_server(tmp_path: Path) -> None:
    engine = LoggedEngine(tmp_path)
    engine.log.mkdir()
    with pytest.raises(InternalError, match="cannot be copied"):
        copied(tmp_path, engine)


def test_a_server_with_a_log_of_its_own_is_not_excused_by_a_full_disk(tmp_path: Path) -> None:
    engine = LoggedEngine(tmp_path)
    full = Path("/sys")
    if os.statvfs(full).f_bavail:
        pytest.skip("/sys is expected to have no free block")
    engine.process = replace(
        engine.process, identity_file=str(full / "kernel/x/identity.json"), log_file=str(full / "kernel/x/server.log")
    )
    with pytest.raises(InternalError, match="own fault"):
        blame_ourselves(cast(Engine, engine), "the server died")
    engine.process = replace(engine.process, log_file=str(tmp_path / "its-own.log"))
    blame_ourselves(cast(Engine, engine), "the server died")
