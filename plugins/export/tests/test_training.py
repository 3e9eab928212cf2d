"""`training=True`: steps in C whose losses are eager's, number by number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compiling import array, exported, loaded, needs_compiler, pointer, self_tested

import tangrad
from tangrad import nn
from tangrad.export import Dim
from tangrad_export import ExportError

F, optim = nn.functional, tangrad.optim
pytestmark = needs_compiler

OPTIMIZERS = {
    "sgd": lambda p: optim.SGD(p, 0.1),
    "nesterov": lambda p: optim.SGD(p, 0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adam": lambda p: optim.Adam(p, 0.01),
    "amsgrad": lambda p: optim.Adam(p, 0.01, amsgrad=True, weight_decay=0.1),
    "adamw": lambda p: optim.AdamW(p, 0.01),
    "rmsprop": lambda p: optim.RMSprop(p, 0.01, centered=True, momentum=0.5),
    "adagrad": lambda p: optim.Adagrad(p, 0.05, lr_decay=0.1),
    "dampened": lambda p: optim.SGD(p, 0.1, momentum=0.9, dampening=0.3),
    "one by one": lambda p: optim.Adam(p, 0.01, foreach=False),
    "tensor": lambda p: optim.Adam(p, tangrad.tensor(0.01), foreach=False),
}


def network() -> Any:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, bias=False),  # whose gradient would be noise before a batch norm
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(36, 3),
    )


def losses_of(library: Any, *arrays: Any, steps: int = 20) -> list[float]:
    import ctypes

    library.model_train_step.restype = ctypes.c_float
    return [library.model_train_step(*map(pointer, arrays)) for _ in range(steps)]


def eager(model: Any, optimizer: Any, x: Any, y: Any, loss: Any, steps: int = 20) -> list[float]:
    found = []
    for _ in range(steps):
        optimizer.zero_grad()
        value = loss(model(x), y)
        value.backward()
        optimizer.step()
        found.append(float(value.item()))
    return found


def weight_of(library: Any, name: str) -> Any:
    import ctypes

    library.model_weights.restype = ctypes.POINTER(ctypes.c_float)
    count = ctypes.c_size_t()
    found = library.model_weights(name.encode(), ctypes.byref(count))
    return np.ctypeslib.as_array(found, (count.value,)) if found else None


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("taken", [0, 2])
def test_losses_are_eagers(name: str, taken: int, tmp_path: Path) -> None:
    tangrad.manual_seed(1)
    model, x, y = network(), tangrad.randn(8, 1, 8, 8), tangrad.randint(0, 3, (8,))
    optimizer = OPTIMIZERS[name](model.parameters())
    eager(model, optimizer, x, y, F.cross_entropy, taken)
    before = {k: v.detach().clone() for k, v in model.state_dict().items()}
    options = {"training": True, "loss": F.cross_entropy, "targets": y, "optimizer": optimizer}
    source = exported(model, (x,), tmp_path, **options)
    assert all(tangrad.equal(v, before[k]) for k, v in model.state_dict().items())
    library = loaded(source)
    mine = losses_of(library, array(x), array(y))
    np.testing.assert_allclose(
        mine, eager(model, optimizer, x, y, F.cross_entropy), rtol=0, atol=1e-4
    )
    for path, value in model.state_dict().items():
        if value.dtype == tangrad.float32:
            found = weight_of(library, path)
            np.testing.assert_allclose(found, array(value).ravel(), rtol=0, atol=1e-3)
    assert weight_of(library, "none") is None


def test_a_self_test_takes_a_step(tmp_path: Path) -> None:
    model = nn.Linear(3, 2)
    self_tested(
        exported(
            model,
            (tangrad.randn(4, 3),),
            tmp_path,
            training=True,
            loss=nn.MSELoss(),
            targets=tangrad.randn(4, 2),
            optimizer=optim.SGD(model.parameters(), 0.1),
        ),
        most=1e-4,
    )


def test_targets_may_be_several(tmp_path: Path) -> None:
    model = nn.Linear(3, 2)
    targets = (tangrad.randn(4, 2), tangrad.tensor([0, 1, 1, 0]))

    def loss(out: Any, given: Any) -> Any:
        return F.mse_loss(out, given[0]) + F.cross_entropy(out, given[1])

    x = tangrad.randn(4, 3)
    optimizer = optim.Adam(model.parameters(), 0.1)
    source = exported(
        model, (x,), tmp_path, training=True, loss=loss, targets=targets, optimizer=optimizer
    )
    mine = losses_of(loaded(source), array(x), *map(array, targets))
    np.testing.assert_allclose(mine, eager(model, optimizer, x, targets, loss), atol=1e-4)


def test_gradients_are_clipped_by_a_hook_of_the_optimizer(tmp_path: Path) -> None:
    model = nn.Linear(3, 2)
    optimizer = optim.SGD(model.parameters(), 0.5)

    def clip(*args: Any) -> None:
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)

    optimizer.register_step_pre_hook(clip)
    x, y = tangrad.randn(4, 3), tangrad.randn(4, 2)
    source = exported(
        model, (x,), tmp_path, training=True, loss=F.mse_loss, targets=y, optimizer=optimizer
    )
    mine = losses_of(loaded(source), array(x), array(y))
    np.testing.assert_allclose(mine, eager(model, optimizer, x, y, F.mse_loss), atol=1e-4)


def test_options_of_the_optimizer_are_as_before(tmp_path: Path) -> None:
    model = nn.Linear(3, 2)
    optimizer = optim.Adam(model.parameters(), foreach=False)
    source = step_of(model, optimizer, tmp_path)
    assert source.exists()
    (group,) = optimizer.param_groups
    assert (group["foreach"], group["fused"], group["differentiable"]) == (False, None, False)


def step_of(model: Any, optimizer: Any, folder: Path, **options: Any) -> Path:
    """Export a step of (4, 3) to (4, 2) by mean squares."""
    x = tangrad.randn(4, 3, dtype=next(model.parameters()).dtype)
    y = tangrad.randn(4, 2, dtype=x.dtype)
    given = {"targets": y, "optimizer": optimizer, "loss": F.mse_loss} | options
    return exported(model, (x,), folder, training=True, **given)


def test_both_names_of_a_tied_weight_are_its_place(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Tanh(), nn.Linear(3, 3, bias=False))
    model.append(nn.Linear(3, 2))
    model[2].weight = model[0].weight
    library = loaded(step_of(model, optim.SGD(model.parameters(), 0.1), tmp_path))
    first, second = (weight_of(library, f"{k}.weight") for k in (0, 2))
    assert first.ctypes.data == second.ctypes.data


def test_a_model_of_doubles_has_no_weights_to_show(tmp_path: Path) -> None:
    model = nn.Linear(3, 2).double()
    source = step_of(model, optim.SGD(model.parameters(), 0.1), tmp_path)
    self_tested(source, most=1e-4)
    assert weight_of(loaded(source), "weight") is None


def test_buffers_that_nothing_computes_with_are_not_written(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).eval()
    source = step_of(model, optim.SGD(model.parameters(), 0.1), tmp_path)
    self_tested(source, most=1e-4)
    assert "num_batches_tracked" not in source.read_text()


def test_weights_of_modules_of_any_name(tmp_path: Path) -> None:
    model = nn.Sequential()
    names = ("a-b", "a_b", 'a "b"', "gr\u00f6\u00dfe\\", "int")
    for k, name in enumerate(names):
        model.add_module(name, nn.Linear(3, 2 if k == len(names) - 1 else 3))
    library = loaded(step_of(model, optim.SGD(model.parameters(), 0.1), tmp_path))
    for path, value in model.state_dict().items():
        np.testing.assert_array_equal(weight_of(library, path), array(value).ravel())


def test_a_self_test_draws_the_numbers_of_its_example(tmp_path: Path) -> None:
    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 2)

        def forward(self, x: Any) -> Any:
            return self.layer(x + tangrad.randn_like(x)) + tangrad.rand(2)

    model = Noisy()
    self_tested(step_of(model, optim.SGD(model.parameters(), 0.1), tmp_path), most=1e-4)


def test_a_loss_may_look_at_constants(tmp_path: Path) -> None:
    model, x = nn.Linear(3, 4), tangrad.randn(6, 2, 3)
    lengths, y = tangrad.tensor([3, 2]), tangrad.randint(1, 4, (2, 3))

    def loss(out: Any, given: Any) -> Any:
        return F.ctc_loss(out.log_softmax(2), given, tangrad.tensor([6, 5]), lengths)

    optimizer = optim.SGD(model.parameters(), 0.1)
    source = exported(
        model, (x,), tmp_path, training=True, loss=loss, targets=y, optimizer=optimizer
    )
    mine = losses_of(loaded(source), array(x), array(y), steps=3)
    np.testing.assert_allclose(mine, eager(model, optimizer, x, y, loss, 3), atol=1e-4)


def test_the_batch_varies(tmp_path: Path) -> None:
    import ctypes

    model = nn.Linear(3, 2)
    optimizer = optim.SGD(model.parameters(), 0.1)
    x, y = tangrad.randn(4, 3), tangrad.randn(4, 2)
    source = exported(
        model,
        (x,),
        tmp_path,
        training=True,
        loss=F.mse_loss,
        targets=y,
        optimizer=optimizer,
        dynamic_shapes=({0: Dim("batch", min=1, max=8)},),
    )
    library = loaded(source)
    library.model_train_step.restype = ctypes.c_float
    for size in (2, 8, 5):
        x, y = tangrad.randn(size, 3), tangrad.randn(size, 2)
        mine = library.model_train_step(size, pointer(array(x)), pointer(array(y)))
        (wanted,) = eager(model, optimizer, x, y, F.mse_loss, 1)
        assert abs(mine - wanted) < 1e-4
    assert np.isnan(library.model_train_step(9, pointer(array(x)), pointer(array(y))))


@pytest.mark.parametrize("name", ["adam", "adagrad"])
def test_the_batch_of_a_network_with_statistics_varies(name: str, tmp_path: Path) -> None:
    tangrad.manual_seed(2)
    model, loss = network(), F.cross_entropy
    optimizer = OPTIMIZERS[name](model.parameters())
    sizes = (8, 3, 32, 1, 8)
    batches = [(tangrad.randn(n, 1, 8, 8), tangrad.randint(0, 3, (n,))) for n in sizes]
    x, y = batches[0]
    library = loaded(
        exported(
            model,
            (x,),
            tmp_path,
            training=True,
            loss=loss,
            targets=y,
            optimizer=optimizer,
            dynamic_shapes=({0: Dim("batch", min=1, max=32)},),
        )
    )
    import ctypes

    library.model_train_step.restype = ctypes.c_float
    for x, y in batches:
        mine = library.model_train_step(len(x), pointer(array(x)), pointer(array(y)))
        (wanted,) = eager(model, optimizer, x, y, loss, 1)
        assert abs(mine - wanted) < 1e-4
    found = weight_of(library, "1.running_var")
    np.testing.assert_allclose(found, array(model[1].running_var), rtol=1e-5)


def test_a_loss_of_no_parameter_is_refused(tmp_path: Path) -> None:
    model = nn.Linear(3, 2)
    optimizer = optim.SGD(model.parameters(), 0.1)
    with pytest.raises(ExportError, match="depends on no parameter"):
        step_of(model, optimizer, tmp_path, loss=lambda out, target: target.sum())
    assert list(tmp_path.iterdir()) == []


def test_other_optimizers_are_refused(tmp_path: Path) -> None:
    model = nn.Linear(3, 2)
    with pytest.raises(ExportError, match="Rprop"):
        exported(
            model,
            (tangrad.randn(4, 3),),
            tmp_path,
            training=True,
            loss=F.mse_loss,
            targets=tangrad.randn(4, 2),
            optimizer=optim.Rprop(model.parameters()),
        )
    assert list(tmp_path.iterdir()) == []
