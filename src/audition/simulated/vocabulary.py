"""The words of the simulation's prose, and sentences made of them.

What must not live here: deciding what to answer (see `answers`), tokens of a request.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random


def _words(text: str) -> list[str]:
    return text.split()


NOUNS = _words(
    "river harbour engine garden teacher window letter market bridge forest signal station valley kitchen mountain "
    "question library island painter village machine winter morning captain pattern theory journey sailor record "
    "factory student weather lantern kingdom meadow shadow village compass ladder orchard quarry cable vessel "
    "archive carriage fountain rumour timber anchor ledger gallery meeting circuit magnet barley copper saddle "
    "harvest pilot canal tunnel miller surgeon needle corridor planet glacier spindle beacon hammer scholar"
)
ADJECTIVES = _words(
    "quiet narrow early distant heavy careful ancient golden hollow patient silver gentle broken sudden steady modern "
    "empty curious famous bitter crowded humble rapid sturdy subtle lonely vivid clever damp frozen honest hidden "
    "rough simple tender wooden yellow brittle stubborn faded"
)
VERBS = _words(
    "carries follows measures repairs crosses answers gathers watches explains divides protects reaches supports "
    "changes borrows describes opens returns surrounds improves delays shelters compares records warms notices "
    "lowers replaces tests guides moves shapes counts"
)
ADVERBS = _words("slowly often rarely quietly nearly always gladly firmly twice again seldom calmly soon partly")
PREPOSITIONS = _words("beside beyond under near behind above through without toward across against within after before")
DETERMINERS = _words("the a every this another one that some each our")
LINKS = _words("while because although until whenever so and but since unless")
OPENERS = _words("However Later Perhaps Meanwhile Indeed Still Often Therefore Finally Instead Today Elsewhere")
DEGENERATE = " the river and the river and"


class Sentences:
    """An endless run of readable sentences, each starting with a space; the first starts without one.

    The words are drawn from a seeded generator, so one seed always tells the same story, and the vocabulary is wide
    enough that runs of four words hardly ever come twice.
    """

    def __init__(self, rng: Random) -> None:
        self._random = rng.random
        self._count = 0
        self._forms: tuple[Callable[[], str], ...] = (
            lambda: f"{self._subject()} {self._any(VERBS)} {self._object()}",
            lambda: f"{self._subject()} {self._any(ADVERBS)} {self._any(VERBS)} {self._object()} {self._place()}",
            lambda: f"{self._place()}, {self._subject()} {self._any(VERBS)} {self._object()}",
            lambda: (
                f"{self._subject()} {self._any(VERBS)} {self._object()} {self._any(LINKS)} "
                f"{self._subject()} {self._any(VERBS)} {self._object()}"
            ),
            lambda: f"{self._any(OPENERS)}, {self._subject()} {self._any(VERBS)} {self._object()} {self._place()}",
        )

    def _any(self, words: list[str]) -> str:
        return words[int(self._random() * len(words))]

    def _subject(self) -> str:
        return f"{self._any(DETERMINERS)} {self._any(ADJECTIVES)} {self._any(NOUNS)}"

    def _object(self) -> str:
        return f"{self._any(DETERMINERS)} {self._any(NOUNS)}"

    def _place(self) -> str:
        return f"{self._any(PREPOSITIONS)} {self._any(DETERMINERS)} {self._any(NOUNS)}"

    def __call__(self) -> str:
        """The next sentence."""
        text = self._forms[int(self._random() * len(self._forms))]()
        text = text[0].upper() + text[1:] + "."
        self._count += 1
        if self._count == 1:
            return text
        return ("\n\n" if self._count % 6 == 0 else " ") + text
