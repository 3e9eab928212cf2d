"""Average gradients over the ranks, bucket by bucket, while backward goes on."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from itertools import chain
from typing import Any

import tangrad
from tangrad.autograd import Variable
from tangrad.autograd.graph import get_gradient_edge
from tangrad.plugin import phase
from tangrad_distributed.communication.reductions import ReduceOp
from tangrad_distributed.futures import Future
from tangrad_distributed.training.communication_hooks import allreduce_hook
from tangrad_distributed.training.gradient_buckets import Bucket, GradBucket, cut_into_buckets


class Reducer:
    """Gather the gradients of parameters, and send what is full.

    A parameter is *ready* when backward has been at it. When all are, the means are written into
    `.grad`, at the end of that backward pass. Without `looks` and `static` every parameter has to
    be reached before the next forward, in one backward pass or in several.

    Args:
        named: names and parameters, the same on all ranks.
        group: averages over its ranks.
        sizes: how many bytes buckets may have, see `cut_into_buckets`.
        looks: look in each forward which parameters the output does not depend on.
        views: let gradients be views of buckets.
    """

    def __init__(
        self, named: list[tuple[str, Any]], group: Any, sizes: list[int], looks: bool, views: bool
    ) -> None:
        self.names = [name for name, _ in named]
        self.parameters = [parameter for _, parameter in named]
        self._group, self._looks, self._views = group, looks, views
        self.hook: Callable[[Any, GradBucket], Any] = allreduce_hook
        self.hook_state: Any = group
        # What a mean is multiplied by, for sums over ranks of which some have no batch.
        self.scale = 1.0
        cut = cut_into_buckets(self.parameters, sizes)
        self.buckets = [
            Bucket(number, members, [self.parameters[at] for at in members])
            for number, members in enumerate(cut)
        ]
        self._place = {
            at: (bucket, place)
            for bucket in self.buckets
            for place, at in enumerate(bucket.members)
        }
        count = len(self.parameters)
        self._expects = self._begun = self._marked = False
        self._ready = [False] * count
        self._used = [False] * count
        self._unused: list[int] = []
        self._next = 0
        self._under_way: list[tuple[Bucket, Future[Any]]] = []
        self._static = self._learned = self._learns = False
        self._visits = [0] * count
        self._left = [0] * count
        # A leaf's accumulator lives as long as something holds it, and its hooks as long as it.
        with tangrad.enable_grad():
            self._leaves = [get_gradient_edge(parameter).node for parameter in self.parameters]
        self._handles = [
            leaf.register_hook(_caller(weakref.ref(self), at))
            for at, leaf in enumerate(self._leaves)
        ]

    def remove_hooks(self) -> None:
        """See no more of what backward does."""
        for handle in self._handles:
            handle.remove()

    def learn_from_the_first_step(self) -> None:
        """Take all steps for the same: parameters are used as often as in the first one."""
        self._static = True

    # A step -----------------------------------------------------------------------------------

    def prepare_for_backward(self, outputs: Any) -> None:
        """Average the gradients of the next backward pass, whether its forward was to or not.

        Args:
            outputs: where it begins; only looked at to find unused parameters. With none of them
                every parameter is waited for.
        """
        for bucket in self.buckets:
            bucket.missing = len(bucket.parameters)
        self._expects, self._marked = True, False
        self._next, self._under_way = 0, []
        self._ready = [False] * len(self.parameters)
        self._left = list(self._visits)
        if not self._static:
            self._unused = self._not_reached(outputs) if self._looks else []

    def _not_reached(self, outputs: Any) -> list[int]:
        tensors = list(tensors_within(outputs))
        if not tensors:
            return []
        reached = _nodes_below(tensors)
        return [at for at, leaf in enumerate(self._leaves) if leaf not in reached]

    def arrived(self, at: int) -> None:
        """Note that backward has been at a parameter, with a gradient for it or without."""
        learns = self._static and not self._learned
        if (self._looks or learns) and self.parameters[at].grad is not None:
            self._used[at] = True
        if not self._expects:
            return
        if learns:
            self._visits[at] += 1
            if not self._learns:
                self._learns = True
                _at_the_end(self._learn)
            return
        if not self._marked:
            self._marked = True
            if self._looks and not self._static:
                _at_the_end(self._mark_what_is_left)
            for unused in self._unused:
                self._mark(unused)
        if self._static:
            self._left[at] -= 1
            if self._left[at] > 0:
                return
            if self._left[at] < 0:
                raise RuntimeError(
                    "DistributedDataParallel: Your training graph has changed in this iteration: "
                    f"the parameter {self.names[at]} is reached more often than in the first one, "
                    "which static_graph=True excludes"
                )
        self._mark(at)

    def _mark(self, at: int) -> None:
        """Take a parameter's gradient; send the buckets that are full."""
        if self._ready[at]:
            raise RuntimeError(
                "DistributedDataParallel: Expected to mark a variable ready only once. "
                f"Parameter at index {at} with name {self.names[at]} has been marked as ready "
                "twice. Is the parameter used outside of forward, or in several re-entrant "
                "backward passes? Call backward once for each forward, use no_sync(), or, where "
                "all steps are alike, static_graph=True."
            )
        self._ready[at] = self._begun = True
        bucket, place = self._place[at]
        bucket.take(place, self._views)
        # In their order on all ranks, whatever the order in which they fill.
        while self._next < len(self.buckets) and not self.buckets[self._next].missing:
            self.send(self.buckets[self._next])
            self._next += 1
        if self._next == len(self.buckets):
            _at_the_end(self._finish)

    def _mark_what_is_left(self) -> None:
        """Count what only outputs without a gradient depend on; a gradient from before is used."""
        if not self._expects:
            return
        for at, ready in enumerate(self._ready):
            if not ready:
                self._used[at] = self._used[at] or self.parameters[at].grad is not None
                self._mark(at)

    def _learn(self) -> None:
        """Send all gradients of a first step, and remember which there were."""
        self._unused = [at for at, visits in enumerate(self._visits) if not visits]
        for at in range(len(self.parameters)):
            self._mark(at)

    def send(self, bucket: Bucket) -> None:
        """Begin to average a bucket.

        Raises:
            TypeError: the hook returns no future.
        """
        last = bucket.index == len(self.buckets) - 1
        shown = GradBucket(bucket.index, bucket.buffer, bucket.parameters, last)
        future = self.hook(self.hook_state, shown)
        if not isinstance(future, Future):
            raise TypeError(
                f"a communication hook must return a Future, got {type(future).__name__}"
            )
        self._under_way.append((bucket, future))

    def _finish(self) -> None:
        """Wait for all buckets and give parameters their averaged gradients."""
        self._expects = self._begun = False
        self._exchange_used()
        for bucket, future in self._under_way:
            with phase("wait for gradients"):
                averaged = future.wait()
            averaged = averaged[0] if isinstance(averaged, (list, tuple)) else averaged
            if averaged is not bucket.buffer:
                bucket.buffer.copy_(averaged.view(-1))
            if self.scale != 1.0 and self.hook is allreduce_hook:
                bucket.buffer.mul_(self.scale)
            self._give(bucket)
        self._under_way = []
        self._forget_used()

    def _give(self, bucket: Bucket) -> None:
        """Write the means of a bucket; what no rank has used stays as it is."""
        leaves_out = self._looks or self._static
        for at, view in zip(bucket.members, bucket.views, strict=True):
            parameter = self.parameters[at]
            if leaves_out and not self._used[at]:
                continue
            if self._views:
                parameter.grad = view
            elif parameter.grad is None:
                parameter.grad = view.clone()
            else:
                parameter.grad.detach().copy_(view)

    def _exchange_used(self) -> None:
        """Let all ranks know which parameters some rank has used."""
        if not (self._looks or self._static) or self._learned:
            return
        pairs = zip(self._used, self.parameters, strict=True)
        # Gradients that were forgotten since are used no more.
        counts = tangrad.tensor([int(used and one.grad is not None) for used, one in pairs])
        self._group.all_reduce([counts], ReduceOp(ReduceOp.MAX))
        self._used = [bool(one) for one in counts.tolist()]
        self._learned = self._static

    def _forget_used(self) -> None:
        if not self._static:
            self._used = [False] * len(self.parameters)

    def shadow(self) -> None:
        """Take part in the averages of ranks that have a batch, with gradients of zero."""
        for bucket in self.buckets:
            bucket.buffer.zero_()
            self.send(bucket)
        self._exchange_used()
        for bucket, future in self._under_way:
            future.wait()
            # An optimizer that owns a part of the parameters steps on this rank, too.
            self._give(bucket)
        self._under_way = []
        self._forget_used()

    def _rebuild_buckets(self) -> bool:
        """Begin anew, under PyTorch's name; buckets stay as they are."""
        self.check_finished()
        return False

    def check_finished(self) -> None:
        """See that the last backward pass has reached every parameter.

        Raises:
            RuntimeError: it has not; names those that it left out.
        """
        if not self._begun:
            return
        missing = [at for at, ready in enumerate(self._ready) if not ready]
        if self._static:
            cure = (
                "Your training graph has changed in this iteration: they were used in the first "
                "one, which static_graph=True takes for the pattern of all"
            )
        else:
            cure = (
                "Your module has parameters that were not used in producing loss. Have every "
                "output of forward take part in the loss, or give find_unused_parameters=True"
            )
        raise RuntimeError(
            "DistributedDataParallel: Expected to have finished reduction in the prior iteration "
            f"before starting a new one. {cure}.\n"
            f"Parameters which did not receive grad for rank {self._group.rank()}: "
            f"{', '.join(self.names[at] for at in missing)}\n"
            f"Parameter indices which did not receive grad for rank {self._group.rank()}: "
            f"{' '.join(str(at) for at in missing)}"
        )


def _at_the_end(callback: Callable[[], None]) -> None:
    """Call a function when the backward pass that runs has ended."""
    Variable._execution_engine.queue_callback(callback)


def _caller(reducer: weakref.ref[Reducer], at: int) -> Callable[..., None]:
    """Return a hook that tells a reducer, if it is still there, of a parameter."""

    def tell(*_: Any) -> None:
        found = reducer()
        if found is not None:
            found.arrived(at)

    return tell


def tensors_within(found: Any) -> Iterator[Any]:
    """Return the tensors of what a forward returned, however nested."""
    from tangrad.utils import _pytree

    for leaf in _pytree.tree_leaves(found):
        if isinstance(leaf, tangrad.Tensor):
            yield leaf
        elif is_dataclass(leaf) and not isinstance(leaf, type):
            yield from chain.from_iterable(
                tensors_within(getattr(leaf, field.name)) for field in fields(leaf)
            )


def _nodes_below(tensors: list[Any]) -> set[Any]:
    """Return the nodes that tensors depend on, the accumulators of leaves among them."""
    nodes = [tensor.grad_fn for tensor in tensors if tensor.grad_fn is not None]
    seen = set(nodes)
    while nodes:
        for following, _ in nodes.pop().next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                nodes.append(following)
    return seen
