"""Who gets which samples, and which client belongs to which cell.

Everything here is drawn once, on the host, from the seed; sizes that do not divide evenly give clients of different
sizes, never lost samples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedge.core.keys import Purpose, host_rng
from fedge.errors import ConfigError

Indices = NDArray[np.int64]
Rng = np.random.Generator


class Partition(NamedTuple):
    order: NDArray[np.int32]  # indices into the training set, client after client
    size: NDArray[np.int32]  # per client
    cell: NDArray[np.int32]  # per client

    @property
    def start(self) -> NDArray[np.int32]:
        """Where each client begins in `order`."""
        return (np.cumsum(self.size) - self.size).astype(np.int32)

    @property
    def samples(self) -> list[NDArray[np.int32]]:
        return np.split(self.order, self.start[1:])

    def label_counts(self, labels: NDArray[np.int32], classes: int) -> NDArray[np.int64]:
        """clients × classes."""
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
    """A random even split."""
    return np.array_split(r.rng.permutation(len(r.labels)), r.clients)


def shards(r: Request) -> list[Indices]:
    """HIST (i): sort by label, cut into 2 shards per client, deal at random."""
    return _deal_shards(np.arange(len(r.labels)), r.labels, r.clients, r.rng)


def cell_iid(r: Request) -> list[Indices]:
    """HIST (ii): a random even split over the cells, then `shards` inside each; clients are numbered cell by cell."""
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


def one_class(r: Request) -> list[Indices]:
    """SD-FEEL: one class per client, in one of the ways of `class_split`.

    balanced: the classes are dealt evenly to the clients and each is split evenly among its own. equal_shards: sorted
    by label and cut into equal shards, which straddle classes where sizes do not divide. random_class: each client
    draws its class, so a class may be absent and its samples unused.
    """
    if r.class_split == "equal_shards":
        cut = np.array_split(np.argsort(r.labels, kind="stable"), r.clients)
        return [cut[s] for s in r.rng.permutation(r.clients)]
    if r.class_split == "balanced":
        owner = np.arange(r.clients) % r.classes
    else:
        owner = r.rng.integers(r.classes, size=r.clients)
    samples: list[Indices] = [np.empty(0, np.int64)] * r.clients
    for c in np.unique(owner):
        clients = np.flatnonzero(owner == c)
        pool = r.rng.permutation(np.flatnonzero(r.labels == c))
        for client, own in zip(clients, np.array_split(pool, len(clients)), strict=True):
            samples[client] = own
    return samples


def dirichlet(r: Request) -> list[Indices]:
    """Each class is split over the clients in proportions drawn from Dirichlet(concentration).

    A client that would be left with nothing takes one sample from the largest client.
    """
    owner = np.empty(len(r.labels), np.int64)
    for c in range(r.classes):
        pool = r.rng.permutation(np.flatnonzero(r.labels == c))
        share = r.rng.dirichlet(np.full(r.clients, r.concentration))
        owner[pool] = np.searchsorted(np.cumsum(share)[:-1], (np.arange(len(pool)) + 0.5) / max(len(pool), 1))
    samples: list[Indices] = [np.flatnonzero(owner == i) for i in range(r.clients)]
    for i in range(r.clients):
        if len(samples[i]) == 0:
            largest = int(np.argmax([len(s) for s in samples]))
            samples[i], samples[largest] = samples[largest][-1:], samples[largest][:-1]
    return samples


def drawn(r: Request) -> Indices:
    """Each client draws `client_samples` of all samples, which may serve several: clients may outnumber samples."""
    return r.rng.integers(len(r.labels), size=(r.clients, r.client_samples))


PARTITIONS: dict[str, Callable[[Request], Sequence[Indices] | Indices]] = {
    "iid": iid,
    "shards": shards,
    "cell_iid": cell_iid,
    "one_class": one_class,
    "dirichlet": dirichlet,
    "drawn": drawn,
}
CLASS_SPLITS = ("balanced", "equal_shards", "random_class")


def consecutive(clients: int, cells: int) -> NDArray[np.int32]:
    """Cells of nearly equal size over clients in their given order."""
    sizes = [len(block) for block in np.array_split(np.arange(clients), cells)]
    return np.repeat(np.arange(cells, dtype=np.int32), sizes)


def assign(how: str, counts: NDArray[np.int64], cells: int, rng: Rng) -> NDArray[np.int32]:
    """Cells of nearly equal size. `counts` is clients × classes.

    random: drawn. edge_iid: clients sorted by their commonest label and dealt like cards, so that cells look alike.
    edge_niid: the same order cut into blocks, so that a cell holds few labels.
    """
    clients = len(counts)
    order = rng.permutation(clients)
    if how != "random":
        order = order[np.argsort(counts[order].argmax(1), kind="stable")]
    cell = np.empty(clients, np.int32)
    if how == "edge_iid":  # deal row by row, each row in a random order, or cells would take labels by turns
        rows = -(-clients // cells)
        cell[order] = np.concatenate([rng.permutation(cells) for _ in range(rows)])[:clients]
    else:
        cell[order] = consecutive(clients, cells)
    return cell


ASSIGNMENTS = ("random", "edge_iid", "edge_niid")


def check_counts(partition: str, class_split: str, clients: int, samples: int, classes: int) -> None:
    """Refuse numbers that cannot work, before any data is there."""
    needed = 1 if partition == "drawn" else clients * (SHARDS_PER_CLIENT if partition in ("shards", "cell_iid") else 1)
    if needed > samples:
        raise ConfigError(
            f"clients={clients} with partition={partition} needs at least {needed} training samples, "
            f"but there are {samples}; use fewer clients or a larger data set"
        )
    if partition == "one_class" and class_split == "balanced" and clients < classes:
        raise ConfigError(
            f"partition=one_class with class_split=balanced needs a client for each of the {classes} classes, "
            f"but clients={clients}; use more clients or class_split=random_class"
        )


def distribute(
    labels: NDArray[np.int32], *, clients: int, cells: int, partition: str, seed: int, classes: int,
    how: str = "random", class_split: str = "balanced", concentration: float = 0.5, client_samples: int = 10,
) -> Partition:  # fmt: skip
    """Partition the samples over clients and the clients over cells."""
    check_counts(partition, class_split, clients, len(labels), classes)
    rng = host_rng(seed, Purpose.PARTITION)
    request = Request(labels, classes, clients, cells, class_split, concentration, client_samples, rng)
    samples = PARTITIONS[partition](request)
    size = np.fromiter((len(own) for own in samples), np.int32, clients)
    if size.min() == 0:
        raise ConfigError(f"partition={partition} leaves one of {clients} clients without samples; use fewer clients")
    order = (samples.reshape(-1) if isinstance(samples, np.ndarray) else np.concatenate(samples)).astype(np.int32)
    if partition == "cell_iid":
        return Partition(order, size, consecutive(clients, cells))
    counts = Partition(order, size, np.zeros(clients, np.int32)).label_counts(labels, classes)
    return Partition(order, size, assign(how, counts, cells, host_rng(seed, Purpose.ASSIGNMENT)))
