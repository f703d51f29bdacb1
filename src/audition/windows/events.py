"""When the events of a calendar happen: recurrences, exceptions, moved and cancelled instances, as intervals between two instants.

Which events count, and what that means for the spike, is ``slots``' question. ``wide`` says how doubts are settled: the longer end
where real time and clock time differ by a change of the clock, exceptions of the wrong type not believed, an event that cannot be
understood taken as lasting for ever; without it the opposite.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from audition.errors import BadInput
from audition.windows.ics import Calendar, Event, Length, Stamp
from audition.windows.intervals import Interval
from audition.windows.recur import FAULTY, Budget, expand
from audition.windows.zones import Zone

Wanted = Callable[[Event], bool]
_SLACK = timedelta(days=2)  # changes of a zone's offset between an instance's begin and end
_SHOWN = 80


class ZoneNeeded(BadInput):
    """A calendar has times without a zone, and the spike file names none."""

    def __init__(self, calendar: str, event: str) -> None:
        super().__init__(
            f"calendar `{calendar}` has times without a time zone, such as those of {event!r}",
            next_step="name the zone in the spike file: `zone: Europe/Vienna` under `window`",
        )


def occurrences(
    calendar: Calendar, wanted: Wanted, begin: datetime, end: datetime, *, wide: bool, budget: Budget | None = None
) -> list[Interval]:
    """The wanted events between two instants, in order, whole (not cut at ``begin`` and ``end``).

    Raises ZoneNeeded when a wanted event is floating or lasts whole days and the calendar has no zone, OutOfSteps when all of them
    together take more than ``budget`` (default: a new one).
    """
    groups: dict[tuple[str | None, str], list[Event]] = {}
    for event in calendar.events:
        groups.setdefault((event.calendar, event.uid), []).append(event)
    found: list[Interval] = []
    budget = budget or Budget()
    for events in groups.values():
        if any(wanted(event) for event in events):
            found += _Group(calendar, events, wide, budget).between(wanted, begin, end)
    return sorted(found)


def title(event: Event) -> str:
    """The event's title as it is shown."""
    return event.summary[:_SHOWN] or "an event without a title"


@dataclass(frozen=True)
class _Later:
    """A change of one instance and all later ones: ``at`` its original instant and ``local`` its original clock time."""

    at: datetime
    local: datetime
    event: Event


class _Group:
    """The events that share a UID: a series and its changed instances."""

    def __init__(self, calendar: Calendar, events: list[Event], wide: bool, budget: Budget) -> None:
        self._calendar, self._wide, self._budget = calendar, wide, budget
        self._broken = [event for event in events if event.problem]
        masters = [event for event in events if event.instead_of is None and not event.problem]
        newest = max((event.sequence for event in masters), default=0)
        self._masters = [event for event in masters if event.sequence == newest]
        self._changes = [event for event in events if event.instead_of is not None and not event.problem]

    def between(self, wanted: Wanted, begin: datetime, end: datetime) -> Iterator[Interval]:
        """The wanted instances that are not over at ``begin`` and begin before ``end``."""
        if self._broken and not self._wide:  # what it would have changed is not known
            return
        for event in self._broken:
            if wanted(event):
                yield from self._unknown(event, event.problem, begin, end)
        changes = self._latest_changes()
        for event in (*self._masters, *changes.values()):
            try:
                one_by_one = self._series(event, changes, begin, end) if event.instead_of is None else self._alone(event)
                for shown, interval in one_by_one:
                    if wanted(shown) and interval.start < end and (interval.end > begin or interval.start >= begin):
                        yield interval
            except FAULTY as error:
                if wanted(event):
                    yield from self._unknown(event, str(error) or type(error).__name__, begin, end)

    def _unknown(self, event: Event, problem: str, begin: datetime, end: datetime) -> Iterator[Interval]:
        if self._wide and not event.cancelled:
            yield Interval(begin, end, f"{title(event)} (it cannot be understood: {problem})")

    def _latest_changes(self) -> dict[tuple[datetime, bool], Event]:
        """The changed instances by original instant; of two for one, that with the higher SEQUENCE, else the later in the file."""
        out: dict[tuple[datetime, bool], Event] = {}
        for event in sorted(self._changes, key=lambda one: one.sequence):
            if event.instead_of is not None:
                out[self._instant(event.instead_of, event), event.and_later] = event
        return out

    def _alone(self, event: Event) -> Iterator[tuple[Event, Interval]]:
        """A changed instance in its own place."""
        if event.rules or event.extras:
            raise ValueError("a changed instance that recurs by itself")
        dropped = not self._wide and bool(self._masters) and all(self._takes_out(master, event) for master in self._masters)
        if event.start is not None and not event.cancelled and not dropped:
            zone = self._zone(event.start, event)
            yield from self._interval(event, zone.instant(event.start.local), event.start.local, zone, event.end)

    def _takes_out(self, master: Event, change: Event) -> bool:
        """Whether a series says that the instance which is changed is not there at all."""
        self._budget.spend(1 + len(master.excluded))
        at = change.instead_of and self._instant(change.instead_of, change)
        return master.cancelled or any(self._instant(one, master) == at for one in master.excluded)

    def _series(
        self, event: Event, changes: dict[tuple[datetime, bool], Event], begin: datetime, end: datetime
    ) -> Iterator[tuple[Event, Interval]]:
        """The instances of a series that were not changed one by one, those after a change of all later ones as changed."""
        start = event.start
        if start is None or event.cancelled:
            return
        self._budget.spend(1 + len(self._changes) + len(event.excluded) + len(event.extras))
        zone = self._zone(start, event)
        changed = {at for at, _ in changes}
        later = self._later(changes, zone)
        reach = _SLACK + max(_longest(one) for one in (event, *(change.event for change in later)))
        reach += max((abs(change.event.start.local - change.local) for change in later if change.event.start), default=timedelta(0))
        excluded = self._exclusion(event, zone)
        for at, own_end in self._starts(event, zone, begin - reach, end + reach):
            local = zone.local(at)
            if at in changed or excluded(at, local):
                continue
            before = bisect_right(later, at, key=lambda one: one.at)
            change = later[before - 1] if before else None
            if change is None:
                yield from self._interval(event, at, local, zone, own_end or event.end)
            elif not change.event.cancelled and change.event.start is not None:
                to, to_zone = change.event.start.local + (local - change.local), self._zone(change.event.start, change.event)
                yield from self._interval(change.event, to_zone.instant(to), to, to_zone, change.event.end)

    def _later(self, changes: dict[tuple[datetime, bool], Event], zone: Zone) -> list[_Later]:
        found = [_Later(at, zone.local(at), event) for (at, and_later), event in changes.items() if and_later]
        return sorted(found, key=lambda one: one.at)

    def _starts(self, event: Event, zone: Zone, begin: datetime, end: datetime) -> Iterator[tuple[datetime, Length | None]]:
        """Instants at which instances of a series begin, before exceptions; an RDATE period brings its own length."""
        if event.start is None:
            return
        first, found = event.start.local, dict[datetime, Length | None]()
        if not event.rules or self._wide:  # RFC 5545 leaves a DTSTART that its rule does not name undefined
            found[zone.instant(first)] = None
        for rule in event.rules:
            for local in expand(
                rule, first, zone, begin, end, wide=self._wide, whole_days=event.start.whole_day, budget=self._budget
            ):
                found[zone.instant(local)] = None
        for extra in event.extras:
            at, own = self._instant(extra.start, event), extra.end
            if isinstance(own, Stamp):
                own = Length(0, max(self._instant(own, event) - at, timedelta(0)))
            found[at] = own or found.get(at)
        for at in sorted(found):
            if begin <= at < end:
                yield at, found[at]

    def _exclusion(self, event: Event, zone: Zone) -> Callable[[datetime, datetime], bool]:
        """Whether an instance, by instant and clock time, is taken out by EXDATE."""
        instants = {self._instant(one, event) for one in event.excluded}
        stamps = [*event.excluded, *(change.instead_of for change in self._changes if change.instead_of is not None)]
        other = [one for one in stamps if event.start is not None and one.whole_day != event.start.whole_day]
        days = {one.local.date() if one.whole_day else zone.local(self._instant(one, event)).date() for one in other}
        return lambda at, local: at in instants or (not self._wide and local.date() in days)

    def _interval(
        self, event: Event, start: datetime, local: datetime, zone: Zone, length: Stamp | Length | None
    ) -> Iterator[tuple[Event, Interval]]:
        """One instance that begins at an instant, which is a clock time of a zone; nothing when a narrow reading leaves nothing."""
        ends = self._ends(event, start, local, zone, length)
        end = max(ends) if self._wide else min(ends)
        if end >= start:
            yield event, Interval(start, end, title(event))
        elif self._wide:  # a change of the clock between the two
            yield event, Interval(end, start, title(event))

    def _ends(
        self, event: Event, start: datetime, local: datetime, zone: Zone, length: Stamp | Length | None
    ) -> tuple[datetime, ...]:
        """The ends that an instance may have, by real time and by clock time (RFC 5545, section 3.8.5.3: real time for DTEND)."""
        if length is None:
            length = Length(1 if event.start is not None and event.start.whole_day else 0, timedelta(0))
        if isinstance(length, Length):
            if not length.days:
                return (start + length.rest,)
            day = local + timedelta(days=length.days)
            return zone.instant(day) + length.rest, zone.instant(day + length.rest)
        if event.start is None:
            return (start,)
        if event.start.whole_day:
            return (zone.instant(local + (length.local - event.start.local)),)
        own_zone = self._zone(event.start, event)
        exact = self._instant(length, event) - own_zone.instant(event.start.local)
        nominal = own_zone.local(self._instant(length, event)) - event.start.local
        return start + exact, zone.instant(local + nominal)

    def _instant(self, stamp: Stamp, event: Event) -> datetime:
        return self._zone(stamp, event).instant(stamp.local)

    def _zone(self, stamp: Stamp, event: Event) -> Zone:
        zone = stamp.zone or self._calendar.zone
        if zone is None:
            raise ZoneNeeded(self._calendar.name, title(event))
        return zone


def _longest(event: Event) -> timedelta:
    """No instance of an event lasts longer, but for changes of the clock."""
    lengths = [timedelta(days=1)]
    ends = [(event.start, event.end), *((extra.start, extra.end) for extra in event.extras)]
    for start, end in ends:
        if isinstance(end, Length):
            lengths.append(timedelta(days=end.days) + end.rest)
        elif end is not None and start is not None:
            lengths.append(abs(end.local - start.local))
    return max(lengths)
