"""This table says what the data sets are that fedge knows, and by what their arrays are recognised anywhere."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from fedge.core.client import Scale
from fedge.data.formats import IDX, Arrays, Shapes
from fedge.errors import DataError


@dataclass(frozen=True)
class Source:
    """A source is a known data set; `digest` holds the SHA-256 of each decoded array's bytes."""

    name: str
    title: str
    shape: tuple[int, int, int]
    samples: tuple[int, int]
    scale: Scale
    digest: dict[str, str]

    @property
    def shapes(self) -> Shapes:
        train, test = self.samples
        return {"x_train": (train, *self.shape), "y_train": (train,), "x_test": (test, *self.shape), "y_test": (test,)}


DATASETS: dict[str, Source] = {
    s.name: s
    for s in (
        Source(
            "fashion-mini", "balanced part of Fashion-MNIST", (28, 28, 1), (6000, 1000),
            ((0.5,), (0.5,)),
            {
                "x_train": "2b17438af55637db62c122a92490b5b4275bed5719a838b5b0486ea2193a98a4",
                "y_train": "f16e201ddc15b401c509545575d23793b230f5735ae378c1ced3a6156cb72251",
                "x_test": "3d7f6d64869a3f2d1afe64ae33ffb9b20670a91b31e3bbf0657e3999ec7b35cf",
                "y_test": "6b25654537ff83dd6c40fe0a122c7778d8219b2a88ff02c36dbdd21152fdb075",
            },
        ),
        Source(
            "mnist", "handwritten digits", (28, 28, 1), (60000, 10000), ((0.1307,), (0.3081,)),
            {
                "x_train": "741c988805d008ac6e4c904b69001ba184c24b2c540a4ef403f4c71b676cf757",
                "y_train": "1feba77c54802fa5339a11837ea4b2866434b83314ec45192930f1df69120c13",
                "x_test": "6d87418db22cc8025d05968bec9bd5c3932904b23485740db143a061a2c9d161",
                "y_test": "ddeff807876a9661a1110d45c266c86239a3a1b7d37da0c3716a7a683c852ff5",
            },
        ),
        Source(
            "fashion-mnist", "articles of clothing", (28, 28, 1), (60000, 10000), ((0.5,), (0.5,)),
            {
                "x_train": "2e487a6c89124f78f2d7521542223cafe96f7123c3ca13d447772ac6ecbb3012",
                "y_train": "657fbd221bfc9f4198cc14b5619cc33ec57c58dd0e47af4d99d6650759e869a7",
                "x_test": "c867c93ff95360594e8ec3287995350b824dd110b11595c0e13d5423f621867a",
                "y_test": "3d0e6c6ea990b53b6f8f500a41cac93881d981b315f84578b7d915342ade01e9",
            },
        ),
        Source(
            "cifar10", "small colour photographs", (32, 32, 3), (50000, 10000),
            ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
            {
                "x_train": "47af8b02cfcfb6cdf3dbbd1969ad7f1b70f4413f6f80f437b020ee4e5bc8304a",
                "y_train": "2b7cd2f24487317614016b72ffd53071c3062f592f0eb300c18a770d41ae1253",
                "x_test": "f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04",
                "y_test": "cec8a24a1e92aa2ecaa0bbd3dbfa86bf6cd8759fbd209a832824c8cf0afca9d5",
            },
        ),
    )
}  # fmt: skip


def verify(source: Source, arrays: Arrays, place: str) -> Arrays:
    """Return these arrays if they are those of the set, in type, shape and content."""
    for key, shape in source.shapes.items():
        array = arrays[key]
        if array.dtype != np.uint8 or array.shape != shape:
            raise DataError(
                f"{key} of {source.name} from {place} is {array.dtype} {array.shape} instead of uint8 {shape}; "
                f"delete it there and run `fedge data get {source.name}`"
            )
        if hashlib.sha256(np.ascontiguousarray(array).data).hexdigest() != source.digest[key]:
            raise DataError(
                f"{key} of {source.name} from {place} does not have the expected checksum "
                f"({IDX[key]} if it is an idx file); delete it there and run `fedge data get {source.name}`"
            )
    return arrays
