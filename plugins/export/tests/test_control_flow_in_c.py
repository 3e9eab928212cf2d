"""`tangrad.cond` and `tangrad.while_loop` in exported files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compiling import (
    COMPILERS,
    array,
    compiled,
    exported,
    loaded,
    needs_compiler,
    pointer,
    self_tested,
)
from random_control_flow import Writer

import tangrad
from tangrad import Tensor, nn
from tangrad.export import Dim
from tangrad.utils import _pytree
from tangrad_export import ExportError

COUNT = 300 if os.environ.get("TANGRAD_TESTS") == "full" else 12


class Called(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def assert_same(library: Any, function: Any, args: Any, sizes: tuple[int, ...] = ()) -> None:
    """Compare what a file computes with what eager does."""
    given = [array(t) for t in args]
    with tangrad.no_grad():
        expected = [array(t) for t in _pytree.tree_leaves(function(*args))]
    found = [np.full_like(a, 77) for a in expected]
    assert library.model_run(*sizes, *(pointer(a) for a in (*given, *found))) == 0
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


LAYER = nn.Linear(3, 3)
IMAGES = nn.Sequential(nn.Conv1d(1, 2, 3, padding=1), nn.BatchNorm1d(2), nn.ReLU()).eval()
T = tangrad

CASES: dict[str, Callable[[Tensor], Any]] = {
    "two sides": lambda x: T.cond(x.sum() > 0, lambda x: x + 1, lambda x: x * 2, (x,)),
    "a side hands on what it is given": lambda x: (
        T.cond(x.sum() > 0, lambda x: x, lambda x: x.clone(), (x,)) + x
    ),
    "sides change the order of their results": lambda x: T.cond(
        x.sum() > 0, lambda a, b: (a, b), lambda a, b: (b, a), (x + 1, x * 2)
    ),
    "nested, with a constant": lambda x: T.cond(
        x.sum() > 0,
        lambda x: T.cond(x.max() > 1, lambda: x * T.tensor([1.0, 2.0, 3.0]), lambda: x - 1, ()),
        lambda x: x * 2,
        (x,),
    ),
    "nested results of several dtypes": lambda x: T.cond(
        x.sum() > 0,
        lambda x: {"a": x.double(), "b": (x > 0.3,), "c": x.argmax()},
        lambda x: {"a": x.double() * 2, "b": (x < 0,), "c": x.argmin()},
        (x,),
    ),
    "results without elements": lambda x: T.cond(
        x.sum() > 0, lambda x: (x[:0], x), lambda x: (x[3:], x + 1), (x,)
    ),
    "results that are not contiguous": lambda x: T.cond(
        x.sum() > 0,
        lambda x: (x[:, None] + x).t(),
        lambda x: x.expand(3, 3),
        (x,),
    ).flip(0),
    "values from before are used behind": lambda x: (
        lambda a, b: T.cond(x.sum() > 0, lambda: a.exp() + x.flip(0), lambda: x * 2, ()) + b.flip(0)
    )(x * 3, x - 1),
    "a side is written into": lambda x: T.cond(
        x.sum() > 0, lambda x: x.clone().add_(1).mul_(2), lambda x: x.clone(), (x,)
    ).add_(1),
    "parameters": lambda x: T.cond(
        x.sum() > 0, lambda x: LAYER(x), lambda x: T.relu(LAYER(x) * 2), (x,)
    ),
    "a norm and a rectifier in a side": lambda x: (
        lambda y: T.cond(
            x.sum() > 0, lambda y: IMAGES[2](IMAGES[1](y)), lambda y: IMAGES[1](y * 2), (y,)
        )
    )(IMAGES[0](x.view(1, 1, 3))),
    "a network in a side": lambda x: T.cond(
        x.sum() > 0, IMAGES, lambda x: x.expand(1, 2, 3).sin(), (x.view(1, 1, 3),)
    ),
    "nothing uses it": lambda x: (
        T.cond(x.sum() > 0, lambda x: x, lambda x: x + 1, (x,)),
        x * 2,
    )[1],
    "values change places": lambda x: T.while_loop(
        lambda a, b: a.sum() < 10, lambda a, b: (b, a + b.abs() + 1), (x, x)
    ),
    "three values change places": lambda x: T.while_loop(
        lambda i, a, b, c: i < 4,
        lambda i, a, b, c: (i + 1, b, c, a),
        (T.zeros((), dtype=T.int64), x, x + 1, x.flip(0)),
    ),
    "parts of values change places": lambda x: T.while_loop(
        lambda a, b: a.sum() < 10,
        lambda a, b: (b.flip(0), T.where(a > b, a, b).abs() + 0.5),
        (x, x * 2),
    ),
    "a value stays": lambda x: T.while_loop(
        lambda a, b: a.sum() < 10, lambda a, b: (a + b.abs() + 1, b), (x, x)
    ),
    "no round at all": lambda x: T.while_loop(lambda a: a.sum() < -100, lambda a: (a + 1,), (x,)),
    "a truth value is carried": lambda x: T.while_loop(
        lambda going, a: going, lambda going, a: (a.sum() < 5, a + 1), (x.sum() < 5, x)
    ),
    "a value from before is used in each round": lambda x: (
        lambda y: (
            T.while_loop(lambda a: a.sum() < 9, lambda a: (a.tanh() + a + y.exp(),), (x,))[0] - x
        )
    )(x * 0.1 + 1),
    "memory of a value from before is kept for each round": lambda x: (
        lambda y: T.while_loop(
            lambda i, a: i < 4,
            lambda i, a: (i + 1, (a + y.flip(0)).cumsum(0).flip(0).cumsum(0).flip(0) * 0.3),
            (T.zeros((), dtype=T.int64), x),
        )
    )((x * 0.1 + 1).cumsum(0)),
    "a loop in a branch": lambda x: T.cond(
        x.sum() > 0,
        lambda x: T.while_loop(lambda a: a.sum() < 9, lambda a: (a + x.abs(),), (x,))[0],
        lambda x: x,
        (x,),
    ),
    "a branch in a loop": lambda x: T.while_loop(
        lambda a: a.sum() < 9,
        lambda a: (T.cond(a.sum() > 3, lambda a: a + 2, lambda a: a + x.abs() + 1, (a,)),),
        (x,),
    ),
    "a loop in a loop": lambda x: T.while_loop(
        lambda a, n: n < 3,
        lambda a, n: (
            T.while_loop(lambda b: b.sum() < 4, lambda b: (b + x.abs() + 0.1,), (a - 1,))[0],
            n + 1,
        ),
        (x, T.zeros((), dtype=T.int32)),
    ),
    "parameters in a loop": lambda x: T.while_loop(
        lambda i, a: i < 5,
        lambda i, a: (i + 1, T.tanh(LAYER(a))),
        (T.zeros((), dtype=T.int64), x),
    ),
    "gradients are switched off": lambda x: T.cond(
        x.sum() > 0, T.no_grad()(lambda x: x * 2), lambda x: x, (x,)
    ),
}


@needs_compiler
@pytest.mark.parametrize("name", CASES)
def test_programs_compute_what_eager_does(name: str, tmp_path: Path) -> None:
    function = CASES[name]
    x = tangrad.tensor([0.5, 1.5, 0.25])
    source = exported(Called(function), (x,), tmp_path)
    self_tested(source)
    library = loaded(source)
    for scale in (1, 2, 0.1, -1, -2):
        assert_same(library, function, (scale * x,))


@needs_compiler
@pytest.mark.parametrize("rounds", range(5))
def test_a_loop_takes_as_many_rounds_as_its_condition_says(rounds: int, tmp_path: Path) -> None:
    def function(x: Tensor, n: Tensor) -> Any:
        return tangrad.while_loop(
            lambda i, x: i < n,
            lambda i, x: (i + 1, x * 2 + i),
            (tangrad.zeros((), dtype=tangrad.int64), x),
        )

    args = tangrad.randn(3), tangrad.tensor(2)
    library = loaded(exported(Called(function), args, tmp_path))
    assert_same(library, function, (args[0], tangrad.tensor(rounds)))


class Model(nn.Module):
    """Branches that use parameters, and a loop, with a size that varies."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(3, 4), nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Any:
        rows = x.shape[0]
        y = tangrad.cond(
            x.sum() > 0,
            lambda z: self.a(z) * rows,
            lambda z: tangrad.relu(self.b(z) + z.shape[0]),
            (x,),
        )
        count = tangrad.zeros((), dtype=tangrad.int64)
        count, y = tangrad.while_loop(
            lambda i, y: (i < 5) & (y.sum() < 100),
            lambda i, y: (i + 1, y * 2 + self.c.bias.sum()),
            (count, y),
        )
        return self.c(y), count


@needs_compiler
@pytest.mark.parametrize("options", [{}, {"arena": "argument"}, {"weights": "file"}])
def test_files_of_all_kinds_have_branches_and_loops(options: Any, tmp_path: Path) -> None:
    tangrad.manual_seed(0)
    self_tested(exported(Model(), (tangrad.randn(2, 3),), tmp_path, **options))


@needs_compiler
def test_sizes_vary(tmp_path: Path) -> None:
    tangrad.manual_seed(0)
    model = Model()
    shapes = ({0: Dim("n", min=1, max=6)},)
    source = exported(model, (tangrad.randn(2, 3),), tmp_path, dynamic_shapes=shapes)
    self_tested(source)
    library = loaded(source)
    for rows in range(1, 7):
        for sign in (1, -1):
            assert_same(library, model, (sign * tangrad.rand(rows, 3),), (rows,))


@needs_compiler
@pytest.mark.parametrize("most", [6, 400])
def test_sizes_vary_in_a_branch_in_a_loop(most: int, tmp_path: Path) -> None:
    def function(x: Tensor) -> Any:
        def side(a: Tensor) -> Tensor:
            return (a + x.mean(0)).softmax(0)

        return tangrad.while_loop(
            lambda i, a: i < 3,
            lambda i, a: (
                i + 1,
                tangrad.cond(a.sum() > 0, lambda a: a * x.shape[0] - 9, side, (a,)),
            ),
            (tangrad.zeros((), dtype=tangrad.int64), x),
        )

    shapes = ({0: Dim("n", min=1, max=most)},)
    source = exported(Called(function), (tangrad.randn(4, 3),), tmp_path, dynamic_shapes=shapes)
    library = loaded(source)
    for rows in (1, 2, 3, most):
        for sign in (1, -1):
            assert_same(library, function, (sign * tangrad.rand(rows, 3),), (rows,))


@needs_compiler
@pytest.mark.parametrize("holds", [True, False])
@pytest.mark.parametrize(
    "dtype", ["float16", "bfloat16", "float64", "complex64", "int8", "int32", "bool"]
)
def test_dtypes(dtype: str, holds: bool, tmp_path: Path) -> None:
    def function(p: Tensor, x: Tensor) -> Any:
        def twice(x: Tensor) -> Any:
            return tangrad.while_loop(
                lambda i, a: i < 2,
                lambda i, a: (i + 1, a | a if dtype == "bool" else a + a),
                (tangrad.zeros((), dtype=tangrad.int64), x),
            )[1]

        return tangrad.cond(p, twice, lambda x: x.flip(0).conj(), (x,))

    x = (tangrad.randn(3) * 2).to(getattr(tangrad, dtype))
    self_tested(exported(Called(function), (tangrad.tensor(holds), x), tmp_path))


@needs_compiler
def test_an_index_out_of_bounds_is_reported_where_it_is_used(tmp_path: Path) -> None:
    table = tangrad.randn(4, 3)

    def function(x: Tensor, words: Tensor) -> Any:
        return tangrad.cond(x.sum() > 0, lambda: table[words] + x, lambda: x.expand(2, 3) * 1, ())

    x, words = tangrad.ones(3), tangrad.tensor([1, 3])
    library = loaded(exported(Called(function), (x, words), tmp_path))
    assert_same(library, function, (x, words))
    outside = tangrad.tensor([1, 4])
    assert_same(library, function, (-x, outside))
    out = np.full((2, 3), 9, np.float32)
    assert library.model_run(pointer(array(x)), pointer(array(outside)), pointer(out)) != 0
    assert (out == 9).all()


@needs_compiler
def test_an_index_out_of_bounds_ends_a_loop(tmp_path: Path) -> None:
    following = tangrad.tensor([1, 2, 3, 0])

    def function(start: Tensor, table: Tensor) -> Any:
        return tangrad.while_loop(
            lambda at, steps: table[at].sum() != 3,
            lambda at, steps: (table[at], steps + 1),
            (start, tangrad.zeros((), dtype=tangrad.int64)),
        )

    start = tangrad.tensor([0])
    library = loaded(exported(Called(function), (start, following), tmp_path))
    assert_same(library, function, (start, following))
    at, steps = np.full(1, 9), np.full((), 9)
    for table in ([1, 7, 3, 0], [9, 2, 3, 0]):
        given = np.array(table)
        args = pointer(array(start)), pointer(given), pointer(at), pointer(steps)
        assert library.model_run(*args) != 0
        assert (at[0], steps) == (9, 9)


@needs_compiler
@pytest.mark.parametrize("level", ["-O0", "-O2", "-O3", "-Os"])
@pytest.mark.parametrize("compiler", COMPILERS)
def test_no_level_of_optimization_warns(compiler: str, level: str, tmp_path: Path) -> None:
    source = exported(Model(), (tangrad.randn(2, 3),), tmp_path)
    compiled(source, tmp_path / "out.o", level, "-c", compiler=compiler)


def test_steps_stay_on_their_side(tmp_path: Path) -> None:
    def function(x: Tensor) -> Any:
        e = x.exp()
        return tangrad.while_loop(lambda a: a.sum() < 90, lambda a: (a + e,), (x,))

    text = exported(Called(function), (tangrad.ones(3),), tmp_path, "loop").read_text()
    assert text.index("/* exp (") < text.index("for (;;)")
    name = "a norm and a rectifier in a side"
    text = exported(Called(CASES[name]), (tangrad.ones(3),), tmp_path, "side").read_text()
    body = text.partition("int side_run(")[2]
    assert body.index("if (arena") < body.index("op_relu(")


def test_the_comment_of_a_result_names_the_op_that_computes_it(tmp_path: Path) -> None:
    text = exported(Called(CASES["two sides"]), (tangrad.ones(3),), tmp_path).read_text()
    body = text.partition("{\n    /*")[2]
    order = [body.index(part) for part in ("/* cond (", "/* add (", "else", "/* mul (")]
    assert order == sorted(order)


def test_what_nothing_uses_is_not_written(tmp_path: Path) -> None:
    source = exported(Called(CASES["nothing uses it"]), (tangrad.ones(3),), tmp_path)
    assert "if (arena" not in source.read_text()


def noisy(x: Tensor) -> Any:
    return tangrad.cond(x.sum() > 0, lambda x: x + tangrad.rand(3), lambda x: x, (x,))


def noisy_loop(x: Tensor) -> Any:
    return tangrad.while_loop(lambda x: x.sum() < 9, lambda x: (x + tangrad.rand(3),), (x,))


@pytest.mark.parametrize(("function", "op"), [(noisy, "cond"), (noisy_loop, "while_loop")])
def test_random_numbers_inside_are_refused(function: Any, op: str, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="random numbers are drawn") as caught:
        exported(nn.Sequential(Called(function)), (tangrad.ones(3),), tmp_path)
    assert (caught.value.op, caught.value.module) == (op, "0")
    assert str(caught.value.where).startswith("test_control_flow_in_c.py:")
    assert list(tmp_path.iterdir()) == []


def test_an_op_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    def function(x: Tensor) -> Any:
        return tangrad.cond(x.sum() > 0, tangrad.linalg.svdvals, lambda x: x[0], (x,))

    with pytest.raises(ExportError) as caught:
        exported(nn.Sequential(Called(function)), (tangrad.ones(3, 3),), tmp_path)
    assert (caught.value.op, caught.value.module) == ("linalg_svdvals", "0")
    assert list(tmp_path.iterdir()) == []


@needs_compiler
@pytest.mark.parametrize("first", range(0, COUNT, 6))
def test_random_programs_compute_what_eager_does(first: int, tmp_path: Path) -> None:
    for seed in range(first, first + 6):
        names: dict[str, Any] = {"T": tangrad, "L": LAYER}
        text = Writer(seed).text()
        exec(text, names)
        function = names["program"]
        tangrad.manual_seed(seed)
        folder = tmp_path / str(seed)
        folder.mkdir()
        args = tangrad.randn(3), tangrad.randn(3)
        library = loaded(exported(Called(function), args, folder))
        try:
            for _ in range(6):
                assert_same(library, function, (tangrad.randn(3), tangrad.randn(3)))
        except AssertionError as error:
            raise AssertionError(f"seed {seed}\n{text}") from error
