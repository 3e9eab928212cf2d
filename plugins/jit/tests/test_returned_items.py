"""A number that goes from `item()` straight to the caller is a result of the graph."""

from __future__ import annotations

import pytest

import tangrad
from tangrad import nn


def compiled(function, **options):
    chosen = {"measure": False} | options
    return tangrad.compile(function, fullgraph=True, options=chosen)


def at_once(x):
    return (x * 2).sum().item()


def by_a_local(x):
    y = x.square()
    total = y.sum().item()
    return total  # noqa: RET504


def several(x):
    y = x + 1
    return y, y.sum().item(), {"most": x.amax().item(), "of": "two"}


def whole(x):
    return [x.argmax().item(), x.numel()]


def of_what_is_given(x):
    return x.amax().item(), x


PROGRAMS = (at_once, by_a_local, several, whole, of_what_is_given)


def told(result):
    leaves = tangrad.utils._pytree.tree_flatten(result)[0]
    return [(type(v), v.tolist() if isinstance(v, tangrad.Tensor) else v) for v in leaves]


@pytest.mark.parametrize("program", PROGRAMS)
def test_it_is_one_graph_whose_numbers_are_those_of_the_call(program):
    fast = compiled(program)
    for seed in range(4):
        tangrad.manual_seed(seed)
        x = tangrad.randn(3, 4)
        assert told(fast(x)) == told(program(x))
    assert len(fast.compiled.executables) == 1
    assert not fast.compiled.off


def test_a_training_step_that_returns_its_loss_as_a_number_is_one_graph():
    def trained(wrap):
        tangrad.manual_seed(3)
        model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
        optimizer = tangrad.optim.Adam(model.parameters(), lr=0.01)
        x, y = tangrad.randn(10, 6), tangrad.arange(10) % 3

        def step():
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss.item()

        run = wrap(step)
        losses = [run() for _ in range(6)]
        return losses, [p.tolist() for p in model.parameters()], run

    losses, weights, fast = trained(compiled)
    assert (losses, weights) == trained(lambda step: step)[:2]
    assert all(type(loss) is float for loss in losses)
    assert fast.compiled.executables


def test_results_beside_numbers_are_differentiated():
    def program(x):
        y = (x * x).sin()
        return y, y.sum().item()

    fast, x = compiled(program), tangrad.randn(5, requires_grad=True)
    for _ in range(3):
        y, number = fast(x)
        (grad,) = tangrad.autograd.grad(y.sum(), x)
        assert tangrad.equal(grad, tangrad.autograd.grad(program(x)[0].sum(), x)[0])
        assert number == program(x)[1]


def test_one_graph_serves_other_sizes():
    fast = tangrad.compile(at_once, fullgraph=True, dynamic=True, options={"measure": False})
    for rows in (4, 6, 5, 9, 31):
        x = tangrad.randn(rows, 3)
        assert fast(x) == at_once(x)
    events = fast.compiled.events
    assert sum(e.startswith(("recorded", "prepared")) for e in events) == 2, events


def test_numbers_are_compared_where_calls_run_both_ways(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    fast, x = compiled(at_once, check=1.0), tangrad.ones(3)
    assert [fast(x) for _ in range(3)] == [6.0] * 3
    assert not fast.compiled.off
    fast.compiled.executables[0]._run_forward = lambda inputs: [7.0]
    assert fast(x) == 6.0
    assert "differ from the function's" in fast.compiled.off


def looked_at(x):
    total = x.sum().item()
    return total if total > 0 else -total


def computed_with(x):
    return x.sum().item() + 1


def given_away(x, losses=[]):  # noqa: B006
    losses.append(x.sum().item())
    return x


def in_a_helper(x):
    return str(helped(x))


def helped(x):
    return x.sum().item()


def as_a_text(x):
    return f"{x.sum().item():.2f}"


def a_truth(x):
    return (x > 0).all().item()


def by_float(x):
    return float(x.sum())


@pytest.mark.parametrize(
    "program", [looked_at, computed_with, given_away, in_a_helper, as_a_text, a_truth, by_float]
)
def test_a_number_that_goes_elsewhere_is_refused(program):
    x = tangrad.ones(3)
    with pytest.raises(RuntimeError, match="Python looks at the value"):
        compiled(program)(x)
    plain = tangrad.compile(program)
    assert told([plain(x) for _ in range(3)]) == told([program(x)] * 3)
