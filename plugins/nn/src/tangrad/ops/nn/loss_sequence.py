"""Define the loss of sequences whose alignment with the input is unknown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tangrad
from tangrad.ops.nn.fusing import plain_on_host
from tangrad.ops.nn.loss import _reduction
from tangrad.plugin import Tensor, batched_front, composite, level_of, op, refuse_values

# The logarithm of a path that does not exist. Finite, so that differences of such are no NaN.
_NEVER = -1e30


def _logs(*rows: Sequence[float]) -> list[list[float]]:
    return [[math.log(p) for p in row] for row in rows]


as_log_softmax = op(
    "as_log_softmax(Tensor self) -> Tensor",
    dtypes="floating",
    shape=lambda self: self.shape,
    reference=lambda np, self: self.copy(),
    decompose=lambda self: self.clone(),
    vjp={"self": lambda g, result: g - result.exp() * g.sum(-1, keepdim=True)},
    jvp=lambda self_t, result: self_t - (result.exp() * self_t).sum(-1, keepdim=True),
    batch=lambda size, dims, self: (as_log_softmax(self.movedim(dims[0], 0)), 0),
    function=False,
    method=False,
    oracle=lambda torch, x: torch.log_softmax(x, -1),
    samples=lambda s: (
        [
            s(s.values(_logs([0.25, 0.5, 0.25], [0.5, 0.375, 0.125]))),
            s(s.values([[0.0], [0.0]])),
        ]
        if s.dtype in ("float32", "float64")
        else []
    ),
    doc="""Return log-probabilities, with the derivatives as if log_softmax had just made them.

    Log_softmax of what is normalised is the identity, but its derivative is a projection.
    """,
)


def _lengths(name: str, given: Any, size: int) -> list[int]:
    """Return lengths as numbers, one for each of `size` sequences.

    Raises:
        RuntimeError: if there are more or fewer.
    """
    if isinstance(given, tangrad.Tensor):
        if given.dtype.is_floating_point or given.dtype.is_complex:
            raise RuntimeError(f"ctc_loss: {name} must be integral, got {given.dtype}")
        given = given.reshape((-1,)).tolist()
    elif isinstance(given, int):
        given = [given]
    lengths = [int(n) for n in given]
    if len(lengths) != size:
        raise RuntimeError(
            f"ctc_loss: {name} must be of size batch_size: {size}, got {len(lengths)}"
        )
    if lengths and min(lengths) < 0:
        raise RuntimeError(f"ctc_loss: {name} must not be negative, got {min(lengths)}")
    return lengths


def _lengths_of_samples(name: str, given: Any, size: int, most: int, device: Any) -> Any:
    """Return the lengths that each sample of a batch has, which cannot be told as numbers."""
    lengths = tangrad.as_tensor(given, dtype=tangrad.int64, device=device).reshape((-1,))
    if lengths.shape[0] != size:
        raise RuntimeError(
            f"ctc_loss: {name} must be of size batch_size: {size}, got {lengths.shape[0]}"
        )
    refuse_values(
        (lengths < 0) | (lengths > most), f"ctc_loss: {name} must be from 0 to {most} in a sample"
    )
    return lengths


def _seen_by_level(given: Any) -> bool:
    """Tell whether lengths are a tensor of a transform."""
    return isinstance(given, tangrad.Tensor) and level_of(given) is not None


def _batched_ctc(
    log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, blank: int
) -> tuple[Any, Any]:
    """Return the losses where samples of a batch differ in lengths, and the targets' lengths."""
    steps, size = log_probs.shape[:2]
    if targets.ndim != 2 or targets.shape[0] != size:
        raise RuntimeError(
            "ctc_loss: lengths that differ between the samples of a vmap need padded targets "
            f"(N, S), N = {size}; got size {list(targets.shape)}"
        )
    most, device = targets.shape[1], log_probs.device
    ends = _lengths_of_samples("input_lengths", input_lengths, size, steps, device)
    counts = _lengths_of_samples("target_lengths", target_lengths, size, most, device)
    within = tangrad.arange(most, device=device) < counts.unsqueeze(1)
    padded = targets.masked_fill(~within, blank)
    logs = as_log_softmax(log_probs)
    return -_log_likelihood(logs, padded, ends, counts, 0, blank), counts


def _check_ctc(log_probs: Any, targets: Any, blank: int) -> None:
    if log_probs.dtype.name not in ("float32", "float64"):
        raise RuntimeError(f"ctc_loss: log_probs must be float32 or float64, got {log_probs.dtype}")
    if targets.dtype.name not in ("int32", "int64"):
        raise RuntimeError(f"ctc_loss: targets must be int32 or int64, got {targets.dtype}")
    if log_probs.ndim not in (2, 3):
        raise RuntimeError(
            f"ctc_loss: log_probs must be (T, N, C) or (T, C), got {list(log_probs.shape)}"
        )
    if not 0 <= blank < log_probs.shape[-1]:
        raise RuntimeError(
            f"ctc_loss: blank must be in label range: got {blank} of {log_probs.shape[-1]} labels"
        )


def _padded_targets(targets: Any, lengths: list[int], size: int) -> Any:
    """Bring targets, padded ones (N, S) or concatenated ones, to (N, longest)."""
    longest = max(lengths, default=0)
    if targets.ndim == 2:
        if targets.shape[0] != size or targets.shape[1] < longest:
            raise RuntimeError(
                f"ctc_loss: Expected targets to have size {size} at dimension 0 and at least "
                f"{longest} at dimension 1, but got size {list(targets.shape)}"
            )
        return targets.narrow(1, 0, longest)
    if targets.ndim != 1 or targets.shape[0] != sum(lengths):
        raise RuntimeError(
            f"ctc_loss: Expected concatenated targets to be of size {sum(lengths)}, the sum of "
            f"target_lengths, but got {list(targets.shape)}"
        )
    starts = [sum(lengths[:i]) for i in range(size)]
    places = [
        [start + k if k < n else 0 for k in range(longest)]
        for start, n in zip(starts, lengths, strict=True)
    ]
    index = tangrad.tensor(places, dtype=tangrad.int64, device=targets.device)
    if targets.shape[0] == 0:
        return targets.new_zeros((size, longest))
    return targets.index_select(0, index.reshape((-1,))).reshape((size, longest))


def _with_blanks(targets: Any, blank: int) -> Any:
    """Put blanks before, between and behind the labels: (N, S) becomes (N, 2 S + 1)."""
    size, count = targets.shape
    blanks = tangrad.full_like(targets, blank)
    between = tangrad.stack([blanks, targets], 2).reshape((size, 2 * count))
    last = targets.new_full((size, 1), blank)
    return tangrad.cat([between, last], 1)


def _log_likelihood(
    logs: Any, targets: Any, input_lengths: Any, target_lengths: Any, shortest: int, blank: int
) -> Any:
    """Add up, in logarithms, the probabilities of all paths that mean the targets.

    The forward variables of Graves et al.: after each step, alpha[n, s] is the probability of all
    ways to have come to place s of the labels with blanks between them. A place is reached from
    itself, from the one before it, and from the one before that if a blank between two different
    labels is left out.
    """
    steps, size = logs.shape[:2]
    labels = _with_blanks(targets.to(tangrad.int64), blank)
    places = labels.shape[1]
    index = labels.unsqueeze(0).expand((steps, size, places))
    emitted = logs.gather(2, index).clamp(min=_NEVER)
    before = logs.detach().new_full((size, 2), _NEVER)
    two_back = tangrad.cat([labels.new_full((size, 2), blank), labels], 1).narrow(1, 0, places)
    skips = (labels != blank) & (labels != two_back)
    alpha = tangrad.cat(
        [before.new_zeros((size, 1)), before.new_full((size, places - 1), _NEVER)], 1
    )
    ends = input_lengths.unsqueeze(1)
    for step, emission in enumerate(emitted.unbind(0)):
        wide = tangrad.cat([before, alpha], 1)
        stepped = tangrad.logaddexp(alpha, wide.narrow(1, 1, places))
        skipped = tangrad.where(skips, wide.narrow(1, 0, places), _NEVER)
        moved = tangrad.logaddexp(stepped, skipped) + emission
        done = shortest <= step
        alpha = tangrad.where(step < ends, moved, alpha) if done else moved
    counts = target_lengths.unsqueeze(1)
    final = alpha.gather(1, 2 * counts)
    label = alpha.gather(1, (2 * counts - 1).clamp(min=0)).masked_fill(counts == 0, _NEVER)
    return tangrad.logaddexp(final, label).squeeze(1)


def _by_tensor_code(log_probs: Any, targets: Any, ends: Any, counts: Any, blank: int) -> Any:
    return -_log_likelihood(as_log_softmax(log_probs), targets, ends, counts, 0, blank)


def _gradient(grad: Any, log_probs: Any, targets: Any, ends: Any, counts: Any, blank: int) -> Any:
    """Pull the losses' gradient back through the tensor code, which can be differentiated again."""

    def losses(logs: Any) -> Any:
        return _by_tensor_code(logs, targets, ends, counts, blank)

    return tangrad.func.vjp(losses, log_probs)[1](grad)[0]


def _ctc_vjp(g: Any, log_probs: Any, targets: Any, ends: Any, counts: Any, blank: int) -> Any:
    pull = _gradient if tangrad.is_grad_enabled() else _ctc_loss_backward
    return pull(g, log_probs, targets, ends, counts, blank)


def _merged(size: int, dims: Any, axes: tuple[int, ...], tensors: tuple[Any, ...]) -> list[Any]:
    """Make a batch's dimension part of that of the samples, which is one of each tensor."""
    return [
        batched_front(x, dim, size).movedim(0, axis).flatten(axis, axis + 1)
        for x, dim, axis in zip(tensors, dims, axes, strict=False)
    ]


def _ctc_batch(size: int, dims: Any, *args: Any) -> Any:
    merged = _merged(size, dims, (1, 0, 0, 0), args[:4])
    return _ctc_loss(*merged, args[4]).unflatten(0, (size, -1)), 0


def _ctc_backward_batch(size: int, dims: Any, *args: Any) -> Any:
    merged = _merged(size, dims, (0, 1, 0, 0, 0), args[:5])
    return _ctc_loss_backward(*merged, args[5]).unflatten(1, (size, -1)), 1


_ctc_loss_backward = op(
    "_ctc_loss_backward(Tensor grad, Tensor log_probs, Tensor targets, Tensor ends, Tensor counts,"
    " int blank) -> Tensor",
    dtypes="floating",
    shape=lambda log_probs: log_probs.shape,
    dtype=lambda log_probs: log_probs.dtype,
    decompose=_gradient,
    vjp="none: `_ctc_loss` takes tensor code where further derivatives may follow",
    batch=_ctc_backward_batch,
    function=False,
    method=False,
    doc="Compute the gradient of `_ctc_loss` by the log-probabilities.",
)

_ctc_loss = op(
    "_ctc_loss(Tensor log_probs, Tensor targets, Tensor ends, Tensor counts, int blank) -> Tensor",
    dtypes="floating",
    shape=lambda log_probs: (log_probs.shape[1],),
    dtype=lambda log_probs: log_probs.dtype,
    decompose=_by_tensor_code,
    vjp={
        "log_probs": lambda g, log_probs, targets, ends, counts, blank: _ctc_vjp(
            g, log_probs, targets, ends, counts, blank
        )
    },
    jvp=lambda log_probs, targets, ends, counts, blank, log_probs_t: tangrad.func.jvp(
        lambda logs: _by_tensor_code(logs, targets, ends, counts, blank),
        (log_probs,),
        (log_probs_t,),
    )[1],
    batch=_ctc_batch,
    function=False,
    method=False,
    doc="""Take the losses (N) of `ctc_loss`, 1e30 and more of targets that are too long.

    Args:
        log_probs: (T, N, C).
        targets: labels, padded to (N, S), int64.
        ends: steps that count (N), int64.
        counts: labels of each target (N), int64.
        blank: the label that stands for none.
    """,
)


@composite(
    dtypes="floating",
    namespace="nn",
    method=False,
    oracle="nn.functional.ctc_loss",
    samples=lambda s: (
        [
            s(s.tensor(6, 2, 4, high=0), s.integers(1, 4, 2, 3), (6, 5), (3, 1)),
            s(s.tensor(6, 2, 4, high=0), s.integers(0, 3, 5), (6, 6), (3, 2), 3, "none"),
            s(s.tensor(5, 3, high=0), s.values([1, 2], dtype="int64"), (5,), (2,), reduction="sum"),
            s(
                s.tensor(3, 2, 3, high=0),
                s.values([[1, 1, 2], [2, 1, 1]], dtype="int64"),
                (3, 0),
                (3, 0),
                reduction="none",
                zero_infinity=True,
            ),
        ]
        if s.dtype in ("float32", "float64")
        else []
    ),
    errors=lambda s: [
        (s(s.tensor(3, 1, 2), s.integers(0, 2, 1, 1), (4,), (1,)), RuntimeError, "at most"),
        (s(s.tensor(3, 1, 2), s.integers(0, 2, 1, 1), (3, 3), (1,)), RuntimeError, "batch_size"),
        (s(s.tensor(3, 1, 2), s.integers(0, 2, 1, 1), (3,), (2,)), RuntimeError, "at least 2"),
        (s(s.tensor(3, 1, 2), s.integers(0, 2, 1, 1), (3,), (1,), 2), RuntimeError, "label range"),
        (
            s(s.tensor(3, 1, 2), s.integers(0, 2, 1, 1), (3,), (1,), 0, "avg"),
            ValueError,
            "not a valid value",
        ),
    ],
)
def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """Take the negative log-likelihood of label sequences under all their alignments.

    Graves, Fernández, Gomez, Schmidhuber: "Connectionist temporal classification", 2006. The
    derivatives are those with log-probabilities that log_softmax has made, which is as if by the
    scores before it.

    Args:
        log_probs: logarithms of the labels' probabilities (T, N, C) or (T, C).
        targets: labels (N, S), or those of all sequences concatenated.
        input_lengths: how many steps of each sequence count (N).
        target_lengths: how many labels each target has (N).
        blank: the label that stands for none.
        reduction: "mean" (of the losses divided by the targets' lengths), "sum" or "none".
        zero_infinity: count targets that are too long for the input as 0, not as infinite.
    """
    reduction = _reduction(None, None, reduction)
    _check_ctc(log_probs, targets, blank)
    single = log_probs.ndim == 2
    if single:
        log_probs = log_probs.unsqueeze(1)
        targets = targets.unsqueeze(0) if targets.ndim == 1 else targets
    if _seen_by_level(input_lengths) or _seen_by_level(target_lengths):
        loss, counts = _batched_ctc(log_probs, targets, input_lengths, target_lengths, blank)
    else:
        loss, counts = _ctc(log_probs, targets, input_lengths, target_lengths, blank)
    loss = loss.masked_fill(loss > -_NEVER / 10, 0.0 if zero_infinity else math.inf)
    if reduction == "none":
        return loss.squeeze(0) if single else loss
    if reduction == "sum":
        return loss.sum()
    return (loss / counts.clamp(min=1).to(loss.dtype)).mean()


def _ctc(
    log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, blank: int
) -> tuple[Any, Any]:
    """Return the losses, and the targets' lengths."""
    steps, size = log_probs.shape[:2]
    inputs = _lengths("input_lengths", input_lengths, size)
    counts = _lengths("target_lengths", target_lengths, size)
    if max(inputs, default=0) > steps:
        raise RuntimeError(
            f"ctc_loss: Expected input_lengths to have value at most {steps}, but "
            f"got value {max(inputs)}"
        )
    padded = _padded_targets(targets, counts, size)
    ends, lengths = (
        tangrad.tensor(x, dtype=tangrad.int64, device=log_probs.device) for x in (inputs, counts)
    )
    if plain_on_host(log_probs, padded):
        labels = padded.to(tangrad.int64)
        return _ctc_loss(log_probs, labels, ends, lengths, blank), lengths
    logs = as_log_softmax(log_probs)
    return -_log_likelihood(logs, padded, ends, lengths, min(inputs, default=0), blank), lengths
