"""Announcements sent with the real apprise to loopback servers: delivered, refused, hanging; addresses are never shown."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from audition.errors import BadInput, Refused
from audition.judge.records import RunRecord, to_json
from audition.report.announcing import Announcement
from audition.run.announcing import Announcer, require_addresses, send
from audition.run.clearing import cleared_at
from audition.run.events import EndedEarly, GuardArmed, RestoreEnded, Said, VerdictReached
from audition.run.reporter import Reporter
from audition.spike.model import Spike
from audition.spike.parse import load_spike, parse_spike
from audition.units import NoData
from crash.world import World
from spike.spike_texts import BASE

MESSAGE = Announcement("Begins: base", "# Begins: base\n\n- from *now*\n")
TOKEN = "Tok3nOfTheRoom42"


class Room:
    """A loopback server that takes what is posted: ``status`` is its answer, ``hang`` holds answers back."""

    def __init__(self) -> None:
        self.got: list[dict[str, Any]] = []
        self.status, self.hang = 200, threading.Event()
        self.hang.set()
        room = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                room.got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                room.hang.wait(60)
                self.send_response(room.status)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                """Silent."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        self.address = f"json://user:{TOKEN}@127.0.0.1:{self.server.server_port}/{TOKEN}"

    def close(self) -> None:
        self.hang.set()
        self.server.shutdown()
        self.server.server_close()

    def titles(self) -> list[str]:
        return [one["title"] for one in self.got]


@pytest.fixture
def room() -> Iterator[Room]:
    here = Room()
    yield here
    here.close()


def spike(*names: str) -> Spike:
    return parse_spike(f"{BASE}\nagreement: {{call: Alex, announce_env: {list(names)}}}\n", "spike.yaml")


def test_a_message_arrives_as_it_was_written(room: Room) -> None:
    assert send(MESSAGE, [("ROOM", room.address)]) == []
    [got] = room.got
    assert (got["title"], got["type"]) == (MESSAGE.title, "info")
    assert got["message"].strip() == MESSAGE.body.strip()
    assert send(Announcement("PRODUCTION IS NOT BACK", "...", bad=True), [("ROOM", room.address)]) == []
    assert room.got[1]["type"] == "failure"


def test_what_is_not_delivered_names_the_variable_and_never_the_address(
    room: Room, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    room.status = 403
    nobody = f"json://127.0.0.1:9/{TOKEN}"
    said = send(MESSAGE, [("ROOM", room.address), ("NOBODY", nobody), ("WRONG", f"no-such-kind://{TOKEN}"), ("EMPTY", "x")])
    assert said == [
        "not announced to ROOM: it was not accepted there",
        "not announced to NOBODY: it was not accepted there",
        "not announced to WRONG: the variable holds no apprise address",
        "not announced to EMPTY: the variable holds no apprise address",
    ]
    out, err = capfd.readouterr()
    assert TOKEN not in out + err + caplog.text
    assert err == ""


def test_a_room_that_hangs_costs_its_time_limit_alone(room: Room) -> None:
    other = Room()
    room.hang.clear()
    begun = time.monotonic()
    said = send(MESSAGE, [("SLOW", room.address), ("QUICK", other.address)], limit_s=3.0)
    assert time.monotonic() - begun >= 3.0
    other.close()
    assert said == ["not announced to SLOW: no answer within 3.0 s"]
    assert other.titles() == [MESSAGE.title]


def test_addresses_are_asked_for_by_name() -> None:
    assert require_addresses(spike("A"), {"A": "json://127.0.0.1"}) == [("A", "json://127.0.0.1")]
    with pytest.raises(BadInput, match=r"the variable B, which `agreement\.announce_env` names, is not set"):
        require_addresses(spike("A", "B"), {"A": "json://127.0.0.1", "B": " "})
    with pytest.raises(BadInput, match="names nowhere to send to"):
        require_addresses(spike(), {})


def test_events_of_a_run_become_announcements(room: Room) -> None:
    reporter = Reporter(rehearsal=False, quiet=True, stream=open(os.devnull, "w"))  # noqa: SIM115 - the reporter keeps it
    reporter.secrets = ["hunter2hunter2"]
    announcer = Announcer(spike("ROOM"), {"ROOM": room.address}, warn=reporter.warn, shown=reporter.shown)
    reporter.also(announcer)
    for event in (
        Said("nothing to announce"), GuardArmed(NoData("no end")), GuardArmed(NoData("again")), EndedEarly("early-end", "sure"),
        EndedEarly("failed", "key hunter2hunter2 is wrong"), RestoreEnded(True, (), 1.0), RestoreEnded(False, ("no answer",), 1.0),
        VerdictReached("INCONCLUSIVE", 7, ("cut",), False, "/x"),
    ):  # fmt: skip
        reporter.tell(event)
    reporter.flush()
    announcer.finish()
    assert [title.split(":")[0] for title in room.titles()] == [
        "Begins",
        "Cut short",
        "PRODUCTION IS NOT BACK",
        "PRODUCTION IS NOT BACK",
    ]
    assert "key *** is wrong" in room.got[1]["message"]


def test_telling_is_never_held_up(room: Room) -> None:
    room.hang.clear()
    warned: list[str] = []
    reporter = Reporter(rehearsal=False, quiet=True, stream=open(os.devnull, "w"))  # noqa: SIM115
    announcer = Announcer(spike("ROOM"), {"ROOM": room.address}, warn=warned.append, shown=str, limit_s=1.0)
    reporter.also(announcer)
    reporter.tell(GuardArmed(NoData("no end")))
    begun = time.monotonic()
    reporter.flush(60)
    assert time.monotonic() - begun < 60, "the reporter passes the message on, whatever becomes of it"
    announcer.finish(0.01)
    assert warned == ["an announcement was not sent within 0.0 s"]
    announcer.finish(60)
    assert "not announced to ROOM: no answer within 1.0 s" in warned


def test_without_an_address_there_is_a_warning_and_no_thread() -> None:
    warned: list[str] = []
    announcer = Announcer(spike("ROOM"), {}, warn=warned.append, shown=str)
    assert not announcer.wants(GuardArmed(NoData("no end")))
    announcer.finish()
    assert warned == ["not announced: the variable ROOM, which `agreement.announce_env` names, is not set"]


def audition(folder: Path, env: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "audition", *arguments], cwd=folder, text=True, capture_output=True, timeout=100, check=False,
        stdin=subprocess.DEVNULL, env={**os.environ, **env},
    )  # fmt: skip


def test_the_command_prints_and_sends(room: Room, tmp_path: Path) -> None:
    closes = (datetime.now(UTC) + timedelta(hours=9)).isoformat(timespec="seconds")
    text = f'{BASE}\nagreement: {{call: Alex, announce_env: [ROOM]}}\nwindow: {{closes: "{closes}"}}\n'
    (tmp_path / "spike.yaml").write_text(text)
    done = audition(tmp_path, {}, "announce", "spike.yaml")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("# Request: base, ")
    assert "Whom to call: Alex" in done.stdout
    assert room.got == [], "nothing is sent unless it is asked for"
    done = audition(tmp_path, {"ROOM": room.address}, "announce", "spike.yaml", "--all-clear", "--send")
    assert (done.returncode, done.stdout, room.got) == (5, "", []), "no run is on record"
    assert "no all-clear: no run of this spike is on record" in done.stderr
    assert "audition recover" in done.stderr
    run = run_folder(tmp_path, "base_2026-12-05", started=1000.0, verified=True)
    done = audition(tmp_path, {"ROOM": room.address}, "announce", "spike.yaml", "--all-clear", "--send")
    assert (done.returncode, done.stderr) == (0, "sent to 1 of 1\n")
    assert room.titles() == ["All clear: base"]
    room.status = 500
    done = audition(tmp_path, {"ROOM": room.address}, "announce", "spike.yaml", "--send", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["problems"] == ["not announced to ROOM: it was not accepted there"]
    assert TOKEN not in done.stdout + done.stderr
    done = audition(tmp_path, {}, "announce", "spike.yaml", "--send")
    assert (done.returncode, done.stdout) == (2, "")
    done = audition(tmp_path, {}, "announce", "spike.yaml", "--all-clear", "--result", str(run))
    assert (done.returncode, "verified at 2001-09-09" in done.stdout) == (0, True)


def run_folder(
    folder: Path, name: str, *, started: float, verified: bool | None, rehearsal: bool = False, spike: str = "base"
) -> Path:
    """Records of a run as far as an all-clear asks for them. ``verified`` None: no restore.json."""
    made = folder / "_iteration_log" / name
    made.mkdir(parents=True)
    (made / "run.json").write_text(to_json(RunRecord("id", spike, "?", rehearsal, None, "0", started, ["old", "new", "old"])))
    if verified is not None:
        (made / "restore.json").write_text(json.dumps({"verified": verified, "ended": 1_000_000_000.0 + started}))
    return made


def test_an_all_clear_rests_on_the_newest_real_run(tmp_path: Path) -> None:
    (tmp_path / "spike.yaml").write_text(BASE)
    loaded = load_spike(tmp_path / "spike.yaml")

    def refused(said: str, run: Path | None = None) -> None:
        with pytest.raises(Refused, match=said) as caught:
            cleared_at(loaded, run)
        assert "audition recover" in caught.value.next_step

    refused("no run of this spike is on record")
    rehearsed = run_folder(tmp_path, "base_rehearsal_2026-12-05", started=9000.0, verified=True, rehearsal=True)
    refused("no run of this spike is on record")
    refused("is a rehearsal", rehearsed)
    good = run_folder(tmp_path, "base_2026-12-05", started=1000.0, verified=True)
    run_folder(tmp_path, "base_other_2026-12-06", started=8000.0, verified=False, spike="base_other")
    assert cleared_at(loaded).timestamp() == 1_000_001_000.0
    cut = run_folder(tmp_path, "base_2026-12-06", started=2000.0, verified=None)
    refused("base_2026-12-06 does not say that production is back")
    assert cleared_at(loaded, good).timestamp() == 1_000_001_000.0
    (cut / "restore.json").write_text('{"verified": false, "ended": 5}')
    refused("does not say that production is back")
    (cut / "restored-by-recover.json").write_text('{"verified": true, "ended": 1000003000}')
    assert cleared_at(loaded).timestamp() == 1_000_003_000.0
    (tmp_path / "_iteration_log" / "base_2026-12-07").mkdir()
    refused("the record of .*base_2026-12-07 cannot be read")


@pytest.mark.parametrize(
    ("window", "words", "said"),
    [
        ('{closes: "2026-01-01T00:00:00Z"}', (), "the window closed at 2026-01-01"),
        ("{calendars: [{name: c, file: none.ics, rule: never during}]}", (), "calendar c is not known"),
        ('{closes: "2100-01-01T00:00:00Z"}', ("--at", "2100-01-02T00:00:00Z"), "the window closed at 2100-01-01"),
    ],
)
def test_a_request_without_a_slot_is_refused_and_not_sent(
    room: Room, tmp_path: Path, window: str, words: tuple[str, ...], said: str
) -> None:
    (tmp_path / "spike.yaml").write_text(f"{BASE}\nagreement: {{announce_env: [ROOM]}}\nwindow: {window}\n")
    done = audition(tmp_path, {"ROOM": room.address}, "announce", "spike.yaml", "--send", *words)
    assert (done.returncode, done.stdout, room.got) == (5, "", []), done.stderr
    assert said in done.stderr


def test_a_real_run_is_announced_and_its_records_do_not_hold_the_address(room: Room, tmp_path: Path) -> None:
    class Announced(World):
        def spike_text(self) -> str:
            return super().spike_text() + "agreement: {call: Alex, announce_env: [ROOM]}\n"

    with Announced(tmp_path / "world") as here:
        here.env["ROOM"] = room.address
        done = here.audition("run", str(here.spike))
        assert done.returncode in (0, 3, 4), done.stderr
        here.wait(here.quiet, 60, "the guard is still busy")
        assert here.problems() == []
        assert [title.split(":")[0] for title in room.titles()] == ["Begins", "All clear"]
        assert "Verdict: " in room.got[1]["message"]
        kept = [path for path in here.folder.rglob("*") if path.is_file() and TOKEN.encode() in path.read_bytes()]
        assert kept == []
        assert TOKEN not in done.stdout + done.stderr
