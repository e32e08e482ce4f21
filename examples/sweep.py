"""A sweep: two learning rates over three seeds, as a table of means with intervals and a figure with bands.

    .venv/bin/python examples/sweep.py

From the command line, on built-in data, such a sweep is

    fedge sweep hierfavg lr=0.02,0.1,0.5 --seeds 3

Programs of one shape are compiled once; a sweep that is killed goes on with fedge sweep --resume FOLDER.
"""

import numpy as np

import fedge
from fedge.view.overlay import overlay
from fedge.view.selected import select


def blobs(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw points about the corners of a square, a class for each corner."""
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 4, count)
    corners = np.array([[-1, -1], [-1, 1], [1, -1], [1, 1]])
    return (corners[label] + rng.normal(0, 0.45, (count, 2))).astype(np.float32)[..., None, None], label


def main() -> None:
    data = fedge.Dataset.of(*blobs(600, seed=1), *blobs(300, seed=2), name="blobs")
    done = fedge.sweep(
        "hierfavg", dataset=data, lr=[0.02, 0.5], seeds=3, clients=6, cells=3, partition="iid", rounds=4,
        local_steps=2, edge_rounds=2, batch=20, listener=[],
    )  # fmt: skip
    for line in done.table:
        found = line.columns["accuracy"]
        print(f"lr {line.setting['lr']:<5} accuracy {found.mean:.1%}, give or take {100 * found.half:.1f} points")
    overlay(select([done.out]), x="bytes").savefig(done.out / "bytes.svg")
    print(f"{len(done.outcomes)} runs and bytes.svg in {done.out}")


if __name__ == "__main__":
    main()
