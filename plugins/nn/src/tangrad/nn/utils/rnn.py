"""Sequences of different lengths in one tensor."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any, NamedTuple

import tangrad

__all__ = [
    "PackedSequence",
    "invert_permutation",
    "pack_padded_sequence",
    "pack_sequence",
    "pad_packed_sequence",
    "pad_sequence",
    "unpack_sequence",
    "unpad_sequence",
]


class _Packed(NamedTuple):
    data: Any
    batch_sizes: Any
    sorted_indices: Any
    unsorted_indices: Any


class PackedSequence(_Packed):
    """Sequences of different lengths, one after the other in time.

    First the first elements of all sequences, then the second elements of those that have one,
    and so on. The sequences are sorted by length, the longest first.

    Args:
        data: the elements, of shape (sum of the lengths, *).
        batch_sizes: how many sequences have an element at each time; int64 on the host.
        sorted_indices: which sequence of the original batch is at each place; None if sorted.
        unsorted_indices: where each sequence of the original batch is; found from the former.

    Raises:
        ValueError: `batch_sizes` is not on the host.
    """

    def __new__(
        cls,
        data: Any,
        batch_sizes: Any = None,
        sorted_indices: Any = None,
        unsorted_indices: Any = None,
    ) -> PackedSequence:
        """Take the four parts, or the first two as one pair."""
        if batch_sizes is None:
            data, batch_sizes = data
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        if batch_sizes.device.type != "cpu":
            raise ValueError(
                "batch_sizes should always be on CPU. Instances of PackedSequence should never be "
                "created manually. They should be instantiated by functions like pack_sequence "
                f"and pack_padded_sequence; got {batch_sizes.device}"
            )
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def _moved(self, data: Any) -> PackedSequence:
        if data is self.data:
            return self
        moved = [
            indices if indices is None else indices.to(data.device)
            for indices in (self.sorted_indices, self.unsorted_indices)
        ]
        return type(self)(data, self.batch_sizes, *moved)

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """Return the sequences with another dtype or on another device; see `Tensor.to`."""
        return self._moved(self.data.to(*args, **kwargs))

    def cpu(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """Return the sequences on the host."""
        return self._moved(self.data.cpu(*args, **kwargs))

    def cuda(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """Return the sequences on the device of that name."""
        return self._moved(self.data.cuda(*args, **kwargs))

    def pin_memory(self) -> PackedSequence:
        """Return the sequences in memory that devices read faster."""
        return self._moved(self.data.pin_memory())

    def double(self) -> PackedSequence:
        """Return the sequences as float64."""
        return self.to(dtype=tangrad.double)

    def float(self) -> PackedSequence:
        """Return the sequences as float32."""
        return self.to(dtype=tangrad.float)

    def half(self) -> PackedSequence:
        """Return the sequences as float16."""
        return self.to(dtype=tangrad.half)

    def long(self) -> PackedSequence:
        """Return the sequences as int64."""
        return self.to(dtype=tangrad.long)

    def int(self) -> PackedSequence:
        """Return the sequences as int32."""
        return self.to(dtype=tangrad.int)

    def short(self) -> PackedSequence:
        """Return the sequences as int16."""
        return self.to(dtype=tangrad.short)

    def char(self) -> PackedSequence:
        """Return the sequences as int8."""
        return self.to(dtype=tangrad.int8)

    def byte(self) -> PackedSequence:
        """Return the sequences as uint8."""
        return self.to(dtype=tangrad.uint8)

    @property
    def is_cuda(self) -> bool:
        """Whether the data is on the device of that name."""
        return bool(self.data.is_cuda)

    def is_pinned(self) -> bool:
        """Return whether the data is in memory that devices read faster."""
        return bool(self.data.is_pinned())


def invert_permutation(permutation: Any) -> Any:
    """Return the permutation that undoes another; None of None.

    Args:
        permutation: the numbers from 0 to n - 1 in any order, int64.
    """
    if permutation is None:
        return None
    places = tangrad.arange(permutation.numel(), device=permutation.device)
    return tangrad.empty_like(permutation).scatter_(0, permutation, places)


def pack_padded_sequence(
    input: Any, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Pack sequences that are padded to one length.

    Args:
        input: of shape (T, B, *), or (B, T, *) with `batch_first`.
        lengths: of each sequence, at least 1: a list, or an int64 tensor on the host.
        batch_first: see `input`.
        enforce_sorted: refuse sequences that are not sorted by length; otherwise sort them.

    Raises:
        RuntimeError: a length is less than 1 or more than T, or their number is not B.
    """
    if input.numel() == 0:
        raise RuntimeError(f"Cannot pack empty tensors: got shape {list(input.shape)}")
    if not isinstance(lengths, tangrad.Tensor):
        lengths = tangrad.as_tensor(lengths, dtype=tangrad.int64, device="cpu")
    if lengths.device.type != "cpu" or lengths.dtype is not tangrad.int64 or lengths.ndim != 1:
        raise RuntimeError(
            "'lengths' argument should be a 1D CPU int64 tensor, but got "
            f"{lengths.ndim}D {lengths.device} {lengths.dtype} tensor"
        )
    order = None
    if not enforce_sorted:
        lengths, order = tangrad.sort(lengths, descending=True)
    numbers = lengths.tolist()
    batch, steps = tuple(input.shape)[:2] if batch_first else tuple(input.shape)[1::-1]
    if len(numbers) != batch:
        raise RuntimeError(
            f"Expected `len(lengths)` to be equal to batch_size, but got {len(numbers)} "
            f"(batch_size={batch})"
        )
    if not numbers or numbers[-1] <= 0 or min(numbers) <= 0:
        raise RuntimeError(
            "Length of all samples has to be greater than 0, but found an element in 'lengths' "
            "that is <= 0"
        )
    if any(a < b for a, b in pairwise(numbers)):
        raise RuntimeError(
            "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. "
            "You can pass `enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to "
            "sidestep this requirement"
        )
    if numbers[0] > steps:
        raise RuntimeError(
            f"Expected all lengths to be at most {steps}, the padded length of the "
            f"input of shape {list(input.shape)}, but got {numbers[0]}"
        )
    # The place of each element in the padded tensor, in the order of the packed one.
    present = tangrad.arange(numbers[0]).unsqueeze(1) < lengths
    time, row = present.nonzero().unbind(1)
    if order is not None:
        row = order[row]
        order = order.to(input.device)
    places = row * steps + time if batch_first else time * batch + row
    flat = input.reshape((steps * batch, *tuple(input.shape)[2:]))
    return PackedSequence(
        flat.index_select(0, places.to(input.device)), present.sum(1), order, None
    )


def pad_packed_sequence(
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Any, Any]:
    """Undo `pack_padded_sequence`.

    Args:
        sequence: the packed sequences.
        batch_first: give (B, T, *) in place of (T, B, *).
        padding_value: what is put after the end of each sequence.
        total_length: T; the longest length by default.

    Returns:
        The padded sequences in their original order, and their lengths, int64 on the host.

    Raises:
        ValueError: `total_length` is less than the longest.
    """
    sizes = sequence.batch_sizes.tolist()
    longest = len(sizes)
    if total_length is not None and total_length < longest:
        raise ValueError(
            "Expected total_length to be at least the length of the longest sequence in input, "
            f"but got total_length={total_length} and max sequence length being {longest}"
        )
    steps = total_length or longest
    data, batch = sequence.data, sizes[0]
    # The place of each element in the padded tensor, in the order of the packed one.
    present = tangrad.arange(batch) < sequence.batch_sizes.unsqueeze(1)
    index = present.reshape((-1,)).nonzero().squeeze(1).to(data.device)
    shape = (steps * batch, *data.shape[1:])
    padded = data.new_full(shape, padding_value).index_copy(0, index, data)
    padded = padded.reshape((steps, batch, *data.shape[1:]))
    lengths = present.sum(0)
    if batch_first:
        padded = padded.transpose(0, 1)
    if sequence.unsorted_indices is not None:
        padded = padded.index_select(0 if batch_first else 1, sequence.unsorted_indices)
        lengths = lengths[sequence.unsorted_indices.cpu()]
    return padded, lengths


def pad_sequence(
    sequences: Any,
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Any:
    """Stack sequences of different lengths, padded to the longest.

    Args:
        sequences: tensors of shape (L, *).
        batch_first: give (B, T, *) in place of (T, B, *).
        padding_value: what the padding consists of.
        padding_side: "right": after the end; "left": before the beginning.

    Raises:
        RuntimeError: `sequences` is neither a tensor nor iterable, shapes differ, or
            `padding_side` is unknown.
    """
    if not isinstance(sequences, (Iterable, tangrad.Tensor)):
        raise RuntimeError(
            "pad_sequence: Expected iterable for input sequences, but got arg of type: "
            f"{type(sequences)}"
        )
    sequences = sequences.unbind(0) if isinstance(sequences, tangrad.Tensor) else list(sequences)
    if padding_side not in ("left", "right"):
        raise RuntimeError(f"padding_side must be 'left' or 'right', got {padding_side!r}")
    if not sequences:
        raise RuntimeError("received an empty list of sequences")
    first = sequences[0]
    for sequence in sequences:
        if sequence.shape[1:] != first.shape[1:]:
            raise RuntimeError(
                "pad_sequence: all sequences must agree in their dimensions after the first, "
                f"got shapes {list(first.shape)} and {list(sequence.shape)}"
            )
    steps = max(sequence.shape[0] for sequence in sequences)
    rest = tuple(first.shape[1:])
    most = steps - min(sequence.shape[0] for sequence in sequences)
    filler = first.new_full((most, *rest), padding_value)
    parts: list[Any] = []
    for sequence in sequences:
        missing = steps - sequence.shape[0]
        filled = (sequence, filler[:missing]) if missing else (sequence,)
        parts += filled if padding_side == "right" else filled[::-1]
    joined = tangrad.cat(parts).reshape((len(sequences), steps, *rest))
    return joined if batch_first else joined.transpose(0, 1).contiguous()


def unpad_sequence(padded_sequences: Any, lengths: Any, batch_first: bool = False) -> list[Any]:
    """Return the sequences of a padded tensor without their padding.

    Args:
        padded_sequences: of shape (T, B, *), or (B, T, *) with `batch_first`.
        lengths: of each sequence.
        batch_first: see above.
    """
    rows = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    pairs = zip(rows, lengths, strict=True)
    return [row[: int(length)].clone().contiguous() for row, length in pairs]


def pack_sequence(sequences: list[Any], enforce_sorted: bool = True) -> PackedSequence:
    """Pack sequences of different lengths.

    Args:
        sequences: tensors of shape (L, *).
        enforce_sorted: refuse sequences that are not sorted by length; otherwise sort them.
    """
    lengths = tangrad.as_tensor([sequence.size(0) for sequence in sequences])
    padded = pad_sequence(sequences, batch_first=True)
    return pack_padded_sequence(padded, lengths, True, enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Any]:
    """Return the sequences of a packed one, in their original order."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
