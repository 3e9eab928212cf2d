"""Count the floating-point operations of products and convolutions, per module and op."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from math import prod
from typing import Any

import tangrad
from tangrad.utils._python_dispatch import TorchDispatchMode
from tangrad.utils.module_tracker import ModuleTracker

__all__ = ["FlopCounterMode", "register_flop_formula"]

_SUFFIXES = ("", "K", "M", "B", "T")
_formulas: dict[str, Callable[..., int]] = {}


def register_flop_formula(
    targets: Any, get_raw: bool = False
) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Return a decorator that has a function count the operations of ops.

    Args:
        targets: an op or several, or their names.
        get_raw: the function gets tensors and `out_val`, in place of shapes and `out_shape`.
    """

    def register(formula: Callable[..., int]) -> Callable[..., int]:
        several = targets if isinstance(targets, (list, tuple)) else [targets]
        for target in several:
            _formulas[_name(target)] = formula if get_raw else _on_shapes(formula)
        return formula

    return register


def _name(op: Any) -> str:
    return op if isinstance(op, str) else str(getattr(op, "name", None) or op.__name__)


def _shape(value: Any) -> Any:
    if isinstance(value, tangrad.Tensor):
        return value.shape
    if isinstance(value, (list, tuple)):
        return type(value)(_shape(x) for x in value) if type(value) in (list, tuple) else value
    return value


def _on_shapes(formula: Callable[..., int]) -> Callable[..., int]:
    def count(*args: Any, out_val: Any = None, **kwargs: Any) -> int:
        named = {key: _shape(value) for key, value in kwargs.items()}
        return formula(*map(_shape, args), out_shape=_shape(out_val), **named)

    return count


@register_flop_formula(["mm", "bmm"])
def _product(a: Any, b: Any, *args: Any, out_shape: Any = None, **kwargs: Any) -> int:
    return int(2 * prod(a) * b[-1])


@register_flop_formula(["addmm", "baddbmm"])
def _product_and_sum(self: Any, a: Any, b: Any, *args: Any, **kwargs: Any) -> int:
    return int(2 * prod(a) * b[-1])


@register_flop_formula("linear")
def _linear(x: Any, weight: Any, *args: Any, out_shape: Any = None, **kwargs: Any) -> int:
    return int(2 * prod(x) * prod(weight[:-1]))


@register_flop_formula("convolution")
def _convolution(x: Any, weight: Any, *args: Any, out_shape: Any = None, **kwargs: Any) -> int:
    # PyTorch's has bias and window before the flag that says "transposed", ours has no such flag.
    transposed = len(args) > 4 and args[4]
    return int(2 * x[0] * prod((x if transposed else out_shape)[2:]) * prod(weight))


@register_flop_formula("convolution_backward")
def _convolution_backward(
    grad: Any, x: Any, weight: Any, sizes: Any, stride: Any, padding: Any, dilation: Any,
    transposed: bool, output_padding: Any, groups: int, mask: Any, **kwargs: Any,
) -> int:  # fmt: skip
    each = int(2 * x[0] * prod((x if transposed else grad)[2:]) * prod(weight))
    return each * sum(map(bool, mask[:2]))


@register_flop_formula("convolution_input")
def _convolution_input(weight: Any, grad: Any, *args: Any, **kwargs: Any) -> int:
    return int(2 * grad[0] * prod(grad[2:]) * prod(weight))


@register_flop_formula("convolution_weight")
def _convolution_weight(x: Any, grad: Any, shape: Any, *args: Any, **kwargs: Any) -> int:
    return int(2 * grad[0] * prod(grad[2:]) * prod(shape))


@register_flop_formula(["_attention", "_scaled_dot_product_flash_attention_for_cpu"])
def _attention(query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> int:
    return int(2 * prod(query[:-1]) * key[-2] * (query[-1] + value[-1]))


@register_flop_formula(
    ["_attention_backward", "_scaled_dot_product_flash_attention_for_cpu_backward"]
)
def _attention_backward(grad: Any, query: Any, key: Any, value: Any, *args: Any, **kw: Any) -> int:
    # The scores once more, then a product for each of four gradients.
    return int(2 * prod(query[:-1]) * key[-2] * (3 * query[-1] + 2 * value[-1]))


@register_flop_formula("_recurrent_layer")
def _recurrent_layer(entering: Any, states: Any, weight: Any, *args: Any, **kwargs: Any) -> int:
    return int(2 * prod(entering) * weight[-1])


@register_flop_formula("_recurrent_layer_backward")
def _recurrent_layer_backward(
    grad: Any, last: Any, states: Any, weight: Any, output: Any, *args: Any, **kwargs: Any
) -> int:
    return int(2 * prod(output) * weight[0])


class FlopCounterMode:
    """Context manager that counts floating-point operations, a multiply-add as two.

    Args:
        mods: accepted for compatibility; all modules are followed.
        depth: how deep the table goes into modules.
        display: print the table at the end.
        custom_mapping: {op or name: formula over shapes}, before those registered.
    """

    def __init__(
        self,
        mods: Any = None,
        depth: int = 2,
        display: bool = True,
        custom_mapping: dict[Any, Any] | None = None,
    ) -> None:
        self.flop_counts: dict[str, dict[Any, int]] = defaultdict(lambda: defaultdict(int))
        self.depth = depth
        self.display = display
        own = {
            _name(op): formula if getattr(formula, "_get_raw", False) else _on_shapes(formula)
            for op, formula in (custom_mapping or {}).items()
        }
        self.formulas = _formulas | own

    def get_total_flops(self) -> int:
        """Return the operations of everything."""
        return sum(self.flop_counts["Global"].values())

    def get_flop_counts(self) -> dict[str, dict[Any, int]]:
        """Return {module's name, "Global" for everything: {op: operations}}."""
        return {module: dict(counts) for module, counts in self.flop_counts.items()}

    def get_table(self, depth: int | None = None) -> str:
        """Return the counts as text.

        Args:
            depth: how deep to go into modules; by default as given at construction.
        """
        depth = self.depth if depth is None else depth
        total = self.get_total_flops()
        rows = [("Module", "FLOP", "% Total")]
        for module in sorted(self.flop_counts, key=lambda name: (name != "Global", name)):
            level = 0 if module == "Global" else module.count(".") + 1
            if level > depth:
                continue
            counts = self.flop_counts[module]
            rows.append(_row("  " * level + module, sum(counts.values()), total))
            rows += [_row("  " * level + f" - {_name(op)}", n, total) for op, n in counts.items()]
        widths = [max(len(row[i]) for row in rows) for i in range(3)]
        lines = [
            f"{a.ljust(widths[0])}  {b.rjust(widths[1])}  {c.rjust(widths[2])}" for a, b, c in rows
        ]
        return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])

    def __enter__(self) -> FlopCounterMode:
        self.flop_counts.clear()
        self.modules = ModuleTracker().__enter__()
        self.mode = _Counting(self)
        self.mode.__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        self.mode.__exit__(*exc)
        self.modules.__exit__()
        if self.display:
            print(self.get_table())


def _row(name: str, count: int, total: int) -> tuple[str, str, str]:
    step = min(max(0, (len(str(total)) - 1) // 3), len(_SUFFIXES) - 1)
    share = count / total if total else 0.0
    return name, f"{count / 1000**step:.3f}{_SUFFIXES[step]}", f"{share:.2%}"


class _Counting(TorchDispatchMode):
    """Sees every op below recording: also those of backward."""

    def __init__(self, counter: FlopCounterMode) -> None:
        super().__init__()
        self.counter = counter

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        formula = self.counter.formulas.get(_name(func))
        if formula is not None:
            count = formula(*args, **kwargs, out_val=result)
            packet = getattr(func, "overloadpacket", func)  # of another package, or the op itself
            for module in self.counter.modules.parents:
                self.counter.flop_counts[module][packet] += count
        return result
