"""Partitions and cells of one's own: integers without gaps, one for each, or one sentence."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedge.data import distribute
from fedge.data.own_numbers import check_cells, check_owners, read_numbers
from fedge.errors import DataError


@pytest.mark.parametrize("kind", ["npy", "csv", "txt"])
def test_files_of_integers(tmp_path, kind):
    path = tmp_path / f"who.{kind}"
    if kind == "npy":
        np.save(path, np.array([0, 2, 1, 1]))
    else:
        path.write_text("\ufeff0  # the first\n2,\n\n1\n1\n")
    assert read_numbers("partition", path).tolist() == [0, 2, 1, 1]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "who.txt",
            b"client\n0\n",
            "partition=.*who.txt has 'client' in line 1, which is no integer; .*without a heading",
        ),
        ("who.csv", b"0\n0,1\n", "has '0,1' in line 2"),
        ("who.csv", b"0\n1.5\n", "has '1.5' in line 2"),
        ("who.txt", b"0\n\xff\n", "cannot be read"),
        ("who.npy", b"hello", "cannot be read"),
        ("who.npy", b"", "cannot be read"),
        ("gone.npy", None, "is no file in"),
    ],
)
def test_files_that_cannot_be(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_numbers("partition", tmp_path / name)


def test_objects_are_not_read(tmp_path):
    np.save(tmp_path / "who.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(DataError, match="Object arrays cannot be loaded"):
        read_numbers("assign", tmp_path / "who.npy")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([0, 1], "has 2 entries, and there are 3 training samples; give a client for each training sample"),
        ([0, -1, 1], "has -1 at position 1, and clients are numbered from 0"),
        ([0, 2, 2], r"leaves client 1 without a training sample \(1 of 3 clients are empty\)"),
        ([0, 1, 2**40], "has clients up to 1,099,511,627,776 and only 3 entries"),
        ([0.0, 1.0, 1.0], "holds float64 instead of integers"),
        (["a", "b", "b"], "holds <U1 instead of integers"),
        ([True, False, True], "holds bool"),
        ([[0], [1], [1]], r"has the shape \(3, 1\)"),
        ([[0], [1, 2]], "cannot be made one array"),
        ([], r"has the shape \(0,\)"),
        ([0, 1, 2**70], "holds object"),
    ],
)
def test_partitions_that_cannot_be(given, message):
    with pytest.raises(DataError, match=message):
        check_owners("partition=custom", given, 3)


def test_cells_that_cannot_be():
    with pytest.raises(DataError, match=r"assign=c\.txt leaves cell 0 without a client"):
        check_cells("assign=c.txt", [1, 1, 2])
    with pytest.raises(DataError, match=r"assign=c\.txt has 3 entries, and there are 4 clients; give a cell for each"):
        check_cells("assign=c.txt", [0, 1, 1], 4)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=40), st.randoms(use_true_random=False))
@settings(max_examples=50)
def test_everybody_holds_what_is_given_to_them(owners, random):
    owner = np.unique(owners, return_inverse=True)[1]
    clients = int(owner.max()) + 1
    cell = np.array([0] + [random.randint(0, 1) for _ in range(clients - 1)])
    cell = np.unique(cell, return_inverse=True)[1]
    dealt = distribute(
        np.zeros(len(owner), np.int32), clients=clients, cells=int(cell.max()) + 1, partition="natural", seed=0,
        classes=1, owner=check_owners("p", owner, len(owner)), cell=check_cells("a", cell, clients),
    )  # fmt: skip
    for i, own in enumerate(dealt.samples):
        assert own.tolist() == np.flatnonzero(owner == i).tolist()
    assert dealt.cell.tolist() == cell.tolist()
