"""How the gradients of a bucket become the mean over all ranks: hooks of data parallelism."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tangrad
from tangrad_distributed.communication.reductions import ReduceOp
from tangrad_distributed.futures import Future
from tangrad_distributed.training.gradient_buckets import BuiltinCommHookType, GradBucket
from tangrad_distributed.world import default_group


def check_hook(hook: Any) -> None:
    """See that a hook can be one, as far as it says what it takes and returns.

    Raises:
        TypeError: it cannot be called.
        ValueError: it says that it takes or returns something else.
    """
    if not callable(hook):
        raise TypeError(f"Communication hook must be callable, got {type(hook).__name__}")
    said = getattr(hook, "__annotations__", {})
    taken, returned = said.get("bucket"), said.get("return")
    if isinstance(taken, type) and not issubclass(GradBucket, taken):
        raise ValueError(
            f"Communication hook: bucket annotation should be dist.GradBucket, got {taken.__name__}"
        )
    if isinstance(returned, type) and not issubclass(Future, returned):
        raise ValueError(
            "Communication hook: return annotation should be futures.Future[Tensor], got "
            f"{returned.__name__}"
        )


def group_of(state: Any) -> Any:
    """Return the group that a hook was given, all ranks by default."""
    return default_group("communication hook") if state is None else state


def allreduce_hook(process_group: Any, bucket: GradBucket) -> Future[Any]:
    """Average the gradients."""
    return averaged(group_of(process_group), bucket.buffer())


def averaged(group: Any, buffer: Any) -> Future[Any]:
    """Return a future of the mean over the ranks of a group, in place."""
    buffer.div_(group.size())
    work = group.all_reduce([buffer], ReduceOp(ReduceOp.SUM), async_op=True)
    return work.get_future().then(lambda done: done.value()[0])


def _compressed(process_group: Any, bucket: GradBucket, dtype: Any) -> Future[Any]:
    group, buffer = group_of(process_group), bucket.buffer()
    small = buffer.to(dtype).div_(group.size())
    work = group.all_reduce([small], ReduceOp(ReduceOp.SUM), async_op=True)

    def widen(done: Future[Any]) -> Any:
        buffer.copy_(done.value()[0])
        return buffer

    return work.get_future().then(widen)


def fp16_compress_hook(process_group: Any, bucket: GradBucket) -> Future[Any]:
    """Average the gradients in float16."""
    return _compressed(process_group, bucket, tangrad.float16)


def bf16_compress_hook(process_group: Any, bucket: GradBucket) -> Future[Any]:
    """Average the gradients in bfloat16."""
    return _compressed(process_group, bucket, tangrad.bfloat16)


def _narrowed(hook: Callable[[Any, GradBucket], Any], dtype: Any) -> Callable[..., Future[Any]]:
    """Return a hook that gives `hook` the gradients in `dtype`, and widens what it returns."""

    def narrowed(state: Any, bucket: GradBucket) -> Future[Any]:
        wide = bucket.buffer()
        bucket.set_buffer(wide.to(dtype))

        def widen(done: Future[Any]) -> Any:
            found = done.value()
            found = found[0] if isinstance(found, (list, tuple)) else found
            wide.copy_(found.view(-1))
            return wide

        return hook(state, bucket).then(widen)

    return narrowed


def fp16_compress_wrapper(hook: Callable[[Any, GradBucket], Any]) -> Callable[..., Future[Any]]:
    """Return a hook that hands another one the gradients in float16."""
    return _narrowed(hook, tangrad.float16)


def bf16_compress_wrapper(hook: Callable[[Any, GradBucket], Any]) -> Callable[..., Future[Any]]:
    """Return a hook that hands another one the gradients in bfloat16."""
    return _narrowed(hook, tangrad.bfloat16)


def noop_hook(_: Any, bucket: GradBucket) -> Future[Any]:
    """Leave each rank its own gradients: to see what communication costs."""
    return ready(bucket.buffer())


def ready(value: Any) -> Future[Any]:
    """Return a future of a value that is there."""
    result: Future[Any] = Future()
    result.set_result(value)
    return result


BUILT_IN = {
    BuiltinCommHookType.ALLREDUCE: allreduce_hook,
    BuiltinCommHookType.FP16_COMPRESS: fp16_compress_hook,
}
