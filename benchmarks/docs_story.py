"""The outputs in docs/story.md, taken from real commands: ``make docs-story`` runs them and puts them between their marks.

Every block between ``<!-- output: NAME -->`` and ``<!-- end -->`` is written here, with the date above the story; the words around
them are written by hand. ``FIXED`` outputs do not change from run to run, and ``make docs-check`` compares them. The commands run
in a folder of their own, which the story calls ``~``. What must not live here: figures that no command printed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STORY = ROOT / "docs" / "story.md"
_BLOCK = re.compile(r"<!-- output: ([\w-]+) -->\n.*?<!-- end -->", re.DOTALL)
_DATE = re.compile(r"<!-- date -->.*?<!-- end -->", re.DOTALL)
_CUT = "  [...]"
_LIMIT_S = 300


class Stage:
    """A home folder with a folder ``spikes`` in it, where the story's commands run one after the other."""

    def __init__(self, home: Path) -> None:
        self.home, self.spikes = home, home / "spikes"
        self.spikes.mkdir()
        state = home / ".local" / "state" / "audition"
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "TMPDIR") if name in os.environ}
        self._environ = {**kept, "HOME": str(home), "AUDITION_STATE": str(state), "NO_COLOR": "1"}
        compose = shutil.which("docker-compose", path=str(ROOT / ".live" / "docker"))
        if compose:
            plugins = home / ".docker" / "cli-plugins"
            plugins.mkdir(parents=True)
            (plugins / "docker-compose").symlink_to(compose)

    def audition(self, *words: str, codes: tuple[int, ...] = (0,)) -> tuple[list[str], list[str]]:
        """Lines of standard output and of standard error. Raises RuntimeError for another exit code than expected."""
        ran = subprocess.run(
            [sys.executable, "-m", "audition", *words], cwd=self.spikes, env=self._environ, capture_output=True, text=True,
            timeout=_LIMIT_S, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        if ran.returncode not in codes:
            raise RuntimeError(f"audition {' '.join(words)} ended with {ran.returncode}:\n{ran.stdout}{ran.stderr}")
        return self.shown(ran.stdout), self.shown(ran.stderr)

    def shown(self, text: str) -> list[str]:
        """The lines of a text with this stage's home as ``~``."""
        return [line.rstrip() for line in text.replace(str(self.home), "~").splitlines()]

    def run_folder(self) -> Path:
        """The first rehearsal's run folder."""
        return min((self.spikes / "_iteration_log").iterdir(), key=lambda path: len(path.name))


def _cut(lines: list[str], *ranges: tuple[str, str]) -> list[str]:
    """The parts that begin with a line that starts with the first text and end before one that starts with the second."""
    found: list[str] = []
    for begin, end in ranges:
        at = next((i for i, line in enumerate(lines) if line.startswith(begin)), None)
        if at is None:
            raise RuntimeError(f"no line begins with {begin!r}:\n" + "\n".join(lines))
        stop = next((i for i, line in enumerate(lines) if i > at and end and line.startswith(end)), len(lines))
        part = lines[at:stop]
        while part and not part[-1]:
            part.pop()
        found += [*([_CUT] if found else []), *part]
    return found


def _console(command: str, lines: list[str]) -> str:
    return "\n".join(["```console", f"$ {command}", *lines, "```"])


def _gates(stage: Stage) -> str:
    text = (ROOT / "examples" / "mtp-k3" / "spike.yaml").read_text(encoding="utf-8").splitlines()
    return "\n".join(["```yaml", *_cut(text, ("legs:", ""))[:1], *_cut(text, ("gates:", "  # Reported")), "```"])


def _check(stage: Stage) -> str:
    lines, _ = stage.audition("check", "mtp-k3", "--elsewhere", codes=(0, 5))
    timeline = next(line for line in lines if line.startswith("timeline"))
    until = next(i for i, line in enumerate(lines) if line == timeline)
    return _console("audition check mtp-k3 --elsewhere", [*lines[: until + 4], _CUT, *lines[-1:]])


def _rehearse(stage: Stage) -> str:
    out, err = stage.audition("rehearse", "mtp-k3", "--plain", codes=(3,))
    (stage.home / "summary").write_text("\n".join(out), encoding="utf-8")
    swap = next(i for i, line in enumerate(err) if "let requests of" in line)
    back = next(i for i, line in enumerate(err) if "bring v2g back" in line)
    return _console("audition rehearse mtp-k3 --plain", [*err[: swap + 5], _CUT, *err[back:]])


def _verdict(stage: Stage) -> str:
    lines = (stage.home / "summary").read_text(encoding="utf-8").splitlines()
    return "\n".join(["```text", *_cut(lines, ("REHEARSAL mtp_spike", "Legs"), ("Figures of users-16", "Figures of the")), "```"])


def _fault(stage: Stage) -> str:
    out, err = stage.audition("rehearse", "mtp-k3", "--fault", "oom", "--plain", codes=(3,))
    start = next(i for i, line in enumerate(err) if "start mtp-k3" in line)
    shown = [*err[start : start + 3], _CUT, *err[-1:], "", *_cut(out, ("Stay on", "How far"), ("REHEARSAL NO-GO", ""))]
    return _console("audition rehearse mtp-k3 --fault oom --plain", shown)


def _folder(stage: Stage) -> str:
    folder = stage.run_folder()
    lines = sorted(path.name + ("/" if path.is_dir() else "") for path in folder.iterdir())
    return _console(f"ls _iteration_log/{folder.name}", lines)


def _decision(stage: Stage) -> str:
    text = (stage.run_folder() / "decision.md").read_text(encoding="utf-8")
    return "\n".join(["```markdown", *_cut(stage.shown(text), ("# ", "## Context"), ("## Decision Outcome", "## Evidence")), "```"])


def _judge(stage: Stage) -> str:
    name = f"_iteration_log/{stage.run_folder().name}"
    before = (stage.run_folder() / "result.json").read_bytes()
    lines, _ = stage.audition("judge", name, codes=(3,))
    if (stage.run_folder() / "result.json").read_bytes() != before:
        raise RuntimeError("judging again gave another result.json")
    return _console(f"audition judge {name}", [*lines[:4], _CUT])


def _upstream(stage: Stage) -> str:
    text = (stage.run_folder() / "upstream.md").read_text(encoding="utf-8")
    return "\n".join(["```markdown", *_cut(stage.shown(text), ("# ", "Does"), ("## Setup", "Arguments")), "```"])


def _diagnose(stage: Stage) -> str:
    shutil.copy(ROOT / "tests" / "data" / "logs" / "failed" / "att4_deepcopy_poison.log", stage.spikes / "att4.log")
    lines, _ = stage.audition("diagnose", "att4.log", codes=(3,))
    return _console("audition diagnose att4.log", lines)


def _after(stage: Stage) -> str:
    status, _ = stage.audition("status")
    out, err = stage.audition("recover")
    return "\n".join(["```console", "$ audition status", *status, "$ audition recover", *out, *err, "```"])


MAKERS: dict[str, Callable[[Stage], str]] = {
    "gates": _gates, "check": _check, "rehearse": _rehearse, "verdict": _verdict, "fault": _fault, "folder": _folder,
    "decision": _decision, "judge": _judge, "upstream": _upstream, "diagnose": _diagnose, "after": _after,
}  # fmt: skip
"""Name of a block -> what makes it. They run in this order: later ones look at the rehearsal of ``rehearse``."""
FIXED = ("gates", "diagnose", "after")


def blocks_of(text: str) -> dict[str, str]:
    """The blocks of the story by name, without their marks."""
    return {m[1]: m[0].partition("-->\n")[2].removesuffix("<!-- end -->").rstrip("\n") for m in _BLOCK.finditer(text)}


def make(names: tuple[str, ...]) -> dict[str, str]:
    """Run the commands of the named blocks, in the order of the table."""
    with tempfile.TemporaryDirectory(prefix="story-") as folder:
        stage = Stage(Path(folder).resolve())
        return {name: maker(stage) for name, maker in MAKERS.items() if name in names}


def stale_story(story: Path = STORY) -> list[str]:
    """What of a story's marks and fixed outputs does not hold any more. Runs only commands that take a second."""
    text = story.read_text(encoding="utf-8")
    blocks = blocks_of(text)
    found = [f"docs/story.md: nothing makes the block {name}" for name in blocks if name not in MAKERS]
    found += [f"docs/story.md: the block {name} is not in it" for name in MAKERS if name not in blocks]
    if not re.search(r"<!-- date -->\d{4}-\d{2}-\d{2}", text):
        found.append("docs/story.md has no date: make docs-story")
    fresh = make(FIXED)
    return found + [
        f"docs/story.md: {name} is stale: make docs-story" for name in FIXED if blocks.get(name, fresh[name]) != fresh[name]
    ]


def main() -> None:
    """Renew every block and the date."""
    text = STORY.read_text(encoding="utf-8")
    fresh = make(tuple(blocks_of(text)))
    text = _BLOCK.sub(lambda m: f"<!-- output: {m[1]} -->\n{fresh[m[1]]}\n<!-- end -->", text)
    text = _DATE.sub(f"<!-- date -->{time.strftime('%Y-%m-%d', time.gmtime())}<!-- end -->", text)
    STORY.write_text(text, encoding="utf-8")
    print(f"wrote {STORY.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
