"""Greedy equality: answers at temperature 0, recorded for each arm and compared with production's.

What must not live here: HTTP.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import takewhile

from audition.judge.records import ProbeRecord
from audition.probes.ask import Asker, questions

PROBE = "greedy_equality"
_TOKENS = 96


async def greedy_equality(asker: Asker, reference: Mapping[str, str] | None) -> ProbeRecord:
    """Ask every question at temperature 0. ``evidence`` is a JSON object question -> answer; see ``reference_answers``."""
    answers: dict[str, str] = {}
    for row in questions()[PROBE]:
        answer = await asker.ask(row["ask"], max_tokens=_TOKENS, temperature=0, seed=0)
        if answer.failure:
            judged = None if answer.absent else False
            return ProbeRecord(PROBE, judged, f"{row['id']}: {answer.failure[:300]}", json.dumps(answers, ensure_ascii=False))
        answers[row["id"]] = answer.content or answer.reasoning
    passed, detail = compare_answers(answers, reference)
    return ProbeRecord(PROBE, passed, detail, json.dumps(answers, ensure_ascii=False))


def compare_answers(answers: Mapping[str, str], reference: Mapping[str, str] | None) -> tuple[bool | None, str]:
    """(passed, detail). Passed only when every answer equals the reference's, character by character.

    The share of equal prefix = characters before the first difference / characters of the reference, over all questions.
    """
    if reference is None:
        return None, f"{len(answers)} answers recorded; there are none of production to compare with"
    shared = [name for name in reference if name in answers]
    if not shared:
        return None, "production's recorded answers are to other questions"
    same = [name for name in shared if answers[name] == reference[name]]
    total = sum(len(reference[name]) for name in shared)
    agreed = sum(equal_prefix(answers[name], reference[name]) for name in shared)
    share = agreed / total if total else 1.0
    text = f"{len(same)} of {len(shared)} answers equal production's; share of equal prefix {share:.1%}"
    different = next((name for name in shared if name not in same), None)
    if different is None:
        return True, text
    at = equal_prefix(answers[different], reference[different])
    return False, (
        f"{text}; first difference in `{different}` at character {at}: "
        f"{reference[different][at : at + 30]!r} became {answers[different][at : at + 30]!r}"
    )


def equal_prefix(one: str, other: str) -> int:
    """Characters before the first difference."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def reference_answers(records: list[ProbeRecord]) -> dict[str, str] | None:
    """Production's answers out of its probe records, to be given to ``run_probes`` as ``reference``; None when there are none."""
    for record in records:
        if record.probe == PROBE and record.evidence:
            try:
                answers = json.loads(record.evidence)
            except ValueError:
                continue
            whole = isinstance(answers, dict) and set(answers) == {row["id"] for row in questions()[PROBE]}
            if whole and all(isinstance(text, str) for text in answers.values()):
                return dict(answers)
    return None
