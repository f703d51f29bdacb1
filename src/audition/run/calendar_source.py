"""Calendars from where the spike file says they are: files and addresses, read with limits of time and size.

No copy is kept: every question fetches anew, and an answer that calls itself an old copy counts as none. What a calendar says is
``audition.windows``' matter; what cannot be had or read is a ``NoData`` with the reason, without the address, which may be private.
"""

from __future__ import annotations

import base64
import http.client
import os
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from email.message import Message
from functools import partial
from http.client import HTTPMessage
from pathlib import Path
from typing import IO
from urllib.parse import SplitResult, unquote_to_bytes, urlsplit

from audition.errors import BadInput
from audition.plain_file import NotPlain, TooLong, read_bytes
from audition.spike.parse import resolve
from audition.spike.window import CalendarRule, Window
from audition.units import NoData, format_duration
from audition.windows.ics import BadCalendar, Calendar, parse_calendar
from audition.windows.recur import FAULTY
from audition.windows.slots import Calendars

LIMIT_S = 15.0  # for one calendar, everything included
MOST_BYTES = 8 * 1024 * 1024
OLDEST_COPY_S = 3600.0
"""An answer that has been in somebody's cache for longer (RFC 9111, section 5.1) is not believed. Own choice."""


class Unreachable(Exception):
    """A calendar cannot be had; the text says why."""


def read_calendars(
    window: Window, folder: Path, environ: Mapping[str, str], *, limit_s: float = LIMIT_S, most_bytes: int = MOST_BYTES
) -> Calendars:
    """Every calendar of the window, all at once, each within ``limit_s`` seconds. ``folder``: the spike file's. Never raises."""
    found: dict[str, Calendar | NoData] = {}

    def read(rule: CalendarRule) -> None:
        try:
            text = _text_of(rule, folder, environ, limit_s, most_bytes)
            found[rule.name] = parse_calendar(text, rule.name, window.zone)
        except BadCalendar as bad:
            found[rule.name] = NoData(bad.reason)
        except BadInput as bad:  # ``~nobody/x.ics``
            found[rule.name] = NoData(bad.what)
        except Unreachable as cause:
            found[rule.name] = NoData(str(cause))
        except FAULTY as error:  # its text is not shown: it may hold the address
            found[rule.name] = NoData(f"it cannot be understood: {type(error).__name__}")

    until = time.monotonic() + limit_s
    for rule, done in [(rule, _in_thread(partial(read, rule))) for rule in window.calendars]:
        if not done.wait(max(0.0, until - time.monotonic())):
            found.setdefault(rule.name, NoData(f"no complete answer within {format_duration(limit_s)}"))
    return {rule.name: found.get(rule.name, NoData("reading it failed")) for rule in window.calendars}


def fetch(address: str, *, limit_s: float = LIMIT_S, most_bytes: int = MOST_BYTES) -> str:
    """The text at an http or https address. ``limit_s``: longest silence in seconds. Raises Unreachable."""
    try:
        parts = urlsplit(address)
    except ValueError as error:
        raise Unreachable("its address cannot be understood") from error
    if "@" in parts.fragment:  # what precedes it would be taken for the server, and asked for
        raise Unreachable("its address has a # before an @: write it as %23 in a password")
    host = (parts.hostname or "?") if "@" not in parts.path + parts.query else "its server"  # else perhaps part of a password
    if parts.scheme not in ("http", "https") or parts.hostname is None:
        raise Unreachable("its address does not begin with http:// or https://")
    try:
        request = urllib.request.Request(_without_user(parts), headers=_headers(parts))
        with _opener().open(request, timeout=limit_s) as answer:
            _refuse_old_copies(host, answer.headers)
            data = answer.read(most_bytes + 1)
            if len(data) <= most_bytes and answer.length:  # read() with a limit does not say so by itself
                raise Unreachable(f"{host} broke off, {answer.length} bytes before the end")
    except urllib.error.HTTPError as error:
        said = http.client.responses.get(error.code, "")
        error.close()
        raise Unreachable(f"{host} answered {error.code} {said}".strip()) from error
    except urllib.error.URLError as error:
        raise Unreachable(f"{host} cannot be reached: {error.reason}") from error
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise Unreachable(f"{host} gave no complete answer: {type(error).__name__}") from error
    if len(data) > most_bytes:
        raise Unreachable(f"{host} answered with more than {most_bytes // 1024} KiB")
    return _decoded(data)


def read_file(path: Path, *, most_bytes: int = MOST_BYTES) -> str:
    """The text of a calendar file. Raises Unreachable."""
    try:
        return _decoded(read_bytes(path, most_bytes))
    except NotPlain as error:
        raise Unreachable(f"{path} is no regular file") from error
    except TooLong as error:
        raise Unreachable(f"{path} is longer than {most_bytes // 1024} KiB") from error
    except FileNotFoundError as error:
        raise Unreachable(f"there is no file {path}") from error
    except OSError as error:
        raise Unreachable(f"{path} cannot be read: {error.strerror or error}") from error


def _text_of(rule: CalendarRule, folder: Path, environ: Mapping[str, str], limit_s: float, most_bytes: int) -> str:
    if rule.file is not None:
        return read_file(resolve(folder, rule.file), most_bytes=most_bytes)
    address = rule.url
    if rule.url_env is not None:
        address = environ.get(rule.url_env, "").strip()
        if not address:
            raise Unreachable(f"the variable {rule.url_env}, which holds its address, is not set")
    return fetch(address or "", limit_s=limit_s, most_bytes=most_bytes)


def _in_thread(work: Callable[[], None]) -> threading.Event:
    """Set when the work has ended; a thread that hangs holds nothing up."""
    done = threading.Event()

    def run() -> None:
        try:
            work()
        finally:
            done.set()

    threading.Thread(target=run, name="calendar", daemon=True).start()
    return done


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Redirects to other kinds of addresses, or from https to http, are not followed; a password is not taken along."""

    def redirect_request(  # noqa: PLR0917 - as the base class has it
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> urllib.request.Request | None:
        """See the base class."""
        here, there = urlsplit(req.full_url), urlsplit(newurl)
        if there.scheme not in ("http", "https") or (here.scheme, there.scheme) == ("https", "http"):
            raise urllib.error.URLError(f"it redirects from {here.scheme} to {there.scheme or 'nowhere'}")
        following = super().redirect_request(req, fp, code, msg, headers, newurl)
        if following is not None and here.netloc != there.netloc:
            following.remove_header("Authorization")
        return following


def _opener() -> urllib.request.OpenerDirector:
    """http and https alone: urllib's own opener would also read files."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(), urllib.request.HTTPHandler(), urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(), _Redirects(), urllib.request.HTTPErrorProcessor(),
    ):  # fmt: skip
        opener.add_handler(handler)
    return opener


def _headers(parts: SplitResult) -> dict[str, str]:
    headers = {"Accept": "text/calendar, */*;q=0.1", "Cache-Control": "no-cache", "Pragma": "no-cache", "User-Agent": "audition"}
    if parts.username is not None:
        user, password = (unquote_to_bytes(os.fsencode(word or "")) for word in (parts.username, parts.password))
        headers["Authorization"] = "Basic " + base64.b64encode(user + b":" + password).decode()
    return headers


def _without_user(parts: SplitResult) -> str:
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], fragment="").geturl()


def _refuse_old_copies(host: str, headers: Message) -> None:
    """Raises Unreachable for an answer from a cache that is old or says that it could not be renewed."""
    age = headers.get("Age", "0").strip()
    if age.isdigit() and float(age) > OLDEST_COPY_S:
        raise Unreachable(f"{host} answered with a copy that is {format_duration(float(age))} old")
    for warning in headers.get_all(
        "Warning", []
    ):  # 110: stale, 111: could not be renewed, 112: disconnected (RFC 7234, section 5.5)
        if warning.strip()[:3] in ("110", "111", "112"):
            raise Unreachable(f"{host} answered with an old copy that it could not renew")


def _decoded(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Unreachable(f"it is no UTF-8 text (byte {error.start})") from error
