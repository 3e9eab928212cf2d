# ruff: noqa: E501 - the texts of programs' lines break badly
"""The text that every random program of `caller_programs.py` begins with: what it holds and is given."""

from __future__ import annotations

from caller_surroundings import SURROUNDINGS

__all__ = ["PRELUDE"]

_OWN = '''
import copy
import enum
from dataclasses import make_dataclass
from fractions import Fraction
from typing import Any, NamedTuple

FACTOR, TABLE = 1.5, {"k": 0.75, "t": None}


class Stop(Exception):
    """What a function raises on purpose, after which calls go on."""


class Point(NamedTuple):
    t: Any
    k: Any = 0.5


Record = make_dataclass("Record", ["t", ("k", object, 0.5)])
Wider = make_dataclass("Wider", ["t", ("k", object, 0.5), ("more", int, 2)])


class Grade(enum.IntEnum):
    ONE, TWO = 1, 2


class Real(float):
    """A number of a class of the program's own."""


class Many(list):
    """A list of a class of the program's own."""


class Box(dict):
    """A dictionary that reads its numbers otherwise."""

    def __getitem__(self, key):
        found = super().__getitem__(key)
        return found * 2 if isinstance(found, float) else found


def again(state, box):
    """The dictionary of the last call, with what a call gives now."""
    if not hasattr(state, "box"):
        state.box = {}
    state.box.clear()
    state.box.update(box)
    return state.box


class Own(T.Tensor):
    """A tensor of a class of the program's own."""

def t(shape, dtype="float32", start=0.0, layout="plain", grad=False):
    """A tensor of given values; what is no plain one shows a part of a larger one."""
    shape = list(shape)
    own = shape[::-1] if layout == "turned" else [2 * n for n in shape]
    own = shape if layout == "plain" else own
    if layout == "spread":
        own = shape[:-1] + [1] * bool(shape)
    count = 1
    for n in own:
        count *= n
    values = (T.arange(count, dtype=T.float64) * 0.37 + start) % 2.3 - 0.9
    if dtype[0] in "iub":
        values = (T.arange(count) * 3 + int(start)) % 7 - (0 if dtype[0] in "ub" else 3)
    made = values.to(getattr(T, dtype)).reshape(own)
    if layout == "turned":
        made = made.permute(*range(len(shape))[::-1])
    elif layout == "strided":
        made = made[tuple([slice(0, None, 2)] * len(shape))]
    elif layout == "spread":
        made = made.expand(shape)
    elif layout == "shifted":
        made = T.cat([made.reshape(-1)[:3], made.reshape(-1)])[min(made.numel(), 3) :].view(shape)
    elif layout == "last" and len(shape) == 4:
        made = made.contiguous(memory_format=T.channels_last)
    elif layout == "own":
        made = made.as_subclass(Own)
    return made.requires_grad_() if grad else made


def graded(tensor):
    """A leaf with a gradient, whether it requires one or not."""
    tensor.grad = tensor.detach() * 0.5
    return tensor


def inferred(make):
    """What is made in inference mode, of which outside of it neither writes nor records are."""
    with T.inference_mode():
        return make()


def old(earlier, make):
    """The last result of an earlier call that can stand for what is made."""
    made = make()
    for one in reversed(earlier):
        if one.shape == made.shape and one.dtype == made.dtype:
            return one
    return made


def touch(earlier, number):
    """Write into what the last call returned, where that may be."""
    with T.no_grad():
        for one in earlier[-1:]:
            if one.is_floating_point() and not one.is_inference():
                one.mul_(number)


def helper(x, k=0.25):
    return x * k


def cast(x, other):
    with T.autocast("cpu", dtype=T.bfloat16):
        return T.nn.functional.linear(x, other) if x.dim() == other.dim() == 2 else x * other


class default_dtype:
    """New tensors are of a dtype."""

    def __init__(self, dtype):
        self.dtype = dtype

    def __enter__(self):
        self.before = T.get_default_dtype()
        T.set_default_dtype(self.dtype)

    def __exit__(self, *error):
        T.set_default_dtype(self.before)


class SquareOf(T.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        return 2 * grad * ctx.saved_tensors[0]


class Net(T.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = T.nn.Parameter(t(SHAPE, FLOAT, 0.4))
        self.bias = T.nn.Parameter(t(SHAPE[-1:], FLOAT, 0.9))
        self.register_buffer("running", t(SHAPE, FLOAT, 0.2))
        self.register_buffer("count", T.zeros((), dtype=T.int64))
        self.rate, self.steps, self.table = 0.5, 2, {"scale": 1.25, "many": [2, 0.75]}

    def forward(self, x):
        return x * self.weight + self.bias


class Other(Net):
    """A module of another class."""

    def forward(self, x):
        return x - self.weight * 0.5


class State:
    def __init__(self):
        self.net = Net()
        self.held = t(SHAPE, FLOAT, 1.1)
        self.row = self.held[..., :1]
        self.other = t(SHAPE, FLOAT, 1.7)
        self.moment = {name: T.zeros(SHAPE, dtype=getattr(T, FLOAT)) for name in ("m", "v")}
        self.rate, self.count = 0.3, 3
        self.stored, self.inner = [self.other], C(helper)
        self.record = Record(self.held)
        self.generator = T.Generator().manual_seed(5)
        self.names, self.log = {"one"}, [1]
        self.optimizer = T.optim.OPTIMIZER(self.net.parameters(), lr=0.1)

    def rate_of(self, k):
        return k * 0.5 + self.rate

    def step(self):
        self.count += 1
        return self.count

    @property
    def half_rate(self):
        return self.rate * 0.5

    def tensors(self):
        made = {"held": self.held, "row": self.row, "other": self.other, **self.moment}
        made["stored"] = self.stored[-1]
        return {**made, **dict(self.net.named_parameters()), **dict(self.net.named_buffers())}

    def others(self):
        """What is held beside tensors: numbers, flags, members, options, hooks."""
        net, group = self.net, self.optimizer.param_groups[0]
        options = {k: v for k, v in group.items() if k != "params"}
        hooks = [len(p._backward_hooks or ()) for p in net.parameters()]
        numbers = self.rate, self.count, getattr(net, 'rate', 0), net.table, net.training
        of_process = FACTOR, TABLE.get("k"), len(self.stored), T.is_grad_enabled(), PLACES
        drawn = hash(chance.getstate()), STEPS.__reduce__(), T.get_default_dtype()
        return repr((numbers, sorted(self.names), self.log, options, hooks, of_process, drawn))


class Richer(State):
    """What is held, with members that are computed otherwise."""

    def rate_of(self, k):
        return k * 0.25

    @property
    def half_rate(self):
        return self.rate * 0.75
'''
PRELUDE = SURROUNDINGS + _OWN
