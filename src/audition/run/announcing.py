"""Sends announcements with apprise, and announces a run's begin, trouble and end by itself. Texts are ``report.announcing``'s.

Sending never holds a run up and never fails it: messages go through a queue to a thread of their own, each address gets a time
limit, and what cannot be delivered is a warning that names the variable. Addresses hold tokens: they are never shown or kept.
"""

from __future__ import annotations

import importlib.util
import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from audition.errors import BadInput
from audition.report.announcing import Announcement, Times, begun, ended, not_back, trouble
from audition.run.events import EndedEarly, Event, GuardArmed, RestoreEnded, VerdictReached
from audition.spike.model import Spike
from audition.units import NoData, format_duration

LIMIT_S = 15.0  # for one address
FINISH_S = 20.0  # after a run, for all that is still to be sent
_INSTALL = "pip install 'audition[announce]'"


def addresses(spike: Spike, environ: Mapping[str, str]) -> tuple[list[tuple[str, str]], list[str]]:
    """Variables of ``agreement.announce_env`` with their addresses, and what is wrong with the others, in words."""
    found, wrong = [], []
    for name in spike.agreement.announce_env:
        value = environ.get(name, "").strip()
        if value:
            found.append((name, value))
        else:
            wrong.append(f"the variable {name}, which `agreement.announce_env` names, is not set")
    if found and importlib.util.find_spec("apprise") is None:
        wrong.append(f"sending needs apprise, which is not installed: {_INSTALL}")
        found = []
    return found, wrong


def require_addresses(spike: Spike, environ: Mapping[str, str]) -> list[tuple[str, str]]:
    """The addresses to send to. Raises BadInput when there is none, or one is missing."""
    found, wrong = addresses(spike, environ)
    if wrong:
        hint = (
            _INSTALL if "not installed" in wrong[-1] else "set it to an apprise address such as mailto://user:password@example.org"
        )
        raise BadInput("; ".join(wrong), next_step=hint)
    if not found:
        hint = "agreement: {announce_env: [AUDITION_ANNOUNCE_URL]}, and the address in that variable"
        raise BadInput("the spike file names nowhere to send to", next_step=hint)
    return found


def send(message: Announcement, to: Sequence[tuple[str, str]], limit_s: float = LIMIT_S) -> list[str]:
    """Send to all addresses at once and wait ``limit_s`` seconds at most. What could not be delivered, in words; never raises."""
    outcomes: dict[str, str] = {}

    def one(name: str, address: str) -> None:
        try:
            outcomes[name] = _deliver(message, address)
        except Exception as error:  # noqa: BLE001 - a plug-in of apprise may raise anything; its text may hold the address
            outcomes[name] = f"{type(error).__name__} while sending"

    threads = [threading.Thread(target=one, args=pair, name="announce", daemon=True) for pair in to]
    for thread in threads:
        thread.start()
    until = time.monotonic() + limit_s
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    late = f"no answer within {format_duration(limit_s)}"
    return [f"not announced to {name}: {said}" for name, _ in to if (said := outcomes.get(name, late))]


def _deliver(message: Announcement, address: str) -> str:
    """Why a message was not delivered; "" when it was. One address at a time: apprise then starts no threads that outlive us."""
    import apprise  # noqa: PLC0415 - an extra, and slow to import

    log = logging.getLogger("apprise")  # its warnings show addresses
    log.propagate = False
    if not log.handlers:
        log.addHandler(logging.NullHandler())
    post = apprise.Apprise()
    if not post.add(address):
        return "the variable holds no apprise address"
    kind = apprise.NotifyType.FAILURE if message.bad else apprise.NotifyType.INFO
    delivered = post.notify(body=message.body, title=message.title, notify_type=kind, body_format=apprise.NotifyFormat.MARKDOWN)
    return "" if delivered else "it was not accepted there"


class Announcer:
    """Announces a run as its events come; a writer of the reporter. Nothing is sent when the spike names no address."""

    def __init__(
        self, spike: Spike, environ: Mapping[str, str], *, warn: Callable[[str], None], shown: Callable[[str], str],
        limit_s: float = LIMIT_S,
    ) -> None:  # fmt: skip
        """``warn`` hears what could not be sent; ``shown`` masks secrets; ``limit_s``: for each message."""
        self._spike, self._warn, self._shown, self._limit_s = spike, warn, shown, limit_s
        self._to, wrong = addresses(spike, environ)
        for text in wrong:
            warn(f"not announced: {text}")
        self._begun = self._over = False
        self._messages: queue.SimpleQueue[Announcement | threading.Event] = queue.SimpleQueue()
        if self._to:
            threading.Thread(target=self._send_all, name="announcer", daemon=True).start()

    def wants(self, event: Event) -> bool:
        """Begin, trouble and end; see ``run.reporter.Writer``."""
        return bool(self._to) and isinstance(event, GuardArmed | EndedEarly | RestoreEnded | VerdictReached)

    def write(self, at: float, event: Event, dropped: int) -> None:
        """Take the message of an event, if it has one, and come back at once."""
        message = self._message(event)
        if message is not None:
            self._put(message)

    def idle(self) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing to do; ``finish`` waits."""

    def refused(self) -> None:
        """The run was given up before anything was touched: say so where its begin was announced."""
        if self._begun and not self._over:
            self._put(ended(self._spike, "none", ["the run was given up"], back=None, at=datetime.now(UTC)))

    def finish(self, limit_s: float = FINISH_S) -> None:
        """Wait until everything is sent, at most ``limit_s`` seconds."""
        if not self._to:
            return
        sent = threading.Event()
        self._messages.put(sent)
        if not sent.wait(limit_s):
            self._warn(f"an announcement was not sent within {format_duration(limit_s)}")

    def _put(self, message: Announcement) -> None:
        self._messages.put(replace(message, title=self._shown(message.title), body=self._shown(message.body)))

    def _message(self, event: Event) -> Announcement | None:
        spike, now = self._spike, datetime.now(UTC)
        if isinstance(event, GuardArmed) and not self._begun:
            self._begun = True
            return begun(spike, Times(now, spike.window.closes or NoData("the spike file names no end")))
        if isinstance(event, EndedEarly) and event.ended in ("failed", "interrupted"):
            return trouble(spike, event.reason)
        if isinstance(event, RestoreEnded) and not event.verified:
            return not_back(spike, event.problems)
        if isinstance(event, VerdictReached):
            self._over = True
            return ended(spike, event.verdict, event.reasons, back=event.production_back, at=now)
        return None

    def _send_all(self) -> None:
        while True:
            item = self._messages.get()
            if isinstance(item, threading.Event):
                item.set()
                continue
            for text in send(item, self._to, self._limit_s):
                self._warn(text)
