"""Automatic differentiation: backward, grad, Function, and the switches of recording."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tangrad import _C
from tangrad.autograd.grad_mode import (
    enable_grad,
    inference_mode,
    is_multithreading_enabled,
    no_grad,
    set_grad_enabled,
    set_multithreading_enabled,
)
from tangrad.autograd.variable import Variable
from tangrad.discovery.namespaces import attribute_of
from tangrad.dispatch.python_dispatch import is_shown
from tangrad.dispatch.stack import current

__all__ = [
    "Function",
    "Variable",
    "backward",
    "detect_anomaly",
    "enable_grad",
    "grad",
    "gradcheck",
    "gradgradcheck",
    "inference_mode",
    "is_multithreading_enabled",
    "no_grad",
    "set_detect_anomaly",
    "set_grad_enabled",
    "set_multithreading_enabled",
    "variable",
]

_LAZY = {
    "DeviceType": "device_types",
    "Function": "function",
    "Node": "graph",
    "SavedTensor": "graph",
    "detect_anomaly": "anomaly_mode",
    "set_detect_anomaly": "anomaly_mode",
    "graph": None,
    "forward_ad": None,
    "function": None,
    "anomaly_mode": None,
}


def _ends(value: Any) -> tuple[Any, ...]:
    """Return where walks begin or end, tensors and gradient edges, as a tuple.

    Raises:
        TypeError, RuntimeError: it is none of them, and holds others.
    """
    if isinstance(value, _C.Tensor):
        return (value,)
    from tangrad.autograd.graph import GradientEdge

    ends = (value,) if isinstance(value, GradientEdge) else tuple(value)
    for end in ends:
        if not isinstance(end, (_C.Tensor, GradientEdge)):
            raise RuntimeError(
                f"all inputs have to be Tensors or GradientEdges, but got {type(end).__name__}"
            )
    return ends


def _seeds(outputs: Sequence[Any], grads: Sequence[Any], batched: bool = False) -> list[Any]:
    """Return one gradient per output: given ones checked, ones for scalars.

    Raises:
        RuntimeError: an output without gradient has several elements, or shapes differ.
    """
    if grads and len(grads) != len(outputs):
        raise RuntimeError(f"got {len(outputs)} tensors and {len(grads)} gradients")
    made: list[Any] = []
    for i, out in enumerate(outputs):
        g = grads[i] if grads else None
        edge = None
        if not isinstance(out, _C.Tensor):
            edge, out = out, out.node._input_metadata[out.output_nr]
        if g is None:
            if edge is None and not out.requires_grad:
                made.append(None)
                continue
            if out.numel() != 1:
                raise RuntimeError(
                    f"grad can be implicitly created only for scalar outputs, got shape "
                    f"{list(out.shape)}; pass its gradient"
                )
            if not out.dtype.is_floating_point:
                raise RuntimeError(
                    "grad can be implicitly created only for real scalar outputs but got "
                    f"{out.dtype}"
                )
            if edge is None and is_shown(current(), (out,)):  # a wrapper's gradient is a wrapper
                made.append(_C.lookup_op("ones_like")(out, memory_format=_C.preserve_format))
            else:
                made.append(_C.lookup_op("ones")(out.shape, dtype=out.dtype, device=out.device))
            continue
        if not isinstance(g, _C.Tensor):
            raise TypeError(f"gradients can be either Tensors or None, but got {type(g).__name__}")
        if tuple(g.shape) != tuple(out.shape):
            raise RuntimeError(
                f"Mismatch in shape: grad_output[{i}] has a shape of {g.shape} and output[{i}] "
                f"has a shape of {out.shape}."
            )
        if g.dtype.is_complex != out.dtype.is_complex:
            raise RuntimeError(
                "For complex Tensors, both grad_output and output are required to have the same "
                "dtype. "
                f"Mismatch in dtype: grad_output[{i}] has {g.dtype}, output[{i}] has {out.dtype}."
            )
        made.append(g)
    return made


def backward(
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    grad_variables: Any = None,
    inputs: Any = None,
) -> None:
    """Accumulate into `.grad` of leaves the gradients of tensors.

    Args:
        tensors: tensor(s) or `graph.GradientEdge`(s) to differentiate.
        grad_tensors: their gradients; may be None for scalars.
        retain_graph: keep saved values for another backward; defaults to create_graph.
        create_graph: record the computation of the gradients.
        inputs: accumulate only into these tensors, and into the leaves of these edges.

    Raises:
        RuntimeError: nothing requires gradients, or saved values are gone or were overwritten.
    """
    if inputs is not None and not isinstance(inputs, _C.Tensor) and len(inputs) == 0:
        raise RuntimeError("'inputs' argument to backward() cannot be empty.")
    if create_graph:
        _warn_of_cycles()
    outputs = _ends(tensors)
    keep = create_graph if retain_graph is None else retain_graph
    seeds = _seeds(outputs, _as_tuple_of_optional(grad_tensors))
    if inputs is None:
        _C.engine_run(outputs, seeds, keep, create_graph)
        return
    wanted = _ends(inputs)
    for t in wanted:
        if isinstance(t, _C.Tensor) and not t.is_leaf:
            t.retain_grad()
    _C.engine_run(outputs, seeds, keep, create_graph, wanted, True)


_warned_of_cycles = False


def _warn_of_cycles() -> None:
    """Warn once: training loops of second order call backward in every step."""
    global _warned_of_cycles
    if _warned_of_cycles:
        return
    _warned_of_cycles = True
    import warnings

    warnings.warn(
        "backward(create_graph=True) makes a cycle of references between a parameter and its "
        "gradient, which keeps memory alive: use autograd.grad, or set .grad to None after use",
        UserWarning,
        stacklevel=4,
    )


def tensor_backward(
    self: Any,
    gradient: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Any = None,
) -> None:
    """Compute the gradients of this tensor for the leaves of its graph (`Tensor.backward`)."""
    backward(self, gradient, retain_graph, create_graph, inputs=inputs)


def _as_tuple_of_optional(value: Any) -> tuple[Any, ...]:
    if value is None:
        return ()
    return (value,) if isinstance(value, _C.Tensor) else tuple(value)


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Any, ...]:
    """Return the gradients of outputs for inputs, leaving `.grad` alone.

    Args:
        outputs, inputs: tensor(s) or `graph.GradientEdge`(s).
        grad_outputs: gradients of the outputs; may be None for scalars.
        retain_graph, create_graph: as in `backward`.
        allow_unused: return None for inputs that outputs do not depend on, instead of raising.
        is_grads_batched: grad_outputs have a leading batch dimension; so do the results.
        materialize_grads: zeros instead of None; not for edges.

    Raises:
        RuntimeError: an input is not part of the graph (without allow_unused).
        ValueError: materialize_grads with allow_unused=False.
    """
    outputs, wanted = _ends(outputs), _ends(inputs)
    if not wanted:
        raise RuntimeError("grad: `inputs` argument to `grad()` cannot be empty; name some tensor")
    seeds_given = _as_tuple_of_optional(grad_outputs)
    keep = create_graph if retain_graph is None else retain_graph
    if is_grads_batched:
        return _batched_grad(
            outputs,
            wanted,
            seeds_given,
            {
                "retain_graph": True,
                "create_graph": create_graph,
                "allow_unused": allow_unused,
                "materialize_grads": materialize_grads,
            },
        )
    if materialize_grads and allow_unused is False:
        raise ValueError(
            "Expected allow_unused to be True or not passed when materialize_grads=True, but got: "
            "allow_unused=False."
        )
    if allow_unused is None:
        allow_unused = materialize_grads
    for t in wanted:
        if isinstance(t, _C.Tensor) and not t.requires_grad:
            raise RuntimeError("One of the differentiated Tensors does not require grad")
    found = _C.engine_run(outputs, _seeds(outputs, seeds_given), keep, create_graph, wanted)
    results = []
    for t, g in zip(wanted, found, strict=True):
        if g is None and not allow_unused:
            raise RuntimeError(
                "One of the differentiated Tensors appears to not have been used in the graph. Set "
                "allow_unused=True if this is the desired behavior."
            )
        if g is None and materialize_grads and not isinstance(t, _C.Tensor):
            raise RuntimeError(
                "materialize_grads cannot be used when the given input is a GradientEdge"
            )
        if g is None and materialize_grads:
            g = _C.lookup_op("zeros_like")(t, requires_grad=create_graph)
        results.append(g)
    return tuple(results)


def _batched_grad(
    outputs: tuple[Any, ...],
    wanted: tuple[Any, ...],
    seeds: tuple[Any, ...],
    options: dict[str, Any],
) -> tuple[Any, ...]:
    """Return gradients for a batch of gradients of the outputs; None stays None.

    Raises:
        RuntimeError: a gradient is no batch of an output's shape.
    """
    from tangrad.func import vmap

    for i, (out, g) in enumerate(zip(outputs, seeds, strict=False)):
        if isinstance(out, _C.Tensor) and isinstance(g, _C.Tensor) and g.shape[1:] != out.shape:
            raise RuntimeError(
                "If `is_grads_batched=True`, we interpret the first dimension of each grad_output "
                f"as the batch: Mismatch in shape: grad_output[{i}] has a shape of "
                f"{list(g.shape)} and output[{i}] has a shape of {list(out.shape)}"
            )
    used: list[int] = []

    def one(*seed: Any) -> tuple[Any, ...]:
        found = grad(outputs, wanted, seed, **options)
        used[:] = [i for i, g in enumerate(found) if g is not None]
        return tuple(found[i] for i in used)

    results = vmap(one)(*seeds)
    batch = dict(zip(used, results, strict=True))
    return tuple(batch.get(i) for i in range(len(wanted)))


def variable(*args: Any, **kwargs: Any) -> Any:
    """Refuse: a name without use.

    Raises:
        RuntimeError: always.
    """
    raise RuntimeError("autograd.variable(...) is deprecated, use tangrad.tensor(...) instead")


_of_plugin = attribute_of(__name__)


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        return _of_plugin(name)
    from importlib import import_module

    where = _LAZY[name]
    if where is None:
        return import_module(f"tangrad.autograd.{name}")
    return getattr(import_module(f"tangrad.autograd.{where}"), name)


# Last: the module of that name uses what is above, and the function must hide it.
from tangrad.autograd.gradcheck import gradcheck, gradgradcheck  # noqa: E402
