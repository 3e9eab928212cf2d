"""The scaler follows PyTorch's arithmetic step by step."""

import pickle

import pytest

import tangrad


def training(t, gradients, **settings):
    """Take a step per gradient; return the scale and the parameter after each."""
    parameter = t.nn.Parameter(t.ones(2))
    optimizer = t.optim.SGD([parameter], lr=0.5)
    scaler = t.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2, **settings)
    trace = []
    for gradient in gradients:
        optimizer.zero_grad()
        scaler.scale((parameter * t.tensor(gradient)).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        trace.append((scaler.get_scale(), parameter.tolist(), scaler.state_dict()))
    return trace


@pytest.mark.parametrize("settings", [{}, {"growth_factor": 4.0, "backoff_factor": 0.25}])
def test_scales_grow_and_shrink_as_in_torch(agree, settings):
    inf, nan = float("inf"), float("nan")
    rows = [[1.0, 2.0], [0.5, 1.0], [inf, 1.0], [1.0, 1.0], [nan, 0.0], [1.0, 1.0], [1.0, 0.0]]
    agree(lambda t: training(t, rows, **settings))


def test_disabled_it_passes_everything_through(agree):
    agree(lambda t: training(t, [[1.0, 2.0]], enabled=False))


def test_gradients_can_be_clipped_between(agree):
    def program(t):
        parameter = t.nn.Parameter(t.ones(2))
        optimizer = t.optim.SGD([parameter], lr=1.0)
        scaler = t.amp.GradScaler("cpu")
        first, second = scaler.scale([parameter.sum(), parameter.prod()])
        (first + second).backward()
        scaler.unscale_(optimizer)
        norm = t.nn.utils.clip_grad_norm_([parameter], 1.0)
        scaler.step(optimizer)
        scaler.update(16.0)
        return norm.item(), parameter.tolist(), scaler.get_scale()

    agree(program)


def test_a_state_can_be_loaded_and_pickled(agree):
    def program(t):
        scaler = t.amp.GradScaler("cpu", init_scale=4.0)
        scaler.scale(t.ones(()))
        other = t.amp.GradScaler("cpu")
        other.load_state_dict(scaler.state_dict())
        return other.state_dict(), pickle.loads(pickle.dumps(other)).state_dict()

    agree(program)


def stepped(t, *calls):
    parameter = t.nn.Parameter(t.ones(2))
    optimizer = t.optim.SGD([parameter], lr=1.0)
    scaler = t.amp.GradScaler("cpu")
    scaler.scale(parameter.sum()).backward()
    for call in calls:
        getattr(scaler, call)(optimizer)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda t: stepped(t, "unscale_", "unscale_"),
        lambda t: stepped(t, "step", "unscale_"),
        lambda t: stepped(t, "step", "step"),
        lambda t: t.amp.GradScaler("cpu").update(),
        lambda t: t.amp.GradScaler("cpu", growth_factor=1.0),
        lambda t: t.amp.GradScaler("cpu").scale(3),
        lambda t: t.amp.GradScaler("cpu").load_state_dict({}),
    ],
)
def test_wrong_orders_of_calls_are_refused(agree, wrong):
    agree(wrong)


def test_a_missing_device_disables_it_with_a_warning():
    with pytest.warns(UserWarning, match="not available"):
        scaler = tangrad.amp.GradScaler("xla")
    assert not scaler.is_enabled()


def handing(t, takes_scaler, unscaled, gradient, times=2):
    """Return what an optimizer that unscales by itself gets to see."""
    seen = []

    class Unscaling(t.optim.SGD):
        _step_supports_amp_scaling = True

        def step(self, closure=None):
            parts = [self.grad_scale, self.found_inf]
            seen.append([x if x is None else x.item() for x in parts])
            return "stepped"

    class Asking(Unscaling):
        def step(self, closure=None, *, grad_scaler=None):
            found = grad_scaler._check_inf_per_device(self)
            seen.append([grad_scaler.get_scale(), hasattr(self, "found_inf")])
            seen.append([x.item() for x in found.values()])

    parameter = t.nn.Parameter(t.ones(2))
    optimizer = (Asking if takes_scaler else Unscaling)([parameter], lr=0.5)
    scaler = t.amp.GradScaler("cpu", init_scale=8.0, growth_interval=1)
    for _ in range(times):
        scaler.scale((parameter * t.tensor(gradient)).sum()).backward()
        if unscaled:
            scaler.unscale_(optimizer)
        seen.append(scaler.step(optimizer))
        seen.append([hasattr(optimizer, "grad_scale"), parameter.grad.tolist()])
        scaler.update()
        optimizer.zero_grad()
    return seen, scaler.get_scale()


@pytest.mark.filterwarnings("ignore:GradScaler is going to stop:FutureWarning")
@pytest.mark.parametrize("gradient", [[1.0, 2.0], [float("inf"), 1.0]])
@pytest.mark.parametrize("unscaled", [False, True])
@pytest.mark.parametrize("takes_scaler", [False, True])
def test_an_optimizer_may_unscale_by_itself(agree, takes_scaler, unscaled, gradient):
    agree(lambda t: handing(t, takes_scaler, unscaled, gradient))


def test_handing_the_scaler_on_is_warned_of():
    with pytest.warns(FutureWarning, match="stop passing itself"):
        handing(tangrad, True, False, [1.0, 2.0], times=1)
