"""HIST: masks that partition the model, compact submodels that are the masked ones, modes of what is left over."""

import math
import sys
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st

import fedge
from fedge.algorithms.hist import Anatomy
from fedge.core.contract import Round
from fedge.core.keys import Purpose, fold, root
from fedge.engine import ENGINES
from fedge.errors import ConfigError
from fedge.experiment.build import experiment
from fedge.experiment.config import Config
from fedge.models import from_nnx, make
from tests.helpers import distance, gradient_of, small, toy, train

MODES = ["owner", "shared", "none", "author"]


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def now(made, index=0):
    key = fold(made.job.key, Purpose.ALGORITHM, index)
    return Round(jnp.int32(index), key, jnp.asarray(made.job.algorithm.topology.cell_weight))


def blocks(order, cells):
    """Cut a group's units as the paper does, into blocks of at most two sizes; those that are fewer come first."""
    least, larger = divmod(len(order), cells)
    sizes = [least + 1] * larger + [least] * (cells - larger)
    return np.split(order, np.cumsum(sizes if 2 * larger <= cells else sizes[::-1])[:-1])


def masks(anatomy, weights, key, mode):
    """Return p_n as full-size arrays, one by one, from the round's permutations; what all train is 1 for all."""
    order = anatomy.draw(key)
    everyone = []
    for cell in range(anatomy.submodels):
        mine = {}
        for path, w in weights.items():
            mine[path] = np.ones(w.shape)
            if path in anatomy.axis:
                name, axis = anatomy.axis[path]
                keep = np.zeros(anatomy.units[name])
                keep[blocks(np.asarray(order[name]), anatomy.submodels)[cell]] = 1
                mine[path] = mine[path] * keep.reshape([-1 if a == axis else 1 for a in range(w.ndim)])
            elif path in anatomy.meeting and mode in ("owner", "none"):
                ids = next(b for b in anatomy.stacks if cell in b)
                mine[path] = np.asarray(anatomy.ownership(key, ids, mode)[path][ids.index(cell)], float)
        everyone.append(mine)
    return everyone


def by_masks(made, rounds=2):
    """Follow equations (4)–(7) on full-size models with masks: nothing is gathered. Plain SGD; owner, shared and none.

    Only the gradient is compiled; all else is numpy's.
    """
    algorithm, gradient = made.job.algorithm, gradient_of(made)
    cells, parts = made.config.cells, made.config.declared["submodels"] or made.config.cells
    anatomy, schedule = Anatomy.of(made.model, parts), algorithm.schedule
    global_ = {path: np.asarray(w) for path, w in made.start.items()}
    for index in range(rounds):
        each = masks(anatomy, global_, now(made, index).key, made.config.out_bias)
        p, trained = [each[j * parts // cells] for j in range(cells)], []
        for j, roster in enumerate(algorithm.topology.roster):
            edge = {path: p[j][path] * w for path, w in global_.items()}
            for a in range(schedule.edge_rounds):
                clients = []
                for i in roster.tolist():
                    w = edge
                    for step in range(schedule.local_steps):
                        k = index * schedule.period + a * schedule.local_steps + step
                        g, s = gradient(w, i, k)
                        w = {q: p[j][q] * (w[q] - made.config.lr * g[q] if q in g else s[q]) for q in w}
                    clients.append(w)
                edge = {q: sum(w[q] for w in clients) / len(clients) for q in edge}
            trained.append(edge)
        count = {q: sum(mine[q] for mine in p) for q in global_}
        summed = {q: sum(mine[q] * w[q] for mine, w in zip(p, trained, strict=True)) for q in global_}
        global_ = {q: np.where(count[q] > 0, summed[q] / np.maximum(count[q], 1), global_[q]) for q in global_}
    return made.evaluated(global_)


@pytest.mark.parametrize(
    ("model", "cells", "mode"),
    [("mlp", 2, "owner"), ("mlp", 4, "shared"), ("mlp", 7, "owner"), ("mlp", 4, "none"),
     ("cnn", 3, "shared"), ("cnn", 4, "owner")],
)  # fmt: skip
def test_compact_submodels_are_the_masked_model(model, cells, mode):
    """Equations (4) to (7), over whole runs, N dividing the units or not."""
    made = small(algorithm="hist", dtype="float64", model=model, clients=8, cells=cells, out_bias=mode)
    masked = by_masks(made)
    assert distance(masked, train(made, engine="vectorised")[0]) < 1e-12
    assert distance(masked, train(made, engine="reference")[0]) < 1e-12


@pytest.mark.parametrize(
    ("model", "cells", "submodels", "mode"),
    [("mlp", 5, 2, "owner"), ("mlp", 5, 3, "none"), ("cnn", 6, 4, "shared")],
)
def test_cells_of_one_submodel_are_averaged_before_the_union(model, cells, submodels, mode):
    """Groups of 3 and 2 cells, of 2, 2 and 1, and of 2, 1, 2 and 1, with submodels of two shapes."""
    made = small(algorithm="hist", dtype="float64", model=model, clients=8, cells=cells, submodels=submodels,
                 out_bias=mode, local_steps=2)  # fmt: skip
    masked = by_masks(made)
    assert distance(masked, train(made, engine="vectorised")[0]) < 1e-12
    assert distance(masked, train(made, engine="reference")[0]) < 1e-12


def test_as_many_submodels_as_cells_go_without_saying():
    """Bit for bit."""
    plain, said = (train(small(algorithm="hist", clients=6, cells=3, **more))[0] for more in ({}, {"submodels": 3}))
    assert all((plain[path] == said[path]).all() for path in plain)


@pytest.mark.parametrize("mode", ["owner", "shared"])
def test_one_submodel_is_hfedavg(mode):
    keys = {"dtype": "float64", "clients": 7, "cells": 3}
    hist = train(small(algorithm="hist", submodels=1, out_bias=mode, **keys))[0]
    assert distance(hist, train(small(algorithm="hfedavg", **keys))[0]) < 1e-12


def test_cells_of_one_submodel_begin_with_the_same_and_send_as_much():
    made = small(algorithm="hist", dtype="float64", clients=8, cells=5, submodels=2, out_bias="author")
    algorithm, ledger = made.job.algorithm, made.clock.ledger
    assert algorithm.parts == (0, 0, 0, 1, 1)
    (stack,) = algorithm.deal(made.start, now(made))
    for w in stack.weights.values():
        assert (w[0] == w[2]).all()
        assert (w[3] == w[4]).all()
        assert not (w[2] == w[3]).all()
    half = ledger.cell_bytes(0)
    assert half.tolist() == [8 * (25 * 150 + 150 + 150 * 4 + 4)] * 5  # half the units of 300, all of the last bias
    assert ledger.round(0)["edge_to_cloud"].tolist() == half.tolist()
    assert made.clock.work == pytest.approx(1 / 2, rel=1e-3)


def test_compact_submodels_are_the_masked_model_for_blocks_of_resnet():
    """Three cells: 32 channels are cut into 10, 11 and 11, 64 into 22, 21 and 21; running statistics and
    the shared part included."""
    made = small(algorithm="hist", dtype="float64", model="shallow", clients=3, cells=3, local_steps=1,
                 edge_rounds=2, lr=0.001)  # fmt: skip
    assert distance(by_masks(made), train(made, engine="vectorised")[0]) < 1e-12


SIZES = st.integers(1, 60)


def two_groups(first, second, cells, seed):
    """Make an anatomy of two groups of units, cut along different axes, and a round's permutations of them."""
    units, rng = {"a": first, "b": second}, np.random.default_rng(seed)
    cut = Anatomy(cells, units, {"x": ("a", 1), "y": ("b", 0)}, (), {}, frozenset())
    return cut, {name: rng.permutation(size) for name, size in units.items()}


@given(first=SIZES, second=SIZES, cells=SIZES, seed=st.integers(0, 99))
@settings(max_examples=200)
def test_blocks_are_balanced(first, second, cells, seed):
    """Sizes differ by at most one, every unit has one owner, and cells of one shape are one stack: blocks of a group
    change in size once at most, so two groups make at most three stacks."""
    cells = min(cells, first, second)
    anatomy, order = two_groups(first, second, cells, seed)
    assert [cell for ids in anatomy.stacks for cell in ids] == list(range(cells))
    shapes = []
    for name, size in anatomy.units.items():
        owned = [block for ids in anatomy.stacks for block in anatomy.block(name, order, ids)]
        assert sorted(np.concatenate(owned)) == list(range(size))
        shapes.append([len(block) for block in owned])
        assert max(shapes[-1]) - min(shapes[-1]) <= 1
        assert len(set(shapes[-1])) == (1 if size % cells == 0 else 2)
    assert len(anatomy.stacks) == len(set(zip(*shapes, strict=True))) <= 3


@given(first=SIZES, second=SIZES, cells=SIZES, seed=st.integers(0, 99))
@settings(max_examples=100)
def test_scatter_undoes_gather(first, second, cells, seed):
    """And every cell is handed the units of its own block. With NumPy, since JAX would compile for every shape."""
    cells = min(cells, first, second)
    anatomy, order = two_groups(first, second, cells, seed)
    for path, x in {"x": np.arange(6.0 * first).reshape(3, first, 2), "y": np.arange(1.0 * second)}.items():
        name, axis = anatomy.axis[path]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys.modules[Anatomy.__module__], "jnp", np)
            parts = [anatomy.gather(path, x, order, ids) for ids in anatomy.stacks]
            np.testing.assert_array_equal(anatomy.scatter(path, parts, order), x)
        for own, block in zip([w for part in parts for w in part], blocks(order[name], cells), strict=True):
            np.testing.assert_array_equal(own, x.take(block, axis))


@given(
    cells=st.integers(1, 12),
    units=st.sampled_from([12, 17, 30, 37]),
    seed=st.integers(0, 99),
    mode=st.sampled_from(MODES[:3]),
)
@settings(max_examples=40, deadline=None)
def test_masks_are_disjoint_and_complete(cells, units, seed, mode):
    """Σ_j p_j = 1 for every N and unit count: (3), exactly where entries are owned, N on what all share."""
    model = make("mlp", (2, 2, 1), 3, hidden=units)
    anatomy, weights = Anatomy.of(model, cells), {q: np.zeros(v.shape) for q, v in model.template.items()}
    total = {q: sum(p[q] for p in masks(anatomy, weights, root(seed), mode)) for q in weights}
    for path in ("fc1/kernel", "fc1/bias", "fc2/kernel"):
        assert (total[path] == 1).all()
    assert (total["fc2/bias"] == {"owner": 1, "shared": cells, "none": 0}[mode]).all()


@pytest.mark.parametrize(
    ("model", "cells", "mode"),
    [(m, n, mode) for m in ("mlp", "cnn") for n in (1, 3, 5) for mode in MODES] + [("shallow", 3, "owner")],
)
def test_the_union_of_untouched_parts_is_the_model(model, cells, mode):
    made = small(algorithm="hist", dtype="float64", model=model, clients=5, cells=cells, out_bias=mode)
    algorithm, moment = made.job.algorithm, now(made)
    assert distance(algorithm.merge(made.start, algorithm.deal(made.start, moment), moment), made.start) < 1e-15


@pytest.mark.parametrize(
    ("model", "shape", "cells", "owned", "rest"),
    [("mlp", (28, 28, 1), 2, 119_250, 10), ("mlp", (28, 28, 1), 3, 79_500, 10), ("mlp", (28, 28, 1), 4, 59_625, 10),
     ("mlp", (28, 28, 1), 5, 47_700, 10), ("cnn", (28, 28, 1), 2, 10_905, 30), ("cnn", (28, 28, 1), 5, 4_362, 30),
     ("resnet18", (32, 32, 3), 2, 5_494_656, 184_650), ("resnet18", (32, 32, 3), 4, 2_747_328, 184_650)],
)  # fmt: skip
def test_sizes_of_the_paper(model, shape, cells, owned, rest):
    """N·owned + rest = total."""
    made = make(model, shape, 10)
    anatomy = Anatomy.of(made, cells)
    cut = sum(math.prod(made.template[p].shape) for p in anatomy.axis if p in made.trainable)
    assert cut == cells * owned
    assert cut + rest == made.parameters


def test_one_cell_is_fedavg():
    """HIST with N = 1 is FedAvg(H) for any E, with uniform weights; HFedAvg likewise."""
    keys = {"dtype": "float64", "clients": 6, "cells": 1, "partition": "iid", "local_steps": 3, "edge_rounds": 2}
    fedavg = train(small(algorithm="fedavg", **keys | {"edge_rounds": 1}), rounds=4)[0]
    for name in ("hist", "hfedavg"):
        assert distance(train(small(algorithm=name, **keys), rounds=2)[0], fedavg) < 1e-12


@pytest.mark.parametrize("mode", ["owner", "shared", "none"])
def test_full_logits_are_the_sum_of_the_submodels(mode):
    """So the union is N times as confident, which `rescale=mean` takes back without moving the argmax."""
    made = small(algorithm="hist", dtype="float64", cells=3, out_bias=mode)
    dealt = made.job.algorithm.deal(made.start, now(made))
    x = made.job.task.inputs(made.job.data, jnp.arange(9))[0]
    parts = [
        made.model({p: w[n] for p, w in cells.weights.items()}, x, train=False, key=root(0))[0]
        for cells in dealt
        for n in range(len(cells.ids))
    ]
    whole, _ = made.model(made.start, x, train=False, key=root(0))
    extra = 2 * made.start["fc2/bias"] if mode == "shared" else 0  # every cell has the whole bias
    np.testing.assert_allclose(sum(parts), whole + extra, atol=1e-12)
    mean = small(algorithm="hist", dtype="float64", cells=3, out_bias=mode, rescale="mean")
    calm, _ = made.model(mean.evaluated(mean.start), x, train=False, key=root(0))
    np.testing.assert_allclose(calm, sum(parts) / 3, atol=1e-12)


def test_author_mode_throws_the_biases_away():
    made = small(algorithm="hist", dtype="float64", cells=3, out_bias="author")
    after, _ = train(made)
    for path in ("fc1/bias", "fc2/bias"):
        assert (after[path] == made.start[path]).all()
    assert not (after["fc1/kernel"] == made.start["fc1/kernel"]).all()
    first, second = (made.job.algorithm.deal(made.start, now(made, index))[0].weights["fc2/bias"] for index in (0, 1))
    assert not (first == second).all()  # fresh each round
    assert not (first[0] == first[1]).all()  # and for each cell


def test_no_bias_means_no_bias():
    made = small(algorithm="hist", dtype="float64", cells=3, out_bias="none")
    assert (train(made)[0]["fc2/bias"] == 0).all()


@pytest.mark.parametrize("engine", ["reference", "vectorised"])
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_cell_moves_only_what_it_owns(engine, optimizer):
    """Whatever the optimiser would do to the rest: what non-owners hold of the output bias is 0 after training too."""
    made = small(algorithm="hist", dtype="float64", clients=8, cells=4, optimizer=optimizer, lr=0.05, weight_decay=0.1)

    def leak(w, batches, now):
        strangers = sum(jnp.abs(c.weights["fc2/bias"] * (1 - c.mask["fc2/bias"])).sum(0) for c in batches)
        owners = sum((c.weights["fc2/bias"] * c.mask["fc2/bias"]).sum(0) for c in batches)
        return w | {"fc2/bias": strangers, "fc2/kernel": w["fc2/kernel"] * 0 + (owners - w["fc2/bias"])}

    probe = replace(made, job=replace(made.job, algorithm=replace(made.job.algorithm, merge=leak)))
    after, _ = train(probe, rounds=1, engine=engine)
    assert (after["fc2/bias"] == 0).all()
    assert (after["fc2/kernel"] != 0).all()  # and owners moved theirs


@pytest.mark.parametrize(
    "keys", [{"chunk": 3, "momentum": 0.9}, {"participation": 0.5, "dropout": 0.5, "out_bias": "author"}]
)
def test_engines_agree(keys):
    """Four of eight cells have one unit more than the others, 38 of 300, so they are two stacks."""
    made = small(algorithm="hist", dtype="float64", clients=9, cells=8, **keys)
    assert distance(train(made, engine="reference")[0], train(made, engine="vectorised")[0]) < 1e-12


class Normed(nnx.Module):
    """This has BatchNorm over hidden units that are dealt out."""

    def __init__(self, rngs):
        hidden = {"units": ("h",)}
        self.fc1 = nnx.Linear(25, 8, kernel_metadata={"units": (None, "h")}, bias_metadata=hidden, rngs=rngs)
        self.norm = nnx.BatchNorm(8, scale_metadata=hidden, bias_metadata=hidden, rngs=rngs)
        self.fc2 = nnx.Linear(8, 4, kernel_metadata={"units": ("h", None)}, rngs=rngs)

    def __call__(self, x):
        return self.fc2(nnx.relu(self.norm(self.fc1(x.reshape(len(x), -1)))))


@pytest.mark.parametrize("statistics", ["local", "batch_stats"])
def test_batchnorm_without_travelling_statistics(statistics):
    """IST's own form: a submodel's missing statistics are as many as its channels, and it trains without them."""
    model = from_nnx(Normed, input_shape=(5, 5, 1), classes=4, statistics=statistics)
    keys = {"algorithm": "hist", "clients": 4, "cells": 2, "local_steps": 2, "edge_rounds": 2, "batch": 4, "lr": 0.1,
            "partition": "iid", "dtype": "float64", "data": "custom", "model": "custom"}  # fmt: skip
    made = experiment(Config.of(keys), toy(), model)
    assert made.clock.work.tolist() == [0.5, 0.5]
    assert "norm/mean" not in made.start
    naive, fast = (ENGINES[engine](made.job).rounds(made.start, 0, 2)[0] for engine in ("reference", "vectorised"))
    assert distance(naive, fast) < 1e-12
    assert np.abs(fast["norm/scale"] - made.start["norm/scale"]).min() > 1e-6  # every unit was in some cell's part


@pytest.mark.parametrize(("cells", "mode"), [(1, "owner"), (4, "owner"), (7, "owner"), (4, "none"), (5, "none")])
def test_the_ledger_is_one_nth(cells, mode):
    """All cells together hold one model, each 1/N within one unit (and one of the output biases); without these and
    with N dividing the units, each client sends (E/H)/N."""
    made = small(algorithm="hist", clients=10, cells=cells, out_bias=mode, dtype="float64", partition="iid")
    total = 8 * (made.model.parameters - (4 if mode == "none" else 0))
    unit, bias = 8 * (25 + 1 + 4), 8 * (mode == "owner")
    for index in (0, 1):
        assert made.clock.ledger.cell_bytes(index).sum() == total
        assert np.abs(made.clock.ledger.cell_bytes(index) - total / cells).max() < unit + bias
        links = made.clock.ledger.round(index)
        if mode == "none":
            assert (links["client_to_edge"] * cells == made.config.edge_rounds * total).all()
        assert links["edge_to_cloud"].sum() == total
    plain = small(algorithm="hfedavg", clients=10, cells=cells, dtype="float64", partition="iid")
    assert plain.clock.ledger.cell_bytes(0).sum() == cells * 8 * made.model.parameters


@pytest.mark.parametrize("cells", [3, 4, 7])
def test_the_ledger_is_one_nth_within_a_unit_of_each_group(cells):
    """A CNN's channels and hidden units divide differently: 10 and 50 by 7 are six of 1 beside a 4 if the last cell
    takes all that is left."""
    made = small(algorithm="hist", model="cnn", clients=10, cells=cells, out_bias="none", partition="iid")
    shapes, cut = made.model.template, Anatomy.of(made.model, cells)
    total, unit = 0, 0.0
    for path, (name, _) in cut.axis.items():
        total += math.prod(shapes[path].shape)
        unit += math.prod(shapes[path].shape) / cut.units[name]
    whole = sum(math.prod(shape.shape) for path, shape in shapes.items() if path not in (*cut.axis, *cut.meeting))
    found = made.clock.ledger.cell_bytes(0) / 4 - whole
    assert found.sum() == total
    assert np.abs(found - total / cells).max() < unit


@pytest.mark.parametrize("cells", [2, 4, 5])
def test_the_clock_is_one_nth(cells):
    """A round takes (E/H)(H·t_c/N + t_u/N) + t_cloud/N, exactly 1/N of HFedAvg where no bias is left over."""
    ours, plain = (small(algorithm=a, clients=10, cells=cells, partition="iid", **more)
                   for a, more in (("hist", {"out_bias": "none"}), ("hfedavg", {})))  # fmt: skip
    times = [m.clock.advance(m.clock.start, 0).max() for m in (ours, plain)]
    bias = 4 * 32 * (plain.config.edge_rounds / plain.config.uplink_bps + 1 / plain.config.cloud_bps)  # four of 32 bits
    assert times[0] * cells == pytest.approx(times[1] - bias, rel=1e-12)


# What it refuses


class Plain(nnx.Module):
    def __init__(self, rngs, units=(None, None)):
        self.fc1 = nnx.Linear(25, 6, kernel_metadata={"units": units}, rngs=rngs)
        self.fc2 = nnx.Linear(6, 4, rngs=rngs)

    def __call__(self, x):
        return self.fc2(nnx.relu(self.fc1(x.reshape(len(x), -1))))


def own(**keys):
    return from_nnx(lambda rngs: Plain(rngs, **keys), input_shape=(5, 5, 1), classes=4)


def test_a_model_without_units_is_refused_with_the_way_to_annotate_it(tmp_path):
    with pytest.raises(ConfigError, match=r"names any; annotate them, for instance nnx.Linear"):
        fedge.run(algorithm="hist", clients=4, cells=2, dataset=toy(), model=own(), partition="iid", out=tmp_path / "r")
    assert not (tmp_path / "r").exists()


def test_units_on_two_axes_or_of_two_sizes_are_refused():
    with pytest.raises(ConfigError, match="units on 2 axes"):
        Anatomy.of(own(units=("a", "b")), 2)

    class Uneven(nnx.Module):
        def __init__(self, rngs):
            self.fc1 = nnx.Linear(25, 6, kernel_metadata={"units": (None, "a")}, rngs=rngs)
            self.fc2 = nnx.Linear(5, 4, kernel_metadata={"units": ("a", None)}, rngs=rngs)

    with pytest.raises(ConfigError, match="units 'a' are 6 elsewhere but 5 in parameter 'fc2/kernel'"):
        Anatomy.of(from_nnx(Uneven, input_shape=(5, 5, 1), classes=4), 2)


def test_more_submodels_than_units_or_cells_are_refused():
    with pytest.raises(ConfigError, match=r"11 submodels cannot share the 10 units of 'conv1'; give submodels=10 or"):
        small(algorithm="hist", model="cnn", clients=12, cells=11)
    with pytest.raises(ConfigError, match=r"submodels=4 is more than cells=3, so nobody would train some of them"):
        small(algorithm="hist", submodels=4)


def test_groupnorm_is_refused_because_its_groups_span_units():
    with pytest.raises(ConfigError, match="cannot run with a part of its units"):
        small(algorithm="hist", model="resnet18", bn="groupnorm", clients=4, cells=2)


def test_a_users_own_annotated_model(tmp_path):
    class Annotated(nnx.Module):
        def __init__(self, rngs):
            self.fc1 = nnx.Linear(25, 7, kernel_metadata={"units": (None, "h")}, bias_metadata={"units": ("h",)},
                                  rngs=rngs)  # fmt: skip
            self.fc2 = nnx.Linear(7, 4, kernel_metadata={"units": ("h", None)}, rngs=rngs)

        def __call__(self, x):
            return self.fc2(nnx.relu(self.fc1(x.reshape(len(x), -1))))

    model = from_nnx(Annotated, input_shape=(5, 5, 1), classes=4)
    done = fedge.run(algorithm="hist", clients=4, cells=3, dataset=toy(), model=model, partition="iid", rounds=2,
                     out=tmp_path / "r")  # fmt: skip
    assert done.final["bytes"]["edge_to_cloud"] == 2 * 4 * model.parameters
