"""Measures of sanity, and the judgements that need no server."""

import pytest

from audition.load.stream import ToolCall
from audition.probes.ask import Answer, questions, sample_answers, whole_answer
from audition.probes.behaviour import BLOCK_TOKENS, judge_thinking, long_text, tool_problem
from audition.probes.canary import text_problem
from audition.probes.greedy import compare_answers
from audition.probes.text import contains, degenerate, language_of, repeated_4grams

SAMPLES = {row["language"]: row["sample"] for row in questions()["canary"]["language"]}


@pytest.mark.parametrize("language", ["en", "fr"])
def test_the_sample_texts_are_sane_and_in_their_language(language: str) -> None:
    assert degenerate(SAMPLES[language]) == ""
    assert language_of(SAMPLES[language]) == language
    assert text_problem(Answer(content=SAMPLES[language]), language) == ""
    other = "fr" if language == "en" else "en"
    assert f"expected {other}" in text_problem(Answer(content=SAMPLES[language]), other)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (" the river and the river and" * 30, "4-grams"),
        ("!" * 400, "run"),
        ("alpha bravo charlie " * 60, "4-grams"),
        ("啊啊啊啊 " * 60, "one character"),
        ("one " * 5 + "=" * 60, "run"),
    ],
)
def test_degenerate_texts(text: str, word: str) -> None:
    assert word in degenerate(text)


@pytest.mark.parametrize("text", ["", "42", "Paris.", "| a | b |\n|---|---|\n| 1 | 2 |", "yes yes yes yes"])
def test_short_texts_are_no_walls(text: str) -> None:
    assert degenerate(text) == ""


def test_nonsense_is_neither_language() -> None:
    words = [
        "blorp",
        "zint",
        "kavu",
        "merl",
        "tisk",
        "onde",
        "plak",
        "vorn",
        "shib",
        "gart",
        "lumo",
        "fesk",
        "dril",
        "hond",
        "pask",
        "wime",
        "tolk",
        "ruse",
        "jind",
        "bram",
        "vesk",
    ]
    text = " ".join(words * 2)
    assert language_of(text) is None
    assert text_problem(Answer(content=" ".join(words)), "en") != ""
    assert text_problem(Answer(content=""), "en") == "only 0 words: ''"
    assert text_problem(Answer(failure="HTTP 500"), "en") == "HTTP 500"


def test_repetition_is_the_share_of_repeated_4grams() -> None:
    assert repeated_4grams("a b c d") == 0
    assert repeated_4grams("a b c") == 0
    assert repeated_4grams("a b c d a b c d") == pytest.approx(1 / 5)


@pytest.mark.parametrize(
    ("text", "accepted", "expected"),
    [("It is 42.", ["42"], True), ("142", ["42"], False), ("PARIS!", ["Paris"], True), ("Parisian", ["Paris"], False)],
)
def test_contains_whole_words(text: str, accepted: list[str], expected: bool) -> None:
    assert contains(text, accepted) is expected


@pytest.mark.parametrize(
    ("on", "off", "passed", "word"),
    [
        (Answer(reasoning="hm", content="42"), Answer(content="42"), True, "apart"),
        (Answer(content="<think>hm</think>42"), Answer(content="42"), False, "marks"),
        (Answer(reasoning="hm", content="42"), Answer(content="</think>42"), False, "marks"),
        (Answer(reasoning="hm", content="42"), Answer(reasoning="hm", content="42"), False, "although"),
        (Answer(content="42"), Answer(content="42"), None, "no thinking mode"),
        (Answer(reasoning="hm", finish_reason="length"), Answer(content="42"), None, "did not end"),
        (Answer(reasoning="hm", finish_reason="stop"), Answer(content="42"), False, "no answer"),
        (Answer(failure="HTTP 500"), Answer(content="42"), False, "HTTP 500"),
        (Answer(reasoning="hm", content="42"), Answer(), False, "empty"),
    ],
)
def test_thinking(on: Answer, off: Answer, passed: bool | None, word: str) -> None:
    judged, detail = judge_thinking(on, off)
    assert judged is passed
    assert word in detail


@pytest.mark.parametrize(
    ("calls", "word"),
    [
        ([ToolCall("get_weather", '{"city": "Lyon"}')], ""),
        ([ToolCall("get_weather", '{"city": "Lyon, France"}')], ""),
        ([], "no tool call"),
        ([ToolCall("other", "{}")], "expected a call"),
        ([ToolCall("get_weather", '{"city": "Ly')], "no JSON"),
        ([ToolCall("get_weather", '"Lyon"')], "expected city"),
        ([ToolCall("get_weather", '{"city": "Paris"}')], "expected city"),
    ],
)
def test_tool_calls(calls: list[ToolCall], word: str) -> None:
    problem = tool_problem(Answer(tool_calls=calls), questions()["tool_call"])
    assert word in problem
    assert bool(problem) is bool(word)


@pytest.mark.parametrize(
    ("answers", "reference", "passed", "word"),
    [
        ({"a": "one", "b": "two"}, {"a": "one", "b": "two"}, True, "100.0%"),
        ({"a": "one", "b": "twin"}, {"a": "one", "b": "two"}, False, "`b` at character 2"),
        ({"a": "one"}, None, None, "recorded"),
        ({"a": "one"}, {}, None, "other questions"),
        ({"a": "one more"}, {"a": "one"}, False, "1 answers equal"),
    ],
)
def test_greedy(answers: dict[str, str], reference: dict[str, str] | None, passed: bool | None, word: str) -> None:
    judged, detail = compare_answers(answers, reference)
    assert judged is passed
    assert word in detail or passed is False


def test_the_long_text_is_long_and_holds_the_code_word_once() -> None:
    for notes in (75, 150):
        text = long_text(notes, "marigold-58")
        assert text.count("marigold-58") == 1
        assert len(text.split()) > BLOCK_TOKENS * notes / 90
        assert len(set(text.splitlines())) == notes + 1


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"choices": []}', b'{"choices": [{"message": null}]}', b"<html>"])
def test_what_is_no_completion_is_a_failure(body: bytes) -> None:
    assert "no chat completion" in whole_answer(body, 200).failure


def test_every_sample_satisfies_its_question() -> None:
    samples = sample_answers()
    known = questions()
    for row in [*known["canary"]["exact"]]:
        assert contains(samples[row["ask"]], row["accept"])
    assert contains(samples[known["long_prompt"]["ask"]], known["long_prompt"]["accept"])
    assert contains(samples[known["conversation"]["second"]], known["conversation"]["accept"])
