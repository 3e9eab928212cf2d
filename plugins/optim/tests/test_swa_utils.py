"""Averaged models and the schedule that goes with them, compared with torch's."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tangrad
from tangrad.optim.swa_utils import AveragedModel


def train(t, made, model, averaged, steps):
    optimizer = t.optim.SGD(made.parameters(), lr=0.1)
    x = t.arange(12, dtype=t.float32).reshape(4, 3).cos()
    for _ in range(steps):
        optimizer.zero_grad()
        (model(x) ** 2).sum().backward()
        optimizer.step()
        averaged.update_parameters(model)


def network(t):
    model = t.nn.Sequential(t.nn.Linear(3, 4), t.nn.BatchNorm1d(4), t.nn.ReLU(), t.nn.Linear(4, 2))
    with t.no_grad():
        for position, parameter in enumerate(model.parameters()):
            values = t.arange(parameter.numel(), dtype=t.float32) + position
            parameter.copy_(values.sin().reshape(parameter.shape))
    return model


AVERAGES = {
    "mean": lambda u: {},
    "mean of each": lambda u: {"avg_fn": u.get_swa_avg_fn()},
    "exponential": lambda u: {"multi_avg_fn": u.get_ema_multi_avg_fn(0.9)},
    "exponential of each": lambda u: {"avg_fn": u.get_ema_avg_fn(0.8)},
    "with buffers": lambda u: {"use_buffers": True},
    "own": lambda u: {"avg_fn": lambda average, current, count: 0.5 * (average + current)},
}


@pytest.mark.parametrize("name", AVERAGES)
def test_averages_are_pytorchs(agree, name):
    def program(t):
        model = network(t)
        averaged = t.optim.swa_utils.AveragedModel(model, **AVERAGES[name](t.optim.swa_utils))
        train(t, model, model, averaged, 4)
        state = averaged.state_dict()
        return [list(state), [value.double() for value in state.values()]]

    agree(program, tolerance=1e-5)


FUNCTIONS = {
    "none": lambda u: {},
    "mean of each": lambda u: {"avg_fn": u.get_swa_avg_fn()},
    "exponential": lambda u: {"multi_avg_fn": u.get_ema_multi_avg_fn(0.9)},
    "exponential of each": lambda u: {"avg_fn": u.get_ema_avg_fn(0.9)},
}
DTYPES = "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64".split()


def average_of_buffers(t, function, dtype, steps, **options):
    """Return the averages of numbers that a buffer has had, and how often that was averaged."""
    model = t.nn.Linear(1, 1)
    model.register_buffer("seen", t.tensor(steps[0]).to(getattr(t, dtype)))
    averaged = t.optim.swa_utils.AveragedModel(model, **function(t.optim.swa_utils), **options)
    for numbers in steps:
        model.seen.copy_(t.tensor(numbers))
        averaged.update_parameters(model)
    return averaged.module.seen.cpu(), averaged.n_averaged


@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.lists(st.lists(st.integers(0, 100), min_size=3, max_size=3), min_size=1, max_size=8))
@pytest.mark.parametrize("buffers", [False, True])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_averages_of_every_dtype_are_pytorchs(agree, function, buffers, steps):
    for dtype in DTYPES:
        agree(
            lambda t, dtype=dtype: average_of_buffers(
                t, FUNCTIONS[function], dtype, steps, use_buffers=buffers
            ),
            tolerance=2e-2 if "float16" in dtype else 1e-5,
            message=False,
        )


@pytest.mark.parametrize("dtype", DTYPES[1:])
def test_the_mean_of_lists_is_the_mean_of_each(dtype):
    steps = [[100 - 13 * i, i, 3 * i] for i in range(6)]
    # PyTorch's function for lists refuses integers.
    lists, each = (
        average_of_buffers(tangrad, function, dtype, steps, use_buffers=True)[0]
        for function in (
            lambda u: {"multi_avg_fn": u.get_swa_multi_avg_fn()},
            FUNCTIONS["mean of each"],
        )
    )
    assert lists.equal(each) or lists.allclose(each, rtol=2e-2)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_averages_are_the_same_on_another_device(function):
    steps = [[60 - 7 * i, i, 3 * i] for i in range(6)]
    here, there = (
        average_of_buffers(
            tangrad, FUNCTIONS[function], "int32", steps, use_buffers=True, device=device
        )
        for device in ("cpu", "reference")
    )
    assert here[0].equal(there[0])


def test_an_own_function_sees_tensors_of_one_dtype_at_a_time(agree):
    def program(t):
        calls = []

        def average(averages, currents, count):
            calls.append(sorted({str(x.dtype).partition(".")[2] for x in averages}))
            for mine, other in zip(averages, currents, strict=True):
                mine.copy_(other)

        model = t.nn.Sequential(t.nn.Linear(3, 2), t.nn.BatchNorm1d(2), t.nn.Linear(2, 1).double())
        options = {"multi_avg_fn": average, "use_buffers": True}
        averaged = t.optim.swa_utils.AveragedModel(model, **options)
        averaged.update_parameters(model)
        averaged.update_parameters(model)
        return sorted(calls)

    agree(program)


def test_batch_norms_are_computed_anew(agree):
    def program(t):
        model = network(t)
        batches = [(t.arange(12, dtype=t.float32).reshape(4, 3) * k, None) for k in (0.1, 0.7, 2.0)]
        model.eval()
        t.optim.swa_utils.update_bn(batches, model)
        norm = model[1]
        return [norm.running_mean, norm.running_var, norm.momentum, model.training]

    agree(program, tolerance=1e-5)


@pytest.mark.parametrize(
    "options",
    [
        {"swa_lr": 0.05},
        {"swa_lr": [0.05, 0.2], "anneal_epochs": 4, "anneal_strategy": "linear"},
        {"swa_lr": 0.3, "anneal_epochs": 0},
    ],
)
def test_the_rate_is_annealed_as_in_pytorch(agree, options):
    def program(t):
        groups = [{"params": [t.nn.Parameter(t.ones(1))], "lr": lr} for lr in (0.5, 0.125)]
        optimizer = t.optim.SGD(groups)
        scheduler = t.optim.swa_utils.SWALR(optimizer, **options)
        path = []
        for _ in range(14):
            path.append([group["lr"] for group in optimizer.param_groups])
            optimizer.step()
            scheduler.step()
        return path

    agree(program, tolerance=1e-9)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda u, t, o: u.get_ema_avg_fn(1.5),
        lambda u, t, o: u.SWALR(o, [0.1, 0.2]),
        lambda u, t, o: u.SWALR(o, 0.1, anneal_strategy="steep"),
        lambda u, t, o: u.SWALR(o, 0.1, anneal_epochs=-1),
    ],
)
def test_wrong_arguments_raise_what_pytorch_raises(agree, wrong):
    def program(t):
        optimizer = t.optim.SGD([t.nn.Parameter(t.ones(1))], lr=0.1)
        wrong(t.optim.swa_utils, t, optimizer)

    agree(program, message=False)


def test_two_averaging_functions_are_refused():
    model = tangrad.nn.Linear(1, 1)
    with pytest.raises(ValueError, match="Only one of"):
        AveragedModel(model, avg_fn=max, multi_avg_fn=max)
