"""A state that was given to load stays as it is, then and while what loaded it goes on."""

from __future__ import annotations

import gc
import io
import weakref
from copy import deepcopy

import pytest
from state_cases import CASES, OPTIMIZERS, SCHEDULES, Remembering, Stateful, schedule_of

import tangrad
from tangrad import nn, optim
from tangrad.utils.data import DataLoader

pytestmark = pytest.mark.filterwarnings(
    "ignore:Detected call of:UserWarning",
    "ignore:`torch.nn.utils.weight_norm`:FutureWarning",
    "ignore:.*spectral_norm.*:FutureWarning",
)


def _loader(t):
    made = DataLoader(list(range(12)), shuffle=True, generator=t.Generator().manual_seed(1))
    passes = [iter(made)]

    def go_on():
        try:
            next(passes[0])
        except StopIteration:
            passes[0] = iter(made)

    return Stateful(made, made.state_dict, made.load_state_dict, go_on)


OURS = {**CASES, "DataLoader": _loader}


def frozen(value):
    """Return a state as plain data, with what tells its tensors and containers from others."""
    if isinstance(value, tangrad.Tensor) or hasattr(value, "detach"):
        text = str(value.dtype).partition(".")[2]
        return type(value).__name__, text, value.requires_grad, value.shape, value.tolist()
    if isinstance(value, dict):
        items = [(key, frozen(item)) for key, item in value.items()]
        return type(value).__name__, items, frozen(getattr(value, "_metadata", None))
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [frozen(item) for item in value]
    if isinstance(value, Remembering):
        return frozen(vars(value))
    return value


@pytest.mark.parametrize("name", OURS)
def test_what_is_loaded_leaves_what_was_given(name):
    source = OURS[name](tangrad)
    for _ in range(3):
        source.go_on()
    given = source.state()
    before = frozen(given)
    target = OURS[name](tangrad)
    target.load(given)
    assert frozen(given) == before, "loading changed it"
    for _ in range(4):
        target.go_on()
        assert frozen(given) == before, "going on changed it"
    again = OURS[name](tangrad)
    again.load(given)
    assert frozen(again.state()) == before, "it does not serve twice"


@pytest.mark.parametrize("name", CASES)
def test_a_state_is_a_copy_where_pytorchs_is(name):
    torch = pytest.importorskip("torch", reason="torch is the oracle")

    def stays(t):
        source = CASES[name](t)
        source.go_on()
        state = source.state()
        before = frozen(state)
        source.go_on()
        return frozen(state) == before

    assert stays(tangrad) >= stays(torch)


def test_whatever_has_a_state_is_tried():
    tried = {type(case(tangrad).holder) for case in OURS.values()}
    named = {getattr(optim, name) for name in OPTIMIZERS}
    named |= {getattr(optim.lr_scheduler, name) for name in SCHEDULES}
    assert named <= tried
    public = {
        made
        for module in (optim, optim.lr_scheduler, optim.swa_utils, tangrad.amp, tangrad.utils.data)
        for name, made in vars(module).items()
        if name[0] != "_" and isinstance(made, type) and hasattr(made, "load_state_dict")
    }
    bases = {optim.Optimizer, optim.lr_scheduler.LRScheduler, nn.Module}
    assert public - bases <= tried


def test_loading_by_assigning_does_not_make_later_loads_assign():
    given = nn.Linear(3, 2).state_dict()
    nn.Linear(3, 2).load_state_dict(given, assign=True)
    assert given._metadata == nn.Linear(3, 2).state_dict()._metadata
    model = nn.Linear(3, 2)
    weight = model.weight
    model.load_state_dict(given)
    assert model.weight is weight
    assert model.weight.data_ptr() != given["weight"].data_ptr()


def test_hooks_may_change_metadata_and_keys_without_changing_what_was_given():
    def rename(module, state, prefix, metadata, *rest):
        state["weight"] = state.pop("older")
        metadata["seen"] = state._metadata["seen"] = True

    given = nn.Linear(3, 2, bias=False).state_dict()
    given["older"] = given.pop("weight")
    before = frozen(given)
    model = nn.Linear(3, 2, bias=False)
    model.register_load_state_dict_pre_hook(rename)
    model.load_state_dict(given)
    assert frozen(given) == before


@pytest.mark.parametrize("make", [nn.Upsample, lambda: nn.MultiheadAttention(2, 1)])
def test_an_object_completes_an_older_pickle_without_changing_it(make):
    state = dict(vars(make()))
    for name in ("recompute_scale_factor", "_qkv_same_embed_dim"):
        state.pop(name, None)
    keys = list(state)
    made = make()
    made.__setstate__(state)
    assert list(state) == keys


def test_a_load_leaves_no_reference_cycles():
    model, given = nn.Sequential(nn.Linear(3, 2), nn.ReLU()), nn.Sequential(nn.Linear(3, 2))
    state = given.state_dict()
    gc.collect()
    gc.disable()
    try:
        model.load_state_dict(state)
        watched = weakref.ref(model)
        del model
        assert watched() is None
        assert gc.collect() == 0
    finally:
        gc.enable()


def _schedule(t, name):
    make = SCHEDULES.get(name)
    return schedule_of(
        t,
        lambda t, o: make(t.optim.lr_scheduler, o) if make else t.optim.swa_utils.SWALR(o, 0.05),
    )


PLAIN = [*SCHEDULES, "SWALR"]


@pytest.mark.parametrize("name", PLAIN)
def test_files_of_schedules_are_safe_to_load_and_are_pytorchs(name):
    torch = pytest.importorskip("torch", reason="torch is the oracle")
    frameworks = {tangrad: torch, torch: tangrad}
    for writer, reader in frameworks.items():
        saved, step = _schedule(writer, name)
        for _ in range(3):
            step()
        file = io.BytesIO()
        writer.save(saved.state_dict(), file)
        file.seek(0)
        state = reader.load(file)
        resumed, step_resumed = _schedule(reader, name)
        resumed.load_state_dict(deepcopy(state))
        resumed.optimizer.param_groups[0]["lr"] = saved.optimizer.param_groups[0]["lr"]
        step()
        step_resumed()
        assert resumed.get_last_lr() == pytest.approx(saved.get_last_lr())
