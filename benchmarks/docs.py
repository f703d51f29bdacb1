"""The generated pages of docs/reference: ``make docs`` writes them, ``make docs-check`` says whether they are fresh.

Plain Markdown that reads well on a forge; no site is built from it. The pages come from the same tables that the program uses: the
model of the spike file, the command line itself, the signatures of failures. The checks of all Markdown live in ``docs_check``, the
outputs of the story in ``docs_story``. No network. What must not live here: words about the product that no table holds; these are
written by hand in docs/.
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

import click
from benchmarks.docs_check import anchor_of, problems_of
from benchmarks.docs_story import stale_story
from pydantic import BaseModel

from audition.cli.app import EPILOG, VERBS, group
from audition.faults.signature import PHASES, Signature, shipped_signatures
from audition.spike import keys
from audition.spike.metrics import METRICS, PROBES
from audition.spike.model import Spike

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "docs" / "reference"
_MADE = "<!-- Written by `make docs`; do not edit. -->"
_TOP = click.Context(group, info_name="audition", help_option_names=["-h", "--help"])
_PHASES = {
    "arguments": "before anything is loaded: arguments, ports, containers",
    "config": "while the model's configuration is read",
    "memory": "while memory is shared out",
    "load": "while weights are loaded, graphs compiled, workers joined",
    "serve": "while requests are served",
}
_SPIKE_FILE = """\
A spike file is YAML. [reference.yaml](../../src/audition/spike/reference.yaml) is one with every key in it; `audition schema`
prints the JSON schema for your editor; `audition init` writes a first one from your compose profiles.

Durations are texts such as `90s`, `5m`, `1h30m` or `250ms`; a bare number is seconds. Paths are relative to the spike file, and `~`
is your home; variables such as `$HOME` are not replaced. Commands are lists, or one text split like a shell does.
A key that is not known, of the wrong type or missing is an error with its line, its path and the nearest known key.""".splitlines()
_COMMANDS = """\
`audition VERB --help` says the same. Under `--json` standard output holds one JSON document and nothing else, also when a verb
fails: then it has `error`, `what`, `exit_code`, `production` (what runs now), `next` (what to type) and, where known, `tried` and
`seen`. Progress and warnings go to standard error.""".splitlines()
_TROUBLE = """\
`audition diagnose LOG` finds these in a log of vLLM, docker or the journal, root cause first, and needs nothing else. A run does it
by itself with every log of an arm. A failure that no signature knows is shown as `unknown` with its excerpt.
`Nothing wrong was found` is said only of a server that was ready or answered requests. Of a log that is empty, ends in a boot or
has no line of a server it says that nothing is known (exit code 4).""".splitlines()
_ORIGINS = {
    "candidate": "the arm itself",
    "environment": "what surrounds it; the candidate is not blamed",
    "unknown": "not to be told from the log",
}


def pages() -> dict[Path, str]:
    """The generated pages with their texts."""
    return {
        REFERENCE / "spike-file.md": spike_file_page(),
        REFERENCE / "commands.md": commands_page(),
        REFERENCE / "troubleshooting.md": troubleshooting_page(),
    }


# -- the spike file -------------------------------------------------------------------------------------------------------


def spike_file_page() -> str:
    """Every key of the spike file by the place where it stands, and the metrics and probes that gates may name."""
    places = _places()
    lines = [
        "# The spike file: every key", "", _MADE, "",
        *_SPIKE_FILE, "",
        "| place | what stands there |", "|---|---|",
        *(f"| [{place}](#{anchor_of(place)}) | {_cell(_first_line(model))} |" for model, place in places.items()),
        "| [metrics](#metrics) | what a gate may name as `metric` |", "| [probes](#probes) | what a gate may name as `probe` |",
    ]  # fmt: skip
    for model, place in places.items():
        lines += ["", f"## {place}", "", _first_line(model), "", "| key | meaning | value | default |", "|---|---|---|---|"]
        for name in model.model_fields:
            key = keys.key(model, name)
            default = "**must be given**" if key.default is None else _default(key.default)
            inside = [f"[{places[m]}](#{anchor_of(places[m])})" for m in _models_of(model, name)]
            lines.append(f"| `{name}` | {_cell(key.description)} | {_cell(', '.join([key.type, *inside]))} | {default} |")
    lines += ["", "## metrics", "", "`stat` applies to metrics over requests alone.", ""]
    lines += ["| metric | unit | better | over | formula |", "|---|---|---|---|---|"]
    lines += [f"| `{m.name}` | {m.unit} | {m.better} | {m.scope} | {_cell(m.formula)} |" for m in METRICS.values()]
    lines += ["", "## probes", "", "| probe | what it asks |", "|---|---|"]
    lines += [f"| `{name}` | {_cell(str(text))} |" for name, text in PROBES.items()]
    return "\n".join(lines) + "\n"


def _places() -> dict[type[BaseModel], str]:
    """Every model with the place where it stands in the file, e.g. ``arms[].engine (process)``."""
    found: dict[type[BaseModel], str] = {Spike: "top level"}
    waiting: list[type[BaseModel]] = [Spike]
    while waiting:
        owner = waiting.pop(0)
        before = "" if owner is Spike else found[owner].partition(" (")[0] + "."
        for name in owner.model_fields:
            for model in _models_of(owner, name):
                if model in found:
                    continue
                many = "[]" if keys.models(keys.items(keys.annotation_of(owner, name))) else ""
                kind = keys.tag(model)
                found[model] = f"{before}{name}{many}" + (f" ({kind})" if kind else "")
                waiting.append(model)
    return found


def _models_of(owner: type[BaseModel], name: str) -> list[type[BaseModel]]:
    annotation = keys.annotation_of(owner, name)
    return [*keys.models(annotation), *keys.models(keys.items(annotation))]


# -- commands -------------------------------------------------------------------------------------------------------------


def commands_page() -> str:
    """Every verb with its arguments, options and exit codes."""
    lines = [
        "# Commands", "", _MADE, "",
        *_COMMANDS, "",
        "| verb | what it does |", "|---|---|",
        *(f"| [`{name}`](#audition-{name}) | {_cell(text)} |" for name, (_, text) in VERBS.items()),
        "", "## Exit codes", "", "Of every verb that does not say otherwise below.", "", *_exit_table(EPILOG),
        "", "## audition", "", "```text", "audition [OPTIONS] VERB [ARGS]...", "```", "", *_options(group, _TOP),
    ]  # fmt: skip
    for name in VERBS:
        command = group.get_command(_TOP, name)
        if command is None:
            raise ValueError(f"verb {name} has no command")
        lines += _verb(name, command, click.Context(command, info_name=name, parent=_TOP))
    lines += [
        "", "## Surroundings", "", "| variable | meaning |", "|---|---|",
        "| `AUDITION_STATE` | folder of locks and restore plans; must be the same for everybody on the machine |",
        "| `NO_COLOR` | no colour on the screen of a run; everything else has none anyway |",
        "| `DOCKER_HOST`, `DOCKER_CONTEXT` | which Docker engine the compose arms talk to, as for docker itself |",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _verb(name: str, command: click.Command, context: click.Context) -> list[str]:
    usage = " ".join([f"audition {name}", *command.collect_usage_pieces(context)])
    lines = ["", f"## audition {name}", "", "```text", usage, "```", ""]
    said = inspect.cleandoc(command.help or "")
    for part in said.split("\n\n"):
        if part.startswith("\b"):
            lines += ["```text", *part.removeprefix("\b").strip("\n").splitlines(), "```", ""]
        else:
            lines += [" ".join(part.split()), ""]
    lines += _options(command, context)
    if command.epilog and "Exit codes:" in command.epilog:
        lines += ["", *_exit_table(command.epilog)]
    else:
        lines += [
            "",
            "Exit codes: [as above](#exit-codes)." if "xit code" not in (command.help or "") else "Exit codes: said above.",
        ]
    return lines


def _options(command: click.Command, context: click.Context) -> list[str]:
    rows = []
    for param in command.get_params(context):
        record = param.get_help_record(context) if isinstance(param, click.Option) else None
        if record is not None:
            rows.append(f"| `{_cell(record[0])}` | {_cell(record[1])} |")
    return ["| option | meaning |", "|---|---|", *rows]


def _exit_table(epilog: str) -> list[str]:
    """The exit codes of an epilog: entries begin with a number, two stand on a line when four blanks part them."""
    rows = []
    for line in epilog.partition("Exit codes:")[2].strip("\n").splitlines():
        for entry in line.strip().split("    "):
            code, _, text = entry.strip().partition(" ")
            if code.isdigit():
                rows.append(f"| {code} | {_cell(text.strip())} |")
    return ["| exit code | meaning |", "|---|---|", *rows]


# -- trouble-shooting -----------------------------------------------------------------------------------------------------


def troubleshooting_page() -> str:
    """Every known failure: phase, what one sees, cause, remedy, public references."""
    known = shipped_signatures()
    lines = [
        "# Trouble-shooting: what a server's log says", "", _MADE, "",
        *_TROUBLE, "",
        "```console", "$ audition diagnose boot.log", "```", "",
        f"{len(known)} signatures. *Symptoms* are consequences, shown where no cause is found; *wrappers* say only that",
        "something above failed.",
    ]  # fmt: skip
    for phase in PHASES:
        rows = [s for s in known if s.phase == phase]
        lines += ["", f"- {_PHASES[phase]}: " + ", ".join(f"[{s.name}](#{anchor_of(s.name)})" for s in rows)]
    for phase in PHASES:
        lines += ["", f"## Phase {phase}: {_PHASES[phase]}"]
        for signature in (s for s in known if s.phase == phase):
            lines += _signature(signature)
    return "\n".join(lines) + "\n"


def _signature(signature: Signature) -> list[str]:
    seen = dict.fromkeys(pattern.anchor.strip() for pattern in signature.patterns if pattern.anchor.strip())
    joint = " and " if signature.require == "all" else ", or "
    silent = "; after it, nothing more" if any(pattern.at_end for pattern in signature.patterns) else ""
    rows = [
        ("seen", joint.join(_code(text) for text in seen) + silent),
        ("cause", _cell(signature.cause)),
        ("remedy", _cell(signature.remedy)),
        ("lies with", _ORIGINS[signature.origin] + ("" if signature.kind == "cause" else f" ({signature.kind})")),
    ]
    if signature.versions != "any":
        rows.append(("versions", _cell(signature.versions)))
    if signature.references:
        rows.append(("see", ", ".join(f"[{_short(link)}]({link})" for link in signature.references)))
    return ["", f"### {signature.name}", "", f"{signature.title}.", "", "| | |", "|---|---|", *(f"| {a} | {b} |" for a, b in rows)]


def _short(link: str) -> str:
    parts = link.removeprefix("https://").rstrip("/").split("/")
    if parts[0] == "github.com" and len(parts) >= 5 and parts[3] in ("issues", "pull"):
        return f"{parts[2]}#{parts[4]}"
    return "/".join(parts[:1] + parts[-1:]) if len(parts) > 1 else parts[0]


# -- Markdown -------------------------------------------------------------------------------------------------------------


def _cell(text: str) -> str:
    """Text as it may stand in a table."""
    return " ".join(text.split()).replace("|", "\\|")


def _default(text: str) -> str:
    """A default as code where it can be written in the file, else as words."""
    return text if text in ("none", "the defaults of its keys") else f"`{_cell(text)}`"


def _code(text: str) -> str:
    fence = "``" if "`" in text else "`"
    pad = " " if "`" in text else ""
    return f"{fence}{pad}{_cell(text)}{pad}{fence}"


def _first_line(model: type[BaseModel]) -> str:
    return (model.__doc__ or "").strip().splitlines()[0]


def stale(reference: Path = REFERENCE) -> list[str]:
    """The generated pages that differ, in a folder, from what would be written now."""
    kept = {path.name: path.read_text(encoding="utf-8") for path in reference.glob("*.md")}
    return [f"docs/reference/{path.name} is stale: make docs" for path, text in pages().items() if kept.get(path.name) != text]


def main(arguments: list[str]) -> int:
    """``--check``: say what is wrong and return 1; else write the pages."""
    if arguments == ["--check"]:
        found = [*stale(), *stale_story(), *problems_of(ROOT)]
        print("\n".join(found) if found else "docs: pages are fresh; links, anchors, commands and references hold")
        return 1 if found else 0
    REFERENCE.mkdir(parents=True, exist_ok=True)
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
