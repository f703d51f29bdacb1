"""A tolerant reading of what is written to a terminal, and programs on real pseudo-terminals."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from pathlib import Path

_CODE = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])")
COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-7]|4[0-7]|9[0-7]|10[0-7]|38|48)(?:;\d+)*m")


def reading(written: str) -> list[str]:
    """The lines that somebody who scrolls back sees. Knows the codes that the screen uses; fails for any other."""
    lines: list[list[str]] = [[]]
    y = x = at = 0
    while at < len(written):
        code = _CODE.match(written, at)
        if code:
            at = code.end()
            number, kind = code[1], code[2]
            if kind == "A":
                y = max(0, y - int(number or 1))
            elif kind == "K":
                del lines[y][x:]
            elif kind == "J" and number == "2":
                lines, y, x = [[]], 0, 0
            elif kind == "J":
                del lines[y][x:], lines[y + 1 :]
            elif kind not in "Hmhl":
                raise AssertionError(f"unknown code {code[0]!r}")
            continue
        sign = written[at]
        at += 1
        if sign == "\r":
            x = 0
        elif sign == "\n":
            y += 1
            if y == len(lines):
                lines.append([])
        elif sign == "\x1b":
            raise AssertionError(f"a code that is none: {written[at - 1 : at + 10]!r}")
        else:
            lines[y] += [" "] * (x + 1 - len(lines[y]))
            lines[y][x] = sign
            x += 1
    return ["".join(line).rstrip() for line in lines]


def cursor_is_visible(written: str) -> bool:
    """Whether the cursor was hidden and is shown in the end."""
    return written.rfind("\x1b[?25h") > written.rfind("\x1b[?25l") >= 0


class OnTerminal:
    """A program whose standard error is a pseudo-terminal of the given size. Standard input and output are pipes."""

    def __init__(
        self, command: list[str], *, columns: int = 100, lines: int = 30, cwd: Path | None = None, env: dict[str, str] | None = None
    ) -> None:
        self.ours, theirs = pty.openpty()
        self.resize(columns, lines)
        variables = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LINES")}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stderr=theirs, stdout=subprocess.PIPE, text=True, cwd=cwd, start_new_session=True,
            env={**variables, "TERM": "xterm-256color", **(env or {})},
        )  # fmt: skip
        os.close(theirs)
        self.written = ""
        self._bytes = b""

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def go_on(self) -> None:
        """A line of standard input, which lets a scripted program take its next step."""
        assert self.process.stdin is not None
        self.process.stdin.write("go on\n")
        self.process.stdin.flush()

    def let_go(self) -> None:
        """End of standard input: a scripted program waits no more."""
        if self.process.stdin is not None:
            self.process.stdin.close()
            self.process.stdin = None

    def read_until(self, text: str, limit_s: float = 60.0) -> None:
        """Read until a text was written."""
        until = time.monotonic() + limit_s
        while text not in self.written:
            assert time.monotonic() < until, f"{text!r} was never written: {self.written[-3000:]!r}"
            assert self._read(1.0), f"ended before {text!r} was written: {self.written[-3000:]!r}"

    def read_all(self) -> str:
        """Read until nobody has the terminal open any more."""
        while self._read(60.0):
            pass
        return self.written

    def _read(self, limit_s: float) -> bool:
        if not select.select([self.ours], [], [], limit_s)[0]:
            return True
        try:
            data = os.read(self.ours, 65536)
        except OSError:
            return False
        self._bytes += data
        self.written = self._bytes.decode("utf-8", "replace")
        return bool(data)

    def end(self, limit_s: float = 120.0) -> tuple[int, str]:
        """Exit code and standard output."""
        said, _ = self.process.communicate(timeout=limit_s)
        return self.process.returncode, said

    def close(self) -> None:
        os.close(self.ours)
