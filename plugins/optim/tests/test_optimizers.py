"""Twenty steps of every optimizer, compared with torch's."""

import copy

import pytest

import tangrad
from tangrad import nn, optim

OPTIMIZERS = {
    "SGD": ("SGD", {"lr": 0.1}),
    "SGD by default": ("SGD", {}),
    "SGD with decay": ("SGD", {"lr": 0.1, "weight_decay": 0.1}),
    "SGD with momentum": ("SGD", {"lr": 0.1, "momentum": 0.9}),
    "SGD dampened": ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.4, "weight_decay": 0.01}),
    "SGD by Nesterov": ("SGD", {"lr": 0.05, "momentum": 0.9, "nesterov": True}),
    "SGD upwards": ("SGD", {"lr": 0.01, "momentum": 0.5, "maximize": True}),
    "Adam": ("Adam", {"lr": 0.05}),
    "Adam with decay": ("Adam", {"lr": 0.05, "weight_decay": 0.1, "betas": (0.8, 0.9)}),
    "Adam decoupled": ("Adam", {"lr": 0.05, "decoupled_weight_decay": True, "weight_decay": 0.1}),
    "Adam by amsgrad": ("Adam", {"lr": 0.05, "amsgrad": True, "eps": 1e-4}),
    "AdamW": ("AdamW", {"lr": 0.05}),
    "AdamW with decay": ("AdamW", {"lr": 0.05, "weight_decay": 0.5}),
    "Adadelta": ("Adadelta", {"lr": 0.5, "weight_decay": 0.01}),
    "Adadelta upwards": ("Adadelta", {"rho": 0.7, "eps": 1e-4, "maximize": True}),
    "Adagrad": ("Adagrad", {"lr": 0.1, "lr_decay": 0.1, "initial_accumulator_value": 0.2}),
    "Adagrad with decay": ("Adagrad", {"lr": 0.1, "weight_decay": 0.1}),
    "Adamax": ("Adamax", {"lr": 0.05, "weight_decay": 0.1}),
    "NAdam": ("NAdam", {"lr": 0.05, "weight_decay": 0.1}),
    "NAdam decoupled": (
        "NAdam",
        {"lr": 0.05, "weight_decay": 0.1, "decoupled_weight_decay": True, "momentum_decay": 0.01},
    ),
    "RAdam": ("RAdam", {"lr": 0.05, "betas": (0.8, 0.9), "weight_decay": 0.1}),
    "RAdam decoupled": (
        "RAdam",
        {"lr": 0.05, "betas": (0.9, 0.99), "weight_decay": 0.1, "decoupled_weight_decay": True},
    ),
    "RMSprop": ("RMSprop", {"lr": 0.02, "weight_decay": 0.1}),
    "RMSprop centered": ("RMSprop", {"lr": 0.02, "centered": True, "momentum": 0.5}),
    "RMSprop upwards": ("RMSprop", {"lr": 0.001, "momentum": 0.9, "maximize": True}),
    "Rprop": ("Rprop", {"lr": 0.05}),
    "Rprop with short steps": ("Rprop", {"etas": (0.3, 1.5), "step_sizes": (1e-3, 0.1)}),
    "ASGD": ("ASGD", {"lr": 0.02, "t0": 5, "lambd": 0.01, "weight_decay": 0.1}),
    "Adafactor": ("Adafactor", {"lr": 0.1, "weight_decay": 0.1}),
    "Adafactor with a floor": ("Adafactor", {"lr": 0.3, "eps": (1e-3, 1e-2), "d": 2.0}),
    "AdamW by amsgrad upwards": ("AdamW", {"lr": 0.01, "amsgrad": True, "maximize": True}),
}


def parameters(t):
    """Return a matrix, a vector, and a vector that never gets a gradient."""
    values = [[[1.0, -2.0], [0.5, 3.0]], [0.1, -0.2, 0.3], [1.0]]
    return [t.nn.Parameter(t.tensor(value)) for value in values]


def loss_of(params):
    matrix, vector, _ = params
    return (matrix**2).sum() * 0.5 + ((matrix.sum() - vector) ** 2).sum()


def train(t, optimizer, params, steps):
    """Return the parameters after each step."""
    path = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss_of(params).backward()
        optimizer.step()
        path.append([parameter.detach().tolist() for parameter in params])
    return path


def make(t, name, params):
    kind, options = OPTIMIZERS[name]
    return getattr(t.optim, kind)(params, **options)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_twenty_steps_are_pytorchs(agree, name):
    def program(t):
        params = parameters(t)
        return train(t, make(t, name, params), params, 20)

    agree(program, tolerance=1e-6)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_text_and_state_are_laid_out_as_in_pytorch(agree, name):
    def program(t):
        params = parameters(t)
        optimizer = make(t, name, params)
        before = optimizer.state_dict()
        train(t, optimizer, params, 2)
        return [repr(optimizer), before, optimizer.state_dict()]

    agree(program)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_state_from_pytorch_continues_its_path(name):
    torch = pytest.importorskip("torch", reason="torch is the oracle")
    theirs = parameters(torch)
    their_optimizer = make(torch, name, theirs)
    train(torch, their_optimizer, theirs, 5)
    ours = [nn.Parameter(tangrad.tensor(p.detach().tolist())) for p in theirs]
    optimizer = make(tangrad, name, ours)
    optimizer.load_state_dict(translated(their_optimizer.state_dict()))
    path, expected = train(tangrad, optimizer, ours, 5), train(torch, their_optimizer, theirs, 5)
    for reached, wanted in zip(path[-1], expected[-1], strict=True):
        for a, b in zip(reached, wanted, strict=True):
            assert a == pytest.approx(b, rel=1e-6, abs=1e-6)


def translated(state):
    """Return a state dict of torch with tangrad's tensors."""
    if isinstance(state, dict):
        return {key: translated(value) for key, value in state.items()}
    return tangrad.tensor(state.tolist()) if hasattr(state, "tolist") else state


def test_groups_have_options_of_their_own(agree):
    def program(t):
        params = parameters(t)
        groups = [{"params": params[0], "lr": 0.02}, {"params": params[1:], "momentum": 0.5}]
        optimizer = t.optim.SGD(groups, lr=0.01)
        return [repr(optimizer), train(t, optimizer, params, 3)]

    agree(program)


def test_named_parameters_keep_their_names(agree):
    def program(t):
        optimizer = t.optim.AdamW(t.nn.Linear(2, 1).named_parameters())
        return optimizer.state_dict()["param_groups"]

    agree(program)


def test_a_learning_rate_may_be_a_tensor():
    params = parameters(tangrad)
    train(tangrad, optim.SGD(params, lr=tangrad.tensor(0.1)), params, 3)
    expected = parameters(tangrad)
    train(tangrad, optim.SGD(expected, lr=0.1), expected, 3)
    assert params[0].flatten().tolist() == pytest.approx(expected[0].flatten().tolist())


def test_complex_parameters_are_optimized_like_pairs(agree):
    def program(t):
        parameter = t.nn.Parameter(t.tensor([1 + 2j, -0.5j]))
        optimizer = t.optim.AdamW([parameter], lr=0.1, amsgrad=True)
        for _ in range(5):
            optimizer.zero_grad()
            (parameter * parameter.conj()).real.sum().backward()
            optimizer.step()
        return [parameter.detach().real, parameter.detach().imag]

    agree(program, tolerance=1e-5)


def test_a_step_returns_the_loss_of_its_closure():
    params = parameters(tangrad)
    optimizer = optim.SGD(params, lr=0.01)

    def closure():
        assert tangrad.is_grad_enabled()
        optimizer.zero_grad()
        loss = loss_of(params)
        loss.backward()
        return loss

    with tangrad.no_grad():
        first, second = float(optimizer.step(closure)), float(optimizer.step(closure))
    assert second < first


def test_steps_leave_no_graph():
    params = parameters(tangrad)
    train(tangrad, optim.AdamW(params), params, 2)
    assert all(parameter.is_leaf and parameter.requires_grad for parameter in params)


def test_the_functions_update_lists_in_place():
    from tangrad.optim.adamw import adamw
    from tangrad.optim.sgd import sgd

    parameter, grad, buffers = tangrad.ones(2), tangrad.ones(2), [None]
    options = {"weight_decay": 0, "dampening": 0, "nesterov": False, "maximize": False}
    with tangrad.no_grad():
        sgd([parameter], [grad], buffers, lr=0.5, momentum=0.9, **options)
        assert parameter.tolist() == [0.5, 0.5]
        assert buffers[0].tolist() == [1.0, 1.0]
        sgd([parameter], [grad], [None], lr=1.0, momentum=0, found_inf=True, **options)
        assert parameter.tolist() == [0.5, 0.5]
        sgd([parameter], [grad], [None], lr=1.0, momentum=0, grad_scale=2.0, **options)
        assert parameter.tolist() == [0.0, 0.0]
        step, mean, square = tangrad.tensor(0.0), tangrad.zeros(2), tangrad.zeros(2)
        adamw(
            [parameter], [grad], [mean], [square], [], [step], amsgrad=False, beta1=0.9,
            beta2=0.99, lr=0.1, weight_decay=0.0, eps=0.0, maximize=False,
        )  # fmt: skip
    assert step.item() == 1
    assert parameter.tolist() == pytest.approx([-0.1, -0.1])


def test_an_optimizer_copies_with_its_state():
    params = parameters(tangrad)
    optimizer = optim.AdamW(params, lr=0.1)
    train(tangrad, optimizer, params, 2)
    both = copy.deepcopy((optimizer, params))
    ours, theirs = train(tangrad, optimizer, params, 3), train(tangrad, *both, 3)
    assert ours == theirs


@pytest.mark.parametrize(
    ("kind", "options", "averages"),
    [
        ("Adam", {"amsgrad": True}, ["max_exp_avg_sq"]),
        ("AdamW", {"amsgrad": True}, ["max_exp_avg_sq"]),
        ("NAdam", {}, ["mu_product"]),
    ],
)
def test_a_step_is_differentiable_in_all_of_its_state(kind, options, averages):
    tangrad.manual_seed(0)
    names = ["exp_avg", "exp_avg_sq", *averages]
    p, g, *values = (tangrad.rand(4, dtype=tangrad.float64) + 0.5 for _ in range(2 + len(names)))
    if "mu_product" in names:
        values[-1] = tangrad.tensor(0.9, dtype=tangrad.float64)

    def step(p, g, *values):
        p = p.clone()
        p.grad = g
        optimizer = getattr(optim, kind)([p], lr=0.9, differentiable=True, **options)
        held = {name: value.clone() for name, value in zip(names, values, strict=True)}
        optimizer.state[p] = {"step": tangrad.tensor(10.0), **held}
        optimizer.step()
        return p, *(optimizer.state[p][name] for name in names)

    assert tangrad.autograd.gradcheck(step, [x.requires_grad_() for x in (p, g, *values)])


WRONG = [
    {"lr": -1.0},
    {"eps": -1.0},
    {"betas": (1.0, 0.9)},
    {"betas": (0.9, -0.1)},
    {"weight_decay": -1.0},
    {"eps": -1.0, "betas": (2.0, 2.0), "weight_decay": -1.0},
]


@pytest.mark.parametrize("options", WRONG, ids=repr)
@pytest.mark.parametrize("kind", ["Adam", "AdamW", "Adamax", "NAdam", "RAdam"])
def test_options_out_of_range_are_refused_in_the_words_of_torch(kind, options):
    torch = pytest.importorskip("torch")
    said = []
    for framework in (torch, tangrad):
        with pytest.raises(ValueError, match="Invalid") as found:
            getattr(framework.optim, kind)(parameters(framework), **options)
        said.append(str(found.value))
    assert said[0] == said[1]
