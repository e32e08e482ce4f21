"""What must not change a result: chunk size, device count, how often it is run."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest

from fedge.engine import Reference, Vectorised, driver, memory, placement
from fedge.engine.driver import chunk_sizes
from fedge.engine.mesh import mesh_of
from fedge.engine.several_calls import SeveralCalls
from fedge.errors import ConfigError
from tests.helpers import PLAIN, distance, small, train

LAYOUTS = [(0, 1), (0, 2), (1, 1), (2, 1), (3, 2), (4, 2), (100, 1)]  # (chunk, devices)
SOME = [(1, 1), (0, 2), (3, 2)]  # what a layout does to an edge round does not depend on what comes after it


@pytest.mark.parametrize(("algorithm", "layouts"), [("hierfavg", LAYOUTS), ("fedavg", SOME), ("sdfeel", SOME)])
def test_layout_changes_rounding_only(algorithm, layouts):
    with jax.enable_x64(True):
        keys = {"algorithm": algorithm, "dtype": "float64"}
        first, *others = (train(small(chunk=c, devices=d, **keys))[0] for c, d in layouts)
        for other in others:
            assert distance(first, other) < 1e-12


@pytest.mark.parametrize("copies", ["shared", "per_client"])
def test_clients_in_lockstep_side_by_side_or_one_after_the_other_differ_by_rounding_only(copies):
    with jax.enable_x64(True):
        keys = {"algorithm": "hiersfl", "server_copies": copies, "dtype": "float64"}
        side_by_side, one_by_one = (train(small(chunk=c, **keys))[0] for c in (4, 1))
        assert distance(side_by_side, one_by_one) < 1e-12


@pytest.mark.parametrize(("chunk", "devices"), [(0, 2), (2, 1)])
def test_the_same_layout_is_bit_for_bit(chunk, devices):
    one, two = (train(small(chunk=chunk, devices=devices)) for _ in range(2))
    assert one[1] == two[1]
    assert all((one[0][p] == two[0][p]).all() for p in one[0])


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw", "rmsprop", "adagrad"])
def test_client_optimisers(optimizer):
    """Engines agree under every optimiser, which starts fresh at each edge round."""
    extra = {"momentum": 0.9, "weight_decay": 0.01} if optimizer == "sgd" else {"weight_decay": 0.01}
    with jax.enable_x64(True):
        made = small(optimizer=optimizer, lr=0.01, dtype="float64", **extra)
        assert distance(train(made, engine="reference")[0], train(made, engine="vectorised")[0]) < 1e-12


def test_optimisers_differ():
    models = [train(small(optimizer=o, lr=0.01))[0] for o in ("sgd", "adam", "rmsprop")]
    assert min(distance(a, b) for i, a in enumerate(models) for b in models[:i]) > 1e-3


@pytest.mark.parametrize("fraction", [0.3, 0.6])
def test_partial_participation(fraction):
    """Engines draw the same clients, and the weights of those that take part are renormalised inside the cell."""
    with jax.enable_x64(True):
        made = small(participation=fraction, dtype="float64", clients=9)
        partial = train(made, engine="vectorised")[0]
        assert distance(partial, train(made, engine="reference")[0]) < 1e-12
        assert distance(partial, train(small(dtype="float64", clients=9))[0]) > 1e-4
        for chunk, devices in [(2, 1), (1, 2)]:
            other = small(participation=fraction, dtype="float64", clients=9, chunk=chunk, devices=devices)
            assert distance(partial, train(other)[0]) < 1e-12


def test_dropout_is_the_same_on_both_engines():
    with jax.enable_x64(True):
        made = small(dropout=0.5, dtype="float64")
        dropped = train(made, engine="vectorised")[0]
        assert distance(dropped, train(made, engine="reference")[0]) < 1e-12
        assert distance(dropped, train(small(dtype="float64"))[0]) > 1e-4


@pytest.mark.parametrize("algorithm", PLAIN)
def test_one_compilation_serves_other_seeds_rates_and_partitions(algorithm):
    """An engine that goes on with another job of the same shape does what a new engine would, and compiles nothing."""
    made = small(algorithm=algorithm, partition="iid")
    other = small(algorithm=algorithm, partition="dirichlet", seed=5, lr=0.03, assign="edge_niid")
    engine = Vectorised(made.job)
    engine.round(made.start, 0)
    engine.retarget(other.job)
    borrowed, _ = engine.round(other.start, 0)
    expected, _ = Vectorised(other.job).round(other.start, 0)
    assert len(engine.programs) == 1
    assert all((np.asarray(borrowed[p]) == np.asarray(expected[p])).all() for p in expected)


def test_a_chunk_that_does_not_fit_is_halved_aloud(monkeypatch, caplog):
    """And clients still find their own samples on the devices, also when the engine goes on with another job."""
    answers = iter([(9.0, 1.0)])
    monkeypatch.setattr(memory, "need_and_have", lambda program, mesh: next(answers, (0.0, 1.0)))
    monkeypatch.setattr(Vectorised, "_one_memory", False)
    made, other = small(clients=11, chunk=5), small(clients=11, chunk=5, seed=3)
    engine = Vectorised(made.job)
    halved, _ = engine.round(made.start, 0)
    assert "chunk=5 needs 9.0 GB of 1.0; going on with chunk=3" in caplog.text
    assert engine.layout["chunk"] == 3
    engine.retarget(other.job)
    again, _ = engine.round(other.start, 0)
    for found, keys in ((halved, {}), (again, {"seed": 3})):
        asked = small(clients=11, chunk=3, **keys)
        expected, _ = Vectorised(asked.job).round(asked.start, 0)
        assert all((np.asarray(found[p]) == np.asarray(expected[p])).all() for p in expected)


def test_what_does_not_fit_with_the_smallest_chunk_is_refused(monkeypatch):
    monkeypatch.setattr(memory, "need_and_have", lambda program, mesh: (9.0, 1.0))
    made = small()
    with pytest.raises(ConfigError, match=r"a round of this run needs 9\.0 GB of 1\.0; take a smaller model"):
        Vectorised(made.job).round(made.start, 0)


def test_a_program_needs_its_results_and_what_it_holds_in_between_on_each_core(monkeypatch):
    """Its inputs lie in the host's memory already, so what is left of that is without them."""
    sizes = SimpleNamespace(temp_size_in_bytes=3e9, output_size_in_bytes=1e9, argument_size_in_bytes=50e9)
    monkeypatch.setattr(memory, "free_memory", lambda: 7e9)
    program = SimpleNamespace(memory_analysis=lambda: sizes)
    assert memory.need_and_have(program, mesh_of(2)) == (8.0, 7.0)
    with pytest.raises(memory.DoesNotFit):
        memory.require_room(program, mesh_of(2))
    memory.require_room(program, mesh_of(1))


@pytest.mark.parametrize(
    ("asked", "devices", "expected"),
    [(0, 2, [0, 3, 2, 1]), (1, 2, [1]), (5, 1, [5, 3, 2, 1]), (100, 2, [100, 3, 2, 1])],
)
def test_chunk_sizes_are_halved_down_to_one_client(asked, devices, expected):
    assert chunk_sizes(small(clients=11).job, asked, devices) == expected


@pytest.mark.parametrize(
    "keys",
    [
        {"algorithm": "hierfavg", "clients": 29},
        {"algorithm": "hierfavg", "clients": 29, "participation": 0.6},
        {"algorithm": "hist", "clients": 23, "cells": 8, "out_bias": "owner"},  # 8 does not divide its units
        {"algorithm": "sdfeel", "clients": 31, "devices": 1},
        {"algorithm": "fedavg", "clients": 17},
    ],
    ids=str,
)
def test_an_edge_round_in_several_calls_is_the_same(keys, monkeypatch):
    """What a CPU does with very many clients: their models are summed part by part."""
    with jax.enable_x64(True):
        made = small(**keys, dtype="float64")
        whole, losses = train(made, 3)
        monkeypatch.setattr(driver, "STEPS_PER_CALL", 7)
        engine = Vectorised(made.job)
        calls = []
        run = SeveralCalls.run
        monkeypatch.setattr(
            SeveralCalls, "run", lambda self, name, *rest: (calls.append(name), run(self, name, *rest))[1]
        )
        state, loss = engine.rounds(made.start, 0, 3)
        assert distance(made.evaluated(state), whole) < 1e-13
        assert loss == pytest.approx(losses[-1], abs=1e-13)
        assert calls.count("part 0") >= 3 * made.job.algorithm.schedule.edge_rounds * 2


def test_a_resumed_run_goes_on_in_several_calls(monkeypatch):
    """Its record says chunk=1, which is what it was."""
    monkeypatch.setattr(driver, "STEPS_PER_CALL", 7)
    for chunk, long in ((0, True), (1, True), (3, False)):
        assert Vectorised(small(clients=29, chunk=chunk).job).splits_a_round is long


@pytest.mark.parametrize("algorithm", ["hierfavg", "hiersfl"])
def test_all_clients_side_by_side(algorithm, monkeypatch):
    """What an accelerator does unless it is told otherwise; cells are of different sizes."""
    monkeypatch.setattr(driver, "first_chunk", lambda job, mesh: 0)
    monkeypatch.setattr(driver, "on_cpu", lambda mesh: False)
    with jax.enable_x64(True):
        made = small(algorithm=algorithm, dtype="float64", clients=7, cells=3)
        engine = Vectorised(made.job)
        state, _ = engine.rounds(made.start, 0, 2)
        assert engine.layout["chunk"] == 7
        assert distance(state, Reference(made.job).rounds(made.start, 0, 2)[0]) < 1e-12


def test_too_many_devices():
    with pytest.raises(ConfigError, match=r"devices=3 was asked for, but JAX has 2 \(cpu\)"):
        train(small(devices=3))


@pytest.mark.parametrize(
    ("keys", "whole"),
    [
        ({"algorithm": "hierfavg", "cells": 4, "clients": 12}, [True]),
        ({"algorithm": "sdfeel", "cells": 4, "clients": 12, "participation": 0.6}, [True]),
        ({"algorithm": "hist", "cells": 4, "clients": 12}, [True]),
        ({"algorithm": "hist", "cells": 7, "clients": 21}, [False, True]),  # in two stacks, of other shapes
        ({"algorithm": "hierfavg", "cells": 4, "clients": 13}, [False]),  # cells of different sizes
        ({"algorithm": "hierfavg", "cells": 3, "clients": 12}, [False]),  # two devices cannot share them evenly
        ({"algorithm": "hierfavg", "cells": 4, "clients": 12, "chunk": 4}, [False]),  # a chunk that runs over
    ],
    ids=str,
)
def test_devices_that_train_whole_cells_need_no_others(keys, whole):
    with jax.enable_x64(True):
        made = small(dtype="float64", devices=2, **keys)
        engine = Vectorised(made.job)
        state, loss = engine.rounds(made.start, 0, 2)
        traced, _ = engine.prepare(made.start)
        assert [traced.whole_cells(n) for n in range(len(traced.stacks))] == whole
        expected, expected_loss = Reference(made.job).rounds(made.start, 0, 2)
        assert loss == pytest.approx(expected_loss, rel=1e-12)
        assert distance(state, expected) < 1e-12


@pytest.mark.parametrize(
    "keys",
    [
        {"algorithm": "hierfavg", "clients": 13},
        {"algorithm": "hierfavg", "clients": 12, "chunk": 2, "participation": 0.6},
        {"algorithm": "hist", "cells": 7, "clients": 21},
        {"algorithm": "hiersfl", "cut": "hidden", "clients": 12},
    ],
    ids=str,
)
def test_devices_with_memory_of_their_own(keys, monkeypatch):
    """What several GPUs or processes do: each gets the samples of its own clients only, in one call or in several."""
    monkeypatch.setattr(placement, "SMALL", 0)
    monkeypatch.setattr(Vectorised, "_one_memory", False)
    with jax.enable_x64(True):
        made = small(dtype="float64", devices=2, **keys)
        expected, _ = Reference(made.job).rounds(made.start, 0, 2)
        for steps in (driver.STEPS_PER_CALL, 2):
            monkeypatch.setattr(driver, "STEPS_PER_CALL", steps)
            assert distance(Vectorised(made.job).rounds(made.start, 0, 2)[0], expected) < 1e-12, steps
