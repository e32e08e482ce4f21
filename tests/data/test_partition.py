import hashlib
import os
import time
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedge.data import ASSIGNMENTS, CLASS_SPLITS, PARTITIONS, distribute, partition
from fedge.errors import ConfigError

BALANCED = np.repeat(np.arange(10, dtype=np.int32), 6000)[np.random.default_rng(0).permutation(60000)]


def deal(partition, labels=BALANCED, clients=60, cells=4, seed=0, **keys):
    return distribute(labels, clients=clients, cells=cells, partition=partition, seed=seed, classes=10, **keys)


@given(
    st.sampled_from(sorted(set(PARTITIONS) - {"drawn"})), st.integers(10, 40), st.integers(1, 6), st.integers(0, 5),
    st.sampled_from(["balanced", "equal_shards"]), st.sampled_from(sorted(ASSIGNMENTS)), st.integers(200, 400),
)  # fmt: skip
@settings(deadline=None)
def test_every_sample_has_one_owner_and_every_cell_a_client(partition, clients, cells, seed, split, how, samples):
    labels = np.random.default_rng(seed).integers(0, 10, samples).astype(np.int32)
    how = "random" if partition == "cell_iid" else how
    dealt = deal(partition, labels, clients, cells, seed, class_split=split, how=how)
    assert sorted(np.concatenate(dealt.samples)) == list(range(samples))
    sizes = np.bincount(dealt.cell, minlength=cells)
    assert sizes.sum() == clients
    assert sizes.max() - sizes.min() <= 1


def test_more_clients_than_samples_draw_what_they_hold():
    labels = np.arange(7, dtype=np.int32)
    dealt = deal("drawn", labels, clients=5000, cells=3, client_samples=4)
    assert (dealt.size == 4).all()
    assert np.bincount(dealt.order).min() > 2500  # each of 7 samples serves about 2857 times
    assert dealt.label_counts(labels, 7).sum() == 20000
    with pytest.raises(ConfigError, match="needs at least 5000 training samples"):
        deal("iid", labels, clients=5000, cells=3)


@pytest.mark.parametrize("partition", PARTITIONS)
def test_the_seed_decides(partition):
    one, same, other = (deal(partition, seed=s) for s in (3, 3, 4))
    assert all((a == b).all() for a, b in zip(one.samples, same.samples, strict=True))
    assert (one.cell == same.cell).all()
    different = zip(one.samples, other.samples, strict=True)
    assert any(a.shape != b.shape or (a != b).any() for a, b in different)


def test_shards_are_the_papers():
    """120 pure shards of 500, two per client: a client has one class with probability 11/119, else two."""
    counts = np.stack([deal("shards", seed=s).label_counts(BALANCED, 10) for s in range(20)])
    assert (counts.sum(-1) == 1000).all()
    assert set(np.unique(counts)) == {0, 500, 1000}
    pure = (counts.max(-1) == 1000).mean()
    assert pure == pytest.approx(11 / 119, abs=0.03)


def test_cell_iid_cells_look_alike_and_clients_do_not():
    dealt = deal("cell_iid")
    counts = dealt.label_counts(BALANCED, 10)
    for d in range(4):
        cell = counts[dealt.cell == d].sum(0)
        assert cell.sum() == 15000
        assert abs(cell - 1500).max() < 200
    assert (np.count_nonzero(counts, axis=1) <= 4).all()


def test_one_class_balanced():
    """Five of 50 clients per class, the class split evenly: 1200 each here; unequal classes give unequal clients."""
    counts = deal("one_class", clients=50, cells=10).label_counts(BALANCED, 10)
    assert (np.count_nonzero(counts, axis=1) == 1).all()
    assert (np.count_nonzero(counts, axis=0) == 5).all()
    assert set(counts.max(1)) == {1200}
    uneven = np.repeat(np.arange(10, dtype=np.int32), np.arange(100, 110))
    sizes = [len(s) for s in deal("one_class", uneven, 20, 2).samples]
    assert sum(sizes) == len(uneven)
    assert len(set(sizes)) > 1


def test_one_class_equal_shards_straddle_and_random_class_may_skip():
    uneven = np.repeat(np.arange(10, dtype=np.int32), np.arange(100, 110))
    shards = deal("one_class", uneven, 20, 2, class_split="equal_shards")
    assert {len(s) for s in shards.samples} <= {52, 53}
    assert (np.count_nonzero(shards.label_counts(uneven, 10), axis=1) > 1).any()
    classes = [
        np.count_nonzero(deal("one_class", clients=12, cells=2, seed=s, class_split="random_class")
                         .label_counts(BALANCED, 10).sum(0))
        for s in range(5)
    ]  # fmt: skip
    assert min(classes) < 10
    assert set(CLASS_SPLITS) == {"balanced", "equal_shards", "random_class"}


def test_dirichlet_concentration():
    """Small: few classes per client. Large: nearly the class shares. Nobody is left with nothing."""
    sharp, flat = (deal("dirichlet", concentration=c).label_counts(BALANCED, 10) for c in (0.05, 100.0))
    shares = lambda counts: (counts / counts.sum(1, keepdims=True)).max(1).mean()  # noqa: E731
    assert shares(sharp) > 0.6
    assert shares(flat) < 0.15
    assert (
        deal("dirichlet", BALANCED[:300], 100, 2, concentration=0.01).label_counts(BALANCED[:300], 10).sum(1).min() > 0
    )


def test_edge_assignments():
    """One-class clients: edge_iid cells hold every class, edge_niid cells few."""

    def classes(how):
        dealt = deal("one_class", clients=100, cells=5, how=how)
        counts = dealt.label_counts(BALANCED, 10)
        return [np.count_nonzero(counts[dealt.cell == d].sum(0)) for d in range(5)]

    assert classes("edge_iid") == [10] * 5
    small = deal("one_class", clients=50, cells=10, how="edge_iid")  # 5 of each class for 10 cells: chance decides
    parity = small.label_counts(BALANCED, 10)[:, ::2].sum(1) > 0
    assert len({int(parity[small.cell == d].sum()) for d in range(10)}) > 1 or parity[small.cell == 0].sum() not in (
        0,
        5,
    )
    assert classes("edge_niid") == [2] * 5


def test_random_cells_of_one_class_clients_hold_4_23_classes_on_average():
    """Balanced one-class, 5 of 50 clients to a cell: a class of 5 clients is missing from a cell with probability
    C(45, 5) / C(50, 5) = 0.5766, so a cell holds 10 · 0.4234 = 4.23 classes."""
    seen = []
    for seed in range(40):
        dealt = deal("one_class", BALANCED[:1000], 50, 10, seed)
        counts = dealt.label_counts(BALANCED[:1000], 10)
        seen += [np.count_nonzero(counts[dealt.cell == d].sum(0)) for d in range(10)]
    assert np.mean(seen) == pytest.approx(4.23, abs=0.1)


@pytest.mark.parametrize(("partition", "clients"), [("shards", 600), ("iid", 1001), ("one_class", 9)])
def test_too_many_or_too_few_clients(partition, clients):
    with pytest.raises(ConfigError, match=f"clients={clients}"):
        deal(partition, BALANCED[:1000], clients, 2)


RECORDED = {  # by the first version, with `distribute` as below
    "iid": "5ca6c66ae750a1d5",
    "shards": "9957d410639eeb2b",
    "cell_iid": "ce776d078304270b",
    "one_class": "16a51fd5a75ed0b8",
    "dirichlet": "4470bde058d89850",
    "drawn": "ba8bd2f02b258811",
}


@pytest.mark.parametrize("partition", PARTITIONS)
def test_who_gets_what_stays_what_it_was(partition):
    """Bit for bit: with clients left empty, cells of one client, a single cell, as many clients as samples."""
    found = hashlib.sha256()
    concentrations = (1e-3, 0.5, 100.0) if partition == "dirichlet" else (0.5,)
    splits = ("balanced", "equal_shards", "random_class") if partition == "one_class" else ("balanced",)
    for n, clients, cells, seed in ((60, 11, 3, 0), (400, 40, 6, 1), (1000, 77, 77, 2), (200, 200, 1, 3)):
        if partition in ("shards", "cell_iid") and clients * 2 > n:
            continue
        labels = np.random.default_rng(seed).integers(0, 10, n).astype(np.int32)
        for how, concentration, split in product(("random", "edge_iid", "edge_niid"), concentrations, splits):
            keys = {"how": how, "concentration": concentration, "class_split": split}
            try:
                dealt = deal(partition, labels, clients, cells, seed, **keys)
            except ConfigError as problem:
                found.update(repr(problem).encode())
                continue
            for array in dealt:
                found.update(str(array.dtype).encode() + array.tobytes())
    assert found.hexdigest()[:16] == RECORDED[partition]


def test_many_clients_left_empty_are_served_in_time():
    """Almost all of 30,000 clients take a sample from another; one search among all for each took minutes."""
    labels = np.arange(30_000, dtype=np.int32) % 10
    begin = time.process_time()
    dealt = deal("dirichlet", labels, 30_000, 10, concentration=1e-3)
    assert time.process_time() - begin < 10
    assert (dealt.size == 1).all()


class BegunError(Exception):
    """A partition was asked for."""


@pytest.fixture
def begins(monkeypatch):
    def begin(request):
        raise BegunError

    for name in PARTITIONS:
        monkeypatch.setitem(partition.PARTITIONS, name, begin)


def test_what_much_dealing_takes_is_said_before_it_begins(begins, caplog):
    with pytest.raises(BegunError):
        deal("drawn", clients=10**7, cells=10)
    assert "dealing 100,000,000 samples to 10,000,000 clients, which takes about 1.5 GB" in caplog.text


@pytest.mark.parametrize("how", ["random", "edge_iid"])
def test_what_this_machine_does_not_have_is_refused(begins, monkeypatch, how):
    """12 bytes for each of 10⁸ samples and 30 for each of 10⁷ clients; to count labels, 20 more and 8 per class."""
    monkeypatch.setattr(os, "sysconf", {"SC_PHYS_PAGES": 10**5, "SC_PAGE_SIZE": 4096}.__getitem__)
    takes = {"random": "1.5", "edge_iid": "4.3"}[how]
    with pytest.raises(ConfigError, match=rf"clients=10000000 takes about {takes} GB of memory, .* has 0.4 GB"):
        deal("drawn", clients=10**7, cells=10, how=how)


@pytest.mark.parametrize("clients", [10**9, 2**63, 10**30])
def test_more_than_indices_can_count_is_refused(begins, clients):
    with pytest.raises(ConfigError, match="there is room for 2,147,483,647"):
        deal("drawn", clients=clients)


def test_more_cells_than_clients_are_refused(begins):
    with pytest.raises(ConfigError, match="cells=1000000000000 is more than clients=60"):
        deal("iid", cells=10**12)


def test_more_shares_than_can_be_drawn_in_time_are_refused(begins):
    labels = np.zeros(1_000_001, np.int32)
    with pytest.raises(ConfigError, match="1,100,000,000 shares"):
        distribute(labels, clients=10**6, cells=1, partition="dirichlet", seed=0, classes=1100)
