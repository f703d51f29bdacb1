"""Print log lines as vLLM does: "(APIServer pid=N) INFO 12-01 04:21:34 [file.py:NN] text".

What must not live here: what is printed and when.
"""

from __future__ import annotations

import http
import logging
import os
import sys
import time


def emit(text: str) -> None:
    """Write lines to standard output in one system call, so that lines of several processes never mix."""
    data = (text if text.endswith("\n") else text + "\n").encode("utf-8", "backslashreplace")
    try:
        os.write(1, data)
    except OSError:  # the reader of the log is gone; vLLM would go on as well
        return


def log(process: str, pid: int, level: str, source: str, text: str) -> None:
    """One line of vLLM's logger, each line of the text with the prefix; text without a source goes out as it is."""
    if not source:
        emit(f"({process} pid={pid}) {text}")
        return
    stamp = time.strftime("%m-%d %H:%M:%S")
    emit("\n".join(f"({process} pid={pid}) {level} {stamp} [{source}] {line}" for line in text.split("\n")))


def fail(text: str) -> None:
    """Write to standard error, as argparse and tracebacks do."""
    sys.stderr.write(text if text.endswith("\n") else text + "\n")
    sys.stderr.flush()


class UvicornHandler(logging.Handler):
    """Prints uvicorn's records as uvicorn does ("INFO:     ..."), with vLLM's process prefix.

    The captures show the prefix on these lines in 0.24.0 and none in 0.32.0; it is taken to have gone in 0.30.
    """

    def __init__(self, release: tuple[int, ...]) -> None:
        super().__init__()
        self.prefix = f"(APIServer pid={os.getpid()}) " if release < (0, 30) else ""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one record."""
        text = record.getMessage()
        if record.name == "uvicorn.access":
            code = int(text.rsplit(" ", 1)[1])
            text = f"{text} {http.HTTPStatus(code).phrase}"
        emit(f"{self.prefix}{record.levelname + ':':<9} {text}")
