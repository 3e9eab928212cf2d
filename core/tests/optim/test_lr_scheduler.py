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


@pytest.mark.filterwarnings("ignore:The epoch parameter:UserWarning")
@pytest.mark.parametrize("name", SCHEDULES)
def test_going_to_an_epoch_uses_the_closed_form(agree, name):
    if name == "multiplicative":
        pytest.skip("has no closed form")

    def program(t):
        made = optimizer(t)
        scheduler = SCHEDULES[name](t.optim.lr_scheduler, made)
        made.step()
        scheduler.step(4)
        return [group["lr"] for group in made.param_groups]

    agree(program)


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
