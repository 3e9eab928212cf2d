"""Where tangrad departs from PyTorch on purpose, on every device: test name patterns and reasons."""

from __future__ import annotations


def _results(op: str, dtypes: str) -> list[str]:
    """Return the patterns of the tests of an op's results for dtypes (fnmatch escapes a bracket as [[])."""
    return [f"test_result_is_that_of_torch[[]{op}-{dtype}-*" for dtype in dtypes.split()]


def _gradients(op: str, *, first: bool = True) -> list[str]:
    """Return the patterns of the tests of an op's derivatives: all of them, or the second ones."""
    bodies = ("vjp", "jvp", "second_order") if first else ("second_order",)
    return [f"test_{body}_is_that_of_torch[[]{op}-*" for body in bodies]


DEVIATIONS: dict[str, str] = {
    pattern: reason
    for reason, patterns in {
        "a truth value is a bool: PyTorch gives uint8 for uint8": [
            *_results("any", "uint8"), *_results("all", "uint8"),
        ],
        "the square of a bool is refused: PyTorch gives int64": _results("square", "bool"),
        "hardtanh is for floating-point numbers: PyTorch truncates its bounds for integers": _results(
            "hardtanh", "int8 int16 int32 int64"),
        "no sums of exponentials of complex numbers yet": [
            pattern for op in ("logaddexp", "logsumexp", "logcumsumexp")
            for pattern in _results(op, "complex64 complex128")
        ],
    }.items()
    for pattern in patterns
}
