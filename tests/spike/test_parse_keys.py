"""Keys and values of the wrong kind: plain words, key path, line, and the nearest thing that would be right."""

import pytest

from audition.errors import BadInput
from audition.spike.parse import parse_spike
from audition.spike.problems import BadSpike
from spike.spike_texts import BASE, changed, only_problem, problems_of

# what to change, into what, line, key path, text, hint
WRONG = [
    ("users: 16", "users: three", 18, "workloads[1].users", "expected a whole number, found the text 'three'", ""),
    ("users: 16", 'users: "3"', 18, "workloads[1].users", "expected a whole number, found the text '3'", "write it without quotes"),
    ("users: 16", "users: 1.5", 18, "workloads[1].users", "expected a whole number, found the number 1.5", ""),
    ("users: 16", "users: true", 18, "workloads[1].users", "expected a whole number, found true", ""),
    (
        "users: 16", "users:", 18, "workloads[1].users", "expected a whole number, found nothing",
        "leave the key out to take its default, or give it a value",
    ),
    ("users: 16", "users: [16]", 18, "workloads[1].users", "expected a whole number, found a list", ""),
    ("users: 16", "users: 0", 18, "workloads[1].users", "expected 1 or more, found the whole number 0", ""),
    ("users: 16, requests: 64", "users: 5000, requests: 9000", 18, "workloads[1].users",
        "expected 4096 or less, found the whole number 5000", ""),
    ("at_least: 700", "at_least: lots", 20, "gates[0].at_least", "expected a number, found the text 'lots'", ""),
    ("at_least: 700", "at_least: true", 20, "gates[0].at_least", "expected a number, found true", ""),
    ("files: [b.yml]", "files: [3]", 13, "arms[1].engine.files[0]",
        "expected a text, found the whole number 3", 'put it in quotes: "3"'),
    (
        "files: [b.yml]", "files: b.yml", 13, "arms[1].engine.files", "expected a list, found the text 'b.yml'",
        "write a list: [a, b], or one `- ` line for each entry",
    ),
    ("files: [b.yml]", "files: []", 13, "arms[1].engine.files", "expected at least one entry, found none", ""),
    ("name: base", "name: 2026", 2, "name", "expected a text, found the whole number 2026", 'put it in quotes: "2026"'),
    (
        "name: base", "name: my spike", 2, "name",
        "expected a short name (letters, digits, dots, hyphens and underscores; at most 63), found the text 'my spike'", "",
    ),
    ("audition: 1", "audition: 2", 1, "audition", "expected 1, found the whole number 2", ""),
    ("audition: 1", "audition: true", 1, "audition", "expected 1, found true", ""),
    ("question: Is the candidate faster?", 'question: ""', 3, "question", "expected a text, found an empty one", ""),
    (
        "role: candidate", "role: candidat", 10, "arms[1].role",
        "expected one of production, candidate, control, found the text 'candidat'", "did you mean `candidate`?",
    ),
    (
        "kind: compose\n", "kind: dokcer-compose\n", 12, "arms[1].engine.kind",
        "expected one of process, compose, simulated, found the text 'dokcer-compose'", "did you mean `compose`?",
    ),
    (
        "      kind: compose\n", "", 11, "arms[1].engine.kind", "the key is missing", "kind: process, compose, simulated",
    ),
    (
        "      service: vllm\n", "", 11, "arms[1].engine.service", "the key is missing",
        "service: The service that is the server. (text)",
    ),
    ("      service: vllm\n", "      service: vllm\n      fils: [c]\n", 15, "arms[1].engine.fils",
        "unknown key `fils`", "did you mean `files`?"),
    ("name: base", "name: base\nqestion: x", 3, "qestion", "unknown key `qestion`", "did you mean `question`?"),
    ("name: base", 'name: base\n"a b": x', 3, "['a b']", "unknown key `a b`", ""),
    (
        'url: "http://127.0.0.1:5002", model: m}', 'url: "http://127.0.0.1:5002/v1", model: m}', 8, "arms[0].endpoint.url",
        "expected an address without a path, found the text 'http://127.0.0.1:5002/v1'", "for example http://127.0.0.1:5002",
    ),
    (
        'url: "http://127.0.0.1:5002", model: m}', "url: localhost, model: m}", 8, "arms[0].endpoint.url",
        "expected an address without a path, found the text 'localhost'", "for example http://127.0.0.1:5002",
    ),
    (
        "requests: 64}", "requests: 64, deadline: soon}", 18, "workloads[1].deadline",
        "expected a duration such as 90s, 5m or 1h30m, found the text 'soon'", "",
    ),
    (
        "requests: 64}", "requests: 64, deadline: -5}", 18, "workloads[1].deadline",
        "expected a duration of 0 seconds or more, found the whole number -5", "",
    ),
    (
        "requests: 64}", "requests: 64, deadline: [5]}", 18, "workloads[1].deadline",
        "expected a duration such as 90s, 5m or 1h30m, found a list", "",
    ),
    (
        "requests: 64}", "duration: 1m, requests: 64}", 18, "workloads[1]",
        "give exactly one of `requests`, `duration` and `trace`", "",
    ),
    ("probe: canary}", "shadow: true}", 21, "gates[1]", "give exactly one of `metric`, `probe`, `all` and `any`", ""),
    (", at_least: 700}", "}", 20, "gates[0]", "a metric gate needs `at_least` or `at_most`", ""),
    ("workload: many, ", "", 20, "gates[0]", "metric `output_tok_s` needs a `workload`", ""),
    ("at_least: 700}", "at_least: 700, stat: p 95}", 20, "gates[0].stat",
     "expected one of mean, p50, p90, p95, p99, found the text 'p 95'",
     "did you mean `p95`?"),
    ("name: base", "name: base\nwindow: {opens: 1320}", 3, "window.opens",
     "expected an instant such as 2026-12-01T22:00:00+01:00, found the whole number 1320", ""),
    ("name: base", "name: base\nwindow: {opens: tonight}", 3, "window.opens",
     "expected an instant such as 2026-12-01T22:00:00+01:00, found the text 'tonight'", ""),
    ("name: base", "name: base\nwindow: {opens: 2026-12-01T22:00:00}", 3, "window",
     "`opens` needs a time zone, e.g. 2026-12-01T22:00:00+01:00", ""),
    ("name: base", "name: base\ndrain:", 3, "drain", "expected a mapping, found nothing",
     "leave the key out to take its default, or give it a value"),
    ("name: base", "name: base\ndrain: {close: 'stop', open: 'it''s'}", 3, "drain.open",
        "no closing quotation: found the text \"it's\"", ""),
    ("name: base", "name: base\ndrain: {close: stop}", 3, "drain", "give both `close` and `open`, or neither", ""),
    ("name: base", "name: base\nlegs: []", 3, "legs", "expected at least one entry, found none", ""),
    ("name: base", "name: base\nlegs: [1]", 3, "legs[0]", "expected a mapping, found the whole number 1", ""),
    ("  - {name: sane, probe: canary}", "  - {name: sane, all: []}", 21, "gates[1].all",
        "expected at least one entry, found none", ""),
    ("files: [a.yml]", "files: [a.yml], env_files: {a: 1}", 7, "arms[0].engine.env_files", "expected a list, found a mapping", ""),
]  # fmt: skip


@pytest.mark.parametrize("case", WRONG, ids=[f"{c[3]}: {c[4]}"[:70] for c in WRONG])
def test_a_wrong_value_is_named_in_plain_words(case: tuple[str, str, int, str, str, str]) -> None:
    old, new, line, path, text, hint = case
    problem = only_problem(changed(old, new))
    assert (problem.line, problem.path, problem.text) == (line, path, text)
    if hint:
        assert problem.hint == hint


def test_what_cannot_be_nearest_is_listed() -> None:
    problem = only_problem(changed("role: candidate", "role: zzz"))
    assert problem.hint == "valid here: production, candidate, control"


def test_all_errors_are_reported_at_once_in_the_order_of_the_lines() -> None:
    text = changed("users: 16", "users: three")
    text = changed("name: base", "nam: base", text)
    text = changed("files: [b.yml]", "files: [no]", text)
    text = changed("metric: output_tok_s", "metric: outputtoks", text)
    text = changed("role: candidate", "role: candidate\n    role: control", text)
    found = [(p.line, p.path) for p in problems_of(text)]
    assert found == [
        (1, "name"),
        (2, "nam"),
        (11, "arms[1].role"),
        (14, "arms[1].engine.files[0]"),
        (19, "workloads[1].users"),
        (21, "gates[0].metric"),
    ]


def test_the_message_is_readable_on_a_terminal() -> None:
    text = changed("users: 16", "users: three", changed("name: base", "name: base\nprobs: [canary]"))
    with pytest.raises(BadSpike) as caught:
        parse_spike(text, "my/spike.yaml")
    assert str(caught.value) == (
        "my/spike.yaml has 2 errors:\n"
        "my/spike.yaml:3: probs: unknown key `probs`\n"
        "    3 | probs: [canary]\n"
        "    did you mean `probes`?\n"
        "my/spike.yaml:19: workloads[1].users: expected a whole number, found the text 'three'\n"
        "    19 | - {name: many, users: three, requests: 64}"
    )
    assert [name for name, _ in caught.value.parts()] == ["next"]
    assert isinstance(caught.value, BadInput)


def test_one_error_needs_no_count() -> None:
    with pytest.raises(BadSpike) as caught:
        parse_spike(changed("users: 16", "users: three"), "s.yaml")
    assert str(caught.value).startswith("s.yaml:18: workloads[1].users: ")


def test_very_many_errors_do_not_flood_the_terminal() -> None:
    rows = "\n".join(f"key{n}: 1" for n in range(120))
    with pytest.raises(BadSpike) as caught:
        parse_spike(BASE + rows + "\n", "s.yaml")
    assert len(caught.value.problems) == 120
    assert str(caught.value).endswith("... and 70 more")
    assert str(caught.value).count("unknown key") == 50


def test_a_long_line_is_cut_around_the_place_of_the_error() -> None:
    problem = only_problem(changed("question: Is the candidate faster?", f"question: [{'a, ' * 100}b]"))
    assert problem.path == "question"
    assert len(problem.excerpt) <= 106


def test_the_words_of_pydantic_and_its_tags_never_reach_the_user() -> None:
    seen = set()
    for old, new, *_ in WRONG:
        for problem in problems_of(changed(old, new)):
            text = f"{problem.path} {problem.text} {problem.hint}".lower()
            seen.add(text)
            for foreign in (
                "input should",
                "pydantic",
                "value error",
                "extra_forbidden",
                "engine.compose",
                "engine.process",
                "dict",
                "not valid here:",
            ):
                assert foreign not in text, text
    assert len(seen) > 30


def test_a_command_may_be_a_list_or_one_text() -> None:
    as_text = changed(
        "engine: {kind: compose, files: [a.yml], service: vllm}", "engine: {kind: process, command: \"vllm serve 'a b'\"}"
    )
    as_list = changed(
        "engine: {kind: compose, files: [a.yml], service: vllm}", "engine: {kind: process, command: [vllm, serve, a b]}"
    )
    assert parse_spike(as_text, "x").arms[0].engine == parse_spike(as_list, "x").arms[0].engine


def test_durations_and_short_legs() -> None:
    spike = parse_spike(BASE + "legs: [old, {arm: new, workloads: [many, single]}]\n", "x")
    assert [(leg.arm, leg.workloads) for leg in spike.planned_legs()] == [("old", None), ("new", ["many", "single"])]
    spike = parse_spike(changed("requests: 64}", "requests: 64, deadline: 1m30s, silence: 45}"), "x")
    assert (spike.workloads[1].deadline, spike.workloads[1].silence) == (90.0, 45.0)
