"""L-BFGS and Muon, whose steps take more than one parameter or number into account."""

import math

import pytest

import tangrad
from tangrad.optim.line_search import Point, cubic_minimum


def valley(t, x):
    """Return Rosenbrock's function of neighbouring elements."""
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


@pytest.mark.parametrize(
    "options",
    [
        {"lr": 0.002},
        {"lr": 0.01, "max_iter": 4, "history_size": 2},
        {"line_search_fn": "strong_wolfe"},
        {"line_search_fn": "strong_wolfe", "max_iter": 7, "history_size": 3},
        {"line_search_fn": "strong_wolfe", "lr": 0.3, "max_eval": 5},
    ],
)
def test_lbfgs_walks_as_in_pytorch(agree, options):
    def program(t):
        start = t.tensor([-1.2, 1.0, 0.3], dtype=t.float64)
        params = [t.nn.Parameter(start.clone()), t.nn.Parameter(t.ones(2, 2, dtype=t.float64))]
        optimizer = t.optim.LBFGS(params, **options)
        path = []
        for _ in range(6):

            def closure():
                optimizer.zero_grad()
                loss = valley(t, params[0]) + ((params[1] - params[0][0]) ** 4).sum()
                loss.backward()
                return loss

            loss = optimizer.step(closure)
            state = optimizer.state[params[0]]
            path.append([loss.item(), state["func_evals"], state["n_iter"]])
            path.append([p.detach().tolist() for p in params])
        return path

    agree(program, tolerance=1e-7)


@pytest.mark.parametrize("most", [1, 3, 8])
def test_lbfgs_walks_down_a_straight_line(agree, most):
    def program(t):
        x = t.nn.Parameter(t.tensor([1.0, 2.0], dtype=t.float64))
        optimizer = t.optim.LBFGS([x], line_search_fn="strong_wolfe", max_iter=9, max_eval=most)
        seen = []

        def closure():
            optimizer.zero_grad()
            loss = x.sum()
            loss.backward()
            seen.append(loss.item())
            return loss

        optimizer.step(closure)
        return seen, x.detach().tolist()

    agree(program, tolerance=1e-7)


def test_lbfgs_finds_the_minimum():
    x = tangrad.nn.Parameter(tangrad.tensor([-1.2, 1.0], dtype=tangrad.float64))
    optimizer = tangrad.optim.LBFGS(
        [x], max_iter=100, tolerance_change=1e-14, line_search_fn="strong_wolfe"
    )

    def closure():
        optimizer.zero_grad()
        loss = valley(tangrad, x)
        loss.backward()
        return loss

    optimizer.step(closure)
    assert x.detach().tolist() == pytest.approx([1.0, 1.0], abs=1e-6)


def test_lbfgs_continues_from_its_state(agree):
    def program(t):
        import copy

        def run(x, optimizer, count):
            def closure():
                optimizer.zero_grad()
                loss = valley(t, x)
                loss.backward()
                return loss

            return [optimizer.step(closure).item() for _ in range(count)]

        x = t.nn.Parameter(t.tensor([-1.0, 0.5, 2.0], dtype=t.float64))
        optimizer = t.optim.LBFGS([x], max_iter=3, line_search_fn="strong_wolfe")
        run(x, optimizer, 2)
        y = t.nn.Parameter(x.detach().clone())
        other = t.optim.LBFGS([y], max_iter=3, line_search_fn="strong_wolfe")
        other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        return run(y, other, 3)

    agree(program, tolerance=1e-7)


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_lbfgs_moves_complex_parameters_as_pairs(agree, search):
    def program(t):
        z = t.nn.Parameter(t.tensor([1 + 2j, 3 - 1j], dtype=t.complex128))
        x = t.nn.Parameter(t.ones(2, dtype=t.float64))
        idle = t.nn.Parameter(t.ones(1, dtype=t.complex128))
        optimizer = t.optim.LBFGS([z, idle, x], lr=0.1, max_iter=4, line_search_fn=search)

        def closure():
            optimizer.zero_grad()
            loss = (z * z.conj()).real.sum() + ((x - z.real) ** 2).sum() + ((z.imag - 1) ** 4).sum()
            loss.backward()
            return loss

        for _ in range(3):
            optimizer.step(closure)
        return [t.view_as_real(z.detach()), x.detach(), t.view_as_real(idle.detach())]

    agree(program, tolerance=1e-7)


def test_lbfgs_goes_on_where_the_gradient_is_zero(agree):
    def program(t):
        p = t.nn.Parameter(t.ones(3))
        optimizer = t.optim.LBFGS([p], tolerance_grad=-math.inf)
        return optimizer.step(lambda: t.tensor([10.0])), p.detach()

    agree(program)


@pytest.mark.parametrize("wrong", ["two groups", "line search"])
def test_lbfgs_refuses_what_pytorch_refuses(agree, wrong):
    def program(t):
        p = t.nn.Parameter(t.ones(2))
        if wrong == "two groups":
            t.optim.LBFGS([{"params": [p]}, {"params": [t.nn.Parameter(t.ones(1))]}])
        search = "armijo" if wrong == "line search" else None
        optimizer = t.optim.LBFGS([p], line_search_fn=search)

        def closure():
            loss = (p * p).sum()
            loss.backward()
            return loss

        optimizer.step(closure)

    agree(program, message=False)


def test_a_cubic_without_a_minimum_gives_the_middle():
    a, b = Point(0.0, 0.0, None, 1.0), Point(2.0, 1.5, None, 1.0)
    assert cubic_minimum(a, b) == 1.0


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"nesterov": False, "momentum": 0.8, "weight_decay": 0.0},
        {"adjust_lr_fn": "match_rms_adamw", "lr": 0.01},
        {"ns_steps": 3, "ns_coefficients": (2.0, -1.5, 0.5)},
    ],
)
def test_muon_moves_as_in_pytorch(agree, options):
    def program(t):
        shapes = [(3, 5), (6, 2)]
        # Squares under the sine give full rank: a singular value of zero would be noise.
        values = [(t.arange(a * b, dtype=t.float32) ** 2).sin().reshape(a, b) for a, b in shapes]
        params = [t.nn.Parameter(value) for value in values]
        optimizer = t.optim.Muon(params, **{"lr": 0.02, **options})
        for _ in range(5):
            optimizer.zero_grad()
            sum(((p @ p.T) ** 2).sum() for p in params).backward()
            optimizer.step()
        return [p.detach() for p in params] + [sorted(optimizer.state[params[0]])]

    agree(program, tolerance=1e-6)  # each number in bfloat16 is rounded once, as there


def test_muon_takes_matrices_only(agree):
    agree(lambda t: t.optim.Muon([t.nn.Parameter(t.ones(3))]), message=False)


def test_sparse_adam_refuses_dense_gradients(agree):
    def program(t):
        p = t.nn.Parameter(t.ones(3))
        optimizer = t.optim.SparseAdam([p])
        p.sum().backward()
        optimizer.step()

    agree(program)


@pytest.mark.parametrize(
    "kind", ["Adadelta", "Adagrad", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop", "ASGD"]
)
def test_complex_parameters_are_optimized_like_pairs(agree, kind):
    def program(t):
        parameter = t.nn.Parameter(t.tensor([1 + 2j, -0.5j]))
        optimizer = getattr(t.optim, kind)([parameter], lr=0.1)
        for _ in range(7):
            optimizer.zero_grad()
            (parameter * parameter.conj()).real.sum().backward()
            optimizer.step()
        return [parameter.detach().real, parameter.detach().imag]

    agree(program, tolerance=1e-5)


@pytest.mark.parametrize(
    "kind", ["Adadelta", "Adagrad", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop", "ASGD"]
)
def test_a_step_can_be_differentiated(agree, kind):
    def program(t):
        scale = t.tensor(2.0, requires_grad=True)
        optimizer_of = getattr(t.optim, kind)
        start = t.nn.Parameter(t.tensor([0.5, -1.5]))
        parameter = start.clone()
        parameter.retain_grad()
        optimizer = optimizer_of([parameter], lr=0.1, differentiable=True)
        parameter.grad = scale * t.tensor([0.3, -0.2])
        optimizer.step()
        parameter.sum().backward()
        return [scale.grad, start.grad]

    agree(program, tolerance=1e-5, message=False)


def test_other_parameters_and_state_are_swapped_in(agree):
    def program(t):
        p = t.nn.Parameter(t.ones(2))
        optimizer = t.optim.SGD([p], lr=0.1, momentum=0.9)
        p.grad = t.ones(2)
        optimizer.step()
        q = t.zeros(2)
        q.grad = t.full((2,), 2.0)
        state = optimizer.state_dict()
        state["state"][0]["momentum_buffer"] = t.full((2,), 5.0)
        with t.optim.swap_in_optimizer_params_and_state(optimizer, {"p": q}, state):
            optimizer.step()
        return [p.detach(), q, optimizer.state[p]["momentum_buffer"], state["state"][0]]

    agree(program)
