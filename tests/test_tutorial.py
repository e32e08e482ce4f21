"""The tutorial's algorithms, as its page shows them, from a folder that is not fedge's."""

import re
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file

import fedge
from fedge import algorithms
from fedge.core import tree
from fedge.core.contract import Round
from fedge.core.keys import root
from tests.helpers import small
from tests.test_own_model import SHORT

PAGE = Path(__file__).parents[1] / "docs/tutorial/own-algorithm.md"
FILES = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PAGE.read_text(), re.S))


@pytest.fixture
def outside(tmp_path, monkeypatch):
    """A folder with the page's files, and data of 12 samples."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    monkeypatch.setattr(algorithms, "OWN", {})
    for name, code in FILES.items():
        Path(name).write_text(code)
    np.savez("mine.npz", x_train=np.eye(12), y_train=np.arange(12) % 4, x_test=np.eye(12), y_test=np.arange(12) % 4)
    yield tmp_path
    for name in FILES:
        sys.modules.pop(name.removesuffix(".py"), None)


def test_each_is_short():
    assert FILES.keys() == {"slow.py", "held.py", "nudge.py"}
    assert max(len(code.splitlines()) for code in FILES.values()) < 60


def test_held_is_fedprox_to_the_clouds_model(outside):
    own = small(algorithm="held:held", mu=0.3).job.algorithm
    assert own.way == small(algorithm="hierfavg", prox=0.3, prox_anchor="cloud").job.algorithm.way


def test_nudge_is_the_servers_momentum(outside):
    """Both merge the same cells' models, round after round; `server=momentum` has a step of 1 unless told otherwise."""
    with jax.enable_x64(True):
        made = [small(algorithm="nudge:nudge", beta=0.8, dtype="float64"),
                small(algorithm="hierfavg", server="momentum", server_beta1=0.8, dtype="float64")]  # fmt: skip
        weight = jnp.asarray(made[0].job.algorithm.topology.cell_weight)
        found = []
        for algorithm, state in ((m.job.algorithm, m.start) for m in made):
            for number in range(3):
                now = Round(jnp.int32(number), root(0), weight)
                (dealt,) = algorithm.deal(state, now)
                pull = np.random.default_rng(number).normal(size=(3, 1))
                moved = {p: w + pull.reshape(3, *[1] * (w.ndim - 1)) for p, w in dealt.weights.items()}
                state = algorithm.merge(state, (dealt._replace(weights=moved),), now)
            found.append(algorithm.evaluated(state, weight))
        apart = tree.subtract(*found)
        assert max(float(jnp.abs(w).max()) for w in apart.values()) < 1e-12


def test_a_state_with_plain_numbers_is_saved_and_resumed(outside):
    """What `nudge` counts is a number at first and a scalar array afterwards; a run in two parts is that in one."""
    keys = SHORT | {"algorithm": "nudge:nudge", "checkpoint_every": 1}
    fedge.run(keys, rounds=3, out="whole")
    fedge.run(keys, rounds=1, out="parts")
    fedge.run(resume="parts", rounds=3)
    assert (load_file("parts/checkpoint.safetensors")["rounds"], np.shape(3)) == (3, ())
    whole, parts = (load_file(f"{name}/weights.safetensors") for name in ("whole", "parts"))
    for path, w in whole.items():
        np.testing.assert_array_equal(parts[path], w)
