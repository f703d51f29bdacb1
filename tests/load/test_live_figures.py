"""Figures for whoever watches a round: counted from bytes that came, never guessed."""

from __future__ import annotations

import json

from audition.load.body import Body
from audition.load.live import MOST_GROWING, Live, last_count
from audition.units import NoData


def event(text: str, tokens: int | None, key: str = "content") -> bytes:
    chunk: dict[str, object] = {"choices": [{"delta": {key: text}}]}
    if tokens is not None:
        chunk["usage"] = {"prompt_tokens": 5, "completion_tokens": tokens, "completion_tokens_details": {"reasoning_tokens": 1}}
    return f"data: {json.dumps(chunk)}\n\n".encode()


def body_of(*pieces: tuple[float, bytes]) -> Body:
    body = Body()
    for at, data in pieces:
        body.add(at, data)
    return body


def test_the_first_token_is_the_first_text_and_not_the_role() -> None:
    live = Live()
    live.ended(body_of((10.1, event("", None)), (10.4, event("Hello", 1)), (10.9, event(" you", 7))), 10.0, ok=True)
    first = live.ttft_p50()
    assert not isinstance(first, NoData)
    assert abs(first - 0.4) < 1e-9
    assert live.tokens([]) == 7


def test_thinking_counts_as_a_first_token() -> None:
    live = Live()
    live.ended(body_of((1.25, event("hm", 1, "reasoning"))), 1.0, ok=True)
    assert live.ttft_p50() == 0.25


def test_bodies_that_grow_count_while_they_are_few() -> None:
    live = Live()
    growing = body_of((1.0, event("a", 3)), (2.0, event("b", 4)))
    assert live.tokens([growing, growing]) == 8
    assert isinstance(live.tokens([growing] * (MOST_GROWING + 1)), NoData)


def test_what_is_not_told_stays_unknown() -> None:
    live = Live()
    assert isinstance(live.ttft_p50(), NoData)
    live.ended(body_of((1.0, b"Internal Server Error")), 0.5, ok=False)
    assert isinstance(live.ttft_p50(), NoData)
    assert isinstance(live.tokens([]), NoData)
    assert last_count(body_of((1.0, b'{"usage": {"completion_tokens": null}}'))) is None


def test_a_body_whose_beginning_was_dropped_gives_no_first_token() -> None:
    live = Live()
    body = body_of((1.0, event("a", 1)), (2.0, event("b", 2)))
    body.drop(10)
    live.ended(body, 0.0, ok=True)
    assert isinstance(live.ttft_p50(), NoData)
    assert live.tokens([]) == 2
