"""States of optimizers by names: what is missing from one is told, or kept as it was."""

import pytest

import tangrad
from tangrad import nn
from tangrad.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_optimizer_state_dict,
    set_state_dict,
)

FLAT = StateDictOptions(flatten_optimizer_state_dict=True)
OPTIMIZERS = {
    "Adam": (lambda p: tangrad.optim.Adam(p, lr=0.1), "exp_avg"),
    "momentum": (lambda p: tangrad.optim.SGD(p, lr=0.1, momentum=0.9), "momentum_buffer"),
    "RMSprop": (lambda p: tangrad.optim.RMSprop(p, lr=0.1), "square_avg"),
}


def network(make, steps=1, frozen=False, tied=False):
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[0].bias.requires_grad_(not frozen)
    if tied:
        model[1].weight = model[0].weight
    optimizer = make(list(model.parameters()))
    for _ in range(steps):
        model(tangrad.ones(1, 2)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model, optimizer


def load(state, make, **options):
    model, optimizer = network(make, steps=0)
    set_optimizer_state_dict(model, optimizer, state, options=StateDictOptions(**options))
    return model, optimizer


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("whole", [True, False])
def test_a_flat_state_that_lacks_entries_of_a_parameter_is_refused(name, whole):
    make, entry = OPTIMIZERS[name]
    state = get_optimizer_state_dict(*network(make), options=FLAT)
    lost = "state.0.weight." + ("" if whole else entry)
    left = {key: value for key, value in state.items() if not key.startswith(lost)}
    assert len(left) < len(state)
    with pytest.raises(RuntimeError, match=f"'0.weight' in checkpoint, entries .*{entry}"):
        load(left, make, flatten_optimizer_state_dict=True)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_without_strict_entries_that_are_missing_stay_what_they_were(name):
    make, entry = OPTIMIZERS[name]
    state = get_optimizer_state_dict(*network(make), options=FLAT)
    del state[f"state.0.weight.{entry}"]
    model, optimizer = load(state, make, strict=False)
    held = optimizer.state[model[0].weight].get(entry)
    assert held is None or held.tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert tangrad.equal(optimizer.state[model[0].bias][entry], state[f"state.0.bias.{entry}"])
    model(tangrad.ones(1, 2)).sum().backward()
    optimizer.step()


def test_options_that_are_missing_are_told():
    make, _ = OPTIMIZERS["Adam"]
    model, optimizer = network(make)
    flat = get_optimizer_state_dict(model, optimizer, options=FLAT)
    with pytest.raises(KeyError, match=r"param_groups\.0\.weight\.lr"):
        load({key: one for key, one in flat.items() if not key.endswith(".lr")}, make)
    nested = get_optimizer_state_dict(model, optimizer)
    with pytest.raises(KeyError, match="no group of the optimizer's state has"):
        load({**nested, "param_groups": []}, make)
    with pytest.raises(RuntimeError, match="optim state_dict is empty"):
        load({}, make)


def test_a_frozen_parameter_needs_no_state():
    make, _ = OPTIMIZERS["Adam"]
    model, optimizer = network(make, frozen=True)
    state = get_optimizer_state_dict(model, optimizer, options=FLAT)
    assert not [key for key in state if key.startswith("state.0.bias")]
    set_optimizer_state_dict(model, optimizer, state, options=FLAT)
    assert model[0].bias not in optimizer.state


@pytest.mark.parametrize("flat", [True, False])
def test_a_tied_parameter_is_found_by_any_of_its_names(flat):
    make, entry = OPTIMIZERS["Adam"]
    options = StateDictOptions(flatten_optimizer_state_dict=flat)
    model, optimizer = network(make, tied=True)
    state = get_optimizer_state_dict(model, optimizer, options=options)
    renamed = _renamed(state, "0.weight", "1.weight")
    other, fresh = network(make, steps=0, tied=True)
    set_optimizer_state_dict(other, fresh, renamed, options=options)
    held = optimizer.state[model[0].weight][entry]
    assert tangrad.equal(fresh.state[other[0].weight][entry], held)


def _renamed(state, old, new):
    if isinstance(state, dict):
        return {key.replace(old, new): _renamed(value, old, new) for key, value in state.items()}
    if isinstance(state, list):
        return [_renamed(one, old, new) for one in state]
    return state.replace(old, new) if isinstance(state, str) else state


def test_what_is_not_the_models_is_told():
    make, _ = OPTIMIZERS["Adam"]
    model, optimizer = network(make)
    with pytest.raises(KeyError, match="is not in the model"):
        get_optimizer_state_dict(nn.Linear(1, 1), optimizer)
    with pytest.raises(RuntimeError, match="Optimizers are not passed in"):
        get_optimizer_state_dict(model, [])


def test_names_of_a_submodule_may_go_without_its_own():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    short = StateDictOptions(keep_submodule_prefixes=False)
    assert list(get_model_state_dict(model, submodules={model[1]})) == ["1.weight", "1.bias"]
    assert list(get_model_state_dict(model, submodules={model[1]}, options=short)) == [
        "weight",
        "bias",
    ]


def test_optimizers_alone_are_loaded_where_there_is_no_state_of_the_model():
    make, entry = OPTIMIZERS["Adam"]
    state = get_optimizer_state_dict(*network(make))
    model, optimizer = network(make, steps=0)
    found = set_state_dict(model, optimizer, model_state_dict={}, optim_state_dict=state)
    assert (found.missing_keys, found.unexpected_keys) == ([], [])
    assert tangrad.equal(optimizer.state[model[0].weight][entry], state["state"]["0.weight"][entry])
