"""What those who share the GPUs are told."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from audition.report.announcing import Announcement, Times, all_clear, begun, ended, not_back, request, trouble
from audition.spike.model import Spike
from audition.spike.parse import parse_spike
from audition.units import NoData
from spike.spike_texts import BASE

START, END = datetime(2026, 12, 5, 21, tzinfo=UTC), datetime(2026, 12, 6, 3, tzinfo=UTC)
PEOPLE = """
agreement:
  shared_with: [{name: Vision project, contact: vision@example.org}, {name: Robin}]
  call: Alex, +43 1 555 0100
window: {zone: Europe/Vienna}
"""


def spike(extra: str = PEOPLE) -> Spike:
    return parse_spike(BASE + extra, "spike.yaml")


def test_the_request_says_what_when_and_whom_to_call() -> None:
    here = spike()
    made = request(here, Times(START, END))
    assert made.title == "Request: base, 2026-12-05 22:00 +0100 to 2026-12-06 04:00 +0100"
    assert made.body.startswith(f"# {made.title}\n\n")
    for text in (
        f"- Why: {here.question}\n",
        f"- What goes down: {here.production.endpoint.model} at {here.production.endpoint.url}",
        "- From: 2026-12-05 22:00 +0100\n- Until at the latest: 2026-12-06 04:00 +0100\n",
        "- The GPUs are shared with: Vision project (vision@example.org); Robin\n",
        "- Whom to call: Alex, +43 1 555 0100\n",
        here.candidate.name,
    ):
        assert text in made.body
    assert not made.bad


def test_what_is_not_agreed_is_said_and_not_made_up() -> None:
    bare = spike("")
    made = request(bare, Times(NoData("to be agreed"), NoData("to be agreed")))
    assert made.title == "Request: base, time to be agreed"
    assert "- From: to be agreed\n- Until at the latest: to be agreed\n" in made.body
    assert "Whom to call: not said" in made.body
    assert "shared with" not in made.body
    assert request(bare, Times(START, NoData("no end"))).title == "Request: base, from 2026-12-05 21:00 +0000"
    assert request(bare, Times(NoData("no begin"), END)).title == "Request: base, until 2026-12-06 03:00 +0000"


@pytest.mark.parametrize(
    ("made", "title", "said", "bad"),
    [
        (lambda s: all_clear(s, END), "All clear: base", "runs as before, verified at 2026-12-06 04:00 +0100", False),
        (
            lambda s: begun(s, Times(START, END)),
            "Begins: base, 2026-12-05 22:00 +0100 to 2026-12-06 04:00 +0100",
            "goes down",
            False,
        ),
        (
            lambda s: trouble(s, "SIGTERM received"),
            "Cut short: base",
            "SIGTERM received. Production is being brought back now.",
            True,
        ),
        (lambda s: not_back(s, ["no answer"]), "PRODUCTION IS NOT BACK: base", "- no answer", True),
        (
            lambda s: ended(s, "NO-GO", ["too slow"], back=True, at=END),
            "All clear: base, NO-GO",
            "Verdict: NO-GO.\n\n- too slow",
            False,
        ),
        (lambda s: ended(s, "GO", [], back=False, at=END), "PRODUCTION IS NOT BACK: base, GO", "PRODUCTION IS NOT BACK.", True),
        (lambda s: ended(s, "none", ["given up"], back=None, at=END), "Nothing was touched: base, no verdict", "- given up", False),
    ],
)
def test_the_other_messages(made: Any, title: str, said: str, bad: bool) -> None:
    message: Announcement = made(spike())
    assert (message.title, message.bad) == (title, bad)
    assert said in message.body
    assert "Whom to call: Alex, +43 1 555 0100" in message.body
    assert "Whom to call" not in made(spike("")).body
