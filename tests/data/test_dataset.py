"""What would train wrongly without a word is refused when the data set is made."""

import tracemalloc

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedge.core.client import normalise
from fedge.data import Dataset
from fedge.data.dataset import MOST_CLASSES
from fedge.errors import DataError

GOOD = {"x_train": np.zeros((2, 4, 3, 1)), "y_train": [0, 1], "x_test": np.zeros((1, 4, 3, 1)), "y_test": [1]}
SHAPE = GOOD["x_train"].shape


def with_value(value):
    images = np.zeros(SHAPE)
    images[1, 2, 0, 0] = value
    return {"x_train": images}


def both(train, test=None):
    return {"x_train": train, "x_test": train[:1] if test is None else test}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (with_value(np.nan), "train images have 1 values that are NaN.*first in image 1"),
        (with_value(np.inf), "NaN, infinite"),
        (with_value(-np.inf), "NaN, infinite"),
        (with_value(1e300), "beyond a float32"),
        ({"x_test": np.full((1, 4, 3, 1), np.nan, np.float16)}, "test images have 12 values"),
        ({"x_test": np.full((1, 4, 3, 1), np.inf, np.float16)}, "test images have 12 values"),
        (both(jnp.full(SHAPE, jnp.nan, jnp.bfloat16)), "NaN"),
        (both(np.zeros(SHAPE, object)), "of type object"),
        (both(np.full(SHAPE, "a")), "of type <U1"),
        (both(np.zeros(SHAPE, complex)), "of type complex128"),
        (both(np.zeros(SHAPE, np.longdouble)), "of type .*; give bytes"),
        (both(np.zeros(SHAPE, "M8[s]")), "of type datetime64"),
        ({"x_train": [[1, 2], [3]]}, "cannot be made one array"),
        ({"x_train": np.ma.masked_array(np.zeros(SHAPE), mask=True)}, "masked values"),
        (both(np.broadcast_to(np.uint8(0), (2**31, 4))), "train images are 2,147,483,648; at most 2,147,483,647"),
        ({"y_train": np.broadcast_to(np.uint8(0), 2**31)}, "train labels are 2,147,483,648"),
        (both(np.zeros((2, 4, 0, 1))), "holds no values"),
        ({"x_train": np.zeros((0, 4, 3, 1)), "y_train": []}, "train images are empty"),
        ({"x_train": 3}, "train images are empty"),
        (both(np.full(SHAPE, 256)), "int64 from 256 to 256, and pixels must fit bytes"),
        (both(np.full(SHAPE, -1, np.int8)), "pixels must fit bytes"),
        (both(np.full((2, 3), 2**31)), "must fit 32 bits"),
        (both(np.full((2, 3), 2**63, np.uint64)), "must fit 32 bits"),
        ({"x_train": np.zeros(SHAPE, np.uint8)}, r"train images are bytes \(uint8\) and test images are floats"),
        ({"x_train": np.zeros(SHAPE, bool)}, "train images are booleans"),
        ({"x_test": np.zeros((1, 5))}, "differ in shape"),
        ({"y_train": [0]}, "one label per image"),
        ({"y_train": [[0], [1]]}, r"one label per image.*reshape\(-1\)"),
        ({"y_train": np.eye(2, dtype=int)}, r"one label per image.*argmax\(1\)"),
        ({"y_train": []}, "train labels are empty"),
        ({"y_train": [0, -1]}, "integers from 0"),
        ({"y_train": [-1, -2], "y_test": [-1]}, "integers from 0"),
        ({"y_train": [0.5, 1.0]}, "integers from 0, not float64"),
        ({"y_train": ["cat", "dog"]}, "integers from 0, not <U3; number the classes"),
        ({"y_train": np.array([0, 1], object)}, "integers from 0, not object"),
        ({"y_train": [True, False]}, "integers from 0, not bool"),
        ({"y_train": [0, 2**31]}, "2,147,483,649 outputs"),
        ({"y_train": np.array([0, 2**63], np.uint64)}, "9,223,372,036,854,775,809 outputs"),
        ({"y_train": [0, 2**30]}, "1,073,741,825 outputs"),
        ({"classes": MOST_CLASSES + 1}, "1,000,001 outputs"),
        ({"classes": 1}, "does not fit classes=1"),
        ({"classes": -1}, "classes=-1 is not a number of classes"),
        ({"classes": 0, "y_train": [0.5, np.nan]}, "train targets must be finite real numbers where classes=0"),
        ({"classes": 0, "y_train": [0.5, 1e300]}, "must be finite real numbers"),
        ({"classes": 0, "y_train": ["cat", "dog"]}, "must be finite real numbers"),
        ({"classes": 0, "y_train": [[0.5], [1.0]]}, "differ in shape"),
        ({"class_names": ["cat"]}, "1 class_names do not fit 2 classes"),
        ({"client": [0]}, "client has 1 entries, and there are 2 training samples"),
        ({"client": [0, 2]}, "leaves client|clients up to 2"),
        ({"classes": True}, "classes=True"),
        ({"classes": 2.5}, "classes=2.5"),
        ({"scale": ((0.0,), (0.0,))}, "deviations above 0"),
        ({"scale": ((0.0,), (-1.0,))}, "deviations above 0"),
        ({"scale": ((0.0,), (np.nan,))}, "deviations above 0"),
        ({"scale": ((0.0,), (np.inf,))}, "deviations above 0"),
        ({"scale": ((0.0,), (1e-45,))}, "deviations above 0"),
        ({"scale": ((0.0,), (1e-38,))}, "deviations above 0"),
        ({"scale": ((np.nan,), (1.0,))}, "means must be finite"),
        ({"scale": ((1e300,), (1.0,))}, "means must be finite"),
        (with_value(1e38) | {"scale": ((0.0,), (1e-3,))}, "would not give finite numbers"),
        ({"scale": ((0.0, 0.0), (1.0, 1.0))}, "2 means and 2 deviations for 1 channels"),
        ({"scale": ((), ())}, "0 means"),
        ({"scale": 5}, "scale=5 is not"),
        ({"scale": ((0.0,), ("wide",))}, "one number per channel"),
        ({"scale": ((0.0,), (10**400,))}, "one number per channel"),
        (both(np.zeros((2, 3), int)) | {"scale": ((0.0,), (2.0,))}, "no meaning for integers"),
    ],
)
def test_arrays_that_do_not_fit(change, message):
    with pytest.raises(DataError, match=message):
        Dataset.of(**(GOOD | change))


NUMBERS = st.floats(width=32) | st.sampled_from([0.0, 1.0, 1e-38, 1e-30, 3e38, -3e38, 3.4e38])
TYPES = ("uint8", "bool", "float16", "float32", "float64")


@given(st.sampled_from(TYPES), st.lists(NUMBERS, min_size=4, max_size=4), NUMBERS, NUMBERS)
@settings(max_examples=100)
def test_what_is_accepted_becomes_finite_numbers(kind, values, mean, deviation):
    """As a model sees them, in single precision and in half."""
    with np.errstate(all="ignore"):
        images = np.array(values).reshape(2, 1, 2, 1).astype(kind)
    try:
        data = Dataset.of(images, [0, 1], images, [1, 0], scale=((mean,), (deviation,)))
    except DataError:
        return
    for dtype in (jnp.float32, jnp.bfloat16):
        assert np.isfinite(normalise(jnp.asarray(data.x_train), data.scale, dtype)).all()


def test_nothing_gets_past_the_checks_by_another_way():
    data = Dataset.of(**GOOD)
    with pytest.raises(DataError, match="NaN"):
        Dataset("mine", np.full(SHAPE, np.nan), data.y_train, data.x_test, data.y_test, 2)
    with pytest.raises(DataError, match="deviations above 0"):
        Dataset("mine", data.x_train, data.y_train, data.x_test, data.y_test, 2, ((0.0,), (0.0,)))


def test_integers_as_images_are_pixels_and_otherwise_stay():
    """Token ids keep their type: a model looks them up."""
    pixels = Dataset.of(**(GOOD | both(np.full(SHAPE, 200), np.full((1, 4, 3, 1), 7, np.uint8))))
    assert pixels.x_train.dtype == pixels.x_test.dtype == np.uint8
    assert (pixels.x_train == 200).all()
    for kind in (np.int64, np.int32, np.uint16):
        tokens = Dataset.of(**(GOOD | both(np.full((2, 5), 999, kind))))
        assert tokens.x_train.dtype == kind


@pytest.mark.parametrize("kind", ["<f4", ">f4", ">f8", "f2", "?", "u1"])
def test_types_that_a_model_takes(kind):
    data = Dataset.of(**(GOOD | both(np.ones(SHAPE, kind))), scale=[0.5, 0.25])
    assert data.x_train.dtype.isnative
    assert (data.x_train == 1).all()
    assert data.scale == ((0.5,), (0.25,))
    assert hash(data.scale)


def test_checking_takes_no_memory_of_the_size_of_the_data():
    images = np.zeros((4000, 1000), np.float32)
    labels = np.zeros(4000, np.int64)
    tracemalloc.start()
    data = Dataset.of(images, labels, images[:1], labels[:1])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert data.x_train is images
    assert peak < 10**6
