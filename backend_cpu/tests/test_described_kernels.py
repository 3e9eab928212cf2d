"""What `python -m tangrad op NAME` tells of the kernels that this package makes when asked."""

from __future__ import annotations

import re

from tangrad.ops.definition.describe import describe


def kernels_on_cpu(name: str) -> list[str]:
    """Return the dtypes that the text names for device `cpu`."""
    found = re.search(r"^    cpu +(.*?)(?:  \(.*)?$", describe(name), re.MULTILINE)
    return found.group(1).split() if found else []


def test_kernels_of_a_pointwise_op_are_told_for_the_dtypes_that_it_accepts() -> None:
    assert set(kernels_on_cpu("softplus")) == {"float16", "bfloat16", "float32", "float64"}
    assert "complex64" in kernels_on_cpu("add")
    assert "qint8" not in kernels_on_cpu("add")
