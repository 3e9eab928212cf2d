"""`checked_step` costs one check, and finds by a second run where NaN and infinity arise."""

from __future__ import annotations

import sys

import pytest

import tangrad
from tangrad import nn
from tangrad.optim.finite import NonFiniteError, checked_step


class Rooted(nn.Module):
    """Take a square root, whose derivative at zero is infinite."""

    def forward(self, x):
        self.place = f"{__file__}:{sys._getframe().f_lineno + 1}"
        return x.sqrt()


@pytest.fixture
def model():
    tangrad.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), Rooted(), nn.Linear(4, 1))


def stepper(model, prepare=lambda x: x, **options):
    optimizer = tangrad.optim.Adam(model.parameters(), lr=1e-3)

    def step(x):
        optimizer.zero_grad()
        loss = model(prepare(x)).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return checked_step(step, state=[model, optimizer], **options)


def weights(model):
    with tangrad.no_grad():
        model[0].weight.fill_(0.5)
        model[0].bias.fill_(1.0)


@pytest.mark.filterwarnings("error")
def test_results_are_those_of_the_step_alone(model):
    weights(model)
    start = {k: v.clone() for k, v in model.state_dict().items()}
    checked = stepper(model)
    losses = [checked(tangrad.ones(2, 3)).item() for _ in range(20)]
    model.load_state_dict(start)
    plain = stepper(model).step
    assert losses == [plain(tangrad.ones(2, 3)).item() for _ in range(20)]


def test_nan_of_forward_names_op_line_module_element_and_operands(model):
    weights(model)
    step = stepper(model)
    step(tangrad.ones(2, 3))
    bad = tangrad.ones(2, 3)
    bad[1] = -20
    with pytest.raises(NonFiniteError) as caught:
        step(bad)
    text = str(caught.value)
    assert f"sqrt, called at {model[1].place}, in module 1 (Rooted)" in text
    assert "the first at [1, 0]: nan" in text
    assert "its operands: tangrad.float32 [2, 4] between -" in text


def test_infinity_of_backward_names_the_forward_line(model):
    with tangrad.no_grad():
        model[0].weight.zero_()
        model[0].bias.zero_()
    step = stepper(model)
    step(tangrad.ones(2, 3))
    with pytest.raises(NonFiniteError, match="SqrtBackward0 in backward gave .*inf") as caught:
        step.check()
    assert model[1].place in str(caught.value)


def test_steps_are_run_again_from_the_state_that_was_copied(model):
    weights(model)
    seen = []

    def prepare(x):
        seen.append((float(x.sum()), model[0].weight.sum().item()))
        return x

    step = stepper(model, prepare, every=8)
    for k in range(11):
        step(tangrad.full((2, 3), 1.0 + k))
    with pytest.raises(NonFiniteError, match="sqrt"):
        step(tangrad.full((2, 3), -1e3))
    assert seen[12:] == seen[8:12]


def test_gradient_that_the_loss_does_not_show_is_found_when_all_is_looked_at():
    p = nn.Parameter(tangrad.zeros(2))

    def run(x):
        p.grad = None
        loss = (p * x).sqrt().sum()
        loss.backward()
        return loss

    step = checked_step(run, state=[p])
    step(0.0)
    with pytest.raises(NonFiniteError, match="SqrtBackward0 in backward gave .*the first at"):
        step.check()


def test_masks_of_infinity_are_not_blamed():
    table = nn.Parameter(tangrad.zeros(2, 2))

    def step(scale):
        table.grad = None
        masked = table.masked_fill(tangrad.tensor([[False, True], [False, True]]), -float("inf"))
        loss = (masked.softmax(-1) * scale).sum().log()
        loss.backward()
        return loss

    checked = checked_step(step, state=[table])
    checked(1.0)
    with pytest.raises(NonFiniteError, match="checked_step: log, called at"):
        checked(-1.0)


def test_bad_input_is_told_as_such(model):
    weights(model)
    with pytest.raises(NonFiniteError, match="argument 0 of the step: .* 6 NaN and 0 infinite"):
        stepper(model)(tangrad.full((2, 3), float("nan")))
    with pytest.raises(TypeError, match="int has no state that can be put back"):
        checked_step(lambda: None, state=[3])
    with pytest.raises(ValueError, match="every must be positive, not 0"):
        checked_step(lambda: None, state=[], every=0)


def test_step_that_does_not_do_the_same_twice_is_told():
    values = iter([float("nan"), 1.0])
    step = checked_step(lambda: tangrad.tensor(next(values)), state=[])
    with pytest.raises(NonFiniteError, match="does not do the same"):
        step()


@pytest.mark.parametrize("ahead", [0, 1, 2])
def test_numbers_that_numpy_drew_are_drawn_again(model, ahead):
    np = pytest.importorskip("numpy")
    weights(model)
    drawn = []

    def prepare(x):
        drawn.append(float(np.random.randn()))
        return x

    np.random.seed(0)
    step = stepper(model, prepare, every=3)
    for _ in range(3 + ahead):
        step(tangrad.ones(2, 3))
    since = drawn[3:]
    bad = tangrad.full((2, 3), -20.0)
    with pytest.raises(NonFiniteError):
        step(bad)
    # The first run since the copy, and the same again.
    assert drawn[3:] == [*since, drawn[3 + ahead]] * 2
    np.random.seed(0)
    assert drawn[: 4 + ahead] == [float(np.random.randn()) for _ in range(4 + ahead)]


@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_numbers_that_a_device_drew_are_drawn_again(device):
    drawn = []

    def step(sign):
        drawn.append(tangrad.rand(2, device=device).tolist())
        return (tangrad.ones(2) * sign).log().sum()

    checked = checked_step(step, state=[])
    checked(1)
    with pytest.raises(NonFiniteError, match="log, called at"):
        checked(-1)
    assert drawn[2:] == drawn[:2]
