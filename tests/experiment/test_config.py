from typing import get_args

import networkx as nx
import pytest

from fedge import algorithms
from fedge.algorithms import ALGORITHMS
from fedge.core.objective import TASKS
from fedge.core.sampling import SAMPLERS
from fedge.data import ASSIGNMENTS, CLASS_SPLITS, PARTITIONS
from fedge.engine import ENGINES
from fedge.errors import ConfigError
from fedge.experiment.config import NAMES, Config, all_fields, allowed, parse, words
from fedge.experiment.files import read_toml
from fedge.models import MODELS

BASE = {"algorithm": "hierfavg"}


def refused(match, **keys):
    with pytest.raises(ConfigError, match=match):
        Config.of(BASE | keys)


def test_unknown_key_names_the_nearest():
    refused(r"unknown key 'clinets' \(`fedge keys` lists them all\); did you mean 'clients'", clinets=3)


def test_unknown_value_names_the_allowed():
    refused("model=cn is not .* mlp, cnn, resnet8, resnet18, package.module:function; did you mean 'cnn'", model="cn")
    refused("unknown data 'mnits'; allowed: .*; did you mean 'mnist'", data="mnits")
    refused("unknown algorithm 'fedavgg'.*did you mean 'fedavg'", algorithm="fedavgg")
    refused("clients=0 is not allowed; allowed: an integer ≥ 1 and ≤ 10000000", clients=0)
    refused("weight_decay=-1 is not allowed; allowed: a number ≥ 0 and ≤ 1000000$", weight_decay=-1)
    refused("participation=1.5 is not allowed; allowed: a number > 0 and ≤ 1", participation=1.5)
    refused("lr=fast is not allowed; allowed: a number ≥ 1e-30 and ≤ 1e\\+30", lr="fast")


@pytest.mark.parametrize(
    ("keys", "match"),
    [
        ({"cells": 61}, "cells=61 is more than clients=60"),
        ({"gossip": 2}, "gossip=2 has no meaning for hierfavg"),
        ({"algorithm": "sdfeel", "graph": "rng"}, "unknown graph 'rng'.*did you mean 'ring'"),
        ({"algorithm": "sdfeel", "graph": "0-1 2-3"}, r"falls into the components \[\[0, 1\], \[2, 3\]\]"),
        ({"algorithm": "sdfeel", "density": 0.2}, r"density=0\.2 is only for graph=erdos_renyi"),
        ({"cut": "pool1"}, "cut=pool1 has no meaning for hierfavg"),
        ({"class_split": "random_class"}, "class_split=random_class is only for partition=one_class"),
        ({"concentration": 1}, r"concentration=1\.0 is only for partition=dirichlet"),
        ({"bn": "local"}, "bn=local is only for model=resnet8 or model=resnet18"),
        ({"dropout": 0.5, "model": "resnet18"}, r"dropout=0\.5 is only for model=mlp"),
        ({"momentum": 0.9, "optimizer": "adam"}, r"momentum=0\.9 is only for optimizer=sgd"),
        ({"partition": "cell_iid", "assign": "edge_iid"}, "partition=cell_iid decides the cells itself"),
        ({"engine": "reference", "chunk": 2}, "only for engine=vectorised"),
        (
            {"rounds": 10**9},
            r"rounds=1000000000 × edge_rounds=4 × local_steps=5 is more than the 2147483647 iterations",
        ),
        (
            {"budget_seconds": 9, "local_steps": 10**9},
            r"rounds=1 × edge_rounds=4 × local_steps=1000000000 is more than",
        ),
        ({"partition": "drawn", "clients": 10**6, "client_samples": 10**4}, "draw 10,000,000,000 samples"),
        ({"algorithm": "sdfeel", "cells": 3000, "clients": 3000}, "cells=3000 is too many for sdfeel.*up to 2000"),
        (
            {"algorithm": "sdfeel", "cells": 900, "clients": 900, "graph": "erdos_renyi", "density": 1e-9},
            "density=1e-09 leaves 900 of 900 cells without a link",
        ),
        ({"algorithm": "sdfeel", "graph": "0-¹"}, "'0-¹' is not a link between two edge servers"),
        ({"algorithm": "sdfeel", "graph": "0-99999999999"}, "'0-99999999999' is not a link"),
        ({"self": 3}, "unknown key 'self'"),
        ({"model": "m\nn"}, r"model=m\\nn is not allowed"),
        ({"lr": 1e39}, "lr=1e\\+39 is not allowed"),
        ({"lr": 1e-46}, "lr=1e-46 is not allowed"),
    ],
)
def test_impossible_combinations(keys, match):
    refused(match, **keys)


@pytest.mark.parametrize(
    ("keys", "match"),
    [
        ({"algorithm": "hist", "out_bias": "ownr"}, "allowed: owner, shared, none, author; did you mean 'owner'"),
        ({"algorithm": "hist", "rescale": "1/N"}, "allowed: none, mean"),
        ({"algorithm": "hiersfl", "messages": "maybe"}, "allowed: true or false"),
        ({"algorithm": "sdfeel", "graph": "none3.txt"}, "graph=none3.txt is no file"),
    ],
)
def test_choices_are_listed(keys, match):
    refused(match, **keys)


def test_a_cut_may_be_a_number():
    assert Config.of({"algorithm": "hiersfl", "cut": 0}).cut == "0"


def test_missing_algorithm():
    with pytest.raises(ConfigError, match=f"algorithm is missing; give one of: {', '.join(ALGORITHMS)}"):
        Config.of({})


def test_words_become_values_and_a_resolved_configuration_reads_back():
    config = Config.of(BASE | {"clients": "20", "lr": "0.1", "partition": "one_class", "class_split": "equal_shards"})
    assert (config.clients, config.lr) == (20, 0.1)
    assert Config.of(config.model_dump()) == config


def test_parse():
    assert parse(["a=1", "b=x=y"]) == {"a": "1", "b": "x=y"}
    for pairs, match in [(["clients"], "write clients=VALUE"), (["a=1", "a=2"], "a is given twice")]:
        with pytest.raises(ConfigError, match=match):
            parse(pairs)


def test_toml(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text('clients = 12\nmodel = "cnn"\n')
    assert read_toml(file) == {"clients": 12, "model": "cnn"}
    file.write_text("clients = = 1")
    with pytest.raises(ConfigError, match="not valid TOML"):
        read_toml(file)
    with pytest.raises(ConfigError, match="cannot read"):
        read_toml(tmp_path / "none.toml")


def test_every_key_says_what_it_takes_and_means():
    """Each choice and each limit of its type is named."""
    for key, field in all_fields().items():
        names = [c for part in (get_args(field.annotation) or ()) for c in (get_args(part) or (part,))]
        limits = [getattr(m, side) for m in field.metadata for side in ("ge", "gt", "le", "lt") if hasattr(m, side)]
        for named in {*(c for c in names if isinstance(c, str)), *(f"{n:.15g}" for n in limits)} - {"custom"}:
            assert named in allowed(key).replace(",", "").split(), (key, named)
        assert allowed(key) != "a name" or key in ("graph", "cut", "target_column", "client_column")
        number = allowed(key).startswith(("an integer", "a number"))
        assert not number or ("≤" in allowed(key) or "<" in allowed(key)), f"{key} has no upper limit"
        assert len(field.description.split()) > 1, key


def test_names_are_those_of_what_they_name():
    """A partition, sampler, engine or model that is added elsewhere is a value of its key at once."""
    assert {key: words(key) for key in NAMES} == {
        "task": list(TASKS), "partition": [*PARTITIONS, "natural"], "class_split": list(CLASS_SPLITS),
        "assign": [*ASSIGNMENTS, "network"],
        "sampler": list(SAMPLERS), "model": list(MODELS), "engine": list(ENGINES),
    }  # fmt: skip
    for key, names in NAMES.items():
        needs = {"class_split": {"partition": "one_class"}, "partition": {"data": "mine.npz"}}.get(key, {})
        for name in names:
            measured = {"network": "net.toml"} if (key, name) == ("assign", "network") else {}
            assert getattr(Config.of(BASE | needs | measured | {key: name}), key) == name


def test_an_algorithms_own_defaults_and_a_graph_from_a_file(tmp_path):
    config = Config.of({"algorithm": "sdfeel"})
    assert (config.gossip, config.graph, config.mixing, config.rounds) == (1, "bipartite", "optimal", 30)
    assert "gossip" not in Config.of(BASE).model_dump()
    file = tmp_path / "graph.txt"
    file.write_text("# a square\n0 1\n1 2\n2,3\n3 0\n")
    assert Config.of({"algorithm": "sdfeel", "graph": str(file)}).graph == "0-1 1-2 2-3 3-0"
    assert Config.of({"algorithm": "sdfeel", "graph": nx.path_graph(4)}).graph == "0-1 1-2 2-3"


def test_rounds_are_open_where_a_budget_decides():
    assert Config.of(BASE | {"budget_seconds": 10}).rounds is None
    assert Config.of(BASE | {"budget_seconds": 10, "rounds": 3}).rounds == 3


def test_an_installed_package_brings_algorithms_by_a_name(tmp_path, monkeypatch):
    """Its entry point is of the group fedge.algorithms."""
    (tmp_path / "careful-1.0.dist-info").mkdir()
    (tmp_path / "careful-1.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: careful\nVersion: 1.0\n")
    (tmp_path / "careful-1.0.dist-info/entry_points.txt").write_text(
        "[fedge.algorithms]\ncareful = tests.own:fedadam\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    algorithms.installed.cache_clear()
    try:
        assert Config.of({"algorithm": "careful", "server_rate": "0.5"}).declared["server_rate"] == 0.5
        refused("unknown algorithm 'carefull'; allowed: .*careful, .*did you mean 'careful'", algorithm="carefull")
    finally:
        algorithms.installed.cache_clear()
