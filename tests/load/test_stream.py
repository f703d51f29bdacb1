"""Bytes of streamed answers become the right events, however they are cut and whatever they hold."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audition.judge.records import EVENT_CONTENT, EVENT_EMPTY, EVENT_REASONING, EVENT_TOOL
from audition.load.stream import StreamReader, StreamResult, read_stream, tokens_per_event
from load.captures import cpu_capture, gpu_capture
from load.sse import DONE, ROLE, chunk


def read(*pieces: bytes | str) -> StreamResult:
    chunks = [(float(n), p.encode() if isinstance(p, str) else p) for n, p in enumerate(pieces)]
    return read_stream(chunks, float(len(pieces)))


@pytest.mark.parametrize(
    ("name", "tokens", "per_event"),
    [
        ("real_mtp3.sse.continuous.txt", 48, True),
        ("glm4moe_mtp3.sse.continuous.txt", 48, True),
        ("qwen3_ngram.sse.continuous.txt", 48, True),
        ("real_mtp3.sse.usage.txt", 48, False),
        ("real_mtp3.sse.nothink.txt", 48, False),
    ],
)
def test_captures_of_real_servers_add_up_to_their_usage(name: str, tokens: int, per_event: bool) -> None:
    capture = cpu_capture(name)
    result = read_stream(capture, capture[-1][0])
    assert result.fault is None
    assert result.completion_tokens == tokens
    assert result.finish_reason == "length"
    assert result.done_at == capture[-1][0]
    assert result.per_event is per_event
    assert result.events[0].kind == EVENT_EMPTY  # the early role chunk
    if per_event:
        assert sum(event.tokens or 0 for event in result.events) == tokens
        assert result.events[0].tokens == 0
    else:
        assert [event.tokens for event in result.events] == [None] * len(result.events)


def test_several_tokens_in_one_event_are_counted() -> None:
    result = read_stream(gpu_capture("mtp.sse.txt"), 1.0)
    assert [event.tokens for event in result.events][:3] == [0, 1, 4]
    assert max(event.tokens or 0 for event in result.events) == 4
    assert sum(event.tokens or 0 for event in result.events) == result.completion_tokens == 24
    assert {event.kind for event in result.events} == {EVENT_EMPTY, EVENT_REASONING}


def test_the_kind_of_each_delta_is_told_apart() -> None:
    call = {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": '{"x"'}}]}
    more = {"tool_calls": [{"index": 0, "function": {"arguments": ": 1}"}}]}
    result = read(
        chunk(ROLE), chunk({"reasoning": "hm"}), chunk({"reasoning_content": "hm"}), chunk({"content": "yes"}),
        chunk({"content": None}), chunk(call), chunk(more), chunk({}, finish="tool_calls"), chunk(None, usage=9), DONE,
    )  # fmt: skip
    assert [event.kind for event in result.events] == [
        EVENT_EMPTY, EVENT_REASONING, EVENT_REASONING, EVENT_CONTENT, EVENT_EMPTY, EVENT_TOOL, EVENT_TOOL, EVENT_EMPTY,
    ]  # fmt: skip
    assert (result.reasoning, result.content) == ("hmhm", "yes")
    assert [(c.name, c.arguments, c.id) for c in result.tool_calls] == [("f", '{"x": 1}', "a")]
    assert (result.completion_tokens, result.prompt_tokens) == (9, 7)
    assert [event.at for event in result.events] == [float(n) for n in range(8)]


def test_text_completions_are_content() -> None:
    line = 'data: {"choices":[{"index":0,"text":" once","finish_reason":null}]}\n\n'
    result = read(line, line.replace("null", '"stop"'), DONE)
    assert result.content == " once once"
    assert [event.kind for event in result.events] == [EVENT_CONTENT, EVENT_CONTENT]
    assert result.finish_reason == "stop"


def test_halves_of_surrogate_pairs_are_joined_or_replaced() -> None:
    line = 'data: {"choices":[{"index":0,"delta":{"content":"%s"}}]}\n\n'
    assert read(line % r"a\ud83d", line % r"\ude42b").content == "a🙂b"
    assert read(line % r"a\ud83d", line % "b").content.encode() == "a\ufffdb".encode()


def test_no_usage_leaves_the_count_unknown() -> None:
    result = read(chunk({"content": "a"}), chunk({"content": "b"}, finish="stop"), DONE)
    assert result.completion_tokens is None
    assert result.filled_events == 2
    assert [event.tokens for event in result.events] == [None, None]


def test_usage_in_the_last_delta_only_is_not_taken_for_counting_along() -> None:
    result = read(chunk({"content": "a"}), chunk({"content": "b"}), chunk({"content": "c"}, usage=12, finish="stop"), DONE)
    assert result.completion_tokens == 12
    assert [event.tokens for event in result.events] == [None, None, None]


@pytest.mark.parametrize(
    ("rows", "final", "expected"),
    [
        ([(0, 0), (1, 1), (1, 5)], 5, [0, 1, 4]),
        ([(0, 0), (1, 1), (1, 4)], 6, [0, 1, 5]),  # two tokens that only the closing usage shows
        ([(0, 2), (1, 3), (0, 4)], 4, [0, 3, 1]),  # tokens before the first text belong to it; an empty end keeps its own
        ([(0, 0), (0, 1)], 1, [0, 1]),  # nothing but the end of text
        ([(1, 2), (1, None), (1, 6)], 6, [None, None, None]),
        ([(1, 3), (1, 2)], 3, [None, None]),
        ([(1, 3)], 2, [None]),
        ([(1, 3)], None, [None]),
        ([], 0, []),
    ],
)
def test_tokens_per_event(rows: list[tuple[int, int | None]], final: int | None, expected: list[int | None]) -> None:
    kinds, totals = bytes(kind for kind, _ in rows), [-1 if total is None else total for _, total in rows]
    assert tokens_per_event(kinds, totals, final) == expected


def test_comments_pings_and_other_fields_are_passed_over() -> None:
    result = read(": ping\n\n", "event: message\nid: 4\nretry: 10\n", chunk({"content": "a"}, finish="stop"), ":\n\n", DONE)
    assert result.content == "a"
    assert result.fault is None
    assert result.done_at == 4.0


@pytest.mark.parametrize("ending", ["\r\n", "\r", "\n"])
def test_line_endings(ending: str) -> None:
    text = (chunk({"content": "a"}) + chunk({"content": "é"}, finish="stop") + DONE).replace("\n", ending)
    result = read(text)
    assert result.content == "aé"
    assert result.done_at is not None


def test_data_over_several_lines_and_without_a_space() -> None:
    assert read('data:{"choices":\ndata:[{"index":0,"delta":{"content":"x"}}]}\n\n').content == "x"


def test_a_missing_done_and_a_missing_last_blank_line() -> None:
    result = read(chunk({"content": "a"}, finish="stop").rstrip("\n"))
    assert (result.content, result.finish_reason, result.done_at, result.cut) == ("a", "stop", None, False)


def test_a_stream_cut_inside_an_event() -> None:
    result = read(chunk({"content": "a"}), chunk({"content": "b"})[:40])
    assert (result.content, result.cut, result.fault) == ("a", True, None)


def test_an_error_inside_a_200_is_a_server_error() -> None:
    capture = cpu_capture("crash_during_request.sse.txt")
    fault = read_stream(capture, 1.0).fault
    assert fault is not None
    assert fault.kind == "server-error"
    assert "EngineCore encountered an issue" in fault.text
    late = read(chunk({"content": "a"}, usage=1), 'data: {"object":"error","message":"out of luck"}\n\n')
    assert late.fault is not None
    assert (late.fault.kind, late.fault.text, late.completion_tokens) == ("server-error", "out of luck", 1)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("<html>\n<body>Bad gateway</body>\n</html>\n", "not-an-event-stream"),
        ('{"id":"x","choices":[{"message":{"content":"whole"}}]}', "not-an-event-stream"),
        ("data: {not json\n\n", "not-json"),
        ("data: [1, 2]\n\n", "not-a-chunk"),
        ('data: {"hello": 1}\n\n', "not-a-chunk"),
        ('data: {"choices": ["x"]}\n\n', "not-a-chunk"),
        ("data: " + "[" * 100_000 + "\n\n", "not-json"),
    ],
)
def test_garbage_gives_one_named_fault(body: str, kind: str) -> None:
    fault = read(body).fault
    assert fault is not None
    assert fault.kind == kind


def timeless(result: StreamResult) -> StreamResult:
    events = [replace(event, at=0.0) for event in result.events]
    return replace(result, events=events, done_at=None if result.done_at is None else 0.0)


TEXTS = st.text(alphabet='abé€🙂 \n\r"\\', max_size=6)
DELTAS = st.one_of(
    st.just(ROLE),
    st.builds(lambda t: {"content": t}, TEXTS),
    st.builds(lambda t: {"reasoning": t}, TEXTS),
    st.builds(lambda t: {"tool_calls": [{"index": 0, "function": {"arguments": t}}]}, TEXTS),
)
PIECES = st.one_of(
    st.builds(chunk, DELTAS, st.one_of(st.none(), st.integers(0, 40))),
    st.builds(lambda u: chunk(None, usage=u), st.integers(0, 40)),
    st.sampled_from([": ping\n\n", "\n", "event: x\n", DONE, 'data: {"error": {"message": "no"}}\n\n', "data: {\n\n", "data: é"]),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(PIECES, max_size=8), st.sampled_from(["\n", "\r\n", "\r"]), st.data())
def test_any_split_gives_the_same_events(pieces: list[str], ending: str, data: st.DataObject) -> None:
    body = "".join(pieces).replace("\n", ending).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=12)))
    edges = [0, *cuts, len(body)]
    whole = read_stream([(0.0, body)], 0.0)
    parts = read_stream([(0.0, body[a:b]) for a, b in pairwise(edges)], 0.0)
    assert parts == whole
    single = read_stream([(0.0, body[n : n + 1]) for n in range(len(body))], 0.0)
    assert timeless(single) == timeless(whole)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(st.binary(max_size=40), st.sampled_from([b"data: ", b"\n\n", b"data: {", b"}", b"\xff\n"])), max_size=10))
def test_garbage_never_raises(pieces: list[bytes]) -> None:
    reader = StreamReader()
    for piece in pieces:
        reader.feed(0.0, piece)
    result = reader.finish(0.0)
    known = sum(event.tokens or 0 for event in result.events)
    assert known in (0, result.completion_tokens)
    if result.fault is not None:
        assert result.fault.text


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 4)), min_size=1, max_size=20), st.integers(0, 3))
def test_known_tokens_add_up_to_usage(steps: list[tuple[bool, int]], hidden: int) -> None:
    total, pieces = 0, []
    for filled, tokens in steps:
        total += tokens
        pieces.append(chunk({"content": "x" if filled else ""}, usage=total))
    if not any(filled for filled, _ in steps):
        hidden = 0
    result = read(*pieces, chunk(None, usage=total + hidden), DONE)
    assert result.per_event or not result.events
    assert sum(event.tokens or 0 for event in result.events) == result.completion_tokens == total + hidden
