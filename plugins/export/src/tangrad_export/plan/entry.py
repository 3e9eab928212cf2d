"""What a function of the file does: its parameters, and its steps with their places and numbers."""

from __future__ import annotations

from typing import Any, NamedTuple

from tangrad_export.errors import ExportError
from tangrad_export.plan.arena import Arena
from tangrad_export.steps.base import Number, Step, itemsize
from tangrad_export.steps.copies import Upload

__all__ = ["Entry", "Parameter", "Size", "Variant", "make_constants", "refuse_written_inputs"]


class Size(NamedTuple):
    """A size that varies.

    Attributes:
        name: of the parameter.
        min, max: its bounds.
    """

    name: str
    min: int
    max: int


class Parameter(NamedTuple):
    """An input or an output.

    Attributes:
        name: of the parameter.
        dtype: name of the dtype.
        shape: sizes, as C where they vary.
        example: the tensor of the example, or what eager gives for it.
        note: what its comment says besides.
    """

    name: str
    dtype: str
    shape: tuple[Number, ...]
    example: Any = None
    note: str = ""


class Variant:
    """The steps for sizes that a condition holds for.

    Attributes:
        condition: C, or "" for all sizes.
        steps: in their order, whose `refs` are of the largest sizes.
        numbers: for each step its numbers.
        offsets: for each step the offsets of its places, in bytes.
        arena: where the buffers lie.
    """

    def __init__(
        self,
        condition: str,
        steps: list[Step],
        numbers: list[list[Number]],
        offsets: list[list[Number]],
        arena: Arena,
    ) -> None:
        self.condition, self.steps = condition, steps
        self.numbers, self.offsets, self.arena = numbers, offsets, arena


class Entry:
    """A function of the file.

    Attributes:
        kind: "run" or "train_step".
        sizes: those that vary, in order.
        inputs, outputs: its parameters.
        variants: what it does.
        reports: whether a step may find an index out of bounds.
        changing: what changes from call to call: "drawn", "taken".
        draws: how many counters of the random stream a call takes.
        example_sizes: those of the example.
        example_loss, loss_dtype: of a step of training: the loss of the example, its dtype.
    """

    changing: list[str]
    draws: Number = 0
    example_sizes: list[int]
    example_loss: float = 0.0
    loss_dtype: str = "float32"

    def __init__(
        self,
        kind: str,
        sizes: list[Size],
        inputs: list[Parameter],
        outputs: list[Parameter],
        variants: list[Variant],
        reports: bool,
    ) -> None:
        self.kind, self.sizes = kind, sizes
        self.inputs, self.outputs = inputs, outputs
        self.variants, self.reports = variants, reports

    @property
    def steps(self) -> list[Step]:
        """The steps of all variants."""
        return [step for variant in self.variants for step in variant.steps]


def make_constants(steps: list[Step]) -> list[Step]:
    """Make constants of what the exporter knows and nothing else writes; return the other steps."""
    writers: dict[Any, list[int]] = {}
    first: dict[Any, int] = {}
    dtypes: dict[Any, set[str]] = {}
    for k, step in enumerate(steps):
        for buffer in step.written_buffers():
            writers.setdefault(buffer, []).append(k)
        for buffer in step.buffers():
            first.setdefault(buffer, k)
        for at, ref in enumerate(step.refs):
            if ref is not None and at not in step.writes and ref.dtype != "uint8":
                dtypes.setdefault(ref.buffer, set()).add(ref.dtype)
    rest = []
    for k, step in enumerate(steps):
        if not isinstance(step, Upload):
            rest.append(step)
            continue
        ref = step.refs[0]
        assert ref is not None
        buffer, kinds = ref.buffer, dtypes.get(ref.buffer, {"uint8"})
        whole = ref.offset == 0 and len(step.content) == buffer.nbytes
        if buffer.kind != "arena" or writers[buffer] != [k] or first[buffer] != k or not whole:
            rest.append(step)
            continue
        buffer.kind, buffer.value = "constant", step.content
        buffer.dtype = max(kinds, key=itemsize)
    return rest


def refuse_written_inputs(entry: Entry) -> None:
    """Raise for a program that writes into what the caller gives it.

    Raises:
        ExportError: a step writes an input.
    """
    for step in entry.steps:
        for buffer in step.written_buffers():
            if buffer.kind == "input":
                raise ExportError(
                    f"the program writes into its input {buffer.name!r}, which is const in C: "
                    "clone it first",
                    op=step.title,
                    dtype=buffer.dtype,
                    module=step.origin.module or None,
                    where=step.origin.where or None,
                )
