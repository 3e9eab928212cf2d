"""Convolutions and their gradients as products of matrices whose elements are looked up.

With a channel c of a group, a tap t, a place o of the result and a place p of the input:

- the result is (channels out) x (c, t) by (c, t) x (image, o);
- the input's gradient (channels in) x (c out, t) by (c out, t) x (image, p);
- the weight's gradient (channels out) x (image, o) by (image, o) x (c, t).

Groups are the batches of the product. One and two dimensions are three with sizes of one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tangrad.plugin.render import KINDS, compute_type
from tangrad_source_kernels import products, text, tiles
from tangrad_source_kernels.unit import Unit

if TYPE_CHECKING:
    from tangrad_source_kernels.compiler import Compiler

# What is convolved is read with its strides; `of_x` are those of (image, channel, three places).
_GEOMETRY = (
    *(("of_x", 5), ("of_w", 5), ("of_y", 5)),
    *(("input", 3), ("kernel", 3), ("output", 3), ("stride", 3), ("padding", 3), ("dilation", 3)),
    ("channels_in", 0),
    ("channels_out", 0),
)

_PLACES = """
#define SPLIT(place, sizes, a, b, c, rest) \\
    const tk_int c = (place) % g.sizes[2], q_##c = (place) / g.sizes[2]; \\
    const tk_int b = q_##c % g.sizes[1], q_##b = q_##c / g.sizes[1]; \\
    const tk_int a = q_##b % g.sizes[0], rest = q_##b / g.sizes[0];
#define INSIDE(p, q, r, sizes) (p >= 0 && p < g.sizes[0] && q >= 0 && q < g.sizes[1] && \\
    r >= 0 && r < g.sizes[2])
#define AT(of, n, c, p, q, r) ((n) * g.of[0] + (c) * g.of[1] + (p) * g.of[2] + (q) * g.of[3] + \\
    (r) * g.of[4])
"""

# The element of the input that tap (i, j, l) of the window at (u, v, w) looks at.
_WINDOW = """
FN x_r tk_window(const TG_GLOBAL x_t *x, tk_int image, tk_int channel, tk_int tap, tk_int place,
                 const NUMBERS g) {
    SPLIT(tap, kernel, i, j, l, none)
    SPLIT(place, output, u, v, w, nothing)
    const tk_int p = u * g.stride[0] - g.padding[0] + i * g.dilation[0];
    const tk_int q = v * g.stride[1] - g.padding[1] + j * g.dilation[1];
    const tk_int r = w * g.stride[2] - g.padding[2] + l * g.dilation[2];
    if (!INSIDE(p, q, r, input)) return x_zero;
    return x_load(x[AT(of_x, image, channel, p, q, r)]);
}
"""

# The element of the result that tap (i, j, l) brings to the place (u, v, w) of the input.
_SOURCE = """
FN x_r tk_source(const TG_GLOBAL x_t *y, tk_int image, tk_int channel, tk_int tap, tk_int place,
                 const NUMBERS g) {
    SPLIT(tap, kernel, i, j, l, none)
    SPLIT(place, input, u, v, w, nothing)
    const tk_int a = u + g.padding[0] - i * g.dilation[0];
    const tk_int b = v + g.padding[1] - j * g.dilation[1];
    const tk_int c = w + g.padding[2] - l * g.dilation[2];
    const tk_int p = a / g.stride[0], q = b / g.stride[1], r = c / g.stride[2];
    if (a < 0 || b < 0 || c < 0 || p * g.stride[0] != a || q * g.stride[1] != b ||
        r * g.stride[2] != c || !INSIDE(p, q, r, output)) return x_zero;
    return x_load(y[AT(of_y, image, channel, p, q, r)]);
}
"""

_WEIGHT = """
FN x_r tk_weight(const TG_GLOBAL x_t *w, tk_int out, tk_int in, tk_int tap, const NUMBERS g) {
    SPLIT(tap, kernel, i, j, l, none)
    return x_load(w[AT(of_w, out, in, i, j, l)]);
}
"""

_TAPS = "(g.kernel[0] * g.kernel[1] * g.kernel[2])"
_INPUTS = "(g.input[0] * g.input[1] * g.input[2])"
_OUTPUTS = "(g.output[0] * g.output[1] * g.output[2])"

_FORMS = {
    "convolution": (
        _WINDOW + _WEIGHT,
        f"""
#define LEFT(group, m, k) tk_weight(w, (group) * g.channels_out + (m), (k) / {_TAPS}, \\
    (k) % {_TAPS}, g)
#define RIGHT(group, k, n) tk_window(x, (n) / {_OUTPUTS}, \\
    (group) * g.channels_in + (k) / {_TAPS}, (k) % {_TAPS}, (n) % {_OUTPUTS}, g)
#define WRITE(group, i, j, value) {{ SPLIT(j, output, p, q, r, image) \\
    y[AT(of_y, image, (group) * g.channels_out + (i), p, q, r)] = x_store(value); }}
""",
    ),
    "convolution_input": (
        _SOURCE + _WEIGHT,
        f"""
#define LEFT(group, m, k) tk_weight(w, (group) * g.channels_out + (k) / {_TAPS}, m, \\
    (k) % {_TAPS}, g)
#define RIGHT(group, k, n) tk_source(y, (n) / {_INPUTS}, \\
    (group) * g.channels_out + (k) / {_TAPS}, (k) % {_TAPS}, (n) % {_INPUTS}, g)
#define WRITE(group, i, j, value) {{ SPLIT(j, input, p, q, r, image) \\
    x[AT(of_x, image, (group) * g.channels_in + (i), p, q, r)] = x_store(value); }}
""",
    ),
    "convolution_weight": (
        _WINDOW,
        f"""
FN x_r tk_result(const TG_GLOBAL x_t *y, tk_int channel, tk_int k, const NUMBERS g) {{
    SPLIT(k, output, p, q, r, image)
    return x_load(y[AT(of_y, image, channel, p, q, r)]);
}}
#define LEFT(group, m, k) tk_result(y, (group) * g.channels_out + (m), k, g)
#define RIGHT(group, k, n) tk_window(x, (k) / {_OUTPUTS}, \\
    (group) * g.channels_in + (n) / {_TAPS}, (n) % {_TAPS}, (k) % {_OUTPUTS}, g)
#define WRITE(group, i, j, value) {{ SPLIT(j, kernel, p, q, r, in) \\
    w[AT(of_w, (group) * g.channels_out + (i), in, p, q, r)] = x_store(value); }}
""",
    ),
}


_FORMS["convolution_biased"] = (
    _FORMS["convolution"][0],
    _FORMS["convolution"][1].replace(
        "x_store(value)",
        "x_store(x_add(value, x_load(bias[(group) * g.channels_out + (i)])))",
    ),
)
_FORMS["convolution_weight_bias"] = (
    _FORMS["convolution_weight"][0],
    _FORMS["convolution_weight"][1]
    + """#define WRITE_ROW(group, i, value) bias[(group) * g.channels_out + (i)] = x_store(value);
""",
)


def kernel_for(driver: Compiler, op: Any, dtype: str) -> Callable[..., None] | None:
    """Return the kernel of a convolution or of one of its gradients."""
    if KINDS[dtype] not in "fc":
        return None
    name = op.name

    def kernel(outs: Any, args: Any) -> None:
        out, (first, second) = outs[0], args[:2]
        x, w, y, bias = {
            "convolution": (first, second, out, None),
            "convolution_biased": (first, second, out, args[2]),
            "convolution_input": (out, first, second, None),
            "convolution_weight": (first, out, second, None),
            "convolution_weight_bias": (first, out, second, outs[-1]),
        }[name]
        if not _empty(outs, x, w, y, bias):
            run(driver, name, dtype, (x, w, y, bias), args[-4:-1], args[-1])

    def checked(outs: Any, args: Any) -> None:
        if len(args[-4]) > 3:
            from tangrad.plugin import fallback

            fallback(op)(outs, args)
        else:
            kernel(outs, args)

    return checked


def _empty(outs: Any, x: Any, w: Any, y: Any, bias: Any) -> bool:
    """Write what a convolution without elements gives; return whether it is one."""
    if all(t.numel() for t in (x, w, y)):
        return False
    outs[0].zero_()
    if len(outs) > 1:
        bias.copy_(y.sum([d for d in range(y.ndim) if d != 1]))
    elif bias is not None:
        y.copy_(bias.reshape((-1,) + (1,) * (y.ndim - 2)).expand(y.shape))
    return True


def run(
    driver: Compiler,
    name: str,
    dtype: str,
    tensors: tuple[Any, Any, Any, Any],
    window: tuple[Sequence[int], Sequence[int], Sequence[int]],
    groups: int,
) -> None:
    """Compute one of the three tensors (input, weight, result) of the other two, with a bias."""
    x, w, y, bias = tensors
    ins, outs = x.shape[1] // groups, w.shape[0] // groups
    taps, images = text.count_of(w.shape[2:]), x.shape[0]
    inputs, outputs = (images * text.count_of(t.shape[2:]) for t in (x, y))
    by_weight = name.startswith("convolution_weight")
    sizes = outs, outputs, ins * taps
    if by_weight:
        sizes = outs, ins * taps, outputs
    elif name == "convolution_input":
        sizes = ins, inputs, outs * taps
    cut = tiles.cut(driver.dialect, dtype, groups, *sizes)
    if not by_weight and cut.parts > 1:
        cut = cut._replace(tiles=cut.tiles // cut.parts, parts=1, step=sizes[2])
    unit = driver.unit(
        (name, dtype, cut.tile, cut.parts > 1), lambda: _unit(driver, name, dtype, cut)
    )
    # What is side by side in memory: taps of a weight, places of an image.
    given = [*cut.numbers(*sizes), int(name != "convolution_input"), int(by_weight)]
    given += _geometry(x, w, y, window)
    given += [ins, outs]
    if bias is not None:
        bias = bias.contiguous()
    products.run(
        driver,
        unit,
        "convolve",
        cut,
        [x, w, y, bias],
        given,
        (groups, *sizes[:2]),
        row_sums=name == "convolution_weight_bias",
    )


def _geometry(x: Any, w: Any, y: Any, window: Any) -> list[int]:
    numbers: list[int] = []
    for tensor in (x, w, y):
        strides = tuple(tensor.stride())
        numbers += [*strides[:2], *_three(strides[2:], 0)]
    for tensor in (x, w, y):
        numbers += _three(tuple(tensor.shape)[2:], 1)
    for values, fill in zip(window, (1, 0, 1), strict=True):
        numbers += _three(tuple(values), fill)
    return numbers


def _three(values: tuple[int, ...], fill: int) -> list[int]:
    return [fill] * (3 - len(values)) + list(values)


def _unit(driver: Compiler, name: str, dtype: str, cut: tiles.Cut) -> Unit:
    buffers = (*((dtype, n) for n in ("x", "w", "y", "bias")), (compute_type(dtype), "parts"))
    fields = (*(("int64", n, 0) for n in tiles.FIELDS), *(("int64", n, c) for n, c in _GEOMETRY))
    frame = text.names(driver.dialect, x=dtype) + tiles.settings(driver.dialect, cut.tile)
    frame += f"#define FN {driver.dialect.function}\n#define NUMBERS convolve_numbers\n" + _PLACES
    made = tiles.kernels(
        "convolve",
        cut.parts > 1,
        row_sums=name == "convolution_weight_bias",
        buffers=buffers,
        numbers=fields,
        functions="".join(_FORMS[name]),
    )
    return Unit(driver, made, frame)
