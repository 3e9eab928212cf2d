"""The sizes that a program reads while a run is recorded.

In the program's own code, though not in the library's, a `Number` stands for each size that it
reads. Its expression is one of the core's symbolic integers; what is decided by it is a guard of
their `ShapeEnv`. Ops that take sizes take it, too. Whatever else the program learns of a tensor's
geometry, and whatever else it does with a size, needs the number itself: the guards then say that
it is this one.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from types import CodeType
from typing import Any

import tangrad
from tangrad.overrides import TorchFunctionMode
from tangrad.plugin import ShapeEnv, innermost_tracer
from tangrad_jit.capture.calls import is_library
from tangrad_jit.capture.numbers import COMPARISONS, Number, made_for, plain
from tangrad_jit.graph.ir import Value
from tangrad_jit.graph.numbers import NUMBER_OPS

__all__ = ["SymbolicSizes", "FollowSizes"]

_SYMBOLIC = (tangrad.SymInt, tangrad.SymFloat)
# Ops that make or show tensors of sizes they are given, and decide nothing else by them.
_TAKE_SIZES = frozenset(
    "reshape view expand narrow select unflatten unsqueeze repeat __getitem__ __setitem__ zeros "
    "ones empty full rand randn arange tril triu eye new_zeros new_ones new_empty new_full".split()
)
# What tells nothing of a tensor's sizes.
_TELL_NO_SIZE = frozenset(
    "dim ndim ndimension dtype device layout requires_grad grad_fn is_leaf is_floating_point "
    "is_complex is_cuda is_sparse is_quantized element_size itemsize name retains_grad "
    "output_nr is_inference is_signed is_conj is_neg is_meta is_tensor get_device names "
    "requires_grad_ __set__ __class__ type names_ has_names is_shared is_grad_enabled "
    "result_type promote_types can_cast".split()
)


class SymbolicSizes:
    """What one run's program has read of sizes.

    Args:
        recorder: whose run it is.

    Attributes:
        env: its symbols stand for what was read, its guards for what was decided.
        places: symbol -> (value of the graph, dimension).
        given: what ops were given, in order: (place of the next node, symbolic number).
        lost: why it is not known what was decided, or "".
        handed: whether the program was given anything that stands for a size.
    """

    #: Settled where it meets a number of another kind.
    of_sizes = True

    def __init__(self, recorder: Any) -> None:
        self.recorder = recorder
        self.env = ShapeEnv()
        self.places: dict[str, tuple[Value, int]] = {}
        self.given: list[tuple[int, Any]] = []
        self.lost = ""
        self.handed = False
        self._within = 0
        self._known: dict[tuple[Value, int], Number] = {}
        self._read: frozenset[Any] = frozenset()

    @property
    def live(self) -> bool:
        """Whether the run goes on in this thread, outside of any op."""
        return self.recorder.failure is None and innermost_tracer() is self.recorder

    def symbolic(self) -> FollowSizes:
        """Return a context in which sizes that the program reads are symbolic."""
        return FollowSizes(self)

    def lose(self, reason: str) -> None:
        """Say that something may have been decided unseen."""
        self.lost = self.lost or reason

    def size(self, tensor: Any, dim: int) -> Any:
        """Return what stands for a size of a tensor."""
        hint = int(tensor.shape[dim])
        value = self.recorder.known_value(tensor)
        if value is None:
            self.lose("a size is read of a tensor that the graph does not know")
            return hint
        known = self._known.get((value, dim))
        if known is None:
            name = f"{self._name_of(value)}.shape[{dim}]"
            while name in self.places:
                name += "'"
            self.places[name] = (value, dim)
            known = self._known[value, dim] = made_for(self, self.env.symbol(hint, name), hint)
            self.handed = True
        return known

    def _name_of(self, value: Value) -> str:
        for entry in self.recorder.graph.inputs:
            if entry.value is value:
                return str(entry.name)
        node = value.producer
        return "result" if node is None else f"{node.name}:{self.recorder.graph.nodes.index(node)}"

    def fix(self, tensor: Any, what: str) -> None:
        """Let the graph hold for the sizes alone that a tensor has."""
        value = self.recorder.known_value(tensor)
        if value is None:
            self.lose(f"{what} is read of a tensor that the graph does not know")
            return
        for dim in range(tensor.dim()):
            self.settle(self.size(tensor, dim))

    # What `Number` asks

    def apply(self, name: str, operands: tuple[Any, ...], result: Any) -> Any:
        """Return what stands for the result of an operation."""
        try:
            symbolic = NUMBER_OPS[name].compute(*operands)
        except TypeError:  # the core has no such expression
            for item in operands:
                if isinstance(item, _SYMBOLIC):
                    self._assume("==", item, item.hint, True)
            return result
        if not isinstance(symbolic, _SYMBOLIC):
            return result
        return made_for(self, symbolic, result)

    def ask(self, name: str, left: Any, right: Any) -> bool:
        """Answer a comparison of which what follows in the run depends."""
        outcome = bool(COMPARISONS[name](plain(left), plain(right)))
        if self.live:
            self._assume(
                name, getattr(left, "value", left), getattr(right, "value", right), outcome
            )
        return outcome

    def _assume(self, name: str, left: Any, right: Any, outcome: bool) -> None:
        compare = operator.eq if name == "is" else COMPARISONS[name]
        found = compare(left, right)
        if isinstance(found, tangrad.SymBool):
            assert bool(found) is outcome  # which notes the guard

    def settle(self, number: Any) -> Any:
        """Return the number itself: the graph holds for it alone."""
        if not isinstance(number, Number):
            return number
        self._assume("is", number.value, number.hint, True)
        return number.hint

    def argument(self, given: Any, op: Any, position: int) -> Any:
        """Return what a graph's node has for a number that an op is given."""
        return self.take(given.number)

    constant = settle

    def take(self, number: Any) -> Any:
        """Return the number for an op, whose argument it is."""
        self.given.append((len(self.recorder.graph.nodes), number.value))
        return number.hint

    # The program

    def call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a call of the library for the program."""
        name = _name(function)
        if name == "arange" and (len(args) > 2 or "step" in kwargs):
            self.lose("arange() with a step counts by sizes")
        if not self.live or is_library(_caller()):
            return function(*args, **kwargs)
        if name in _TAKE_SIZES:
            args = tuple(map(self._taken, args))
            kwargs = {key: self._taken(item) for key, item in kwargs.items()}
        self._within += 1
        try:
            result = function(*args, **kwargs)
        finally:
            self._within -= 1
        return self._answer(name, args, kwargs, result)

    def ran(self, code: CodeType) -> None:
        """Note that code of the program runs."""
        if self._within:
            self.lose(f"{code.co_name}() runs within a call of the library")

    def _taken(self, item: Any) -> Any:
        if isinstance(item, Number):
            return self.take(item) if item.env is self else item
        if type(item) in (tuple, list, tangrad.Size):
            kind = tuple if type(item) is tangrad.Size else type(item)
            return kind(map(self._taken, item))
        if type(item) is slice:
            return slice(*map(self._taken, (item.start, item.stop, item.step)))
        return item

    def _answer(self, name: str, args: tuple[Any, ...], kwargs: Any, result: Any) -> Any:
        if name in _TELL_NO_SIZE or _is_of_tensors(result):
            return result
        tensors = [item for item in (*args, *kwargs.values()) if isinstance(item, tangrad.Tensor)]
        if name in ("shape", "size") and len(tensors) == 1:
            return self._shape(tensors[0], result, args, kwargs)
        if name in ("numel", "nelement") and len(tensors) == 1:
            count: Any = 1
            for dim in range(tensors[0].dim()):
                count = count * self.size(tensors[0], dim)
            return count
        for tensor in tensors:
            self.fix(tensor, name)
        if not tensors:
            self.lose(f"{name} may tell of sizes")
        return result

    def _shape(self, tensor: Any, result: Any, args: Any, kwargs: Any) -> Any:
        if isinstance(result, tuple):
            sizes = [self.size(tensor, dim) for dim in range(tensor.dim())]
            return tuple.__new__(tangrad.Size, sizes)
        dim = kwargs.get("dim", args[-1])
        if isinstance(dim, int) and -tensor.dim() <= dim < tensor.dim():
            return self.size(tensor, int(dim) % tensor.dim())
        self.fix(tensor, "size")
        return result


def _caller() -> CodeType:
    """Return the code that has made a call which a mode was offered."""
    frame: Any = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.endswith(_BETWEEN):
        frame = frame.f_back
    return frame.f_code


_BETWEEN = (
    "capture/symbolic_sizes.py",
    "dispatch/overrides.py",
    "tangrad/overrides.py",
    "dispatch/stack.py",
)


def _name(function: Any) -> str:
    owner = getattr(function, "__self__", None)
    if getattr(function, "__name__", "") == "__get__" and owner is not None:
        return str(getattr(owner, "__name__", ""))
    return str(getattr(function, "__name__", "") or getattr(function, "name", ""))


def _is_of_tensors(result: Any) -> bool:
    if isinstance(result, (tuple, list)):
        return bool(result) and all(map(_is_of_tensors, result))
    return result is None or isinstance(result, tangrad.Tensor)


class FollowSizes(TorchFunctionMode):
    """The mode that hands calls of a program over while its sizes are symbolic."""

    def __init__(self, sizes: SymbolicSizes) -> None:
        super().__init__()
        self.sizes = sizes

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run a call, with what stands for sizes."""
        return self.sizes.call(func, args, kwargs or {})
