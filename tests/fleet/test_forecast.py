"""Rates that are learned from some rounds are those that the rounds were made with, and the clock goes on with them."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from fedge.cost.clock import Clock, Rates
from fedge.experiment.build import experiment
from fedge.experiment.config import Config
from fedge.fleet.account import Account, account_of
from fedge.fleet.forecast import FREE, Parts, forecast, parts_of
from fedge.fleet.work import Work
from fedge.net.tally import Bytes

KEYS = {"clients": 4, "cells": 2, "local_steps": 2, "data": "fashion-mini", "rounds": 9}
TRUE = Rates(0.003, np.inf, uplink_bps=3e6, edge_bps=5e6, cloud_bps=7e6, downlink=True)
ONLY = {"client": "step_seconds", "edge": "uplink_bps", "exchange": "edge_bps", "cloud": "cloud_bps"}


def reckoned(made, rates, index):
    clock = Clock(made.clock.ledger, rates, work=made.clock.work)
    return clock.advance(clock.start, index).max()


@pytest.mark.parametrize("algorithm", ["fedavg", "hierfavg", "hist", "sdfeel", "hiersfl"])
def test_rates_are_learned_and_later_rounds_follow(algorithm):
    made = experiment(Config.of(KEYS | {"algorithm": algorithm}))
    alone = {part: replace(FREE, **{key: getattr(TRUE, key)}) for part, key in ONLY.items()}
    parts = [Parts(**{part: reckoned(made, rates, n) for part, rates in alone.items()}) for n in range(9)]
    seconds = [10.0, *(reckoned(made, TRUE, n) for n in range(1, 9))]  # the first compiles
    found = forecast(made, 0, parts, seconds)
    assert (found.learned, found.ahead) == ((2, 3), (4, 9))
    for key, rate in found.rates.items():
        np.testing.assert_allclose(rate, getattr(TRUE, key), rtol=1e-6)
    assert ("edge_bps" in found.rates) == (algorithm == "sdfeel")
    np.testing.assert_allclose([found.predicted, found.measured], np.median(seconds[3:]), rtol=1e-6)
    assert len(found.lines()) == 2
    for few in range(3):  # also a run that was resumed when it was over, or with one round left
        assert forecast(made, 0, parts[:few], seconds[:few]) is None


def test_a_round_is_divided_by_what_its_slowest_edge_says():
    said = [
        {"seconds": 3.0, "client_seconds": 1.0, "exchange_seconds": 0.5},
        {"seconds": 3.2, "client_seconds": 0.1, "exchange_seconds": 2.9},  # it waited for the other one
    ]
    assert parts_of(3.2, said) == pytest.approx(Parts(1.0, 1.5, 0.5, 0.2))
    assert parts_of(3.2, [{"seconds": 3.0, "client_seconds": "long"}]) is None
    assert parts_of(3.2, []) is None


def test_an_account_of_no_round_says_so():
    account = Account(2, 2, {"edge_to_cloud": 0}, {}, [], 0.0)
    assert account.lines() == ["no round was left to be made"]
    assert account.agrees


@pytest.mark.parametrize(("algorithm", "again"), [("sdfeel", 2), ("hierfavg", 0)])
def test_rounds_that_edges_made_again_are_in_the_account(algorithm, again):
    """A run is resumed after round 2; edges without a cloud begin anew, and have counted all they sent."""
    made = experiment(Config.of(KEYS | {"algorithm": algorithm}))
    sent = [made.clock.ledger.round(n) for n in range(0 if again else 2, 5)]
    counted = {tier: Bytes(sum(int(links[tier].sum()) for links in sent)) for tier in sent[0]}
    leader = SimpleNamespace(
        work=Work(made), first=2, done=5, seconds=[1.0] * 3, parts=[None] * 3, counted=lambda: counted
    )
    account = account_of(leader)
    assert account.agrees
    assert (account.first, account.to_json()["made_again"]) == (2 - again, again)
    assert any("rounds 1–2 were made again" in line for line in account.lines()) == bool(again)
