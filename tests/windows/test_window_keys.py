"""The keys of the window and the agreement: what is refused, with its line, and what is not shown."""

from __future__ import annotations

import pytest

from audition.spike.parse import parse_spike
from audition.spike.problems import BadSpike
from spike.spike_texts import BASE

ROW = "name: classes, file: c.ics, rule: never during"
WRONG = {
    "an unknown zone": ("window: {zone: Europe/Berln}", "window.zone", "expected an IANA time zone such as Europe/Berlin"),
    "a zone that is a folder": ("window: {zone: Europe}", "window.zone", "expected an IANA time zone"),
    "a zone that is a path": ("window: {zone: ../../etc/passwd}", "window.zone", "expected an IANA time zone"),
    "an instant at the end of time": (
        'window: {closes: "9999-12-31T23:59:59-14:00"}', "window.closes", "expected an instant in the years 2000 to 2199"),
    "an instant at the beginning of time": (
        'window: {opens: "0001-01-01T00:00:00+14:00"}', "window.opens", "expected an instant in the years 2000 to 2199"),
    "an instant of YAML at the end of time": (
        "window: {closes: 9999-12-31T23:59:59Z}", "window.closes", "expected an instant in the years 2000 to 2199"),
    "no source": ("window: {calendars: [{name: a, rule: never during}]}", "window.calendars[0]", "give exactly one of"),
    "two sources": (f"window: {{calendars: [{{{ROW}, url_env: X}}]}}", "window.calendars[0]", "give exactly one of"),
    "an unknown rule": ("window: {calendars: [{name: a, file: b, rule: sometimes}]}", "window.calendars[0].rule", "never during"),
    "another kind of address": (
        'window: {calendars: [{name: a, url: "file:///etc/passwd", rule: never during}]}', "window.calendars[0].url", "begins with http://"),
    "an address with a password": (
        'window: {calendars: [{name: a, url: "https://me:hunter2@x.org/c", rule: never during}]}', "window.calendars[0].url",
        "belongs into a variable: use `url_env`"),
    "a private address in place of a variable": (
        "window: {calendars: [{name: a, url_env: abc123hunter2hunter2, rule: never during}]}", "window.calendars[0].url_env",
        "expected the name of a variable"),
    "a pattern that is none": (
        f"window: {{calendars: [{{{ROW}, match: {{summary: '(exam'}}}}]}}", "match.summary", "expected a regular"),
    "two of one name": (f"window: {{calendars: [{{{ROW}}}, {{{ROW}}}]}}", "window", "two calendars are called `classes`"),
    "an address to announce to in place of a variable": (
        'agreement: {announce_env: ["json://hunter2@127.0.0.1"]}', "agreement.announce_env[0]", "expected the name of a variable"),
    "an unknown key": ("agreement: {cal: Alex}", "agreement.cal", "did you mean `call`?"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_wrong_keys_are_named_with_their_place(case: str) -> None:
    text, path, said = WRONG[case]
    with pytest.raises(BadSpike) as caught:
        parse_spike(f"{BASE}\n{text}\n", "spike.yaml")
    [problem] = caught.value.problems
    assert path in problem.path
    assert said in problem.render("spike.yaml")
    assert "hunter2" not in caught.value.what
