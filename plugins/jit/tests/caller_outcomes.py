"""What a call of a random program leaves, so that two ways to run it can be compared."""

from __future__ import annotations

from functools import cache
from typing import Any

__all__ = ["REFUSED", "Close", "Held", "Values", "named"]

REFUSED = {"backward": "second derivatives are refused"}


class Held:
    """The tensors that a call may write, and how they were."""

    def __init__(self, given: Any, state: Any, earlier: list[Any]) -> None:
        self.tensors = named(given, "argument")
        self.tensors += [(name, t) for name, t in state.tensors().items() if t is not None]
        self.tensors += [
            (f"{name}.base", t._base) for name, t in self.tensors if t._base is not None
        ]
        self.tensors += [(f"earlier[{k}]", t) for k, t in enumerate(earlier)]
        self.others = state.others
        self.versions = [_version(t) for _, t in self.tensors]

    def outcome(self, result: Any) -> dict[str, Any]:
        """Return what a call has left: results, what it wrote, and what shares memory."""
        results = named(result, "result")
        told: dict[str, Any] = {"structure": _structure(result)}
        known = [*self.tensors, *results]
        for name, t in known:
            told[name] = _shown(t)
        for (name, t), before in zip(self.tensors, self.versions, strict=True):
            # `.data` that a graph returns shares versions, and kernels of `meta` write nothing.
            if not name.startswith("earlier") and not t.is_meta:
                told[f"{name} written"] = _version(t) != before
            if t.is_leaf and t.grad is not None:
                told[f"{name}.grad"] = _shown(t.grad)
        told["others"] = self.others()
        told["objects"] = _classes([id(t) for _, t in known])
        held = {id(t): name for name, t in reversed(known)}
        told["bases"] = [held.get(id(t._base)) for _, t in known]
        told["memories"] = _classes(
            [
                (str(t.layout) == "tangrad.strided" and t.untyped_storage().data_ptr()) or id(t)
                for _, t in known
            ]
        )
        return told

    def backward(self, result: Any, how: object = True) -> dict[str, Any] | Exception:
        """Return the gradients that a caller asks of the results, or of the last, and drop them."""
        import tangrad as T

        some = -1 if how == "of one" else 0
        found = [t for _, t in named(result, "result") if t.requires_grad][some:]
        leaves = [(name, t) for name, t in self.tensors if t.is_leaf and t.requires_grad]
        if not found:
            return {}
        try:
            with T.enable_grad():
                total = sum((t.to(T.float64) * 0.5).sum() for t in found)
                if how == "twice":
                    of = [t for _, t in leaves]
                    first = T.autograd.grad(total, of, create_graph=True, allow_unused=True)
                    used = [g for g in first if g is not None and g.requires_grad]
                    total = sum((g.to(T.float64) ** 2).sum() for g in used) + total
                if how == "retained":
                    total.backward(retain_graph=True)
                total.backward()
        except RuntimeError as error:
            if type(error).__name__ == "CaptureError":  # what is computed again is no graph
                return error
            if how == "twice":  # which graphs refuse that write into arguments, draw or call back
                for _, t in leaves:
                    t.grad = None
                return REFUSED
            return {"backward": "refused"}
        told = {f"{name}.grad": Close(t.grad) for name, t in leaves if t.grad is not None}
        for _, t in leaves:
            t.grad = None
        return told


def named(item: Any, path: str) -> list[tuple[str, Any]]:
    import tangrad as T

    if isinstance(item, T.Tensor):
        return [(path, item)]
    members: Any = ()
    if isinstance(item, (tuple, list)):
        members = enumerate(item)
    elif isinstance(item, dict):
        members = item.items()
    elif type(item).__name__ == "Record":
        members = vars(item).items()
    return [pair for key, member in members for pair in named(member, f"{path}[{key!r}]")]


def _structure(item: Any) -> Any:
    import tangrad as T

    if isinstance(item, T.Tensor):
        return type(item).__name__
    if isinstance(item, (tuple, list)):
        return type(item).__name__, [_structure(member) for member in item]
    if isinstance(item, dict):
        return "dict", [(key, _structure(value)) for key, value in item.items()]
    return type(item).__name__, repr(item)


def _version(t: Any) -> int:
    return -1 if t.is_inference() else int(t._version)


def _shown(t: Any) -> Any:
    flags = t.requires_grad, t.is_leaf, t.is_inference()
    return str(t.dtype), str(t.device), tuple(t.shape), t.stride(), *flags, Values(t)


class Values:
    """What a tensor holds, to the bit, but that all nan are one."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, t: Any) -> None:
        self.dtype, self.bits, self.empty = t.dtype, b"", t.is_meta or not t.numel()
        if not self.empty:
            t = t.detach() if str(t.layout) == "tangrad.strided" else t.detach().to_dense()
            t = t.resolve_conj().resolve_neg()
            shown = t.view(_uint16()) if self.dtype.name == "bfloat16" else t
            self.bits = shown.numpy().tobytes()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Values) and (self.bits == other.bits or repr(self) == repr(other))

    def __repr__(self) -> str:
        import tangrad as T

        if self.empty:
            return "nothing"
        return repr(T.frombuffer(bytearray(self.bits), dtype=self.dtype).tolist())


@cache
def _uint16() -> Any:
    import tangrad as T

    return T.uint16


def _classes(items: list[Any]) -> list[int]:
    """Return for each item the place of the first that is equal to it."""
    first: dict[Any, int] = {}
    return [first.setdefault(item, k) for k, item in enumerate(items)]


class Close:
    """A gradient: where derivatives of several results meet, their order may be another."""

    def __init__(self, grad: Any) -> None:
        self.kind = str(grad.dtype), str(grad.device), tuple(grad.shape)
        self.values = []
        if not grad.is_meta:
            self.values = grad.detach().to(_double()).reshape(-1).tolist()
        self.digits = {"torch.float64": 1e-10, "float64": 1e-10}.get(
            str(grad.dtype).rpartition(".")[2], 1e-4
        )
        if grad.element_size() == 2:
            self.digits = 0.05

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Close) and self.values == other.values:
            return self.kind == other.kind
        if not isinstance(other, Close) or self.kind != other.kind:
            return False
        largest = max((abs(v) for v in self.values if abs(v) < float("inf")), default=0.0)
        return all(
            a == b or (a != a and b != b) or abs(a - b) <= self.digits * (largest + 1e-30)
            for a, b in zip(self.values, other.values, strict=True)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{self.kind} {self.values}"


def _double() -> Any:
    import tangrad as T

    return T.float64
