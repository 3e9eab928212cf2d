"""Record custom ops, and take them through grad and vmap, as functions of flat arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tangrad
from tangrad.autograd import Function
from tangrad.library.binding import short_form
from tangrad.plugin import current, flat_tensors, map_tensors

__all__ = ["apply", "not_cut"]


class Call:
    """One call: what its function must know beside the flat tensors.

    Attributes:
        op: the op.
        named: keyword-only arguments.
        lengths: per positional argument, the length of its list of tensors, or None.
        returned: the same for the results, once they are known.
        marker: whether a tensor was added to results that have none, as recording needs one.
    """

    def __init__(self, op: Any, values: Sequence[Any], named: dict[str, Any]) -> None:
        self.op, self.named = op, named
        self.lengths = tuple(
            len(v) if a.is_tensor and isinstance(v, list) else None
            for a, v in zip(op._schema.arguments, values, strict=False)
        )
        self.returned: tuple[int | None, ...] = ()
        self.marker = False

    def flat_results(self, result: Any) -> tuple[Any, ...]:
        """Return results as one tuple and note their structure."""
        returns = self.op._schema.returns
        results = () if not returns else (result,) if len(returns) == 1 else tuple(result)
        self.returned = tuple(len(r) if isinstance(r, list) else None for r in results)
        flat = flatten(results, self.returned)
        self.marker = not any(isinstance(r, tangrad.Tensor) for r in flat)
        return (*flat, tangrad.empty((0,))) if self.marker else flat

    def results(self, flat: Sequence[Any]) -> Any:
        """Return flat results in the structure of the schema."""
        found = unflatten(flat[:-1] if self.marker else flat, self.returned)
        return None if not found else found[0] if len(found) == 1 else tuple(found)


def flatten(values: Sequence[Any], lengths: Sequence[int | None]) -> tuple[Any, ...]:
    """Return values with the lists that `lengths` tells of spread out; None is spread as Nones."""
    flat: list[Any] = []
    for value, n in zip(values, lengths, strict=True):
        if n is None:
            flat.append(value)
        else:
            flat.extend([None] * n if value is None else value)
    return tuple(flat)


def unflatten(flat: Sequence[Any], lengths: Sequence[int | None]) -> list[Any]:
    """Undo `flatten`."""
    values: list[Any] = []
    position = 0
    for n in lengths:
        values.append(flat[position] if n is None else list(flat[position : position + n]))
        position += 1 if n is None else n
    return values


def apply(op: Any, values: Sequence[Any], named: dict[str, Any]) -> Any:
    """Run a bound call, recording it, at the innermost transform where there is one."""
    call = Call(op, values, named)
    if op._function is None:
        name = f"GeneratedBackwardFor_{op.namespace}_{op._opname}_{op._overloadname}"
        op._function = type(name, (_Rules,), {})
    return call.results(op._function.apply(call, *flatten(values, call.lengths)))


class _Rules(Function):
    """Hand the rules of a Function on to what is registered for the op."""

    @staticmethod
    def forward(call: Call, *flat: Any) -> Any:
        values = unflatten(flat, call.lengths)
        return call.flat_results(call.op.below(values, call.named))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        call, *flat = inputs
        ctx._call = call
        if call.marker:
            ctx.mark_non_differentiable(output[-1])
        setup = call.op.setup_context
        if setup is None:
            return
        given = {"inputs": tuple(unflatten(flat, call.lengths)), "output": call.results(output)}
        if any(a.kwarg_only for a in call.op._schema.arguments):
            given["keyword_only_inputs"] = call.named
        needs = ctx.needs_input_grad
        ctx.needs_input_grad = tuple(unflatten(needs[1:], call.lengths))
        try:
            setup(ctx=ctx, **given)
        finally:
            ctx.needs_input_grad = needs

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        call = ctx._call
        op = call.op
        if op.backward is None:
            raise RuntimeError(
                f"Trying to backward through {op} but no autograd formula was registered. "
                "Please use register_autograd to add one."
            )
        needs = ctx.needs_input_grad
        ctx.needs_input_grad = tuple(unflatten(needs[1:], call.lengths))
        try:
            found = op.backward(ctx, *unflatten(grads, call.returned))
        finally:
            ctx.needs_input_grad = needs
        gradients = found if isinstance(found, tuple) else (found,)
        while len(gradients) > len(call.lengths) and gradients[-1] is None:
            gradients = gradients[:-1]
        if len(gradients) != len(call.lengths):
            raise RuntimeError(
                f"the backward of {op} returned an incorrect number of gradients (expected "
                f"{len(call.lengths)}, got {len(gradients)})"
            )
        for gradient, n in zip(gradients, call.lengths, strict=True):
            if (
                n is not None
                and gradient is not None
                and (not isinstance(gradient, (list, tuple)) or len(gradient) != n)
            ):
                raise RuntimeError(
                    "Expected the return from backward to be of the same structure as the inputs: "
                    f"{op} takes a list of {n} tensors"
                )
        return (None, *flatten(gradients, call.lengths))

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> Any:
        call, *flat = args
        values, dims = unflatten(flat, call.lengths), unflatten(in_dims[1:], call.lengths)
        rule = call.op.batching
        if rule is None:
            return _loop(info.batch_size, call, flat, in_dims[1:])
        given, keywords = short_form(call.op._schema, values, call.named)
        result, out_dims = rule(info, tuple(dims), *given, **keywords)
        results = call.flat_results(result)
        several = isinstance(out_dims, tuple)
        shaped = out_dims if several else (out_dims,) * len(call.returned)
        flat_dims = flatten(
            [
                [d] * n if n is not None and not isinstance(d, (list, tuple)) else d
                for d, n in zip(shaped, call.returned, strict=True)
            ],
            call.returned,
        )
        return results, (*flat_dims, None) if call.marker else flat_dims


def not_cut(op: Any, inputs: Sequence[Any], result: Any) -> Any:
    """Return a result by which backward and forward mode raise where a kernel has lost its history.

    Args:
        op: an op with kernels alone: what they do by recorded ops has the derivative of those.
        inputs: the tensors that it was given.
        result: what it returned.
    """
    levels = current().levels

    def is_lost(t: Any) -> bool:
        known = t.requires_grad if not levels else levels[-1].owns(t)
        number = t.dtype.is_floating_point or t.dtype.is_complex
        return number and not known and all(t is not given for given in inputs)

    lost = list(filter(is_lost, flat_tensors((result,))))
    if not lost:
        return result
    found = dict(zip(map(id, lost), _Cut.apply(op, lost, *inputs), strict=True))
    return map_tensors(lambda t: found.get(id(t), t), result)


class _Cut(Function):
    """Results whose history a kernel has lost."""

    generate_vmap_rule = True

    @staticmethod
    def forward(op: Any, results: list[Any], *inputs: Any) -> Any:
        return tuple(results)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx._op = inputs[0]

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise NotImplementedError(
            f"Trying to backward through {ctx._op}, whose kernel computes outside of what is "
            "recorded, but no autograd formula was registered. Please use "
            f"tangrad.library.register_autograd('{ctx._op.name()}', ...) to add one, or detach() "
            "its inputs if they are constants."
        )

    jvp = backward


def _loop(size: int, call: Call, flat: Sequence[Any], dims: Sequence[Any]) -> Any:
    """Call the op for each sample of a batch and stack the results."""
    columns: list[tuple[Any, ...]] = []
    for i in range(size):
        sample = [v.select(d, i) if d is not None else v for v, d in zip(flat, dims, strict=True)]
        result = call.op(*unflatten(sample, call.lengths), **call.named)
        columns.append(call.flat_results(result))
    stack = tangrad.stack
    results, out_dims = [], []
    for parts in zip(*columns, strict=True):
        batched = isinstance(parts[0], tangrad.Tensor)
        results.append(stack(list(parts)) if batched else parts[0])
        out_dims.append(0 if batched else None)
    return tuple(results), tuple(out_dims)
