"""A group's collectives by the names and arguments that PyTorch's own groups have.

Programs call them on a group itself, in communication hooks above all. All return a `Work`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tangrad
from tangrad_distributed.communication.reductions import AllreduceOptions, ReduceOp, reduction
from tangrad_distributed.communication.work import Work


def _listed(tensors: Any) -> list[Any]:
    return [tensors] if isinstance(tensors, tangrad.Tensor) else list(tensors)


def _chosen(opts: Any) -> ReduceOp:
    found = opts.reduceOp if isinstance(opts, AllreduceOptions) else opts
    return reduction(ReduceOp.SUM if found is None else found, "allreduce")


class OlderNames:
    """Give a group the methods `allreduce`, `allgather`, `alltoall` and their like."""

    def allreduce(self: Any, tensors: Any, opts: Any = None) -> Work:
        """Reduce tensors over all ranks, in place; `opts` is a reduction or `AllreduceOptions`."""
        return self.all_reduce(_listed(tensors), _chosen(opts), async_op=True)

    allreduce_coalesced = allreduce

    def allgather(self: Any, output_tensors: Any, input_tensors: Any, opts: Any = None) -> Work:
        """Copy every rank's tensors to all: `allgather([[a, b]], [x])`, `allgather([a, b], x)`."""
        if isinstance(input_tensors, tangrad.Tensor):
            output_tensors, input_tensors = [output_tensors], [input_tensors]
        return self.all_gather(output_tensors, input_tensors, async_op=True)

    def _allgather_base(self: Any, output: Any, input: Any, opts: Any = None) -> Work:
        parts = list(output.detach().view(-1).chunk(self.size()))
        return self.all_gather([parts], [input.reshape(-1)], async_op=True)

    def alltoall(
        self: Any, output_tensors: Sequence[Any], input_tensors: Sequence[Any], opts: Any = None
    ) -> Work:
        """Give each rank one of this rank's tensors."""
        return self.all_to_all(output_tensors, input_tensors, "all_to_all", async_op=True)

    def alltoall_base(
        self: Any,
        output: Any,
        input: Any,
        output_split_sizes: Sequence[int] = (),
        input_split_sizes: Sequence[int] = (),
        opts: Any = None,
    ) -> Work:
        """Give each rank some rows of this rank's tensor."""
        size = self.size()
        incoming = list(output_split_sizes) or [len(output) // size] * size
        outgoing = list(input_split_sizes) or [len(input) // size] * size
        outputs = list(output.detach().split(incoming))
        inputs = list(input.detach().split(outgoing))
        return self.all_to_all(outputs, inputs, "all_to_all_single", async_op=True)
