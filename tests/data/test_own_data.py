"""Data of one's own: what a file or a function holds becomes a data set, or is refused in one sentence."""

import os
import re
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedge.data import PARTITIONS, Dataset, distribute
from fedge.data.own_data import Reading, load_file, load_own, number_classes
from fedge.errors import ConfigError, DataError

TABLE = "length,width,garden,kind\n1,10,north,rose\n2,30,south,iris\n3,20,north,rose\n4,40,east,tulip\n5,50,east,iris\n"
FLOWERS = Reading(target="kind", client_column="garden", test_fraction=0.4)


@pytest.fixture
def csv(tmp_path):
    def write(text):
        path = tmp_path / "flowers.csv"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


@pytest.fixture
def npz(tmp_path):
    def write(**arrays):
        path = tmp_path / "mine.npz"
        np.savez(path, **arrays)
        return path

    return write


def refused(match, path, how=FLOWERS):
    with pytest.raises(DataError, match=match) as caught:
        load_file(path, how)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 700


def test_a_table_is_standardised_by_its_training_part(csv):
    """Of five rows two are held out; which, the seed decides."""
    numbers = np.array([[1, 10], [2, 30], [3, 20], [4, 40], [5, 50]])
    kinds, gardens = np.array(["rose", "iris", "rose", "tulip", "iris"]), np.array(["n", "s", "n", "e", "e"])
    tested = set()
    for seed in range(6):
        data = load_file(csv(TABLE), FLOWERS._replace(seed=seed))
        assert data.class_names == ("iris", "rose", "tulip")
        assert (len(data.x_train), len(data.x_test), data.classes) == (3, 2, 3)
        rows = [i for i in range(5) if kinds[i] in np.array(data.class_names)[data.y_train]]
        candidates = [
            held for held in np.array(np.meshgrid(range(5), range(5))).T.reshape(-1, 2).tolist() if held[0] < held[1]
        ]
        for held in candidates:  # the one whose training part has these numbers
            train = np.setdiff1d(np.arange(5), held)
            mean, deviation = numbers[train].mean(0), numbers[train].std(0)
            scaled = (numbers - mean) / deviation
            if np.allclose(scaled[train], data.x_train, atol=1e-6) and np.allclose(
                scaled[held], data.x_test, atol=1e-6
            ):
                break
        else:
            pytest.fail(f"no two rows of {rows} explain what is held out")
        assert (np.array(data.class_names)[data.y_train] == kinds[train]).all()
        assert (np.array(data.class_names)[data.y_test] == kinds[held]).all()
        assert (data.client == np.unique(gardens[train], return_inverse=True)[1]).all()
        again = load_file(csv(TABLE), FLOWERS._replace(seed=seed))
        assert (again.x_test == data.x_test).all()
        tested.add(tuple(held))
    assert len(tested) > 1


def test_a_constant_column_becomes_zero_and_spaces_do_not_matter(csv):
    data = load_file(csv("\ufeffa, b ,y\n0.1,1,0\n\n0.1, 2 ,1\n0.1,4,1.0\n"), Reading(target="y"))
    np.testing.assert_allclose(data.x_train[:, 0], 0, atol=1e-6)
    assert data.classes == 2
    assert data.class_names == ()  # they are their numbers
    assert data.client is None


BAD_TABLES = {
    "": "is empty; its first line names the columns",
    "length,width,garden,kind\n": "has no rows",
    "length,width,garden,kind\n1,2,north,rose\n": "at least 2",
    "length,width,garden\n1,2,north\n": r"has no column kind \(target\); its first line names: length, width, garden",
    "length,width,kind,plot\n1,2,rose,a\n": r"has no column garden \(client_column\)",
    "length,width,gardens,kind\n": "did you mean 'gardens'",
    "1,2,3,4\n5,6,7,8\n": "the first line must name the columns",
    "length;width;garden;kind\n1;2;n;rose\n": "separate values by commas instead of ;",
    "length\twidth\tgarden\tkind\n": "instead of tabs",
    "kind,length,length,garden\nrose,1,2,n\n": "column length stands twice",
    ",length,kind,garden\n0,1,rose,n\n": "column 1 has no name",
    "garden,kind\nn,rose\n": "has no feature",
    TABLE.replace("4,40", "4,"): r"column width has no value in row 4 \(after the first line\); fill it in or leave",
    TABLE.replace("4,40", "n/a,40"): "column length has no value in row 4",
    TABLE.replace("4,40", "4,NaN"): "column width has no value in row 4",
    TABLE.replace("4,40", "4,inf"): "column width has no value in row 4",
    TABLE.replace("east,tulip", "east,"): "column kind has no value in row 4",
    TABLE.replace("east,tulip", " ,tulip"): "column garden has no value in row 4",
    TABLE.replace("4,40", "tall,wide"): r"row 4 of length \('tall'\) and width \('wide'\); write categories as columns",
    TABLE.replace("4,40", "4"): r"row 4 \(after the first line\) has 3 values for 4 columns",
    TABLE.replace("4,40", "4,40,400"): "has 5 values for 4 columns",
    TABLE.replace("tulip", '"tulip'): "unexpected end of data",  # a quote that is never closed
    TABLE.encode("utf-16"): "byte 0 is not UTF-8",
    TABLE.replace("tulip", "x" * 200_000): "is no table of comma-separated values",
}


@pytest.mark.parametrize("text", BAD_TABLES, ids=range(len(BAD_TABLES)))
def test_tables_that_cannot_be(csv, text):
    refused(BAD_TABLES[text], csv(text))


def test_one_column_cannot_be_two_things(csv):
    refused("cannot be both target and client_column", csv(TABLE), FLOWERS._replace(client_column="kind"))


def test_what_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    for name in ("none.csv", "pipe.csv", "x" * 300 + ".npz", "a\0b.npz"):
        with pytest.raises(DataError, match="is no file in"):
            load_own(str(tmp_path / name), FLOWERS)


X, Y = np.arange(20.0).reshape(10, 2), np.arange(10) % 3


@pytest.mark.parametrize(
    ("given", "names", "numbers"),
    [
        ([0, 2, 1], (), [0, 2, 1]),
        ([0.0, 2.0, 1.0], (), [0, 2, 1]),
        ([3, -7, 3], ("-7", "3"), [1, 0, 1]),
        (["9", "10", "8"], ("8", "9", "10"), [1, 2, 0]),  # as numbers, not as words
        (["1", "b", "1"], ("1", "b"), [0, 1, 0]),
        (["2.0", "1", "2"], ("1", "2"), [1, 0, 1]),
        (np.array([b"x", b"y", b"x"]), ("x", "y"), [0, 1, 0]),
        ([True, False, True], ("False", "True"), [1, 0, 1]),
    ],
)
def test_classes_are_words_or_integers(given, names, numbers):
    found = number_classes("mine", np.asarray(given))
    assert found[1] == names
    assert found[0].tolist() == numbers


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([0.5, 1.0], "holds 0.5, which is no class; .* task=regression"),
        ([np.nan, 1.0], "holds nan, which is no class"),
        (["1", "2.5"], "holds 2.5, which is no class"),
        (["1", "inf"], "holds inf, which is no class"),
        ([1j, 2], "holds complex128, which is neither numbers nor strings"),
        (np.zeros(3, "M8[s]"), "neither numbers nor strings"),
        (np.arange(1_000_001), "1,000,001 classes"),
    ],
)
def test_what_is_no_class(given, message):
    with pytest.raises(DataError, match=message):
        number_classes("mine", np.asarray(given))


@given(st.lists(st.integers(-(2**40), 2**40) | st.sampled_from([0, 1, 2]), min_size=1))
@settings(max_examples=50)
def test_numbering_loses_nothing(values):
    """Written as words or as numbers, classes are numbered alike, and their names say which they are."""
    numbers, names = number_classes("mine", np.asarray(values))
    as_words = number_classes("mine", np.asarray([str(v) for v in values]))
    assert as_words[1] == names
    assert as_words[0].tolist() == numbers.tolist()
    assert [int(names[n]) if names else n for n in numbers] == values


def test_arrays_with_and_without_a_test_part(npz):
    whole = load_file(npz(x=X, y=Y, client=np.repeat([7, 3], 5)), Reading(test_fraction=0.3))
    assert (len(whole.x_train), len(whole.x_test)) == (7, 3)
    rows = np.concatenate([whole.x_train, whole.x_test])
    assert sorted(rows[:, 0].tolist()) == X[:, 0].tolist()
    assert (whole.y_train == whole.x_train[:, 0] / 2 % 3).all()
    assert (whole.client == (whole.x_train[:, 0] < 10)).all()  # 3 comes before 7
    parts = load_file(npz(x_train=X, y_train=Y, x_test=X[:2], y_test=[2, 1], client=Y), Reading())
    assert (parts.x_train == X).all()
    assert (parts.client == Y).all()
    assert parts.y_test.tolist() == [2, 1]


def test_real_targets_and_labels_of_positions_are_carried(npz, csv):
    real = Reading(task="regression")
    data = load_file(npz(x=X, y=Y / 2), real)
    assert (data.classes, data.task) == (0, "regression")
    assert (data.y_train == data.x_train[:, 0] / 2 % 3 / 2).all()
    table = load_file(csv("a,y\n1,0.5\n2,7\n3,-1e3\n"), real._replace(target="y"))
    assert sorted([*table.y_train.tolist(), *table.y_test.tolist()]) == [-1000, 0.5, 7]
    refused("must be numbers for task=regression", csv("a,y\n1,0.5\n2,x\n"), real._replace(target="y"))
    refused("finite", npz(x=X, y=np.full(10, np.inf)), real)
    tokens = np.arange(40, dtype=np.int32).reshape(10, 4) % 9
    text = load_file(npz(x=tokens, y=np.roll(tokens, -1, 1)), Reading(task="tokens"))
    assert text.y_train.shape == (8, 4)
    assert (text.classes, text.task) == (9, "tokens")


def test_a_task_of_ones_own_gets_targets_as_they_look(npz, csv):
    """Its objective is made from the data set, so the data set comes first."""
    own = Reading(task=None)
    tokens = np.arange(40, dtype=np.int32).reshape(10, 4)
    looks = {
        "classification": (Y, Y.astype(str), np.array(list("ab") * 5)),
        "regression": (Y / 2,),
        "tokens": (tokens,),
    }
    for task, targets in looks.items():
        assert {load_file(npz(x=X, y=y), own).task for y in targets} == {task}
    assert load_file(csv("a,y\n1,0.5\n2,7\n"), own._replace(target="y")).task == "regression"


BAD_ARRAYS = [
    ({"x": X}, "holds x; it must hold x_train, y_train"),
    ({"x": X, "y": Y, "z": Y}, "holds x, y, z; it must hold"),
    ({}, "holds nothing"),
    ({"x": X, "y": Y[:-1]}, r"x of shape \(10, 2\) and y of shape \(9,\); give as many of each"),
    ({"x": X[:1], "y": Y[:1]}, "at least 2"),
    ({"x": X, "y": np.array([{}] * 10, object)}, "array y holds objects"),
    ({"x": X, "y": Y, "client": Y[:-1]}, r"client has the shape \(9,\); give one for each of 10 samples"),
    ({"x": X, "y": Y, "client": Y / 2}, "client holds float64; give integers or words"),
    ({"x": X, "y": np.eye(3)[Y].astype(int)}, "one label per image"),
    ({"x": X, "y": Y / 2}, "y holds 0.5, which is no class"),
    ({"x": X * np.nan, "y": Y}, "values that are NaN"),
    ({"x": 3, "y": 4}, "is a single value"),
]


@pytest.mark.parametrize(("arrays", "message"), BAD_ARRAYS)
def test_arrays_that_cannot_be(npz, arrays, message):
    refused(message, npz(**arrays), Reading())


def test_a_test_part_of_its_own_leaves_no_fraction_to_choose(npz):
    path = npz(x_train=X, y_train=Y, x_test=X, y_test=Y)
    refused("has a test part of its own; leave test_fraction=0.3 out", path, Reading(test_fraction=0.3))


def test_files_that_are_no_arrays(tmp_path, npz):
    (tmp_path / "text.npz").write_text("hello")
    refused("it is no .npz file", tmp_path / "text.npz")
    with (tmp_path / "one.npz").open("wb") as file:
        np.save(file, X)
    refused("it is a single array", tmp_path / "one.npz")
    whole = npz(x=X, y=Y).read_bytes()
    (tmp_path / "half.npz").write_bytes(whole[: len(whole) // 2])
    refused("cannot be read", tmp_path / "half.npz")
    (tmp_path / "flipped.npz").write_bytes(whole.replace(X.tobytes(), X[::-1].tobytes()))
    refused("Bad CRC-32", tmp_path / "flipped.npz")


def test_clients_that_are_held_out_as_a_whole_are_told_of(npz, caplog):
    data = load_file(npz(x=X, y=Y, client=np.arange(10)), Reading())
    assert data.client.tolist() == list(range(8))
    assert "all samples of 2 of its clients are held out" in caplog.text


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A module of the user's own in the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def write(name, body):
        (tmp_path / f"{name}.py").write_text(f"import numpy as np\nimport fedge\n\n\ndef load():\n    {body}\n")
        return f"{name}:load"

    return write


def test_a_function_returns_a_data_set_or_arrays(mine):
    arrays = load_own(mine("own_arrays", "return {'x': np.eye(10), 'y': list('abcdeabcde')}"), Reading())
    assert arrays.class_names == tuple("abcde")
    assert len(arrays.x_test) == 2
    body = "return fedge.Dataset.of(np.eye(3), [0, 1, 0], np.eye(3), [1, 0, 1], class_names=['no', 'yes'])"
    made = load_own(mine("own_set", body), Reading())
    assert (made.name, made.class_names) == ("own_set:load", ("no", "yes"))


def test_a_function_is_called_once_for_all_runs_of_a_comparison(mine):
    name = mine("own_draws", "return {'x': np.random.default_rng().normal(size=(10, 2)), 'y': [0, 1] * 5}")
    assert load_own(name, Reading()) is load_own(name, Reading())
    assert load_own(name, Reading(seed=1)) is not load_own(name, Reading())


@pytest.mark.parametrize(
    ("body", "error", "message"),
    [
        ("return 3", DataError, "returned a int; return a fedge.Dataset, or a dict with x_train"),
        ("return {'x': 1 / 0}", DataError, "failed, ZeroDivisionError: division by zero; mend it"),
        ("return {'x': np.eye(2), 'y': [[1], [1, 2]]}", DataError, "y cannot be made one array"),
        ("return {'x': np.eye(2), 'y': np.array([{}, {}])}", DataError, "y holds objects"),
        ("return fedge.Dataset.of(np.eye(2), [0, 0.5], np.eye(2), [0, 1])", DataError, "labels must be integers"),
        ("return 1\n\n\ndel load", ConfigError, "has no 'load'"),
        ("return 1\n\n\nload = lambda path: path", ConfigError, r"must be a function of \(\)"),
    ],
)
def test_functions_that_cannot_be(mine, body, error, message, request):
    name = mine("bad_" + re.sub(r"\W", "", request.node.name)[-20:], body)
    with pytest.raises(error, match=message):
        load_own(name, Reading())


@pytest.mark.parametrize("classes", [1, 2, 3, 25])
@pytest.mark.parametrize("partition", PARTITIONS)
def test_partitions_of_any_number_of_classes(partition, classes):
    labels = np.random.default_rng(0).integers(0, classes, 300).astype(np.int32)
    dealt = distribute(labels, clients=30, cells=3, partition=partition, seed=0, classes=classes)
    assert dealt.size.min() > 0
    assert dealt.label_counts(labels, classes).shape == (30, classes)
    if partition != "drawn":
        assert sorted(dealt.order) == list(range(300))


def test_real_targets_are_dealt_by_their_tenths():
    y = np.random.default_rng(0).normal(size=1000)
    data = Dataset.of(np.zeros((1000, 1)), y, np.zeros((1, 1)), [0.0], classes=0)
    label, kinds, names = data.strata
    assert kinds == len(names) == 10
    assert np.bincount(label).tolist() == [100] * 10
    assert [y[label == k].max() < y[label == k + 1].min() for k in range(9)] == [True] * 9
    same = Dataset.of(np.zeros((3, 1)), [2.0, 2.0, 2.0], np.zeros((1, 1)), [0.0], classes=0)
    assert set(same.strata.label) == {0}
