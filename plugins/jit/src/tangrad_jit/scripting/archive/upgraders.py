"""Ops whose meaning has changed: what stands for them in archives of older versions.

Each is a function of the language, so that an archive which is written again keeps its meaning.
The table is that of PyTorch: nothing else has changed between its versions 3 and 10.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from tangrad_jit.scripting.objects.compilation_unit import units_of
from tangrad_jit.scripting.tree.nodes import Expr
from tangrad_jit.scripting.types import kinds

__all__ = ["upgraded"]

_TEXT = """
def div_tensor_0_3(self: Tensor, other: Tensor) -> Tensor:
    if self.is_floating_point() or other.is_floating_point():
        found = self.true_divide(other)
    else:
        found = self.divide(other, rounding_mode="trunc")
    return found

def div_scalar_0_3(self: Tensor, other: number) -> Tensor:
    if self.is_floating_point() or isinstance(other, float):
        found = self.true_divide(other)
    else:
        found = self.divide(other, rounding_mode="trunc")
    return found

def div_out_0_3(self: Tensor, other: Tensor, out: Tensor) -> Tensor:
    if self.is_floating_point() or other.is_floating_point() or out.is_floating_point():
        found = torch.true_divide(self, other, out=out)
    else:
        found = torch.divide(self, other, rounding_mode="trunc", out=out)
    return found

def div__tensor_0_3(self: Tensor, other: Tensor) -> Tensor:
    if self.is_floating_point() or other.is_floating_point():
        found = self.true_divide_(other)
    else:
        found = self.divide_(other, rounding_mode="trunc")
    return found

def div__scalar_0_3(self: Tensor, other: number) -> Tensor:
    if self.is_floating_point() or isinstance(other, float):
        found = self.true_divide_(other)
    else:
        found = self.divide_(other, rounding_mode="trunc")
    return found

def subcmul_0_2(self: Tensor, other: Tensor, alpha: number = 2) -> Tensor:
    return other - (self * alpha)

def full_0_4(size: List[int], fill_value: number, dtype: Optional[int] = None,
             device: Optional[Device] = None) -> Tensor:
    if dtype is None:
        found = torch.full(size, float(fill_value), device=device)
    else:
        found = torch.full(size, fill_value, dtype=dtype, device=device)
    return found

def full_out_0_4(size: List[int], fill_value: number, out: Tensor) -> Tensor:
    return torch.full(size, fill_value, out=out)

def linspace_0_7(start: number, end: number, steps: Optional[int] = None,
                 dtype: Optional[int] = None, device: Optional[Device] = None) -> Tensor:
    count = 100
    if steps is not None:
        count = steps
    return torch.linspace(start, end, count, dtype=dtype, device=device)

def linspace_out_0_7(start: number, end: number, steps: Optional[int] = None, *,
                     out: Tensor) -> Tensor:
    count = 100
    if steps is not None:
        count = steps
    return torch.linspace(start, end, count, out=out)

def logspace_0_8(start: number, end: number, steps: Optional[int] = None, base: float = 10.0,
                 dtype: Optional[int] = None, device: Optional[Device] = None) -> Tensor:
    count = 100
    if steps is not None:
        count = steps
    return torch.logspace(start, end, count, base, dtype=dtype, device=device)

def logspace_out_0_8(start: number, end: number, steps: Optional[int] = None,
                     base: float = 10.0, *, out: Tensor) -> Tensor:
    count = 100
    if steps is not None:
        count = steps
    return torch.logspace(start, end, count, base, out=out)
"""

Given = tuple[list[Expr], dict[str, Expr]]


def _of_div(name: str) -> Callable[[Given], str]:
    def choose(given: Given) -> str:
        args, named = given
        if "out" in named:
            return f"{name}_out_0_3"
        kind = "tensor" if len(args) > 1 and args[1].type == kinds.TENSOR else "scalar"
        return f"{name}_{kind}_0_3"

    return choose


def _of_out(name: str, version: int) -> Callable[[Given], str]:
    return lambda given: f"{name}{'_out' if 'out' in given[1] else ''}_0_{version}"


# Name -> the last version of its old meaning, and the function that has it.
_TABLE: dict[str, tuple[int, Callable[[Given], str]]] = {
    "div": (3, _of_div("div")),
    "div_": (3, _of_div("div_")),
    "_test_serialization_subcmul": (2, lambda given: "subcmul_0_2"),
    "full": (4, _of_out("full", 4)),
    "linspace": (7, _of_out("linspace", 7)),
    "logspace": (8, _of_out("logspace", 8)),
}


@cache
def _units() -> dict[str, Any]:
    found = units_of(_TEXT)
    for unit in found.values():
        unit.stands_for_op = True
    return found


def upgraded(
    check: Any, name: str, version: int, args: list[Expr], kwargs: dict[str, Expr], place: Any
) -> Expr | None:
    """Return what a call means in an archive of a version, or None where it means the same now.

    Args:
        check: who asks.
        name: of the op.
        version: of the archive.
        args, kwargs: what it is called with.
        place: of the call.
    """
    known = _TABLE.get(name)
    if known is None or version > known[0] or "rounding_mode" in kwargs:
        return None
    if not args or (name.startswith("div") and args[0].type != kinds.TENSOR):
        return None
    left = {
        key: value
        for key, value in kwargs.items()
        if value.type != kinds.NONE and key not in ("layout", "pin_memory", "requires_grad")
    }
    unit = _units()[known[1]((args, left))]
    found: Expr = check.call_unit(unit, args, left, place)
    return found
