"""Tell what `__torch_function__` gets from calls of everything that PyTorch lets one override.

The calls are lines of Python, made from PyTorch's own list and the signatures that it keeps for
its own tests. Run with PyTorch and `write FILE`, this keeps for each call the name of the function
and the arguments that arrive; run with the stand-in and `compare FILE`, it prints the calls for
which something else arrives, and how many there are.
"""

from __future__ import annotations

import inspect
import json
import sys
import warnings
from contextlib import nullcontext, suppress
from itertools import cycle
from typing import Any

import torch

IN_MODE = "with mode: "


class Arrived(Exception):
    """Carry what a handler got out of the call."""


class Handler:
    """An object that is no tensor and takes over calls."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        raise Arrived(func, args, kwargs or {})


class Subclass(torch.Tensor):
    """A tensor that takes over calls."""

    __torch_function__ = Handler.__torch_function__


class Mode(torch.overrides.TorchFunctionMode):
    """Take over all calls."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        raise Arrived(func, args, kwargs or {})


def operands() -> dict[str, Any]:
    """Return what the calls name: objects a to f, tensors s to v that take over, and plain ones."""
    with torch._C.DisableTorchFunction():
        tensors = {n: torch.ones(2, 2).as_subclass(Subclass) for n in "stuv"}
    plain = {n: torch.ones(2, 2) for n in "wxyz"}
    return {n: Handler() for n in "abcdef"} | tensors | plain


def arrived(call: str, names: dict[str, Any]) -> tuple[Any, Any, Any] | None:
    """Return function, arguments and keywords that the first handler of a call gets."""
    line = call.removeprefix(IN_MODE)
    code = compile(line, "call", "exec")
    try:
        with Mode() if line != call else nullcontext():
            exec(code, {"torch": torch, **names})
    except Arrived as seen:
        return seen.args
    except Exception:
        return None
    return None


def told(value: Any, names: dict[str, Any]) -> Any:
    """Return an argument as text that is the same in both frameworks."""
    for name, known in names.items():
        if value is known:
            return name
    if isinstance(value, (tuple, list)):
        return [type(value).__name__ == "list", *(told(v, names) for v in value)]
    if isinstance(value, dict):
        return {str(k): told(v, names) for k, v in value.items()}
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)
    # dtypes, layouts and their like are told by what follows the framework's name.
    return f"{type(value).__name__} {str(value).rpartition('.')[2]}"


# --- the calls -----------------------------------------------------------------------------------

VALUES = {
    "int64_t": "1",
    "SymInt": "1",
    "Scalar": "1",
    "double": "0.5",
    "bool": "True",
    "IntArrayRef": "(1, 1)",
    "SymIntArrayRef": "(1, 1)",
    "ScalarType": "torch.float32",
    "c10::string_view": "'sum'",
    "ScalarList": "[1, 2]",
    "Layout": "torch.strided",
    "Device": "'cpu'",
    "DeviceIndex": "0",
}


def written(kind: str, letters: Any) -> str:
    """Return an argument of a kind as it is written in a call."""
    if kind in ("Tensor", "Tensor?"):
        return next(letters)
    if kind == "TensorList":
        return f"[{next(letters)}, {next(letters)}]"
    if "optional<Tensor>" in kind:
        return f"({next(letters)},)"
    return VALUES.get(kind, "None")


def parameters(func: Any, dummy: Any, annotated: dict[Any, Any]) -> list[tuple[str, str, bool]]:
    """Return name, kind and whether it is for keywords only, of what must be given."""
    signature = list(inspect.signature(dummy).parameters.values())
    if func in annotated:
        first = signature[0].name if signature else "input"
        return [
            (
                first if p["name"] == "self" else p["name"],
                p["simple_type"],
                p["is_kwarg_only"] == "True",
            )
            for p in annotated[func]
        ]
    with suppress(TypeError, ValueError):
        signature = list(inspect.signature(func).parameters.values())
    found = []
    for p in signature:
        if p.kind is p.VAR_POSITIONAL:
            found += [("*", "Tensor", False)] * 2
        elif p.default is p.empty and p.kind is not p.VAR_KEYWORD:
            found.append((p.name, "Tensor", p.kind is p.KEYWORD_ONLY))
    return found


def given(params: list[tuple[str, str, bool]], letters: str, by_name: bool = False) -> str:
    """Return the arguments of a call as text."""
    pool = cycle(letters)
    texts = []
    # A name may stand in several signatures of one function; the first is called.
    once = {p[0] if p[0] != "*" else i: p for i, p in enumerate(params)}
    for name, kind, keyword in once.values():
        text = written(kind, pool)
        texts.append(f"{name}={text}" if keyword or (by_name and name != "*") else text)
    return ", ".join(texts)


def calls_of_function(
    name: str, params: list[tuple[str, str, bool]], options: list[str]
) -> list[str]:
    """Return calls of a function: by position, by name, with what may be left out, mixed."""
    calls = [
        f"{name}({given(params, 'abcdef')})",
        f"{name}({given(params, 'stuv')})",
        f"{name}({given(params, 'xaybzc')})",
        f"{name}({given(params, 'abcdef', by_name=True)})",
        f"{IN_MODE}{name}({given(params, 'wxyz')})",
    ]
    for option in options:
        between = ", " if params else ""
        calls.append(f"{name}({given(params, 'wxyz')}{between}{option}=f)")
    return calls


def calls_of_method(name: str, params: list[tuple[str, str, bool]]) -> list[str]:
    """Return calls of a method, `name` being such as `torch.Tensor.add`."""
    method, rest = name.removeprefix("torch.Tensor."), params[1:]
    between = ", " if rest else ""
    return [
        f"s.{method}({given(rest, 'abcdef')})",
        f"s.{method}({given(rest, 'abcdef', by_name=True)})",
        f"{name}(s{between}{given(rest, 'tuv')})",
        f"x.{method}({given(rest, 'abcdef')})",
        f"with mode: x.{method}({given(rest, 'yzw')})",
    ]


def calls_of_property(name: str) -> list[str]:
    """Return what reads or writes a property, `name` being such as `torch.Tensor.shape.__get__`."""
    _, _, attribute, what = name.split(".")
    suffix = {"__get__": "", "__set__": " = x"}[what]
    lines = [f"s.{attribute}{suffix}", f"with mode: x.{attribute}{suffix}"]
    return lines if suffix == "" else [*lines, f"x.{attribute} = a"]


IN_PLACE = tuple(f"{{}} {o}= {{}}" for o in "+ - * / // % ** & | ^ << >>".split())
OPERATORS = (
    *(f"{{}} {o} {{}}" for o in "+ - * / // % ** @ & | ^ << >> < <= == != > >=".split()),
    *IN_PLACE,
)
OF_ONE = (
    "-s",
    "~s",
    "+s",
    "abs(s)",
    "bool(s)",
    "int(s)",
    "float(s)",
    "complex(s)",
    "len(s)",
    "iter(s)",
    "list(s)",
    "reversed(s)",
    "repr(s)",
    "str(s)",
    "f'{s}'",
    "f'{s:.2f}'",
    "hash(s)",
    "range(4)[s]",
    "a in s",
    "1 in s",
    "s[0]",
    "s[a]",
    "s[0, a]",
    "x[a]",
    "x[s]",
    "x[0, a]",
    "x[s, 1:]",
    "s[0] = 1",
    "s[0] = a",
    "x[0] = a",
    "x[a] = 1",
    "x[a] = b",
    "x[s] = 1",
    "del s[0]",
    "import copy; copy.copy(s)",
    "import copy; copy.deepcopy(s)",
    "import pickle; pickle.dumps(s)",
    "import numpy; numpy.asarray(s)",
    "import numpy; numpy.sin(s)",
    "import operator; operator.index(s)",
    "divmod(s, x)",
    "round(s)",
    "import math; math.trunc(s)",
    "import math; math.floor(s)",
)
IN_LISTS = (
    "torch.cat([a])",
    "torch.cat((x, a))",
    "torch.stack([a], 1)",
    "torch.stack([x, a], dim=1)",
    "torch.cat([x, y], out=a)",
    "torch.zeros(2, a)",
    "torch.zeros((2, a))",
    "torch.zeros(size=(a, 2))",
    "torch.ones(a)",
    "torch.full((2, a), 1)",
    "torch.full((2, 2), a)",
    "torch.arange(a)",
    "torch.arange(0, a, 2)",
    "torch.linspace(0, a, 3)",
    "torch.tensor(a)",
    "torch.tensor([a])",
    "torch.as_tensor(a)",
    "torch.eye(a)",
    "torch.randn(2, a)",
    "torch.rand(a, 2)",
    "torch.randint(a, (2,))",
    "torch.empty(a, 2)",
    "x.view(a, 2)",
    "x.view((a, 2))",
    "x.reshape(2, a)",
    "x.expand(a, 2, 2)",
    "x.permute(a, 0)",
    "x.sum(a)",
    "x.sum(dim=a)",
    "x.repeat(a, 1)",
    "s.view(-1)",
    "s.view(2, 2)",
    "s.view((2, 2))",
    "s.view(torch.int32)",
    "s.reshape(4)",
    "s.permute(1, 0)",
    "s.permute((1, 0))",
    "s.expand(2, 2)",
    "s.repeat(2, 1)",
    "s.to('cpu')",
    "s.to(torch.float64)",
    "s.to(x)",
    "s.to(dtype=torch.float64, copy=True)",
    "x.to(s)",
    "s.size(0)",
    "s.size()",
    "s.stride(0)",
    "s.transpose(0, 1)",
    "s.type('torch.DoubleTensor')",
    "s.sum(0, keepdim=True)",
    "s.sum(dim=(0, 1))",
    "s.max(0)",
    "s.max(dim=0)",
    "s.max(x)",
    "s.std(0)",
    "s.std(unbiased=False)",
    "s.split(1)",
    "s.split([1, 1], dim=1)",
    "s.norm()",
    "s.norm(p=1)",
    "s.backward()",
    "s.requires_grad_()",
    "s.detach_()",
    "s.new_zeros(2)",
    "s.new_zeros((2, 2), dtype=torch.float64)",
    "s.masked_fill(x, 1)",
    "s.clamp(0, 1)",
    "s.clamp(min=0)",
    "s.unflatten(0, (2, 1))",
    "s.numpy()",
    "s.tolist()",
    "s.item()",
    "s.random_(3)",
    "s.normal_()",
    "s.copy_(x)",
    "x.copy_(s)",
    "s.div(x, rounding_mode='floor')",
    "s.add(x, alpha=2)",
    "s.sub_(x, alpha=2)",
    "s.round(decimals=2)",
    "torch.add(s, 1, alpha=2)",
    "torch.max(s)",
    "torch.max(s, 0)",
    "torch.max(s, dim=0, keepdim=True)",
    "torch.max(x, s)",
    "torch.min(s, 1)",
    "torch.where(s)",
    "torch.where(s, x, y)",
    "torch.where(x, a, 1)",
    "torch.std(s, 0)",
    "torch.var(s, dim=1, correction=0)",
    "torch.median(s, 0)",
    "torch.clamp(a, 0, 1)",
    "torch.clamp(a, max=1)",
    "torch.div(a, b, rounding_mode='trunc')",
    "torch.round(a, decimals=1)",
    "torch.split(a, 2)",
    "torch.split(a, [1, 1], 0)",
    "torch.einsum('ij,jk', a, b)",
    "torch.einsum('ij,jk', [a, b])",
    "torch.meshgrid(a, b, indexing='ij')",
    "torch.block_diag(x, a)",
    "torch.broadcast_tensors(a, x)",
    "torch.tensordot(a, b, 1)",
    "torch.nn.functional.relu(a)",
    "torch.nn.functional.relu(a, inplace=True)",
    "torch.nn.functional.softmax(a, 1)",
    "torch.nn.functional.softmax(a, dim=1)",
    "torch.nn.functional.dropout(a, 0.5, training=False)",
    "torch.nn.functional.linear(x, a)",
    "torch.nn.functional.linear(a, x, None)",
    "torch.nn.functional.conv2d(a, x)",
    "torch.nn.functional.conv2d(a, x, padding=1)",
    "torch.nn.functional.cross_entropy(a, b, reduction='sum')",
    "torch.nn.functional.interpolate(a, scale_factor=2)",
    "torch.nn.functional.pad(a, (1, 1))",
    "torch.nn.functional.max_pool2d(a, 2)",
    "torch.nn.functional.max_pool2d(a, kernel_size=2, return_indices=True)",
    "torch.nn.functional.embedding(a, x)",
    "torch.nn.functional.one_hot(a)",
    "torch.nn.functional.scaled_dot_product_attention(a, x, y, is_causal=True)",
)


def calls() -> list[str]:
    """Return the calls, from PyTorch's lists of what can be overridden and of its signatures."""
    from torch.testing._internal.generated.annotated_fn_args import annotated_args

    found = []
    for func, dummy in torch.overrides.get_testing_overrides().items():
        name = torch.overrides.resolve_name(func)
        if name is None:
            continue
        if name.endswith((".__get__", ".__set__")):
            found += calls_of_property(name)
            continue
        params = parameters(func, dummy, annotated_args)
        if name.startswith("torch.Tensor."):
            found += calls_of_method(name, params)
        else:
            shown = inspect.signature(dummy).parameters
            found += calls_of_function(name, params, [o for o in ("out",) if o in shown])
    for pattern in OPERATORS:
        pairs = ("st", "sx", "xs", "sa", "as", "xa", "ax", "s1", "1s")
        found += [pattern.format(*p) for p in pairs if not (p[0] == "1" and pattern in IN_PLACE)]
        found.append(IN_MODE + pattern.format("x", "y"))
    found += [*OF_ONE, *IN_LISTS]
    found += [IN_MODE + (f"x{c[1:]}" if c.startswith("s.") else c) for c in IN_LISTS]
    return list(dict.fromkeys(found))


def name_of(func: Any) -> str | None:
    """Return the public name of a function that arrived; None of an inner one of PyTorch's."""
    return torch.overrides.resolve_name(func)


def write(path: str) -> None:
    """Keep what arrives of each call that is offered at all."""
    kept = {}
    for call in calls():
        names = operands()
        seen = arrived(call, names)
        if seen is not None and (name := name_of(seen[0])) is not None:
            kept[call] = [name, told(tuple(seen[1]), names), told(seen[2], names)]
    with open(path, "w") as file:
        json.dump(kept, file)


def difference(call: str, name: str, args: Any, kwargs: Any) -> str | None:
    """Return in words what arrives otherwise of a call than it was kept."""
    from tangrad.discovery.neutral import is_placeholder

    try:
        expected = eval(name, {"torch": torch})
    except AttributeError:
        return f"there is no {name}"
    if is_placeholder(expected):  # of a package that is not installed
        return f"there is no {name}"
    names = operands()
    seen = arrived(call, names)
    if seen is None:
        return "nothing arrives"
    if seen[0] is not expected and seen[0] != expected:
        return f"{seen[0]!r} in place of {name}"
    ours = [told(tuple(seen[1]), names), told(seen[2], names)]
    return None if ours == [args, kwargs] else f"{ours} in place of {[args, kwargs]}"


def compare(path: str) -> None:
    """Print the number of calls that were kept, and what differs, by call."""
    with open(path) as file:
        kept = json.load(file)
    found = {call: difference(call, *kept[call]) for call in kept}
    differing = {call: what for call, what in found.items() if what is not None}
    print(json.dumps({"calls": len(kept), "differing": differing}))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    {"write": write, "compare": compare}[sys.argv[1]](sys.argv[2])
