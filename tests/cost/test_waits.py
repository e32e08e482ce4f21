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


@pytest.mark.parametrize("keys", [{"device_spread": 1.0, "straggle": 1.0}, {}], ids=["unequal", "equal"])
def test_the_account_of_a_run_that_goes_on_is_that_of_its_end(keys):
    """It is asked after some rounds, after more and after fewer; another one reckons from the start each time."""
    _, account = costs(algorithm="hierfavg", **keys)
    for done in (1, 3, 2):
        _, fresh = costs(algorithm="hierfavg", **keys)
        asked, wanted = account.waits(done), fresh.waits(done)
        for name in ("client_busy", "client_waits", "client_last", "edge_waits", "edge_last"):
            np.testing.assert_array_equal(getattr(asked, name), getattr(wanted, name))


def test_an_edge_waits_for_the_last_one_in_the_cloud():
    waits = Waits.of(1, 3)
    waits.at_cloud(np.array([1.0, 5.0, 2.0]))
    assert waits.edge_waits.tolist() == [4, 0, 3]
    assert waits.edge_last.tolist() == [0, 1, 0]
