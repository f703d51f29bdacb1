"""Which arguments the sources of a vLLM version mention: a plain search for text that shares no code with the table it checks.

An argument counts as there when its quoted name stands in one of the files that add arguments, or when a line of the class of
the front end's arguments declares a field of that name.
"""

from __future__ import annotations

import re
from pathlib import Path

PROFILES = ("examples/mtp-k3/*.yml", "examples/tiny-vllm/*.yaml", "tests/data/compose/*.yml")
EXTRA = (
    "--max-model-length", "--prefix-match-unit", "--spec-tokens", "--guided-decoding-backend", "--num-lookahead-slots", "--task",
    "--disable-log-requests", "--shutdown-timeout", "--rope-scaling", "--no-enable-expert-parallel", "-ep", "-O",
    "--no-port", "--seed", "--disable-prefix-caching", "--disable-expert-parallel",
)  # fmt: skip
"""Added to what the examples use: arguments that come, go, or never were."""
PLACES = ("vllm/engine/arg_utils.py", "vllm/entrypoints/cli/serve.py", "vllm/entrypoints/openai/cli_args.py",
          "vllm/entrypoints/launchers/cli_args.py", "vllm/entrypoints/common/cli_args.py")  # fmt: skip


def example_flags(root: Path) -> list[str]:
    """Every argument of vLLM that the example profiles use, and a few more."""
    found = set(EXTRA)
    for pattern in PROFILES:
        for path in sorted(root.glob(pattern)):
            for line in path.read_text(encoding="utf-8").splitlines():
                text = line.split("#")[0] if line.lstrip().startswith("#") else line
                if "docker" in text or "audition " in text or "wget" in text:
                    continue
                found |= {
                    m.group(1) for m in re.finditer(r"(?:^|[\s\"'])(--[a-z][a-z0-9-]+|-(?:tp|sc|ep|dp|pp))(?=[\s=\"',]|$)", text)
                }
    return sorted(found)


def membership(folder: Path, wanted: list[str]) -> dict[str, bool]:
    """Whether each wanted argument exists in the sources below ``folder``."""
    texts = [path.read_text(encoding="utf-8") for place in PLACES if (path := folder / place).is_file()]
    joined = "\n".join(texts)
    parser = folder / "vllm/utils/argparse_utils.py"
    paired = parser.is_file() and "_inverse_prefixes" in parser.read_text(encoding="utf-8")
    fields: set[str] = set()
    for text in texts:
        for block in re.findall(r"^class \w*FrontendArgs.*?(?=^(?:class |def |@)|\Z)", text, re.DOTALL | re.MULTILINE):
            fields |= set(re.findall(r"^    (\w+):", block, re.MULTILINE))
    out = {}
    for flag in wanted:
        positive = "--" + flag.removeprefix("--no-") if flag.startswith("--no-") else flag
        quoted = re.search(rf"""["']{re.escape(positive)}["']""", joined) is not None
        out[flag] = (quoted or positive[2:].replace("-", "_") in fields) and (positive == flag or _paired(joined, positive))
        enabled = flag.replace("--disable-", "--enable-")
        if paired and enabled != flag and f'"{enabled}"' in joined:
            out[flag] = out[flag] or _paired(joined, enabled)
    return out


def _paired(text: str, flag: str) -> bool:
    """Whether a `--no-` form exists: the few lines after the name say so, or the field of that name is a bool in some class."""
    name = flag[2:].replace("-", "_")
    after = re.search(rf"""["']{re.escape(flag)}["'](.{{0,200}})""", text, re.DOTALL)
    return bool(after and "BooleanOptionalAction" in after.group(1)) or bool(
        re.search(rf"^    {name}: (Optional\[)?bool", text, re.MULTILINE)
    )
