"""Whatever loads a state, by name, as functions of a framework.

Each case makes something that has a state, and tells how the state is taken, loaded, and changed
by going on.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest


class Stateful(NamedTuple):
    """What has a state, and what is done with it."""

    holder: Any
    state: Any
    load: Any
    go_on: Any


def _usual(holder, go_on):
    return Stateful(holder, holder.state_dict, holder.load_state_dict, go_on)


# Optimizers ---------------------------------------------------------------------------------------

OPTIONS = {
    "SGD": {"lr": 0.1, "momentum": 0.9},
    "Adam": {"amsgrad": True},
    "RMSprop": {"momentum": 0.9, "centered": True},
    "LBFGS": {"line_search_fn": "strong_wolfe", "max_iter": 3},
}
OPTIMIZERS = (
    "ASGD Adadelta Adafactor Adagrad Adam AdamW Adamax LBFGS Muon NAdam RAdam RMSprop Rprop SGD "
    "SparseAdam"
).split()


def optimizer_of(t, kind, **options):
    """Return an optimizer and its step; skip where its gradients need a package that is absent."""
    if kind == "SparseAdam":
        pytest.importorskip("tangrad_sparse", reason="sparse gradients are of a package of its own")
    weight = t.nn.Parameter(t.arange(1.0, 5).reshape(2, 2))
    made = getattr(t.optim, kind)([weight], **{**OPTIONS.get(kind, {}), **options})

    def closure():
        made.zero_grad()
        rows = t.nn.functional.embedding(t.tensor([0, 1]), weight, sparse=kind == "SparseAdam")
        loss = (rows**2).sum()
        loss.backward()
        return loss

    return made, lambda: made.step(closure)


def _optimizer(kind, **options):
    return lambda t: _usual(*optimizer_of(t, kind, **options))


# Schedules ----------------------------------------------------------------------------------------


class Remembering:
    """A function of the epoch that keeps what it was asked, in containers of all kinds."""

    def __init__(self):
        self.asked, self.table, self.pair = [], {"last": [0]}, ([0], 1)

    def __call__(self, epoch):
        self.asked.append(epoch)
        self.table["last"][0] = epoch
        self.pair[0][0] += 1
        return 0.9**epoch


SCHEDULES = {
    "LambdaLR": lambda s, o: s.LambdaLR(o, Remembering()),
    "MultiplicativeLR": lambda s, o: s.MultiplicativeLR(o, Remembering()),
    "StepLR": lambda s, o: s.StepLR(o, 2, 0.5),
    "MultiStepLR": lambda s, o: s.MultiStepLR(o, [2, 3], 0.3),
    "ConstantLR": lambda s, o: s.ConstantLR(o, 0.25, 4),
    "LinearLR": lambda s, o: s.LinearLR(o, 0.1, 0.8, 6),
    "ExponentialLR": lambda s, o: s.ExponentialLR(o, 0.8),
    "CosineAnnealingLR": lambda s, o: s.CosineAnnealingLR(o, 5),
    "PolynomialLR": lambda s, o: s.PolynomialLR(o, 9, power=1.7),
    "CosineAnnealingWarmRestarts": lambda s, o: s.CosineAnnealingWarmRestarts(o, 2, T_mult=2),
    "CyclicLR": lambda s, o: s.CyclicLR(o, 0.01, 0.2, 3, scale_fn=Remembering()),
    "OneCycleLR": lambda s, o: s.OneCycleLR(o, 0.3, total_steps=25, three_phase=True),
    "ReduceLROnPlateau": lambda s, o: s.ReduceLROnPlateau(o, patience=0),
    "SequentialLR": lambda s, o: s.SequentialLR(
        o, [s.LambdaLR(o, Remembering()), s.MultiStepLR(o, [1, 2]), s.ExponentialLR(o, 0.9)], [2, 4]
    ),
    "ChainedScheduler": lambda s, o: s.ChainedScheduler(
        [s.CyclicLR(o, 0.01, 0.2, 3, scale_fn=Remembering()), s.StepLR(o, 2)]
    ),
}


def schedule_of(t, make, **options):
    """Return a schedule and its step."""
    optimizer, _ = optimizer_of(t, "SGD", **options)
    made = make(t, optimizer)
    measured = (1.0,) if isinstance(made, t.optim.lr_scheduler.ReduceLROnPlateau) else ()

    def step():
        optimizer.step()
        made.step(*measured)

    return made, step


def _schedule(name, **options):
    return lambda t: _usual(
        *schedule_of(t, lambda t, o: SCHEDULES[name](t.optim.lr_scheduler, o), **options)
    )


def _annealed(t):
    return _usual(*schedule_of(t, lambda t, o: t.optim.swa_utils.SWALR(o, 0.05)))


# Modules ------------------------------------------------------------------------------------------


def trained(t, model, x):
    """Return a module and a step of its training."""
    optimizer = t.optim.SGD(model.parameters(), lr=0.1)

    def step():
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

    return model, step


def _module(make):
    return lambda t: _usual(*trained(t, make(t), t.arange(12.0).reshape(4, 3).cos()))


def _averaged(t):
    model = t.nn.Sequential(t.nn.Linear(3, 2), t.nn.BatchNorm1d(2))
    averaged = t.optim.swa_utils.AveragedModel(model, use_buffers=True)
    _, step = trained(t, model, t.arange(12.0).reshape(4, 3).cos())

    def go_on():
        step()
        averaged.update_parameters(model)

    return _usual(averaged, go_on)


def _lazy(t):
    model = t.nn.Sequential(t.nn.LazyLinear(2), t.nn.LazyBatchNorm1d())
    x = t.arange(12.0).reshape(4, 3)
    model(x)
    return _usual(*trained(t, model, x))


# Others -------------------------------------------------------------------------------------------


def _scaler(t):
    weight = t.nn.Parameter(t.ones(2))
    optimizer, scaler = t.optim.SGD([weight], lr=0.1), t.amp.GradScaler("cpu", growth_interval=2)

    def go_on():
        scaler.scale(weight.sum()).backward()
        scaler.step(optimizer)
        scaler.update()

    return _usual(scaler, go_on)


def _generator(t):
    made = t.Generator().manual_seed(3)
    return Stateful(made, made.get_state, made.set_state, lambda: t.rand(3, generator=made))


def _default_generator(t):
    return Stateful(t.default_generator, t.get_rng_state, t.set_rng_state, lambda: t.rand(3))


CASES = {
    **{name: _optimizer(name) for name in OPTIMIZERS},
    "Adam with a rate that is a tensor": lambda t: _usual(
        *optimizer_of(t, "Adam", lr=t.tensor(0.1))
    ),
    **{name: _schedule(name) for name in SCHEDULES},
    "SWALR": _annealed,
    "AveragedModel": _averaged,
    "Linear": _module(lambda t: t.nn.Linear(3, 2)),
    "BatchNorm1d": _module(lambda t: t.nn.Sequential(t.nn.Linear(3, 2), t.nn.BatchNorm1d(2))),
    "weight_norm": _module(lambda t: t.nn.utils.parametrizations.weight_norm(t.nn.Linear(3, 2))),
    "spectral_norm": _module(
        lambda t: t.nn.utils.parametrizations.spectral_norm(t.nn.Linear(3, 2))
    ),
    "older spectral_norm": _module(lambda t: t.nn.utils.spectral_norm(t.nn.Linear(3, 2))),
    "LazyLinear": _lazy,
    "GradScaler": _scaler,
    "Generator": _generator,
    "default generator": _default_generator,
}
