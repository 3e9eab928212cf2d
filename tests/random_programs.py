# ruff: noqa: E501 - the texts of programs' lines break badly
"""Random programs that run unchanged in tangrad and in torch.

A program is Python text over a library `T` and variables `x0, x1, ...`: leaves, then steps of
views, arithmetic, writes in place, `no_grad`, `detach`, hooks and backward passes. torch runs each
step as it is written, so a step is chosen knowing the shapes; a small part of the steps is
careless on purpose. The text is then run by tangrad.
"""

from __future__ import annotations

import importlib
import math
import random
import re
import warnings
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

NAME = re.compile(r"\bx\d+\b")
SIZES = (0, 1, 2, 2, 3, 3, 4)
UNARY = ("sin", "tanh", "abs", "square", "sigmoid", "neg", "relu", "exp2", "softplus")
BINARY = ("+", "-", "*", "/ (1.5 + {b}.abs()) *", "@maximum", "@minimum")
REDUCE = ("sum", "mean", "amax", "amin", "logsumexp", "prod")
INPLACE_UNARY = ("sin_", "tanh_", "zero_", "neg_", "abs_", "relu_", "square_", "sigmoid_")
CONTEXTS = (
    "T.no_grad()",
    "T.no_grad()",
    "T.enable_grad()",
    "T.inference_mode()",
    "T.set_grad_enabled(False)",
)


@dataclass
class Program:
    """The text of a program, and torch's outcome of it."""

    seed: int
    lines: list[str] = field(default_factory=list)
    outcome: Outcome | None = None

    def __str__(self) -> str:
        return f"# seed {self.seed}\n" + "\n".join(self.lines)


@dataclass
class Outcome:
    """What a library made of a program: its variables, or the line at which it gave up."""

    state: dict[str, Any]
    line: int | None = None
    error: Exception | None = None
    derivatives: set[str] = field(default_factory=set)


def run(lines: list[str], library: Any) -> Outcome:
    """Run a program's lines until the first that raises."""
    state = fresh_state(library)
    for i, line in enumerate(lines):
        error = step(line, state)
        if error is not None:
            return Outcome(state, i, error)
    return Outcome(state)


def fresh_state(library: Any) -> dict[str, Any]:
    """Return the names that a program starts with."""
    names = {"T": library, "LOG": [], "log": recorder, "D": library.float64}
    return names | library_names(library)


@cache
def library_names(library: Any) -> dict[str, Any]:
    """Return a library's checkpoint, and Functions that write or return what they are given."""
    checkpoint = importlib.import_module(f"{library.__name__}.utils.checkpoint").checkpoint

    class Triple(library.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.mark_dirty(x)
            return x.mul_(3)

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * 3

    class Claimed(library.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * 5

    class Same(library.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * 7

    class Squared(library.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return 2 * grad * ctx.saved_tensors[0]

    class Affine(library.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, factor: Any = 2.0, shift: Any = 0.0) -> Any:
            ctx.save_for_backward(x)
            ctx.factor = factor
            return x * factor + shift

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return (grad * ctx.factor, None, None)[: len(ctx.needs_input_grad)]

    return {
        "AFFINE": Affine.apply,
        "CHECKPOINT": checkpoint,
        "TRIPLE_": Triple.apply,
        "CLAIM_": Claimed.apply,
        "SAME": Same.apply,
        "SQUARED": Squared.apply,
    }


def recorder(log: list[Any], mark: int, factor: float | None = None) -> Any:
    """Return a tensor hook that notes the gradient and may scale it."""

    def hook(grad: Any) -> Any:
        log.append((mark, grad.detach().clone()))
        return None if factor is None else grad * factor

    return hook


def step(line: str, state: dict[str, Any]) -> Exception | None:
    """Run one line and return what it raised."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(line, state)
    except Exception as error:  # any error at all is an outcome
        return error
    return None


def write(seed: int, library: Any, steps: int = 14) -> Program:
    """Write the program of a seed, running it in `library` on the way."""
    return Writer(seed, library).write(steps)


class Writer:
    """Write one program step by step, knowing the variables' shapes."""

    def __init__(self, seed: int, library: Any) -> None:
        self.random = random.Random(seed)
        self.program = Program(seed)
        self.state = fresh_state(library)
        self.count = 0
        self.leaves: list[str] = []
        self.derivatives: set[str] = set()
        self.hooked = False
        # Every third program differentiates often, squares, and writes what it differentiated.
        self.often = seed % 3 == 2

    def write(self, steps: int) -> Program:
        """Write leaves, steps and the closing backward pass."""
        for _ in range(self.random.randint(2, 3)):
            self.leaf()
        for _ in range(self.random.randint(3, steps)):
            if not self.add(self.a_step()):
                return self.program
        self.close()
        return self.program

    def add(self, line: str) -> bool:
        """Append a line, run it and tell whether it succeeded."""
        self.program.lines.append(line)
        self.note_derivative(line)
        error = step(line, self.state)
        if error is not None:
            self.program.outcome = Outcome(self.state, len(self.program.lines) - 1, error)
        return error is None

    def note_derivative(self, line: str) -> None:
        """Keep which variables are derivatives, or made of some."""
        target, _, source = line.partition(" = ")
        used = set(NAME.findall(source or line))
        if "create_graph" in source or used & self.derivatives:
            self.derivatives |= {target.rpartition(" ")[2], *NAME.findall(target)}

    # Names and numbers

    def new(self) -> str:
        self.count += 1
        return f"x{self.count - 1}"

    def one_in(self, n: int) -> bool:
        return self.random.randrange(n) == 0

    def names(self) -> list[str]:
        """List the floating-point variables, recent ones more often."""
        known = [f"x{i}" for i in range(self.count) if f"x{i}" in self.state]
        tensors = [n for n in known if getattr(self.state[n], "dtype", None) == self.state["D"]]
        return tensors + tensors[-3:]

    def tensor(self, least: int = 0) -> str:
        """Pick a variable with at least so many dimensions, if there is one."""
        fitting = [n for n in self.names() if self.state[n].dim() >= least]
        return self.random.choice(fitting or self.names())

    def writable(self, least: int = 0) -> str | None:
        """Pick a variable that may be written in place (rarely one that may not), or None."""
        if self.one_in(40):
            return self.tensor(least)
        fitting = [
            n
            for n in self.names()
            if self.state[n].dim() >= least
            and may_be_written(self.state[n])
            and not overlaps(self.state[n])
        ]
        return self.random.choice(fitting) if fitting else None

    def tracked(self) -> str | None:
        """Pick a variable that requires a gradient (rarely one that may not), or None."""
        if self.one_in(40):
            return self.tensor()
        fitting = [n for n in self.names() if self.state[n].requires_grad]
        return self.random.choice(fitting) if fitting else None

    def dim(self, name: str) -> int:
        n = max(self.state[name].dim(), 1)
        return self.random.randrange(-n, n)

    def number(self) -> float:
        return round(self.random.uniform(-2, 2), 2)

    def values(self, shape: tuple[int, ...]) -> str:
        """Write a nested list of random numbers of a shape, as a tensor."""
        flat = [self.number() for _ in range(math.prod(shape))]
        return f"T.tensor({flat}, dtype=D).reshape({tuple(shape)})"

    def shape_like(self, name: str) -> tuple[int, ...]:
        """Draw a shape that broadcasts against a variable's."""
        shape = [1 if self.one_in(4) else s for s in self.state[name].shape]
        return tuple(shape[self.random.randint(0, len(shape)) :] if self.one_in(2) else shape)

    def partner(self, name: str, written: bool = False) -> str:
        """Write an operand that broadcasts with a variable (rarely one that may not).

        What torch writes in place from another view of the same memory depends on the order of
        its loops, unless it is the very same view.
        """
        if self.one_in(25) and not written:
            return self.tensor()
        shape = tuple(self.state[name].shape)
        same = [n for n in self.names() if fits(tuple(self.state[n].shape), shape)]
        if written:
            same = [
                n for n in same if n == name or not share_memory(self.state[n], self.state[name])
            ]
        if same and not self.one_in(3):
            return self.random.choice(same)
        return str(self.number()) if self.one_in(2) else self.values(self.shape_like(name))

    # Kinds of lines

    def leaf(self) -> None:
        shape = tuple(self.random.choice(SIZES[1:]) for _ in range(self.random.randint(0, 3)))
        name = self.new()
        gradient = not self.one_in(6)
        if gradient:
            self.leaves.append(name)
        self.add(f"{name} = {self.values(shape)}.clone().detach().requires_grad_({gradient})")

    def a_step(self) -> str:
        kinds = (
            self.view,
            self.view,
            self.view,
            self.arithmetic,
            self.arithmetic,
            self.reduce,
            self.contract,
            self.write_in_place,
            self.write_in_place,
            self.write_in_place,
            self.assign,
            self.index,
            self.join,
            self.cut,
            self.hook,
            self.backward,
            self.several_views,
            self.call,
        )
        if self.often:
            kinds += (self.product,) * 3 + (self.derivative,) * 4 + (self.write_in_place,) * 2
        kind = self.random.choice(kinds)
        line = kind()
        # detach_ does nothing under torch's inference mode.
        if self.one_in(7) and kind not in (self.backward, self.hook) and "detach_" not in line:
            return f"with {self.random.choice(CONTEXTS)}: {line}"
        return line

    def view(self) -> str:
        x = self.tensor(1)
        shape = tuple(self.state[x].shape)
        d, e = self.dim(x), self.dim(x)
        size = shape[d] if shape else 1
        start = self.random.randint(0, size)
        flat = math.prod(shape)
        choices = [
            f"{x}.transpose({d}, {e})",
            f"{x}.unsqueeze({self.random.randint(0, len(shape))})",
            f"{x}.squeeze()",
            f"{x}.reshape({self.factored(flat)})",
            f"{x}.view({self.factored(flat)})",
            f"{x}.flatten()",
            f"{x}.narrow({d}, {start}, {self.random.randint(0, size - start)})",
            f"{x}.expand(2, {'-1, ' * len(shape)})",
            f"{x}.movedim({d}, {e})",
            f"{x}.permute({self.permutation(len(shape))})",
            f"{x}.view_as({x})",
            f"{x}.select({d}, {self.random.randrange(-size, size) if size else 0})",
            f"{x}[::2]",
            f"{x}[..., None]",
            f"{x}[..., :1]",
            f"{x}.diagonal()",
            f"{x}.contiguous()",
            f"{x}.detach()",
            f"{x}.clone()",
            f"{x}.T",
            f"{x}.as_strided(({flat},), (1,))",
            f"{x}.unfold({d}, {min(2, size)}, 1)",
        ]
        return f"{self.new()} = {self.random.choice(choices)}"

    def several_views(self) -> str:
        x = self.tensor(1)
        d = self.dim(x)
        whole = f"{x}.expand(2, {'-1, ' * self.state[x].dim()})" if self.one_in(4) else x
        calls = (f"unbind({d})", f"split(1, {d})", f"chunk(2, {d})", f"tensor_split(2, {d})")
        piece = f"{whole}.{self.random.choice(calls)}[{self.random.choice((0, 0, -1))}]"
        name = self.new()
        if not self.one_in(3):
            return f"{name} = {piece}"
        write = f"{self.random.choice((name, name, x))}.mul_({self.number()})"
        return f"{name} = {piece}\nwith T.set_grad_enabled({self.one_in(4)}): {write}"

    def factored(self, count: int) -> str:
        """Write sizes whose product is `count` (rarely not)."""
        if self.one_in(30):
            count += 1
        options = [str(count), "-1" if count else str(count)]
        options += [f"{a}, {count // a}" for a in (1, 2, 3, 4) if count % a == 0]
        return self.random.choice(options)

    def permutation(self, n: int) -> str:
        order = list(range(n))
        self.random.shuffle(order)
        return f"({''.join(f'{i}, ' for i in order)})"

    def arithmetic(self) -> str:
        x = self.tensor()
        if self.one_in(2):
            return f"{self.new()} = {x}.{self.unary()}"
        operator, y = self.random.choice(BINARY), self.partner(x)
        if operator.startswith("@"):
            y = y if not is_number(y) else f"T.tensor({y}, dtype=D)"
            return f"{self.new()} = T.{operator[1:]}({x}, {y})"
        if "{b}" in operator:
            return f"{self.new()} = {x} / (1.5 + {self.tensor()}.square().sum())"
        if self.one_in(5):
            return f"{self.new()} = T.where({x} > {y}, {x}, {self.number()})"
        return f"{self.new()} = {x} {operator} {y}"

    def product(self) -> str:
        """Write a product whose fused derivative serves both factors."""
        x = self.tensor()
        y = self.partner(x)
        choices = (f"{x} * {x}", f"{x} * {y}", f"{x}.pow(2)", f"T.addcmul({x}, {x}, {x})")
        return f"{self.new()} = {self.random.choice((*choices, f'{x} / (2 + {x} * {x})'))}"

    def derivative(self) -> str:
        """Write a derivative that is differentiated again."""
        x = self.tracked()
        if x is None or self.hooked:
            return self.product()
        return self.gradient_of(x)

    def gradient_of(self, x: str) -> str:
        inputs = [n for n in self.names() if self.state[n].requires_grad]
        wanted = self.random.choice(inputs if self.often and inputs else self.leaves or [x])
        return (
            f"{self.new()} = T.autograd.grad({x}.sum(), {wanted}, create_graph=True, "
            "allow_unused=True)[0]"
        )

    def call(self) -> str:
        """Write a call of a checkpointed function, or of a Function."""
        if self.one_in(2):
            x, y = self.tensor(), self.tensor()
            body, given = self.random.choice(
                (
                    ("lambda a: (a * a).sin()", x),
                    ("lambda a: a.sigmoid().square()", x),
                    ("lambda a, b: a.sin() * b.square().sum()", f"{x}, {y}"),
                    ("lambda a, b: (a * 2).mul_(3).tanh() + b.sum()", f"{x}, {y}"),
                    ("lambda a: a.clone().narrow(-1, 0, 1).mul_(2).exp()", self.tensor(1)),
                )
            )
            return f"{self.new()} = CHECKPOINT({body}, {given}, use_reentrant=False)"
        name = self.random.choice(("TRIPLE_", "TRIPLE_", "CLAIM_", "SAME", "SQUARED"))
        x = self.writable() if name.endswith("_") else self.tensor()
        if self.one_in(4):
            named = self.random.choice(("factor={n}", "shift=1.5, factor={n}", "shift={n}"))
            name, x = "AFFINE", f"{self.tensor()}, {named.format(n=self.number())}"
        return self.arithmetic() if x is None else f"{self.new()} = {name}({x})"

    def unary(self) -> str:
        name = self.random.choice(UNARY)
        if name in ("exp2", "softplus"):
            return "tanh().exp()"
        return (
            f"{name}()"
            if not self.one_in(6)
            else f"clamp({self.number() - 2}, {self.number() + 2})"
        )

    def reduce(self) -> str:
        x = self.tensor()
        how = self.random.choice(REDUCE)
        d = self.dim(x)
        tail = self.random.choice((f"({d})", f"({d}, keepdim=True)", f"({d})", "()"))
        if how in ("logsumexp",) and tail == "()":
            tail = f"({d})"
        extra = self.random.choice(
            (
                f"{x}.cumsum({d})",
                f"{x}.softmax({d})",
                f"{x}.sort({d}).values",
                f"{x}.max({d}).values",
                f"{x}.var()",
                f"{x}.norm()",
            )
        )
        if self.one_in(40):  # seldom, for what follows is NaN
            extra = f"T.cat([{x}.flatten(), T.full((1,), T.inf, dtype=D)]).{self.random.choice(('var', 'std'))}()"
        return f"{self.new()} = " + (extra if self.one_in(3) else f"{x}.{how}{tail}")

    def contract(self) -> str:
        x = self.tensor(1)
        shape = tuple(self.state[x].shape)
        inner = shape[-1] if shape else 1
        other = self.random.choice(
            (
                f"{x}.transpose(-1, -2)" if len(shape) > 1 else x,
                self.values((inner, 2)),
                self.values((inner,)),
            )
        )
        return f"{self.new()} = {x} @ {other}"

    def write_in_place(self) -> str:
        x = self.writable()
        if x is None:
            return self.arithmetic()
        y = self.partner(x, written=True)
        d = self.dim(x)
        shape = tuple(self.state[x].shape)
        choices = [
            f"{x}.add_({y})",
            f"{x}.mul_({y})",
            f"{x}.sub_({y})",
            f"{x} += {y}",
            f"{x} *= {y}",
            f"{x}.{self.random.choice(INPLACE_UNARY)}()",
            f"{x}.fill_({self.number()})",
            f"{x}.copy_({y if not is_number(y) else self.values(self.shape_like(x))})",
            f"{x}.clamp_(-1, 1)",
            f"{x}.masked_fill_({x} > 0, {self.number()})",
            f"{x}.detach().add_({self.number()})",
            f"{x}.add_({x})",
            f"{x}.mul_({x})",
            f"{x}.exp_().clamp_(0, 3)",
            f"{x}.cumsum_({d})",
        ]
        if shape:
            choices += [
                f"{x}.narrow({d}, 0, 1).mul_({self.number()})",
                f"{x}.transpose_({d}, {self.dim(x)})",
                f"{x}.unsqueeze_({d})",
                f"{x}.squeeze_()",
                f"{x}.t_()" if len(shape) <= 2 else f"{x}.squeeze_(0)",
                f"{x}.index_fill_({d}, T.tensor([0]), {self.number()})",
                f"{x}.diagonal().zero_()",
            ]
        return self.random.choice(choices)

    def assign(self) -> str:
        x = self.writable(1)
        if x is None:
            return self.arithmetic()
        target = self.random.choice(
            (
                f"{x}[0]",
                f"{x}[..., 0]",
                f"{x}[1:]",
                f"{x}[{x} > 0]",
                f"{x}[...]",
                f"{x}[T.tensor([0, 0])]",
                f"{x}[-1:]",
                f"{x}[None]",
            )
        )
        value = self.random.choice(
            (
                str(self.number()),
                f"{self.tensor()}.sum()",
                str(self.number()),
                f"{target} * {self.number()}",
            )
        )
        if self.one_in(2):
            return f"{target} = {value}"
        return f"{target} {self.random.choice(('+=', '*=', '-='))} {value}"

    def index(self) -> str:
        x = self.tensor(1)
        shape = tuple(self.state[x].shape)
        d = self.dim(x)
        size = shape[d] if shape else 1
        where = [
            self.random.randrange(-size, size) if size else 0
            for _ in range(self.random.randint(1, 3))
        ]
        positive = [w % size if size else 0 for w in where]
        return f"{self.new()} = " + self.random.choice(
            (
                f"{x}[T.tensor({where})]",
                f"{x}[{x} > 0]",
                f"{x}.index_select({d}, T.tensor({positive}))",
                f"{x}[..., T.tensor({where})]",
                f"{x}.flip({d})",
                f"{x}.roll(1, {d})",
                f"{x}.take(T.tensor([0]))",
                f"{x}.gather({d}, T.zeros_like({x}, dtype=T.int64))",
                f"{x}.repeat(2, {'1, ' * len(shape)})",
                f"{x}.triu()" if len(shape) > 1 else f"{x}.flip(0)",
                f"{x}.index_add({d}, T.tensor([0]), {x}.narrow({d}, 0, 1))",
            )
        )

    def join(self) -> str:
        x = self.tensor(1)
        shape = tuple(self.state[x].shape)
        same = [n for n in self.names() if tuple(self.state[n].shape) == shape]
        y = self.random.choice(same)
        return f"{self.new()} = T.{self.random.choice(('cat', 'stack'))}([{x}, {y}], {self.dim(x)})"

    def cut(self) -> str:
        x = self.tensor()
        return self.random.choice(
            (
                f"{self.new()} = {x}.detach()",
                f"{x}.detach_()" if not self.state[x]._is_view() else f"{x}.detach()",
                f"{self.new()} = {x}.data.clone()",
                f"{x}.requires_grad_()",
                f"{x}.grad = None",
                f"{self.new()} = {x}.clone()",
                f"{self.new()} = {x}.detach().requires_grad_()",
            )
        )

    def hook(self) -> str:
        x = self.tracked()
        # What flows through an inner variable at second order depends on the formulas.
        if x is None or self.derivatives:
            return self.arithmetic()
        self.hooked = True
        factor = self.random.choice(("None", "None", "2.0", "-1.0"))
        mark = len(self.program.lines)
        # torch 2.13 crashes in both calls when a view was written under no_grad and its node not yet
        # remade; reading the node first remakes it.
        hooks = (f"{x}.register_hook(log(LOG, {mark}, {factor}))", f"{x}.retain_grad()")
        if self.one_in(20):  # of another dtype
            hooks = (f"{x}.register_hook(lambda g: g.float())",)
        return f"{x}.grad_fn; " + self.random.choice(hooks)

    def backward(self) -> str:
        x = self.tracked()
        if x is None:
            return self.arithmetic()
        keep = self.random.choice(("retain_graph=True", "retain_graph=True", ""))
        if self.one_in(3) and not self.hooked:
            return self.gradient_of(x)
        return f"{x}.sum().backward({keep})"

    def close(self) -> None:
        """Write a backward pass over a weighted sum of some variables."""
        candidates = [n for n in dict.fromkeys(self.names()) if self.state[n].requires_grad]
        if not candidates:
            self.program.outcome = Outcome(self.state, derivatives=self.derivatives)
            return
        chosen = self.random.sample(candidates, min(len(candidates), self.random.randint(1, 3)))
        total = " + ".join(f"({n} * {self.number()}).sum()" for n in chosen)
        if self.one_in(6) and not self.hooked:
            ok = self.add(f"loss = {total}") and self.write_a_captured_gradient(chosen[0])
        else:
            ok = self.add(f"loss = {total}") and self.add(self.closing())
        if ok:
            self.program.outcome = Outcome(self.state, derivatives=self.derivatives)

    def write_a_captured_gradient(self, x: str) -> bool:
        """Write in place what `grad` returned of a variable that retains its gradient too."""
        return (
            self.add(f"{x}.grad_fn; {x}.grad = None; {x}.retain_grad()")
            and self.add(f"last = T.autograd.grad(loss, {x}, create_graph=True)[0]")
            and self.add("with T.no_grad(): last.exp_()")
        )

    def closing(self) -> str:
        if self.one_in(4) and self.leaves and not self.hooked:
            listed = ", ".join(self.leaves)
            return (
                f"g1 = T.autograd.grad(loss, [{listed}], create_graph=True, allow_unused=True); "
                "s = sum(((g * g).sum() for g in g1 if g is not None), loss * 0); s.backward()"
            )
        return "loss.backward()"


def may_be_written(tensor: Any) -> bool:
    """Tell whether torch lets a tensor be written in place: no leaf, nor the view of one."""
    base = tensor._base if tensor._is_view() else tensor
    return not tensor.is_inference() and not (base.is_leaf and base.requires_grad)


def overlaps(tensor: Any) -> bool:
    """Tell whether elements of a tensor share memory: what torch writes there is undefined.

    Expanded ones, which torch refuses to write, count as not overlapping.
    """
    steps = [(n, s) for n, s in zip(tensor.shape, tensor.stride(), strict=True) if n > 1]
    places = {0}
    for n, s in steps:
        places = {place + i * s for place in places for i in range(n)}
    return bool(tensor.numel()) and len(places) < tensor.numel() and all(s for _, s in steps)


def share_memory(a: Any, b: Any) -> bool:
    """Tell whether two tensors lie in the same storage."""
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


def is_number(text: str) -> bool:
    """Tell whether an operand's text is a plain number."""
    return text.lstrip("-").replace(".", "", 1).isdigit()


def fits(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    """Tell whether a shape broadcasts to another."""
    if len(shape) > len(target):
        return False
    return all(s in (1, t) for s, t in zip(shape[::-1], target[::-1], strict=False))


def difference(ours: Outcome, theirs: Outcome) -> str | None:
    """Compare two outcomes without errors; say what differs first, or return None."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about reading .grad of inner variables
        return first_difference(ours, theirs)


def first_difference(ours: Outcome, theirs: Outcome) -> str | None:
    """Compare variables, then what hooks saw."""
    if gradients_share_memory(theirs.state):
        return None
    for name, expected in theirs.state.items():
        if not hasattr(expected, "requires_grad"):
            continue
        found = compare_tensor(name, ours.state[name], expected, name in theirs.derivatives)
        if found:
            return found
    mine, other = (sorted(o.state["LOG"], key=lambda item: item[0]) for o in (ours, theirs))
    if [m for m, _ in mine] != [m for m, _ in other]:
        return f"hooks ran: {[m for m, _ in mine]}, in torch {[m for m, _ in other]}"
    for (mark, a), (_, e) in zip(mine, other, strict=True):
        if not close(a, e):
            return f"gradient seen by the hook of line {mark}: {a}, in torch {e}"
    return None


def same_gradient(a: Any, e: Any) -> bool:
    """Tell whether gradients agree; none at all is as good as zeros."""
    if a is None or e is None:
        known = a if e is None else e
        return known is None or not known.any()
    return close(a, e)


def read(tensor: Any, fact: str) -> Any:
    """Return an attribute, or the type of the error that reading it raises."""
    try:
        return getattr(tensor, fact)
    except RuntimeError as error:
        return type(error)


def gradients_share_memory(state: dict[str, Any]) -> bool:
    """Tell whether two leaves hold one gradient.

    torch 2.13 lets leaves keep views of one expanded gradient (those of stack after sum), and the
    next backward then adds to it once for each of them.
    """
    tensors = [x for x in state.values() if hasattr(x, "requires_grad")]
    leaves = {id(x): x for x in tensors if read(x, "is_leaf") is True}.values()
    places = [x.grad.data_ptr() for x in leaves if x.grad is not None and x.grad.numel()]
    return len(places) != len(set(places))


def compare_tensor(name: str, a: Any, e: Any, derivative: bool) -> str | None:
    """Compare value, geometry, facts and gradient of one variable.

    Whether a derivative itself requires a gradient is not compared where ours does: torch knows of
    some that they are constant, we compute their zero gradients.
    """
    if tuple(a.shape) != tuple(e.shape):
        return f"{name}: shape {tuple(a.shape)}, in torch {tuple(e.shape)}"
    if not close(a, e):
        return f"{name}: value {a}, in torch {e}"
    for fact in ("requires_grad", "is_leaf"):
        mine, other = read(a, fact), read(e, fact)
        if mine != other and not isinstance(other, type) and not derivative:
            return f"{name}: {fact} is {mine}, in torch {other}"
    if read(e, "is_leaf") is not True and not e.retains_grad:
        return None
    if not same_gradient(a.grad, e.grad):
        return f"{name}: gradient {a.grad}, in torch {e.grad}"
    return None


def close(a: Any, e: Any) -> bool:
    """Tell whether two tensors agree to rounding."""
    x, y = (np.asarray(t.detach().numpy(force=True)) for t in (a, e))
    if x.shape != y.shape:
        return False
    scale = np.abs(y[np.isfinite(y)]).max() if np.isfinite(y).any() else 1.0
    return bool(np.allclose(x, y, rtol=1e-8, atol=1e-9 * max(scale, 1.0), equal_nan=True))
