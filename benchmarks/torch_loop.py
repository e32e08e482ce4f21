"""FedAvg as a plain PyTorch loop over clients: same data, initial weights and sample indices as fedge's run.

    python benchmarks/torch_loop.py mlp|cnn FILE.npz     one thread; prints one JSON object

Runs in an environment of its own. Batches are slices of ready-made float tensors, which is the kindest case for it.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

torch.set_num_threads(1)
STEPS = {"mlp": 40, "cnn": 5}
LR = 0.01


def network(name: str) -> nn.Sequential:
    if name == "mlp":
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 300), nn.ReLU(), nn.Linear(300, 10))
    return nn.Sequential(
        nn.Conv2d(1, 10, 5), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(10, 20, 5), nn.MaxPool2d(2), nn.ReLU(),
        nn.Flatten(), nn.Linear(320, 50), nn.ReLU(), nn.Linear(50, 10),
    )  # fmt: skip


LAYERS = {
    "mlp": {"fc1": "1", "fc2": "3"},
    "cnn": {"conv1": "0", "conv2": "3", "fc1": "7", "fc2": "9"},
}


def from_fedge(path: str, value: np.ndarray, name: str) -> tuple[str, torch.Tensor]:
    """NHWC and (in, out) become NCHW and (out, in); fc1 of the CNN reads its inputs channel by channel."""
    layer, kind = path.split("/")
    tensor = torch.tensor(value)
    if kind == "kernel":
        if name == "cnn" and layer == "fc1":
            tensor = tensor.reshape(4, 4, 20, 50).permute(2, 0, 1, 3).reshape(320, 50)
        tensor = tensor.permute(3, 2, 0, 1) if tensor.ndim == 4 else tensor.T
    return f"{LAYERS[name][layer]}.{'weight' if kind == 'kernel' else 'bias'}", tensor.contiguous()


def main() -> None:
    name, path = sys.argv[1], Path(sys.argv[2])
    file = np.load(path)
    x, y = torch.tensor(file["x"]).permute(0, 3, 1, 2).contiguous(), torch.tensor(file["y"]).long()
    indices, weight = torch.tensor(file["indices"]).long(), file["weight"]
    state = dict(from_fedge(k[2:], file[k], name) for k in file.files if k.startswith("w:"))
    model, steps = network(name), STEPS[name]
    rounds, seconds = indices.shape[1] // steps, []
    for r in range(rounds):
        began = time.perf_counter()
        total = {k: torch.zeros_like(v) for k, v in state.items()}
        mean_loss = 0.0
        for i in range(len(indices)):
            model.load_state_dict(state)
            optimiser = torch.optim.SGD(model.parameters(), lr=LR)
            for step in range(steps):
                index = indices[i, r * steps + step]
                optimiser.zero_grad()
                loss = cross_entropy(model(x[index]), y[index])
                loss.backward()
                optimiser.step()
                mean_loss += float(weight[i]) * loss.item() / steps
            with torch.no_grad():
                for k, v in model.state_dict().items():
                    total[k] += float(weight[i]) * v
        state = total
        seconds.append(time.perf_counter() - began)
    ours = np.load(path.with_suffix(".fedge.npz"))
    expected = dict(from_fedge(k, ours[k], name) for k in ours.files)
    apart = max(float((state[k] - expected[k]).abs().max()) for k in state)
    steady = len(indices) * steps * (rounds - 1) / sum(seconds[1:])
    print(json.dumps({"steps_per_second": steady, "train_loss": mean_loss, "largest_difference": apart,
                      "torch": torch.__version__}))  # fmt: skip


if __name__ == "__main__":
    main()
