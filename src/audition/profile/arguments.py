"""What a command line means to vLLM of one version: typed values, and findings about whatever its parser would refuse or drop.

Pure: a list of words and a table in, values and findings out. What the values do together is told by `interactions`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from audition.profile.finding import Finding
from audition.profile.flag import Flag, FlagTable
from audition.profile.keys import check_keys
from audition.profile.registered import check_registered
from audition.profile.tables import tables
from audition.profile.unknown import about_choice, about_unknown
from audition.profile.values import Problem, typed
from audition.profile.words import Word, dotted_value, merge, serve_words, split
from audition.units import NoData

DEFAULT_MODEL = "Qwen/Qwen3-0.6B"
"""What ``vllm serve`` loads when no model is named (the default of its model configuration)."""
NAME_NEEDS_MODEL = "0.17.0"
"""From this version on ``vllm serve`` refuses --served-model-name without a model (its `FlexibleArgumentParser.parse_args`)."""


@dataclass(frozen=True)
class Setting:
    """One argument as it was given: its typed value, the words that it came from, and how its name was written."""

    flag: Flag
    value: Any
    words: tuple[str, ...]
    spelled: str


@dataclass(frozen=True)
class Parsed:
    """A command line as the version understands it. ``settings`` by the argument's name; the last of several counts."""

    table: FlagTable
    model: str | NoData
    settings: Mapping[str, Setting]
    findings: tuple[Finding, ...]

    def given(self, name: str) -> Any | NoData:
        """The value that was given for an argument, or NoData."""
        setting = self.settings.get(name)
        return NoData(f"{name} is not given") if setting is None else setting.value

    def effective(self, name: str) -> Any | NoData:
        """The value that was given, else the parser's default; NoData where the version lacks it or makes it while starting."""
        if name in self.settings:
            return self.settings[name].value
        flag = self.table.flags.get(name)
        return NoData(f"vLLM {self.table.version} has no {name}") if flag is None else flag.default


@dataclass
class _Reading:
    """The state of one pass over the words."""

    table: FlagTable
    words: list[Word]
    at: int = 0
    settings: dict[str, Setting] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    bare: list[str] = field(default_factory=list)
    dotted: dict[str, tuple[Flag, dict[str, Any], list[str]]] = field(default_factory=dict)

    def say(self, level: Any, code: str, text: str, hint: str = "") -> None:
        """Note a finding."""
        self.findings.append(Finding(level, code, text, hint))

    def following(self, limit: int | None = None) -> list[str]:
        """The values that follow, at most ``limit`` of them, taken off the line."""
        taken: list[str] = []
        while self.at < len(self.words) and not self.words[self.at].option and (limit is None or len(taken) < limit):
            taken.append(self.words[self.at].text)
            self.at += 1
        return taken


def parse(argv: Sequence[str], table: FlagTable) -> Parsed:
    """Read a command line by a version's table. A leading ``vllm serve`` or module name is passed over.

    Findings: unknown-flag, abbreviated, deprecated, bad-json, bad-choice, bad-number, variable-left, given-twice, missing-value,
    unexpected-value, ambiguous, stray-word, model-missing, missing-partner, help, unknown-key, unknown-value, config-file,
    version-guessed, unreadable-script.
    """
    try:
        words = serve_words(argv)
    except ValueError as error:
        broken = Finding("blocking", "unreadable-script", f"the command is no readable shell text: {error}", "close its quotes")
        return Parsed(table, NoData("the command could not be read"), {}, (broken,))
    reading = _Reading(table, [word for text in words for word in _short_level(text, table)])
    if not table.exact:
        reading.say("warning", "version-guessed", table.note, "name the exact version, or judge by a nearer release")
    while reading.at < len(reading.words):
        _step(reading)
    _add_dotted(reading)
    model = _model(reading)
    reading.findings += _deprecations(reading.settings)
    if "--config" in reading.settings:
        reading.say("warning", "config-file", "--config brings arguments from a file of the server, which are not judged here")
    reading.findings += check_keys({s.flag.name: (s.flag, s.value) for s in reading.settings.values()}, table)
    reading.findings += check_registered({name: s.value for name, s in reading.settings.items()}, table)
    return Parsed(table, model, reading.settings, tuple(reading.findings))


def _short_level(text: str, table: FlagTable) -> Iterator[Word]:
    """``-O3`` is short for a level: --optimization-level, in versions without it the mode or level of --compilation-config."""
    if text.startswith("-O") and len(text) > 2 and text[2] != ".":
        level = text[3:] if text[2] == "=" else text[2:]
        if table.has("--optimization-level"):
            yield Word(text, "--optimization-level", level)
        else:
            config = table.configs.get("CompilationConfig")
            yield Word(text, "-O", level, ("mode" if config and "mode" in config.keys else "level",))
    else:
        yield split(text)


def _step(reading: _Reading) -> None:
    """Take one option with its values, or one bare word."""
    word = reading.words[reading.at]
    reading.at += 1
    if word.text == "-O" and reading.at < len(reading.words) and reading.words[reading.at].text in {"0", "1", "2", "3"}:
        reading.words[reading.at] = next(_short_level(f"-O{reading.words[reading.at].text}", reading.table))
        return
    if not word.option:
        reading.bare.append(word.text)
        return
    if word.text == "--":
        reading.say("warning", "stray-word", "a lone -- ends the options: what follows is read as bare words", "take it out")
        reading.bare += [w.text for w in reading.words[reading.at :]]
        reading.at = len(reading.words)
        return
    flag = _flag(reading, word)
    if flag is None:
        if word.inline is None:
            reading.following(1)
    elif word.keys:
        _take_dotted(reading, word, flag)
    else:
        _take(reading, word, flag)


def _flag(reading: _Reading, word: Word) -> Flag | None:
    """The argument that an option names; one that begins like it counts where it is the only one, as in argparse."""
    table = reading.table
    if found := table.spellings.get(word.option):
        return found
    if word.option.startswith("--") and len(word.option) > 2:
        longer = sorted(form for form in table.spellings if form.startswith(word.option))
        if len(longer) == 1:
            said = f"{word.option} is short for {longer[0]}; a later version may have a second argument that begins so"
            reading.say("warning", "abbreviated", said, f"write {longer[0]}")
            return table.spellings[longer[0]]
        if longer:
            reading.say(
                "blocking", "ambiguous", f"{word.option} could be {', '.join(longer[:5])}", "write the one that is meant in full"
            )
            return None
    reading.findings.append(about_unknown(word.option, table))
    return None


def _take(reading: _Reading, word: Word, flag: Flag) -> None:
    """Take an option's values and note its setting."""
    if flag.kind == "help":
        reading.say("blocking", "help", f"{word.option} prints the help and ends: no server starts", f"take {word.option} out")
        return
    if flag.kind in {"switch", "bool"}:
        if word.inline is not None:
            said = f"{flag.name} takes no value; vLLM refuses {word.text!r}"
            off = word.inline.lower() in {"false", "0", "no", "off"} and flag.kind == "bool"
            reading.say("blocking", "unexpected-value", said, f"write --no-{flag.name[2:]}" if off else f"write {flag.name}")
            return
        positive = not _negative(word.option, flag, reading.table)
        _note(reading, Setting(flag, positive, (), word.option))
        return
    texts = [word.inline] if word.inline is not None else reading.following(None if flag.kind == "list" else 1)
    if not texts:
        if flag.kind == "optional":
            _note(reading, Setting(flag, True, (), word.option))
            return
        more = reading.at < len(reading.words)
        said = f"`{flag.name}` wants a value, and {'the next word is an option' if more else 'nothing follows'}"
        reading.say("blocking", "missing-value", said, f"write {flag.name}=VALUE; with = a value may begin with a dash")
        return
    _note(reading, Setting(flag, _converted(reading, flag, texts), tuple(texts), word.option))


def _negative(option: str, flag: Flag, table: FlagTable) -> bool:
    """Whether the form that turns a bool off is meant, also where it is abbreviated."""
    return flag.turns_off(option if option in table.spellings else next(f for f in flag.forms if f.startswith(option)))


def _converted(reading: _Reading, flag: Flag, texts: list[str]) -> Any:
    """The typed value; NoData with the reason where a text is none. A text that is no choice of this version stays itself."""
    values: list[Any] = []
    for text in texts:
        value = typed(flag, text)
        if isinstance(value, Problem):
            level = "warning" if value.code == "variable-left" else "blocking"
            other = about_choice(flag, text, reading.table) if value.code == "bad-choice" else ""
            reading.say(level, value.code, value.text + other, value.hint)
            if value.code != "bad-choice" or flag.kind == "list":
                return NoData(value.text)
            value = text
        values.append(value)
    return values if flag.kind == "list" else values[0]


def _note(reading: _Reading, setting: Setting) -> None:
    """Keep a setting; the second of the same argument wins, except where values add up."""
    name = setting.flag.name
    before = reading.settings.get(name)
    if before is not None and setting.flag.kind == "append":
        setting = Setting(setting.flag, [*before.value, setting.value], before.words + setting.words, setting.spelled)
    elif setting.flag.kind == "append":
        setting = Setting(setting.flag, [setting.value], setting.words, setting.spelled)
    elif before is not None:
        same = "with the same value" if before.value == setting.value else "with two values; the last one counts"
        reading.say("warning", "given-twice", f"{name} is given twice, {same}", "take the first one out")
    reading.settings[name] = setting


def _take_dotted(reading: _Reading, word: Word, flag: Flag) -> None:
    """``--json-arg.key value``: collected, and put together as one JSON value at the end."""
    texts = [word.inline] if word.inline is not None else _any_word(reading)
    if not texts:
        reading.say("blocking", "missing-value", f"{word.text} wants a value, and nothing follows", f"write {word.text}=VALUE")
        return
    if flag.kind != "json":
        said = f"{flag.name} is no JSON argument, so {word.text.split('=')[0]!r} means nothing to it"
        reading.say("blocking", "unknown-flag", said, f"write {flag.name}")
        return
    _, collected, spelled = reading.dotted.setdefault(flag.name, (flag, {}, []))
    spelled.append(word.text)
    if merge(collected, word.keys, dotted_value(texts[0], listed=word.listed)):
        said = f"{flag.name}.{'.'.join(word.keys)} is given twice; the last one counts"
        reading.say("warning", "given-twice", said, "take the first one out")


def _any_word(reading: _Reading) -> list[str]:
    """The next word whatever it looks like: vLLM takes it so after a dotted form."""
    if reading.at >= len(reading.words):
        return []
    reading.at += 1
    return [reading.words[reading.at - 1].text]


def _add_dotted(reading: _Reading) -> None:
    """Dotted forms count as one JSON value given last, so a JSON value of the same argument before them is lost."""
    for name, (flag, collected, spelled) in reading.dotted.items():
        if name in reading.settings:
            said = f"{name} is given as JSON and by its keys ({spelled[0].split('=')[0]}); vLLM keeps the keys, drops the JSON"
            reading.say("warning", "given-twice", said, f"put everything into the JSON of {name}")
        reading.settings[name] = Setting(flag, collected, tuple(spelled), spelled[0])


def _model(reading: _Reading) -> str | NoData:
    """The model: the first bare word, or --model; further bare words are refused."""
    option = reading.settings.get("--model")
    named = option.value if option is not None and isinstance(option.value, str) else None
    bare = list(reading.bare)
    first = bare.pop(0) if bare and named is None else None
    if bare and named is not None and bare[0] == named:
        bare.pop(0)
    for word in bare:
        said = f"{word!r} stands alone, where vLLM expects an option, and is refused"
        reading.say("blocking", "stray-word", said, "take it out, or put it behind its option; a value with blanks wants quotes")
    if named is None and first is None:
        if "--config" in reading.settings:
            return NoData("it may stand in the file that --config names")
        text = f"no model is named, so vLLM would load its default, {DEFAULT_MODEL}"
        since = tables().versions.index(NAME_NEEDS_MODEL)
        refused = "--served-model-name" in reading.settings and tables().versions.index(reading.table.version) >= since
        if refused:
            text = "no model is named, and `vllm serve` refuses --served-model-name without one"
        reading.say("blocking" if refused else "warning", "model-missing", text, "name the model first")
        return NoData(text) if refused else DEFAULT_MODEL
    return named if named is not None else first if first is not None else DEFAULT_MODEL


def _deprecations(settings: Mapping[str, Setting]) -> Iterator[Finding]:
    for setting in settings.values():
        if told := setting.flag.deprecated:
            said = "vLLM marks it as deprecated" if told == "deprecated" else f"vLLM's source says: {told}"
            yield Finding(
                "warning", "deprecated", f"{setting.flag.name} is on its way out. {said}", f"plan to drop {setting.flag.name}"
            )
