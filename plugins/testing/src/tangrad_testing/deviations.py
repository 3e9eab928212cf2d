"""Where tangrad departs from PyTorch on purpose, on every device: test names and reasons."""

from __future__ import annotations


def _results(op: str, dtypes: str) -> list[str]:
    """Return the patterns of the tests of an op's results; fnmatch escapes a bracket as [[]."""
    return [f"test_result_is_that_of_torch[[]{op}-{dtype}-*" for dtype in dtypes.split()]


def _derivatives(op: str, dtype: str, bodies: str) -> list[str]:
    """Return the patterns of the tests of an op's derivatives: words of "vjp second_order jvp"."""
    return [f"test_{body}_is_that_of_torch[[]{op}-{dtype}-*" for body in bodies.split()]


DEVIATIONS: dict[str, str] = {
    pattern: reason
    for reason, patterns in {
        "the op is for floating-point numbers: nn.functional.hardtanh clamps integers": _results(
            "hardtanh", "int8 int16 int32 int64"
        ),
        "PyTorch rounds 1/6 to float32 in float64, too": _derivatives(
            "hardsigmoid", "float64", "vjp jvp"
        ),
        "PyTorch's second derivative is NaN at zero or outside the bounds, where it is zero": [
            pattern
            for op, dtypes in (
                ("angle", "complex128"),
                ("copysign", "float64"),
                ("logit_clamped", "float64"),
                ("norm_euclidean", "*"),
            )
            for pattern in _derivatives(op, dtypes, "second_order")
        ],
        "at the kink, tangrad takes the second derivative from the left, PyTorch from the right": [
            pattern
            for op in ("elu", "celu", "selu")
            for pattern in _derivatives(op, "float64", "second_order")
        ],
        "PyTorch's tangent beside NaN is the other operand's": [
            *_derivatives("maximum", "float64", "jvp"),
            *_derivatives("minimum", "float64", "jvp"),
        ],
        "PyTorch's tangent of no elements is NaN": _derivatives("logsumexp", "*", "jvp"),
        "PyTorch's tangent underflows": _derivatives("logcumsumexp", "*", "jvp"),
        "the median of no elements is NaN, and so is its tangent": [
            *_derivatives("median_all", "float64", "jvp"),
            *_derivatives("nanmedian_all", "float64", "jvp"),
        ],
        "PyTorch approximates them to 4 digits; core/tests/distributions compares with mpmath": [
            *_results("_standard_gamma_grad", "float16 float32 float64"),
            *_results("_dirichlet_grad", "float32 float64"),
        ],
        "PyTorch's tangent of a complex silu is not the derivative": _derivatives(
            "silu", "complex128", "jvp"
        ),
        "PyTorch's tangent leaves out the class weights": [
            pattern
            for op in ("nll_loss", "nll_loss_elements", "cross_entropy")
            for pattern in _derivatives(op, "float64", "jvp")
        ],
        "statistics and weights beside the result carry gradients, too": [
            *_derivatives("native_layer_norm", "float64", "vjp second_order jvp"),
            *_derivatives("nll_loss_elements", "float64", "vjp second_order"),
            *_derivatives("cross_entropy_elements", "float64", "vjp second_order"),
        ],
        "PyTorch has no tangent of products in places": [
            *_derivatives("scatter_multiply", "float64", "jvp"),
            *_derivatives("scatter_multiply", "complex128", "jvp"),
            *_derivatives("scatter_reduce", "float64", "jvp"),
            *_derivatives("scatter_reduce", "complex128", "jvp"),
        ],
        "PyTorch's gradient of self is what was overwritten instead of what was kept": [
            *_derivatives("as_strided_scatter", "float64", "vjp second_order"),
            *_derivatives("as_strided_scatter", "complex128", "vjp second_order"),
        ],
        "bools are scaled as integers": [
            "test_random_op_repeats_with_its_seed_on_every_device[[]dropout-bool-*",
        ],
        "the stride of a batch at the end is not the one that a loop's copies have": [
            f"test_vmap_is_a_loop[[]{op}-*-first at the end[]]"
            for op in ("as_strided", "as_strided_copy", "as_strided_scatter", "slice_inverse")
        ],
        "what depends on data has no batch": [
            *(f"test_vmap_is_a_loop[[]{op}-*" for op in ("allclose", "equal", "where_nonzero")),
            "test_vmap_is_a_loop[[]index_put-*-all[]]",
            "test_vmap_is_a_loop[[]index_put-*-others[]]",
            "test_vmap_is_a_loop[[]segment_reduce-float64-*-all[]]",
            "test_vmap_is_a_loop[[]segment_reduce-float64-*-others[]]",
        ],
    }.items()
    for pattern in patterns
}
