"""Captures what the parser of a real vLLM makes of options and command lines, for tests/profile/data/parser-VERSION.json.

usage: PYTHON_OF_VLLM tests/profile/capture_parser.py FILE     (PYTHON_OF_VLLM: .live/vllm/bin/python after `make live-env`)

Reads the command lines out of FILE and writes FILE anew. It imports vLLM, so it is run by hand and never by a test.
"""

import argparse
import contextlib
import importlib
import io
import json
import sys
from pathlib import Path
from typing import Any


def plain(value: Any) -> Any:
    """The value itself where JSON can hold it, else the name of its class."""
    try:
        json.dumps(value)
    except TypeError:
        return {"class": type(value).__name__}
    return value


def option(action: argparse.Action) -> dict[str, Any]:
    """What one option takes."""
    facts: dict[str, Any] = {"action": type(action).__name__}
    if action.nargs is not None:
        facts["nargs"] = action.nargs
    if action.choices is not None:
        facts["choices"] = sorted(map(str, action.choices))
    facts["default"] = None if action.default is argparse.SUPPRESS else plain(action.default)
    return facts


def outcome(parser: argparse.ArgumentParser, argv: list[str], unset: dict[str, Any]) -> dict[str, Any]:
    """Whether the parser accepts a command line, and the values that differ from those of a command line without options."""
    try:
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            values = vars(parser.parse_args(["serve", *argv]))
    except (SystemExit, ValueError):
        return {"argv": argv, "accepted": False}
    changed = {name: value for name, value in values.items() if repr(value) != repr(unset.get(name))}
    return {
        "argv": argv,
        "accepted": True,
        "values": {n: v for n, v in changed.items() if not isinstance(plain(v), dict) or isinstance(v, dict)},
    }


def main() -> None:
    """Capture and write."""
    path = Path(sys.argv[1])
    lines = [line["argv"] for line in json.loads(path.read_text(encoding="utf-8"))["command_lines"]]
    sys.argv = ["vllm"]
    parser = importlib.import_module("vllm.utils.argparse_utils").FlexibleArgumentParser(prog="vllm")
    serve = (
        importlib.import_module("vllm.entrypoints.cli.serve")
        .ServeSubcommand()
        .subparser_init(parser.add_subparsers(dest="subparser"))
    )
    options = {",".join(a.option_strings or [a.dest]): option(a) for a in serve._actions}
    unset = vars(parser.parse_args(["serve", "m"]))
    version = importlib.import_module("vllm").__version__
    rows = ",\n".join(f"  {json.dumps(name)}: {json.dumps(facts)}" for name, facts in sorted(options.items()))
    ends = ",\n".join(f"  {json.dumps(outcome(parser, argv, unset))}" for argv in lines)
    text = f'{{\n "captured_from": "vLLM {version}",\n "options": {{\n{rows}\n }},\n "command_lines": [\n{ends}\n ]\n}}\n'
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
