"""Weights go to PyTorch and come from there: the same outputs on both sides.

python torch_weights.py write FOLDER      in fedge's environment: an MLP's and a CNN's weights in PyTorch's layouts
python torch_weights.py torch FOLDER      in PyTorch's (torch.txt, and safetensors): loads them into modules of its
                                          own, and saves others, newly drawn
python torch_weights.py read FOLDER       in fedge's: loads those, and prints the largest difference of outputs, of
                                          each model and way, as one JSON object
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

SHAPE, CLASSES = (28, 28, 1), 10
FLATTENED: dict[str, dict[str, tuple[int, int, int]] | None] = {"mlp": None, "cnn": {"fc1": (4, 4, 20)}}


def images() -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).normal(size=(32, *SHAPE)).astype(np.float32)


def outputs(name: str, weights: dict[str, Any]) -> np.ndarray[Any, Any]:
    """Compute what fedge's model of this name makes of the images."""
    import jax
    import jax.numpy as jnp

    from fedge.models import make

    given = {path: jnp.asarray(w) for path, w in weights.items()}
    return np.asarray(make(name, SHAPE, CLASSES)(given, jnp.asarray(images()), train=False, key=jax.random.key(0))[0])


def write(folder: Path) -> None:
    import jax

    import fedge
    from fedge.models import make

    for name, flattened in FLATTENED.items():
        model = make(name, SHAPE, CLASSES)
        weights = model.initialise(jax.random.key(1))
        theirs = fedge.weights_to_torch(weights, model, flattened=flattened)
        fedge.save_weights(folder / f"{name}.safetensors", theirs)
        np.save(folder / f"{name}.npy", outputs(name, weights))


def in_torch(folder: Path) -> None:
    import torch
    from safetensors.torch import load_file as load
    from safetensors.torch import save_file as save
    from torch import nn

    class MLP(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc1, self.fc2 = nn.Linear(784, 300), nn.Linear(300, CLASSES)

        def forward(self, x: Any) -> Any:
            return self.fc2(self.fc1(x.flatten(1)).relu())

    class CNN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.conv2 = nn.Conv2d(1, 10, 5), nn.Conv2d(10, 20, 5)
            self.fc1, self.fc2 = nn.Linear(320, 50), nn.Linear(50, CLASSES)

        def forward(self, x: Any) -> Any:
            x = nn.functional.max_pool2d(self.conv1(x), 2).relu()
            x = nn.functional.max_pool2d(self.conv2(x), 2).relu()
            return self.fc2(self.fc1(x.flatten(1)).relu())

    x, found = torch.from_numpy(images()).permute(0, 3, 1, 2), {}
    for name, kind in {"mlp": MLP, "cnn": CNN}.items():
        module = kind()
        module.load_state_dict(load(folder / f"{name}.safetensors"))
        found[name] = float(np.abs(module(x).detach().numpy() - np.load(folder / f"{name}.npy")).max())
        drawn = kind()
        save(drawn.state_dict(), folder / f"{name}-back.safetensors")
        save_file({"y": drawn(x).detach().numpy()}, folder / f"{name}-back-outputs.safetensors")
    (folder / "to.json").write_text(json.dumps(found | {"torch": torch.__version__}))


def read(folder: Path) -> None:
    import fedge
    from fedge.models import make

    back = {}
    for name, flattened in FLATTENED.items():
        theirs = fedge.load_weights(folder / f"{name}-back.safetensors")
        weights = fedge.weights_from_torch(theirs, make(name, SHAPE, CLASSES), flattened=flattened)
        expected = load_file(folder / f"{name}-back-outputs.safetensors")["y"]
        back[name] = float(np.abs(outputs(name, weights) - expected).max())
    print(json.dumps({"to torch": json.loads((folder / "to.json").read_text()), "from torch": back}))


if __name__ == "__main__":
    {"write": write, "torch": in_torch, "read": read}[sys.argv[1]](Path(sys.argv[2]))
