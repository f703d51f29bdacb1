"""The slot of a run: calendars from files and a loopback server, waiting with a clock that is set, the command itself."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from audition.errors import BadInput, Refused
from audition.run.calendar_source import Unreachable, fetch, read_calendars, read_file
from audition.run.slot import Clock, Countdown, find_slot, in_slot, parse_at, require_slot, wait_for
from audition.spike.parse import LoadedSpike, load_spike
from audition.spike.window import Window
from audition.units import NoData
from audition.windows.ics import Calendar
from audition.windows.slots import NoSlot, Slot

EMPTY = "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nEND:VCALENDAR\r\n"
SPIKE = """\
audition: 1
name: slot
question: Is there a slot?
arms:
  - {{name: prod, role: production, engine: {{kind: process, command: "true"}}, endpoint: {{url: "http://127.0.0.1:9", model: m}}}}
  - {{name: cand, role: candidate, engine: {{kind: process, command: "true"}}, endpoint: {{url: "http://127.0.0.1:9", model: m}}}}
workloads: [{{name: one, users: 1, requests: 1}}]
gates: [{{metric: failure_share, workload: one, at_most: 0}}]
restore: {{slowest_cold_start: 40s}}
window: {window}
"""
NEEDED = timedelta(seconds=120)  # 40 s x 1.5 + 60 s


def exam(start: datetime, end: datetime, summary: str = "Exam") -> str:
    lines = [f"DTSTART:{start.astimezone(UTC):%Y%m%dT%H%M%SZ}", f"DTEND:{end.astimezone(UTC):%Y%m%dT%H%M%SZ}"]
    return EMPTY.replace("END:VC", "\r\n".join(["BEGIN:VEVENT", "UID:1", f"SUMMARY:{summary}", *lines, "END:VEVENT", "END:VC"]))


def loaded(folder: Path, window: str) -> LoadedSpike:
    path = folder / "spike.yaml"
    path.write_text(SPIKE.format(window=window))
    return load_spike(path)


@pytest.fixture
def serve() -> Iterator[Callable[..., str]]:
    """Starts loopback servers: (status, headers, body) or a function that answers by itself; gives the address."""
    servers: list[ThreadingHTTPServer] = []

    def start(answer: Callable[[BaseHTTPRequestHandler], None] | str = EMPTY, *, status: int = 200, **headers: str) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if callable(answer):
                    answer(self)
                    return
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name.replace("_", "-"), value)
                self.end_headers()
                self.wfile.write(answer.encode())

            def log_message(self, format: str, *args: Any) -> None:
                """Silent."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        servers.append(server)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}/private-token/c.ics"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


# -- fetching -------------------------------------------------------------------------------------------------------------


def test_a_calendar_is_fetched_anew_each_time(serve: Callable[..., str]) -> None:
    seen: list[dict[str, str]] = []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        seen.append(dict(handler.headers))
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(f"answer {len(seen)}".encode())

    address = serve(answer)
    assert [fetch(address), fetch(address.replace("://", "://user:p%40ss@"))] == ["answer 1", "answer 2"]
    assert seen[0]["Cache-Control"] == "no-cache"
    assert "Authorization" not in seen[0]
    assert seen[1]["Authorization"] == "Basic dXNlcjpwQHNz"


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"status": 404}, "answered 404 Not Found"),
        ({"status": 500}, "answered 500 Internal Server Error"),
        ({"Age": "7200"}, "answered with a copy that is 2 h 00 min old"),
        ({"Warning": '110 - "Response is Stale"'}, "answered with an old copy that it could not renew"),
        ({"answer": "x" * 2000}, "answered with more than 1 KiB"),
        ({"status": 302, "Location": "file:///etc/passwd"}, "answered 302 Found"),
        ({"status": 302, "Location": "ftp://127.0.0.1/c.ics"}, "it redirects from http to ftp"),
        ({"Content_Length": "5000", "answer": "BEGIN:VCALENDAR"}, "broke off, 4985 bytes before the end"),
    ],
)
def test_answers_that_are_no_calendar(serve: Callable[..., str], keys: dict[str, Any], reason: str) -> None:
    with pytest.raises(Unreachable, match=reason) as caught:
        fetch(serve(**keys), most_bytes=1024, limit_s=5)
    assert "private-token" not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("http://127.0.0.1:9#sekretpw99@host/c.ics", "a # before an @"),
        ("http://me:x@sekretpw99.invalid#y@host/c.ics", "a # before an @"),
        ("http://me:x@sekretpw99.invalid/y@host/c.ics", "its server"),
        ("http://me:sekretpw99/y@host/c.ics", "its server"),
        ("http://me:x@sekretpw99.invalid?y@host/c.ics", "its server"),
    ],
)
def test_what_may_be_part_of_a_password_is_not_shown_as_a_host(address: str, said: str) -> None:
    with pytest.raises(Unreachable, match=said) as caught:
        fetch(address, limit_s=5)
    assert "sekretpw99" not in str(caught.value)
    assert "me" not in str(caught.value).split()


def test_a_user_that_is_no_utf8_is_sent_as_it_is(serve: Callable[..., str], tmp_path: Path) -> None:
    seen: list[str] = []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        seen.append(handler.headers["Authorization"])
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(EMPTY.encode())

    address = serve(answer)
    window = Window.model_validate({"calendars": [{"name": "a", "url_env": "A", "rule": "never during"}]})
    for user, sent in ((os.fsdecode(b"m\xfc:p"), b"m\xfc:p"), ("m%FC:p", b"m\xfc:p"), ("m\u00fc:p", b"m\xc3\xbc:p")):
        found = read_calendars(window, tmp_path, {"A": address.replace("://", f"://{user}@")})
        assert isinstance(found["a"], Calendar), found
        assert base64.b64decode(seen.pop().removeprefix("Basic ")) == sent


def test_a_redirect_is_followed_without_the_password(serve: Callable[..., str]) -> None:
    seen: list[dict[str, str]] = []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        seen.append(dict(handler.headers))
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(EMPTY.encode())

    there = serve(answer)
    here = serve(status=302, Location=there)
    assert fetch(here.replace("://", "://user:pass@")) == EMPTY
    assert "Authorization" not in seen[0]


def test_nobody_answers(free_port: Callable[[], int]) -> None:
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1 cannot be reached"):
        fetch(f"http://127.0.0.1:{free_port()}/private-token", limit_s=5)
    for address in ("file:///etc/passwd", "c.ics", "http://", "http://[::1/x"):
        with pytest.raises(Unreachable, match="address"):
            fetch(address)


def test_a_server_that_drips_is_given_up(serve: Callable[..., str], tmp_path: Path) -> None:
    over = threading.Event()

    def drip(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        while not over.wait(0.05):
            handler.wfile.write(b"X")

    address = serve(drip)
    window = Window.model_validate({"calendars": [{"name": "slow", "url": address, "rule": "never during"}]})
    found = read_calendars(window, tmp_path, {}, limit_s=0.5)
    over.set()
    assert found == {"slow": NoData("no complete answer within 0.5 s")}


def test_all_kinds_of_sources(serve: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "good.ics").write_text(EMPTY)
    (tmp_path / "latin.ics").write_bytes("Prüfung".encode("latin-1"))
    (tmp_path / "page.ics").write_text("<html>")
    rows = {
        "good": {"file": "good.ics"}, "absolute": {"file": str(tmp_path / "good.ics")}, "served": {"url": serve()},
        "private": {"url_env": "PRIVATE"}, "unset": {"url_env": "UNSET"}, "absent": {"file": "absent.ics"}, "folder": {"file": "."},
        "latin": {"file": "latin.ics"}, "page": {"file": "page.ics"}, "nobody": {"file": "~nobody-of-that-name/c.ics"},
    }  # fmt: skip
    window = Window.model_validate({"calendars": [{"name": name, "rule": "never during", **row} for name, row in rows.items()]})
    found = read_calendars(window, tmp_path, {"PRIVATE": serve()})
    reasons = {name: one.reason for name, one in found.items() if isinstance(one, NoData)}
    assert {name for name, one in found.items() if isinstance(one, Calendar)} == {"good", "absolute", "served", "private"}
    assert reasons["unset"] == "the variable UNSET, which holds its address, is not set"
    assert reasons["absent"] == f"there is no file {tmp_path / 'absent.ics'}"
    assert reasons["folder"].endswith("is no regular file")
    assert reasons["latin"] == "it is no UTF-8 text (byte 2)"
    assert reasons["page"] == "it does not begin with BEGIN:VCALENDAR (it is a web page)"
    assert "home folder" in reasons["nobody"]


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Unreachable, match="is no regular file"):
        read_file(tmp_path / "pipe")
    (tmp_path / "long.ics").write_text("x" * 2000)
    with pytest.raises(Unreachable, match="is longer than 1 KiB"):
        read_file(tmp_path / "long.ics", most_bytes=1024)


# -- the slot -------------------------------------------------------------------------------------------------------------


def test_the_end_of_the_slot_closes_the_window(tmp_path: Path) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    spike = loaded(tmp_path, "{calendars: [{name: classes, file: c.ics, rule: never during}]}")
    (tmp_path / "c.ics").write_text(exam(now + timedelta(hours=2), now + timedelta(hours=3)))
    slot = require_slot(spike, now.timestamp())
    assert slot.end == now + timedelta(hours=2)
    assert in_slot(spike, slot).spike.window.closes == slot.end
    earlier = now + timedelta(hours=1)
    closing = loaded(
        tmp_path, f'{{closes: "{earlier.isoformat()}", calendars: [{{name: classes, file: c.ics, rule: never during}}]}}'
    )
    assert in_slot(closing, require_slot(closing, now.timestamp())).spike.window.closes == earlier
    free = loaded(tmp_path, "{}")
    assert in_slot(free, require_slot(free, now.timestamp())).spike.window.closes is None


def test_a_slot_in_which_production_could_not_be_brought_back_is_refused(tmp_path: Path) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    spike = loaded(tmp_path, "{zone: UTC, calendars: [{name: classes, file: c.ics, rule: never during}]}")
    (tmp_path / "c.ics").write_text(exam(now + NEEDED, now + timedelta(hours=3)))
    with pytest.raises(
        Refused, match=r"no slot is free now: the free slot is too short: Exam \(calendar classes\) is on, "
    ) as caught:
        require_slot(spike, now.timestamp())
    following = (now + timedelta(hours=3)).isoformat()
    assert caught.value.next_step == f"audition run {tmp_path / 'spike.yaml'} --at {following}"
    assert caught.value.production == "untouched"
    (tmp_path / "c.ics").write_text(exam(now + NEEDED + timedelta(seconds=1), now + timedelta(hours=3)))
    assert require_slot(spike, now.timestamp()).end == now + NEEDED + timedelta(seconds=1)


def test_times_without_a_zone_are_bad_input(tmp_path: Path) -> None:
    spike = loaded(tmp_path, "{calendars: [{name: classes, file: c.ics, rule: never during}]}")
    (tmp_path / "c.ics").write_text(exam(datetime.now(UTC), datetime.now(UTC)).replace("Z\r\n", "\r\n"))
    with pytest.raises(BadInput, match="calendar `classes` has times without a time zone, such as those of 'Exam'"):
        find_slot(spike, datetime.now(UTC))


# -- --at -----------------------------------------------------------------------------------------------------------------


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


@pytest.mark.parametrize(
    ("text", "now", "expected"),
    [
        ("22:00", "2026-12-01T20:00:00+01:00", "2026-12-01T22:00:00+01:00"),
        ("22:00", "2026-12-01T22:00:00+01:00", "2026-12-02T22:00:00+01:00"),
        ("22:00", "2026-12-01T22:00:30+01:00", "2026-12-02T22:00:00+01:00"),
        ("0:30", "2026-12-01T23:59:00+01:00", "2026-12-02T00:30:00+01:00"),
        ("00:00:10", "2026-12-01T23:59:00+01:00", "2026-12-02T00:00:10+01:00"),
        ("02:30", "2026-03-28T20:00:00+01:00", "2026-03-29T03:30:00+02:00"),  # does not exist that night
        ("02:30", "2026-10-24T20:00:00+02:00", "2026-10-25T02:30:00+02:00"),  # exists twice
        ("02:30", "2026-10-25T02:45:00+02:00", "2026-10-26T02:30:00+01:00"),
        ("22:00", "2026-10-24T23:00:00+02:00", "2026-10-25T22:00:00+01:00"),
        ("2026-12-05T22:00:00-05:00", "2026-12-01T20:00:00+01:00", "2026-12-05T22:00:00-05:00"),
        ("2026-12-05 22:00Z", "2026-12-01T20:00:00+01:00", "2026-12-05T22:00:00+00:00"),
    ],
)
def test_what_at_means(text: str, now: str, expected: str) -> None:
    assert parse_at(text, "Europe/Berlin", at(now)).timestamp() == at(expected)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("24:00", "is no time"), ("soon", "is no time"), ("22", "is no time"), ("", "is no time"),
        ("2026-12-05T22:00:00", "needs a time zone"), ("2026-11-05T22:00:00Z", "has passed"),
        ("9999-12-31T23:59:59-14:00", "outside of the years 2000 to 2199"), ("0001-01-01T00:00:00+14:00", "outside of the years"),
        ("2500-01-01T00:00:00Z", "outside of the years 2000 to 2199"),
    ],
)  # fmt: skip
def test_times_that_are_refused(text: str, said: str) -> None:
    with pytest.raises(BadInput, match=said) as caught:
        parse_at(text, None, at("2026-12-01T20:00:00+01:00"))
    assert caught.value.next_step


class Hands:
    """A clock in the hands of the test: sleeping takes no time, and ``steps`` sets the wall clock at a moment of the steady one."""

    def __init__(self, wall: float, steps: dict[int, float] | None = None) -> None:
        self.now, self.offset, self.steps = 0.0, wall, dict(steps or {})

    def sleep(self, seconds: float) -> None:
        assert 0 < seconds <= 1
        self.now += seconds
        for moment in [m for m in self.steps if m <= self.now]:
            self.offset += self.steps.pop(moment)

    def clock(self) -> Clock:
        return Clock(lambda: self.now + self.offset, lambda: self.now, self.sleep)


def wait(
    folder: Path, hands: Hands, until: float, look: Callable[[datetime], Slot | NoSlot]
) -> tuple[Slot, list[float], list[str]]:
    told: list[float] = []
    warned: list[str] = []
    wanted = datetime.fromtimestamp(until, UTC)
    slot = wait_for(wanted, look, loaded=loaded(folder, "{}"), tell=told.append, warn=warned.append, clock=hands.clock())
    return slot, told, warned


def free(instant: datetime) -> Slot:
    return Slot(instant, None)


def test_waiting_counts_down_and_looks_again_at_the_end(tmp_path: Path) -> None:
    asked: list[float] = []

    def look(instant: datetime) -> Slot:
        asked.append(instant.timestamp())
        return free(instant)

    slot, told, warned = wait(tmp_path, Hands(1000.5), 2500.0, look)
    assert slot.start.timestamp() == 2500.0
    assert told[0] == 1499.5
    assert told == sorted(told, reverse=True)
    assert asked == [2500.0, 2500.0, 2500.0, 2500.0], "at once, after 600 and 1200 s, at the end"
    assert warned == []


@pytest.mark.parametrize(("steps", "steady"), [({100: 300.0}, 200), ({100: -300.0}, 800), ({100: 5000.0}, 100)])
def test_a_clock_that_is_set_changes_the_wait_and_not_the_instant(tmp_path: Path, steps: dict[int, float], steady: float) -> None:
    hands = Hands(1000.0, steps)
    slot, _, warned = wait(tmp_path, hands, 1500.0, free)
    assert hands.now == pytest.approx(steady, abs=1)
    assert slot.start.timestamp() >= 1500.0, "the last look is for the present time"
    assert len(warned) == 1
    assert "the clock was set by" in warned[0]


def test_a_slot_that_is_lost_ends_the_wait(tmp_path: Path) -> None:
    hands = Hands(1000.0)

    def look(instant: datetime) -> Slot | NoSlot:
        return free(instant) if hands.now < 500 else NoSlot("Exam is on")

    with pytest.raises(Refused, match="the slot was lost while waiting for it: Exam is on") as caught:
        wait(tmp_path, hands, 9000.0, look)
    assert 600 <= hands.now < 602, "not only at the end"
    assert caught.value.production == "untouched"


def test_a_calendar_that_cannot_be_read_meanwhile_is_warned_of_and_at_the_end_it_counts(tmp_path: Path) -> None:
    hands = Hands(1000.0)

    def look(instant: datetime, broken: Callable[[], bool]) -> Slot | NoSlot:
        return NoSlot("calendar c is not known", unknown=True) if broken() else free(instant)

    _, _, warned = wait(tmp_path, hands, 3000.0, lambda instant: look(instant, lambda: 500 < hands.now < 1000))
    assert len(warned) == 1
    assert "calendar c is not known; it is asked again, and must be known at " in warned[0]
    hands = Hands(1000.0)
    with pytest.raises(Refused, match="the slot was lost while waiting for it: calendar c is not known"):
        wait(tmp_path, hands, 3000.0, lambda instant: look(instant, lambda: hands.now > 1900))


def test_no_slot_at_that_time_is_said_at_once(tmp_path: Path) -> None:
    hands = Hands(1000.0)
    with pytest.raises(Refused, match=r"no slot is free at 1970-01-01 00:33:20 \+0000: Exam is on"):
        wait(tmp_path, hands, 2000.0, lambda instant: NoSlot("Exam is on"))
    assert hands.now == 0


def test_the_countdown_in_a_file_is_a_line_now_and_then() -> None:
    out = StringIO()
    show = Countdown("22:00", out)
    for left in range(4000, 0, -1):
        show(float(left))
    show.end()
    lines = out.getvalue().splitlines()
    assert lines[0] == "waiting for 22:00: 1:06:40 left"
    assert [line.split()[-2] for line in lines[1:]] == [
        "0:59:59", "0:30:00", "0:10:00", "0:05:00", "0:01:00", "0:00:30", "0:00:10", "0:00:05",
    ]  # fmt: skip


# -- the command ----------------------------------------------------------------------------------------------------------


def audition(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "audition", *arguments], cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL, env={**os.environ, "AUDITION_STATE": str(folder / "state")}, start_new_session=True,
    )  # fmt: skip


def untouched(folder: Path) -> bool:
    return not [*folder.glob("_iteration_log/*"), *folder.glob("state/runs/*")]


def test_the_command_gives_up_when_an_exam_appears_while_it_waits(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    loaded(tmp_path, "{zone: UTC, calendars: [{name: classes, file: c.ics, rule: never during}]}")
    (tmp_path / "c.ics").write_text(EMPTY)
    process = audition(tmp_path, "run", "spike.yaml", "--at", (now + timedelta(seconds=12)).isoformat())
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("waiting for "), line
    (tmp_path / "c.ics").write_text(exam(now, now + timedelta(hours=3)))
    said, _ = process.communicate(timeout=100)
    assert process.returncode == 5, said
    assert "refused: the slot was lost while waiting for it: Exam (calendar classes) is on" in said
    assert "production: untouched" in said
    assert untouched(tmp_path)


def test_ctrl_c_ends_the_wait(tmp_path: Path) -> None:
    loaded(tmp_path, "{}")
    process = audition(tmp_path, "run", "spike.yaml", "--at", (datetime.now(UTC) + timedelta(hours=5)).isoformat())
    assert process.stdout is not None
    assert process.stdout.readline().startswith("waiting for ")
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=100)
    assert process.returncode == 130, said
    assert said.strip() == "aborted"
    assert untouched(tmp_path)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_wait_that_is_given_up_is_one_json_document(tmp_path: Path, number: signal.Signals) -> None:
    loaded(tmp_path, "{}")
    process = audition(tmp_path, "run", "spike.yaml", "--json", "--at", (datetime.now(UTC) + timedelta(hours=5)).isoformat())
    assert process.stdout is not None
    assert process.stdout.readline().startswith("waiting for ")
    process.send_signal(number)
    said, _ = process.communicate(timeout=100)
    assert process.returncode == 130, said
    body = json.loads(said[said.index("{") : said.rindex("}") + 1])
    assert (body["error"], body["exit_code"], body["production"]) == ("aborted", 130, "see `audition status`")
    assert untouched(tmp_path)


def test_what_blocks_whatever_the_hour_is_said_before_the_wait(tmp_path: Path) -> None:
    loaded(tmp_path, "{}")
    path = tmp_path / "spike.yaml"
    path.write_text(path.read_text().replace('command: "true"', "command: ./no-such-server"))
    process = audition(tmp_path, "run", "spike.yaml", "--at", (datetime.now(UTC) + timedelta(hours=5)).isoformat())
    said, _ = process.communicate(timeout=100)
    assert process.returncode == 5, said
    assert "waiting for" not in said
    assert untouched(tmp_path)


def test_a_run_outside_of_a_free_slot_is_refused(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    loaded(tmp_path, "{calendars: [{name: classes, file: c.ics, rule: never during}]}")
    for text, said in (
        (exam(now - timedelta(hours=1), now + timedelta(hours=1)), "Exam (calendar classes) is on"),
        (
            exam(now, now + timedelta(days=9)).replace("DTEND", "RRULE:FREQ=DAILY;UNTIL=P1D\r\nDTEND"),
            "Exam (it cannot be understood: UNTIL is no date or time)",
        ),
        ("<html>Sign in</html>", "calendar classes is not known, and unknown is not free: it does not begin with BEGIN:VCALENDAR"),
    ):
        (tmp_path / "c.ics").write_text(text)
        process = audition(tmp_path, "run", "spike.yaml")
        out, _ = process.communicate(timeout=100)
        assert process.returncode == 5, out
        assert said in out
        assert untouched(tmp_path)
