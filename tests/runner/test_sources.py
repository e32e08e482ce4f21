"""Runs on data, partitions and cells of one's own: what was used is written down, and found again or missed."""

import json
import shutil
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file

import fedge
from fedge.errors import ConfigError, DataError, RunError
from fedge.runner.cache import _custom
from tests.experiment.test_own import folder  # noqa: F401  (a fixture: flowers.csv and mine.npz)

SHORT = {"algorithm": "hierfavg", "cells": 2, "rounds": 1, "local_steps": 1, "edge_rounds": 1, "batch": 4, "devices": 1}
FLOWERS = SHORT | {"data": "flowers.csv", "target": "kind", "client_column": "garden"}


@pytest.fixture
def here(folder, monkeypatch):  # noqa: F811
    monkeypatch.setattr(sys, "path", list(sys.path))
    return folder


def weights(name):
    return load_file(f"{name}/weights.safetensors")


def same(a, b):
    return all((a[path] == b[path]).all() for path in a)


def about(name):
    with open(f"{name}/run.json") as file:
        return json.load(file)


def test_a_run_on_a_table_is_resumed_while_the_table_is_what_it_was(here):
    result = fedge.run(FLOWERS, out="one")
    assert (result.config.clients, about("one")["config"]["clients"]) == (7, 7)
    assert about("one")["class_names"] == ["iris", "rose", "tulip"]
    assert about("one")["objects"]["data"]["file"] == "flowers.csv"
    assert len(about("one")["objects"]["data"]["sha256"]) == 64
    longer = fedge.run(resume="one", rounds=2)
    fedge.run(FLOWERS | {"rounds": 2}, out="two")
    assert same(longer.weights, weights("two"))
    table = here / "flowers.csv"
    content = table.read_text()
    table.write_text(content.replace("iris", "lily", 1))
    with pytest.raises(RunError, match=r"data=flowers.csv is not what one was begun with \(SHA-256 .*; restore it, or"):
        fedge.run(resume="one", rounds=3)
    table.unlink()
    with pytest.raises(RunError, match=r"data=flowers.csv, which one was begun with, is not in .*; put it back there"):
        fedge.run(resume="one", rounds=3)
    table.write_text(content)
    assert len(fedge.run(resume="one", rounds=3).history) == 3


def test_natural_clients_a_file_and_an_array_are_one_partition(here):
    """The same owners and cells, said in three ways, train the same model; other cells train another."""
    made = fedge.run(FLOWERS, out="natural").experiment
    np.save("who.npy", made.dataset.client)
    (here / "cells.csv").write_text("\n".join(map(str, made.topology.cell)))
    rest = {key: value for key, value in FLOWERS.items() if key != "cells"}
    fedge.run(rest | {"partition": "who.npy", "assign": "cells.csv"}, out="files")
    arrays = {"partition": made.dataset.client, "assign": made.topology.cell}
    fedge.run(rest, out="arrays", **arrays)
    fedge.run(rest, out="others", partition=made.dataset.client, assign=np.arange(7) % 2)
    assert same(weights("natural"), weights("files"))
    assert same(weights("natural"), weights("arrays"))
    assert not same(weights("natural"), weights("others"))
    assert {key: set(value) for key, value in about("files")["objects"].items()} == {
        key: {"file", "sha256"} for key in ("data", "partition", "assign")
    }
    assert about("arrays")["config"]["partition"] == about("arrays")["config"]["assign"] == "custom"
    with pytest.raises(ConfigError, match="partition=custom means an object passed in from Python; pass it"):
        fedge.run(resume="arrays", rounds=2)
    with pytest.raises(RunError, match="the list of cells passed in is not the one arrays was begun with"):
        fedge.run(resume="arrays", rounds=2, **arrays | {"assign": np.arange(7) % 2})
    assert len(fedge.run(resume="arrays", rounds=2, **arrays).history) == 2
    np.save("who.npy", made.dataset.client[::-1])
    with pytest.raises(RunError, match=r"partition=who.npy is not what files was begun with"):
        fedge.run(resume="files", rounds=2)


def test_a_comparison_takes_arrays(here):
    owner = np.arange(12) % 3
    keys = {key: value for key, value in SHORT.items() if key != "algorithm"} | {"data": "mine.npz"}
    found = fedge.compare(["fedavg"], keys, partition=owner, out="both")
    assert found["fedavg"].config.clients == 3
    with pytest.raises(DataError, match="has 11 entries, and there are 12 training samples"):
        fedge.compare(["fedavg"], keys, partition=owner[1:], out="none")
    again = fedge.compare(resume="both", partition=owner)
    assert again["fedavg"].history == found["fedavg"].history


FUNCTION = "import numpy as np\n\n\ndef load():\n    x = np.arange(24.0).reshape(12, 2)\n    return {NOW}\n"


def test_a_function_is_found_again_or_missed(here):
    source = here / "own_flowers.py"
    same_data = "{'x': x, 'y': ['a', 'b'] * 6}"
    source.write_text(FUNCTION.replace("{NOW}", same_data))
    keys = SHORT | {"data": "own_flowers:load", "partition": "iid", "clients": 4}
    fedge.run(keys, out="one")
    kept = about("one")["objects"]["data"]
    assert kept["function"] == "own_flowers:load"
    assert {"source", "x_train", "y_test"} <= set(kept)

    def change(content):
        source.write_text(content)
        sys.modules.pop("own_flowers", None)
        shutil.rmtree(here / "__pycache__", ignore_errors=True)

    change("# changed\n" + FUNCTION.replace("{NOW}", same_data))
    assert len(fedge.run(resume="one", rounds=2).history) == 2
    change(FUNCTION.replace("{NOW}", "{'x': x + 1, 'y': ['a', 'b'] * 6}"))
    with pytest.raises(RunError, match="own_flowers:load no longer gives the data set that one was begun with"):
        fedge.run(resume="one", rounds=3)
    change("load = 3\n")
    with pytest.raises(RunError, match="one was begun with a function that is not found: data=own_flowers:load is a"):
        fedge.run(resume="one", rounds=3)
    source.unlink()
    sys.modules.pop("own_flowers", None)
    with pytest.raises(RunError, match="is not found: data=own_flowers:load: there is no module own_flowers"):
        fedge.run(resume="one", rounds=3)


def test_a_codec_of_ones_own_must_be_what_it_was(here):
    """No traced operations of it are kept, so the whole file must be the same."""
    source = here / "my_codec.py"
    source.write_text("from fedge.updates.int8 import int8\n\n\ndef mine():\n    return int8()\n")
    fedge.run(SHORT | {"data": "mine.npz", "partition": "iid", "clients": 4, "codec": "my_codec:mine"}, out="one")
    assert about("one")["objects"]["codec"].keys() == {"function", "source"}
    source.write_text(source.read_text() + "# changed\n")
    with pytest.raises(RunError, match="the file that my_codec:mine stands in has changed since one was begun; re"):
        fedge.run(resume="one", rounds=2)
    source.unlink()
    sys.modules.pop("my_codec")
    with pytest.raises(RunError, match="is not found: codec=my_codec:mine: there is no module my_codec"):
        fedge.run(resume="one", rounds=2)


def test_programs_and_images_are_not_shared_where_data_may_differ_by_seed(here):
    from fedge.experiment.build import experiment
    from fedge.experiment.config import Config

    assert _custom(experiment(Config.of(FLOWERS)))
    assert not _custom(experiment(Config.of(SHORT)))
