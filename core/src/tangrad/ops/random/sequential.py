"""Random ops by a sequential engine: numbers are made on the host and copied.

Each function has an op's parameters; `generator` is the engine, of a package. A
tensor is filled in the order of its memory, as PyTorch's CPU fills it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import tangrad
from tangrad import _C
from tangrad.ops.views.geometry import dtype_name, numel_of
from tangrad.random.generator import Generator, get_default_generator

_FLOAT_DIGITS = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}
_FULL_RANGE = {"bool": 2, "uint8": 2**8, "int8": 2**7, "int16": 2**15, "int32": 2**31}


def _computed(self: Any) -> str:
    """Name the dtype that numbers for a tensor are made in."""
    return "float64" if dtype_name(self.dtype) in ("float64", "complex128") else "float32"


def _is_half(self: Any) -> bool:
    return dtype_name(self.dtype) in ("float16", "bfloat16")


def _memory_order(self: Any) -> list[int]:
    """List the dimensions, that with the longest steps first."""
    strides = self.stride()
    return sorted(range(self.ndim), key=lambda d: -strides[d])


def _fill(self: Any, values: Any) -> Any:
    """Write numbers, a flat array, in the order of a tensor's memory."""
    if self.device.type == "meta":
        return self
    if _is_half(self):
        values = values.astype("float32")
    order = _memory_order(self)
    drawn = tangrad.from_numpy(values).reshape(tuple(self.shape[d] for d in order))
    back = sorted(range(len(order)), key=order.__getitem__)
    return self.copy_(drawn.permute(back) if order else drawn)


def _count(self: Any) -> int:
    """Return how many numbers are drawn for a tensor: none where there is no memory for them."""
    return 0 if self.device.type == "meta" else numel_of(self.shape)


def _with_real_parts(self: Any, write: Any) -> Any:
    """Let a function write the parts of complex numbers, or a real tensor itself."""
    if self.is_complex():
        drawn = self.detach().clone()
        write(tangrad.view_as_real(drawn))
        return self.copy_(drawn)
    return write(self)


def uniform(self: Any, from_: float, to: float, generator: Any) -> Any:
    """Serve `uniform_`."""

    def write(x: Any) -> Any:
        _fill(x, generator.uniform_between(_count(x), from_, to, _computed(x)))
        # Rounding may reach the end, which is not to be reached.
        end = tangrad.full((), to, dtype=x.dtype, device=x.device)
        return x.masked_fill_(x == end, from_) if from_ < to else x

    return _with_real_parts(self, write)


def normal(self: Any, mean: float, std: float, generator: Any) -> Any:
    """Serve `normal_`; the parts of complex numbers have half of the variance each."""
    scale = std / math.sqrt(2.0) if self.is_complex() else std

    def write(x: Any) -> Any:
        drawn = generator.normal(
            _count(x), mean, scale, _computed(x), in_blocks=x.is_contiguous(), half=_is_half(x)
        )
        return _fill(x, drawn)

    return _with_real_parts(self, write)


def exponential(self: Any, lambd: float, generator: Any) -> Any:
    """Serve `exponential_`."""
    return _fill(self, generator.exponential(_count(self), lambd))


def _fill_in_levels(self: Any, draw: Callable[[int], Any]) -> Any:
    """Fill a tensor for a composite: `vmap` knows what it does with draws of `random_between_`."""
    source = Generator(self.device)
    source.sequential = SimpleNamespace(integers=lambda count, *bounds: draw(count))
    return _C.lookup_op("random_between_")(self, 0, 1, generator=source)


def cauchy(self: Any, median: float, sigma: float, generator: Any) -> Any:
    """Serve `cauchy_`."""
    return _fill_in_levels(self, lambda count: generator.cauchy(count, median, sigma))


def log_normal(self: Any, mean: float, std: float, generator: Any) -> Any:
    """Serve `log_normal_`."""
    return _fill_in_levels(self, lambda count: generator.log_normal(count, mean, std))


def geometric(self: Any, p: float, generator: Any) -> Any:
    """Serve `geometric_`."""
    return _fill_in_levels(self, lambda count: generator.geometric(count, p))


def slopes(self: Any, lower: float, upper: float, generator: Any) -> Any:
    """Serve `rrelu`: draw a slope for each element that is not positive, in that order.

    Returns:
        The slopes, in the dtype in which they are to be multiplied; ones elsewhere.
    """
    dtype = getattr(tangrad, _computed(self))
    low, high = tangrad.tensor([lower, upper], dtype=dtype).tolist()
    wanted = self.detach() <= 0
    drawn = generator.uniform(int(wanted.sum()), "float64") * (high - low) + low
    ones = tangrad.ones(tuple(self.shape), dtype=dtype, device=self.device)
    return ones.masked_scatter(wanted, tangrad.from_numpy(drawn).to(ones))


def random_between(self: Any, from_: int, to: int, generator: Any) -> Any:
    """Serve `random_between_`."""
    return _fill(self, generator.integers(_count(self), from_, to))


def random_in_full(self: Any, generator: Any) -> Any:
    """Serve `random_` without bounds: whatever the dtype represents exactly, from zero on."""
    name = dtype_name(self.dtype)
    wide = name in ("int64", "float64")
    digits = _FLOAT_DIGITS.get(name)
    size = 2**digits + 1 if digits else _FULL_RANGE.get(name, 2**63)
    return _fill_in_levels(self, lambda count: generator.whole_range(count, size, wide))


def bernoulli_tensor(self: Any, generator: Any) -> Any:
    """Serve `bernoulli` of a tensor of probabilities."""
    drawn = tangrad.empty(tuple(self.shape), dtype=self.dtype, device=self.device)
    if self.requires_grad:
        drawn = self.clone(memory_format=tangrad.contiguous_format)  # recorded: the gradient is 0
    host = self.detach().to(device="cpu", dtype=getattr(tangrad, _computed(self)))
    probabilities = host.reshape(-1).numpy()
    if not ((probabilities >= 0) & (probabilities <= 1)).all():
        raise RuntimeError("Expected p_in >= 0 && p_in <= 1 to be true for every probability")
    return _fill(drawn, generator.bernoulli(probabilities, _count(self), _computed(self)))


def bernoulli(self: Any, p: float, generator: Any) -> Any:
    """Serve `bernoulli_`."""
    return _fill(self, generator.bernoulli(p, _count(self)))


def permutation(self: Any, generator: Any) -> Any:
    """Serve `randperm`."""
    return _fill(self, generator.permutation(_count(self)))


def engine_of(generator: Any, device: Any) -> Any:
    """Return the sequential engine that a call draws from, or None."""
    if generator is None:
        return get_default_generator(device).sequential
    if not isinstance(generator, Generator):
        raise TypeError(f"argument 'generator' must be Generator, not {type(generator).__name__}")
    return generator.sequential


def multinomial_places(weights: Any, num_samples: int, engine: Any) -> Any:
    """Draw places with replacement: where a uniform number falls among the running sums."""
    host = weights.detach().to("cpu")
    rows = host.reshape(-1, host.shape[-1])
    sums = rows.cumsum(-1)
    sums = sums / sums[:, -1:]
    uniform = tangrad.from_numpy(engine.uniform(rows.shape[0] * num_samples, "float64"))
    points = uniform.reshape(rows.shape[0], num_samples)
    places = (points.unsqueeze(-1) > sums.to(tangrad.float64).unsqueeze(1)).sum(-1)
    places = places.clamp(max=weights.shape[-1] - 1).to(weights.device)
    return places.reshape((*tuple(weights.shape)[:-1], num_samples))


def _by_rejection(draw: Any, *operands: Any) -> Any:
    """Return numbers in float64, made of the elements of tensors of one shape, in their order."""
    half = _is_half(operands[0])
    columns = [(x.detach().float() if half else x.detach()).cpu().reshape(-1) for x in operands]
    made = tangrad.from_numpy(draw(*(column.numpy() for column in columns)))
    return made.reshape(operands[0].shape).to(operands[0].device)


def poisson(self: Any, generator: Any) -> Any:
    """Serve `poisson_tensor`."""
    return _by_rejection(generator.poisson, self).to(self.dtype)


def binomial(count: Any, prob: Any, generator: Any) -> Any:
    """Serve `_binomial`."""
    return _by_rejection(generator.binomial, count, prob).to(count.dtype)


def _gammas(alpha: Any, generator: Any) -> Any:
    return _by_rejection(generator.gamma, alpha)


def gamma(alpha: Any, generator: Any) -> Any:
    """Serve `_standard_gamma`; no number is 0."""
    return _gammas(alpha, generator).to(alpha.dtype).clamp_(min=tangrad.finfo(alpha.dtype).tiny)


def dirichlet(alpha: Any, generator: Any) -> Any:
    """Serve `_sample_dirichlet`: gamma distributed numbers in float64, divided by their sum."""
    drawn = _gammas(alpha.detach().double(), generator).clamp_(
        min=tangrad.finfo(tangrad.float64).tiny
    )
    limits = tangrad.finfo(alpha.dtype)
    share = (drawn / drawn.sum(-1, keepdim=True)).to(alpha.dtype)
    return share.clamp_(limits.tiny, 1 - limits.eps / 2)
