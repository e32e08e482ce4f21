"""Where images come from (`sources`, `fetch`) and who gets which (`partition`, `assign`)."""

from __future__ import annotations

from fedge.data.dataset import Dataset
from fedge.data.partition import CLASS_SPLITS, PARTITIONS, Partition, distribute
from fedge.data.sources import DATASETS, load

__all__ = ["CLASS_SPLITS", "DATASETS", "PARTITIONS", "Dataset", "Partition", "distribute", "load"]
