"""This room knows where data come from (`sources`, `fetch`, `own_data`) and who gets which (`partition`, `cells`)."""

from __future__ import annotations

from fedge.data.cells import ASSIGNMENTS
from fedge.data.dataset import Dataset
from fedge.data.known import DATASETS
from fedge.data.partition import CLASS_SPLITS, PARTITIONS, Partition, distribute
from fedge.data.sources import load

__all__ = ["ASSIGNMENTS", "CLASS_SPLITS", "DATASETS", "PARTITIONS", "Dataset", "Partition", "distribute", "load"]
