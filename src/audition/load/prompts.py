"""The prompts that are shipped, and the order in which a workload sends them. No network here.

What must not live here: sampling parameters, request bodies.

Every prompt is sent with a salt at its very start, so that no prefix of it can be in a cache: a warm prefix cache raised throughput
by 86 % in vllm#52884. The order depends on the seed alone, so that every leg sends the same prompts in the same order.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal

import yaml

CLASSES = ("prose", "code", "dialogue", "reasoning")
PromptClass = Literal["prose", "code", "dialogue", "reasoning", "tools", "mixed", "warmup"]
Message = dict[str, Any]


@dataclass(frozen=True)
class Prompt:
    """One prompt: a conversation that ends with the user's turn. ``language`` is an ISO 639-1 code, "" where nobody said.

    ``messages`` and ``tools`` are those of the OpenAI chat API.
    """

    id: str
    language: str
    messages: tuple[Message, ...]
    tools: tuple[dict[str, Any], ...] = ()


@cache
def shipped(kind: PromptClass) -> tuple[Prompt, ...]:
    """The shipped prompts of a class; ``mixed`` is all of CLASSES, ``warmup`` is never measured."""
    if kind == "mixed":
        return tuple(prompt for name in CLASSES for prompt in shipped(name))
    text = resources.files("audition.load").joinpath("data", f"{kind}.yaml").read_text(encoding="utf-8")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times faster, where libyaml is there
    loaded = yaml.load(text, Loader=loader)
    entries, tools = (loaded["prompts"], loaded["tools"]) if isinstance(loaded, dict) else (loaded, {})
    return tuple(_prompt(entry, tools) for entry in entries)


def _prompt(entry: dict[str, Any], tools: dict[str, Any]) -> Prompt:
    turns = entry.get("messages") or [{"role": "user", "content": entry["text"]}]
    return Prompt(entry["id"], entry["language"], tuple(turns), tuple(tools[name] for name in entry.get("tools", ())))


class PromptOrder:
    """Which prompt is sent as number 0, 1, 2, ...: all of them in a random order, then all again in another, and so on.

    ``name`` and ``seed`` alone decide the order.
    """

    def __init__(self, prompts: Sequence[Prompt], seed: int, name: str = "") -> None:
        if not prompts:
            raise ValueError("there are no prompts")
        self.prompts = prompts
        self.name, self.seed = name, seed
        self._rounds: dict[int, list[Prompt]] = {}

    @staticmethod
    def of(kind: PromptClass, seed: int) -> PromptOrder:
        """Of a shipped class."""
        return PromptOrder(shipped(kind), seed, kind)

    def __getitem__(self, number: int) -> Prompt:
        turn, place = divmod(number, len(self.prompts))
        if turn not in self._rounds:
            order = list(self.prompts)
            random.Random(f"{self.name}/{self.seed}/{turn}").shuffle(order)
            self._rounds[turn] = order
        return self._rounds[turn][place]


def mark(*parts: object) -> str:
    """Twelve hexadecimal digits, different for different parts."""
    return hashlib.sha256("/".join(map(str, parts)).encode()).hexdigest()[:12]


def salt(*parts: object) -> str:
    """A mark in brackets for the start of a prompt, of constant length."""
    return f"[{mark(*parts)}] "


def salted_messages(prompt: Prompt, front: str) -> list[Message]:
    """The conversation as chat messages, the salt in front of the first text in it."""
    messages = [dict(message) for message in prompt.messages]
    for message in messages:
        content = message.get("content")
        if isinstance(content, str):
            message["content"] = front + content
            return messages
        if isinstance(content, list):
            message["content"] = [{"type": "text", "text": front}, *content]
            return messages
    return messages
