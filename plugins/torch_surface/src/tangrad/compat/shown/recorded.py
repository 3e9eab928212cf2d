"""The derivative of a call that handlers see as one, though here it is made of several."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import tangrad
from tangrad.plugin import current
from tangrad.utils import _pytree

# {name: (arguments, results but the first, their gradients, which arguments want one) -> gradients
# of the arguments}, for calls whose derivative PyTorch shows as one op, too.
RULES: dict[str, Callable[..., Any]] = {}


# Ops whose derivative reads no values of the tensors that it is for, which may be written later;
# or of these arguments alone.
_ALL = range(64)
UNREAD: dict[str, Any] = {
    **dict.fromkeys(
        "stack repeat roll take trace pixel_shuffle pixel_unshuffle avg_pool2d avg_pool3d "
        "diag_embed diagonal_copy masked_fill fill channel_shuffle block_diag upsample_nearest1d "
        "upsample_nearest2d upsample_nearest3d upsample_linear1d upsample_bilinear2d "
        "upsample_bicubic2d upsample_trilinear3d _adaptive_avg_pool2d reflection_pad1d "
        "reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d replication_pad3d "
        "embedding nll_loss_forward nll_loss2d_forward".split(),
        _ALL,
    ),
    **dict.fromkeys("addmm baddbmm addmv addbmm addr".split(), (0,)),
}


class _Expanding(threading.local):
    """Whether this thread runs what a call is made of, so that none in it is offered as one."""

    active = False


EXPANDING = _Expanding()


class _Unread(NamedTuple):
    """A tensor whose values the derivative does not read."""

    shape: Any
    dtype: Any
    device: Any

    def stand_in(self) -> Any:
        """Return a tensor like it."""
        return tangrad.zeros((), dtype=self.dtype, device=self.device).expand(self.shape)


class _Recorded(tangrad.autograd.Function):
    """Compute a call below recording; for its derivative, run what it is made of once more."""

    @staticmethod
    def forward(
        ctx: Any, name: str, offer: Callable[..., Any], again: Any, spec: Any, *leaves: Any
    ) -> Any:
        ctx.set_materialize_grads(False)
        args, kwargs = _pytree.tree_unflatten(list(leaves), spec)
        result = offer(args, kwargs)
        ctx.several = isinstance(result, (tuple, list))
        results = list(result) if ctx.several else [result]
        ctx.name, ctx.again, ctx.spec = name, again, spec
        unread, wanted = UNREAD.get(name, ()), ctx.needs_input_grad[4:]
        leaves = tuple(
            _Unread(x.shape, x.dtype, x.device)
            if k in unread and wanted[k] and not hasattr(type(x), "__torch_dispatch__")
            else x
            for k, x in enumerate(leaves)
        )
        tensors = [x if isinstance(x, tangrad.Tensor) else None for x in leaves]
        ctx.others = [None if t is not None else x for t, x in zip(tensors, leaves, strict=True)]
        ctx.count = len(leaves)
        kept = results[1:] if name in RULES else []  # the first may be written
        ctx.save_for_backward(*tensors, *kept)
        fixed = [r for r in results if r is not None and not r.is_floating_point()]
        ctx.mark_non_differentiable(*(r for r in fixed if not r.is_complex()))
        return tuple(results) if ctx.several else result

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        saved = ctx.saved_tensors
        tensors, results = saved[: ctx.count], saved[ctx.count :]
        stack = current()
        stack.dispatch_disabled += 1  # the program makes no such tensors
        try:
            others = [o.stand_in() if isinstance(o, _Unread) else o for o in ctx.others]
        finally:
            stack.dispatch_disabled -= 1
        leaves = [o if t is None else t for t, o in zip(tensors, others, strict=True)]
        wanted = ctx.needs_input_grad[4:]
        if ctx.name in RULES and grads[0] is not None and not any(g is not None for g in grads[1:]):
            found = _by_rule(ctx, leaves, results, grads, wanted)
        else:
            found = _derived(ctx, leaves, grads, wanted)
        return None, None, None, None, *found


def _by_rule(ctx: Any, leaves: list[Any], results: Any, grads: Any, wanted: Any) -> list[Any]:
    args, _ = _pytree.tree_unflatten(leaves, ctx.spec)
    asked, _ = _pytree.tree_unflatten(list(wanted), ctx.spec)
    by_argument = RULES[ctx.name](args, results, grads, asked)
    found: list[Any] = []
    for k, arg in enumerate(args):
        count = len(_pytree.tree_leaves(arg))
        gradient = by_argument.get(k)
        found += [gradient] if count == 1 else [None] * count
    return found + [None] * (len(leaves) - len(found))


def _derived(ctx: Any, leaves: list[Any], grads: Any, wanted: Any) -> list[Any]:
    further = tangrad.is_grad_enabled()
    given = list(leaves)
    for k, needed in enumerate(wanted):
        if needed and not (further and leaves[k].requires_grad):
            given[k] = leaves[k].detach()
            given[k].requires_grad = True  # the method is refused where batches of gradients run
    stack = current()
    wrapped = any(hasattr(type(x), "__torch_dispatch__") for x in leaves)
    stack.dispatch_disabled += not wrapped  # handlers have seen this call
    before, EXPANDING.active = EXPANDING.active, True
    try:
        with tangrad.enable_grad():
            args, kwargs = _pytree.tree_unflatten(given, ctx.spec)
            result = ctx.again(*args, **kwargs)
    finally:
        EXPANDING.active = before
        stack.dispatch_disabled -= not wrapped
    results = list(result) if ctx.several else [result]
    pairs = [(r, g) for r, g in zip(results, grads, strict=True) if g is not None]
    pairs = [(r, g) for r, g in pairs if r is not None and r.requires_grad]
    asked = [x for x, needed in zip(given, wanted, strict=True) if needed]
    if not pairs:
        return [None] * len(leaves)
    found = iter(
        tangrad.autograd.grad(
            [r for r, _ in pairs], asked, [g for _, g in pairs], create_graph=further,
            allow_unused=True,
        )
    )  # fmt: skip
    return [next(found) if needed else None for needed in wanted]


def call_recorded_as_one(
    name: str, offer: Callable[..., Any], again: Callable[..., Any], args: Any, kwargs: Any
) -> Any:
    """Call `offer(args, kwargs)` below recording, with the derivative of `again(*args, **kwargs)`.

    Args:
        name: of the op, for a rule of its own in `RULES`.
        offer: what computes the results.
        again: what they are made of.
        args: the arguments, nested.
        kwargs: those by name.
    """
    leaves, spec = _pytree.tree_flatten((args, kwargs))
    return _Recorded.apply(name, offer, again, spec, *leaves)
