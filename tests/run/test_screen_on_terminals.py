"""The screen on real pseudo-terminals: of any size, resized, closed, full; whatever ends, the cursor comes back."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from run.scripted_run import __file__ as SCRIPT
from run.tiny_terminal import COLOUR, OnTerminal, cursor_is_visible, reading

HERE = Path(__file__).parent


def scripted(middle: str = "go-on", *, columns: int = 100, lines: int = 30, **env: str) -> OnTerminal:
    command = [sys.executable, SCRIPT, middle]
    return OnTerminal(command, columns=columns, lines=lines, env={"PYTHONPATH": str(HERE.parent), **env})


SHOWN = ("stop old", "16 of 32", "BEING RESTORED", "")
FRAMES = ("\x1b[?25l",) * 3 + ("",)


def whole(
    middle: str = "go-on", *, columns: int = 100, lines: int = 30, shown: tuple[str, ...] = SHOWN, **env: str
) -> str:  # fmt: skip
    """Everything that was written in a run that goes on as soon as a text of ``shown`` is seen, and ends well."""
    terminal = scripted(middle, columns=columns, lines=lines, **env)
    for text in shown:
        terminal.read_until(text)
        terminal.go_on()
    written = terminal.read_all()
    assert terminal.end() == (0, "done\n")
    terminal.close()
    return written


def in_the_middle(middle: str) -> OnTerminal:
    """A run whose candidate is being measured."""
    terminal = scripted(middle)
    terminal.read_until("stop old")
    terminal.go_on()
    terminal.read_until("16 of 32")
    return terminal


def test_it_shows_the_plan_and_leaves_a_summary() -> None:
    written = whole()
    middle = "\n".join(reading(written[: written.index("\x1b[?2026l", written.rindex("16 of 32"))]))
    telling = ("stop old", "\\x1b[2J weights", "leg 2 of 2", "733.3", "730.2", "58% 2.74", "31 ms", "16 of 32", "must begin in")
    for text in telling:
        assert text in written, text
    for text in telling[2:]:
        assert text in middle, text
    left = reading(written)
    at = next(place for place, line in enumerate(left) if "NO-GO" in line)
    assert "REHEARSAL" in left[at]
    assert any("production old is back and verified" in line for line in left[at:])
    assert any("many-users failed" in line for line in left[at:])
    assert not any("Ctrl-C" in line for line in left), "the last frame must be gone"
    assert cursor_is_visible(written)
    assert COLOUR.search(written)
    assert left[-2].endswith("a line after the end")


def test_lines_that_stay_are_marked_and_nothing_secret_is_shown() -> None:
    written = whole()
    left = reading(written)
    for told in (
        "records: /records/here",
        "warning: the key is ***",
        "production (old): stopped",
        "production (old): back and verified",
    ):
        assert any(line.startswith("REHEARSAL 00:0") and line.endswith(told) for line in left), told
    assert "s3cr3t" not in written


@pytest.mark.parametrize(("columns", "lines"), [(40, 12), (20, 5), (5, 2), (1, 1), (0, 0), (300, 80)])
def test_any_size_will_do(columns: int, lines: int) -> None:
    written = whole(columns=columns, lines=lines, shown=FRAMES)
    assert cursor_is_visible(written)
    width = columns or 80
    frames = [frame for frame in written.split("\x1b[?2026h")[1:] if "REHEARSAL 0" not in frame]
    shown = [line for frame in frames for line in reading(frame.partition("\x1b[?2026l")[0])]
    assert all(len(line) <= max(1, width - 1) for line in shown), "a frame wider than the terminal would wrap"


def test_a_resize_is_followed() -> None:
    terminal = in_the_middle("interrupt")
    before = len(terminal.written)
    terminal.resize(44, 14)
    terminal.read_until("\x1b[2J\x1b[H")
    os.write(terminal.ours, b"\x03")
    terminal.let_go()
    written = terminal.read_all()
    assert terminal.end() == (0, "done\n")
    frames = written[before:].partition("\x1b[2J\x1b[H")[2]
    first = reading(frames.partition("\x1b[?2026l")[0])
    assert len(first) <= 14
    assert max(map(len, [line for line in first if not line.startswith("REHEARSAL 0")])) <= 43
    assert cursor_is_visible(written)


def test_ctrl_c_says_what_will_happen_and_the_cursor_comes_back() -> None:
    terminal = in_the_middle("interrupt")
    assert "Ctrl-C ends the leg and brings production back" in terminal.written
    os.write(terminal.ours, b"\x03")
    terminal.let_go()
    written = terminal.read_all()
    assert terminal.end() == (0, "done\n")
    assert any(line.endswith("warning: SIGINT: ending the leg, says the test") for line in reading(written))
    assert cursor_is_visible(written)


def test_sigterm_is_heard_by_the_run_alone() -> None:
    terminal = in_the_middle("interrupt")
    os.killpg(terminal.process.pid, signal.SIGTERM)
    terminal.let_go()
    written = terminal.read_all()
    assert terminal.end() == (0, "done\n")
    assert "SIGTERM: ending the leg" in written
    assert cursor_is_visible(written)
    assert any("NO-GO" in line for line in reading(written)), "the screen must outlive the signal"


def test_a_stop_and_a_continue_draw_anew() -> None:
    terminal = in_the_middle("go-on")
    os.killpg(terminal.process.pid, signal.SIGTSTP)
    terminal.read_until("\x1b[?25h")
    os.killpg(terminal.process.pid, signal.SIGCONT)
    terminal.read_until("\x1b[2J")
    terminal.let_go()
    written = terminal.read_all()
    assert terminal.end() == (0, "done\n")
    assert any("NO-GO" in line for line in reading(written))
    assert cursor_is_visible(written)


def test_a_killed_run_gives_the_cursor_back_and_says_what_to_type() -> None:
    terminal = in_the_middle("be-killed")
    terminal.let_go()
    written = terminal.read_all()
    assert terminal.end()[0] == -signal.SIGKILL
    assert any("audition status" in line for line in reading(written))
    assert cursor_is_visible(written)


def test_an_exception_gives_the_cursor_back() -> None:
    terminal = in_the_middle("raise")
    terminal.let_go()
    written = terminal.read_all()
    assert terminal.end()[0] == 1
    left = reading(written)
    assert any("RuntimeError: from the middle of a run" in line for line in left)
    assert cursor_is_visible(written)


def test_without_its_screen_a_run_goes_on_in_plain_lines() -> None:
    written = whole("kill-screen", shown=("stop old", "16 of 32", "a line that finds no screen", ""))
    after = written[written.rindex("\x1b[?25h") :]
    assert "a line that finds no screen" in after
    assert "warning: the key is ***" in after, "what the screen may have swallowed is said again"
    assert "production is back (2.0 s)" in after
    assert "\x1b[?25l" not in after


def test_a_terminal_that_is_closed_in_the_middle_holds_nothing_up() -> None:
    terminal = in_the_middle("go-on")
    terminal.close()
    code, said = terminal.end()
    assert (code, said) in [(0, "done\n"), (-signal.SIGHUP, "")], "the run heard the hang-up or went on, nothing else"


def test_a_terminal_that_nobody_reads_holds_nothing_up() -> None:
    terminal = scripted("go-on", columns=300, lines=80)
    assert terminal.end() == (0, "done\n")
    terminal.close()


def test_no_color_and_dumb_terminals() -> None:
    written = whole(NO_COLOR="1")
    assert not COLOUR.search(written)
    assert "leg 2 of 2" in written
    written = whole(TERM="dumb", shown=("stop old", "warning: the key", "start old", ""))
    assert "\x1b" not in written
    assert "stop old" in written


@pytest.mark.slow
def test_a_whole_rehearsal_on_a_terminal(tmp_path: Path) -> None:
    (tmp_path / "spike.yaml").write_text((HERE / "faults_spike.yaml").read_text())
    command = [sys.executable, "-m", "audition", "rehearse", "spike.yaml", "--fault", "boot-crash", "--events", "events.jsonl"]
    terminal = OnTerminal(command, cwd=tmp_path, env={"TMPDIR": str(tmp_path)})
    written = terminal.read_all()
    code, said = terminal.end()
    assert code == 3, said
    assert "REHEARSAL NO-GO; production is back and verified" in said
    assert "\x1b" not in said
    left = reading(written)
    assert all(line.lstrip().startswith("REHEARSAL") for line in left if line.startswith(("REHEARSAL 0", " REHEARSAL")))
    assert any("REHEARSAL" in line and "NO-GO" in line for line in left)
    assert any("mtp did not start" in line for line in left)
    assert cursor_is_visible(written)
    told = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert all(event["rehearsal"] is True for event in told)
    states = [event["state"] for event in told if event["event"] == "production_changed"]
    assert states == ["running", "draining", "stopped", "being restored", "back and verified"]
    assert told[-1]["event"] == "verdict_reached"
    assert told[-1]["verdict"] == "NO-GO"
    assert any(event["event"] == "boot_logged" and event["arm"] == "mtp" for event in told)
    assert any(event["event"] == "workload_measured" and event["output_tok_s"] > 0 for event in told)
