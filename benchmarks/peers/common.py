"""The scripts of the other simulators share this: the workload file, the PyTorch network and the printed result.

Needs NumPy only; the functions that hand out PyTorch objects import it themselves, since not every peer has it.
"""

from __future__ import annotations

import functools
import json
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch
    from torch import nn

STEPS = {"mlp": 40, "cnn": 5, "resnet": 5}  # local steps per round
LR = 0.01
LAYERS = {
    "mlp": {"fc1": "1", "fc2": "3"},
    "cnn": {"conv1": "0", "conv2": "3", "fc1": "7", "fc2": "9"},
}


@dataclass(frozen=True)
class Workload:
    name: str
    path: Path
    x: np.ndarray  # samples × rows × columns × channels
    y: np.ndarray
    indices: np.ndarray  # clients × rounds × steps × batch
    weight: np.ndarray
    start: dict[str, np.ndarray]  # by fedge's path, layer/kernel or layer/bias

    @property
    def clients(self) -> int:
        return len(self.indices)

    @property
    def rounds(self) -> int:
        return self.indices.shape[1]

    def require_equal_weights(self) -> None:
        """Refuse other weights, for the simulators that can weigh clients by their number of samples only."""
        if not np.allclose(self.weight, 1 / self.clients):
            raise ValueError("this script is for clients of equal weight")


def read(*arguments: str) -> Workload:
    """Read the workload with this name and file, or that of the command line."""
    name, path = arguments or sys.argv[1:3]
    file = np.load(path)
    clients, steps, batch = file["indices"].shape
    indices = file["indices"].reshape(clients, steps // STEPS[name], STEPS[name], batch)
    start = {key[2:]: file[key] for key in file.files if key.startswith("w:")}
    return Workload(name, Path(path), file["x"], file["y"], indices, file["weight"], start)


def to_torch(weights: dict[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    """Turn NHWC and (in, out) into NCHW and (out, in); fc1 of the CNN reads its inputs channel by channel."""
    state = {}
    for path, value in weights.items():
        layer, kind = path.replace("/", ".").rsplit(".", 1)
        if kind == "kernel":
            if name == "cnn" and layer == "fc1":
                value = value.reshape(4, 4, 20, 50).transpose(2, 0, 1, 3).reshape(320, 50)
            value = value.transpose(3, 2, 0, 1) if value.ndim == 4 else value.T
        layer = LAYERS[name][layer] if name in LAYERS else layer
        state[f"{layer}.{'bias' if kind == 'bias' else 'weight'}"] = np.ascontiguousarray(value)
    return state


def network(work: Workload) -> nn.Module:
    """Make the PyTorch network with the initial weights."""
    import torch
    from torch import nn

    model: nn.Module
    if work.name == "resnet":
        from resnet import ResNet18

        model = ResNet18()
    elif work.name == "mlp":
        model = nn.Sequential(nn.Flatten(), nn.Linear(784, 300), nn.ReLU(), nn.Linear(300, 10))
    else:
        model = nn.Sequential(
            nn.Conv2d(1, 10, 5), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(10, 20, 5), nn.MaxPool2d(2), nn.ReLU(),
            nn.Flatten(), nn.Linear(320, 50), nn.ReLU(), nn.Linear(50, 10),
        )  # fmt: skip
    model.load_state_dict({k: torch.tensor(v) for k, v in to_torch(work.start, work.name).items()})
    return model


def tensors(work: Workload) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return x in NCHW, y and the indices (clients × rounds × steps × batch)."""
    import torch

    x = torch.tensor(work.x).permute(0, 3, 1, 2).contiguous()
    return x, torch.tensor(work.y).long(), torch.tensor(work.indices).long()


@functools.cache
def torch_workload(name: str, path: str) -> tuple[Workload, nn.Module, tuple[torch.Tensor, ...]]:
    """This is everything a worker process of a PyTorch peer needs, read once per process; one thread from then on."""
    import torch

    torch.set_num_threads(1)
    work = read(name, path)
    return work, network(work), tensors(work)


def report(work: Workload, seconds: list[float], final: dict[str, Any], loss: float | None, *packages: str) -> None:
    """Print the JSON object. `final` has fedge's paths or PyTorch's names; `seconds` one entry per round."""
    ours = dict(np.load(work.path.with_suffix(".fedge.npz")))
    expected = ours if ours.keys() == final.keys() else to_torch(ours, work.name)
    apart = max(float(np.abs(np.asarray(final[key]) - value).max()) for key, value in expected.items())
    assert len(seconds) == work.rounds
    assert len(final) == len(expected)
    steady = work.clients * STEPS[work.name] * (work.rounds - 1) / sum(seconds[1:])
    print(json.dumps({"steps_per_second": steady, "train_loss": loss, "largest_difference": apart,
                      "versions": {package: version(package) for package in packages}}))  # fmt: skip
