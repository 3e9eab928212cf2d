"""What is particular to this device: its kernels are compiled, and the host is never asked."""

import warnings

import pytest

import tangrad
from tangrad.plugin import FallbackWarning, get_driver


def test_a_network_trains_by_compiled_kernels_alone() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        model = tangrad.nn.Sequential(tangrad.nn.Linear(4, 8), tangrad.nn.Tanh()).to("plain_c")
        step = tangrad.optim.Adam(model.parameters())
        model(tangrad.ones(3, 4, device="plain_c")).sum().backward()
        step.step()
    assert model[0].weight.grad.device.type == "plain_c"


def test_an_index_out_of_bounds_is_told_with_its_bound() -> None:
    x = tangrad.arange(3.0, device="plain_c")
    with pytest.raises(IndexError, match="index 7 is out of bounds for dimension 0 with size 3"):
        x.index_select(0, tangrad.tensor([7], device="plain_c"))


def test_what_the_compiler_refuses_is_told_in_its_words() -> None:
    with pytest.raises(RuntimeError, match="refused"):
        get_driver("plain_c").compile("int f(", "")


def test_memory_that_nobody_has_is_refused() -> None:
    with pytest.raises(tangrad.OutOfMemoryError):
        tangrad.empty(2**60, dtype=tangrad.uint8, device="plain_c")
