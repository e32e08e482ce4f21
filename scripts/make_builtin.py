"""Make the built-in data set: the first 600 training and 100 test images of each class of Fashion-MNIST.

    FEDGE_DATA=… python scripts/make_builtin.py

Images keep their original order, so the subset is a function of the official files alone. Prints the checksums that
`src/fedge/data/known.py` must carry.
"""

from __future__ import annotations

import gzip
import hashlib
import struct
from pathlib import Path

import numpy as np

from fedge.data.formats import IDX
from fedge.data.known import DATASETS
from fedge.data.sources import local

TARGET = Path(__file__).parents[1] / "src/fedge/data/builtin"


def main() -> None:
    arrays = local(DATASETS["fashion-mnist"])
    if arrays is None:
        raise SystemExit("run `fedge data get fashion-mnist` first")
    for part, count in (("train", 600), ("test", 100)):
        labels = arrays[f"y_{part}"]
        chosen = np.sort(np.concatenate([np.flatnonzero(labels == c)[:count] for c in range(10)]))
        for key in (f"x_{part}", f"y_{part}"):
            array = arrays[key][chosen]
            array = array[..., 0] if key.startswith("x") else array
            header = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
            # mtime=0: the same bytes whenever the script runs
            (TARGET / f"{IDX[key]}.gz").write_bytes(gzip.compress(header + array.tobytes(), 9, mtime=0))
            print(key, hashlib.sha256(array.tobytes()).hexdigest())


if __name__ == "__main__":
    main()
