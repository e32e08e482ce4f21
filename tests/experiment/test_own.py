"""Data, a partition and cells of one's own, from keys to an experiment. Nothing is trained here."""

from dataclasses import replace

import numpy as np
import pytest

from fedge.core.objective import Objective
from fedge.data import Dataset
from fedge.errors import ConfigError, DataError
from fedge.experiment.build import cut_prices, experiment
from fedge.experiment.config import Config
from fedge.runner.prepare import Given
from fedge.view import hierarchy, terminal
from tests.experiment.test_config import refused
from tests.view.test_figures import assert_readable, drawn

BASE = {"algorithm": "hierfavg"}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with data of 40 samples: 7 gardens, 3 kinds of flowers."""
    monkeypatch.chdir(tmp_path)
    lines = [f"{i % 5},{i * i % 11},garden{i % 7},{('iris', 'rose', 'tulip')[i % 3]}" for i in range(40)]
    (tmp_path / "flowers.csv").write_text("\n".join(["length,width,garden,kind", *lines]))
    np.savez("mine.npz", x_train=np.eye(12), y_train=np.arange(12) % 4, x_test=np.eye(12), y_test=np.arange(12) % 4,
             client=np.repeat([5, 1, 3], 4))  # fmt: skip
    return tmp_path


FLOWERS = BASE | {"data": "flowers.csv", "target": "kind", "client_column": "garden", "cells": 2}


def made(keys, *given, **arrays):
    return experiment(Config.of(keys), *given, **arrays)


def test_each_natural_client_is_a_client(folder):
    found = made(FLOWERS)
    assert (found.config.partition, found.config.clients, found.topology.cells) == ("natural", 7, 2)
    assert found.dataset.class_names == ("iris", "rose", "tulip")
    assert found.partition.size.tolist() == np.bincount(found.dataset.client).tolist()
    assert all((found.dataset.client[own] == i).all() for i, own in enumerate(found.partition.samples))
    assert found.dataset.shape == (2,)  # neither the target nor the garden is a feature
    drawn_instead = made(FLOWERS | {"partition": "iid", "clients": 4})
    assert (drawn_instead.topology.clients, drawn_instead.dataset.shape) == (4, (2,))
    assert made(BASE | {"data": "mine.npz", "partition": "natural", "cells": 3}).partition.size.tolist() == [4, 4, 4]


def test_a_resolved_configuration_says_how_many_and_reads_back(folder):
    first = made(FLOWERS).config
    assert made(first.model_dump()).config == first


def test_partitions_and_cells_come_from_files_and_arrays_alike(folder):
    owner, cell = np.arange(12) % 5, np.array([0, 2, 1, 1, 0])
    np.save("who.npy", owner)
    (folder / "cells.txt").write_text("\n".join(map(str, cell)))
    keys = BASE | {"data": "mine.npz"}
    files = made(keys | {"partition": "who.npy", "assign": "cells.txt"})
    arrays = made(keys | {"partition": "custom", "assign": "custom"}, owner=owner, cell=cell.tolist())
    for found in (files, arrays):
        assert (found.config.clients, found.config.cells) == (5, 3)
        assert [own.tolist() for own in found.partition.samples] == [
            np.flatnonzero(owner == i).tolist() for i in range(5)
        ]
        assert found.topology.cell.tolist() == cell.tolist()


def test_cells_of_ones_own_say_how_many_clients_there_are(folder):
    (folder / "cells.txt").write_text("0\n1\n1\n0\n")
    keys = BASE | {"data": "mine.npz", "partition": "iid", "assign": "cells.txt"}
    found = made(keys)
    assert (found.config.clients, found.config.cells, found.topology.cell.tolist()) == (4, 2, [0, 1, 1, 0])
    with pytest.raises(DataError, match=r"assign=cells.txt has 4 entries, and there are 6 clients"):
        made(keys | {"clients": 6})
    with pytest.raises(ConfigError, match=r"cells=3 does not fit assign=cells.txt, which has 2; leave cells out"):
        made(keys | {"cells": 3})
    graph = keys | {"algorithm": "sdfeel", "graph": "0-1"}
    assert made(graph).job.algorithm.gossip.graph.number_of_nodes() == 2
    (folder / "cells.txt").write_text("0\n1\n2\n0\n")
    with pytest.raises(ConfigError, match=r"components \[\[0, 1\], \[2\]\]"):
        made(graph)


@pytest.mark.parametrize(
    ("keys", "error", "message"),
    [
        (
            {"data": "flowers.csv"},
            ConfigError,
            "data=flowers.csv needs the column that is predicted; give target_column=",
        ),
        (
            {"data": "mine.npz", "target": "y"},
            ConfigError,
            r"target=y is no number to reach, and a column only of data=",
        ),
        ({"data": "mine.npz", "target_column": "y"}, ConfigError, r"target_column=y is only for data=FILE\.csv"),
        ({"data": "a.csv", "target": "y", "target_column": "z"}, ConfigError, "target=y and target_column=z both name"),
        ({"client_column": "y"}, ConfigError, "client_column=y is only for data="),
        ({"test_fraction": 0.3}, ConfigError, "test_fraction=0.3 is only for data of your own"),
        ({"partition": "natural"}, ConfigError, "a sample of fashion-mini comes from; give client_column=COLUMN"),
        ({"data": "flowers.csv", "target": "kind", "partition": "natural"}, ConfigError, "give client_column=COLUMN"),
        ({"data": "flowers.tsv"}, ConfigError, r"unknown data 'flowers.tsv'; allowed: .*\.npz, \.csv.*module:function"),
        ({"data": "gone.csv", "target": "kind"}, DataError, "data=gone.csv is no file in .*; give one that is there"),
        ({"partition": "who.dat"}, ConfigError, r"partition=who.dat is not allowed; .*natural, FILE\.npy, FILE\.csv"),
        ({"partition": "gone.npy"}, DataError, "partition=gone.npy is no file"),
        ({"assign": "gone.txt"}, DataError, "assign=gone.txt is no file"),
        ({"partition": "who.txt"}, DataError, "has 3 entries, and there are 6,000 training samples"),
        ({"partition": "cell_iid", "assign": "who.txt"}, ConfigError, "decides the cells itself"),
        ({"partition": "custom"}, ConfigError, "partition=custom means an array passed in from Python"),
        ({"data": "mine.npz", "partition": "natural", "clients": 4}, ConfigError, "clients=4 does not fit .* has 3"),
        ({"data": "mine.npz", "partition": "natural"}, ConfigError, "cells=4 is more than clients=3"),
        (
            {"data": "mine.npz", "partition": "one_class", "clients": 3, "cells": 1},
            ConfigError,
            "each of the 4 classes",
        ),
        ({"data": "nowhere.mine:load"}, ConfigError, "there is no module nowhere"),
    ],
)
def test_what_cannot_be_gets_one_sentence(folder, keys, error, message):
    (folder / "who.txt").write_text("0\n0\n1\n")
    with pytest.raises(error, match=message):
        made(BASE | keys)


def test_a_path_keeps_its_letters():
    assert Config.of(BASE | {"data": "Mine/Flowers.CSV", "target": "y"}).data == "Mine/Flowers.CSV"
    assert Config.of(BASE | {"data": "MNIST"}).data == "mnist"
    refused("test_fraction=1 is not allowed", data="mine.npz", test_fraction=1)


def test_targets_that_are_no_classes_need_their_task():
    x = np.zeros((40, 2))
    real = Dataset.of(x, np.linspace(0, 1, 40), x[:1], [0.5], classes=0)
    with pytest.raises(ConfigError, match="are real numbers, and not classes; give task=regression"):
        made(BASE | {"data": "custom", "clients": 4, "partition": "iid"}, real)
    tokens = np.zeros((40, 3), np.int32)
    text = Dataset.of(tokens, tokens, tokens[:1], tokens[:1])
    with pytest.raises(ConfigError, match="a label for each position, and not classes; give task=tokens"):
        made(BASE | {"data": "custom", "partition": "iid", "clients": 4}, text)


def test_numbers_are_predicted_from_a_table(folder):
    rows = [f"{i},{i % 3},{i / 7:.3f},{i % 4}" for i in range(40)]
    (folder / "rent.csv").write_text("\n".join(["size,floor,rent,street", *rows]))
    keys = BASE | {"data": "rent.csv", "target": "rent", "client_column": "street"}
    found = made(keys | {"task": "regression"})
    assert (found.dataset.task, found.config.partition, found.config.clients) == ("regression", "natural", 4)
    assert_readable(hierarchy.label_heatmap(found))
    price = cut_prices(Config.of(keys | {"task": "regression", "algorithm": "hiersfl"}))[0]
    assert (price.parameters, price.place.bits) == (2 * 300 + 300 + 300 + 1, 32)
    with pytest.raises(DataError, match=r"target rent holds 0.143, which is no class; .* for task=regression"):
        made(keys)
    with pytest.raises(ConfigError, match="goes by each sample's class, and regression has none"):
        made(keys | {"task": "regression", "partition": "shards"})


def test_classes_are_drawn_by_their_names(folder):
    found = made(FLOWERS)
    figure = hierarchy.label_heatmap(found)
    assert_readable(figure)
    texts = [text for text, _ in drawn(figure)]
    assert {"iris", "rose", "tulip"} <= set(texts)
    assert any(text.startswith("flowers.csv, natural") for text in texts)
    assert "(bars: samples of iris, rose, tulip in a cell)" in terminal.topology_picture(found)
    assert terminal.cell_lines(found).splitlines()[0].split() == ["cell", "clients", "samples", "iris", "rose", "tulip"]


def test_names_that_are_long_or_look_like_formulas_are_cut_and_shown_as_they_are():
    names = [f"a class with the long name {n}" for n in range(3)] + ["$x_1$"]
    x = np.zeros((40, 2))
    data = Dataset.of(x, np.arange(40) % 4, x[:4], np.arange(4), class_names=names)
    found = made(BASE | {"data": "custom", "clients": 4, "cells": 2, "partition": "iid"}, data)
    assert_readable(hierarchy.label_heatmap(found))
    assert "each of the 4 classes" in terminal.topology_picture(found)
    assert terminal.cell_lines(found).splitlines()[0].endswith("a class with a class with a class with        $x_1$")


def test_arrays_are_told_from_keys():
    given, keys = Given(None, None, None).take_arrays({"partition": np.arange(3), "assign": "random", "cells": 3})
    assert keys == {"assign": "random", "cells": 3}
    assert list(given.arrays) == ["partition"]
    assert given.resolve(BASE | keys).partition == "custom"
    regression = Objective(lambda outputs, targets: (outputs[:, 0] - targets) ** 2, task="regression", outputs=1)
    assert replace(given, objective=regression).resolve(BASE | keys).partition == "custom"
    with pytest.raises(ConfigError, match="partition=3 is not allowed"):
        Given(None, None, None).resolve(BASE | {"partition": 3})


def test_cuts_of_own_data_are_priced(folder):
    prices = cut_prices(Config.of({"algorithm": "hiersfl", "data": "mine.npz", "model": "mlp"}))
    assert prices[0].parameters == 12 * 300 + 300 + 300 * 4 + 4
