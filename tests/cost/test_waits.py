"""Waits are what lies between the clock's events."""

import numpy as np
import pytest

from fedge.cost.waits import Waits
from fedge.experiment.build import experiment
from fedge.experiment.config import Config
from fedge.runner.costs import Costs

KEYS = {"clients": 6, "cells": 3, "rounds": 2, "local_steps": 2, "edge_rounds": 2, "batch": 5}


def costs(**keys):
    made = experiment(Config.of(KEYS | keys))
    return made, Costs(made)


@pytest.mark.parametrize("algorithm", ["hierfavg", "hiersfl"])
def test_a_client_is_busy_or_waits_until_its_cell_is_done(algorithm):
    made, account = costs(algorithm=algorithm, device_spread=1.0, link_spread=0.5, straggle=1.0)
    waits, end = account.waits(2), account.after(2).seconds
    whole = waits.client_busy + waits.client_waits
    for own in made.topology.roster:
        assert np.ptp(whole[own]) < 1e-9  # all of a cell begin and end together
    transfers = end - whole.max()
    assert 0 < transfers < end
    assert waits.client_last.sum() == 2 * 2 * 3  # an edge round of a cell has one last client
    assert waits.edge_last.sum() == 2
    assert waits.edge_waits.min() >= 0
    assert waits.edge_waits.max() > 0


def test_equal_devices_wait_for_nobody_and_rounds_are_multiplied():
    _, account = costs(algorithm="hierfavg")
    assert not account.waits(2).client_waits.any()
    _, account = costs(algorithm="sdfeel", graph="ring", gossip=2)
    once, twice = account.waits(1), account.waits(2)
    np.testing.assert_allclose(twice.edge_waits, 2 * once.edge_waits)
    made, _ = costs(algorithm="sdfeel", graph="ring", gossip=2)
    bits = 8 * made.clock.ledger.cell_bytes(0)
    np.testing.assert_allclose(once.edge_waits, 2 * bits / made.config.edge_bps)  # both exchanges are waited for


def test_an_edge_waits_for_the_last_one_in_the_cloud():
    waits = Waits.of(1, 3)
    waits.at_cloud(np.array([1.0, 5.0, 2.0]))
    assert waits.edge_waits.tolist() == [4, 0, 3]
    assert waits.edge_last.tolist() == [0, 1, 0]
