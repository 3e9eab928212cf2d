"""Faults in what a package says of its ops."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from tangrad_testing.loopback import Loopback
from tangrad_testing.mutants.fault import PLANTED

CALLS = itertools.count()
SAMPLES: dict[str, Any] = {
    "one": lambda s: [s(s.tensor(3, 4)), s(s.tensor(5, strided=True)), s(s.tensor())],
    "two": lambda s: [s(s.tensor(3, 4), s.tensor(3, 4)), s(s.tensor(3, 1), s.tensor(4))],
    "rows": lambda s: [s(s.tensor(3, 4)), s(s.tensor(2, 3, 4, strided=True))],
}


def planted_op(name: str, says: str) -> Callable[[Callable[[Any, str], Any]], Any]:
    """Plant an op: what is decorated defines it, of `tangrad.plugin` and its name."""

    def add(define: Callable[[Any, str], Any]) -> Any:
        def open_with_op(self: Any) -> None:
            from tangrad import plugin

            define(plugin, f"planted::{name.lower()}")

        kind = type(name, (Loopback,), {"__doc__": says, "open": open_with_op})
        PLANTED[name] = kind
        return define

    return add


def pointwise(name: str, says: str, expression: str, **said: Any) -> None:
    """Plant a pointwise op of one tensor, or of two where `other` is in the expression."""
    several = "other" in expression
    parameters = "Tensor self, Tensor other" if several else "Tensor self"
    said.setdefault("samples", SAMPLES["two" if several else "one"])

    def define(plugin: Any, qualified: str) -> None:
        plugin.pointwise(f"{qualified}({parameters}) -> Tensor", expression,
                         **{"promote": "float", "dtypes": "floating", **said})  # fmt: skip

    planted_op(name, says)(define)


def kernel(name: str, says: str, reference: Any, **said: Any) -> None:
    """Plant an op with a reference of one tensor."""

    def define(plugin: Any, qualified: str) -> None:
        plugin.op(f"{qualified}(Tensor self) -> Tensor", reference=reference,
                  **{"samples": SAMPLES["rows"], **said})  # fmt: skip

    planted_op(name, says)(define)


pointwise("PartialHasTheOtherSign", "A partial derivative has the other sign.",
          "sin(self)", partials={"self": "-cos(self)"})  # fmt: skip
pointwise(
    "PartialIsADoubleOfOne",
    "A partial derivative is a thousandth too large.",
    "self * sin(self)",
    partials={"self": "(sin(self) + self * cos(self)) * 1.001"},
)
pointwise("PartialIsOfTheResult", "A partial derivative takes the operand for the result.",
          "exp(self)", partials={"self": "self"})  # fmt: skip
pointwise("PartialsAreSwapped", "The partial derivatives of two inputs are swapped.",
          "self * self * other",
          partials={"self": "self * self", "other": "2 * self * other"})  # fmt: skip
pointwise("PartialIsRightNearby", "A partial derivative is wrong beyond 4.",
          "sin(self)", partials={"self": "where(abs(self) < 4, cos(self), 0)"})  # fmt: skip
pointwise("PartialIsFlatNearZero", "A partial derivative is zero below 0.05.",
          "sin(self)", partials={"self": "where(abs(self) < 0.05, 0, cos(self))"})  # fmt: skip
pointwise("VjpIsNoConjugate", "A vjp of complex numbers lacks a conjugate.",
          "self * self", vjp={"self": "g * 2 * self"}, jvp={"self": "2 * self * self_t"},
          dtypes="floating complex")  # fmt: skip
pointwise("JvpIsAnothers", "A jvp is half of what the vjp says.",
          "self * self", vjp={"self": "2 * g * self"}, jvp={"self": "self * self_t"})  # fmt: skip
pointwise("SaidToBeFlat", "A vjp says that a slope is none.",
          "self + sin(self)", vjp={"self": "g"}, jvp={"self": "self_t"})  # fmt: skip
kernel("VjpForgetsAFactor", "The vjp of a kernel lacks a factor.",
       lambda np, self: self**3, vjp={"self": lambda g, self: g * self**2})  # fmt: skip
kernel("VjpIsTransposed", "The gradient of each row is another row's.",
       lambda np, self: self**2, vjp={"self": lambda g, self: 2 * (g * self).flip(0)})  # fmt: skip
kernel("VjpIsForOnes", "The vjp is right for a gradient of ones alone.",
       lambda np, self: self**2, vjp={"self": lambda g, self: 2 * self})  # fmt: skip
kernel(
    "VjpIsConstantToAutograd",
    "The gradient is detached: the second derivative is zero.",
    lambda np, self: self**3,
    vjp={"self": lambda g, self: (g * 3 * self**2).detach()},
)
kernel(
    "VjpIsDetachedInTheTensor",
    "The gradient counts the tensor as a constant.",
    lambda np, self: self**3,
    vjp={"self": lambda g, self: g * 3 * self.detach() ** 2},
)
kernel(
    "VjpIsRoundedToHalf",
    "The gradient of float32 passes through float16.",
    lambda np, self: np.sin(self),
    vjp={
        "self": lambda g, self: (
            (g * self.cos()).half().float() * 1.004 if g.dtype.itemsize == 4 else g * self.cos()
        )
    },
)
kernel("JvpOfAKernelIsWrong", "The jvp of a kernel lacks a factor.",
       lambda np, self: self**2, vjp={"self": lambda g, self: 2 * g * self},
       jvp=lambda self, self_t: self * self_t)  # fmt: skip
kernel("SaidToBeLinear", "An op that says it is linear adds one.",
       lambda np, self: 2 * self + 1, vjp={"self": lambda g: 2 * g}, linear=("self",))  # fmt: skip
kernel("BatchesAreRows", "An op over a whole tensor says that it works on counted dimensions.",
       lambda np, self: self / np.abs(self).sum(), batch="dims", vjp="none: a fault of another "
       "kind")  # fmt: skip
kernel("BatchesAreMixed", "The batching rule takes the sum over the batch.",
       lambda np, self: self * 2, vjp={"self": lambda g: 2 * g},
       batch=lambda level, op, args, dims: (args[0] * 2 * level, 0))  # fmt: skip
kernel("ReferenceWritesItsOperand", "The reference computes in its operand.",
       lambda np, self: np.multiply(self, 2, out=self), vjp={"self": lambda g: 2 * g})  # fmt: skip
kernel("ReferenceIsTheOperandsMemory", "The reference sees bytes, not strides.",
       lambda np, self: np.lib.stride_tricks.as_strided(
           self, strides=np.empty(self.shape, self.dtype).strides) * 1,
       vjp={"self": lambda g: g})  # fmt: skip
kernel("ReferenceCounts", "The reference gives something else at every call.",
       lambda np, self: self + next(CALLS),
       vjp={"self": lambda g: g})  # fmt: skip
kernel("ReferenceIsRough", "The reference of float32 computes in float16.",
       lambda np, self: (np.float16(self) if self.dtype == np.float32 else self).astype(self.dtype)
       * 3, vjp={"self": lambda g: 3 * g})  # fmt: skip
kernel("ReferenceIsAnotherOp", "Reference and decomposition are two ops.",
       lambda np, self: np.sin(self), decompose=lambda self: self.sin() * 1.01,
       vjp={"self": lambda g, self: g * self.cos()})  # fmt: skip
kernel("ReferenceIsNotPyTorchs", "The reference is another op than what it names in PyTorch.",
       lambda np, self: np.expm1(self) + 1e-3, oracle=lambda torch, x: torch.expm1(x),
       vjp={"self": lambda g, self: g * self.exp()}, dtype=lambda self: self.dtype)  # fmt: skip
kernel("DtypeIsAnothers", "The rule says float64 where float32 goes in; the kernel follows.",
       lambda np, self: np.abs(self), dtype=lambda self: "float64",
       decompose=lambda self: self.abs(), vjp="none: a fault of another kind")  # fmt: skip


@planted_op("SecondResultHasNoPart", "The vjp leaves the second result out.")
def _second(plugin: Any, name: str) -> None:
    plugin.op(
        f"{name}(Tensor self) -> (Tensor a, Tensor b)",
        shape=lambda self: (self.shape, self.shape),
        reference=lambda np, self: (np.sin(self), np.cos(self)),
        vjp={"self": lambda g0, self: g0 * self.cos()},
        samples=SAMPLES["rows"],
    )


@planted_op("ListsShareAGradient", "The vjp of a list gives every tensor the first one's.")
def _lists(plugin: Any, name: str) -> None:
    plugin.op(
        f"{name}(Tensor[] xs) -> Tensor",
        shape=lambda xs: xs[0].shape,
        dtype=lambda xs: xs[0].dtype,
        reference=lambda np, xs: sum(x * x for x in xs),
        vjp={"xs": lambda g, xs: [2 * g * xs[0] for _ in xs]},
        samples=lambda s: [s([s.tensor(3), s.tensor(3)])],
    )


@planted_op("FoldForgetsItsLength", "The vjp of a mean does not divide.")
def _mean(plugin: Any, name: str) -> None:
    plugin.reduction(
        f"{name}(Tensor self, dim[]? dim=None, bool keepdim=False) -> Tensor",
        map="self", fold="sum", finalize="a / n", promote="float", dtypes="floating",
        vjp={"self": lambda g, self, dim, keepdim: (
            g if keepdim or not dim or len(dim) == self.ndim else g.unsqueeze(dim[0])
        ).expand(self.shape)},
        samples=lambda s: [s(s.tensor(3, 4)), s(s.tensor(3, 4), dim=1, keepdim=True)],
    )  # fmt: skip


@planted_op("ScanRunsTheOtherWay", "The vjp of a running sum is a running sum.")
def _scan(plugin: Any, name: str) -> None:
    plugin.scan(
        f"{name}(Tensor self, dim dim) -> Tensor",
        map="self", fold="sum", promote="float", dtypes="floating",
        vjp={"self": lambda g, dim: g.cumsum(dim)},
        samples=lambda s: [s(s.tensor(3, 4), 1), s(s.tensor(5), 0)],
    )  # fmt: skip


@planted_op("ViewIsAnothers", "The vjp of a view leaves the order as it is.")
def _view(plugin: Any, name: str) -> None:
    plugin.view(
        f"{name}(Tensor self) -> Tensor",
        geometry=lambda self: (self.shape[::-1], self.stride[::-1], self.offset),
        vjp={"self": lambda g, self_meta: g.reshape(self_meta.shape)},
        samples=lambda s: [s(s.tensor(3, 4)), s(s.tensor(2, 3, strided=True))],
    )


@planted_op("HandWrittenFunction", "A composite's autograd.Function has a wrong backward.")
def _function(plugin: Any, name: str) -> None:
    import tangrad

    class Cube(tangrad.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x * x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return 2 * g * ctx.saved_tensors[0] ** 2

    def body(self: Any) -> Any:
        """Compute a cube."""
        return Cube.apply(self)

    plugin.composite(f"{name}(Tensor self) -> Tensor", samples=SAMPLES["rows"])(body)


@planted_op("CompositeCutsTheGraph", "A composite detaches what it computes of.")
def _composite(plugin: Any, name: str) -> None:
    def body(self: Any) -> Any:
        """Compute a square, of which one factor is detached."""
        return self * self.detach()

    plugin.composite(f"{name}(Tensor self) -> Tensor", samples=SAMPLES["rows"])(body)
