"""`compare` names the first module of two models whose result differs."""

from __future__ import annotations

import numpy as np
import pytest

import tangrad
from tangrad import nn


def network(seed: int = 0, width: int = 5) -> nn.Sequential:
    tangrad.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(3, width), nn.ReLU(), nn.BatchNorm1d(width), nn.Sequential(nn.Linear(width, 2))
    )


def twin(model: nn.Module) -> nn.Sequential:
    other = network(7)
    other.load_state_dict(model.state_dict())
    return other


class Tripled(nn.Module):
    """A ReLU whose derivative is wrong: three times the right one."""

    def forward(self, x):
        return x.relu() * 3 - x.relu().detach() * 2


X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)


def test_equal_models_are_the_same() -> None:
    model = network()
    found = tangrad.compare(model, twin(model), X)
    assert found.same
    assert found.compared == 6  # each module, the model and the inner sequence among them
    assert "the same within rounding" in str(found)


def test_the_first_module_that_differs_is_named() -> None:
    model = network()
    other = twin(model)
    other[1] = nn.LeakyReLU(0.1)
    found = tangrad.compare(model, other, X)
    assert not found.same
    assert not found.weights
    assert found.forward.name == "1"
    assert found.forward.kind == "output"
    assert found.forward.largest > found.forward.allowed > 0
    assert [one.name for one in found.outputs] == ["1", "2", "3.0", "3", ""]
    assert "forward: first the output of 1:" in str(found)


def test_weights_that_differ_are_told_before_what_follows_from_them() -> None:
    model = network()
    other = twin(model)
    with tangrad.no_grad():
        other[3][0].bias[1] += 1
    found = tangrad.compare(model, other, X)
    assert [one.name for one in found.weights] == ["3.0.bias"]
    assert found.forward.name == "3.0"
    assert "weights differ before anything is run" in str(found)
    assert tangrad.compare(model, other, X, copy_weights=True).same
    assert other[3][0].bias[1] != model[3][0].bias[1]  # it has its own again


def test_a_wrong_derivative_is_found_where_the_gradient_flows_from_it() -> None:
    model = network()
    other = twin(model)
    other[1] = Tripled()
    found = tangrad.compare(model, other, X)
    assert found.forward is None
    assert found.backward.name == "0"
    assert found.backward.kind == "output gradient"
    assert [one.name for one in found.gradients] == ["0.weight", "0.bias"]
    assert tangrad.compare(model, other, X, backward=False).same


def test_both_models_are_left_as_they_were() -> None:
    model = network()
    other = twin(model)
    model(tangrad.from_numpy(X)).sum().backward()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    gradient = model[0].weight.grad
    kept = gradient.clone()
    hooks = len(model[0]._forward_hooks)
    tangrad.manual_seed(5)
    expected = tangrad.rand(3)
    tangrad.manual_seed(5)
    tangrad.compare(model, other, X)
    assert tangrad.rand(3).equal(expected)
    assert all(v.equal(before[k]) for k, v in model.state_dict().items())
    assert model[0].weight.grad is gradient
    assert gradient.equal(kept)
    assert other[0].weight.grad is None
    assert len(model[0]._forward_hooks) == hooks
    assert model.training


def test_rounding_is_no_difference_and_the_tolerance_is_the_callers() -> None:
    model = network().eval()
    other = twin(model).eval()
    with tangrad.no_grad():
        other[0].weight.mul_(1 + 1e-6)
    assert tangrad.compare(model, other, X).same
    assert not tangrad.compare(model, other, X, rtol=1e-9).same


def test_a_nan_beside_a_number_differs_and_two_do_not() -> None:
    model, other = nn.Identity(), nn.Identity()
    assert tangrad.compare(model, other, np.array([np.nan, np.inf], dtype=np.float32)).same

    class Cleaned(nn.Module):
        def forward(self, x):
            return x.nan_to_num()

    found = tangrad.compare(nn.Identity(), Cleaned(), np.array([np.nan, 1.0], dtype=np.float32))
    assert found.forward.largest == np.inf


def test_shapes_outputs_in_containers_and_shared_modules_are_compared() -> None:
    class Pair(nn.Module):
        def __init__(self, wrong: float) -> None:
            super().__init__()
            self.shared = nn.Linear(3, 3)
            self.wrong = wrong

        def forward(self, x, *, scale):
            y = self.shared(x)
            return {"a": (y,), "n": 3, "b": self.shared(y + self.wrong) * scale}

    model, other = Pair(0.0), Pair(1.0)
    other.load_state_dict(model.state_dict())
    given = {"x": tangrad.from_numpy(X), "scale": 2.0}
    assert tangrad.compare(model, model, given).same
    found = tangrad.compare(model, other, given)
    assert found.forward.name == "shared (call 2)"
    wide = tangrad.compare(network(), network(width=6), X)
    assert "shape [4, 5] beside [4, 6]" in str(wide.forward)


@pytest.mark.parametrize("dtype", [tangrad.float64, tangrad.bfloat16, tangrad.float16])
def test_other_dtypes_have_tolerances_of_their_own(dtype) -> None:
    model = network().to(dtype)
    other = twin(model).to(dtype)
    x = tangrad.from_numpy(X).to(dtype)
    assert tangrad.compare(model, other, x).same
    other[3][0] = nn.Linear(5, 2).to(dtype)
    assert tangrad.compare(model, other, x).forward.name == "3.0"


def test_two_devices_give_the_same() -> None:
    model = network()
    assert tangrad.compare(model, twin(model).to("reference"), X).same


def test_a_model_of_pytorch_is_compared() -> None:
    oracle = pytest.importorskip("torch")
    model = network()
    theirs = oracle.nn.Sequential(
        oracle.nn.Linear(3, 5),
        oracle.nn.ReLU(),
        oracle.nn.BatchNorm1d(5),
        oracle.nn.Sequential(oracle.nn.Linear(5, 2)),
    )
    for inputs in (X, oracle.from_numpy(X), tangrad.from_numpy(X)):
        assert tangrad.compare(model, theirs, inputs, copy_weights=True).same
    theirs[2] = oracle.nn.BatchNorm1d(5, eps=0.1)
    found = tangrad.compare(theirs, model, X, copy_weights=True)
    assert found.forward.name == "2"


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(TypeError, match="model_b is a function, not a module"):
        tangrad.compare(network(), lambda x: x, X)
    named = nn.ModuleDict({"first": nn.Linear(3, 2)})
    with pytest.raises(ValueError, match="no submodule of the same path: 0, 1, 2"):
        tangrad.compare(network(), named, X)
    with pytest.raises(ValueError, match=r"0.weight of model_b has shape \[6, 3\]"):
        tangrad.compare(network(), network(width=6), X, copy_weights=True)


def test_a_model_that_raises_is_left_without_hooks() -> None:
    model = network()
    with pytest.raises(RuntimeError):
        tangrad.compare(model, twin(model), np.ones((2, 9), dtype=np.float32))
    assert not model[0]._forward_hooks
