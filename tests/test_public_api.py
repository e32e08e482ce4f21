"""The public surface is a fact: a name added or removed here is a decision."""

import subprocess
import sys

import pytest

import fedge

PUBLIC = {
    "Config", "ConfigError", "DataError", "Dataset", "DivergenceError", "FedgeError", "Listener", "Model", "Result",
    "Metric", "Objective", "RunError", "StoppedError", "Sweep", "__version__", "compare", "from_linen", "from_nnx",
    "MLflow", "TensorBoard", "WandB", "load",
    "load_weights", "plan", "run", "save_weights", "sweep", "weights_from_torch", "weights_to_torch",
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


def test_help_is_printed_before_anything_heavy_is_imported():
    """Signals are handled by then, too."""
    code = "import sys; from fedge.__main__ import main; sys.argv = ['fedge', '--help']\n"
    code += "try: main()\nfinally: print(*sorted({'jax', 'numpy', 'pydantic', 'matplotlib'} & {*sys.modules}))"
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert said.startswith("Usage: fedge ")
    assert said.splitlines()[-1] == ""
