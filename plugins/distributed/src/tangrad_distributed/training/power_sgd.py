"""PowerSGD: gradients travel as approximations of low rank (arXiv:1905.13727)."""

from __future__ import annotations

import math
from typing import Any

import tangrad
from tangrad_distributed.communication.reductions import ReduceOp
from tangrad_distributed.futures import Future
from tangrad_distributed.training.communication_hooks import averaged, group_of, ready
from tangrad_distributed.training.gradient_buckets import GradBucket


class PowerSGDState:
    """Hold what PowerSGD (Vogels et al. 2019, arXiv:1905.13727) keeps between steps.

    Args:
        process_group: None for all ranks.
        matrix_approximation_rank: rank of the approximation of each gradient.
        start_powerSGD_iter: how many steps average plainly first.
        min_compression_rate: gradients that would not become smaller by this factor are not
            compressed.
        use_error_feedback: add what a step left out to the next one's gradient.
        warm_start: begin from the last step's approximation.
        orthogonalization_epsilon: added to norms before they divide.
        random_seed: of the first approximation; the same on all ranks.
    """

    def __init__(
        self,
        process_group: Any = None,
        matrix_approximation_rank: int = 1,
        start_powerSGD_iter: int = 1000,
        min_compression_rate: float = 2,
        use_error_feedback: bool = True,
        warm_start: bool = True,
        orthogonalization_epsilon: float = 0,
        random_seed: int = 0,
    ) -> None:
        if matrix_approximation_rank < 1:
            raise ValueError(
                f"PowerSGDState: the rank must be positive, got {matrix_approximation_rank}"
            )
        if (use_error_feedback or warm_start) and start_powerSGD_iter <= 1:
            raise ValueError(
                "PowerSGDState: expect start_powerSGD_iter > 1 with error feedback or warm start"
            )
        self.process_group = process_group
        self.rank = matrix_approximation_rank
        self.start = start_powerSGD_iter
        self.min_compression_rate = min_compression_rate
        self.use_error_feedback, self.warm_start = use_error_feedback, warm_start
        self.epsilon = orthogonalization_epsilon
        self.generator = tangrad.Generator().manual_seed(random_seed)
        self.iter = 0
        self.errors: dict[int, Any] = {}
        self.q: dict[tuple[int, int], Any] = {}


def _orthogonal(matrix: Any, epsilon: float) -> Any:
    """Return orthonormal columns that span the same, by Gram and Schmidt's process."""
    columns: list[Any] = []
    for column in matrix.unbind(1):
        for done in columns:
            column = column - (done @ column) * done
        columns.append(column / (column.norm() + max(epsilon, 1e-30)))
    return tangrad.stack(columns, 1)


def powerSGD_hook(state: PowerSGDState, bucket: GradBucket) -> Future[Any]:
    """Average low-rank approximations of the gradients (PowerSGD)."""
    group, buffer = group_of(state.process_group), bucket.buffer()
    if state.iter < state.start:
        state.iter += bucket.is_last()
        return averaged(group, buffer)
    index = bucket.index()
    if state.use_error_feedback:
        buffer.add_(state.errors.get(index, 0.0))
        before = buffer.clone()
    plain, narrow = [], []
    for place, gradient in enumerate(bucket.gradients()):
        matrix = gradient.reshape(gradient.shape[0], -1) if gradient.dim() > 1 else None
        if matrix is None or not _pays(matrix, state):
            plain.append(gradient)
        else:
            narrow.append((place, matrix))
    sum_op = ReduceOp(ReduceOp.SUM)
    if plain:
        group.all_reduce(plain, sum_op)
    left = []
    for place, matrix in narrow:
        q = state.q.get((index, place)) if state.warm_start else None
        if q is None:
            shape = (matrix.shape[1], min(state.rank, *matrix.shape))
            q = tangrad.randn(shape, generator=state.generator, dtype=matrix.dtype)
        left.append((place, matrix, _orthogonal(q, state.epsilon)))
    p = [matrix @ q for _, matrix, q in left]
    if p:
        group.all_reduce(p, sum_op)
    p = [_orthogonal(one, state.epsilon) for one in p]
    found = [matrix.mT @ one for (_, matrix, _), one in zip(left, p, strict=True)]
    if found:
        group.all_reduce(found, sum_op)
    for (place, matrix, _), one, q in zip(left, p, found, strict=True):
        matrix.copy_(one @ q.mT)
        if state.warm_start:
            state.q[index, place] = q
    buffer.div_(group.size())
    if state.use_error_feedback:
        state.errors[index] = before - buffer
    state.iter += bucket.is_last()
    return ready(buffer)


def _pays(matrix: Any, state: PowerSGDState) -> bool:
    rows, columns = matrix.shape
    rank = min(state.rank, rows, columns)
    return (rows + columns) * rank * state.min_compression_rate < rows * columns


def batched_powerSGD_hook(state: PowerSGDState, bucket: GradBucket) -> Future[Any]:
    """Average one approximation of a whole bucket, as a square matrix: faster, and less exact."""
    group, buffer = group_of(state.process_group), bucket.buffer()
    if state.iter < state.start:
        state.iter += bucket.is_last()
        return averaged(group, buffer)
    index, count = bucket.index(), buffer.numel()
    side = math.isqrt(count - 1) + 1
    if state.use_error_feedback:
        buffer.add_(state.errors.get(index, 0.0))
    matrix = tangrad.nn.functional.pad(buffer, (0, side * side - count)).view(side, side)
    q = state.q.get((index, -1)) if state.warm_start else None
    if q is None:
        shape = (side, min(state.rank, side))
        q = tangrad.randn(shape, generator=state.generator, dtype=matrix.dtype)
    sum_op = ReduceOp(ReduceOp.SUM)
    p = matrix @ _orthogonal(q, state.epsilon)
    group.all_reduce([p], sum_op)
    p = _orthogonal(p, state.epsilon)
    q = matrix.mT @ p
    group.all_reduce([q], sum_op)
    found = (p @ q.mT).view(-1)[:count] / group.size()
    if state.use_error_feedback:
        state.errors[index] = buffer - found
    if state.warm_start:
        state.q[index, -1] = q
    buffer.copy_(found)
    state.iter += bucket.is_last()
    return ready(buffer)
