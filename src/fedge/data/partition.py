"""This file says who gets which samples.

Everything here is drawn once, on the host, from the seed; sizes that do not divide evenly give clients of different
sizes, never lost samples. The names of all ways stand in PARTITIONS and CLASS_SPLITS, and nowhere else. A partition or
cells that were given instead (natural clients, a file, an array) come as `owner` and `cell`.
"""

from __future__ import annotations

import heapq
import logging
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedge.core.keys import Purpose, host_rng
from fedge.data.cells import ASSIGNMENTS, Indices, Rng, Roster, consecutive
from fedge.errors import ConfigError

log = logging.getLogger(__name__)


class Partition(NamedTuple):
    order: NDArray[np.int32]  # indices into the training set, client after client
    size: NDArray[np.int32]  # per client
    cell: NDArray[np.int32]  # per client

    @property
    def start(self) -> NDArray[np.int32]:
        """The place in `order` at which each client begins is the number of samples before it."""
        return (np.cumsum(self.size) - self.size).astype(np.int32)

    @property
    def samples(self) -> list[NDArray[np.int32]]:
        return np.split(self.order, self.start[1:])

    def label_counts(self, labels: NDArray[np.int32], classes: int) -> NDArray[np.int64]:
        """Count each client's samples of each class: clients × classes."""
        owner = np.repeat(np.arange(len(self.size)), self.size)
        return np.bincount(owner * classes + labels[self.order], minlength=len(self.size) * classes).reshape(
            -1, classes
        )


class Request(NamedTuple):
    labels: NDArray[np.int32]
    classes: int
    clients: int
    cells: int
    class_split: str
    concentration: float
    client_samples: int
    rng: Rng


SHARDS_PER_CLIENT = 2


def iid(r: Request) -> list[Indices]:
    """Split the samples evenly, at random."""
    return np.array_split(r.rng.permutation(len(r.labels)), r.clients)


def shards(r: Request) -> list[Indices]:
    """Sort by label, cut into 2 shards per client, deal at random: HIST (i)."""
    return _deal_shards(np.arange(len(r.labels)), r.labels, r.clients, r.rng)


def cell_iid(r: Request) -> list[Indices]:
    """Split evenly over the cells, at random, then as `shards` inside each: HIST (ii). Clients are numbered by cell."""
    parts = np.array_split(r.rng.permutation(len(r.labels)), r.cells)
    sizes = np.bincount(consecutive(r.clients, r.cells))
    return [
        own
        for part, n in zip(parts, sizes, strict=True)
        for own in _deal_shards(np.sort(part), r.labels, int(n), r.rng)
    ]


def _deal_shards(pool: Indices, labels: NDArray[np.int32], clients: int, rng: Rng) -> list[Indices]:
    ordered = pool[np.argsort(labels[pool], kind="stable")]
    cut = np.array_split(ordered, clients * SHARDS_PER_CLIENT)
    dealt = rng.permutation(len(cut)).reshape(clients, SHARDS_PER_CLIENT)
    return [np.concatenate([cut[s] for s in hand]) for hand in dealt]


def one_class(r: Request) -> Sequence[Indices]:
    """Give each client one class, in one of the ways of `class_split`: SD-FEEL."""
    return CLASS_SPLITS[r.class_split](r)


def balanced(r: Request) -> list[Indices]:
    """Deal the classes evenly to the clients and split each evenly among its own."""
    return _split_classes(r, np.arange(r.clients) % r.classes)


def equal_shards(r: Request) -> list[Indices]:
    """Sort by label and cut into equal shards, which straddle classes where sizes do not divide."""
    cut = np.array_split(np.argsort(r.labels, kind="stable"), r.clients)
    return [cut[s] for s in r.rng.permutation(r.clients)]


def random_class(r: Request) -> list[Indices]:
    """Let each client draw its class, so a class may be absent and its samples unused."""
    return _split_classes(r, r.rng.integers(r.classes, size=r.clients))


def _split_classes(r: Request, owned: Indices) -> list[Indices]:
    """Split each class evenly over the clients that own it."""
    samples: list[Indices] = [np.empty(0, np.int64)] * r.clients
    pools = _positions(r.labels, r.classes)
    for c, clients in enumerate(_positions(owned, r.classes)):
        if len(clients):
            for client, own in zip(clients, np.array_split(r.rng.permutation(pools[c]), len(clients)), strict=True):
                samples[client] = own
    return samples


def _positions(values: NDArray[Any], kinds: int) -> list[Indices]:
    """Return the places, in order, at which each of the integers 0..kinds-1 occurs."""
    return np.split(np.argsort(values, kind="stable"), np.cumsum(np.bincount(values, minlength=kinds))[:-1])


def dirichlet(r: Request) -> list[Indices]:
    """Split each class over the clients in proportions drawn from Dirichlet(concentration).

    A client that would be left with nothing takes one sample from the largest client.
    """
    owner = np.empty(len(r.labels), np.int64)
    for positions in _positions(r.labels, r.classes):
        pool = r.rng.permutation(positions)
        share = r.rng.dirichlet(np.full(r.clients, r.concentration))
        owner[pool] = np.searchsorted(np.cumsum(share)[:-1], (np.arange(len(pool)) + 0.5) / max(len(pool), 1))
    return _share_with_empty(_positions(owner, r.clients))


def _share_with_empty(samples: list[Indices]) -> list[Indices]:
    """Give each client without samples the last one of the client that is then the largest, of equals the first."""
    largest = [(-len(own), i) for i, own in enumerate(samples) if len(own) > 1]
    heapq.heapify(largest)
    for i in range(len(samples)):
        if len(samples[i]) == 0:
            size, giver = largest[0]
            heapq.heapreplace(largest, (size + 1, giver))
            samples[i], samples[giver] = samples[giver][-1:], samples[giver][:-1]
    return samples


def draw(r: Request) -> Indices:
    """Let each client draw `client_samples` of all samples, which may serve several: clients may outnumber samples."""
    return r.rng.integers(len(r.labels), size=(r.clients, r.client_samples))


PARTITIONS: dict[str, Callable[[Request], Sequence[Indices] | Indices]] = {
    "iid": iid,
    "shards": shards,
    "cell_iid": cell_iid,
    "one_class": one_class,
    "dirichlet": dirichlet,
    "drawn": draw,
}
BY_LABEL = ("shards", "cell_iid", "one_class", "dirichlet")  # these ask for each sample's class
CLASS_SPLITS: dict[str, Callable[[Request], list[Indices]]] = {
    "balanced": balanced,
    "equal_shards": equal_shards,
    "random_class": random_class,
}


MOST_DEALT = 2**31 - 1  # indices into all clients' samples are 32 bits wide
MOST_SHARES = 10**9  # 10 s of drawing


def check_counts(
    partition: str, class_split: str, clients: int, samples: int, classes: int, client_samples: int = 1
) -> None:
    """Refuse numbers that cannot work, before any data is there."""
    needed = 1 if partition == "drawn" else clients * (SHARDS_PER_CLIENT if partition in ("shards", "cell_iid") else 1)
    if needed > samples:
        raise ConfigError(
            f"clients={clients} with partition={partition} needs at least {needed} training samples, "
            f"but there are {samples}; use fewer clients or a larger data set"
        )
    if partition == "drawn" and clients * client_samples > MOST_DEALT:
        raise ConfigError(
            f"clients={clients} with client_samples={client_samples} draw {clients * client_samples:,} samples, "
            f"and there is room for {MOST_DEALT:,}; use fewer of either"
        )
    if partition == "dirichlet" and clients * classes > MOST_SHARES:
        raise ConfigError(
            f"clients={clients} with partition=dirichlet draws {clients * classes:,} shares of {classes} classes, "
            f"and at most {MOST_SHARES:,} are allowed; use fewer clients"
        )
    if partition == "one_class" and class_split == "balanced" and clients < classes:
        raise ConfigError(
            f"partition=one_class with class_split=balanced needs a client for each of the {classes} classes, "
            f"but clients={clients}; use more clients or class_split=random_class"
        )


def distribute(
    labels: NDArray[np.int32], *, clients: int, cells: int, partition: str, seed: int, classes: int,
    how: str = "random", class_split: str = "balanced", concentration: float = 0.5, client_samples: int = 10,
    owner: NDArray[np.int32] | None = None, cell: NDArray[np.int32] | None = None,
) -> Partition:  # fmt: skip
    """Partition the samples over clients and the clients over cells.

    Where they are given, `owner` is the client of each sample and `cell` the cell of each client, and they go before
    `partition` and `how`.
    """
    check_counts(partition, class_split, clients, len(labels), classes, client_samples)
    if cells > clients:
        raise ConfigError(f"cells={cells} is more than clients={clients}; each cell needs at least one client")
    dealt = clients * client_samples if partition == "drawn" else len(labels)
    counted = classes if cell is None and how != "random" else 0
    _check_memory(clients, dealt, lists=partition != "drawn", counted=counted)
    rng = host_rng(seed, Purpose.PARTITION)
    request = Request(labels, classes, clients, cells, class_split, concentration, client_samples, rng)
    samples = PARTITIONS[partition](request) if owner is None else _positions(owner, clients)
    if isinstance(samples, np.ndarray):
        size, order = np.full(clients, client_samples, np.int32), samples.reshape(-1).astype(np.int32)
    else:
        size = np.fromiter((len(own) for own in samples), np.int32, clients)
        order = np.concatenate(samples).astype(np.int32)
    if size.min() == 0:
        raise ConfigError(f"partition={partition} leaves one of {clients} clients without samples; use fewer clients")
    if cell is not None or partition == "cell_iid":
        return Partition(order, size, consecutive(clients, cells) if cell is None else cell)
    alone = Partition(order, size, np.zeros(clients, np.int32))
    roster = Roster(
        clients, cells, lambda: alone.label_counts(labels, classes).argmax(1), host_rng(seed, Purpose.ASSIGNMENT)
    )
    return alone._replace(cell=ASSIGNMENTS[how](roster))


def _check_memory(clients: int, dealt: int, *, lists: bool, counted: int) -> None:
    """Say what dealing so many samples takes where that is much, and refuse what this machine does not have.

    A sample is an index of 8 bytes and one of 4; a client has a few sizes, and an array where clients are lists. To
    count classes takes 20 bytes more for each sample, and a table of clients × classes.
    """
    counts = 20 * dealt + 8 * clients * counted if counted else 0
    need = (12 * dealt + (200 if lists else 30) * clients + counts) / 1e9
    have = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9
    if need > have:
        raise ConfigError(
            f"dealing {dealt:,} samples to clients={clients} takes about {need:.1f} GB of memory, and this machine has "
            f"{have:.1f} GB; use fewer clients"
        )
    if need > 1:
        log.warning("dealing %s samples to %s clients, which takes about %.1f GB", f"{dealt:,}", f"{clients:,}", need)
