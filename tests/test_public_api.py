"""The public surface is a fact: a name added or removed here is a decision."""

import subprocess
import sys

import pytest

import fedge

PUBLIC = {
    "Config", "ConfigError", "DataError", "Dataset", "DivergenceError", "FedgeError", "Listener", "Model", "Result",
    "Metric", "Objective", "RunError", "StoppedError", "__version__", "compare", "from_nnx", "run",
}  # fmt: skip


def test_all_is_the_public_surface():
    assert set(fedge.__all__) == PUBLIC
    assert set(dir(fedge)) == PUBLIC
    for name in PUBLIC:
        assert getattr(fedge, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'runn'"):
        _ = fedge.runn


def test_errors_form_one_tree_with_stable_exit_codes():
    codes = {fedge.FedgeError: 1, fedge.ConfigError: 2, fedge.DataError: 3, fedge.RunError: 4, fedge.DivergenceError: 5}
    for error, code in codes.items():
        assert issubclass(error, fedge.FedgeError)
        assert error.exit_code == code


def test_importing_fedge_imports_nothing_heavy():
    """Signals are handled, and `--help` is printed, before JAX is there."""
    code = "import sys, fedge, fedge.__main__, fedge.runner.signals; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
