"""The quality canary: a server that passes every health check may still write nonsense. What must not live here: text measures."""

from __future__ import annotations

from audition.judge.records import ProbeRecord
from audition.probes.ask import Answer, Asker, Transcript, questions
from audition.probes.text import MIN_WORDS, contains, degenerate, language_of, words_of

_SHORT, _LONG = 64, 320  # tokens of an exact answer with some politeness around it, and of six sentences


def _cut(problems: list[str], answer: Answer, seen: Transcript) -> ProbeRecord:
    """The record when the rest cannot be asked: what was wrong before still counts."""
    passed = False if problems else None
    return ProbeRecord("canary", passed, "; ".join([*problems, f"no server answered: {answer.failure}"]), seen.text())


async def canary(asker: Asker) -> ProbeRecord:
    """Exact answers at temperature 0, and a text in English and in French with the server's own sampling.

    Fails on a wrong exact answer, on repeated 4-grams, on a wall of one character, and on the wrong language.
    """
    seen = Transcript()
    problems: list[str] = []
    for row in questions()["canary"]["exact"]:
        answer = await asker.ask(row["ask"], max_tokens=_SHORT, temperature=0)
        seen.add(row["id"], answer)
        if answer.absent:
            return _cut(problems, answer, seen)
        if wrong := answer.failure or degenerate(answer.content):
            problems.append(f"{row['id']}: {wrong}")
        elif not contains(answer.content, row["accept"]):
            problems.append(f"{row['id']}: expected {row['accept'][0]!r}, got {answer.content[:60]!r}")
    for row in questions()["canary"]["language"]:
        answer = await asker.ask(row["ask"], max_tokens=_LONG)
        seen.add(row["id"], answer)
        if answer.absent:
            return _cut(problems, answer, seen)
        if wrong := text_problem(answer, row["language"]):
            problems.append(f"{row['id']}: {wrong}")
    detail = "; ".join(problems) or "exact answers, no repetition, the right languages"
    return ProbeRecord("canary", not problems, detail, seen.text())


def text_problem(answer: Answer, language: str) -> str:
    """What is wrong with a longer text that should be in this language; empty when it is fine."""
    text = answer.content or answer.reasoning
    if answer.failure:
        return answer.failure
    if wrong := degenerate(text):
        return wrong
    if len(words_of(text)) < MIN_WORDS:
        return f"only {len(words_of(text))} words: {text[:60]!r}"
    found = language_of(text)
    return "" if found == language else f"expected {language}, the text reads like {found or 'neither English nor French'}"
