"""fedge: hierarchical federated learning over clients, edge servers and a cloud."""

from fedge._version import __version__
from fedge.data import Dataset
from fedge.errors import ConfigError, DataError, FedgeError, RunError
from fedge.models import Model, from_nnx
from fedge.runner.compare import compare
from fedge.runner.config import Config
from fedge.runner.loop import Result, run

__all__ = [
    "Config",
    "ConfigError",
    "DataError",
    "Dataset",
    "FedgeError",
    "Model",
    "Result",
    "RunError",
    "__version__",
    "compare",
    "from_nnx",
    "run",
]
