"""Tables of vectors."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad import Tensor
from tangrad.nn import functional as F
from tangrad.nn import init
from tangrad.nn.modules.module import Module
from tangrad.nn.parameter import Parameter

__all__ = ["Embedding", "EmbeddingBag"]


class Embedding(Module):
    """Look vectors up by index.

    Args:
        num_embeddings: number of vectors.
        embedding_dim: size of a vector.
        padding_idx: index whose vector starts as zeros and gets no gradient.
        max_norm: norm to which looked-up vectors are shortened, in place.
        norm_type: p of that p-norm.
        scale_grad_by_freq: divide gradients by how often an index occurs.
        sparse: make the gradient a sparse tensor.
        _weight: the table to use instead of drawing one.
        _freeze: make the table's `requires_grad` False.
        device: device of the table.
        dtype: dtype of the table.

    Raises:
        AssertionError: if `padding_idx` or the shape of `_weight` does not fit.

    Attributes:
        weight: of shape (num_embeddings, embedding_dim), drawn from the standard normal.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Any = None,
        _freeze: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        if padding_idx is not None:
            if not -num_embeddings <= padding_idx < num_embeddings:
                raise AssertionError("Padding_idx must be within num_embeddings")
            padding_idx %= num_embeddings
        self.padding_idx = padding_idx
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.sparse = sparse
        shape = (num_embeddings, embedding_dim)
        if _weight is None:
            empty = tangrad.empty(shape, device=device, dtype=dtype)
            self.weight = Parameter(empty, requires_grad=not _freeze)
            self.reset_parameters()
        else:
            if tuple(_weight.shape) != shape:
                raise AssertionError(
                    "Shape of weight does not match num_embeddings and embedding_dim"
                )
            self.weight = Parameter(_weight, requires_grad=not _freeze)

    def reset_parameters(self) -> None:
        """Draw the table anew."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with tangrad.no_grad():
                self.weight[self.padding_idx].fill_(0)

    def forward(self, input: Tensor) -> Tensor:
        """Map integers of shape (*) to vectors of shape (*, embedding_dim)."""
        return F.embedding(
            input,
            self.weight,
            self.padding_idx,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.sparse,
        )

    def extra_repr(self) -> str:
        """Show the sizes, and the options that are not at their default."""
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        defaults = {
            "padding_idx": None,
            "max_norm": None,
            "norm_type": 2,
            "scale_grad_by_freq": False,
            "sparse": False,
        }
        for name, default in defaults.items():
            value = getattr(self, name)
            if value != default:
                text += f", {name}={value}"
        return text

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Any,
        freeze: bool = True,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> Embedding:
        """Make an embedding of an existing table.

        Args:
            embeddings: table of shape (num_embeddings, embedding_dim).
            freeze: make the table's `requires_grad` False.
            padding_idx: see `Embedding`.
            max_norm: see `Embedding`.
            norm_type: see `Embedding`.
            scale_grad_by_freq: see `Embedding`.
            sparse: see `Embedding`.

        Raises:
            AssertionError: if `embeddings` is not two-dimensional.
        """
        if embeddings.dim() != 2:
            raise AssertionError("Embeddings parameter is expected to be 2-dimensional")
        rows, columns = embeddings.shape
        return cls(
            rows,
            columns,
            padding_idx,
            max_norm,
            norm_type,
            scale_grad_by_freq,
            sparse,
            _weight=embeddings,
            _freeze=freeze,
        )


class EmbeddingBag(Module):
    """Look vectors up by index and reduce them within bags.

    Args:
        num_embeddings: number of vectors.
        embedding_dim: size of a vector.
        max_norm: norm to which looked-up vectors are shortened, in place.
        norm_type: p of that p-norm.
        scale_grad_by_freq: divide gradients by how often an index occurs; not for ``"max"``.
        mode: ``"sum"``, ``"mean"`` or ``"max"``.
        sparse: make the gradient a sparse tensor.
        _weight: the table to use instead of drawing one.
        include_last_offset: whether the last offset is the end of the last bag.
        padding_idx: index whose vector starts as zeros and does not take part.
        device: device of the table.
        dtype: dtype of the table.

    Raises:
        AssertionError: if `padding_idx` or the shape of `_weight` does not fit.

    Attributes:
        weight: of shape (num_embeddings, embedding_dim), drawn from the standard normal.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        _weight: Any = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        if padding_idx is not None:
            if not -num_embeddings <= padding_idx < num_embeddings:
                raise AssertionError("padding_idx must be within num_embeddings")
            padding_idx %= num_embeddings
        self.padding_idx = padding_idx
        self.mode = mode
        self.sparse = sparse
        self.include_last_offset = include_last_offset
        shape = (num_embeddings, embedding_dim)
        if _weight is None:
            self.weight = Parameter(tangrad.empty(shape, device=device, dtype=dtype))
            self.reset_parameters()
        else:
            if tuple(_weight.shape) != shape:
                raise AssertionError(
                    "Shape of weight does not match num_embeddings and embedding_dim"
                )
            self.weight = Parameter(_weight)

    def reset_parameters(self) -> None:
        """Draw the table anew."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with tangrad.no_grad():
                self.weight[self.padding_idx].fill_(0)

    def forward(self, input: Tensor, offsets: Any = None, per_sample_weights: Any = None) -> Tensor:
        """Map bags of integers to vectors (B, embedding_dim).

        Args:
            input: (B, N), or (N) with `offsets`.
            offsets: where the bags start (B).
            per_sample_weights: factors of the vectors, of the input's shape; for ``"sum"``.
        """
        return F.embedding_bag(
            input,
            self.weight,
            offsets,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.mode,
            self.sparse,
            per_sample_weights,
            self.include_last_offset,
            self.padding_idx,
        )

    def extra_repr(self) -> str:
        """Show the sizes, and the options that are not at their default."""
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        defaults = {
            "max_norm": None,
            "norm_type": 2,
            "scale_grad_by_freq": False,
        }
        for name, default in defaults.items():
            value = getattr(self, name)
            if value != default:
                text += f", {name}={value}"
        text += f", mode={self.mode!r}"
        return text if self.padding_idx is None else f"{text}, padding_idx={self.padding_idx}"

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Any,
        freeze: bool = True,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> EmbeddingBag:
        """Make an embedding of an existing table.

        Args:
            embeddings: table of shape (num_embeddings, embedding_dim).
            freeze: make the table's `requires_grad` False.
            max_norm: see `EmbeddingBag`.
            norm_type: see `EmbeddingBag`.
            scale_grad_by_freq: see `EmbeddingBag`.
            mode: see `EmbeddingBag`.
            sparse: see `EmbeddingBag`.
            include_last_offset: see `EmbeddingBag`.
            padding_idx: see `EmbeddingBag`.

        Raises:
            AssertionError: if `embeddings` is not two-dimensional.
        """
        if embeddings.dim() != 2:
            raise AssertionError("Embeddings parameter is expected to be 2-dimensional")
        rows, columns = embeddings.shape
        made = cls(
            rows,
            columns,
            max_norm,
            norm_type,
            scale_grad_by_freq,
            mode,
            sparse,
            embeddings,
            include_last_offset,
            padding_idx,
        )
        made.weight.requires_grad_(not freeze)
        return made
