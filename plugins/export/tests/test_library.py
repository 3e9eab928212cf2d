"""`tangrad.export.library`: a shared library and the module beside it, which needs NumPy alone."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compiling import needs_compiler

import tangrad
from tangrad import nn
from tangrad.export import Dim
from tangrad_export.errors import ExportError


class Called(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def library(model: Any, example: Any, folder: Path, **options: Any) -> Any:
    """Return the module of a library of a model or a function."""
    needs_compiler()
    place = folder / "made"
    model = model if isinstance(model, nn.Module) else Called(model)
    tangrad.export.library(model, example, place, **options)
    spec = importlib.util.spec_from_file_location("made", place.with_suffix(".py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_numbers_and_strided_arrays_are_taken(tmp_path: Path) -> None:
    made = library(lambda x, by: x * by, (tangrad.ones(2, 3), tangrad.tensor(2.0)), tmp_path)
    x = np.arange(12, dtype=np.float32).reshape(2, 6)
    for given in (x[:, :3], x[:, ::2], x[:, :3].T.copy().T):
        assert (made.run(given, np.array(3, np.float32)) == 3 * given).all()
        assert (made.run(given, np.float32(2)) == 2 * given).all()


def test_sizes_are_those_of_the_arrays(tmp_path: Path) -> None:
    rows = Dim("rows", max=5)
    example = (tangrad.ones(2, 3), tangrad.ones(3))
    made = library(
        lambda x, y: (x + y, x.sum(0)), example, tmp_path, dynamic_shapes=({0: rows}, None)
    )
    x, y = np.ones((4, 3), np.float32), np.arange(3, dtype=np.float32)
    both, total = made.run(x, y)
    assert (both == x + y).all()
    assert (total == 4).all()
    with pytest.raises(ValueError, match="out of its bounds"):
        made.run(np.ones((6, 3), np.float32), y)


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x[:4],
        lambda x: x[:, :3][:5],
        lambda x: tangrad.combinations(x[:, 0], 3),
        lambda x: x.unfold(0, 2, 3),
        lambda x: x[1::3, ::2],
    ],
)
@pytest.mark.parametrize("both", [False, True])
def test_results_have_the_sizes_of_eager(program: Any, both: bool, tmp_path: Path) -> None:
    shapes = {0: Dim("rows", min=3, max=8)} | ({1: Dim("columns", min=2, max=5)} if both else {})
    made = library(program, (tangrad.ones(6, 4),), tmp_path, dynamic_shapes=(shapes,))
    for rows in range(3, 9):
        for columns in range(2, 6) if both else (4,):
            x = tangrad.arange(float(rows * columns)).reshape(rows, columns)
            found, wanted = made.run(x.numpy()), program(x).numpy()
            assert found.shape == wanted.shape
            assert (found == wanted).all()


def test_constants_that_are_made_of_sizes_are_those_of_each_size(tmp_path: Path) -> None:
    """The places of elements are told by the sizes, which the library puts into a tensor."""

    def program(x: Any) -> Any:
        return tangrad.nonzero_static(x, size=4, fill_value=-1)

    columns = Dim("columns", max=6)
    example = (tangrad.ones(2, 3),)
    made = library(program, example, tmp_path, dynamic_shapes=({1: columns},))
    for count in (1, 2, 3, 5):
        x = tangrad.arange(2.0 * count).reshape(2, count) % 3
        assert made.run(x.numpy()).tolist() == program(x).tolist()
    with pytest.raises(ExportError, match="at different sizes"):
        library(program, example, tmp_path, dynamic_shapes=({1: Dim("columns", max=600)},))


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ((np.ones((2, 3), np.float32),), TypeError, "expected 2 arrays, got 1"),
        ((np.ones((2, 3)), np.ones(3, np.float32)), TypeError, "expected float32, got float64"),
        ((np.ones(3, np.float32), np.ones(3, np.float32)), ValueError, "expected 2 dimensions"),
        ((np.ones((2, 4), np.float32), np.ones(3, np.float32)), ValueError, "expected shape"),
    ],
)
def test_other_arrays_are_refused(
    given: Any, error: type[Exception], message: str, tmp_path: Path
) -> None:
    made = library(lambda x, y: x + y, (tangrad.ones(2, 3), tangrad.ones(3)), tmp_path)
    with pytest.raises(error, match=message):
        made.run(*given)
