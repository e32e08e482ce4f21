"""Kinship between algorithms (SPEC §1, identity 1), in float64 to 1e-12, over whole runs on both engines."""

import jax
import pytest

from tests.helpers import distance, small, train

both = pytest.mark.parametrize("engine", ["reference", "vectorised"])


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


@both
def test_hierfavg_with_one_edge_round_is_fedavg(engine):
    keys = {"local_steps": 4, "edge_rounds": 1, "dtype": "float64"}
    hierarchical, flat = (train(small(algorithm=a, **keys), 3, engine)[0] for a in ("hierfavg", "fedavg"))
    assert distance(hierarchical, flat) < 1e-12


@both
def test_hierfavg_with_one_client_per_cell_is_fedavg_over_the_whole_period(engine):
    keys = {"clients": 5, "cells": 5, "local_steps": 2, "edge_rounds": 3, "dtype": "float64"}
    hierarchical, flat = (train(small(algorithm=a, **keys), 2, engine)[0] for a in ("hierfavg", "fedavg"))
    assert distance(hierarchical, flat) < 1e-12


@both
def test_otherwise_they_differ(engine):
    """The identities above would hold for a broken engine that never averages at the edge; this would not."""
    keys = {"local_steps": 2, "edge_rounds": 3, "dtype": "float64"}
    hierarchical, flat = (train(small(algorithm=a, **keys), 2, engine)[0] for a in ("hierfavg", "fedavg"))
    assert distance(hierarchical, flat) > 1e-4
