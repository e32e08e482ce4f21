"""The colours of series are told apart by everybody, and seen on their paper."""

import itertools
import re
from importlib import resources

import numpy as np
import pytest

# Machado, Oliveira and Fernandes (2009), severity 1: what is seen, in linear RGB, where one kind of cone is missing.
SEEN_BY = {
    "all cones": np.eye(3),
    "no red": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "no green": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "no blue": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])  # of sRGB
WHITE = np.array([0.9505, 1, 1.089])
APART = 12  # CIE76: 2.3 is just noticed side by side; thin lines need more
CONTRAST = 3  # WCAG 2.1, 1.4.11, graphical objects


def linear(colour):
    value = np.array([int(colour[n : n + 2], 16) for n in (1, 3, 5)]) / 255
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def lab(rgb):
    f = XYZ @ np.clip(rgb, 0, 1) / WHITE
    x, y, z = np.where(f > 0.008856, np.cbrt(f), 7.787 * f + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def light(colour):
    return XYZ[1] @ linear(colour) + 0.05


@pytest.mark.parametrize("paper", [0, 1], ids=["light", "dark"])
def test_series_are_told_apart(paper):
    style = resources.files("fedge.view.page").joinpath("page.css").read_text()
    block = re.findall(r"--paper: #[^}]*", style)[paper]
    found = dict(re.findall(r"--(\w+): (#\w{6})", block))
    series = [found[f"s{n}"] for n in range(8)]
    for colour in series:
        bright, dim = sorted([light(colour), light(found["paper"])], reverse=True)
        assert bright / dim >= CONTRAST, colour
    for cones in SEEN_BY.values():
        seen = [lab(np.array(cones) @ linear(colour)) for colour in series]
        assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)) >= APART
