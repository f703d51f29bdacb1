"""What a shell may suggest: one kind of thing for each metavar, whatever verb uses it.

The scripts (``audition completion``) and the protocol are click's. Nothing here runs unless a shell asks, and nothing here raises
for a folder that cannot be read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import click
from click.shell_completion import CompletionItem

Suggest = Callable[[str], list[CompletionItem[str]]]
_SPIKE, _RUN = "spike.yaml", "run.json"


class Suggesting(click.types.StringParamType):
    """Plain text with suggestions."""

    def __init__(self, suggest: Suggest) -> None:
        self._suggest = suggest

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
        """The suggestions for what was typed so far."""
        return self._suggest(incomplete)


def files(incomplete: str) -> list[CompletionItem[str]]:
    """Any file: the shell lists them itself."""
    return [CompletionItem(incomplete, type="file")] if _printable(incomplete) else []


def folders(incomplete: str) -> list[CompletionItem[str]]:
    """Any folder: the shell lists them itself."""
    return [CompletionItem(incomplete, type="dir")] if _printable(incomplete) else []


def spikes(incomplete: str) -> list[CompletionItem[str]]:
    """Spike files and folders that hold one; when there is none here, any file, so that one can go on into folders."""
    found = [path for path in _beside(incomplete) if path.suffix in (".yaml", ".yml") or (path / _SPIKE).is_file()]
    return _named(found, incomplete) or files(incomplete)


def spikes_and_examples(incomplete: str) -> list[CompletionItem[str]]:
    """The same, and the names of the shipped examples."""
    from audition.spike.examples import example_names  # noqa: PLC0415 - lazily: only when completing

    here = [item for item in spikes(incomplete) if item.type == "plain"]
    shipped = [CompletionItem(name, help="shipped example") for name in example_names() if name.startswith(incomplete)]
    return [*here, *shipped] or files(incomplete)


def runs(incomplete: str) -> list[CompletionItem[str]]:
    """Run folders here and in ``_iteration_log``; when there is none, any folder."""
    places = [incomplete] if incomplete else ["", "_iteration_log/"]
    found = [path for place in places for path in _beside(place) if (path / _RUN).is_file()]
    return _named(found, incomplete) or folders(incomplete)


def faults(incomplete: str) -> list[CompletionItem[str]]:
    """The faults that a rehearsal can have."""
    from audition.run.rehearsal import known_faults  # noqa: PLC0415 - lazily: only when completing

    known = {**known_faults(), "list": "name them all"}
    return [CompletionItem(name, help=text) for name, text in sorted(known.items()) if name.startswith(incomplete)]


MEANT: dict[str, Suggest] = {
    "SPIKE": spikes, "SPIKE|EXAMPLE": spikes_and_examples, "RUN": runs, "RUN...": runs, "LOG...": files,
    "FILE": files, "FILE|-": files, "CLASS|FILE": files, "FOLDER": folders, "KIND": faults,
}  # fmt: skip
"""Metavar of an argument or option -> what is suggested for it. Anything else gets no suggestion, or its choices."""


def with_suggestions(command: click.Command) -> click.Command:
    """The command; its parameters of plain text suggest what their metavar means."""
    for param in command.params:
        if isinstance(param.type, click.types.StringParamType) and (suggest := MEANT.get(param.metavar or "")):
            param.type = Suggesting(suggest)
    return command


def _beside(incomplete: str) -> Iterable[Path]:
    """What lies in the folder that was typed so far and begins like its last part; hidden entries only when asked for."""
    folder, begin = os.path.split(incomplete)
    try:
        names = sorted(os.listdir(os.path.expanduser(folder) or "."))
    except (OSError, ValueError):
        return []
    shown = [name for name in names if _printable(name) and name.startswith(begin) and (begin or not name.startswith("."))]
    return [Path(os.path.expanduser(folder), name) for name in shown]


def _printable(name: str) -> bool:
    """Whether a name is text that can be written to the shell: one that is not UTF-8 would take all other suggestions with it."""
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return "\n" not in name


def _named(found: Iterable[Path], incomplete: str) -> list[CompletionItem[str]]:
    """Paths as the user began to write them."""
    folder = os.path.split(incomplete)[0]
    begun = os.path.expanduser(folder)
    names = [str(path) if begun == folder else folder + str(path)[len(begun) :] for path in found]
    return [CompletionItem(name) for name in names if _printable(name)]
