"""Evaluate typed programs on NumPy arrays: the reference."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from tangrad.expr import special
from tangrad.expr.dtypes import KINDS
from tangrad.expr.infer import typed_body, typed_function
from tangrad.expr.loop import loop_of
from tangrad.expr.primitives import PRIMITIVES
from tangrad.expr.steps import Instruction, Steps

Step = Callable[..., Any]

_compiled: dict[str, Any] = {}


def dtype_of(name: str) -> np.dtype:
    """Return NumPy's dtype; bfloat16, which NumPy lacks, is stored as uint16 bits."""
    return np.dtype("uint16" if name == "bfloat16" else name)


def build(program: Steps) -> Callable[..., tuple]:
    """Return the function of arrays that evaluates ``program``: one line of Python per step."""
    steps = [_step(instruction) for instruction in program.instructions]
    scope: dict[str, Any] = {f"s{k}": step for k, step in enumerate(steps)}
    body = _body(program)
    exec(compile("\n".join(body), "<expression>", "exec"), scope)  # the names are our own
    compute = scope["compute"]
    instructions, inputs = program.instructions, program.inputs
    result_dtypes = [dtype_of(name) for name in program.result_types]
    indexed, names = program.indexed, program.params

    def evaluate(*arrays: Any, index: Any = None, **params: Any) -> tuple:
        if len(arrays) != len(inputs):
            raise TypeError(f"expected arrays for {', '.join(inputs)}; got {len(arrays)}")
        if names or params:
            _check_params(names, instructions, params)
        if index is None:
            if indexed:
                raise TypeError("random bits need the keyword index: the elements' linear indices")
            index = 0
        with np.errstate(all="ignore"):
            values = compute(arrays, params, index)
        shape = _common_shape(arrays, index)
        return tuple(
            _shaped(value, dtype, shape) for value, dtype in zip(values, result_dtypes, strict=True)
        )

    return evaluate


def _body(program: Steps) -> list[str]:
    """Write the steps as Python; a value is dropped after its last use."""
    position = {name: k for k, name in enumerate(program.inputs)}
    last = {arg: k for k, step in enumerate(program.instructions) for arg in step.args}
    lines = ["def compute(arrays, params, index):"]
    for k, step in enumerate(program.instructions):
        if step.op in ("load", "param"):
            name = str(step.value)
            given = f"arrays[{position[name]}]" if name in position else f"params[{name!r}]"
            lines.append(f" v{k} = s{k}({given})")
            continue
        operands = [f"v{arg}" for arg in step.args]
        if step.op == "philox_uniform":
            operands.append("index")
        lines.append(f" v{k} = s{k}({', '.join(operands)})")
        dead = [
            f"v{arg}" for arg in set(step.args) if last[arg] == k and arg not in program.results
        ]
        if dead:
            lines.append(f" {' = '.join(dead)} = None")
    outputs = "".join(f"v{k}, " for k in program.results)
    lines.append(f" return ({outputs})")
    return lines


def _common_shape(arrays: tuple[Any, ...], index: Any) -> tuple[int, ...]:
    shapes = {np.shape(a) for a in arrays}
    if len(shapes) == 1 and isinstance(index, int):
        return shapes.pop()
    return np.broadcast_shapes(*shapes, np.shape(index))


def _shaped(value: Any, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    array = np.asarray(value, dtype)
    return array if array.shape == shape else np.broadcast_to(array, shape).copy()


def _check_params(known: tuple[str, ...], steps: list[Instruction], given: dict) -> None:
    for name in given:
        if name not in known:
            raise TypeError(f"unknown parameter {name!r}; the parameters are {', '.join(known)}")
    for step in steps:
        if step.op == "param" and step.value not in given:
            raise TypeError(f"missing parameter {step.value!r}")


def _step(instruction: Instruction) -> Step:
    """Compile one instruction to a function of its operands."""
    op, dtype = instruction.op, np.dtype(instruction.type)
    if op == "load":
        return _load(str(instruction.storage), dtype)
    if op == "param":
        return lambda value: scalar(value, dtype)
    if op == "literal":
        constant = scalar(instruction.value, dtype)
        return lambda: constant
    if op == "convert":
        return lambda a: special.cast(a, dtype)
    if op == "cast":
        return _round_to(str(instruction.value), instruction.storage is not None)
    if op == "iterate":
        return _iterate(str(instruction.value), dtype)
    text = PRIMITIVES[op].text("numpy", KINDS[instruction.operand])
    return _function(str(text), np.dtype(instruction.operand))


def _iterate(value: str, dtype: np.dtype) -> Step:
    """Return the loop over arrays; elements whose condition failed take no part any more."""
    loop, run = loop_of(value), build(typed_body(value, dtype.name))

    def repeat(*operands: Any) -> Any:
        arrays = np.broadcast_arrays(*operands)
        shape = arrays[0].shape
        active = [array.reshape(-1) for array in arrays]
        result = active[0].copy()
        places = np.arange(result.size)
        for k in range(loop.bound):
            more, *states = run(dtype.type(k), *active)
            stopped = ~more
            if stopped.any():
                result[places[stopped]] = active[0][stopped]
                places = places[more]
                states = [state[more] for state in states]
                active[loop.states :] = [array[more] for array in active[loop.states :]]
            active[: loop.states] = states
            if not places.size:
                break
        result[places] = active[0]
        return result.reshape(shape)

    return repeat


def scalar(value: Any, dtype: np.dtype) -> np.generic:
    """Return a Python scalar as a NumPy scalar of ``dtype``.

    A fraction is cut off for an integer type, as kernels cut it.

    Raises:
        TypeError: if it is not a number, or complex for a real type.
        RuntimeError: if it is out of an integer type's range.
    """
    kinds = {"b": (bool, int)} | dict.fromkeys("uif", (int, float))
    allowed = kinds.get(dtype.kind, (int, float, complex)) + (bool,)
    if isinstance(value, (np.generic, np.ndarray)) and np.ndim(value) == 0:
        value = value.item()
    if isinstance(value, complex) and dtype.kind in "uif" and not value.imag:
        value = value.real
    if not isinstance(value, allowed):
        raise TypeError(f"cannot use {value!r} ({type(value).__name__}) as {dtype}")
    if dtype.kind not in "ui":
        return dtype.type(value)
    limits = np.iinfo(dtype)
    number: Any = int(value) if np.isfinite(value) else value  # type: ignore[arg-type]
    # A negative number wraps around to an unsigned one, as in PyTorch.
    if not (limits.min or -limits.max) <= number <= limits.max:
        raise RuntimeError(f"value {value} cannot be converted to {dtype} without overflow")
    return dtype.type(number if number >= limits.min else number + limits.max + 1)


def _load(storage: str, dtype: np.dtype) -> Step:
    if storage != "bfloat16":
        return lambda array: np.asarray(array).astype(dtype, copy=False)

    def from_bits(array: Any) -> np.ndarray:
        array = np.asarray(array)
        if array.dtype != np.uint16:
            return special.round_bfloat16(array.astype(np.float32))
        return (array.astype(np.uint32) << np.uint32(16)).view(np.float32)

    return from_bits


def _round_to(half: str, stored: bool) -> Step:
    """Return the rounding to a half type: as a float32 value, or as stored."""
    if half == "float16":
        return (
            (lambda a: a.astype(np.float16))
            if stored
            else (lambda a: a.astype(np.float16).astype(np.float32))
        )
    if not stored:
        return special.round_bfloat16
    return lambda a: special.bfloat16_bits(np.asarray(a))


def _function(text: str, dtype: np.dtype) -> Step:
    """Compile the NumPy column of a primitive for operands of ``dtype``."""
    source = f"lambda a=None, b=None, c=None: {text}"
    if "index" in text:
        source = f"lambda a, b, index: {text}"
    code = _compiled.get(source)
    if code is None:
        code = _compiled[source] = compile(source, "<primitive>", "eval")
    scope = {"np": np, "sp": special, "composed": composed, "T": dtype}
    return eval(code, scope)  # the table's own text


@cache
def _evaluator(name: str) -> Callable[..., tuple]:
    return build(typed_function(name))


def composed(name: str, *operands: Any) -> np.ndarray:
    """Return a function that ``composed.py`` writes, in float64 and rounded once."""
    arrays = [np.asarray(operand) for operand in operands]
    (value,) = _evaluator(name)(*(array.astype(np.float64) for array in arrays))
    return np.asarray(value).astype(np.result_type(*arrays))
