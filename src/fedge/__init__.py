"""fedge: hierarchical federated learning over clients, edge servers and a cloud."""

from fedge._version import __version__
from fedge.data import Dataset
from fedge.errors import ConfigError, DataError, FedgeError, RunError
from fedge.experiment.config import Config
from fedge.models import Model, from_nnx
from fedge.runner.loop import Result, run
from fedge.studies.compare import compare

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
