"""A tensor of a subclass stays of its class when it becomes a parameter, and is one."""

import copy

import pytest
import torch

import tangrad


def classes(t):
    return type("Named", (t.Tensor,), {}), type("Own", (t.nn.Parameter,), {})


def layer(t):
    made = t.nn.Linear(2, 2)
    named, _ = classes(t)
    made.weight = t.nn.Parameter(t.ones(2, 2).as_subclass(named))
    return made


def stepped(t):
    made = layer(t)
    optimizer = t.optim.SGD(made.parameters(), lr=0.1)
    made(t.ones(2)).sum().backward()
    optimizer.step()
    return type(made.weight).__name__, made.weight.tolist()


BEHAVIOURS = {
    "counts as a parameter": lambda t: isinstance(layer(t).weight, t.nn.Parameter),
    "a tensor of a subclass does not": lambda t: isinstance(
        t.ones(2).as_subclass(classes(t)[0]), t.nn.Parameter
    ),
    "a plain tensor does not": lambda t: isinstance(t.ones(2), t.nn.Parameter),
    "a parameter of another class does not": lambda t: isinstance(layer(t).weight, classes(t)[1]),
    "is registered": lambda t: [name for name, _ in layer(t).named_parameters()],
    "is saved": lambda t: sorted(layer(t).state_dict()),
    "is optimized": stepped,
    "is counted in lists": lambda t: len(list(t.nn.ParameterList([layer(t).weight]).parameters())),
    "shows": lambda t: str(t.nn.Parameter(t.ones(2).as_subclass(classes(t)[0]))),
}


@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_parameter_of_a_subclass(behaviour):
    call = BEHAVIOURS[behaviour]
    assert call(tangrad) == call(torch)


@pytest.mark.parametrize("t", [tangrad, torch], ids=["tangrad", "torch"])
def test_parameter_of_a_subclass_gives_way_to_parameters_only(t):
    made = layer(t)
    with pytest.raises(TypeError, match="cannot assign"):
        made.weight = t.ones(2)


def test_copy_of_a_parameter_of_a_subclass_is_one_too():
    assert isinstance(copy.deepcopy(layer(tangrad)).weight, tangrad.nn.Parameter)


SHOWN = {
    "tensor": lambda t: t.ones(2).__repr__(tensor_contents="..."),
    "subclass": lambda t: str(
        type(
            "Shown",
            (t.Tensor,),
            {"__repr__": lambda self: t.Tensor.__repr__(self, tensor_contents="...")},
        )([1.0])
    ),
}


@pytest.mark.parametrize("kind", SHOWN)
def test_repr_shows_given_contents_in_place_of_values(kind):
    assert SHOWN[kind](tangrad) == SHOWN[kind](torch)
