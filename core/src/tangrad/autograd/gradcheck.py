"""Compare derivatives with finite differences.

Complex numbers are taken as pairs of real ones: the Jacobian that is compared is that of the real
and imaginary parts, which holds for functions that are not holomorphic, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from tangrad import _C
from tangrad.autograd import grad
from tangrad.random.generator import Generator

__all__ = ["GradcheckError", "gradcheck", "gradgradcheck"]


class GradcheckError(RuntimeError):
    """Raised when a derivative disagrees with finite differences."""


_FORWARD = "computed with forward mode "
_BATCHED = (
    "gradcheck or gradgradcheck failed while testing batched gradient computation "
    "(check_batched_grad or check_batched_forward_grad): "
)
_UNDEFINED = (
    "Backwards compatibility: New undefined gradient support checking feature is on by default; "
    "check_undefined_grad=False leaves it out"
)


def gradcheck(
    func: Callable[..., Any],
    inputs: Any,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    masked: bool | None = None,
) -> bool:
    """Check a function's gradients against central differences.

    Args:
        func: tensors -> tensor(s).
        inputs: tensor or tuple; those that require gradients are checked and should be float64.
        eps: step of the differences. atol, rtol: tolerances.
        raise_exception: raise on a mismatch; otherwise return False.
        nondet_tol: how much two backward passes may differ.
        check_undefined_grad: check that backward takes missing gradients of outputs as zeros.
        check_grad_dtypes: check that gradients have their input's dtype.
        check_batched_grad: check backward under vmap. check_batched_forward_grad: forward mode,
            too.
        check_forward_ad, check_backward_ad: which mode to check.
        masked: take gradients of zeros for zeros within a tolerance.
        fast_mode: compare one random projection of the Jacobian instead of all of it.

    Returns:
        True, or False on a mismatch without raise_exception.

    Raises:
        GradcheckError: a derivative is wrong.
        ValueError: nothing is to be checked.
        AssertionError: no mode is to be checked; an output's shape or dtype depends on values.
    """
    if not check_forward_ad and not check_backward_ad:
        raise AssertionError(
            "Expected at least one of check_forward_ad or check_backward_ad to be True"
        )
    values = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    _check_inputs(values)
    check = _Check(func, values, eps, atol, rtol, bool(masked))
    try:
        if not check.places:
            raise ValueError(
                "gradcheck expects at least one input tensor to require gradient, of a dtype of "
                "real or complex numbers"
            )
        if not check.outputs:
            check.no_differentiable_outputs()
            return True
        modes = [name for name, on in (("", check_backward_ad), (_FORWARD, check_forward_ad)) if on]
        for mode in modes:  # what is wrong in both is told of backward
            (check.fast if fast_mode else check.slow)(mode)
        if check_forward_ad and check_undefined_grad:
            check.undefined_forward()
        if check_batched_forward_grad:
            check.batched_forward()
        if check_backward_ad:
            check.reentrant(nondet_tol, check_grad_dtypes)
            if check_batched_grad:
                check.batched()
            check.multiplies(bool(masked))
            if check_undefined_grad:
                check.undefined()
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def _check_inputs(values: Sequence[Any]) -> None:
    import warnings

    for i, x in enumerate(values):
        if isinstance(x, _C.Tensor) and x.requires_grad:
            if x.dtype.name not in ("float64", "complex128"):
                warnings.warn(
                    f"Input #{i} requires gradient and is not a double precision floating point or "
                    "complex. This check will likely fail if all the inputs are not of double "
                    "precision floating point or complex. ",
                    stacklevel=3,
                )
            if any(size > 1 and step == 0 for size, step in zip(x.shape, x.stride(), strict=True)):
                raise RuntimeError(
                    f"The {i}th input has a dimension with stride 0. gradcheck only supports "
                    "inputs that are non-overlapping; call .contiguous on the input before."
                )


def _dense(t: Any) -> Any:
    return t if _C.contents_of(t) is None else t.to_dense()


def _parts(t: Any) -> Any:
    """Return a tensor as a real vector, complex elements as two neighbours."""
    t = _dense(t.detach())
    if t.dtype.is_complex:
        t = _C.lookup_op("view_as_real")(t.resolve_conj())
    return t.reshape((-1,))


def _held(t: Any) -> Any:
    """Return 1 for each real number that a tensor of another layout holds, and 0 elsewhere."""
    contents = _C.contents_of(t.detach())
    real, ones_like = _C.dtype_by_name("float64"), _C.lookup_op("ones_like")
    ones = {
        name: ones_like(c, dtype=real) if name in contents.layout.definition.elements else c
        for name, c in contents.components.items()
    }
    made = _C.make_of_layout(
        contents.layout, ones, dict(contents.metadata), tuple(t.shape), real, t.device
    )
    found = (made.to_dense().reshape((-1,)) != 0).to(real)
    return found.repeat_interleave(2) if t.dtype.is_complex else found


def _whole(vector: Any, like: Any) -> Any:
    """Return a real vector as a tensor like another (the inverse of `_parts`)."""
    if like.dtype.is_complex:
        pairs = vector.reshape((*like.shape, 2)).contiguous()
        return _C.lookup_op("view_as_complex")(pairs).to(like.dtype)
    return vector.reshape(tuple(like.shape)).to(like.dtype)


class _Check:
    """One function at one point."""

    def __init__(
        self,
        func: Callable[..., Any],
        inputs: tuple[Any, ...],
        eps: float,
        atol: float,
        rtol: float,
        masked: bool = False,
    ) -> None:
        self.func, self.inputs, self.eps, self.atol, self.rtol = func, inputs, eps, atol, rtol
        self.masked = masked
        self.places = [
            i for i, x in enumerate(inputs) if isinstance(x, _C.Tensor) and x.requires_grad
        ]
        self.points = [inputs[i] for i in self.places]
        self.outputs = [o for o in self.results(inputs) if o.requires_grad]
        self.kept = [k for k, o in enumerate(self.results(inputs)) if o.requires_grad]

    def results(self, inputs: Sequence[Any]) -> list[Any]:
        """Return the tensors that the function returns."""
        found = self.func(*inputs)
        several = found if isinstance(found, (tuple, list)) else (found,)
        return [o for o in several if isinstance(o, _C.Tensor)]

    def at(self, points: Sequence[Any]) -> list[Any]:
        """Return the differentiable outputs at other values of the differentiable inputs."""
        full = list(self.inputs)
        for place, x in zip(self.places, points, strict=True):
            full[place] = x
        found = self.results(full)
        return [found[k] for k in self.kept]

    def no_differentiable_outputs(self) -> None:
        """Raise unless finite differences say, too, that no output depends on an input."""
        before = [_parts(o.clone()) for o in self.results(self.inputs)]
        for i, x in enumerate(self.points):
            ones = _C.lookup_op("ones_like")(_parts(x))
            with self.moved(i, self.eps * ones):
                after = [_parts(o) for o in self.results(self.inputs)]
            for a, b in zip(before, after, strict=True):
                counts = a.dtype.is_floating_point and a.numel()
                if counts and (a - b).abs().max().item() > self.atol * self.eps:
                    raise GradcheckError("Numerical gradient for function expected to be zero")

    @contextmanager
    def moved(self, i: int, by: Any) -> Iterator[None]:
        """Add a real vector to input i.

        Into the input itself, as PyTorch does: a function may reach it otherwise than by its
        argument, as a module reaches its parameters.
        """
        place = self.points[i].data
        start = place.clone()
        place.copy_(_whole(_parts(start) + by, start))
        try:
            yield
        finally:
            place.copy_(start)

    def difference(self, i: int, direction: Any) -> list[Any]:
        """Return the outputs' central difference along a direction (a real vector) of input i.

        A masked check leaves alone what a tensor of another layout does not hold.
        """
        if self.masked and _C.contents_of(self.points[i]) is not None:
            direction = direction * _held(self.points[i])
        sides = []
        for sign in (1.0, -1.0):
            with self.moved(i, sign * self.eps * direction):
                found = self.at(self.points)
                for o, first in zip(found, self.outputs, strict=True):
                    for what in ("shape", "dtype"):
                        before, after = getattr(first, what), getattr(o, what)
                        assert before == after, (
                            f"Expected `func` to return outputs with the same {what} when inputs "
                            f"are perturbed, but got {after} in place of {before}"
                        )
                sides.append([_parts(o.clone()) for o in found])
        return [(a - b) / (2 * self.eps) for a, b in zip(*sides, strict=True)]

    def pulled(self, k: int, cotangent: Any) -> list[Any]:
        """Return the inputs' gradients for a cotangent of output k, all as real vectors."""
        o = self.outputs[k]
        found = grad([o], self.points, [_whole(cotangent, o)], retain_graph=True, allow_unused=True)
        return [
            _parts(_C.lookup_op("zeros_like")(x) if g is None else g)
            for g, x in zip(found, self.points, strict=True)
        ]

    def pushed(self, i: int, direction: Any) -> list[Any]:
        """Return the outputs' tangents for a tangent of input i, all as real vectors."""
        from tangrad.autograd import forward_ad

        with forward_ad.dual_level():
            points = [x.detach() for x in self.points]
            for j, x in enumerate(points):
                moved = _whole(direction, x).clone() if j == i else _C.lookup_op("zeros_like")(x)
                points[j] = forward_ad.make_dual(x, moved)
            found = [forward_ad.unpack_dual(o) for o in self.at(points)]
        return [
            _parts(_C.lookup_op("zeros_like")(f.primal) if f.tangent is None else f.tangent)
            for f in found
        ]

    # --- all of the Jacobian

    def slow(self, mode: str) -> None:
        """Compare every column."""
        stack = _C.lookup_op("stack")
        for i, x in enumerate(self.points):
            basis = _identity(_parts(x))
            if not len(basis):
                continue
            columns = [self.difference(i, e) for e in basis]
            numerical = [stack([c[k] for c in columns], 1) for k in range(len(self.outputs))]
            pushed = [self.pushed(i, e) for e in basis] if mode else []
            for k, o in enumerate(self.outputs):
                if mode:
                    self.compare(stack([c[k] for c in pushed], 1), numerical[k], k, i, mode)
                    continue
                rows = [self.pulled(k, e)[i] for e in _identity(_parts(o))]
                for part, first, step in _components(o):
                    if chosen := rows[first::step]:
                        wanted = numerical[k][first::step]
                        self.compare(stack(chosen), wanted, k, i, mode, part)

    # --- a projection of it

    def fast(self, mode: str) -> None:
        """Compare u · J · v for random u and v."""
        vector: Callable[[Any], Any] = partial(_random_vector, generators={})
        end = "\nThis was found in fast mode; fast_mode=False compares all of the Jacobian.\n"
        for i, x in enumerate(self.points):
            v = vector(_parts(x))
            differences = self.difference(i, v)
            tangents = self.pushed(i, v) if mode else []
            for k, o in enumerate(self.outputs):
                u = vector(_parts(o))
                if mode:
                    found, wanted = (u * tangents[k]).sum(), (u * differences[k]).sum()
                    self.compare(found, wanted, k, i, mode, end=end)
                    continue
                for part, first, step in _components(o):
                    chosen = _C.lookup_op("zeros_like")(u)
                    chosen[first::step] = u[first::step]
                    found = (self.pulled(k, chosen)[i] * v).sum()
                    self.compare(found, (chosen * differences[k]).sum(), k, i, mode, part, end)

    def compare(
        self, found: Any, wanted: Any, k: int, i: int, mode: str, part: str = "", end: str = ""
    ) -> None:
        """Raise GradcheckError unless two pieces of the Jacobian agree."""
        wanted = wanted.to(found.dtype)
        if _C.lookup_op("allclose")(found, wanted, self.rtol, self.atol, True):
            return
        only = f"While considering the {part} part of complex outputs only, " if part else ""
        raise GradcheckError(
            f"{only}Jacobian {mode}mismatch for output {k} with respect to input "
            f"{self.places[i]},\nnumerical:{wanted}\nanalytical:{found}\n{end}"
        )

    # --- further properties

    def reentrant(self, tolerance: float, check_dtypes: bool) -> None:
        """Check that backward is deterministic and gives the inputs' shapes (and dtypes)."""
        for k, o in enumerate(self.outputs):
            seed = _C.lookup_op("ones_like")(_parts(o))
            first, second = self.pulled(k, seed), self.pulled(k, seed)
            for a, b in zip(first, second, strict=True):
                if a.numel() and (a - b).abs().max().item() > tolerance:
                    raise GradcheckError(
                        "Backward is not reentrant, i.e., running backward with same input and "
                        "grad_output multiple times gives different values, although analytical "
                        "gradient matches numerical gradient. The tolerance for nondeterminism was "
                        f"{tolerance}."
                    )
            found = grad([o], self.points, [_whole(seed, o)], retain_graph=True, allow_unused=True)
            for g, x in zip(found, self.points, strict=True):
                if g is not None and tuple(g.shape) != tuple(x.shape):
                    raise GradcheckError("grad is incorrect size")
                if g is not None and check_dtypes and g.dtype != x.dtype:
                    raise GradcheckError(f"Gradient has dtype {g.dtype}, its input {x.dtype}")

    def multiplies(self, masked: bool) -> None:
        """Check that gradients of zeros are zeros, of the inputs' layouts."""
        zeros = [_C.lookup_op("zeros_like")(o) for o in self.outputs]
        found = grad(self.outputs, self.points, zeros, retain_graph=True, allow_unused=True)
        for g, x in zip(found, self.points, strict=True):
            if g is None:
                continue
            if g.layout != _C.layout_named("strided"):
                _check_layout(g, x)
                g = g.to_dense()
            if g.numel() and not g.abs().max().item() <= (1e-8 if masked else 0.0):
                raise GradcheckError("backward not multiplied by grad_output")

    def undefined(self) -> None:
        """Check that backward takes missing gradients, of all outputs and of each one, as zeros."""
        import warnings

        from tangrad.autograd.function import Function

        class Missing(Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                return x.view_as(x)

            @staticmethod
            def backward(ctx: Any, grad: Any) -> Any:
                return None

        zeros, count = _C.lookup_op("zeros_like"), len(self.outputs)
        for missing in [range(count), *([k] for k in range(count) if count > 1)]:
            results = self.at(self.points)
            ends = [Missing.apply(o) if k in missing else o for k, o in enumerate(results)]
            try:
                found = grad(ends, self.points, [zeros(o) for o in ends], allow_unused=True)
            except RuntimeError as error:
                warnings.warn(_UNDEFINED, UserWarning, stacklevel=4)
                raise GradcheckError(
                    "Expected backward function to handle undefined output grads, which are None: "
                    f"{error}"
                ) from error
            for g in found:
                if g is not None and not (_dense(g) == 0).all():
                    warnings.warn(_UNDEFINED, UserWarning, stacklevel=4)
                    raise GradcheckError(
                        "Expected all input grads to be undefined or zero when all output grads "
                        f"are undefined or zero, got {g}"
                    )

    def batched(self) -> None:
        """Check that backward under vmap agrees with a loop."""
        stack = _C.lookup_op("stack")
        for o in self.outputs:
            cotangents = [_C.lookup_op("ones_like")(o) * (j + 1) for j in range(2)]
            pull = partial(grad, [o], self.points, retain_graph=True, allow_unused=True)
            with _told_as_batched():
                together = pull([stack(cotangents)], is_grads_batched=True)
            apart = [pull([c]) for c in cotangents]
            for i, g in enumerate(together):
                if g is None:
                    continue
                wanted = stack([a[i] for a in apart])
                if not _C.lookup_op("allclose")(g, wanted, self.rtol, self.atol, True):
                    raise GradcheckError(
                        f"{_BATCHED}For input {self.places[i]}: batched gradients differ from "
                        f"those of a loop:\n{g}\n{wanted}"
                    )

    def undefined_forward(self) -> None:
        """Check that an input without a tangent does what a tangent of zeros does."""
        from tangrad.autograd import forward_ad

        zeros, ones = _C.lookup_op("zeros_like"), _C.lookup_op("ones_like")

        def tangents(i: int, given: bool) -> list[Any]:
            with forward_ad.dual_level():
                points = [x.detach() for x in self.points]
                for j, x in enumerate(points):
                    if j != i or given:
                        points[j] = forward_ad.make_dual(x, (zeros if j == i else ones)(x))
                return [forward_ad.unpack_dual(o).tangent for o in self.at(points)]

        for i, place in enumerate(self.places):
            pairs = zip(tangents(i, True), tangents(i, False), strict=True)
            for k, (a, b) in enumerate(pairs):
                if None not in (a, b) and not _C.lookup_op("allclose")(a, b):
                    raise GradcheckError(
                        f"Mismatch in tangent values for output with index: {k} when input {place} "
                        f"has an undefined tangent value. Got: {b} but expected: {a}"
                    )

    def batched_forward(self) -> None:
        """Check that forward mode under vmap agrees with a loop, of each input."""
        from tangrad.autograd import forward_ad
        from tangrad.func import vmap

        stack, zeros = _C.lookup_op("stack"), _C.lookup_op("zeros_like")
        points = [x.detach() for x in self.points]
        for i, point in enumerate(points):

            def push(tangent: Any, i: int = i) -> Any:
                with forward_ad.dual_level():
                    dual = forward_ad.make_dual(points[i], tangent)
                    found = [
                        forward_ad.unpack_dual(o)
                        for o in self.at([*points[:i], dual, *points[i + 1 :]])
                    ]
                return tuple(zeros(f.primal) if f.tangent is None else f.tangent for f in found)

            directions = [_C.lookup_op("ones_like")(point) * (j + 1) for j in range(2)]
            with _told_as_batched():
                together = vmap(push)(stack(directions))
            for k, (found, wanted) in enumerate(
                zip(together, map(stack, zip(*map(push, directions), strict=True)), strict=True)
            ):
                if not _C.lookup_op("allclose")(found, wanted, self.rtol, self.atol, True):
                    raise GradcheckError(
                        f"{_BATCHED}For output {k}: batched tangents differ from those of a "
                        f"loop:\n{found}\n{wanted}"
                    )


@contextmanager
def _told_as_batched() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        random = "vmap: We do not yet support calling random operations inside of vmap: "
        said = f"{random if 'randomness' in str(error) else ''}{error}"
        raise GradcheckError(f"{_BATCHED}While computing batched gradients, got: {said}") from error


def _random_vector(like: Any, generators: dict[Any, Any]) -> Any:
    """Return numbers in [-0.5, 0.5) of generators of our own: what the function draws stays."""
    drawn_by = generators.setdefault(like.device, Generator(like.device))
    kind = {"dtype": like.dtype, "device": like.device}
    return _C.lookup_op("rand")((like.numel(),), generator=drawn_by, **kind) - 0.5


def _components(o: Any) -> list[tuple[str, int, int]]:
    """Return the parts of an output's numbers: name, and where they are among all of them."""
    return [("imaginary", 1, 2), ("real", 0, 2)] if o.dtype.is_complex else [("", 0, 1)]


def _check_layout(g: Any, x: Any) -> None:
    """Raise GradcheckError where a gradient that is not dense is laid out otherwise than x."""
    if g.layout != x.layout:
        raise GradcheckError(
            f"grad is incorrect layout ({g.layout} is not the input's, {x.layout})"
        )
    for what in ("sparse_dim", "dense_dim"):
        found, wanted = getattr(g, what)(), getattr(x, what)()
        if found != wanted:
            raise GradcheckError(
                f"grad is sparse tensor, but has incorrect {what} {found}, expected {wanted}"
            )


def _identity(vector: Any) -> list[Any]:
    return list(_C.lookup_op("eye")(vector.numel(), dtype=vector.dtype, device=vector.device))


def gradgradcheck(
    func: Callable[..., Any],
    inputs: Any,
    grad_outputs: Any = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool = False,
    masked: bool = False,
) -> bool:
    """Check the gradients of a function's gradients.

    Args:
        func, inputs and all others: as for `gradcheck`.
        grad_outputs: gradients of the outputs; random ones that require gradients if None.
        gen_non_contig_grad_outputs: make the random ones non-contiguous.
        check_fwd_over_rev, check_rev_over_rev: which second derivative to check.
    """
    values = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    found = func(*values)
    several = found if isinstance(found, (tuple, list)) else (found,)
    outputs = [o for o in several if isinstance(o, _C.Tensor) and o.requires_grad]
    if grad_outputs is None:
        seeds = tuple(_random_like(o, gen_non_contig_grad_outputs) for o in outputs)
    else:
        seeds = tuple(grad_outputs) if isinstance(grad_outputs, (tuple, list)) else (grad_outputs,)
    count = len(values)
    places = [i for i, x in enumerate(values) if isinstance(x, _C.Tensor) and x.requires_grad]

    def gradients(*args: Any) -> tuple[Any, ...]:
        xs = args[:count]
        for i in places:
            if not xs[i].requires_grad:
                xs[i].requires_grad_()
        got = func(*xs)
        several = got if isinstance(got, (tuple, list)) else (got,)
        outs = [o for o in several if isinstance(o, _C.Tensor) and o.requires_grad]
        return tuple(
            g
            for g in grad(
                outs, [xs[i] for i in places], args[count:], create_graph=True, allow_unused=True
            )
            if g is not None
        )

    return gradcheck(
        _recording(gradients),
        values + seeds,
        eps=eps,
        atol=atol,
        rtol=rtol,
        raise_exception=raise_exception,
        nondet_tol=nondet_tol,
        check_undefined_grad=check_undefined_grad,
        check_grad_dtypes=check_grad_dtypes,
        check_batched_grad=check_batched_grad,
        check_forward_ad=check_fwd_over_rev,
        check_backward_ad=check_rev_over_rev,
        fast_mode=fast_mode,
    )


def _recording(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that records inside even where its caller does not."""
    from tangrad.autograd.grad_mode import enable_grad

    return enable_grad()(function)


def _random_like(o: Any, strided: bool) -> Any:
    size = tuple(o.shape) + ((2,) if strided else ())
    values = _C.lookup_op("randn")(size, dtype=o.dtype, device=o.device)
    return (values.select(-1, 0) if strided else values).detach().requires_grad_()
