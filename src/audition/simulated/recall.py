"""Answer a short question from what stands earlier in the prompt ("What is my cat called? Answer with the name only.").

A simulated model has no understanding; this looks for the earlier clause that shares most words with the question.
What must not live here: prompts with an answer of their own (see `answers`).
"""

from __future__ import annotations

import re

_QUESTION = re.compile(r"((?:what|which|who|where)\b[^?\n]{3,200}\?)[^?\n]{0,80}\bonly\b[^?\n]{0,20}$", re.IGNORECASE)
_CLAUSE = re.compile(r"[^.!?\n]+")
_STATED = re.compile(r"\b(?:is called|is named|called|named|is)\s+([\w-]+)", re.IGNORECASE)
_WORD = re.compile(r"[\w-]+")
_COMMON = frozenset(
    ("what", "which", "who", "where", "is", "are", "the", "a", "an", "in", "of", "for", "to", "my", "given", "above", "notes")
)
LEAST_SHARED = 2  # words that a clause must share with the question


def recall(text: str) -> str | None:
    """The word that an earlier clause of the text states for its closing question, or None.

    text: what the user has written so far, the question last.
    """
    question = _QUESTION.search(text.rstrip())
    if question is None:
        return None
    wanted = {word for word in _WORD.findall(question.group(1).lower()) if word not in _COMMON}
    best, found = LEAST_SHARED - 1, None
    for clause in _CLAUSE.findall(text[: question.start()]):
        shared = len(wanted.intersection(_WORD.findall(clause.lower())))
        if shared > best:
            stated = _STATED.search(clause)
            if stated is not None:
                best, found = shared, stated.group(1)
    return found
