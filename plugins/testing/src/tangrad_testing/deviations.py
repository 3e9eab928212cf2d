"""Where tangrad departs from PyTorch on purpose, on every device: test name patterns and reasons."""

from __future__ import annotations


def _results(op: str, dtypes: str) -> list[str]:
    """Return the patterns of the tests of an op's results for dtypes (fnmatch escapes a bracket as [[])."""
    return [f"test_result_is_that_of_torch[[]{op}-{dtype}-*" for dtype in dtypes.split()]


def _gradients(op: str, dtype: str, *, first: bool = True) -> list[str]:
    """Return the patterns of the tests of an op's gradients: of first and second order, or the second alone."""
    bodies = ("vjp", "second_order") if first else ("second_order",)
    return [f"test_{body}_is_that_of_torch[[]{op}-{dtype}-*" for body in bodies]


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
            for pattern in (*_results(op, "complex64 complex128"), *_gradients(op, "complex128"))
        ],
        "PyTorch rounds 1/6 to float32 in float64, too": _gradients("hardsigmoid", "float64"),
        "PyTorch's step function says that it has a derivative, and has none": _gradients("heaviside", "float64"),
        "PyTorch's second derivative is NaN at zero or outside the bounds, where it is zero": [
            pattern for op, dtypes in (("angle", "complex128"), ("copysign", "float64"), ("logit_clamped", "float64"),
                                       ("norm_euclidean", "*"))
            for pattern in _gradients(op, dtypes, first=False)
        ],
        "at the kink, tangrad takes the second derivative from the left, PyTorch from the right": [
            pattern for op in ("elu", "celu", "selu") for pattern in _gradients(op, "float64", first=False)
        ],
    }.items()
    for pattern in patterns
}
