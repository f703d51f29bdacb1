"""What the simulated model says: a pure function of seed, prompt and request, as segments of tokens handed out in order.

What must not live here: when it is said (see `engine`), how it is written to the client (see `wire`).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from audition.simulated.recall import recall
from audition.simulated.schema import instance
from audition.simulated.settings import Settings
from audition.simulated.tokens import split_tokens
from audition.simulated.vocabulary import DEGENERATE, Sentences, language_of

ENDLESS = 1 << 40  # tokens; a segment that only the request's limit ends
_SUM = re.compile(r"(-?\d+(?:\.\d+)?)\s*(\+|-|−|\*|×|x|/|÷|plus|minus|times)\s*(-?\d+(?:\.\d+)?)")
_EXACTLY = re.compile(
    r"(?:reply|answer|respond|say|write|output|print|return)\s+(?:with\s+)?(?:back\s+)?exactly"
    r"(?:\s+(?:this|the following|the (?:word|text|sentence|string|line)s?|these words))?\s*[:,]?\s*(.+)",
    re.IGNORECASE | re.DOTALL,
)
_ONLY = re.compile(r"\b(only|just|nothing else|single number|no other|one word)\b", re.IGNORECASE)
_FACTS = {
    "capital of france": "Paris",
    "capital of germany": "Berlin",
    "capital of japan": "Tokyo",
    "capital of italy": "Rome",
    "capital of spain": "Madrid",
    "opposite of hot": "cold",
    "days are in a week": "7",
    "days in a week": "7",
    "color of the sky": "blue",
    "colour of the sky": "blue",
}

Part = tuple[str, str, int]  # kind of text ("reasoning", "content", "tool:N"), the text, its tokens


class Segment:
    """A run of tokens of one kind. `source` yields more text when the tokens at hand do not reach `length`."""

    __slots__ = ("kind", "length", "source", "taken", "tokens")

    def __init__(self, kind: str, tokens: list[str], length: int | None = None, source: Callable[[], str] | None = None):
        self.kind = kind
        self.tokens = tokens
        self.source = source
        self.length = len(tokens) if length is None else length
        self.taken = 0

    def take(self, wanted: int) -> tuple[str, int]:
        """At most `wanted` further tokens as text, and how many they are; 0 when the segment is at its end."""
        number = min(wanted, self.length - self.taken)
        end = self.taken + number
        while len(self.tokens) < end and self.source is not None:
            self.tokens += split_tokens(self.source())
        text = "".join(self.tokens[self.taken : end])
        self.taken = end
        return text, number


class Script:
    """The whole answer of one request, handed out a few tokens at a time."""

    __slots__ = ("_at", "finish", "segments")

    def __init__(self, segments: list[Segment], finish: str) -> None:
        self.segments = segments
        self.finish = finish  # finish_reason of the natural end: "stop" or "tool_calls"
        self._at = 0

    @property
    def exhausted(self) -> bool:
        """Whether the natural end is reached."""
        return self._at >= len(self.segments)

    def take(self, wanted: int) -> list[Part]:
        """Up to `wanted` further tokens, in parts of one kind each; fewer only at the natural end."""
        parts: list[Part] = []
        while wanted > 0 and self._at < len(self.segments):
            segment = self.segments[self._at]
            text, number = segment.take(wanted)
            if number:
                parts.append((segment.kind, text, number))
                wanted -= number
            if segment.taken >= segment.length:
                self._at += 1
        return parts


@dataclass(frozen=True, slots=True)
class Ask:
    """What decides an answer, besides the prompt's words."""

    last_user: str
    thinking: bool
    reasoning_parsed: bool  # False: thinking appears inside the content, closed by </think>
    max_tokens: int
    min_tokens: int = 0
    ignore_eos: bool = False
    tool_calls: Sequence[tuple[str, str]] = field(default_factory=tuple)  # name, arguments as JSON
    exact: str | None = None  # required text of the answer (structured output)
    tool_result: str = ""
    said: str = ""  # everything the user has written, the last message included


def _number(text: str) -> int | float:
    value = float(text)
    return int(value) if value == int(value) else value


def arithmetic(prompt: str) -> str | None:
    """The answer to the first sum of two numbers in the prompt, or None when there is none."""
    found = _SUM.search(prompt)
    if not found:
        return None
    left, sign, right = _number(found.group(1)), found.group(2), _number(found.group(3))
    if sign in ("+", "plus"):
        result: int | float = left + right
    elif sign in ("-", "−", "minus"):
        result = left - right
    elif sign in ("*", "×", "x", "times"):
        result = left * right
    elif right == 0:
        return "Division by zero has no answer."
    else:
        result = left / right
    shown = str(int(result)) if result == int(result) else f"{result:g}"
    return shown if _ONLY.search(prompt) else f"{left} {sign} {right} = {shown}."


def exact_answer(prompt: str, answers: Mapping[str, str]) -> str | None:
    """The one right answer to a prompt that has one (configured, "reply with exactly", a sum, a fact), or None."""
    lowered = prompt.lower()
    for part, answer in answers.items():
        if part.lower() in lowered:
            return answer
    found = _EXACTLY.search(prompt)
    if found:
        text = found.group(1).strip()
        quoted = re.match(r"[\"'`“]([^\"'`”]+)[\"'`”]", text)
        if quoted:
            return quoted.group(1)
        line = text.splitlines()[0].strip()
        return line if ":" in prompt else line.rstrip(".")
    result = arithmetic(prompt)
    if result is not None:
        return result
    return next((answer for part, answer in _FACTS.items() if part in lowered), None)


def natural_length(rng: Random, median: int) -> int:
    """A log-normal length in tokens around the median (sigma 0.35), at least 1 (0 for a median of 0)."""
    return max(1, round(median * math.exp(rng.gauss(0.0, 0.35)))) if median else 0


def compose(settings: Settings, ask: Ask, key: str, degenerate: bool = False) -> Script:
    """Write the answer. The same seed and key give the same words, whatever the timing and the drafts.

    key: the rendered prompt, plus whatever makes a sampled request different from the next.
    """
    rng = Random(f"{settings.seed}\x00{key}")
    prose: Callable[[], str] = (lambda: DEGENERATE) if degenerate else Sentences(rng, language_of(ask.last_user))
    segments = []
    if ask.thinking:
        length = natural_length(rng, settings.thinking_tokens)
        if ask.reasoning_parsed:
            segments += [Segment("reasoning", [], length, prose), Segment("content", [""])]
        else:
            segments += [Segment("content", [], length, prose), Segment("content", ["\n", "</think>", "\n\n"])]
        if not degenerate:
            prose = Sentences(rng, language_of(ask.last_user))
    exact = ask.exact if ask.exact is not None else exact_answer(ask.last_user, settings.answers) or recall(ask.said)
    finish = "stop"
    if degenerate:
        segments.append(Segment("content", [], ENDLESS, prose))
    elif ask.tool_calls:
        finish = "tool_calls"
        for index, (_, arguments) in enumerate(ask.tool_calls):
            segments.append(Segment(f"tool:{index}", split_tokens(arguments) or [""]))
    elif ask.tool_result:
        segments.append(Segment("content", split_tokens(f"The tool says: {ask.tool_result[:400]}")))
    elif exact is not None:
        segments.append(Segment("content", split_tokens(exact) or [""]))
    else:
        segments.append(Segment("content", [], natural_length(rng, settings.answer_tokens), prose))
    short = ask.min_tokens - 1 - sum(segment.length for segment in segments)
    if ask.ignore_eos:
        segments.append(Segment("content", [], ENDLESS, prose))
    else:
        if short > 0:
            segments.append(Segment("content", [], short, prose))
        segments.append(Segment("content", [""]))  # the end-of-text token: it counts, and shows nothing
    return Script(segments, finish)


def choose_tools(tools: Sequence[Mapping[str, Any]], choice: object, prompt: str) -> list[tuple[str, str]]:
    """The tool calls to make, as (name, arguments in JSON).

    "required" calls the tool that the prompt speaks of, or the first; a named choice calls that one; "auto" calls a tool
    when the prompt contains a word (4 letters or more) of its name.
    """
    functions = [tool["function"] for tool in tools if isinstance(tool.get("function"), Mapping)]
    named = choice["function"]["name"] if isinstance(choice, Mapping) else None
    lowered = prompt.lower()

    def spoken_of(function: Mapping[str, Any]) -> bool:
        return any(len(word) >= 4 and word in lowered for word in re.split(r"[\W_]+", str(function["name"]).lower()))

    if named is not None:
        chosen = [function for function in functions if function["name"] == named]
    else:
        chosen = [function for function in functions if spoken_of(function)][:1]
        if not chosen and choice == "required":
            chosen = functions[:1]
    return [
        (str(function["name"]), json.dumps(instance(function.get("parameters") or {"type": "object"}, prompt) or {}))
        for function in chosen
    ]
