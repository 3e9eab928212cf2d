"""Where two models begin to differ: two of tangrad, two devices, or one of them PyTorch's.

Values meet as NumPy arrays, so neither framework sees the other's tensors.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Comparison", "Difference", "compare"]

# Of the largest element: a few hundred roundings, which a network of some tens of layers may add.
_RELATIVE = {"float16": 2e-2, "bfloat16": 1e-1, "float32": 1e-4, "float64": 1e-10}
_SEED = 0  # of the gradients that outputs are given, and of both frameworks' random numbers


class Difference(NamedTuple):
    """One value that is not the same in both models.

    Attributes:
        name: path of the module, with the number of its call from the second on; of a weight its
            name in `state_dict`.
        kind: "weight", "output", "output gradient" or "weight gradient".
        largest: greatest difference of two elements; NaN beside a number counts as infinity.
        allowed: the difference that rounding explains.
        said: one line of text that tells the rest.
    """

    name: str
    kind: str
    largest: float
    allowed: float
    said: str

    def __str__(self) -> str:
        return f"{self.kind} of {self.name or 'the model'}: {self.said}"


class Comparison(NamedTuple):
    """What `compare` found; its text is a summary.

    Attributes:
        same: nothing differs beyond rounding.
        weights: parameters and buffers that differ before anything is run.
        forward: the first module, in the order in which they finish, whose output differs.
        backward: the first module, in the order of the backward pass, whose output is given
            another gradient; None where forward differs, or no gradient was asked for.
        gradients: weights whose gradients differ.
        outputs: every module whose output differs.
        compared: number of modules' outputs that were compared.
    """

    same: bool
    weights: list[Difference]
    forward: Difference | None
    backward: Difference | None
    gradients: list[Difference]
    outputs: list[Difference]
    compared: int

    def __str__(self) -> str:
        if self.same:
            return f"the same within rounding: {self.compared} outputs of modules"
        lines = []
        if self.weights:
            lines.append(f"{len(self.weights)} weights differ before anything is run:")
            lines += [f"  {one}" for one in self.weights[:5]]
        if self.forward:
            lines.append(f"forward: first the {self.forward}")
            lines.append(f"  {len(self.outputs)} of {self.compared} outputs of modules differ")
        elif self.compared:
            lines.append(f"forward: the same within rounding, {self.compared} outputs of modules")
        if self.backward:
            lines.append(f"backward: first the {self.backward}")
        lines += [f"  {one}" for one in self.gradients[:5]]
        return "\n".join(lines)


def compare(
    model_a: Any,
    model_b: Any,
    inputs: Any,
    *,
    backward: bool = True,
    rtol: float | None = None,
    copy_weights: bool = False,
) -> Comparison:
    """Call two models alike and tell the first module whose result differs beyond rounding.

    Each may be a module of tangrad, on any device, or of an installed PyTorch. Submodules are
    matched by their paths. Both are left as they were: weights, buffers, gradients, modes, hooks
    and random states. Random numbers are the same only between devices of tangrad; elsewhere
    evaluate models with dropout by `eval()`, or set `TANGRAD_RNG=mt19937` beside PyTorch.

    Args:
        model_a: a module.
        model_b: the module to compare it with.
        inputs: what both are called with: a tensor of either framework, an array, a number, or a
            tuple of such; a dict gives keyword arguments. It is copied to each model's device.
        backward: compare gradients, too, where outputs are floating-point numbers. Each output
            is given the same random gradient.
        rtol: the difference allowed, in parts of the largest element of a value; by default
            1e-4 for float32, 1e-10 for float64, 2e-2 for float16 and 1e-1 for bfloat16.
        copy_weights: give `model_b` the weights of `model_a` for the comparison.

    Returns:
        What differs; `str()` of it tells it.

    Raises:
        ValueError: no module of one is in the other, or with `copy_weights` a weight is missing
            or of another shape.
        TypeError: one of them is no module of tangrad or PyTorch.
    """
    sides = [_Side(model, name) for model, name in ((model_a, "model_a"), (model_b, "model_b"))]
    paths = [dict(side.model.named_modules()) for side in sides]
    common = paths[0].keys() & paths[1].keys()
    if len(common) == 1 and min(map(len, paths)) > 1:
        raise ValueError(
            "compare: the models have no submodule of the same path: "
            f"{_some(paths[0])} beside {_some(paths[1])}"
        )
    states = [side.values(side.model.state_dict()) for side in sides]
    weights = [] if copy_weights else _of_weights(states[0], states[1], rtol)
    runs = []
    for side in sides:
        with side.untouched():
            if copy_weights and side is sides[1]:
                side.load(states[0], states[1])
            runs.append(side.run(inputs, common, backward))
    outputs, compared = _of_outputs(runs[0].outputs, runs[1].outputs, rtol)
    flow: list[Difference] = []
    gradients: list[Difference] = []
    if backward and not outputs:
        flow, _ = _of_outputs(runs[0].flow, runs[1].flow, rtol, "output gradient")
        gradients = _of_weights(runs[0].gradients, runs[1].gradients, rtol, "weight gradient")
    return Comparison(
        not (weights or outputs or flow or gradients),
        weights,
        outputs[0] if outputs else None,
        flow[0] if flow else None,
        gradients,
        outputs,
        compared,
    )


class _Value(NamedTuple):
    """A tensor's elements, halves as float32, and the dtype that it had."""

    array: Any
    dtype: str


class _Run:
    """What one model did: {(path, call, place in the output): value}, in the order it came."""

    def __init__(self) -> None:
        self.outputs: dict[tuple[str, int, int], _Value] = {}
        self.flow: dict[tuple[str, int, int], _Value] = {}
        self.gradients: dict[str, _Value] = {}


class _Side:
    """A model and the framework that it is of."""

    def __init__(self, model: Any, which: str) -> None:
        owner = next(
            (
                cls.__module__.partition(".")[0]
                for cls in type(model).__mro__
                if cls.__name__ == "Module" and cls.__module__.endswith("nn.modules.module")
            ),
            None,
        )
        if owner is None:
            raise TypeError(f"compare: {which} is a {type(model).__name__}, not a module")
        self.model = model
        self.lib = importlib.import_module(owner)

    def values(self, tensors: Mapping[str, Any]) -> dict[str, _Value]:
        """Return the values of the tensors of a dict."""
        return {k: self.value(t) for k, t in tensors.items() if isinstance(t, self.lib.Tensor)}

    def value(self, tensor: Any) -> _Value:
        """Return a copy of a tensor's elements."""
        tensor = tensor.detach().to("cpu")
        dtype = _name_of(tensor.dtype)
        if dtype in ("bfloat16", "float16"):
            tensor = tensor.to(self.lib.float32)
        return _Value(np.array(tensor.resolve_conj().resolve_neg().numpy(), copy=True), dtype)

    def load(self, state: Mapping[str, _Value], own: Mapping[str, _Value]) -> None:
        """Take the weights of the other model.

        Raises:
            ValueError: one is missing, or of another shape.
        """
        for name, mine in own.items():
            if name not in state or state[name].array.shape != mine.array.shape:
                there = f"of shape {list(state[name].array.shape)}" if name in state else "missing"
                raise ValueError(
                    f"compare: copy_weights: {name} of model_b has shape {list(mine.array.shape)}, "
                    f"and is {there} in model_a"
                )
        with self.lib.no_grad():
            for name, tensor in self.model.state_dict().items():
                if name in state:
                    tensor.copy_(self.lib.from_numpy(state[name].array))

    def untouched(self) -> _Untouched:
        """Return a context that gives the model its state back."""
        return _Untouched(self)

    def run(self, inputs: Any, paths: set[str], backward: bool) -> _Run:
        """Call the model, with hooks on the modules of some paths."""
        found = _Run()
        calls: dict[str, int] = {}
        hooks = [
            module.register_forward_hook(self._keeping(path, calls, found, backward))
            for path, module in self.model.named_modules()
            if path in paths
        ]
        args, kwargs = self._given(inputs)
        try:
            self.lib.manual_seed(_SEED)
            with self.lib.set_grad_enabled(backward):
                outputs = list(self._tensors(self.model(*args, **kwargs)))
            if backward:
                self._run_backward(outputs)
                found.gradients = {
                    name: self.value(p.grad)
                    for name, p in self.model.named_parameters()
                    if p.grad is not None
                }
        finally:
            for hook in hooks:
                hook.remove()
        return found

    def _run_backward(self, outputs: Sequence[Any]) -> None:
        numbers = np.random.default_rng(_SEED)
        asked, given = [], []
        for output in outputs:
            gradient = numbers.standard_normal(tuple(output.shape))
            if output.requires_grad and output.is_floating_point():
                asked.append(output)
                given.append(self.lib.from_numpy(gradient).to(output.dtype).to(output.device))
        if asked:
            self.lib.autograd.backward(asked, given)

    def _keeping(self, path: str, calls: dict[str, int], found: _Run, backward: bool) -> Any:
        def keep(module: Any, args: Any, output: Any) -> None:
            call = calls[path] = calls.get(path, 0) + 1
            for place, tensor in enumerate(self._tensors(output)):
                key = path, call, place
                found.outputs[key] = self.value(tensor)
                if backward and tensor.requires_grad:
                    tensor.register_hook(lambda g, key=key: found.flow.update({key: self.value(g)}))

        return keep

    def _given(self, inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if isinstance(inputs, Mapping):
            return (), {name: self._own(value) for name, value in inputs.items()}
        items = inputs if isinstance(inputs, (tuple, list)) else (inputs,)
        return tuple(self._own(item) for item in items), {}

    def _own(self, item: Any) -> Any:
        """Return an input as this framework's, on the model's device."""
        if isinstance(item, (tuple, list)):
            return type(item)(self._own(one) for one in item)
        halves = None
        if hasattr(item, "detach"):
            dtype = _name_of(item.dtype)
            item = item.detach().to("cpu")
            if dtype in ("bfloat16", "float16"):
                item, halves = item.float(), getattr(self.lib, dtype)
            item = item.resolve_conj().resolve_neg().numpy()
        if not isinstance(item, np.ndarray):
            return item
        tensor = self.lib.from_numpy(np.array(item, copy=True))
        return tensor.to(halves or tensor.dtype).to(self._device())

    def _device(self) -> Any:
        held = next(iter(self.model.parameters()), None)
        held = next(iter(self.model.buffers()), None) if held is None else held
        return "cpu" if held is None else held.device

    def _tensors(self, output: Any) -> Iterator[Any]:
        if isinstance(output, self.lib.Tensor):
            yield output
        elif isinstance(output, Mapping):
            for value in output.values():
                yield from self._tensors(value)
        elif isinstance(output, (tuple, list)):
            for value in output:
                yield from self._tensors(value)


class _Untouched:
    """Give a model its weights, buffers, gradients and random state back."""

    def __init__(self, side: _Side) -> None:
        self.side = side

    def __enter__(self) -> None:
        model, lib = self.side.model, self.side.lib
        self.state = {name: t.detach().clone() for name, t in self._tensors()}
        self.gradients = [(p, p.grad) for p in model.parameters()]
        self.generator = lib.get_rng_state()
        for p, _ in self.gradients:
            p.grad = None

    def __exit__(self, *args: object) -> None:
        lib = self.side.lib
        with lib.no_grad():
            for name, tensor in self._tensors():
                kept = self.state[name]
                if not lib.equal(tensor, kept):
                    tensor.copy_(kept)
        for p, gradient in self.gradients:
            p.grad = gradient
        lib.set_rng_state(self.generator)

    def _tensors(self) -> Iterator[tuple[str, Any]]:
        yield from self.side.model.named_parameters()
        yield from self.side.model.named_buffers()


# --- differences -------------------------------------------------------------------------------


def _of_weights(
    a: Mapping[str, _Value], b: Mapping[str, _Value], rtol: float | None, kind: str = "weight"
) -> list[Difference]:
    found = []
    for name in [*a, *(name for name in b if name not in a)]:
        if name in a and name in b:
            found += _difference(name, kind, a[name], b[name], rtol)
        else:
            there = "model_a" if name in a else "model_b"
            found.append(Difference(name, kind, np.inf, 0.0, f"only {there} has it"))
    return found


def _of_outputs(
    a: Mapping[tuple[str, int, int], _Value],
    b: Mapping[tuple[str, int, int], _Value],
    rtol: float | None,
    kind: str = "output",
) -> tuple[list[Difference], int]:
    found, compared = [], 0
    for key, mine in a.items():
        path, call, place = key
        name = path + (f" (call {call})" if call > 1 else "") + (f" [{place}]" if place else "")
        if key not in b:
            found.append(Difference(name, kind, np.inf, 0.0, "model_b's has none"))
            continue
        compared += 1
        found += _difference(name, kind, mine, b[key], rtol)
    return found, compared


def _difference(
    name: str, kind: str, first: _Value, second: _Value, rtol: float | None
) -> list[Difference]:
    a, b = first.array, second.array
    dtypes = first.dtype, second.dtype
    if a.shape != b.shape:
        said = f"shape {list(a.shape)} beside {list(b.shape)}"
        return [Difference(name, kind, np.inf, 0.0, said)]
    if not a.size:
        return []
    if a.dtype.kind in "bui" and b.dtype.kind in "bui":
        allowed = 0.0
    else:
        shares = [_RELATIVE.get(_real(dtype), 0.0) for dtype in dtypes]
        finite = np.abs(a[np.isfinite(a)])
        largest_element = float(finite.max()) if finite.size else 0.0
        allowed = (max(shares) if rtol is None else rtol) * largest_element
    wide = np.complex128 if "c" in (a.dtype.kind, b.dtype.kind) else np.float64
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.abs(a.astype(wide) - b.astype(wide))
    apart = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, apart)
    apart = np.where(np.isnan(apart), np.inf, apart)
    largest = float(apart.max())
    if largest <= allowed:
        return []
    at = tuple(int(i) for i in np.unravel_index(int(apart.argmax()), apart.shape))
    share = np.count_nonzero(apart > allowed) / apart.size
    said = (
        f"{_number(a[at])} beside {_number(b[at])} at {list(at)} of {list(a.shape)} "
        f"{' and '.join(dict.fromkeys(dtypes))}, {share:.0%} of the elements differ "
        f"by more than {allowed:.1e}"
    )
    return [Difference(name, kind, largest, allowed, said)]


def _real(dtype: str) -> str:
    return {"complex64": "float32", "complex128": "float64"}.get(dtype, dtype)


def _number(value: Any) -> str:
    return f"{value:.6g}" if np.asarray(value).dtype.kind in "fc" else str(value)


def _name_of(dtype: Any) -> str:
    return str(dtype).rpartition(".")[2]


def _some(names: Mapping[str, Any]) -> str:
    shown = [name for name in names if name][:4]
    return ", ".join(shown) + (", ..." if len(names) > len(shown) + 1 else "")
