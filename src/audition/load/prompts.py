"""The prompts that are shipped, and the order in which a workload sends them. No network here.

What must not live here: sampling parameters, request bodies.

Every prompt is sent with a salt at its very start, so that no prefix of it can be in a cache: a warm prefix cache raised throughput
by 86 % in vllm#52884. The order depends on the seed alone, so that every leg sends the same prompts in the same order.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal

import yaml

CLASSES = ("prose", "code", "dialogue", "reasoning")
PromptClass = Literal["prose", "code", "dialogue", "reasoning", "mixed", "warmup"]


@dataclass(frozen=True)
class Prompt:
    """One prompt: a conversation that ends with the user's turn. ``language`` is an ISO 639-1 code."""

    id: str
    language: str
    messages: tuple[tuple[str, str], ...]


@cache
def shipped(kind: PromptClass) -> tuple[Prompt, ...]:
    """The shipped prompts of a class; ``mixed`` is all classes, ``warmup`` is never measured."""
    if kind == "mixed":
        return tuple(prompt for name in CLASSES for prompt in shipped(name))
    text = resources.files("audition.load").joinpath("data", f"{kind}.yaml").read_text(encoding="utf-8")
    return tuple(_prompt(entry) for entry in yaml.safe_load(text))


def _prompt(entry: dict[str, Any]) -> Prompt:
    turns = entry.get("messages") or [{"role": "user", "content": entry["text"]}]
    return Prompt(entry["id"], entry["language"], tuple((turn["role"], turn["content"]) for turn in turns))


class PromptOrder:
    """Which prompt is sent as number 0, 1, 2, ...: all of the class in a random order, then all again in another, and so on."""

    def __init__(self, kind: PromptClass, seed: int) -> None:
        self._prompts = shipped(kind)  # read now, not at the first send
        self._kind, self._seed = kind, seed
        self._rounds: dict[int, list[Prompt]] = {}

    def __getitem__(self, number: int) -> Prompt:
        turn, place = divmod(number, len(self._prompts))
        if turn not in self._rounds:
            order = list(self._prompts)
            random.Random(f"{self._kind}/{self._seed}/{turn}").shuffle(order)
            self._rounds[turn] = order
        return self._rounds[turn][place]


def mark(*parts: object) -> str:
    """Twelve hexadecimal digits, different for different parts."""
    return hashlib.sha256("/".join(map(str, parts)).encode()).hexdigest()[:12]


def salt(*parts: object) -> str:
    """A mark in brackets for the start of a prompt, of constant length."""
    return f"[{mark(*parts)}] "


def salted_messages(prompt: Prompt, front: str) -> list[dict[str, str]]:
    """The conversation as chat messages, the salt in front of the first one."""
    return [
        {"role": role, "content": (front + content) if at == 0 else content} for at, (role, content) in enumerate(prompt.messages)
    ]
