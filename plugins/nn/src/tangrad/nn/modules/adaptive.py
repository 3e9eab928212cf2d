"""Softmax over many classes, the rare ones in clusters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tangrad
from tangrad.nn import functional as F
from tangrad.nn.modules.container import ModuleList, Sequential
from tangrad.nn.modules.linear import Linear
from tangrad.nn.modules.module import Module

__all__ = ["AdaptiveLogSoftmaxWithLoss"]


class _ASMoutput(NamedTuple):
    """Hold the log-probabilities of the targets, and the mean of their negatives."""

    output: Any
    loss: Any


class AdaptiveLogSoftmaxWithLoss(Module):
    """Approximate a softmax over many classes whose frequencies are unequal.

    Classes are numbered by frequency. The head scores the most frequent ones and clusters of the
    others; each cluster projects the input to fewer features, the fewer the rarer it is (Grave,
    Joulin, Cissé, Grangier, Jégou: "Efficient softmax approximation for GPUs", 2016).

    Args:
        in_features: size of the input.
        n_classes: number of classes.
        cutoffs: where the clusters begin: increasing, between 1 and `n_classes` - 1.
        div_value: by which power of it the features of a cluster are fewer.
        head_bias: whether the head has a bias.
        device: device of the parameters.
        dtype: dtype of the parameters.

    Raises:
        ValueError: if the cutoffs are not as described.
    """

    in_features: int
    n_classes: int
    cutoffs: list[int]
    div_value: float
    head_bias: bool
    head: Linear
    tail: ModuleList

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        cutoffs = list(cutoffs)
        if len(cutoffs) == 0:
            raise ValueError("cutoffs should be a sequence of length larger than 0")
        if (
            cutoffs != sorted(set(cutoffs))
            or min(cutoffs) <= 0
            or max(cutoffs) > n_classes - 1
            or any(int(c) != c for c in cutoffs)
        ):
            raise ValueError(
                "cutoffs should be a sequence of unique, positive integers sorted in an "
                f"increasing order, where each value is between 1 and n_classes-1, got {cutoffs}"
            )
        self.in_features = in_features
        self.n_classes = n_classes
        self.cutoffs = [*cutoffs, n_classes]
        self.div_value = div_value
        self.head_bias = head_bias
        self.shortlist_size = self.cutoffs[0]
        self.n_clusters = len(self.cutoffs) - 1
        self.head_size = self.shortlist_size + self.n_clusters
        kind: dict[str, Any] = {"device": device, "dtype": dtype}
        self.head = Linear(in_features, self.head_size, bias=head_bias, **kind)
        self.tail = ModuleList()
        for i in range(self.n_clusters):
            features = int(in_features // (div_value ** (i + 1)))
            classes = self.cutoffs[i + 1] - self.cutoffs[i]
            self.tail.append(
                Sequential(
                    Linear(in_features, features, bias=False, **kind),
                    Linear(features, classes, bias=False, **kind),
                )
            )

    def reset_parameters(self) -> None:
        """Draw the parameters anew."""
        self.head.reset_parameters()
        for project, score in self.tail:
            project.reset_parameters()
            score.reset_parameters()

    def forward(self, input_: Any, target_: Any) -> _ASMoutput:
        """Return the log-probabilities of the targets, and the mean of their negatives.

        Args:
            input_: (N, in_features) or (in_features).
            target_: class numbers (N) or ().

        Raises:
            RuntimeError: if shapes do not fit, or a target is no class.
        """
        self._check(input_, target_)
        batched = target_.dim() > 0
        input = input_ if batched else input_.unsqueeze(0)
        target = target_ if batched else target_.unsqueeze(0)
        bounds = tangrad.tensor(self.cutoffs[:-1], device=target.device)
        cluster = tangrad.bucketize(target, bounds, right=True)
        in_head = tangrad.where(cluster == 0, target, self.shortlist_size + cluster - 1)
        scores = F.log_softmax(self.head(input), dim=1)
        output = scores.gather(1, in_head.unsqueeze(1)).squeeze(1)
        for i in range(self.n_clusters):
            rows = (cluster == i + 1).nonzero().squeeze(1)
            if rows.numel() == 0:
                continue
            logs = F.log_softmax(self.tail[i](input.index_select(0, rows)), dim=1)
            places = (target.index_select(0, rows) - self.cutoffs[i]).unsqueeze(1)
            output = output.index_add(0, rows, logs.gather(1, places).squeeze(1))
        loss = (-output).mean()
        return _ASMoutput(output if batched else output.squeeze(0), loss)

    def _check(self, input: Any, target: Any) -> None:
        if target.dim() > 1:
            raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
        if target.dim() == 1 and input.size(0) != target.size(0):
            raise RuntimeError("Input and target should have the same size in the batch dimension.")
        if input.dim() != target.dim() + 1:
            raise RuntimeError(
                f"{target.dim()}D target tensor expects {target.dim() + 1}D input tensors, but "
                f"found inputs with size {list(input.shape)}"
            )
        if target.numel() and not bool(((target >= 0) & (target < self.n_classes)).all()):
            raise RuntimeError(
                f"Target values should be in [0, {self.n_classes - 1}], but values in range "
                f"[{target.min().item()}, {target.max().item()}] were found. "
            )

    def log_prob(self, input: Any) -> Any:
        """Map (N, in_features) to the log-probabilities of all classes (N, n_classes)."""
        return self._all_log_probs(input, self.head(input))

    def _all_log_probs(self, input: Any, scores: Any) -> Any:
        head = F.log_softmax(scores, dim=1)
        parts = [head.narrow(1, 0, self.shortlist_size)]
        for i in range(self.n_clusters):
            cluster = head.narrow(1, self.shortlist_size + i, 1)
            parts.append(F.log_softmax(self.tail[i](input), dim=1) + cluster)
        return tangrad.cat(parts, 1)

    def predict(self, input: Any) -> Any:
        """Map (N, in_features) to the most probable classes (N)."""
        scores = self.head(input)
        found = scores.argmax(dim=1)
        # A class of a cluster is at most as probable as the cluster.
        rows = (found >= self.shortlist_size).nonzero().squeeze(1)
        if rows.numel() == 0:
            return found
        logs = self._all_log_probs(input.index_select(0, rows), scores.index_select(0, rows))
        return found.index_copy(0, rows, logs.argmax(dim=1))
