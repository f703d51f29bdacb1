"""Pacing of the closed loop, and what is sent in which order."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audition.load.arrivals import ClosedLoop
from audition.load.chat import request_body
from audition.load.prompts import CLASSES, PromptClass, PromptOrder, salt, salted_messages, shipped
from audition.spike.model import Sampling, Workload


@given(st.integers(1, 6), st.integers(1, 40), st.data())
def test_every_number_is_given_once_and_the_window_lies_inside(users: int, requests: int, data: st.DataObject) -> None:
    pacer, now, given_out = ClosedLoop(users, requests, None), 0.0, []
    waiting = list(range(users))
    while waiting:
        user = waiting.pop(data.draw(st.integers(0, len(waiting) - 1)))
        index = pacer.next_index(user, now)
        if index is not None:
            given_out.append(index)
            pacer.began(user, now)
            waiting.append(user)
        now += 1.0
    assert given_out == list(range(requests))
    window = pacer.steady_window()
    assert window is None or 0 <= window[0] < window[1] <= now
    if requests < users:
        assert window is None


def test_the_window_runs_from_the_last_begin_to_the_first_user_without_work() -> None:
    pacer = ClosedLoop(2, 3, None)
    assert [pacer.next_index(0, 0.0), pacer.next_index(1, 0.1)] == [0, 1]
    pacer.began(0, 0.0)
    pacer.began(1, 0.5)
    assert pacer.next_index(0, 4.0) == 2
    pacer.began(0, 4.0)
    assert pacer.next_index(1, 6.0) is None
    assert pacer.next_index(0, 9.0) is None
    assert pacer.steady_window() == (0.5, 6.0)


def test_a_duration_ends_new_requests_and_stop_ends_them_at_once() -> None:
    pacer = ClosedLoop(1, None, 10.0)
    assert pacer.next_index(0, 9.99) == 0
    assert pacer.next_index(0, 10.0) is None
    pacer = ClosedLoop(1, None, 10.0)
    pacer.stop()
    assert pacer.next_index(0, 0.0) is None


@pytest.mark.parametrize("kind", CLASSES)
def test_each_class_ships_enough_prompts_in_both_languages(kind: PromptClass) -> None:
    prompts = shipped(kind)
    assert len(prompts) >= 12
    assert {prompt.language for prompt in prompts} == {"en", "fr"}
    assert all(prompt.messages[-1]["role"] == "user" for prompt in prompts)


def test_prompts_are_unique_and_warm_up_is_never_measured() -> None:
    mixed, warmup = shipped("mixed"), shipped("warmup")
    assert len({prompt.id for prompt in (*mixed, *warmup)}) == len(mixed) + len(warmup)
    assert not {str(p.messages) for p in mixed} & {str(p.messages) for p in warmup}


def test_the_order_depends_on_the_seed_alone_and_covers_the_class() -> None:
    first, again, other = PromptOrder.of("code", 1), PromptOrder.of("code", 1), PromptOrder.of("code", 2)
    size = len(shipped("code"))
    ids = [first[n].id for n in range(2 * size)]
    assert ids == [again[n].id for n in reversed(range(2 * size))][::-1]
    assert ids != [other[n].id for n in range(2 * size)]
    assert len(set(ids[:size])) == len(set(ids[size:])) == size


def test_the_salt_stands_first_differs_and_keeps_its_length() -> None:
    prompt = shipped("dialogue")[0]
    marks = [salt(leg, "w", n) for leg in ("one", "two") for n in range(50)]
    assert len(set(marks)) == 100
    assert {len(mark) for mark in marks} == {15}
    messages = salted_messages(prompt, marks[0])
    assert messages[0]["content"] == marks[0] + prompt.messages[0]["content"]
    assert [m["content"] for m in messages[1:]] == [m["content"] for m in prompt.messages[1:]]


def test_the_body_holds_only_what_the_workload_sets() -> None:
    plain = json.loads(request_body(Workload(name="w", requests=1), "m", [], continuous=False))
    assert plain == {
        "model": "m",
        "messages": [],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 256,
    }
    rich = Workload(name="w", requests=1, thinking=False, ignore_eos=True, sampling=Sampling(temperature=0, seed=3))
    body = json.loads(request_body(rich, "m", [], continuous=True))
    assert body["stream_options"]["continuous_usage_stats"] is True
    assert (body["temperature"], body["seed"], body["ignore_eos"]) == (0, 3, True)
    assert body["chat_template_kwargs"] == {"enable_thinking": False}
    assert "top_p" not in body
