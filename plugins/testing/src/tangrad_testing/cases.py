"""The matrix of op × dtype × device, and the part of it that a run takes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tangrad.plugin import Sample, Sampler, all_ops, find_op
from tangrad.plugin.render import DTYPES as EVERY_DTYPE

DEFAULT_FRACTION = 0.15


@dataclass(frozen=True)
class Case:
    """One cell of the matrix: an op, the dtype of its samples and the device it runs on."""

    op: str
    dtype: str
    device: str

    @property
    def id(self) -> str:
        """Name the cell in a test's name."""
        return f"{self.op}-{self.dtype}-{self.device}"

    @property
    def call(self) -> Any:
        """Return the op."""
        return find_op(self.op)

    @property
    def definition(self) -> Any:
        """Return what is true of the op."""
        return self.call.definition

    def samples(self) -> list[Sample]:
        """Make the op's own samples of the dtype."""
        return list(self.definition.samples(Sampler(self.dtype)))


def op_names() -> list[str]:
    """Return the defined ops that have samples: one name for each definition."""
    names = []
    for name, op in all_ops().items():
        d = op.definition
        if (
            name == d.name
            and d.samples is not None
            and any(d.samples(Sampler(t)) for t in ("float32", "int64"))
        ):
            names.append(name)
    return sorted(names)


# Modules of which every op draws numbers, those included that are given a seed as an argument.
DRAWING = (".random.uniform_normal", ".random.creation", ".random.bernoulli")


def is_random(case: Case) -> bool:
    """Tell whether an op draws random numbers."""
    d = case.definition
    return d.random or any(o.definition.random for o in d.members) or d.module.endswith(DRAWING)


def has_values(case: Case) -> bool:
    """Tell whether an op's values follow from its arguments."""
    return not is_random(case) and not case.op.startswith(("empty", "new_empty"))


def may_have_derivative(case: Case) -> bool:
    """Tell whether an op could be differentiated: its values follow and it writes nothing."""
    writes = any(p.written for p in case.definition.schema.params)
    return has_values(case) and not writes


def matrix(ops: Sequence[str], dtypes: Sequence[str], devices: Sequence[str]) -> Iterator[Case]:
    """Yield every cell."""
    for device in devices:
        for op in ops:
            for dtype in dtypes:
                yield Case(op, dtype, device)


def fraction() -> float:
    """Return the part of the matrix to run, from the environment."""
    if os.environ.get("TANGRAD_TESTS") == "full":
        return 1.0
    return float(os.environ.get("TANGRAD_TEST_FRACTION", DEFAULT_FRACTION))


def is_chosen(body: str, case: Case, part: float) -> bool:
    """Tell whether a cell is in the sample: a property of its names, not of the run."""
    digest = hashlib.blake2b(f"{body}/{case.id}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") < part * 2**32


DTYPES = {
    "all": EVERY_DTYPE,
    "derivatives": ("float64", "complex128"),
    "float64": ("float64",),
    "float32": ("float32",),
}
