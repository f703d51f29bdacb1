"""Measures of a text's sanity. Pure. Every threshold stands here with its source."""

from __future__ import annotations

import re
from collections import Counter
from itertools import groupby
from typing import Literal

MAX_REPEATED_4GRAMS = 0.30
"""Share of 4-grams of words that repeat an earlier one (seq-rep-4 of Welleck et al., Neural Text Generation with Unlikelihood
Training, ICLR 2020). They report below 0.01 for human text and about 0.4 for models caught in loops; 0.30 lies well above what a
list or a refrain gives. Own choice between the two."""

MIN_WORDS = 20
"""Below so many words neither repetition nor language is judged; own choice, about two sentences."""

MAX_RUN = 40
"""Longest run of one character that is not a space. Rules of tables and code reach 30 to 40; a wall has hundreds. Own choice."""

MAX_ONE_CHARACTER = 0.40
"""Share of one character among those that are not spaces. The commonest letter of English and French has 12 to 17 %. Own choice."""

_ENGLISH = """the and of to in is are was that it with for on as by from this which or an be have not at their they he she you
his her when where there we its but into"""
_FRENCH = """le la les des et un une est dans que qui du en pour pas sur au avec ce il elle sont se plus par ne ou aux cette son sa
ses nous vous leur leurs mais où on"""
_STOP_WORDS = {"en": frozenset(_ENGLISH.split()), "fr": frozenset(_FRENCH.split())}
_WORD = re.compile(r"[^\W\d_]+")


def words_of(text: str) -> list[str]:
    """The words of a text, in lower case. Digits and signs are not words."""
    return _WORD.findall(text.lower())


def repeated_4grams(text: str) -> float:
    """Share of the 4-grams of white-space-separated parts that occurred before in the text: 0 none, near 1 a loop."""
    parts = text.split()
    grams = [tuple(parts[at : at + 4]) for at in range(len(parts) - 3)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


def longest_run(text: str) -> int:
    """Length of the longest run of one character other than white space."""
    return max((len(list(group)) for char, group in groupby(text) if not char.isspace()), default=0)


def one_character_share(text: str) -> float:
    """Share of the commonest character among those that are not white space; 0 for an empty text."""
    counts = Counter(char for char in text if not char.isspace())
    return max(counts.values()) / sum(counts.values()) if counts else 0.0


def language_of(text: str) -> Literal["en", "fr"] | None:
    """The language whose commonest words occur clearly more often (twice as often, and in 5 % of the words); None if neither."""
    words = words_of(text)
    if len(words) < MIN_WORDS:
        return None
    shares = {name: sum(word in stop for word in words) / len(words) for name, stop in _STOP_WORDS.items()}
    for name, other in (("en", "fr"), ("fr", "en")):
        if shares[name] >= 0.05 and shares[name] >= 2 * shares[other]:
            return "en" if name == "en" else "fr"
    return None


def degenerate(text: str) -> str:
    """Why a text is no sane text, in plain words; empty when nothing is wrong. Short texts are only checked for walls."""
    if longest_run(text) > MAX_RUN:
        return f"a run of {longest_run(text)} equal characters"
    if len(text) >= 3 * MAX_RUN and one_character_share(text) > MAX_ONE_CHARACTER:
        return f"one character makes up {one_character_share(text):.0%} of the text"
    if len(text.split()) >= MIN_WORDS and repeated_4grams(text) > MAX_REPEATED_4GRAMS:
        return f"{repeated_4grams(text):.0%} of the 4-grams repeat earlier ones (limit {MAX_REPEATED_4GRAMS:.0%})"
    return ""


def contains(text: str, accepted: list[str]) -> bool:
    """Whether one of the accepted answers stands in the text as whole words, whatever the case."""
    return any(re.search(rf"(?<!\w){re.escape(answer)}(?!\w)", text, re.IGNORECASE) for answer in accepted)
