"""Checkpoints that keep the results of chosen ops, and run only the others again."""

from __future__ import annotations

import enum
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Any

import tangrad
from tangrad.utils._python_dispatch import TorchDispatchMode
from tangrad.utils._pytree import tree_map

__all__ = ["CheckpointPolicy", "SelectiveCheckpointContext", "create_selective_checkpoint_contexts"]


class CheckpointPolicy(enum.Enum):
    """What becomes of an op's result; without a compiler, PREFER means the same as MUST."""

    MUST_SAVE = 0
    PREFER_SAVE = 1
    MUST_RECOMPUTE = 2
    PREFER_RECOMPUTE = 3


class SelectiveCheckpointContext:
    """What a policy is told besides the op.

    Attributes:
        is_recompute: whether this is the second run.
    """

    def __init__(self, *, is_recompute: bool) -> None:
        self.is_recompute = is_recompute


_KEPT = (CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_SAVE)
_Results = defaultdict[Any, deque[Any]]


class _Kept:
    """A result, and how often it had been written to when it was kept."""

    def __init__(self, x: Any) -> None:
        self.x, self.version = x.detach(), x._version

    def get(self, changes_are_fine: bool) -> Any:
        if not changes_are_fine and self.x._version != self.version:
            raise RuntimeError(
                "Tensor cached during selective activation checkpoint has been mutated; "
                "allow_cache_entry_mutation=True takes it as it is now"
            )
        return self.x.detach()


class _Mode(TorchDispatchMode):
    """Ask the policy about each op."""

    def __init__(self, policy: Callable[..., Any], again: bool, kept: _Results, free: bool) -> None:
        super().__init__()
        self.policy, self.kept, self.free = policy, kept, free
        self.again, self.context = again, SelectiveCheckpointContext(is_recompute=again)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        choice = self.policy(self.context, func, *args, **kwargs)
        if isinstance(choice, bool):
            choice = CheckpointPolicy.MUST_SAVE if choice else CheckpointPolicy.PREFER_RECOMPUTE
        if choice not in _KEPT:
            return func(*args, **kwargs)
        if not self.again:
            result = func(*args, **kwargs)
            is_tensor = tangrad.is_tensor
            self.kept[func].append(tree_map(lambda x: _Kept(x) if is_tensor(x) else x, result))
            return result
        if not self.kept[func]:
            raise RuntimeError(
                f"{func.name} encountered during backward, but not found in storage: the policy "
                "or the function does not do the same each time"
            )
        found = self.kept[func].popleft()
        return tree_map(lambda x: x.get(self.free) if isinstance(x, _Kept) else x, found)


def create_selective_checkpoint_contexts(
    policy_fn_or_list: Callable[..., Any] | Sequence[Any], allow_cache_entry_mutation: bool = False
) -> tuple[Any, Any]:
    """Return the contexts that `checkpoint(context_fn=...)` wants, to keep some ops' results.

    Args:
        policy_fn_or_list: `policy(context, op, *args, **kwargs)` gives a `CheckpointPolicy`, or a
            list of the ops whose results are kept.
        allow_cache_entry_mutation: take a kept result even if it was written to since.

    Returns:
        The context of the first run and that of the second.

    Raises:
        TypeError: the policy is neither a function nor a list of ops.
    """
    if callable(policy_fn_or_list):
        policy: Callable[..., Any] = policy_fn_or_list
    elif isinstance(policy_fn_or_list, (list, tuple)):
        ops = list(policy_fn_or_list)

        def policy(context: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
            kept = any(op is one for one in ops)
            return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE
    else:
        raise TypeError("policy_fn_or_list must be either a function or a list of ops.")
    kept: _Results = defaultdict(deque)
    free = allow_cache_entry_mutation
    return _Mode(policy, False, kept, free), _Mode(policy, True, kept, free)
