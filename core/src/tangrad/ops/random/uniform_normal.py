"""Define the ops that fill tensors with random numbers.

All numbers are functions of (seed, offset, position), see `tangrad.random.philox`: the core
draws seed and offset from a generator once per call, and every device computes the same bits.
"""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import tangrad
from tangrad import _C
from tangrad.ops.definition.define import composite, op, overload
from tangrad.ops.definition.signature import Generator, Tensor, WrittenTensor
from tangrad.ops.random import sequential as random_sequential
from tangrad.ops.views.geometry import dtype_name, numel_of
from tangrad.random import philox


def _kind(self: Any) -> str:
    """Name the width of the numbers drawn for a dtype: all but float64 draw float32."""
    return "float64" if dtype_name(self.dtype) in ("float64", "complex128") else "float32"


def words_of(kind: str) -> Any:
    """Return the function from a tensor to how many words its elements take."""
    by_dtype: dict[Any, int] = {}

    def words(self: Any) -> int:
        each = by_dtype.get(self.dtype)
        if each is None:
            parts = 2 if self.dtype.is_complex else 1
            each = by_dtype[self.dtype] = philox.words_for(f"{kind} {_kind(self)}", parts)
        return each * int(self.numel())

    return words


def _drawn(np: Any, self: Any, values: Any) -> Any:
    """Shape flat numbers like a tensor; a complex one takes pairs."""
    if np.iscomplexobj(self):
        values = values[0::2] + 1j * values[1::2]
    return values.reshape(self.shape).astype(self.dtype)


def _scalars(self: Any) -> int:
    return int(self.size) * (2 if self.dtype.kind == "c" else 1)


def width_of(self: Any) -> str:
    return "float64" if str(self.dtype) in ("float64", "complex128") else "float32"


def require_floating(name: str, self: Any) -> None:
    if not (self.dtype.is_floating_point or self.dtype.is_complex):
        raise NotImplementedError(f'"{name}" not implemented for {self.dtype}')


def refuse_overlap(name: str, self: Any) -> None:
    """Refuse to draw into an expanded tensor: the last number for an element would stay.

    Raises:
        RuntimeError: several elements lie in one place.
    """
    if any(n > 1 and step == 0 for n, step in zip(self.shape, self.stride(), strict=True)):
        raise RuntimeError(
            "unsupported operation: more than one element of the written-to tensor refers to a "
            f"single memory location. Please clone() the tensor before performing the operation. "
            f"({name} into shape {list(self.shape)} with strides {list(self.stride())})"
        )


@cache
def _greatest(dtype: Any) -> float:
    greatest: float = tangrad.finfo(dtype).max
    return greatest


def _check_uniform(self: Any, from_: float, to: float) -> None:
    require_floating("uniform_", self)
    refuse_overlap("uniform_", self)
    if from_ > to:
        raise RuntimeError(
            f"uniform_ expects to return a [from, to) range, but found from={from_} > to={to}"
        )
    greatest = _greatest(self.dtype)
    if to - from_ > greatest or from_ < -greatest or to > greatest:
        raise RuntimeError(
            f"uniform_ expects to-from, from and to not to exceed {greatest}, the greatest "
            f"{self.dtype}, got from={from_} and to={to}"
        )


def _uniform_reference(
    np: Any, self: Any, self_meta: Any, from_: float, to: float, seed: int, offset: int
) -> Any:
    name = dtype_name(self_meta.dtype)
    width = name if name in ("float16", "bfloat16") else width_of(self)
    values = philox.uniform(seed, offset, _scalars(self), width).astype(width_of(self), copy=False)
    scaled = values * values.dtype.type(to - from_) + values.dtype.type(from_)
    return _drawn(np, self, scaled)


uniform_ = op(
    "uniform_(Tensor! self, float from_=0.0, float to=1.0, *, generator? generator=None) -> Tensor",
    dtypes="floating complex",
    check=_check_uniform,
    random=True,
    sequential=random_sequential.uniform,
    words=words_of("uniform"),
    reference=_uniform_reference,
    vjp={"self": lambda g: g.new_zeros(g.shape)},
    jvp=lambda self: tangrad.zeros_like(self),
    batch="pointwise",
    function=False,
    samples=lambda s: [s(s.tensor(2, 3)), s(s.tensor(4), -2.0, 3.0), s(s.tensor(0))],
    errors=lambda s: [
        (s(s.tensor(2), 2.0, 1.0), RuntimeError, "range"),
        (s(s.tensor(2, dtype="float32"), -3e38, 3e38), RuntimeError, "to"),
    ],
    doc="Overwrite a tensor by numbers uniform on [from_, to).",
)


def _check_normal(self: Any, std: float) -> None:
    refuse_overlap("normal_", self)
    if self.numel():
        require_floating("normal_", self)
    if std < 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std}")


def _normal_reference(np: Any, self: Any, mean: float, std: float, seed: int, offset: int) -> Any:
    values = philox.normal(seed, offset, _scalars(self), width_of(self))
    if np.iscomplexobj(self):
        std = std * 0.5**0.5
    return _drawn(np, self, (values * std + mean).astype(values.dtype))


normal_ = op(
    "normal_(Tensor! self, float mean=0.0, float std=1.0, *, generator? generator=None) -> Tensor",
    dtypes="floating complex",
    check=_check_normal,
    random=True,
    sequential=random_sequential.normal,
    words=words_of("normal"),
    reference=_normal_reference,
    vjp={"self": lambda g: g.new_zeros(g.shape)},
    jvp=lambda self: tangrad.zeros_like(self),
    batch="pointwise",
    function=False,
    samples=lambda s: [s(s.tensor(2, 3)), s(s.tensor(4), -2.0, 3.0), s(s.tensor(0))],
    errors=lambda s: [(s(s.tensor(2), 0.0, -1.0), RuntimeError, "std >= 0")],
    doc="Overwrite a tensor by normally distributed numbers.",
)


def _check_exponential(self: Any, lambd: float) -> None:
    require_floating("exponential_", self)
    refuse_overlap("exponential_", self)
    if lambd <= 0:
        raise RuntimeError(f"exponential_ expects lambda > 0.0, but found lambda={lambd}")


exponential_ = op(
    "exponential_(Tensor! self, float lambd=1.0, *, generator? generator=None) -> Tensor",
    dtypes="floating",
    check=_check_exponential,
    random=True,
    sequential=random_sequential.exponential,
    words=words_of("exponential"),
    reference=lambda np, self, lambd, seed, offset: _drawn(
        np, self, philox.exponential(seed, offset, _scalars(self), lambd, width_of(self))
    ),
    vjp={"self": lambda g: g.new_zeros(g.shape)},
    jvp=lambda self: tangrad.zeros_like(self),
    batch="pointwise",
    function=False,
    samples=lambda s: [s(s.tensor(2, 3)), s(s.tensor(4), 2.0)],
    errors=lambda s: [(s(s.tensor(2), 0.0), RuntimeError, "lambda > 0")],
    doc="Overwrite a tensor by exponentially distributed numbers of rate lambd.",
)

EXACT_BITS = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}
_INTEGER_ENDS = {
    "bool": 2,
    "uint8": 2**8,
    "int8": 2**7,
    "int16": 2**15,
    "int32": 2**31,
    "int64": 2**63,
}


# PyTorch draws these from a start on, but not without one.
_UNSIGNED_ENDS = {"uint16": 2**16, "uint32": 2**32}


def _random_end(self: Any, to: int | None) -> int:
    if to is not None:
        return to
    name = dtype_name(self.dtype)
    if name in EXACT_BITS:
        return int(2 ** EXACT_BITS[name] + 1)
    if name not in _INTEGER_ENDS:
        raise RuntimeError(f'"random_" not implemented for {self.dtype}')
    # An end is an int64 itself: the greatest of them is not drawn.
    return min(_INTEGER_ENDS[name], 2**63 - 1)


# Beyond these a draw cannot be stored; wider floating-point numbers hold any int64.
BOUNDS = {
    **{k: (0 if k in ("bool", "uint8") else -end, end - 1) for k, end in _INTEGER_ENDS.items()},
    "uint16": (0, 2**16 - 1),
    "uint32": (0, 2**32 - 1),
    "float16": (-65504, 65504),
}


def _check_random(self: Any, from_: int, to: int | None) -> None:
    refuse_overlap("random_", self)
    if self.dtype.is_complex:
        raise NotImplementedError(
            f'"random_" not implemented for {self.dtype}: integers are drawn; give a real dtype'
        )
    end = _random_end(self, to)
    if from_ >= end:
        raise RuntimeError(
            f"random_ expects 'from' to be less than 'to', but got from={from_} >= to={end}"
        )
    kind = dtype_name(self.dtype)
    least, greatest = BOUNDS.get(kind, (-(2**63), 2**63))
    exact = EXACT_BITS.get(kind, 64)
    for name, bound in (("from", from_), ("to - 1", end - 1)):
        if not least <= bound <= greatest:
            raise RuntimeError(f"random_: {name} is out of bounds for {self.dtype}: {bound}")
        if abs(bound) > 2**exact:
            text = f"random_: {name} is out of bounds [-(2^{exact}), 2^{exact}]: {bound}; numbers "
            _C.keep_no_plan()
            warnings.warn(f"{text}beyond are rounded by {self.dtype}", UserWarning, stacklevel=4)


random_between = op(
    "random_between_(Tensor! self, int from_, int to, *, generator? generator=None) -> Tensor",
    check=_check_random,
    random=True,
    sequential=random_sequential.random_between,
    words=lambda self: philox.words_for("randint", numel_of(self.shape)),
    reference=lambda np, self, from_, to, seed, offset: (
        philox.randint(seed, offset, int(self.size), from_, to)
        .reshape(self.shape)
        .astype(self.dtype)
    ),
    vjp={"self": lambda g: g.new_zeros(g.shape)},
    jvp=lambda self: tangrad.zeros_like(self),
    batch="pointwise",
    function=False,
    method=False,
    samples=lambda s: [s(s.tensor(2, 3), 0, 5), s(s.tensor(4), -1, 2)],
    oracle=lambda torch, x, low, high: x.random_(low, high),
    errors=lambda s: [
        (s(s.tensor(2), 2, 2), RuntimeError, "less than"),
        (s(s.tensor(2, dtype="uint8"), -1, 2), RuntimeError, "from is out of bounds"),
        (s(s.tensor(2, dtype="bool"), 0, 3), RuntimeError, "to - 1 is out of bounds"),
        (s(s.tensor(2, dtype="float16"), 0, 70000), RuntimeError, "to - 1 is out of bounds"),
    ],
    doc="Overwrite a tensor by integers uniform on [from_, to).",
)


@composite(
    random=True,
    function=False,
    method=False,
    samples=lambda s: [s(s.tensor(2, 3)), s(s.tensor(3, dtype="int64"))],
    oracle=lambda torch, x: x.random_(),
)
def random_full_(self: WrittenTensor, *, generator: Generator | None = None) -> Tensor:
    """Overwrite a tensor by integers from 0 to the greatest that the dtype represents exactly."""
    engine = random_sequential.engine_of(generator, self.device)
    end = _random_end(self, None)
    if engine is not None:
        return random_sequential.random_in_full(self, engine)
    return random_between(self, 0, end, generator=generator)


@composite(
    random=True,
    function=False,
    method=False,
    samples=lambda s: [s(s.tensor(2, 3), 5), s(s.tensor(2, 3), to=2)],
    oracle=lambda torch, x, to: x.random_(to),
)
def random_below_(self: WrittenTensor, to: int, *, generator: Generator | None = None) -> Tensor:
    """Overwrite a tensor by integers uniform on [0, to)."""
    return random_between(self, 0, to, generator=generator)


@composite(
    random=True,
    function=False,
    method=False,
    names={"from": "from_"},
    samples=lambda s: [s(s.tensor(4), 1, 3), s(s.tensor(4), 5, None), s(s.tensor(4), 0, to=None)],
    oracle=lambda torch, x, low, to: x.random_(low, to),
)
def random_from_(
    self: WrittenTensor, from_: int, to: int | None, *, generator: Generator | None = None
) -> Tensor:
    """Overwrite a tensor by integers uniform on [from_, to).

    Without an end they range up to the greatest that the dtype represents exactly.
    """
    if to is None:
        to = _UNSIGNED_ENDS.get(dtype_name(self.dtype))
    return random_between(self, from_, _random_end(self, to), generator=generator)


random_ = overload(
    "random_",
    "random_full_",
    "random_below_",
    "random_from_",
    function=False,
    samples=lambda s: [s(s.tensor(2, 3)), s(s.tensor(2, 3), 5), s(s.tensor(4), 1, 3)],
    doc="Overwrite a tensor by random integers; one argument alone is where they end.",
)
