"""fedge trains models by hierarchical federated learning over clients, edge servers and a cloud."""

from fedge._version import __version__

TYPE_CHECKING = False  # as in `typing`, which takes a while to import, and a signal may come
if TYPE_CHECKING:
    from fedge.core.objective import Metric, Objective
    from fedge.data import Dataset
    from fedge.errors import ConfigError, DataError, DivergenceError, FedgeError, RunError, StoppedError
    from fedge.experiment.config import Config
    from fedge.experiment.weights_file import load_weights, save_weights
    from fedge.models import Model, from_linen, from_nnx
    from fedge.models.weights import weights_from_torch, weights_to_torch
    from fedge.runner.listener import Listener
    from fedge.runner.load import load
    from fedge.runner.result import Result
    from fedge.runner.run import run
    from fedge.studies.compare import compare
    from fedge.studies.planner import plan
    from fedge.studies.sweep import Sweep, sweep
    from fedge.view.trackers import MLflow, TensorBoard, WandB

HOME = {  # where each name is defined: imported when it is asked for, since JAX takes two seconds
    "Config": "fedge.experiment.config",
    "ConfigError": "fedge.errors",
    "DataError": "fedge.errors",
    "Dataset": "fedge.data",
    "DivergenceError": "fedge.errors",
    "FedgeError": "fedge.errors",
    "Listener": "fedge.runner.listener",
    "MLflow": "fedge.view.trackers",
    "Metric": "fedge.core.objective",
    "Model": "fedge.models",
    "Objective": "fedge.core.objective",
    "Result": "fedge.runner.result",
    "RunError": "fedge.errors",
    "StoppedError": "fedge.errors",
    "Sweep": "fedge.studies.sweep",
    "TensorBoard": "fedge.view.trackers",
    "WandB": "fedge.view.trackers",
    "compare": "fedge.studies.compare",
    "from_linen": "fedge.models",
    "from_nnx": "fedge.models",
    "load": "fedge.runner.load",
    "load_weights": "fedge.experiment.weights_file",
    "plan": "fedge.studies.planner",
    "run": "fedge.runner.run",
    "save_weights": "fedge.experiment.weights_file",
    "sweep": "fedge.studies.sweep",
    "weights_from_torch": "fedge.models.weights",
    "weights_to_torch": "fedge.models.weights",
}

__all__ = [
    "Config",
    "ConfigError",
    "DataError",
    "Dataset",
    "DivergenceError",
    "FedgeError",
    "Listener",
    "MLflow",
    "Metric",
    "Model",
    "Objective",
    "Result",
    "RunError",
    "StoppedError",
    "Sweep",
    "TensorBoard",
    "WandB",
    "__version__",
    "compare",
    "from_linen",
    "from_nnx",
    "load",
    "load_weights",
    "plan",
    "run",
    "save_weights",
    "sweep",
    "weights_from_torch",
    "weights_to_torch",
]


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name not in HOME:
        raise AttributeError(f"module 'fedge' has no attribute '{name}'")
    value = globals()[name] = getattr(import_module(HOME[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
