"""`tangrad.cond` and `tangrad.while_loop` in exported programs."""

from __future__ import annotations

import io
import json
import random
import zipfile
from collections.abc import Callable
from typing import Any

import pytest

import tangrad
from tangrad import Tensor, nn
from tangrad.export import Dim, export, load, save, unflatten
from tangrad.utils import _pytree


class Called(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def exported(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return export(Called(function), args, **kwargs)


def saved_and_loaded(program: Any) -> Any:
    file = io.BytesIO()
    save(program, file)
    file.seek(0)
    return load(file)


def forms(program: Any) -> list[Callable[..., Any]]:
    """Return the ways in which a program can be run."""
    read = saved_and_loaded(program)
    return [
        program.module(),
        program.run_decompositions({}).module(),
        program.run_decompositions().module(),
        read.module(),
        read.run_decompositions().module(),
        unflatten(program),
    ]


def assert_same(program: Any, function: Callable[..., Any], *args: Any) -> None:
    expected = _pytree.tree_leaves(function(*args))
    for form in forms(program):
        found = _pytree.tree_leaves(form(*args))
        for a, b in zip(found, expected, strict=True):
            tangrad.testing.assert_close(a, b)


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


def test_both_ways_of_a_program_with_a_size_that_varies() -> None:
    tangrad.manual_seed(0)
    model = Model()
    program = export(model, (tangrad.randn(2, 3),), dynamic_shapes=({0: Dim("n")},))
    made = forms(program)
    for rows in (2, 3, 5):
        for sign in (1, -1):
            x = sign * tangrad.rand(rows, 3)
            for form in made:
                for a, b in zip(form(x), model(x), strict=True):
                    tangrad.testing.assert_close(a, b)


def test_gradients_go_through_the_branch_that_is_taken() -> None:
    tangrad.manual_seed(0)
    model = Model()
    program = export(model, (tangrad.randn(2, 3),))
    for sign in (1, -1):
        x = sign * tangrad.rand(2, 3)
        model.zero_grad()
        model(x)[0].sum().backward()
        expected = {n: None if p.grad is None else p.grad.clone() for n, p in named(model)}
        model.zero_grad()
        program.module()(x)[0].sum().backward()
        for n, p in named(model):
            if expected[n] is None:
                assert p.grad is None or not p.grad.any()
            else:
                tangrad.testing.assert_close(p.grad, expected[n])


def named(model: nn.Module) -> list[tuple[str, Any]]:
    return list(model.named_parameters())


def test_the_graph_has_the_functions_as_graphs_of_their_own() -> None:
    program = exported(
        lambda x: tangrad.cond(x.sum() > 0, lambda x: x + 1, lambda x: x * 2, (x,)),
        tangrad.ones(3),
    )
    call = next(n for n in program.graph.nodes if n.target is tangrad.cond)
    pred, true, false, operands = call.args
    assert pred.name == "gt"
    assert [n.name for n in operands] == ["args_0"]
    assert (true.target, false.target) == ("true_graph_0", "false_graph_0")
    module = program.graph_module
    assert tangrad.equal(module.true_graph_0(tangrad.ones(3))[0], tangrad.full((3,), 2.0))
    assert "true_graph_0:" in str(program)
    assert "torch.mul" in str(program)


CASES: dict[str, Callable[[Tensor], Any]] = {
    "a function hands on what it is given": lambda x: (
        tangrad.cond(x.sum() > 0, lambda x: x, lambda x: x.clone(), (x,)) + x
    ),
    "nested, with a constant": lambda x: tangrad.cond(
        x.sum() > 0,
        lambda x: tangrad.cond(
            x.max() > 1, lambda: x * tangrad.tensor([1.0, 2.0, 3.0]), lambda: x - 1, ()
        ),
        lambda x: x * 2,
        (x,),
    ),
    "nested results": lambda x: tangrad.cond(
        x.sum() > 0,
        lambda x: {"a": x, "b": (x + 1,)},
        lambda x: {"a": x * 2, "b": (x,)},
        (x,),
    ),
    "a condition that is no tensor": lambda x: tangrad.cond(
        x.dim() > 0, lambda x: x + 1, lambda x: x, (x,)
    ),
    "carried values change places": lambda x: tangrad.while_loop(
        lambda a, b: a.sum() < 10, lambda a, b: (b, a + b.abs() + 1), (x, x)
    ),
    "no round at all": lambda x: tangrad.while_loop(
        lambda a: a.sum() < -100, lambda a: (a + 1,), (x,)
    ),
    "a number is carried": lambda x: tangrad.while_loop(
        lambda i, a: i < 3, lambda i, a: (i + 1, a * 2), (0, x)
    )[1],
    "a loop in a branch": lambda x: tangrad.cond(
        x.sum() > 0,
        lambda x: tangrad.while_loop(lambda a: a.sum() < 9, lambda a: (a + x.abs(),), (x,))[0],
        lambda x: x,
        (x,),
    ),
    "a branch in a loop": lambda x: tangrad.while_loop(
        lambda a: a.sum() < 9,
        lambda a: (tangrad.cond(a.sum() > 3, lambda a: a + 2, lambda a: a + x.abs() + 1, (a,)),),
        (x,),
    ),
    "writes into tensors of its own": lambda x: tangrad.cond(
        x.sum() > 0, lambda x: x.clone().add_(1).mul_(2), lambda x: x, (x,)
    ),
    "gradients are switched off": lambda x: tangrad.cond(
        x.sum() > 0, tangrad.no_grad()(lambda x: x * 2), lambda x: x, (x,)
    ),
    "nothing uses it": lambda x: (
        tangrad.cond(x.sum() > 0, lambda x: x, lambda x: x + 1, (x,)),
        x * 2,
    )[1],
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("sign", [1, -1])
def test_programs(name: str, sign: int) -> None:
    function = CASES[name]
    program = exported(function, tangrad.tensor([0.5, 1.5, 0.25]))
    for scale in (1, 2):
        x = sign * scale * tangrad.tensor([0.5, 1.5, 0.25])
        assert_same(program, function, x)


REFUSED: dict[str, tuple[Callable[[Tensor], Any], str]] = {
    "writes": (
        lambda x: tangrad.cond(x.sum() > 0, lambda x: x.add_(1), lambda x: x, (x,)),
        "true_fn: a function writes into a tensor from outside",
    ),
    "writes into what it carries": (
        lambda x: tangrad.while_loop(lambda a: a.sum() < 9, lambda a: (a.add_(1),), (x,)),
        "body_fn: a function writes into a tensor from outside",
    ),
    "shapes": (
        lambda x: tangrad.cond(x.sum() > 0, lambda x: x[:1], lambda x: x, (x,)),
        r"same nesting, shapes and dtypes, got \['tangrad.float32\[1\]'\]",
    ),
    "dtypes in a loop": (
        lambda x: tangrad.while_loop(lambda a: a.sum() < 9, lambda a: (a.double(),), (x,)),
        "must return values like those it takes",
    ),
    "numbers": (
        lambda x: tangrad.cond(x.sum() > 0, lambda x: 1, lambda x: 2, (x,)),
        "true_fn must return tensors, got int",
    ),
    "a condition of several elements": (
        lambda x: tangrad.cond(x > 0, lambda x: x, lambda x: x, (x,)),
        "expected a bool or a bool tensor with a single element",
    ),
    "values are read in a branch": (
        lambda x: tangrad.cond(x.sum() > 0, lambda: x + x.max().item(), lambda: x, ()),
        "asks for a value of a tensor",
    ),
    "a number depends on the rounds": (
        lambda x: tangrad.while_loop(
            lambda i, a: a.sum() < 30, lambda i, a: (i + 1, a + 2), (0, x)
        ),
        "asks for a value of a tensor",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    function, message = REFUSED[name]
    x = tangrad.ones(3)
    with pytest.raises(RuntimeError, match=message):
        exported(function, x)
    assert tangrad.equal(x, tangrad.ones(3))


def test_a_file_cannot_name_an_attribute_that_is_no_graph() -> None:
    file = io.BytesIO()
    save(exported(lambda x: x + 1, tangrad.ones(2)), file)
    with zipfile.ZipFile(file) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    program = json.loads(contents["program.json"])
    node = {**program["nodes"][0], "op": "get_attr", "name": "w", "target": "w"}
    program["nodes"].insert(1, node)
    changed = io.BytesIO()
    with zipfile.ZipFile(changed, "w") as archive:
        for name, content in contents.items():
            text = json.dumps(program).encode() if name == "program.json" else content
            archive.writestr(name, text)
    changed.seek(0)
    with pytest.raises(ValueError, match="a node that is a get_attr"):
        load(changed)


# --- random programs ---------------------------------------------------------------------------


class Writer:
    """Write a random function of tensors of shape (3,), with branches and loops nested in it."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.count = 0

    def text(self) -> str:
        values = ["x", "y"]
        self.statements(values, "    ", 2)
        self.lines.append(f"    return {', '.join(self.random.sample(values, 2))}")
        return "\n".join(["def program(x, y):", *self.lines])

    def name(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def statements(self, values: list[str], indent: str, depth: int) -> None:
        for _ in range(self.random.randint(1, 3)):
            kind = self.random.choice(["plain", "plain", "cond", "loop"] if depth else ["plain"])
            getattr(self, kind)(values, indent, depth)

    def expression(self, values: list[str]) -> str:
        a, b = self.random.choices(values, k=2)
        k = self.random.randint(-2, 3)
        forms = "{a} + {b}", "{a} * {k}", "T.tanh({a}) - {b}", "{a}.clone().add_({b})"
        more = "T.where({a} > {k}, {a}, {b})", "{a}.flip(0)", "{a} * T.tensor([1.0, {k}, 2.0])"
        return self.random.choice([*forms, *more]).format(a=a, b=b, k=k)

    def plain(self, values: list[str], indent: str, depth: int) -> None:
        made = self.name("v")
        self.lines.append(f"{indent}{made} = {self.expression(values)}")
        values.append(made)

    def function(self, values: list[str], params: list[str], indent: str, depth: int) -> str:
        made = self.name("f")
        self.lines.append(f"{indent}def {made}({', '.join(params)}):")
        inner = [*values, *params]
        self.statements(inner, indent + "    ", depth - 1)
        self.lines.append(f"{indent}    return {self.random.choice(inner[-3:])}, {inner[-1]}")
        return made

    def cond(self, values: list[str], indent: str, depth: int) -> None:
        params = [self.name("p") for _ in range(self.random.randint(0, 2))]
        operands = "".join(f"{self.random.choice(values)}, " for _ in params)
        functions = [self.function(values, params, indent, depth) for _ in range(2)]
        test = f"{self.random.choice(values)}.sum() > {self.random.randint(-1, 1)}"
        a, b = self.name("v"), self.name("v")
        call = f"T.cond({test}, {', '.join(functions)}, ({operands}))"
        self.lines.append(f"{indent}{a}, {b} = {call}")
        values += [a, b]

    def loop(self, values: list[str], indent: str, depth: int) -> None:
        params = [self.name("p") for _ in range(2)]
        step = self.function(values, params, indent, depth)
        body, a, b, i = (self.name(stem) for stem in ("f", "v", "v", "i"))
        rounds = self.random.randint(0, 3)
        p, q = params
        self.lines += [
            f"{indent}def {body}({i}, {p}, {q}):",
            f"{indent}    {p}, {q} = {step}({p}, {q})",
            f"{indent}    return {i} + 1, T.tanh({p}), T.tanh({q})",
            f"{indent}{i}, {a}, {b} = T.while_loop(lambda i, p, q: (i < {rounds}) & "
            f"(p.sum() < 4), {body}, (T.zeros((), dtype=T.int64), "
            f"{self.random.choice(values)}, {self.random.choice(values)}))",
        ]
        values += [a, b]


@pytest.mark.parametrize(
    "first",
    [
        *range(0, 24, 6),
        *(pytest.param(first, marks=pytest.mark.slow) for first in range(24, 60, 6)),
    ],
)
def test_random_programs(first: int) -> None:
    for seed in range(first, first + 6):
        names: dict[str, Any] = {"T": tangrad}
        text = Writer(seed).text()
        exec(text, names)
        function = names["program"]
        tangrad.manual_seed(seed)
        program = exported(function, tangrad.randn(3), tangrad.randn(3))
        for _ in range(4):
            args = tangrad.randn(3), tangrad.randn(3)
            try:
                assert_same(program, function, *args)
            except AssertionError as error:
                raise AssertionError(f"seed {seed}\n{text}") from error
