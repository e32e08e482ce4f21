"""Tasks other than classification, from data to record, and metrics on request."""

import json
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import fedge
from fedge.core.objective import classification, cross_entropy
from fedge.experiment.build import experiment
from fedge.experiment.config import Config, read_metrics
from fedge.experiment.tasks import check_shapes
from fedge.runner.cache import ProgramCache
from fedge.runner.metrics import Metrics
from fedge.runner.per_group import MOST, group_columns, without_long, worst_tenth
from fedge.view import hierarchy, plots, terminal
from fedge.view.numbers import on_request
from tests.helpers import distance, small, train

RNG = np.random.default_rng(5)
SMALL = {"algorithm": "hierfavg", "clients": 5, "cells": 2, "local_steps": 2, "edge_rounds": 2, "batch": 4, "rounds": 2}


def numbers(columns=()):
    """Targets that are linear in three inputs."""
    x = RNG.normal(size=(60, 3))
    w = RNG.normal(size=(3, *columns))
    return fedge.Dataset.of(x[:40], (x @ w)[:40], x[40:], (x @ w)[40:], task="regression")


NUMBERS = numbers()


def linear(dataset, outputs=1):
    return fedge.from_nnx(lambda rngs: nnx.Linear(3, outputs, rngs=rngs), input_shape=dataset.shape, classes=outputs)


class NextToken(nnx.Module):
    """Each position tells the next token from its own alone."""

    def __init__(self, rngs):
        self.embed, self.head = nnx.Embed(6, 4, rngs=rngs), nnx.Linear(4, 6, rngs=rngs)

    def __call__(self, x):
        return self.head(self.embed(x))


def sentences():
    """Tokens that count up, round and round; the last one of each sentence is not to be predicted."""
    x = (RNG.integers(0, 6, (50, 1)) + np.arange(5)) % 6
    y = np.where(np.arange(5) == 4, -1, (x + 1) % 6)
    return fedge.Dataset.of(x[:40], y[:40], x[40:], y[40:], task="tokens")


def test_a_regression_is_learnt(tmp_path, capsys):
    """Targets are linear and without noise, so that a linear model comes to R² = 1."""
    keys = SMALL | {"rounds": 12, "lr": 0.05, "eval_every": 6, "metrics": ["clients", "cells"]}
    result = fedge.run(keys, dataset=NUMBERS, model=linear(NUMBERS), out=tmp_path / "run")
    assert result.config.task == "regression"
    assert result.config.partition == "iid"
    row = result.final
    assert list(row)[2:5] == ["r2", "mae", "loss"]
    assert row["r2"] > 0.99
    error = np.asarray(NUMBERS.x_test @ result.weights["kernel"] + result.weights["bias"])[:, 0] - NUMBERS.y_test
    assert row["loss"] == pytest.approx((error**2).mean(), rel=1e-4)
    assert row["mae"] == pytest.approx(np.abs(error).mean(), rel=1e-4)
    assert row["r2"] == pytest.approx(1 - (error**2).sum() / ((NUMBERS.y_test - NUMBERS.y_test.mean()) ** 2).sum())
    assert len(row["client_maes"]) == 5
    assert row["worst_tenth_mae"] == max(row["client_maes"])
    assert json.loads((tmp_path / "run/result.json").read_text())["final"] == row
    terminal.Console(width=200).print(terminal.result_table([result]))
    assert "final r2" in capsys.readouterr().out
    assert plots.curves([result]).axes[0].get_ylabel() == "test r2"
    assert "each of the 10 ranges of the target" in terminal.topology_picture(result.experiment)
    assert hierarchy.label_heatmap(result.experiment).axes[1].get_ylabel() == "target"
    assert "worst tenth" in on_request(row)


def test_tokens_are_learnt(tmp_path):
    """A model of the user's own over integers: what follows is certain, so that perplexity falls from 6 towards 1."""
    data = sentences()
    model = fedge.from_nnx(NextToken, input_shape=data.shape, classes=data.classes)
    keys = SMALL | {"rounds": 25, "lr": 1.0, "eval_every": 25, "metrics": "f1"}
    result = fedge.run(keys, dataset=data, model=model, out=tmp_path / "run")
    row = result.final
    assert list(row)[2:5] == ["perplexity", "accuracy", "loss"]
    assert row["perplexity"] == pytest.approx(np.exp(row["loss"]), rel=1e-4)  # as many positions in each sentence
    assert row["perplexity"] < 2
    assert row["accuracy"] == row["macro_f1"] == 1
    assert "bars" not in terminal.topology_picture(result.experiment)


def gradient_on(made, samples):
    data, none = jax.tree.map(jnp.asarray, made.job.data), jnp.int32(0)
    return made.job.task.gradient(made.start, data, jnp.asarray(samples), made.job.key, none, none)[1]


def test_a_column_of_a_table_is_predicted(tmp_path, monkeypatch):
    """Whole numbers are numbers too; under a task of one's own, targets with fractions are."""
    monkeypatch.chdir(tmp_path)
    rows = [f"{a},{b},{{}}" for a, b in RNG.integers(0, 9, (40, 2))]
    for name, y in (("whole", (3, 1, 4, 2)), ("parts", (3.5, 1, 4, 2))):
        lines = [row.format(y[n % 4]) for n, row in enumerate(rows)]
        (tmp_path / f"{name}.csv").write_text("a,b,y\n" + "\n".join(lines) + "\n")
    row = fedge.run(SMALL, data="whole.csv", target="y", task="regression", rounds=1, out=tmp_path / "run").final
    assert {"r2", "mae", "loss"} <= set(row)
    keys = SMALL | {"data": "parts.csv", "target": "y", "task": "tests.test_tasks:huber", "partition": "iid"}
    assert experiment(Config.of(keys)).dataset.task == "regression"
    with pytest.raises(fedge.DataError, match=r"holds 3\.5, which is no class"):
        experiment(Config.of(keys | {"task": "classification"}))


@pytest.mark.parametrize("columns", [(), (2,)])
def test_both_engines_take_the_same_steps_of_a_regression(columns):
    data = numbers(columns)
    config = Config.of(SMALL | {"data": "custom", "model": "custom", "task": "regression", "dtype": "float64"})
    with jax.enable_x64(True):
        made = experiment(config, data, linear(data, 2 if columns else 1))
        (fast, losses), (naive, others) = train(made), train(made, engine="reference")
        samples = made.partition.samples[0]
        g, start = gradient_on(made, samples), jax.tree.map(np.asarray, made.start)
    assert distance(fast, naive) < 1e-12
    assert losses == pytest.approx(others, abs=1e-12)
    x, y = data.x_train[samples], data.y_train[samples].reshape(len(samples), -1)
    slope = 2 * (x @ start["kernel"] + start["bias"] - y) / y.size
    np.testing.assert_allclose(g["kernel"], x.T @ slope, atol=1e-12)
    np.testing.assert_allclose(g["bias"], slope.sum(0), atol=1e-12)


def test_messages_of_a_split_model_carry_any_loss():
    """HierSFL by messages of its two halves, and by the gradient of the whole."""
    keys = {"data": "custom", "algorithm": "hiersfl", "cut": "hidden", "task": "regression", "dtype": "float64"}
    with jax.enable_x64(True):
        found = [
            train(experiment(Config.of(SMALL | keys | {"messages": by}), NUMBERS), 1, engine="reference")[0]
            for by in (True, False)
        ]
    assert distance(*found) < 1e-12


# Metrics on request


def rows_of(*runs):
    states = jax.tree.map(lambda *each: np.stack(each), *(run.start for run in runs))
    return Metrics(runs, ProgramCache())(states, 0, [0.0] * len(runs))


def assert_as_by_hand(made, row):
    """Cells, clients and classes against plain numpy: image by image."""
    w, data = made.evaluated(made.start), made.dataset

    def predicted(x):
        h = np.maximum((x.reshape(-1, 25) / 255 - 0.5) / 0.5 @ w["fc1/kernel"] + w["fc1/bias"], 0)
        return np.asarray(h @ w["fc2/kernel"] + w["fc2/bias"]).argmax(1)

    right, own = predicted(data.x_train) == data.y_train, made.partition.samples
    clients = [right[samples].mean() for samples in own]
    cells = [right[np.concatenate([own[i] for i in roster])].mean() for roster in made.topology.roster]
    assert row["client_accuracies"] == pytest.approx(clients, rel=1e-12)
    assert row["cell_accuracies"] == pytest.approx(cells, rel=1e-12)
    assert row["client_accuracy"] == pytest.approx(np.mean(clients), rel=1e-12)
    assert row["worst_tenth_accuracy"] == min(row["client_accuracies"])
    guess, f1 = predicted(data.x_test), []
    for c in set(guess) | set(data.y_test):
        labelled, said = data.y_test == c, guess == c
        f1.append(2 * (said & labelled).sum() / (said.sum() + labelled.sum()))
    assert row["macro_f1"] == pytest.approx(np.mean(f1), rel=1e-12)


def test_metrics_of_cells_clients_and_classes():
    """Two runs side by side in unequal cells, on two devices; then clients that draw, so that samples belong to several
    or to nobody."""
    keys = {"dtype": "float64", "metrics": "f1,cells,clients"}
    with jax.enable_x64(True):
        runs = [small(seed=seed, **keys) for seed in (0, 1)]
        for made, row in zip(runs, rows_of(*runs), strict=True):
            assert_as_by_hand(made, row)
        drawn = small(partition="drawn", client_samples=9, **keys)
        assert len(np.unique(drawn.partition.order)) < min(90, len(drawn.partition.order))
        assert_as_by_hand(drawn, rows_of(drawn)[0])


def test_nothing_is_found_without_a_request():
    (row,) = rows_of(small())
    assert set(row) == {"round", "iteration", "accuracy", "loss", "train_loss"}


def test_the_worst_tenth_is_rounded_up_and_knows_the_worse_side():
    values = np.arange(21.0)
    assert worst_tenth(values, higher_is_better=True) == 1  # 0, 1, 2
    assert worst_tenth(values, higher_is_better=False) == 19
    assert worst_tenth(np.array([np.nan, 3.0]), higher_is_better=True) == 3
    assert np.isnan(worst_tenth(np.array([np.nan]), higher_is_better=True))


def test_numbers_of_very_many_clients_are_not_in_every_row():
    part = small(clients=MOST + 1, cells=1, partition="drawn", client_samples=1).partition
    found = group_columns(classification(4), ["clients"], part, np.ones(90))
    assert set(found) == {"client_accuracy", "worst_tenth_accuracy"}
    row = {"client_accuracies": [1.0] * 1001, "client_accuracy": 1.0, "edge_accuracies": [1.0] * 1001}
    assert set(without_long(row)) == {"client_accuracy", "edge_accuracies"}
    assert set(without_long(row | {"client_accuracies": [1.0] * 1000})) == set(row)


# Objectives of one's own


def weighted(dataset):
    """What a user writes in a module: cross-entropy that counts class 0 twice, with a metric of its own."""

    def loss(outputs, labels):
        return cross_entropy(outputs, labels) * jnp.where(labels == 0, 2.0, 1.0)

    return fedge.Objective(
        loss, {"sure": lambda outputs, labels: jax.nn.softmax(outputs).max(-1)}, outputs=dataset.classes
    )


def huber(dataset):
    def loss(outputs, targets):
        return optax.huber_loss(outputs[:, 0], targets)

    return fedge.Objective(loss, task="regression", outputs=1)


def wrong_mean(dataset):
    return fedge.Objective(lambda outputs, labels: cross_entropy(outputs, labels).mean(), outputs=dataset.classes)


def no_objective(dataset):
    return max


def fails(dataset):
    raise KeyError("colour")


def test_an_objective_by_its_name_and_as_an_object(tmp_path):
    data = fedge.Dataset.of(NUMBERS.x_train, np.arange(40) % 2, NUMBERS.x_test, np.arange(20) % 2)
    own = {"dataset": data, "model": linear(data, 2)}
    named = fedge.run(SMALL, task="tests.test_tasks:weighted", out=tmp_path / "named", **own)
    passed = fedge.run(SMALL, objective=weighted(data), out=tmp_path / "passed", **own)
    assert list(named.final)[2:4] == ["sure", "loss"]
    assert named.final == passed.final
    about = json.loads((tmp_path / "named/run.json").read_text())
    assert set(about["objects"]["task"]) == {"function", "source", "program"}
    again = fedge.run(resume=tmp_path / "named", rounds=3, **own)
    assert again.final["round"] == 3
    with pytest.raises(fedge.ConfigError, match="task=custom means an object passed in from Python; pass it"):
        fedge.run(resume=tmp_path / "passed", rounds=3, **own)
    with pytest.raises(fedge.RunError, match="the objective passed in is not the one"):
        fedge.run(resume=tmp_path / "passed", rounds=3, objective=classification(2), **own)


def test_the_example_of_the_docs_is_an_objective():
    text = (Path(__file__).parents[1] / "docs/tasks.md").read_text()
    (code,) = re.findall(r"```python\n(# mine.py.*?)```", text, re.DOTALL)
    found = {}
    exec(code, found)
    data = fedge.Dataset.of(np.zeros((4, 2)), [0, 0, 1, 1], np.zeros((1, 2)), [0])
    objective, outputs = found["careful"](data), jnp.array([[1.0, 0], [0, 1], [1, 0], [0, 1]])
    check_shapes(objective, *(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (outputs, jnp.asarray(data.y_train))))
    recall = objective.metric("recall").each(outputs, data.y_train).mean(0)
    assert objective.value("recall", recall[None]) == pytest.approx([0.5])


# Bad input, before anything is trained


def refused(error, message, **given):
    with pytest.raises(error, match=message):
        fedge.run(SMALL | {k: v for k, v in given.items() if k not in ("dataset", "model", "objective")},
                  **{k: v for k, v in given.items() if k in ("dataset", "model", "objective")})  # fmt: skip


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"task": "regresion"}, "regression, tokens, package.module:function; did you mean 'regression'"),
        ({"task": "regression", "partition": "shards"}, "partition=shards goes by each sample's class.*write par"),
        ({"task": "tokens", "assign": "edge_iid"}, "assign=edge_iid goes by each sample's class.*write assign=random"),
        ({"task": "classification", "dataset": NUMBERS}, "are real numbers, and not classes; give task=regression"),
        ({"task": "regression"}, "fashion-mini are classes, and not real numbers; give task=classi"),
        ({"task": "custom"}, "task=custom means an object passed in from Python"),
        ({"metrics": "cels"}, "metrics=cels is not allowed; allowed: some of cells, clients, f1.*did you mean 'cells'"),
        ({"metrics": 3}, "metrics=3 is not allowed"),
        ({"metrics": "f1", "dataset": NUMBERS}, "metrics=f1 needs classes to predict, and task=regression has none"),
        ({"dataset": sentences()}, "model=mlp has no form for task=tokens; bring a model of your own"),
        ({"dataset": NUMBERS, "model": linear(NUMBERS, 2)}, r"gives \(2,\) for each input, but there are 1 numbers"),
        ({"dataset": sentences(), "model": fedge.from_nnx(lambda rngs: nnx.Embed(6, 5, rngs=rngs), input_shape=(5,),
                                                          classes=6)}, r"gives \(5, 5\) .* of 6 tokens need \(5, 6\)"),
        ({"task": "tests.test_tasks:wrong_mean"}, r"the loss gives \(\) for 2 samples; it must give one"),
        ({"task": "tests.test_tasks:no_objective"}, "returned a builtin_function_or_method; let it return"),
        ({"task": "tests.test_tasks:fails"}, "task=tests.test_tasks:fails failed, KeyError: 'colour'; mend it"),
        ({"task": "tests.test_tasks:absent"}, "has no 'absent'"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(given, message):
    refused(fedge.ConfigError, message, **given)


@pytest.mark.parametrize(
    ("outputs", "targets", "loss", "message"),
    [
        ((2, 3), (2,), lambda z, y: y, "gives int32; it must give floating numbers"),
        ((2, 3), (2,), lambda z, y: (z, y), "gives something else for 2 samples"),
        ((2, 3), (2,), lambda z, y: z @ y, "cannot take outputs"),
    ],
)
def test_losses_that_cannot_be(outputs, targets, loss, message):
    shapes = jax.ShapeDtypeStruct(outputs, jnp.float32), jax.ShapeDtypeStruct(targets, jnp.int32)
    with pytest.raises(fedge.ConfigError, match=message):
        check_shapes(fedge.Objective(loss), *shapes)


@pytest.mark.parametrize(
    ("task", "y", "message"),
    [
        (
            "classification",
            [0.5, 1.5],
            "must be integers from 0, not float64.*or predict them as numbers with task=regre",
        ),
        ("regression", [1.0, np.nan], "train targets must be finite.*1 are NaN.*first in sample 1"),
        ("regression", [1.0, 1e300], "beyond a float32"),
        ("regression", ["a", "b"], "must be finite real numbers where classes=0, not <U1"),
        ("regression", [1.0], "2 samples and targets"),
        ("regression", [[1.0], [2.0]], r"train targets \(1,\) and test targets \(\) differ in shape"),
        ("tokens", [0.5, 1.5], "labels must be integers"),
        ("tokens", [-1, -1], "all below 0"),
        ("ranking", [0, 1], "unknown task 'ranking'"),
    ],
)
def test_targets_that_cannot_be(task, y, message):
    with pytest.raises((fedge.DataError, fedge.ConfigError), match=message):
        fedge.Dataset.of(np.zeros((2, 3)), y, np.zeros((2, 3)), [1, 2], task=task)


def test_metrics_are_read_from_words_and_lists():
    assert (
        read_metrics("f1, cells") == read_metrics(["Cells", "f1"]) == read_metrics(("cells", "f1", "f1")) == "cells,f1"
    )
    assert read_metrics("") == ""
