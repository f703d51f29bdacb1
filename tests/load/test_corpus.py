"""Prompts of the user's own, tool use, long documents, and the ready workloads."""

import json
from pathlib import Path

import pytest

from audition.errors import BadInput
from audition.load.chat import request_body
from audition.load.corpus import document, read_prompts
from audition.load.programme import PROGRAMME, REFERENCE, greedy
from audition.load.prompts import Prompt, salted_messages, shipped
from audition.load.workload import check_inputs
from audition.spike.model import Workload


def write(folder: Path, text: str) -> Path:
    path = folder / "mine.jsonl"
    path.write_text(text, encoding="utf-8")
    return path


def test_json_lines_with_text_or_messages(tmp_path: Path) -> None:
    picture = [{"type": "image_url", "image_url": {"url": "data:..."}}, {"type": "text", "text": "What is it?"}]
    rows = [
        {"text": "Bonjour à tous", "language": "fr"},
        {"id": "x", "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]},
        {"prompt": "from another tool\u2028with a line separator\x0b"},
        {"messages": [{"role": "user", "content": picture}], "tools": [{"type": "function", "function": {"name": "f"}}]},
    ]
    prompts = read_prompts(write(tmp_path, "\n\n".join(json.dumps(row, ensure_ascii=False) for row in rows)))
    assert [p.id for p in prompts] == ["mine-1", "x", "mine-3", "mine-4"]
    assert prompts[0].messages == ({"role": "user", "content": "Bonjour à tous"},)
    assert prompts[2].messages[0]["content"] == "from another tool\u2028with a line separator\x0b"
    assert prompts[3].tools
    salted = salted_messages(prompts[3], "[s] ")
    assert salted[0]["content"][0] == {"type": "text", "text": "[s] "}
    assert prompts[3].messages[0]["content"] == picture  # the prompt itself stays as it is
    assert salted_messages(prompts[1], "[s] ")[0]["content"] == "[s] Be brief."


def test_sharegpt_shaped_files(tmp_path: Path) -> None:
    turns = [("human", "1"), ("gpt", "2"), ("human", "3"), ("gpt", "4")]
    rows = [
        {"id": "a", "conversations": [{"from": who, "value": n} for who, n in turns]},
        {"id": "b", "conversations": [{"from": "gpt", "value": "nobody asked"}]},
        {"id": "c", "conversation": [{"role": "user", "content": "q"}]},
    ]  # fmt: skip
    prompts = read_prompts(write(tmp_path, json.dumps(rows)))
    assert [p.id for p in prompts] == ["a", "c"]
    assert [m["role"] for m in prompts[0].messages] == ["user", "assistant", "user"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no prompt"),
        ('{"text": "a"}\nnot json\n', "line 2"),
        ('{"text": ""}', "expected `text` or `messages`"),
        ('{"messages": []}', "`messages` is no list"),
        ('{"messages": ["x"]}', "`messages` is no list"),
        ('{"text": "a", "tools": "b"}', "`tools`"),
        ('{"conversations": [{"from": "dog", "value": "wuff"}]}', "a turn"),
        ("[1", "is no JSON"),
        ("[1]", "expected an object"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(BadInput, match=r"mine\.jsonl") as caught:
        read_prompts(path)
    assert said in str(caught.value)
    with pytest.raises(BadInput):
        check_inputs(Workload(name="w", requests=1, prompts_file="mine.jsonl"), tmp_path)


def test_a_missing_file_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be read"):
        read_prompts(tmp_path / "none.jsonl")


def test_tool_prompts_carry_their_tools() -> None:
    prompts = shipped("tools")
    assert {p.language for p in prompts} == {"en", "fr"}
    assert all(p.tools for p in prompts)
    workload = Workload(name="w", requests=1, prompts="tools")
    body = json.loads(request_body(workload, "m", list(prompts[0].messages), continuous=True, tools=prompts[0].tools))
    assert body["tool_choice"] == "auto"
    assert body["tools"][0]["function"]["name"] == "search_trains"


def test_documents_differ_by_seed_and_grow_by_words() -> None:
    one = document(500, 1)
    assert one == document(500, 1)
    assert one != document(500, 2)
    assert 450 <= len(one.split()) <= 530
    assert document(900, 1)[:2000] == one[:2000]
    assert Prompt("long", "en", ({"role": "user", "content": one},)).tools == ()


def test_the_programme() -> None:
    assert [PROGRAMME[name].users for name in REFERENCE] == [1, 1, 5, 16]
    assert [PROGRAMME[name].thinking for name in REFERENCE] == [False, True, False, False]
    assert [PROGRAMME[f"prefill-{k}k"].prompt_tokens for k in (30, 95, 235)] == [30_000, 95_000, 235_000]
    assert all(PROGRAMME[f"prefill-{k}k"].survival for k in (30, 95, 235))
    twin = greedy(PROGRAMME["users-5"])
    assert (twin.name, twin.sampling.temperature, twin.users) == ("users-5-greedy", 0.0, 5)
