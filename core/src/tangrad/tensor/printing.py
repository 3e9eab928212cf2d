"""Text of a tensor, laid out as PyTorch lays it out.

Only what will be printed is brought to Python: a dimension that is summarised is first
narrowed to its two ends, so that printing a large device tensor copies a handful of numbers.
"""

from __future__ import annotations

import math
from typing import Any

__all__ = ["get_printoptions", "printoptions", "set_printoptions", "tensor_repr"]

_PROFILES: dict[str, dict[str, Any]] = {
    "default": {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80},
    "short": {"precision": 2, "threshold": 1000, "edgeitems": 2, "linewidth": 80},
    "full": {"precision": 4, "threshold": math.inf, "edgeitems": 3, "linewidth": 80},
}
_options: dict[str, Any] = {**_PROFILES["default"], "sci_mode": None}

# Where elements were left out. Distinct from every value a tensor can hold.
_GAP = Ellipsis


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Set how tensors are printed.

    Args:
        precision: digits after the decimal point (default 4).
        threshold: number of elements above which a tensor is summarised (default 1000).
        edgeitems: elements shown at each end of a summarised dimension (default 3).
        linewidth: characters per line (default 80).
        profile: "default", "short" or "full"; sets the four above, which then override it.
        sci_mode: True or False forces scientific notation on or off; None lets the values decide.

    Raises:
        ValueError: the profile is unknown or a number is negative.
        TypeError: an option is not a number.
    """
    chosen: dict[str, Any] = {}
    if profile is not None:
        if profile.lower() not in _PROFILES:
            raise ValueError(
                f"set_printoptions: unknown profile {profile!r}; choose one of {sorted(_PROFILES)}"
            )
        chosen.update(_PROFILES[profile.lower()])
    explicit = {
        "precision": precision,
        "threshold": threshold,
        "edgeitems": edgeitems,
        "linewidth": linewidth,
    }
    chosen.update((name, value) for name, value in explicit.items() if value is not None)
    for name, value in chosen.items():
        _check_option(name, value)
    # PyTorch resets sci_mode on every call that does not name it.
    _options.update(chosen, sci_mode=sci_mode)


def _check_option(name: str, value: Any) -> None:
    kinds = (int, float) if name == "threshold" else (int,)
    if not isinstance(value, kinds) or isinstance(value, bool):
        raise TypeError(
            f"set_printoptions: {name} must be a number, got {type(value).__name__} {value!r}"
        )
    if not value >= 0:
        raise ValueError(f"set_printoptions: {name} must not be negative, got {value!r}")


def get_printoptions() -> dict[str, Any]:
    """Return a copy of the print options, as a dict of the names of `set_printoptions`."""
    return dict(_options)


class printoptions:
    """Set print options within a `with` block.

    Args:
        **options: as for `set_printoptions`.
    """

    def __init__(self, **options: Any) -> None:
        self._wanted = options

    def __enter__(self) -> None:
        self._previous = get_printoptions()
        set_printoptions(**self._wanted)

    def __exit__(self, *exc_info: object) -> None:
        _options.update(self._previous)


def tensor_repr(x: Any, tensor_contents: str | None = None, default_dtype: Any = None) -> str:
    """Return the text of a tensor, exactly as PyTorch lays it out.

    Args:
        x: a tensor of any shape and dtype.
        tensor_contents: shown in place of the values if given.
        default_dtype: the floating-point dtype that is not mentioned in the text; the
            package's default dtype if None.

    Returns:
        For example ``tensor([1., 2.], requires_grad=True)``.
    """
    if default_dtype is None:
        from tangrad import get_default_dtype

        default_dtype = get_default_dtype()
    families = [cls.__name__ for cls in type(x).__mro__]
    name = families[0] if families[0] not in ("Tensor", "Parameter") else "tensor"
    head = f"{name}("
    body = _contents(x, len(head)) if tensor_contents is None else tensor_contents
    text = _append_suffixes(head + body, _suffixes(x, default_dtype), len(head))
    if "Parameter" in families:
        return f"Parameter containing:\n{text}"
    return f"Parameter({text})" if getattr(x, "_is_param", False) else text


def layout_repr(x: Any) -> str:
    """Return the text of a tensor of another layout: its components, then what is said of it.

    Args:
        x: such a tensor.

    Returns:
        For example ``tensor(diagonal=tensor([1., 2.]), size=(2, 2), layout=tangrad.diagonal)``.
    """
    from tangrad import get_default_dtype

    default_dtype = get_default_dtype()
    definition, indent = x.layout.definition, len("tensor(")
    parts = [
        f"{name}=tensor({_component(component, indent + len(name) + len('=tensor('))})"
        if name
        else _component(component, indent)
        for name, component in definition.printed(x).items()
    ]
    suffixes = [f"device='{x.device}'"] if x.device.type != "cpu" else []
    suffixes += definition.remarks(x)
    if not definition.remarks_alone:
        suffixes += [f"dtype={x.dtype}"] if x.dtype != default_dtype else []
        suffixes.append(f"layout={x.layout}")
    suffixes += _gradient_suffixes(x)
    body = f",\n{' ' * indent}".join(parts)
    text = _append_suffixes("tensor(" + body, suffixes, indent, definition.remarks_below)
    return f"Parameter containing:\n{text}" if type(x).__name__ == "Parameter" else text


def _component(x: Any, indent: int) -> str:
    text = _contents(x, indent)
    return text if x.numel() else f"{text}, size={tuple(x.shape)}"


# --- suffixes ------------------------------------------------------------------------------


def _suffixes(x: Any, default_dtype: Any) -> list[str]:
    suffixes = []
    has_values = _has_values(x)
    if x.device.type != "cpu":
        suffixes.append(f"device='{x.device}'")
    if not has_values or (x.numel() == 0 and x.dim() != 1):
        suffixes.append(f"size={tuple(x.shape)}")
    if not _dtype_is_evident(x, default_dtype, has_values):
        suffixes.append(f"dtype={x.dtype}")
    return suffixes + _gradient_suffixes(x)


def _dtype_is_evident(x: Any, default_dtype: Any, has_values: bool) -> bool:
    """Tell whether the values alone let a reader know the dtype."""
    if x.dtype == default_dtype:
        return True
    if has_values and x.numel() == 0:
        return False
    name = _dtype_name(x.dtype)
    return name in ("int64", "bool") or name == _complex_of(_dtype_name(default_dtype))


def _dtype_name(dtype: Any) -> str:
    return str(dtype).rpartition(".")[2]


def _complex_of(name: str) -> str:
    return "complex128" if name == "float64" else "complex64"


def _gradient_suffixes(x: Any) -> list[str]:
    try:
        grad_fn = x.grad_fn
    except RuntimeError:
        # A view whose base was overwritten has no history to show; printing must not fail on it.
        return ["grad_fn=<Invalid>"]
    if grad_fn is not None:
        return [f"grad_fn=<{grad_fn.name().rpartition('::')[2]}>"]
    return ["requires_grad=True"] if x.requires_grad else []


def _append_suffixes(text: str, suffixes: list[str], indent: int, below: bool = False) -> str:
    parts = [text]
    # The line so far counts its newline and the parenthesis to come.
    column = len(text) - text.rfind("\n") + 1
    for i, suffix in enumerate(suffixes):
        if (below and i == 0) or column + len(suffix) + 2 > _options["linewidth"]:
            parts.append(",\n" + " " * indent + suffix)
            column = indent + len(suffix)
        else:
            parts.append(", " + suffix)
            column += len(suffix) + 2
    return "".join(parts) + ")"


# --- values --------------------------------------------------------------------------------


def _contents(x: Any, indent: int) -> str:
    if not _has_values(x):
        return "..."
    if x.numel() == 0:
        return "[]"
    if _dtype_name(x.dtype).startswith(("float4_", "bits")):  # no numbers: their bits are shown
        bits = x.detach().view(_bits_dtype(x))
        return _contents(bits.float() if x.dtype.is_floating_point else bits, indent)
    values = _printed_values(x.detach())
    formatter = _formatter_for(x, _flatten(values, x.dim()))
    return _layout(values, x.dim(), indent, formatter)


def _has_values(x: Any) -> bool:
    """Tell whether elements can be read: `meta` has none, a storage may have been resized to 0."""
    if x.device.type == "meta":
        return False
    wraps = hasattr(type(x), "__torch_dispatch__")  # the handler knows the values
    return wraps or not x.numel() or bool(x.untyped_storage().nbytes())


def _bits_dtype(x: Any) -> Any:
    from tangrad import _C

    return _C.dtype_by_name(f"uint{8 * x.dtype.itemsize}")


def _printed_values(x: Any) -> Any:
    """Return nested lists of the elements to print, `_GAP` where elements were left out."""
    if x.numel() <= _options["threshold"]:
        return x.tolist()
    return _edges(x, 0)


def _edges(x: Any, dim: int) -> Any:
    count = _options["edgeitems"]
    if dim == x.dim():
        return x.tolist()
    size = x.shape[dim]
    if size <= 2 * count:
        return _edges(x, dim + 1)
    first = _edges(x.narrow(dim, 0, count), dim + 1)
    last = _edges(x.narrow(dim, size - count, count), dim + 1)
    return _join(first, last, dim)


def _join(first: Any, last: Any, depth: int) -> Any:
    if depth == 0:
        return [*first, _GAP, *last]
    return [_GAP if a is _GAP else _join(a, b, depth - 1) for a, b in zip(first, last, strict=True)]


def _flatten(values: Any, dim: int) -> list[Any]:
    if dim == 0:
        return [values]
    if dim == 1:
        return [value for value in values if value is not _GAP]
    return [leaf for row in values if row is not _GAP for leaf in _flatten(row, dim - 1)]


def _layout(values: Any, dim: int, indent: int, formatter: Any) -> str:
    if dim == 0:
        return formatter(values)
    if dim == 1:
        return _vector(values, indent, formatter)
    rows = [
        "..." if row is _GAP else _layout(row, dim - 1, indent + 1, formatter) for row in values
    ]
    separator = "," + "\n" * (dim - 1) + " " * (indent + 1)
    return f"[{separator.join(rows)}]"


def _vector(values: list[Any], indent: int, formatter: Any) -> str:
    if values == [_GAP]:
        return "[...]"
    per_line = max(1, (_options["linewidth"] - indent) // (formatter.width + 2))
    words = [" ..." if value is _GAP else formatter(value) for value in values]
    lines = [", ".join(words[i : i + per_line]) for i in range(0, len(words), per_line)]
    return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"


# --- one element ---------------------------------------------------------------------------


def _formatter_for(x: Any, values: list[Any]) -> Any:
    if x.dtype.is_complex:
        return _Complex(values)
    if x.dtype.is_floating_point:
        return _Real(values)
    return _Plain(values)


class _Plain:
    """Right-align integers and truth values."""

    def __init__(self, values: list[Any]) -> None:
        self.width = max((len(str(value)) for value in values), default=1)

    def __call__(self, value: Any) -> str:
        return str(value).rjust(self.width)


class _Real:
    """Choose one notation for all values: whole numbers, fixed point or scientific."""

    def __init__(self, values: list[float]) -> None:
        finite = [value for value in values if value != 0 and math.isfinite(value)]
        self._pattern = "{:.0f}."
        self.width = 1
        if not finite:
            return
        self._pattern = _notation(finite)
        self.width = max(len(self._pattern.format(value)) for value in finite)

    def __call__(self, value: float) -> str:
        pattern = self._pattern if math.isfinite(value) else "{}"
        return pattern.format(value).rjust(self.width)


def _notation(finite: list[float]) -> str:
    whole = all(value.is_integer() for value in finite)
    scientific = _options["sci_mode"]
    if scientific is None:
        scientific = _spreads_too_far(finite, whole)
    if scientific:
        return f"{{:.{_options['precision']}e}}"
    return "{:.0f}." if whole else f"{{:.{_options['precision']}f}}"


def _spreads_too_far(finite: list[float], whole: bool) -> bool:
    largest = max(map(abs, finite))
    smallest = min(map(abs, finite))
    if largest / smallest > 1000.0 or largest > 1.0e8:
        return True
    return smallest < 1.0e-4 and not whole


class _Complex:
    """Format real and imaginary parts, each in a notation of its own."""

    def __init__(self, values: list[complex]) -> None:
        self._real = _Real([value.real for value in values])
        self._imag = _Real([value.imag for value in values])
        self.width = self._real.width + self._imag.width + 1

    def __call__(self, value: complex) -> str:
        imaginary = self._imag(value.imag).lstrip()
        sign = "" if imaginary.startswith("-") else "+"
        return f"{self._real(value.real)}{sign}{imaginary}j"
