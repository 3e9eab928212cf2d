"""`tangrad.onnx.export`: modules, functions and programs as ONNX models."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

from onnx import defs

import tangrad
from tangrad import Tensor
from tangrad.export import Dim, ExportedProgram, ValueReadError
from tangrad.export import export as exported
from tangrad.nn import Module
from tangrad_onnx.errors import OnnxExporterError
from tangrad_onnx.program import ONNXProgram
from tangrad_onnx.quantized_modules import on_floats
from tangrad_onnx.state import custom_forms, exporting
from tangrad_onnx.writing.program import write_model
from tangrad_onnx.writing.symbolic import symbolic_functions

__all__ = ["export"]

OLDEST, DEFAULT = 13, 18
_SEVERAL = 3


def export(
    model: Any,
    args: tuple[Any, ...] = (),
    f: Any = None,
    *,
    kwargs: dict[str, Any] | None = None,
    verbose: bool | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    opset_version: int | None = None,
    dynamo: bool = True,
    external_data: bool = True,
    dynamic_shapes: Any = None,
    custom_translation_table: Mapping[Any, Callable[..., Any]] | None = None,
    report: bool = False,
    optimize: bool = True,
    verify: bool = False,
    profile: bool = False,
    dump_exported_program: bool = False,
    artifacts_dir: str | os.PathLike[str] = ".",
    export_params: bool = True,
    keep_initializers_as_inputs: bool = False,
    dynamic_axes: Mapping[str, Any] | None = None,
    training: Any = None,
    operator_export_type: Any = None,
    do_constant_folding: bool = True,
    custom_opsets: Mapping[str, int] | None = None,
    export_modules_as_functions: Any = False,
    autograd_inlining: bool = True,
) -> ONNXProgram | None:
    """Write a model as plain nodes of ai.onnx.

    The module runs in evaluation mode unless `training` says otherwise; its flags, gradients and
    the state of the random numbers are left as they were. Sizes that are declared to vary do so,
    whatever they are in the example.

    Args:
        model: a module, a function of tensors, or an `ExportedProgram`.
        args, kwargs: example arguments.
        f: the path of the file, or a binary file that is open for writing; None writes none.
        input_names, output_names: for the first inputs and outputs.
        opset_version: of ai.onnx, from 13 on; 18 by default.
        dynamo: with False the result is None, as that of PyTorch's older exporter, and a module
            that asks for values of tensors is traced: they are constants of the model.
        external_data: whether weights of more than 2 GB go into a file of their own.
        dynamic_shapes: as `tangrad.export.export` takes them; a name may stand for a `Dim`.
        custom_translation_table: {op: form}; a form takes the graph that is written and the
            arguments of the call, and returns the name of the result: `g.op("Relu", x.name)`.
        report: write `onnx_export_report.md` into `artifacts_dir`.
        verify: run the file and compare it with the model, on the example and on other sizes.
        dynamic_axes: {input: {dimension: name} or dimensions}; those of outputs follow.
        training: PyTorch's TrainingMode: 0 evaluates, 1 preserves the flags, 2 trains.
        custom_opsets: {domain: version} of operators that forms add.
        verbose, optimize, profile, dump_exported_program, export_params,
        keep_initializers_as_inputs, operator_export_type, do_constant_folding,
        export_modules_as_functions, autograd_inlining: accepted.

    Returns:
        The program; None with `dynamo=False`.

    Raises:
        OnnxExporterError: the opset is unknown, names clash, or the file computes something else.
        UnsupportedOperatorError: an op has no form; it names the op and its module. No file is
            left.
    """
    opset = DEFAULT if opset_version is None else int(opset_version)
    newest = defs.onnx_opset_version()
    if not OLDEST <= opset <= newest:
        raise OnnxExporterError(f"opset_version is {opset}; {OLDEST} to {newest} are written")
    arguments = args if isinstance(args, tuple) else (args,)
    with exporting(), _left_as_it_is(model, training), symbolic_functions():
        program = _program(
            model, arguments, kwargs, dynamic_shapes, dynamic_axes, input_names, not dynamo
        )
        written = write_model(
            program,
            opset=opset,
            input_names=list(input_names or ()),
            output_names=list(output_names or ()),
            custom={**custom_forms(opset), **_by_name(custom_translation_table)},
            custom_opsets=custom_opsets,
        )
    made = ONNXProgram(written.model, program, written)
    if verify:
        made.verify()
    if report:
        path = Path(artifacts_dir) / "onnx_export_report.md"
        path.write_text(made.report(), "utf-8")
    if f is not None:
        made.save(f, external_data=None if external_data else False)
    return made if dynamo else None


def _by_name(table: Mapping[Any, Callable[..., Any]] | None) -> dict[str, Callable[..., Any]]:
    return {str(getattr(op, "name", op)): form for op, form in (table or {}).items()}


class _Called(Module):
    """A function as a module.

    Args:
        function: of tensors.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.forward = function  # whose arguments keep their names


def _program(
    model: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None,
    dynamic_shapes: Any,
    dynamic_axes: Mapping[str, Any] | None,
    input_names: Sequence[str] | None,
    may_trace: bool,
) -> Any:
    if isinstance(model, ExportedProgram):
        return model
    if isinstance(model, Module):
        model = on_floats(model)
    elif not callable(model):
        kind = type(model).__name__
        raise TypeError(f"export: expected a module or a function, got {kind}")
    else:
        model = _Called(model)
    if args and isinstance(args[-1], dict) and not kwargs and not _takes(model, len(args)):
        args, kwargs = args[:-1], args[-1]
    if dynamic_shapes is None and dynamic_axes:
        dynamic_shapes = _shapes(args, kwargs or {}, dynamic_axes, list(input_names or ()))
    if dynamic_shapes is not None:
        dynamic_shapes = _with_dims(dynamic_shapes, {})
        args, kwargs = _enlarged(model, args, kwargs, dynamic_shapes)
    try:
        return exported(model, args, kwargs, dynamic_shapes=dynamic_shapes)
    except ValueReadError:
        # The tracer belongs to tangrad-jit, and takes arguments by position.
        if not may_trace or kwargs or not find_spec("tangrad_jit"):
            raise
        return exported(tangrad.jit.trace(model, args), args, dynamic_shapes=dynamic_shapes)


def _enlarged(
    model: Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None, declared: Any
) -> Any:
    """Return arguments whose sizes that vary are no 1: a program may do without work for one."""
    if isinstance(declared, Mapping):
        names = list(signature(model.forward).parameters)[: len(args)]
        larger = [_larger(x, declared.get(name)) for name, x in zip(names, args, strict=False)]
        rest = {key: _larger(value, declared.get(key)) for key, value in (kwargs or {}).items()}
        return (*larger, *args[len(larger) :]), rest or None
    if not isinstance(declared, (tuple, list)):
        return args, kwargs
    if len(declared) == 1 and isinstance(declared[0], (tuple, list)) and len(args) != 1:
        declared = declared[0]  # of the arguments of a function
    shapes = list(declared)[: len(args)]
    return tuple(map(_larger, args, shapes)) + args[len(shapes) :], kwargs


def _larger(value: Any, declared: Any) -> Any:
    if isinstance(declared, (tuple, list)) and len(declared) == 1:
        declared = declared[0] if not isinstance(value, Tensor) else declared
    if not isinstance(value, Tensor) or not declared:
        return value
    axes = declared.items() if isinstance(declared, Mapping) else enumerate(declared)
    for axis, dim in axes:
        most = getattr(dim, "max", None)
        varies = dim is not None and not isinstance(dim, int) and -value.ndim <= axis < value.ndim
        if varies and value.shape[axis] == 1 and (most is None or most >= _SEVERAL):
            value = tangrad.cat([value] * _SEVERAL, axis)
    return value


def _with_dims(shapes: Any, dims: dict[str, Any]) -> Any:
    """Return shapes with a `Dim` for each name."""
    if isinstance(shapes, str):
        return dims.setdefault(shapes, Dim(shapes))
    if isinstance(shapes, dict):
        return {key: _with_dims(part, dims) for key, part in shapes.items()}
    if isinstance(shapes, (tuple, list)):
        return type(shapes)([_with_dims(part, dims) for part in shapes])
    return shapes


def _takes(model: Module, count: int) -> bool:
    """Return whether a module takes so many arguments by position."""
    found = signature(model.forward).parameters.values()
    if any(p.kind is Parameter.VAR_POSITIONAL for p in found):
        return True
    return sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in found) >= count


def _shapes(
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    axes: Mapping[str, Any],
    names: list[str],
) -> Any:
    """Return PyTorch's older way of declaring axes as the newer one."""
    dims: dict[str, Any] = {}

    def of(name: str) -> Any:
        declared = axes.get(name)
        if not declared:
            return None
        if not isinstance(declared, Mapping):
            declared = {axis: f"{name}_{axis}" for axis in declared}
        return {axis: dims.setdefault(title, Dim(title)) for axis, title in declared.items()}

    known = [*names, *(f"arg{i}" for i in range(len(names), len(args)))]
    shapes = tuple(
        of(name) if isinstance(value, Tensor) else None
        for name, value in zip(known, args, strict=False)
    )
    if not kwargs:
        return shapes
    rest = dict(zip(kwargs, names[len(args) :], strict=False))
    return (*shapes, *(of(rest.get(key, key)) for key in kwargs))


@contextmanager
def _left_as_it_is(model: Any, training: Any) -> Iterator[None]:
    """Run in evaluation mode, and put flags and random numbers back."""
    modules = list(model.modules()) if isinstance(model, Module) else []
    flags = [module.training for module in modules]
    mode = int(getattr(training, "value", training) or 0)
    state = tangrad.get_rng_state()
    try:
        if modules and mode != 1:
            model.train(mode == 2)
        with tangrad.no_grad():
            yield
    finally:
        for module, flag in zip(modules, flags, strict=True):
            module.training = flag
        tangrad.set_rng_state(state)
