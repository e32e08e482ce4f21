"""Input that nobody should give, and somebody will, becomes a configuration or one sentence, and at once."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedge.algorithms import ALGORITHMS
from fedge.errors import ConfigError
from fedge.experiment.config import Config, parse
from fedge.experiment.files import read_toml
from tests.experiment.test_config import refused


@pytest.mark.parametrize("key", ["clients", "batch", "local_steps", "edge_rounds", "gossip", "chunk", "rounds", "cells",
                                 "eval_every", "checkpoint_every", "devices", "client_samples", "seed"])  # fmt: skip
@pytest.mark.parametrize("value", [2**31, 2**63, 10**5000, "9" * 5000, -1, True], ids=["31", "63", "d", "s", "-1", "t"])
def test_integers_have_limits(key, value):
    if (key, value) != ("seed", 2**31):  # which is a seed
        refused(f"{key}=.* is not allowed; allowed: an integer ≥ . and", algorithm="sdfeel", **{key: value})


@pytest.mark.parametrize("value", [5e-324, 1e-300, 1e300, float("inf"), float("nan"), "1e400"])
@pytest.mark.parametrize("key", ["cpu_hz", "edge_hz", "uplink_bps", "edge_bps", "cloud_bps", "cycles_per_bit"])
def test_rates_that_would_make_no_time_of_it(key, value):
    refused(f"{key}=.* is not allowed; allowed: a number ≥", **{key: value})
    for spread in ("device_spread", "link_spread", "straggle"):
        if value not in (5e-324, 1e-300):  # next to none
            refused(f"{spread}=.* is not allowed", **{spread: value})


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"clients = " + b"9" * 5000, "not valid TOML: Exceeds the limit"),
        (b"clients = " + b"[" * 10_000, "nested too deeply"),
        ("# größe\nclients = 3".encode("latin-1"), "byte 4 is not UTF-8"),
        (b"# " + b"x" * 2**24, "more than 16777216 bytes"),
    ],
    ids=["digits", "brackets", "latin-1", "huge"],
)
def test_files_that_cannot_be_read(tmp_path, content, match):
    file = tmp_path / "run.toml"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=match):
        read_toml(file)


def test_what_is_no_file_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path / "pipe", Path("/dev/zero"), tmp_path, tmp_path / ("x" * 300), Path("a\0b")):
        with pytest.raises(ConfigError, match="cannot read the configuration"):
            read_toml(place)
        refused("is no file|not a link", algorithm="sdfeel", graph=f"{place}" if place.is_absolute() else "a\0-b/")
    (tmp_path / "graph.txt").write_bytes(b"0 1\n\xff 2")
    refused("cannot read the graph .*byte 4 is not UTF-8", algorithm="sdfeel", graph=str(tmp_path / "graph.txt"))


def test_many_links_are_not_taken_for_the_name_of_a_file():
    ring = " ".join(f"{d}-{(d + 1) % 70}" for d in range(70))
    assert Config.of({"algorithm": "sdfeel", "cells": 70, "clients": 70, "graph": ring}).graph == ring


ANY_TEXT = st.text(st.characters(exclude_categories=[]))  # with halves of pairs, as words that are no UTF-8 have
HOSTILE = st.one_of(
    st.none(), st.booleans(), st.integers(), st.sampled_from([2**31, 2**63, -(2**63), 10**5000, "", "0-¹", "\udcff"]),
    st.floats(), st.sampled_from([5e-324, 1e308, "nan", "1e999", "custom", "erdos_renyi", "0-1 1-2"]), st.binary(),
    ANY_TEXT, st.lists(st.integers()), st.dictionaries(st.text(), st.integers()),
)  # fmt: skip
KEYS = st.one_of(st.sampled_from([*Config.model_fields, "self", "\udcff"]), ANY_TEXT, st.integers())


def sentence(act, *given):
    """Return what is said against this; nothing where it is accepted. Whatever else is raised fails the test."""
    try:
        act(*given)
    except ConfigError as problem:
        return str(problem)
    return None


def read_back(values):
    config = Config.of(values)
    assert Config.of(config.model_dump()) == config


@given(st.dictionaries(KEYS, HOSTILE, max_size=4), st.sampled_from([*ALGORITHMS, None]))
@settings(max_examples=300)
def test_a_configuration_or_one_sentence(values, algorithm):
    said = sentence(read_back, ({"algorithm": algorithm} if algorithm else {}) | values)
    assert said is None or (said.isprintable() and 0 < len(said) < 1000)


@given(st.lists(ANY_TEXT))
def test_words_or_one_sentence(pairs):
    said = sentence(parse, pairs)
    assert said is None or (said.isprintable() and said)


@given(st.binary(max_size=60))
def test_a_table_or_one_sentence(tmp_path_factory, content):
    file = tmp_path_factory.getbasetemp() / "hostile.toml"
    file.write_bytes(content)
    said = sentence(read_toml, file)
    assert said is None or str(file) in said
