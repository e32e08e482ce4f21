"""Activities follow each other, event after event: work takes its seconds, a transfer what links leave to it.

    begin_a = max over the activities before a of their end
    end_a   = begin_a + seconds of work             or, of a transfer, the first time at which ∫ r_a dt = its bits

The rates r of all transfers under way are max-min fair (`sharing.py`) and change only when one of them begins or ends,
or when a device goes on or off. A device that is off neither works nor sends nor receives (`availability.py`).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from fedge.cost.availability import Availability
from fedge.cost.sharing import OWN, Floats, Indices, fair_shares

Link = Hashable
Watch = Callable[[float, float, list[int], Floats], None]
"""It hears of each span of time in which no rate changes: (from, until, transfers under way, their rates)."""


class Activity(NamedTuple):
    """An activity is work, or a transfer over links, or nothing but a place where others meet."""

    after: tuple[int, ...]
    amount: float  # seconds of work, or bits
    rate: float | None = None  # of its owner's own link, where it is a transfer
    links: tuple[Link, ...] = ()  # the shared links that it goes over, in order
    owner: Availability | None = None  # None: always on


class Course(NamedTuple):
    """This is how activities went: when each began and ended, which one it waited for last, and how long each limit
    held a transfer back: its own link, then its shared links in order."""

    begin: Floats
    end: Floats
    cause: Indices
    held: dict[int, Floats]

    def path(self, last: int) -> list[int]:
        """Return the critical path to an activity: those that it waited for, from the first on."""
        found = [last]
        while self.cause[found[-1]] >= 0:
            found.append(int(self.cause[found[-1]]))
        return found[::-1]


@dataclass
class Activities:
    """These are activities and the shared links between them; a link that is not in `capacity` is endless."""

    capacity: Mapping[Link, float]
    all: list[Activity] = field(default_factory=list)

    def at(self, time: float) -> int:
        """Add a beginning: others may come after this moment."""
        return self._add(Activity((), time))

    def meet(self, after: Sequence[int]) -> int:
        """Add a place that is reached when all of these are done."""
        return self._add(Activity(tuple(after), 0.0))

    def work(self, seconds: float, after: Sequence[int], owner: Availability | None = None) -> int:
        return self._add(Activity(tuple(after), float(seconds), owner=owner))

    def send(
        self, bits: float, rate: float, links: Sequence[Link], after: Sequence[int], owner: Availability | None = None
    ) -> int:
        """Add a transfer over its owner's own link, of this rate, and these shared ones."""
        narrow = tuple(link for link in links if math.isfinite(self.capacity.get(link, math.inf)))
        return self._add(Activity(tuple(after), float(bits), float(rate), narrow, owner))

    def _add(self, activity: Activity) -> int:
        self.all.append(activity)
        return len(self.all) - 1

    def follow(self, watch: Watch | None = None) -> Course:
        return _Simulation(self).follow(watch)


class _Transfers:
    """These are the transfers under way, as arrays."""

    def __init__(self, capacity: Mapping[Link, float], all_: Sequence[Activity]) -> None:
        links = list(dict.fromkeys(link for a in all_ if a.rate is not None for link in a.links))
        self._number = {link: n for n, link in enumerate(links)}
        self._capacity = np.array([*(capacity[link] for link in links), math.inf])
        self._hops = max((len(a.links) for a in all_ if a.rate is not None), default=0)
        self.ids: list[int] = []
        self.left, self._own = np.zeros(0), np.zeros(0)
        self._paused = np.zeros(0, bool)
        self._routes = np.zeros((0, self._hops), np.intp)
        self._held = np.zeros((0, self._hops + 1))
        self._shares = fair_shares(self._own, self._routes, self._capacity)

    def begin(self, id_: int, activity: Activity, on: bool) -> None:
        route = [self._number[link] for link in activity.links]
        route += [len(self._capacity) - 1] * (self._hops - len(route))
        assert activity.rate is not None
        self.ids.append(id_)
        self.left = np.append(self.left, activity.amount)
        self._own = np.append(self._own, activity.rate)
        self._paused = np.append(self._paused, not on)
        self._routes = np.concatenate([self._routes, np.array([route], np.intp).reshape(1, self._hops)])
        self._held = np.concatenate([self._held, np.zeros((1, self._hops + 1))])

    def pause(self, id_: int, on: bool) -> None:
        self._paused[self.ids.index(id_)] = not on

    def share(self) -> Floats:
        self._shares = fair_shares(np.where(self._paused, 0.0, self._own), self._routes, self._capacity)
        return self._shares.rate

    def pass_time(self, seconds: float, done: Floats) -> None:
        """Let so much time pass, in which these are done."""
        rate, held = self._shares
        self.left = np.where(done, 0.0, self.left - np.where(done, 0.0, rate) * seconds)
        self._held[np.arange(len(held)), held] += seconds

    def end(self, done: Floats) -> Iterator[tuple[int, Floats]]:
        """Take out those that are done, and say what held each back."""
        for place in np.flatnonzero(done):
            yield self.ids[place], self._held[place]
        stay = ~done.astype(bool)
        self.ids = [id_ for id_, kept in zip(self.ids, stay, strict=True) if kept]
        self.left, self._own, self._paused = self.left[stay], self._own[stay], self._paused[stay]
        self._routes, self._held = self._routes[stay], self._held[stay]


class _Simulation:
    def __init__(self, activities: Activities) -> None:
        self._all = activities.all
        count = len(self._all)
        self._begin, self._end = np.zeros(count), np.full(count, np.nan)
        self._cause = np.full(count, -1, np.intp)
        self._held: dict[int, Floats] = {}
        self._missing = [len(a.after) for a in self._all]
        self._next: list[list[int]] = [[] for _ in self._all]
        for id_, activity in enumerate(self._all):
            for before in activity.after:
                self._next[before].append(id_)
        self._flows = _Transfers(activities.capacity, self._all)
        self._queue: list[tuple[float, int]] = []  # ends of work, and switches of devices that transfer
        self._changed = True

    def follow(self, watch: Watch | None) -> Course:
        flows, now = self._flows, 0.0
        for id_, activity in enumerate(self._all):
            if not activity.after:
                heapq.heappush(self._queue, (activity.amount, id_))
        while self._queue or flows.ids:
            if self._changed:
                rate, self._changed = flows.share(), False
            until = np.divide(flows.left, rate, out=np.full(len(rate), np.inf), where=rate > 0)
            until[flows.left <= 0] = 0.0
            first = float(until.min(initial=math.inf))
            if self._queue and self._queue[0][0] <= now + first:
                then, done = max(now, self._queue[0][0]), until <= 0.0
                if then == now + first:
                    done = until <= first
            else:
                then, done = now + first, until <= first * (1 + 1e-12)
            if watch is not None and then > now and flows.ids:
                watch(now, then, list(flows.ids), rate.copy())
            flows.pass_time(then - now, done)
            now = then
            ended = list(flows.end(done)) if done.any() else []
            for id_, held in ended:
                self._held[id_] = held
                self._finish(id_, now)
            while self._queue and self._queue[0][0] <= now:
                _, id_ = heapq.heappop(self._queue)
                if self._all[id_].rate is None:
                    self._finish(id_, now)
                elif id_ in flows.ids:
                    flows.pause(id_, self._switch(id_, now))
                    self._changed = True
        return Course(self._begin, self._end, self._cause, self._held)

    def _finish(self, id_: int, now: float) -> None:
        """End an activity, and begin those that waited for nothing else."""
        self._end[id_] = now
        self._changed |= self._all[id_].rate is not None
        for follower in self._next[id_]:
            self._missing[follower] -= 1
            if not self._missing[follower]:
                self._cause[follower] = id_
                self._start(follower, now)

    def _start(self, id_: int, now: float) -> None:
        self._begin[id_] = now
        activity = self._all[id_]
        if activity.rate is None:
            owner = activity.owner
            end = now + activity.amount if owner is None else owner.finish(now, activity.amount)
            heapq.heappush(self._queue, (end, id_))
        elif activity.amount <= 0:
            self._held[id_] = np.zeros(1)
            self._finish(id_, now)
        else:
            self._flows.begin(id_, activity, activity.owner is None or self._switch(id_, now))
            self._changed = True

    def _switch(self, id_: int, now: float) -> bool:
        """Say whether the device of a transfer is on, and come back when that changes."""
        owner = self._all[id_].owner
        assert owner is not None
        on, until = owner.state(now)
        if math.isfinite(until):
            heapq.heappush(self._queue, (until, id_))
        return on


def limit_of(activity: Activity, held: Floats) -> Link | None:
    """Name the shared link that held a transfer back for longest; None where its own link did."""
    place = int(held.argmax())
    return None if place == OWN else activity.links[place - 1]
