"""The fast way through a body gives what the full parser gives, whatever the bytes and however they are cut."""

import json
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from audition.judge.records import StreamEvent, pack_events, stream_times, unpack_events
from audition.load.body import BadFraming, Body, Framing
from audition.load.chat import pack, times_of
from audition.load.scan import BodyReader, Templates, read_body
from audition.load.stream import StreamFigures, StreamResult, read_stream
from load.captures import cpu_capture, gpu_capture
from load.sse import DONE, ROLE, chunk


def framed(text: str) -> bytes:
    data = text.encode("utf-8", "surrogatepass")
    return b"%x\r\n%s\r\n" % (len(data), data)


def vllm(n: int, text: str = "a", key: str = "content", *, ident: str = "chatcmpl-7", usage: bool = True, extra: str = "") -> str:
    """A chunk as vLLM 0.24 writes it."""
    counts = f',"usage":{{"prompt_tokens":7,"total_tokens":{7 + n},"completion_tokens":{n}}}' if usage else ""
    said = json.dumps(text, ensure_ascii=n % 2 == 0)
    return (
        f'data: {{"id":"{ident}","object":"chat.completion.chunk","created":1764,"model":"m{extra}","choices":[{{"index":0,'
        f'"delta":{{"{key}":{said}}},"logprobs":null,"finish_reason":null,"token_ids":null}}]{counts}}}\n\n'
    )


def body_of(wire: bytes, cuts: list[int]) -> Body:
    body = Body(chunked=True)
    edges = sorted({0, len(wire), *(cut % (len(wire) + 1) for cut in cuts)})
    for number, (a, b) in enumerate(pairwise(edges)):
        body.add(float(number), wire[a:b])
    return body


def full(body: Body, end: float) -> StreamResult:
    chunks = []
    try:
        for piece in body.pieces():
            chunks.append(piece)
    except BadFraming:
        pass
    return read_stream(chunks, end)


def agree(fast: StreamFigures, slow: StreamResult) -> None:
    assert list(fast.at) == [event.at for event in slow.events]
    assert list(fast.kinds) == [event.kind for event in slow.events]
    assert fast.tokens == [event.tokens for event in slow.events]
    for name in ("prompt_tokens", "completion_tokens", "finish_reason", "done_at", "cut"):
        assert getattr(fast, name) == getattr(slow, name), name
    if fast.fault is None or fast.fault.kind != "bad-framing":
        assert fast.fault == slow.fault
    assert fast.filled_events == slow.filled_events


def other_usage(n: int) -> str:
    return vllm(n).replace('"created":1764', f'"created":1764,"usage":{{"completion_tokens":{n + 5}}}')


def plain(text: str, usage: int | None) -> str:
    return chunk({"content": text}, usage)


BROKEN = st.sampled_from([framed(vllm(1)), framed(vllm(2)), b"0\r\n", b"5;x=1\r\n", b"\r\n"])
TEXTS = st.text(alphabet='ab"\\é€🙂 \n\r\t{}[]:,\u2028\ud83d', max_size=6)
EVENTS = st.one_of(
    st.builds(vllm, st.integers(0, 50), TEXTS.filter(lambda t: "\ud83d" not in t)),
    st.builds(lambda n, t, k, i: vllm(n, t, k, ident=i), st.integers(0, 50), st.just("x"),
              st.sampled_from(["content", "reasoning", "reasoning_content"]), st.sampled_from(["a", "chatcmpl-0_1.2:3"])),
    st.builds(lambda n: vllm(n, 'x","content":"y', usage=False), st.integers(0, 3)),
    st.builds(lambda n: vllm(n, "ok", extra='","content":"trap'), st.integers(0, 9)),
    st.builds(other_usage, st.integers(0, 9)),
    st.builds(lambda n: vllm(n).replace("null,\"token", "\"stop\",\"token"), st.integers(0, 9)),
    st.builds(lambda n: vllm(n).replace('{"id"', '{\n"id"'), st.integers(0, 9)),
    st.builds(lambda n: vllm(n).replace('"choices"', '\ndata: "choices"'), st.integers(0, 9)),
    st.builds(lambda n: vllm(n).replace("\n\n", "\r\n\r\n"), st.integers(0, 9)),
    st.builds(plain, TEXTS.filter(lambda t: "\ud83d" not in t), st.one_of(st.none(), st.integers(0, 40))),
    st.builds(lambda u: chunk(None, usage=u), st.integers(0, 40)),
    st.builds(lambda t: chunk({"tool_calls": [{"index": 0, "function": {"arguments": t}}]}), st.just("{}")),
    st.sampled_from([chunk(ROLE, 0), ": ping\n\n", DONE, "data: {\n\n", "\n", 'data: {"error": {"message": "no"}}\n\n',
                     'data: {"choices":[{"delta":{"content":"a\\ud83d"}}]}\n\n', "\ufeff" + vllm(1), "data: é"]),
)  # fmt: skip


@settings(max_examples=600, deadline=None)
@given(
    st.lists(EVENTS, max_size=14),
    st.lists(st.integers(0, 10_000), max_size=12),
    st.lists(st.integers(1, 3), max_size=20),
    st.data(),
)
def test_any_stream_gives_the_same_however_it_is_framed_cut_and_read(
    events: list[str], cuts: list[int], joins: list[int], data: st.DataObject
) -> None:
    pieces, at = [], 0
    for size in [*joins, *[1] * len(events)]:  # sometimes several events in one HTTP chunk
        if at < len(events):
            pieces.append("".join(events[at : at + size]))
            at += size
    wire = b"".join(framed(piece) for piece in pieces) + b"0\r\n\r\n"
    templates = Templates()
    expected = full(body_of(wire, cuts), 99.0)
    for _ in range(2):  # the second time with all templates known
        agree(read_body(body_of(wire, cuts), 99.0, templates), expected)
    growing, whole = Body(chunked=True), body_of(wire, cuts)
    reader, start = BodyReader(growing, templates), 0
    for arrived, end in zip(whole.at, whole.ends, strict=True):
        growing.add(arrived, bytes(whole.raw[start:end]))
        start = end
        if data.draw(st.booleans()):
            reader.advance(data.draw(st.integers(1, 600)))
    agree(reader.finish(99.0), expected)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(st.binary(max_size=12), BROKEN), max_size=12), st.lists(st.integers(0, 4000), max_size=6))
def test_garbage_gives_the_same_and_never_raises(parts: list[bytes], cuts: list[int]) -> None:
    templates, warm = Templates(), b"".join(framed(vllm(n)) for n in range(3))
    read_body(body_of(warm, []), 1.0, templates)
    wire = warm + b"".join(parts)
    fast = read_body(body_of(wire, cuts), 99.0, templates)
    agree(fast, full(body_of(wire, cuts), 99.0))


def test_a_broken_framing_is_one_named_fault() -> None:
    fault = read_body(body_of(framed(vllm(1)) + b"zz\r\nrest", []), 1.0, Templates()).fault
    assert fault is not None
    assert fault.kind == "bad-framing"
    assert "zz" in fault.text


def test_tokens_need_the_parser_once_for_each_form() -> None:
    templates = Templates()
    parsed: list[str] = []
    learn = templates.learn

    def count(text: str, value: object) -> None:
        parsed.append(text)
        learn(text, value)

    templates.learn = count  # type: ignore[method-assign, assignment]
    for answer in range(20):
        wire = b"".join(framed(vllm(n, f"w{n}é\\n", ident=f"chatcmpl-{answer}")) for n in range(50)) + framed(DONE) + b"0\r\n\r\n"
        assert read_body(body_of(wire, [100, 200]), 1.0, templates).completion_tokens == 49
    assert len(parsed) == 1
    assert len(templates.known) == 1


def test_real_captures_read_alike_both_ways() -> None:
    templates = Templates()
    for capture in [
        *(
            cpu_capture(f"{name}.txt")
            for name in ("real_mtp3.sse.continuous", "glm4moe_mtp3.sse.continuous", "real_mtp3.sse.usage")
        ),
        gpu_capture("mtp.sse.txt"),
        gpu_capture("base.sse.txt"),
    ]:
        body = Body(chunked=True)
        for at, data in capture:
            for event in data.decode().split("\n\n"):
                if event:
                    body.add(at, framed(f"{event}\n\n"))
        end = capture[-1][0]
        figures = read_body(body, end, templates)
        agree(figures, read_stream(capture, end))
        assert figures.completion_tokens
    assert templates.known


def test_bodies_without_framing_are_read_too() -> None:
    body = Body()
    for n in range(3):
        body.add(float(n), vllm(n + 1).encode())
    figures = read_body(body, 9.0, Templates())
    assert figures.completion_tokens == 3
    assert list(figures.at) == [0.0, 1.0, 2.0]


@given(st.binary(max_size=60), st.integers(1, 7), st.integers(1, 9))
def test_framing_comes_off_however_it_is_cut(data: bytes, size: int, cut: int) -> None:
    wire = b"".join(b"%X;ext=1\r\n%s\r\n" % (len(data[n : n + size]), data[n : n + size]) for n in range(0, len(data), size))
    wire += b"0\r\nTrailer: x\r\n\r\n"
    framing = Framing()
    assert b"".join(framing.strip(wire[n : n + cut]) for n in range(0, len(wire), cut)) == data


@given(
    st.lists(
        st.tuples(st.floats(0, 1e5, allow_subnormal=False), st.one_of(st.none(), st.integers(0, 80_000)), st.integers(0, 7)),
        max_size=30,
    )
)
def test_packing_is_that_of_the_records(rows: list[tuple[float, int | None, int]]) -> None:
    rows.sort(key=lambda row: row[0])
    at, tokens, kinds = [r[0] for r in rows], [r[1] for r in rows], [r[2] for r in rows]
    packed = pack(at, tokens, kinds, 0.0)
    assert packed == pack_events([StreamEvent(*row) for row in rows])
    quick = times_of(at, tokens, bytes(kinds), 0.0)
    assert quick is None or quick == stream_times(unpack_events(packed))
    said = [0 if count is None else min(count, 5) for count in tokens]
    near = [when / 100 for when in at]
    assert times_of(near, said, bytes(kinds), 0.0) == stream_times(unpack_events(pack(near, said, kinds, 0.0)))
    unsaid: list[int | None] = [None] * len(kinds)
    assert times_of(near, unsaid, bytes(kinds), 0.0) == stream_times(unpack_events(pack(near, unsaid, kinds, 0.0)))
