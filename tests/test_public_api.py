"""The public surface is a fact: a name added or removed here is a decision."""

import types

import fedge

PUBLIC = {
    "Config", "ConfigError", "DataError", "Dataset", "FedgeError", "Model", "Result", "RunError", "__version__",
    "compare", "from_nnx", "run",
}  # fmt: skip


def test_all_is_the_public_surface():
    assert set(fedge.__all__) == PUBLIC
    visible = {n for n, v in vars(fedge).items() if not n.startswith("_") and not isinstance(v, types.ModuleType)}
    assert visible == PUBLIC - {"__version__"}


def test_errors_form_one_tree_with_stable_exit_codes():
    codes = {fedge.FedgeError: 1, fedge.ConfigError: 2, fedge.DataError: 3, fedge.RunError: 4}
    for error, code in codes.items():
        assert issubclass(error, fedge.FedgeError)
        assert error.exit_code == code
