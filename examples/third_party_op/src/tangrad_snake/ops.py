"""The definitions: everything else about these ops follows from them."""

from tangrad.plugin import pointwise, reduction


def _check_frequency(a):
    if a == 0:
        raise ValueError("snake: the frequency a must not be 0 (the op divides by it)")


snake = pointwise(
    "snake(Tensor self, Scalar a=1.0) -> Tensor",
    "self + sin(a * self) * sin(a * self) / a",
    promote="float",
    dtypes="floating complex",
    partials={"self": "1 + sin(2 * a * self)"},
    check=_check_frequency,
    oracle=lambda torch, x, a=1.0: x + torch.sin(a * x) ** 2 / a,
    samples=lambda s: [
        s(s.tensor(3, 4)),
        s(s.tensor()),
        s(s.tensor(2, 0)),
        s(s.tensor(5, strided=True), a=0.5),
    ],
    errors=lambda s: [(s(s.tensor(3), a=0), ValueError, "frequency")],
    doc="Compute `x + sin(a x)^2 / a`, an activation for periodic data (Ziyin et al., 2020).",
)


def _rms_vjp(g, self, result, dim, keepdim):
    dims = tuple(dim) if dim else tuple(range(self.ndim))
    count = 1
    for position in dims:
        count *= self.shape[position]
    if not keepdim:
        for position in sorted(dims):
            g, result = g.unsqueeze(position), result.unsqueeze(position)
    # At 0 the op has a kink; 0 is the subgradient that norms take there too.
    return (g * self / (count * result)).masked_fill(result == 0, 0)


def _rms_by_torch(torch, x, dim=None, keepdim=False):
    if x.is_complex():
        raise RuntimeError("rms is not defined for complex numbers")
    x = x if x.is_floating_point() else x.float()
    return x.square().mean(dim=dim, keepdim=keepdim).sqrt()


rms = reduction(
    "rms(Tensor self, dim[]? dim=None, bool keepdim=False) -> Tensor",
    map="self * self",
    fold="sum",
    finalize="sqrt(a / n)",
    promote="float",
    dtypes="floating",
    vjp={"self": _rms_vjp},
    oracle=_rms_by_torch,
    samples=lambda s: [
        s(s.tensor(3, 4)),
        s(s.tensor()),
        s(s.tensor(2, 3, 4, strided=True), dim=(0, -1)),
        s(s.tensor(3, 4), dim=1, keepdim=True),
    ],
    doc="Compute the root of the mean of the squares over dimensions.",
)
