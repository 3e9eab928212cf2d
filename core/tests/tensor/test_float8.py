"""The 8-bit floats: codes, values, limits, compared with torch for every code and around each."""

import numpy as np
import pytest
import torch

import tangrad
from tangrad.tensor.float8 import FORMATS

BYTES = np.arange(256, dtype=np.uint8)


@pytest.mark.parametrize("name", FORMATS)
def test_every_code_and_every_rounding_is_that_of_torch(name):
    ours, theirs = getattr(tangrad, name), getattr(torch, name)
    decoded = torch.from_numpy(BYTES).view(theirs).float().numpy()
    np.testing.assert_array_equal(
        tangrad.from_numpy(BYTES).view(ours).float().numpy(), decoded, strict=True
    )
    values = np.unique(decoded[np.isfinite(decoded)])
    midpoints = (values[1:] + values[:-1]) / 2
    beyond = np.float32([np.inf, np.nan, 1e-9, 448, 464, 465, 480, 61439, 61440, 1e9])
    numbers = np.concatenate(
        [values, midpoints, np.nextafter(midpoints, np.inf), beyond, -beyond], dtype=np.float32
    )
    encoded = tangrad.from_numpy(numbers).to(ours).view(tangrad.uint8).numpy()
    expected = torch.from_numpy(numbers).to(theirs).view(torch.uint8).numpy()
    np.testing.assert_array_equal(encoded, expected, strict=True)


@pytest.mark.parametrize("name", FORMATS)
def test_limits_are_those_of_torch(name):
    ours, theirs = tangrad.finfo(getattr(tangrad, name)), torch.finfo(getattr(torch, name))
    for limit in ("bits", "eps", "max", "min", "tiny", "smallest_normal", "resolution"):
        assert getattr(ours, limit) == getattr(theirs, limit)
