"""This is ResNet-18 for 32 × 32 images in PyTorch, its layers named as fedge names them."""

from functools import partial

import torch
from torch import nn
from torch.nn.functional import relu

norm = partial(nn.BatchNorm2d, track_running_stats=False)


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = norm(outputs), norm(outputs)
        self.projects = stride != 1 or inputs != outputs
        if self.projects:
            self.shortcut, self.shortcut_norm = nn.Conv2d(inputs, outputs, 1, stride, bias=False), norm(outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        stream = self.shortcut_norm(self.shortcut(x)) if self.projects else x
        return relu(stream + self.norm2(self.conv2(relu(self.norm1(self.conv1(x))))))


class ResNet18(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.stem_norm = nn.Conv2d(3, 64, 3, 1, 1, bias=False), norm(64)
        self.layer1 = nn.Sequential(Block(64, 64, 1), Block(64, 64, 1))
        self.layer2 = nn.Sequential(Block(64, 128, 2), Block(128, 128, 1))
        self.layer3 = nn.Sequential(Block(128, 256, 2), Block(256, 256, 1))
        self.layer4 = nn.Sequential(Block(256, 512, 2), Block(512, 512, 1))
        self.fc = nn.Linear(512, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = relu(self.stem_norm(self.stem(x)))
        for layer in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = layer(x)
        return self.fc(x.mean((2, 3)))
