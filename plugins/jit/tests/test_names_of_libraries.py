"""Names of PyTorch's front end that libraries import and call."""

from __future__ import annotations

import warnings

import pytest

import tangrad
from tangrad._dynamo.utils import is_compile_supported, preserve_rng_state, warn_once


def test_warn_once_warns_once_at_the_caller_s_line():
    with pytest.warns(UserWarning, match="a text of this test") as caught:
        warn_once("a text of this test")
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_once("a text of this test")


def test_devices_that_are_there_can_be_compiled_for():
    assert is_compile_supported("cpu")
    assert is_compile_supported("cuda") == tangrad.cuda.is_available()


def test_random_numbers_are_left_as_they_were():
    tangrad.manual_seed(2)
    with preserve_rng_state():
        first = tangrad.rand(3)
    assert tangrad.equal(tangrad.rand(3), first)
