"""Collectives that gradients flow through."""

from tangrad_distributed.communication.reductions import ReduceOp as ReduceOp
from tangrad_distributed.nn import functional as functional
from tangrad_distributed.nn.functional import (
    all_gather as all_gather,
)
from tangrad_distributed.nn.functional import (
    all_reduce as all_reduce,
)
from tangrad_distributed.nn.functional import (
    all_to_all as all_to_all,
)
from tangrad_distributed.nn.functional import (
    all_to_all_single as all_to_all_single,
)
from tangrad_distributed.nn.functional import (
    broadcast as broadcast,
)
from tangrad_distributed.nn.functional import (
    gather as gather,
)
from tangrad_distributed.nn.functional import (
    reduce as reduce,
)
from tangrad_distributed.nn.functional import (
    reduce_scatter as reduce_scatter,
)
from tangrad_distributed.nn.functional import (
    scatter as scatter,
)
from tangrad_distributed.world import group as group
