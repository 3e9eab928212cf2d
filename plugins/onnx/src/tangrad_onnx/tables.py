"""The tables of docs/onnx.md: operators that are read, and how ops are written."""

from __future__ import annotations

from collections.abc import Iterable

from onnx import defs

from tangrad.plugin import all_ops
from tangrad_onnx.errors import UnsupportedOperatorError
from tangrad_onnx.operators import OPERATORS
from tangrad_onnx.reading.versions import changes
from tangrad_onnx.writing.decompositions import DECOMPOSED
from tangrad_onnx.writing.forms import FORMS, WHOLE
from tangrad_onnx.writing.pointwise import FORMS_OF_STEPS
from tangrad_onnx.writing.special import SPECIAL

__all__ = ["operators_in", "ops_out"]


def operators_in() -> list[str]:
    """Return the lines of a table of ai.onnx's operators."""
    newest = {schema.name: schema for schema in defs.get_all_schemas() if not schema.domain}
    lines = ["| operator | newest version | older meanings |", "|---|---|---|"]
    for name in sorted(newest):
        schema = newest[name]
        by = "" if name in OPERATORS or name == "Constant" else " (by its function)"
        if by and not schema.has_function:
            by = " (not supported)"
        told = ", ".join(f"before {change.before}" for change in changes(name, 6)) or "none"
        lines.append(f"| {name}{by} | {schema.since_version} | {told} |")
    return lines


def ops_out() -> list[str]:
    """Return the lines of a table of tangrad's ops, by how they are written."""
    kinds: dict[str, list[str]] = {
        "from its expression": [],
        "by a form": [],
        "by a form, or by its parts": [],
        "by its parts": [],
        "has no form": [],
    }
    for name, op in sorted(all_ops().items()):
        if name.endswith("_") or "backward" in name or not _is_required(op.definition.module):
            continue
        kinds[_kind(name, op)].append(f"`{name}`")
    lines = ["| how | ops |", "|---|---|"]
    return lines + [f"| {kind} | {_joined(names)} |" for kind, names in kinds.items()]


def _is_required(module: str) -> bool:
    """Return whether an op is of a package that this one requires: other packages add theirs."""
    return module.startswith("tangrad.ops.") and not module.startswith("tangrad.ops.optimizer")


def _kind(name: str, op: object) -> str:
    if name in FORMS:
        return "by a form, or by its parts" if name in WHOLE else "by a form"
    if name in DECOMPOSED:
        return "by its parts"
    kind = op.kind  # type: ignore[attr-defined]
    if kind == "pointwise":
        return "from its expression" if _is_expressible(op) else "has no form"
    return "by its parts" if kind in {"composite", "overload"} else "has no form"


def _is_expressible(op: object) -> bool:
    from tangrad.plugin.render import ExpressionTypeError, PointwiseOp

    described = PointwiseOp.of(op)
    dtypes = [dtype for dtype in ("float32", "int64") if dtype in described.dtypes]
    try:
        steps = [step.op for step in described.typed(dtypes[0]).program.instructions]
    except (ExpressionTypeError, UnsupportedOperatorError, IndexError):
        return False
    known = {"load", "param", "literal", "convert", "cast", *FORMS_OF_STEPS, *SPECIAL}
    return all(step in known for step in steps)


def _joined(names: Iterable[str]) -> str:
    return ", ".join(names)


# Ops that draw random numbers: a file draws others.
DRAWS = frozenset(
    "alpha_dropout bernoulli bernoulli_p bernoulli_tensor dropout dropout1d dropout2d dropout3d "
    "feature_alpha_dropout fractional_max_pool2d fractional_max_pool2d_with_indices "
    "fractional_max_pool3d fractional_max_pool3d_with_indices gumbel_softmax multinomial "
    "native_dropout normal rand rand_like randint randint_below randint_between randint_like "
    "randn randn_like randperm rrelu _permutation_of lobpcg pca_lowrank svd_lowrank".split()
)


_DISTRIBUTIONS = frozenset(
    "_binomial _dirichlet_grad _sample_dirichlet _standard_gamma _standard_gamma_grad binomial "
    "dropout_mask_scale poisson poisson_tensor".split()
)
_SPECTRA = frozenset(
    "_linalg_lstsq _linalg_pinv linalg_cond linalg_eig linalg_eigh linalg_eigvals linalg_eigvalsh "
    "linalg_lstsq linalg_matrix_rank linalg_pinv linalg_svd linalg_svdvals pinverse svd".split()
)
_BY_VALUES = frozenset(
    "_distinct bag_numbers bincount embedding_bag histc histogram histogramdd unique "
    "unique_consecutive".split()
)


def reason_of(name: str, told: str) -> str:
    """Return why an op is not written.

    Args:
        name: of the op.
        told: what its export or its comparison said.
    """
    if name in _DISTRIBUTIONS:
        return "no operator draws from the distribution, or by a seed"
    if name in _SPECTRA:
        return "by eigenvalues or singular values, which no operator computes"
    if name in _BY_VALUES:
        return "sizes or ranges depend on values"
    if "complex" in told or "_fft" in told or "'_conj'" in told or "'_neg_view'" in told:
        return "complex numbers, which no operator takes"
    if "view_dtype" in told or "nextafter" in told:
        return "by the bits of a number, which only the newest opset shows"
    return "has no form yet"
