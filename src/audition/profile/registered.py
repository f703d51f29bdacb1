"""Checks values that the parser lets through but the server looks up in a registry while it starts."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from audition.profile.finding import Finding
from audition.profile.flag import FlagTable

_REGISTRIES = {
    "--tool-call-parser": ("tool-parsers", "--tool-parser-plugin"),
    "--reasoning-parser": ("reasoning-parsers", "--reasoning-parser-plugin"),
}
"""Argument: the list of names that the package registers, and the argument that may bring more."""


def check_registered(values: Mapping[str, Any], table: FlagTable) -> list[Finding]:
    """Findings with the code unknown-value. Blocking where no plug-in can bring the name, else a warning."""
    found = [f for name in _REGISTRIES if (f := _parser(name, values, table))]
    quantisation = values.get("--quantization")
    names = table.lists.get("quantization", ())
    if isinstance(quantisation, str) and names and quantisation not in names:
        text = f"vLLM {table.version} itself has no quantisation {quantisation!r}; only a plug-in of the image could bring it"
        found.append(Finding("warning", "unknown-value", text, _near(quantisation, names)))
    for name, value in values.items():
        flag = table.flags.get(name)
        if flag and flag.known and isinstance(value, str) and value not in flag.known:
            text = (
                f"{name}: the source of vLLM {table.version} names no value {value!r}; only a plug-in of the image could bring it"
            )
            found.append(Finding("warning", "unknown-value", text, _near(value, tuple(map(str, flag.known)))))
    for module in values.get("--lora-modules") or ():
        if isinstance(module, str) and module and "=" not in module and not module.lstrip().startswith("{"):
            text = f"--lora-modules wants NAME=PATH or a JSON table, got {module!r}; vLLM refuses it"
            found.append(Finding("blocking", "bad-json", text, "write --lora-modules NAME=PATH"))
    if values.get("--enable-auto-tool-choice") is True and not values.get("--tool-call-parser"):
        text = "--enable-auto-tool-choice wants --tool-call-parser; vLLM refuses to start without it"
        found.append(Finding("blocking", "missing-partner", text, "add --tool-call-parser NAME"))
    return found


def _parser(name: str, values: Mapping[str, Any], table: FlagTable) -> Finding | None:
    registry, plugin = _REGISTRIES[name]
    value, names = values.get(name), table.lists.get(registry, ())
    if not isinstance(value, str) or not value or not names or value in names:
        return None
    text = f"{name}: vLLM {table.version} registers no parser {value!r}"
    if values.get(plugin):
        return Finding("warning", "unknown-value", f"{text}; the plug-in given with {plugin} must bring it", _near(value, names))
    unused = name == "--tool-call-parser" and values.get("--enable-auto-tool-choice") is not True
    if unused:
        return Finding(
            "warning", "unknown-value", f"{text}; without --enable-auto-tool-choice it is not looked up", _near(value, names)
        )
    return Finding("blocking", "unknown-value", f"{text}, and ends with an error", _near(value, names))


def _near(value: str, names: tuple[str, ...]) -> str:
    close = difflib.get_close_matches(value, names, n=1, cutoff=0.5)
    return f"did you mean {close[0]}?" if close else f"choose from {', '.join(names[:20])}{', …' if len(names) > 20 else ''}"
