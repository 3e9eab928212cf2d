"""What the tests of every primitive share: operands inside the domain, names in PyTorch."""

from __future__ import annotations

import numpy as np

from tangrad.expr import parse
from tangrad.expr.dtypes import KINDS, compute_type
from tangrad.expr.expression import Expression
from tangrad.expr.primitives import PRIMITIVES

COMPUTE_TYPES = [dtype for dtype in KINDS if compute_type(dtype) == dtype]
# cast and select_complex need a dtype; philox_uniform has tests of its own.
SCALAR_PRIMITIVES = [
    name for name in PRIMITIVES if name not in ("cast", "select_complex", "philox_uniform")
]

# Where the function is real, finite and smooth, for each operand.
DOMAIN: dict[str, tuple[tuple[float, float], ...]] = {
    "pow": ((0.3, 3.0), (-2.0, 2.0)),
    "log": ((0.1, 9.0),), "log2": ((0.1, 9.0),), "log10": ((0.1, 9.0),), "log1p": ((-0.9, 9.0),),
    "sqrt": ((0.1, 9.0),), "rsqrt": ((0.1, 9.0),), "cbrt": ((0.1, 9.0),),
    "xlogy": ((0.1, 3.0), (0.1, 3.0)),
    "asin": ((-0.9, 0.9),), "acos": ((-0.9, 0.9),), "atanh": ((-0.9, 0.9),), "acosh": ((1.1, 9.0),),
    "erfinv": ((-0.9, 0.9),), "lgamma": ((0.2, 9.0),), "digamma": ((0.2, 9.0),),
    "trigamma": ((0.2, 9.0),), "zeta": ((1.5, 6.0), (0.5, 9.0)),
    "truediv": ((-3.0, 3.0), (0.5, 3.0)), "reciprocal": ((0.5, 3.0),),
    "tan": ((-1.2, 1.2),), "floor_divide": ((-9.0, 9.0), (0.5, 3.0)),
    "remainder": ((-9.0, 9.0), (0.5, 3.0)), "fmod": ((-9.0, 9.0), (0.5, 3.0)),
    "trunc_divide": ((-9.0, 9.0), (0.5, 3.0)), "frexp_mantissa": ((0.6, 0.9),),
    "ndtri": ((0.05, 0.95),), "igamma": ((0.3, 9.0), (0.3, 9.0)),
    "igammac": ((0.3, 9.0), (0.3, 9.0)), "gamma_density": ((0.3, 15.0), (0.3, 9.0)),
    # Away from zeros of what oscillates, where the error is absolute.
    "bessel_j0": ((-2.0, 2.0),), "bessel_y0": ((0.1, 0.8),), "bessel_y1": ((0.1, 1.9),),
    "airy_ai": ((-2.0, 9.0),), "modified_bessel_k0": ((0.1, 9.0),),
    "modified_bessel_k1": ((0.1, 9.0),), "scaled_modified_bessel_k0": ((0.1, 9.0),),
    "scaled_modified_bessel_k1": ((0.1, 9.0),),
}  # fmt: skip


def expression(name: str) -> Expression:
    """Return the primitive applied to inputs a, b, c."""
    names = ("a", "b", "c")[: PRIMITIVES[name].arity]
    return parse(f"{name}({', '.join(names)})", names)


def operand_types(name: str, dtype: str) -> dict[str, str]:
    """Return the inputs' types when the primitive works on ``dtype``."""
    roles = PRIMITIVES[name].operands
    types = {"t": dtype, "n": dtype, "c": "bool", "s": "int64"}
    return {letter: types[role] for letter, role in zip("abc", roles, strict=False)}


def accepts(name: str, dtype: str) -> bool:
    """Tell whether the primitive has a meaning for ``dtype``."""
    primitive = PRIMITIVES[name]
    if "t" not in primitive.operands and "n" not in primitive.operands:
        return dtype == "bool"
    return KINDS[dtype] in primitive.kinds


def smooth_operands(name: str, count: int, seed: int = 0) -> list[np.ndarray]:
    """Return float64 operands inside the domain, away from kinks; integers for orders."""
    rng = np.random.default_rng(seed)
    primitive = PRIMITIVES[name]
    domain = DOMAIN.get(name, ((-3.0, 3.0),) * primitive.arity)
    operands = [rng.uniform(low, high, count) for low, high in domain]
    if name == "polygamma":
        return [rng.integers(0, 4, count).astype(float), rng.uniform(0.5, 9.0, count)]
    if "_polynomial_" in name:
        return [rng.uniform(-3.0, -1.1, count), rng.integers(0, 12, count).astype(float)]
    if primitive.operands == "ctt":
        operands[0] = rng.integers(0, 2, count).astype(bool)
    return operands


def operands(name: str, dtype: str, count: int = 64, seed: int = 0) -> list[np.ndarray]:
    """Return operands of the types the primitive takes, extreme values among them."""
    rng = np.random.default_rng(seed)
    found = []
    for k, own in enumerate(operand_types(name, dtype).values()):
        kind = KINDS[own]
        if kind == "b":
            array = rng.integers(0, 2, count).astype(bool)
        elif kind in "ui":
            array = _integers(rng, own, count)
        else:
            array = rng.uniform(-4, 4, count).astype(own)
            if kind == "c":
                array = (array + 1j * rng.uniform(-4, 4, count)).astype(own)
            elif k == 0:
                array[:5] = [0.0, -0.0, np.inf, -np.inf, np.nan]
        found.append(array)
    if PRIMITIVES[name].divides and KINDS[dtype] in "ui":
        found[1][found[1] == 0] = 3
    return found


def _integers(rng: np.random.Generator, dtype: str, count: int) -> np.ndarray:
    limits = np.iinfo(dtype)
    array = rng.integers(limits.min, limits.max, count, dtype=dtype, endpoint=True)
    array[::2] = rng.integers(0, 12, len(array[::2]))
    array[:3] = [limits.min, limits.max, 1]
    if limits.min < 0:
        array[3:6] = [-1, -7, -2]
    return array
