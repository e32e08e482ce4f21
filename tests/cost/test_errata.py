"""Errata and assumptions of the papers come to so many simulated seconds."""

import pytest

from fedge.cost.clock import SHANNON
from fedge.experiment.build import experiment
from fedge.experiment.config import Config
from tests.cost.test_cost import CIFAR, MNIST, clock


@pytest.mark.parametrize(
    ("workload", "taus", "budget", "iterations", "literal"),
    [(MNIST, (5, 1), 40, 1440, 145), (CIFAR, (5, 2), 10_000, 680, 130)],
)
def test_a_tenth_of_the_rate_between_edges_is_not_a_tenth_of_the_time(workload, taus, budget, iterations, literal):
    """SD-FEEL's "1/10 of the rate" read to the letter is t_ss = 10·t_u, its formula is t_ss = 0.1·t_u."""
    (parameters, t_c), (tau1, tau2) = workload, taus
    for edge_bps, expected in ((10 * SHANNON, iterations), (SHANNON / 10, literal)):
        ticking = clock("sdfeel", parameters, t_c, tau1, tau2, edge_bps=edge_bps)
        seconds = ticking.advance(ticking.start, 0).max()
        assert tau1 * tau2 * int(budget / seconds) == expected


def test_an_edge_of_hiersfl_computes_for_all_its_clients_at_once():
    """An assumption: the edge's part of a step takes (1 − φ)t_c·f/f_e for 1 client per cell and for 8 alike."""
    seconds = []
    for clients in (2, 16):
        keys = {"algorithm": "hiersfl", "model": "cnn", "cut": "pool1", "clients": clients, "cells": 2,
                "partition": "iid", "local_steps": 5, "edge_rounds": 1, "data": "fashion-mini"}  # fmt: skip
        ticking = experiment(Config.of(keys)).clock
        assert ticking.ledger.cut.client_work < 0.5
        seconds.append(ticking.advance(ticking.start, 0).max())
    assert seconds[0] == seconds[1]
