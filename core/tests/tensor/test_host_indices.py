"""The host's memory is one: an index names nothing there, and tensors say so, as PyTorch's do."""

import copy
import io
import pickle

import pytest
import torch

import tangrad

NAMES = ["cpu:0", "cpu:1", "meta:0"]


def saved(lib, x):
    buffer = io.BytesIO()
    lib.save(x, buffer)
    buffer.seek(0)
    return lib.load(buffer)


def in_place_of_default(lib, name):
    with lib.device(name):
        return lib.ones(1)


PLACED = {
    "zeros": lambda lib, name: lib.zeros(1, device=name),
    "zeros of a device": lambda lib, name: lib.zeros(1, device=lib.device(name)),
    "tensor": lambda lib, name: lib.tensor([1.0], device=name),
    "as_tensor": lambda lib, name: lib.as_tensor(lib.ones(1), device=name),
    "rand": lambda lib, name: lib.rand(1, device=name),
    "randperm": lambda lib, name: lib.randperm(3, device=name),
    "to": lambda lib, name: lib.ones(1).to(name),
    "to of a dtype": lambda lib, name: lib.ones(1).to(name, lib.float64),
    "to like another": lambda lib, name: lib.ones(1).to(lib.ones(1, device=name)),
    "empty_like": lambda lib, name: lib.empty_like(lib.ones(1, device=name)),
    "zeros_like": lambda lib, name: lib.zeros_like(lib.ones(1), device=name),
    "new_zeros": lambda lib, name: lib.ones(1).new_zeros(2, device=name),
    "+": lambda lib, name: lib.ones(1, device=name) + lib.ones(1, device=name),
    "a storage": lambda lib, name: lib.ones(1, device=name).untyped_storage(),
    "a module": lambda lib, name: lib.nn.Linear(1, 1).to(name).weight,
    "to_empty": lambda lib, name: lib.nn.Linear(1, 1).to_empty(device=name).weight,
    "with device": in_place_of_default,
    "save and load": lambda lib, name: saved(lib, lib.ones(1, device=name)),
    "pickle": lambda lib, name: pickle.loads(pickle.dumps(lib.ones(1, device=name))),
    "deepcopy": lambda lib, name: copy.deepcopy(lib.ones(1, device=name)),
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("made", PLACED)
def test_what_is_placed_by_an_index_says_none(made, name):
    there = PLACED[made](tangrad, name).device
    assert repr(there) == repr(PLACED[made](torch, name).device)
    assert there.index is None


@pytest.mark.parametrize("name", NAMES)
def test_a_device_keeps_its_index(name):
    for lib in (tangrad, torch):
        named = lib.device(name)
        assert (str(named), named.index) == (name, int(name[-1]))
        assert named != lib.device(named.type)
        assert lib.zeros(1, device=name).device != named
        assert lib.zeros(1, device=name).get_device() == -1


def test_to_an_index_copies_and_cpu_does_not():
    for lib in (tangrad, torch):
        x = lib.ones(2)
        assert x.to("cpu:0") is not x
        assert x.to("cpu") is x
        assert x.to("cpu:0").cpu().device == x.device
        assert (x.to("cpu:1") + x).tolist() == [2.0, 2.0]


def test_random_numbers_are_of_one_generator():
    for lib in (tangrad, torch):
        assert lib.Generator("cpu:0").device == lib.device("cpu")
        lib.manual_seed(3)
        wanted = [lib.rand(2).tolist() for _ in range(3)]
        lib.manual_seed(3)
        drawn = [lib.rand(2, device="cpu:0").tolist(), lib.rand(2).tolist()]
        with lib.device("cpu:1"):
            drawn.append(lib.rand(2).tolist())
        assert drawn == wanted
