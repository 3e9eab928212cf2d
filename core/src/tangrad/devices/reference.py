"""The reference device: every op evaluated by NumPy straight from its definition.

It is the oracle of all other devices, and serves "cpu" until a CPU backend is installed. It has
no kernels of its own: pointwise ops evaluate their expression, reductions and scans their
declaration, other ops the NumPy function in their definition.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tangrad import _C
from tangrad.dispatch.binding import call_by_name
from tangrad.tensor import arrays


def kernel_for(op: _C.Op, dtype: _C.dtype) -> Callable[..., Any] | None:
    """Return the Python kernel of an op for a promoted dtype, or None where NumPy has no say."""
    build = {"pointwise": pointwise, "reduction": reduction, "scan": scan, "kernel": general}.get(
        op.kind
    )
    return build(op, dtype) if build is not None else None


# --- pointwise -----------------------------------------------------------------------------------


def pointwise(op: _C.Op, dtype: _C.dtype) -> Callable[..., Any]:
    """Return the evaluator of an op's expression."""
    definition = op.definition
    compute = dtype.compute
    programs: dict[Any, Any] = {}

    def program_for(types: tuple[tuple[str, str], ...], results: tuple[str, ...]) -> Any:
        key = (types, results)
        if key not in programs:
            program = definition.expression.typed(dict(types), compute, list(results))
            programs[key] = (program, program.numpy())
        return programs[key]

    def kernel(outs: tuple[Any, ...], inputs: tuple[Any, ...], params: dict[str, Any]) -> None:
        types, operands = [], []
        for name, value in zip(definition.inputs, inputs, strict=True):
            array, kind = operand(value, compute)
            types.append((name, kind))
            operands.append(array)
        results = tuple(o.dtype.name if o.dtype.codec is None else o.dtype.compute for o in outs)
        program, function = program_for(tuple(types), results)
        numbers = {k: v for k, v in params.items() if k in definition.params}
        if program.indexed:
            numbers["index"] = element_index(outs[0].shape)
        named = dict(zip(definition.inputs, operands, strict=True))
        try:
            computed = function(*[named[name] for name in program.inputs], **numbers)
        except ZeroDivisionError:
            raise RuntimeError(f"ZeroDivisionError: {op.title} of integers by zero") from None
        for out, result in zip(outs, computed, strict=True):
            arrays.store(out, result)

    return kernel


def operand(value: Any, compute: str) -> tuple[Any, str]:
    """Return (array, dtype name) of a tensor or number in an expression."""
    import numpy as np

    if isinstance(value, _C.Tensor):
        if value.dtype.codec is not None:
            return arrays.values(value), value.dtype.compute
        return arrays.raw(value), value.dtype.name
    with np.errstate(all="ignore"):
        return np.asarray(0 if value is None else value).astype(compute), compute


def element_index(shape: Any) -> Any:
    """Return the linear index of each element of a shape."""
    import numpy as np

    count = 1
    for size in shape:
        count *= size
    return np.arange(count, dtype=np.int64).reshape(tuple(shape))


# --- reductions ----------------------------------------------------------------------------------

# NumPy's functions for the folds that have a name.
_UFUNCS = {"sum": "add", "product": "multiply", "maximum": "maximum", "minimum": "minimum"}


def reduction(op: _C.Op, dtype: _C.dtype) -> Callable[..., Any]:
    """Return the evaluator of a fold over dimensions."""
    definition = op.definition
    compute = dtype.compute

    def kernel(
        outs: tuple[Any, ...], x: Any, dims: tuple[int, ...], params: dict[str, Any]
    ) -> None:
        import numpy as np

        array = arrays.values(x)
        kept = [d for d in range(array.ndim) if d not in dims]
        flat = (
            array.transpose([*kept, *dims]).reshape([array.shape[d] for d in kept] + [-1])
            if array.size
            else np.zeros(
                [array.shape[d] for d in kept] + [count_of(array.shape, dims)], array.dtype
            )
        )
        states = mapped(definition, flat, compute, params)
        folded = fold(definition, states, compute, params)
        results = finished(definition, folded, compute, params, flat.shape[-1], outs)
        for out, result in zip(outs, results, strict=True):
            arrays.store(out, np.broadcast_to(result, flat.shape[:-1]))

    return kernel


def count_of(shape: tuple[int, ...], dims: tuple[int, ...]) -> int:
    """Multiply the sizes of some dimensions."""
    n = 1
    for d in dims:
        n *= shape[d]
    return n


_programs: dict[Any, Any] = {}


def typed_step(
    definition: Any,
    step: str,
    types: dict[str, str],
    compute: str,
    results: list[str] | None,
    exact: tuple[str, ...] = (),
) -> tuple[Any, Any]:
    """Return (program, NumPy function) of a fold's map, combine or finalize, typed once."""
    key = (
        definition,
        step,
        tuple(types.items()),
        compute,
        None if results is None else tuple(results),
    )
    found = _programs.get(key)
    if found is None:
        expression = getattr(definition, step)
        used = {k: v for k, v in types.items() if k in expression.free}
        program = expression.typed(used, compute, results, exact=exact)
        found = _programs[key] = (program, program.numpy())
    return found


def mapped(definition: Any, array: Any, compute: str, params: dict[str, Any]) -> list[Any]:
    """Apply the map: one array per value of the state."""
    import numpy as np

    types = {definition.inputs[0]: compute, "index": "int64"}
    program, function = typed_step(definition, "map", types, compute, None, ("index",))
    given = {
        definition.inputs[0]: array.astype(compute, copy=False),
        "index": np.arange(array.shape[-1]),
    }
    numbers = {k: v for k, v in params.items() if k in definition.params}
    states = function(*[given[name] for name in program.inputs], **numbers)
    return [np.broadcast_to(s, array.shape) for s in states]


def fold(definition: Any, states: list[Any], compute: str, params: dict[str, Any]) -> list[Any]:
    """Combine states along the last dimension, pairwise (a tree of depth log n)."""
    import numpy as np

    n = states[0].shape[-1]
    if n == 0:
        return empty_fold(definition, states)
    ufunc = _UFUNCS.get(definition.fold)
    if ufunc is not None:
        with np.errstate(all="ignore"):
            wide = (
                {"float32": "float64", "complex64": "complex128"}.get(states[0].dtype.name)
                if ufunc in ("add", "multiply")
                else None
            )
            extra = (
                {"dtype": wide}
                if wide
                else {"dtype": states[0].dtype}
                if ufunc in ("add", "multiply")
                else {}
            )
            return [getattr(np, ufunc).reduce(states[0], axis=-1, **extra).astype(states[0].dtype)]
    combine = combiner(definition, states, compute, params)
    while n > 1:
        half = n // 2
        merged = combine([s[..., :half] for s in states], [s[..., half : 2 * half] for s in states])
        states = [
            np.concatenate([m, s[..., 2 * half :]], -1) for m, s in zip(merged, states, strict=True)
        ]
        n = states[0].shape[-1]
    return [s[..., 0] for s in states]


def empty_fold(definition: Any, states: list[Any]) -> list[Any]:
    """Return the identity in the shape of the result."""
    import numpy as np

    identity = definition.identity
    values = identity if isinstance(identity, (tuple, list)) else [identity] * len(states)
    return [
        np.full(s.shape[:-1], 0 if v is None else v).astype(s.dtype)
        for v, s in zip(values, states, strict=True)
    ]


def combiner(
    definition: Any, states: list[Any], compute: str, params: dict[str, Any]
) -> Callable[..., list[Any]]:
    """Return the function that combines two lists of state arrays."""
    names = [*definition.state_names("a"), *definition.state_names("b")]
    kinds = [s.dtype.name for s in states]
    types = dict(zip(names, kinds * 2, strict=True))
    program, function = typed_step(definition, "combine", types, compute, kinds, tuple(names))
    numbers = {k: v for k, v in params.items() if k in definition.params}

    def combine(left: list[Any], right: list[Any]) -> list[Any]:
        given = dict(zip(names, [*left, *right], strict=True))
        return list(function(*[given[name] for name in program.inputs], **numbers))

    return combine


def finished(
    definition: Any, states: list[Any], compute: str, params: dict[str, Any], n: int, outs: Any
) -> Any:
    """Apply the last step of a fold."""
    if definition.finalize_text is None:
        return states
    names = definition.state_names("a")
    types = {name: s.dtype.name for name, s in zip(names, states, strict=True)}
    results = [o.dtype.name if o.dtype.codec is None else o.dtype.compute for o in outs]
    program, function = typed_step(definition, "finalize", types, compute, results, tuple(names))
    given = dict(zip(names, states, strict=True))
    numbers = {k: v for k, v in params.items() if k in definition.params and k in program.params}
    return function(*[given[name] for name in program.inputs], n=n, **numbers)


# --- scans ---------------------------------------------------------------------------------------

_ACCUMULATE = {"sum": "add", "product": "multiply"}


def scan(op: _C.Op, dtype: _C.dtype) -> Callable[..., Any]:
    """Return the evaluator of a running fold along one dimension."""
    definition = op.definition
    compute = dtype.compute

    def kernel(outs: tuple[Any, ...], x: Any, dim: int, params: dict[str, Any]) -> None:
        import numpy as np

        array = arrays.values(x)
        moved = np.moveaxis(array, dim, -1) if array.ndim else array.reshape(1)
        states = mapped(definition, moved, compute, params)
        running = accumulate(definition, states, compute, params)
        results = finished(definition, running, compute, params, moved.shape[-1], outs)
        for out, result in zip(outs, results, strict=True):
            result = np.moveaxis(result, -1, dim) if array.ndim else result.reshape(())
            arrays.store(out, result)

    return kernel


def accumulate(
    definition: Any, states: list[Any], compute: str, params: dict[str, Any]
) -> list[Any]:
    """Combine each state with all before it along the last dimension."""
    import numpy as np

    ufunc = _ACCUMULATE.get(definition.fold)
    if ufunc is not None:
        with np.errstate(all="ignore"):
            wide = {"float32": "float64", "complex64": "complex128"}.get(
                states[0].dtype.name, states[0].dtype
            )
            return [
                getattr(np, ufunc)
                .accumulate(states[0], axis=-1, dtype=wide)
                .astype(states[0].dtype)
            ]
    combine = combiner(definition, states, compute, params)
    out = [np.array(s) for s in states]
    current = [s[..., 0] for s in states]
    for i in range(1, states[0].shape[-1]):
        current = combine(current, [s[..., i] for s in states])
        for o, c in zip(out, current, strict=True):
            o[..., i] = c
    return out


# --- everything else
# --------------------------------------------------------------------------------


def general(op: _C.Op, dtype: _C.dtype) -> Callable[..., Any] | None:
    """Return the kernel that calls the definition's NumPy function."""
    definition = op.definition
    if definition.reference is None:
        return None

    import numpy as np

    places = _places(definition)
    # The core's own are tested.
    checked = not definition.module.startswith("tangrad.")

    def kernel(outs: tuple[Any, ...] | None, args: tuple[Any, ...]) -> Any:
        with np.errstate(all="ignore"):
            if places is not None:
                result = definition.reference(np, *[of(args[k]) for k, of in places])
            else:
                named = dict(zip(definition.parameter_names, map(as_arrays, args), strict=True))
                result = call_by_name(definition.reference, {**named, "np": np})
        results = result if isinstance(result, tuple) else (result,)
        if outs is None:
            metas = definition._dtypes(args, len(results))
            like = next(a for a in args if isinstance(a, _C.Tensor))
            return tuple(new_tensor(r, d, like.device) for r, d in zip(results, metas, strict=True))
        if checked:
            _check_results(op, outs, results)
        for out, r in zip(outs, results, strict=True):
            arrays.store(out, r)
        return None

    return kernel


def _check_results(op: _C.Op, outs: tuple[Any, ...], results: tuple[Any, ...]) -> None:
    """Refuse results of a reference that are not what its definition says of their shapes."""
    import numpy as np

    found = [np.shape(r) for r in results]
    expected = [tuple(o.shape) for o in outs]
    if found != expected:
        raise RuntimeError(
            f"the reference of '{op.title}' returned {len(found)} results of shapes "
            f"{', '.join(map(str, found))}; its schema and shape rule say "
            f"{', '.join(map(str, expected))}"
        )


def _places(definition: Any) -> list[tuple[int, Callable[[Any], Any]]] | None:
    """Return which arguments a reference `(np, ...)` takes, where its signature is plain.

    Each comes with what is made of it: arrays, or under NAME_meta the tensor, for its dtype.
    """
    code = definition.reference.__code__
    names = code.co_varnames[: code.co_argcount]
    if code.co_flags & 0x0C or code.co_kwonlyargcount or names[:1] != ("np",):
        return None
    index = definition.parameter_names.index
    return [
        (index(name[:-5]), _as_it_is) if name.endswith("_meta") else (index(name), as_arrays)
        for name in names[1:]
    ]


def _as_it_is(value: Any) -> Any:
    return value


def as_arrays(value: Any) -> Any:
    """Return tensors as arrays, looking into lists; anything else as it is."""
    if isinstance(value, _C.Tensor):
        return arrays.values(value)
    if isinstance(value, (list, tuple)) and any(isinstance(v, _C.Tensor) for v in value):
        return [as_arrays(v) for v in value]
    return value


def new_tensor(array: Any, dtype: _C.dtype, device: Any) -> _C.Tensor:
    """Return a new tensor with an array's values."""
    import numpy as np

    array = np.asarray(array)
    out = _C.empty(tuple(array.shape), dtype, device)
    arrays.store(out, array)
    return out
