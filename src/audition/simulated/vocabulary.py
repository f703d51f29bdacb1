"""The words of the simulation's prose, in English and French, and sentences made of them.

What must not live here: deciding what to answer (see `answers`), tokens of a request.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from random import Random

DEGENERATE = " the river and the river and"


@dataclass(frozen=True, slots=True)
class Lexicon:
    """Words of one language, and its sentence forms.

    A form is a row of letters: S subject with adjective, O object without one, P place, V verb, D adverb, L link, X opener; a
    comma stands for itself.
    """

    nouns: tuple[str, ...]  # with a determiner already, where the language binds them
    determiners: tuple[str, ...]
    adjectives: tuple[str, ...]
    adjective_first: bool
    verbs: tuple[str, ...]
    adverbs: tuple[str, ...]
    prepositions: tuple[str, ...]
    links: tuple[str, ...]
    openers: tuple[str, ...]
    forms: tuple[str, ...] = ("SVO", "SDVOP", "P,SVO", "SVOLSVO", "X,SVOP")


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _phrases(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(","))


_FRENCH_MARKS = frozenset(_words("le la les des est une dans que qui pour avec sur pourquoi en cinq phrases décris explique écris"))

ENGLISH = Lexicon(
    nouns=_words(
        """river harbour engine garden teacher window letter market bridge forest signal station valley kitchen mountain
        question library island painter village machine winter morning captain pattern theory journey sailor record
        factory student weather lantern kingdom meadow shadow compass ladder orchard quarry cable vessel archive carriage
        fountain rumour timber anchor ledger gallery meeting circuit magnet barley copper saddle harvest pilot canal tunnel
        miller surgeon needle corridor planet glacier spindle beacon hammer scholar"""
    ),
    determiners=_words("the the the the a every this another one that some our"),
    adjectives=_words(
        """quiet narrow early distant heavy careful ancient golden hollow patient silver gentle broken sudden steady modern
        empty curious famous bitter crowded humble rapid sturdy subtle lonely vivid clever damp frozen honest hidden rough
        simple tender wooden yellow brittle stubborn faded"""
    ),
    adjective_first=True,
    verbs=_words(
        """carries follows measures repairs crosses answers gathers watches explains divides protects reaches supports changes
        borrows describes opens returns surrounds improves delays shelters compares records warms notices lowers replaces
        tests guides moves shapes counts"""
    ),
    adverbs=_words("slowly often rarely quietly nearly always gladly firmly again seldom calmly soon partly"),
    prepositions=_words("in on by with from beside beyond under near behind above through without toward across against"),
    links=_words("while because although until whenever so and but since unless"),
    openers=_words("However Later Perhaps Meanwhile Indeed Still Often Therefore Finally Instead Today Elsewhere"),
)

# French nouns carry their determiner, and the adjectives have one form for both genders.
FRENCH = Lexicon(
    nouns=_phrases(
        """le marché, la rivière, un bateau, une fenêtre, le village, la place, un marchand, une lanterne, le jardin, la fontaine,
        un voisin, une cuisine, le pont, la forêt, un musicien, une lettre, le matin, la gare, un panier, une machine, le phare,
        la montagne, un facteur, une question, le chemin, la rumeur, un moulin, une maison, le canal, la cloche, un tunnel,
        une aiguille, le cuivre, la neige, un savant, une planète, le signal, la vallée, un pilote, une île"""
    ),
    determiners=(),
    adjectives=_words(
        """calme tranquille rouge jaune étrange modeste triste vaste rapide jeune fragile utile simple sombre large solide célèbre
        moderne timide habile énorme pâle sauvage rustique fidèle"""
    ),
    adjective_first=False,
    verbs=_words(
        """porte suit mesure répare traverse rassemble regarde explique partage protège soutient change décrit ouvre entoure
        améliore retarde abrite compare réchauffe remarque remplace guide compte"""
    ),
    adverbs=_words("souvent rarement parfois toujours doucement encore bientôt lentement"),
    prepositions=_words("dans sur avec pour sans sous derrière devant vers contre"),
    links=_phrases("et, mais, parce que, pendant que, dès que, tandis que"),
    openers=_words("Ensuite Pourtant Parfois Enfin Ailleurs Souvent"),
    forms=("SVO", "SVDOP", "P,SVO", "SVOLSVO", "X,SVOP"),
)


def language_of(prompt: str) -> Lexicon:
    """French for a prompt with three or more common French words and no more English ones; English otherwise."""
    words = re.findall(r"\w+", prompt[-2000:].lower())
    french = sum(word in _FRENCH_MARKS for word in words)
    english = sum(word in ("the", "of", "and", "is", "to", "what") for word in words)
    return FRENCH if french >= 3 and french > english else ENGLISH


class Sentences:
    """An endless run of readable sentences, each starting with white space; the first starts without.

    The words are drawn from a seeded generator, so one seed always tells the same story, and the vocabulary is wide
    enough that runs of four words hardly ever come twice.
    """

    def __init__(self, rng: Random, lexicon: Lexicon = ENGLISH) -> None:
        self._random = rng.random
        self._lexicon = lexicon
        self._count = 0

    def _any(self, words: tuple[str, ...]) -> str:
        return words[int(self._random() * len(words))]

    def _noun(self, adjective: str) -> str:
        lexicon = self._lexicon
        noun = self._any(lexicon.nouns)
        if not lexicon.adjective_first:
            return f"{noun} {adjective}" if adjective else noun
        phrase = f"{adjective} {noun}" if adjective else noun
        determiner = self._any(lexicon.determiners)
        return f"{'an' if determiner == 'a' and phrase[0] in 'aeiou' else determiner} {phrase}"

    def _part(self, letter: str) -> str:
        lexicon = self._lexicon
        match letter:
            case "S":
                return self._noun(self._any(lexicon.adjectives))
            case "O":
                return self._noun("")
            case "P":
                return f"{self._any(lexicon.prepositions)} {self._noun('')}"
            case "V":
                return self._any(lexicon.verbs)
            case "D":
                return self._any(lexicon.adverbs)
            case "L":
                return self._any(lexicon.links)
            case "X":
                return self._any(lexicon.openers)
        return letter

    def __call__(self) -> str:
        """The next sentence."""
        text = " ".join(self._part(letter) for letter in self._any(self._lexicon.forms)).replace(" ,", ",")
        text = text[0].upper() + text[1:] + "."
        self._count += 1
        if self._count == 1:
            return text
        return ("\n\n" if self._count % 6 == 0 else " ") + text
