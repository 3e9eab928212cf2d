"""Schedules, compared with torch's."""

import pytest

import tangrad
from tangrad import nn, optim
from tangrad.optim import lr_scheduler

SCHEDULES = {
    "lambda": lambda s, o: s.LambdaLR(o, lambda epoch: 0.9**epoch),
    "lambdas": lambda s, o: s.LambdaLR(o, [lambda e: 1 / (e + 1), lambda e: 2.0 * e]),
    "multiplicative": lambda s, o: s.MultiplicativeLR(o, lambda epoch: 0.95),
    "step": lambda s, o: s.StepLR(o, 3, 0.5),
    "multistep": lambda s, o: s.MultiStepLR(o, [2, 5, 5, 9], 0.3),
    "constant": lambda s, o: s.ConstantLR(o, 0.25, 4),
    "linear": lambda s, o: s.LinearLR(o, 0.1, 0.8, 6),
    "exponential": lambda s, o: s.ExponentialLR(o, 0.8),
    "cosine": lambda s, o: s.CosineAnnealingLR(o, 5, eta_min=0.01),
    "cosine to zero": lambda s, o: s.CosineAnnealingLR(o, 7),
    "polynomial": lambda s, o: s.PolynomialLR(o, 9, power=1.7),
    "restarts": lambda s, o: s.CosineAnnealingWarmRestarts(o, 3, eta_min=0.01),
    "longer and longer": lambda s, o: s.CosineAnnealingWarmRestarts(o, 2, T_mult=2),
}
WITH_MOMENTUM = {
    "triangular": lambda s, o: s.CyclicLR(o, 0.01, 0.2, 3, 5),
    "triangular2": lambda s, o: s.CyclicLR(
        o, [0.01, 0.02], [0.2, 0.4], 4, mode="triangular2", base_momentum=[0.5, 0.6]
    ),
    "exponential range": lambda s, o: s.CyclicLR(o, 0.01, 0.2, 3, mode="exp_range", gamma=0.9),
    "own scale": lambda s, o: s.CyclicLR(o, 0.01, 0.2, 3, scale_fn=lambda x: 1 / (x + 1)),
    "without momentum": lambda s, o: s.CyclicLR(o, 0.01, 0.2, 3, cycle_momentum=False),
    "one cycle": lambda s, o: s.OneCycleLR(o, 0.3, total_steps=25),
    "one cycle, straight": lambda s, o: s.OneCycleLR(
        o, [0.3, 0.6], epochs=5, steps_per_epoch=5, anneal_strategy="linear", max_momentum=0.97
    ),
    "three phases": lambda s, o: s.OneCycleLR(o, 0.3, 30, three_phase=True, div_factor=5.0),
}


def optimizer(t):
    groups = [{"params": [t.nn.Parameter(t.ones(1))], "lr": lr} for lr in (0.5, 0.125)]
    return t.optim.SGD(groups)


def rates(made, scheduler, epochs):
    path = []
    for _ in range(epochs):
        path.append([group["lr"] for group in made.param_groups])
        made.step()
        scheduler.step()
        assert scheduler.get_last_lr() == [group["lr"] for group in made.param_groups]
    return path


@pytest.mark.parametrize("name", SCHEDULES)
def test_rates_are_pytorchs(agree, name):
    def program(t):
        made = optimizer(t)
        scheduler = SCHEDULES[name](t.optim.lr_scheduler, made)
        return [rates(made, scheduler, 20), scheduler.base_lrs, scheduler.last_epoch]

    agree(program, tolerance=1e-9)


# One has no closed form; the others take the epoch without a warning, and are tested below.
NOT_BY_EPOCH = {"multiplicative", "restarts", "longer and longer"}


@pytest.mark.filterwarnings("ignore:The epoch parameter:UserWarning")
@pytest.mark.parametrize("name", [name for name in SCHEDULES if name not in NOT_BY_EPOCH])
def test_going_to_an_epoch_uses_the_closed_form(agree, name):
    def program(t):
        made = optimizer(t)
        scheduler = SCHEDULES[name](t.optim.lr_scheduler, made)
        made.step()
        scheduler.step(4)
        return [group["lr"] for group in made.param_groups]

    agree(program)


@pytest.mark.parametrize("kind", ["SGD", "Adam"])
@pytest.mark.parametrize("name", WITH_MOMENTUM)
def test_rates_and_momenta_are_pytorchs(agree, name, kind):
    def program(t):
        groups = [{"params": [t.nn.Parameter(t.ones(1))]} for _ in range(2)]
        made = getattr(t.optim, kind)(
            groups, lr=0.1, **({"momentum": 0.9} if kind == "SGD" else {})
        )
        scheduler = WITH_MOMENTUM[name](t.optim.lr_scheduler, made)
        path = []
        for _ in range(24):
            made.step()
            scheduler.step()
            path.append(
                [[g["lr"], g.get("momentum"), list(g.get("betas", ()))] for g in made.param_groups]
            )
        return path

    agree(program, tolerance=1e-9)


def test_one_cycle_ends(agree):
    def program(t):
        made = t.optim.SGD([t.nn.Parameter(t.ones(1))], lr=0.1, momentum=0.9)
        scheduler = t.optim.lr_scheduler.OneCycleLR(made, 0.3, total_steps=3)
        for _ in range(5):
            made.step()
            scheduler.step()

    agree(program, message=False)


@pytest.mark.parametrize("epoch", [1.5, 3.25, 11])
def test_restarts_go_to_a_fraction_of_an_epoch(agree, epoch):
    def program(t):
        made = optimizer(t)
        scheduler = t.optim.lr_scheduler.CosineAnnealingWarmRestarts(made, 2, T_mult=3)
        made.step()
        scheduler.step(epoch)
        return [scheduler.T_cur, scheduler.T_i, scheduler.last_epoch, scheduler.get_last_lr()]

    agree(program)


def test_schedules_follow_one_another(agree):
    def program(t):
        made = optimizer(t)
        s = t.optim.lr_scheduler
        parts = [s.LinearLR(made, 0.1, 1.0, 3), s.ExponentialLR(made, 0.9), s.StepLR(made, 2, 0.1)]
        return rates(made, s.SequentialLR(made, parts, [4, 9]), 16)

    agree(program, tolerance=1e-9)


def test_the_schedule_at_the_first_milestone_begins_where_that_is_the_first_epoch(agree):
    def program(t):
        made = optimizer(t)
        s = t.optim.lr_scheduler
        parts = [s.ConstantLR(made, 0.5, 2), s.ExponentialLR(made, 0.5)]
        return rates(made, s.SequentialLR(made, parts, [0]), 5)

    agree(program, tolerance=1e-9)


def test_a_schedule_within_another_is_followed_as_it_is_alone():
    s = lr_scheduler

    def steps(made):
        parts = [s.ConstantLR(made, 0.5, 2), s.ConstantLR(made, 0.2, 10)]
        return s.SequentialLR(made, parts, [2])

    def chain(made):
        return s.ChainedScheduler([s.ExponentialLR(made, 0.5), s.ConstantLR(made, 0.1, 2)])

    for build in (steps, chain):
        alone, within, later = (optimizer(tangrad) for _ in range(3))
        expected = rates(alone, build(alone), 6)
        assert rates(within, s.SequentialLR(within, [build(within)], []), 6) == expected
        parts = [s.ExponentialLR(later, 0.5), build(later)]
        assert rates(later, s.SequentialLR(later, parts, [3]), 9)[3:] == expected


def test_a_chain_multiplies(agree):
    def program(t):
        made = optimizer(t)
        s = t.optim.lr_scheduler
        chained = s.ChainedScheduler([s.ConstantLR(made, 0.1, 3), s.ExponentialLR(made, 0.9)])
        return rates(made, chained, 8)

    agree(program, tolerance=1e-9)


@pytest.mark.parametrize("kind", ["SequentialLR", "ChainedScheduler"])
def test_combined_schedules_continue_from_their_state(kind):
    def build():
        made = optimizer(tangrad)
        s = lr_scheduler
        parts = [s.LinearLR(made, 0.1, 1.0, 3), s.ExponentialLR(made, 0.9)]
        if kind == "SequentialLR":
            return made, s.SequentialLR(made, parts, [4])
        return made, s.ChainedScheduler(parts)

    made, scheduler = build()
    rates(made, scheduler, 3)
    other, resumed = build()
    other.load_state_dict(made.state_dict())
    resumed.load_state_dict(scheduler.state_dict())
    assert rates(other, resumed, 6) == rates(made, scheduler, 6)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"mode": "max", "factor": 0.5, "patience": 1},
        {"threshold_mode": "abs", "threshold": 0.2, "patience": 2, "cooldown": 2},
        {"mode": "max", "threshold_mode": "abs", "patience": 0, "min_lr": [0.1, 0.01]},
    ],
)
def test_a_plateau_lowers_the_rate(agree, options):
    def program(t):
        made = optimizer(t)
        scheduler = t.optim.lr_scheduler.ReduceLROnPlateau(made, **options)
        path = []
        for metric in [3.0, 2.0, 2.5, 1.95, 1.94, 2.2, 2.3, 2.1, 2.1, 1.0, 1.5, 1.5, 1.5, 1.5]:
            made.step()
            scheduler.step(t.tensor(metric))
            path.append([scheduler.best, scheduler.num_bad_epochs, scheduler.get_last_lr()])
        return path

    agree(program, tolerance=1e-9)


WRONG = {
    "T_0": lambda s, o: s.CosineAnnealingWarmRestarts(o, 0),
    "T_mult": lambda s, o: s.CosineAnnealingWarmRestarts(o, 2, T_mult=0),
    "mode": lambda s, o: s.CyclicLR(o, 0.1, 0.2, mode="square"),
    "no momentum": lambda s, o: s.CyclicLR(
        type("Bare", (s.LRScheduler.__init__.__globals__["Optimizer"],), {})([o], {"lr": 0.1}),
        0.1,
        0.2,
    ),
    "lengths": lambda s, o: s.CyclicLR(o, [0.1], [0.2]),
    "no steps": lambda s, o: s.OneCycleLR(o, 0.1),
    "steps": lambda s, o: s.OneCycleLR(o, 0.1, total_steps=-1),
    "share": lambda s, o: s.OneCycleLR(o, 0.1, total_steps=5, pct_start=2.0),
    "strategy": lambda s, o: s.OneCycleLR(o, 0.1, total_steps=5, anneal_strategy="up"),
    "factor": lambda s, o: s.ReduceLROnPlateau(o, factor=1.0),
    "plateau mode": lambda s, o: s.ReduceLROnPlateau(o, mode="mean"),
    "empty": lambda s, o: s.SequentialLR(o, [], []),
    "milestones": lambda s, o: s.SequentialLR(o, [s.StepLR(o, 2)], [3]),
    "other optimizer": lambda s, o: s.ChainedScheduler([s.StepLR(o, 2)], object()),
    "plateau in a chain": lambda s, o: s.ChainedScheduler([s.ReduceLROnPlateau(o)]),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_raise_what_pytorch_raises(agree, name):
    def program(t):
        made = optimizer(t)
        if name == "no momentum":
            made = t.nn.Parameter(t.ones(1))
        WRONG[name](t.optim.lr_scheduler, made)

    agree(program, message=False)


def test_two_schedules_multiply(agree):
    def program(t):
        made = optimizer(t)
        first = t.optim.lr_scheduler.StepLR(made, 2, 0.5)
        second = t.optim.lr_scheduler.ExponentialLR(made, 0.9)
        for _ in range(5):
            made.step()
            first.step()
            second.step()
        return [group["lr"] for group in made.param_groups]

    agree(program)


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_continues_from_its_state(name):
    made = optimizer(tangrad)
    scheduler = SCHEDULES[name](lr_scheduler, made)
    rates(made, scheduler, 3)
    other = optimizer(tangrad)
    resumed = SCHEDULES[name](lr_scheduler, other)
    other.load_state_dict(made.state_dict())
    resumed.load_state_dict(scheduler.state_dict())
    assert "optimizer" not in scheduler.state_dict()
    assert rates(other, resumed, 5) == rates(made, scheduler, 5)


def test_a_rate_that_is_a_tensor_stays_one():
    rate = tangrad.tensor(0.5)
    made = optim.SGD([nn.Parameter(tangrad.ones(1))], lr=rate)
    scheduler = lr_scheduler.ExponentialLR(made, 0.5)
    made.step()
    scheduler.step()
    assert made.param_groups[0]["lr"] is rate
    assert rate.item() == 0.25
    assert scheduler.base_lrs[0].item() == 0.5


def test_stepping_before_the_optimizer_warns():
    made = optimizer(tangrad)
    scheduler = lr_scheduler.StepLR(made, 1)
    with pytest.warns(UserWarning, match="before `optimizer.step"):
        scheduler.step()


def test_asking_get_lr_outside_a_step_warns():
    scheduler = lr_scheduler.StepLR(optimizer(tangrad), 1)
    with pytest.warns(UserWarning, match="get_last_lr"):
        scheduler.get_lr()


WRONG = {
    "no optimizer": lambda t: t.optim.lr_scheduler.StepLR(3, 1),
    "resumed without initial rates": lambda t: t.optim.lr_scheduler.StepLR(
        optimizer(t), 1, last_epoch=3
    ),
    "too few functions": lambda t: t.optim.lr_scheduler.LambdaLR(optimizer(t), [abs]),
    "constant factor": lambda t: t.optim.lr_scheduler.ConstantLR(optimizer(t), 2.0),
    "linear start": lambda t: t.optim.lr_scheduler.LinearLR(optimizer(t), 0.0),
    "linear end": lambda t: t.optim.lr_scheduler.LinearLR(optimizer(t), 0.5, 1.5),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arguments_raise_as_in_pytorch(agree, case):
    agree(lambda t: WRONG[case](t), message=False)


def test_an_optimizer_whose_step_was_replaced_is_warned_of():
    made = optimizer(tangrad)
    scheduler = lr_scheduler.StepLR(made, 3)
    step = made.step
    made.step = lambda *args: step(*args)
    made.step()
    with pytest.warns(UserWarning, match=r"`optimizer.step\(\)` has been overridden"):
        scheduler.step()


def test_the_own_scale_of_a_pytorch_checkpoint_is_read():
    import torch

    class Scale:
        def __init__(self, share):
            self.share = share

        def __call__(self, x):
            return self.share

    def schedule(t, share):
        return t.optim.lr_scheduler.CyclicLR(optimizer(t), 0.1, 0.5, 3, scale_fn=Scale(share))

    saved = schedule(torch, 0.25).state_dict()
    ours = schedule(tangrad, 0.75)
    ours.load_state_dict(saved)
    assert ours.scale_fn(1) == 0.25


@pytest.mark.parametrize("kind", ["CyclicLR", "OneCycleLR", "SWALR"])
def test_bounds_given_as_tensors_are_copied(agree, kind):
    def program(t):
        low, high = t.tensor(0.1), t.tensor(0.2)
        optimizer = t.optim.SGD([t.nn.Parameter(t.ones(1))], lr=0.1, momentum=0.9)
        made = {
            "CyclicLR": lambda s: s.CyclicLR(optimizer, 0.01, high, base_momentum=low),
            "OneCycleLR": lambda s: s.OneCycleLR(optimizer, high, 10, base_momentum=low),
            "SWALR": lambda s: t.optim.swa_utils.SWALR(optimizer, high),
        }[kind](t.optim.lr_scheduler)
        low.mul_(0.5), high.mul_(0.5)
        optimizer.step()
        made.step()
        group = optimizer.param_groups[0]
        names = ("lr", "max_lr", "swa_lr", "base_momentum")
        return [float(group[name]) for name in names if name in group]

    agree(program)
