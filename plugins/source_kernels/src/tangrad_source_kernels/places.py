"""Elements read and written at places along one dimension: gather, scatter, index_select, ...

What writes at places that may be named more than once is done place after place by one lane per
column, in order, so that results are the same each time. Of a long vector the places are sorted
first, and a lane for each element that is written finds its own, in their order. Where whole rows
are added at many places, a block owns each row that is written instead, and looks through the
places for its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import tangrad
from tangrad.plugin import location
from tangrad.plugin.render import KINDS, compute_type, suffix
from tangrad_source_kernels import numbers, text
from tangrad_source_kernels.dialect import Kernel
from tangrad_source_kernels.reports import REPORT
from tangrad_source_kernels.sorting import rows_sorted
from tangrad_source_kernels.unit import Unit

if TYPE_CHECKING:
    from tangrad_source_kernels.compiler import Compiler

_RANKS = (4, 64)

# Splits `i`, an element of the index, into its column `c` and place `j`; offsets by strides.
_LOCATE = """        tk_int rest = i{offsets};
        for (int d = RANK - 1; d >= 0 && rest > 0; --d) {{
            const tk_int k = rest % g.shape[d];
            rest /= g.shape[d];
{adds}
        }}
"""


def locate(*names: str) -> str:
    """Return statements that decompose `i` in `g.shape`: at_NAME by the strides `g.of_NAME`."""
    offsets = "".join(f", at_{name} = 0" for name in names)
    adds = "\n".join(f"            at_{name} += k * g.of_{name}[d];" for name in names)
    return _LOCATE.format(offsets=offsets, adds=adds)


def message(dim: int, x: Any, op: str = "") -> str:
    """Return what is reported of an index of a tensor's dimension, by an op if that is told."""
    known = f"index {{index}} is out of bounds for dimension {dim} with size {{bound}}"
    return f"{op and op + '(): '}{known}, of a tensor of shape {tuple(x.shape)}"


def copied(out: Any, x: Any) -> None:
    """Begin with the values of the tensor that an op writes into, unless it is the same memory."""
    if location(out) != location(x) or out.stride() != x.stride():
        out.copy_(x)


def at_least_1d(x: Any) -> Any:
    """Return a vector in the place of a number."""
    return x.reshape((1,)) if x.ndim == 0 else x


def rank_of(ndim: int) -> int:
    """Return the rank that a unit is compiled for."""
    return next(rank for rank in _RANKS if ndim <= rank)


def padded(values: Any, rank: int, fill: int) -> list[int]:
    """Return sizes or strides with leading dimensions of size one."""
    values = list(values)
    return [fill] * (rank - len(values)) + values


def kernel_for(driver: Compiler, op: Any, dtype: str) -> Callable[..., None] | None:
    """Return the kernel of an op that reads or writes along one dimension."""
    if op.name == "gather":
        return _Gather(driver, dtype)
    if op.name == "index_select":
        return _IndexSelect(driver, dtype)
    if op.name in _WRITES:
        return _IndexWrite(driver, op.name, dtype)
    return _Scatter(driver, op.name, dtype)


class _Along:
    """What all of them have in common."""

    def __init__(self, driver: Compiler, dtype: str) -> None:
        self.driver, self.dtype = driver, dtype

    def frame(self, rank: int) -> str:
        return text.names(self.driver.dialect, x=self.dtype) + REPORT + f"#define RANK {rank}\n"

    def fields(self, *names: str) -> tuple[tuple[str, str, int], ...]:
        return tuple(("int64", name, 0) for name in names)

    def strides(self, rank: int, *names: str) -> tuple[tuple[str, str, int], ...]:
        return (("int64", "shape", rank), *(("int64", f"of_{name}", rank) for name in names))


class _Gather(_Along):
    def __call__(self, outs: Any, args: Any) -> None:
        """Read: the kernel, as the core calls it."""
        x, dim, index, _ = args
        if index.numel() == 0:
            return
        x, places = at_least_1d(x), at_least_1d(index).contiguous()
        driver, device, rank = self.driver, x.device.index, rank_of(x.ndim)
        site = driver.reports.site(RuntimeError, message(dim, x, "gather"))
        integers = places.dtype.name
        key = ("gather", self.dtype, integers, rank)
        unit = driver.unit(key, lambda: self._unit(rank, integers))
        # The index takes the place of the position along the dimension.
        strides = [0 if d == dim else s for d, s in enumerate(x.stride())]
        with text.Result(*outs) as out:
            given = [places.numel(), site, x.shape[dim], x.stride(dim)]
            given += [*padded(places.shape, rank, 1), *padded(strides, rank, 0)]
            buffers = [out, x, places, driver.error_cell(device)]
            unit.launch("gather", driver.blocks_for(places.numel()), buffers, given, device)
        driver.reports.expect(device)

    def _unit(self, rank: int, integers: str) -> Unit:
        body = locate("x") + (
            "        const tk_int place = (tk_int)places[i];\n"
            "        if (place < 0 || place >= g.size) { TG_REPORT(place, g.size); }\n"
            "        else y[i] = x[at_x + place * g.step];"
        )
        buffers = (("y", self.dtype), ("x", self.dtype), ("places", integers), ("err", "int64"))
        fields = (*self.fields("n", "site", "size", "step"), *self.strides(rank, "x"))
        named = tuple((dtype, name) for name, dtype in buffers)
        kernel = Kernel("gather", named, fields, text.elements(body))
        return Unit(self.driver, [kernel], self.frame(rank))


class _IndexSelect(_Along):
    def __call__(self, outs: Any, args: Any) -> None:
        """Read: the kernel, as the core calls it."""
        x, dim, index = args
        if outs[0].numel() == 0:
            return
        x, places = at_least_1d(x).contiguous(), at_least_1d(index).contiguous()
        driver, device, integers = self.driver, x.device.index, places.dtype.name
        site = driver.reports.site(IndexError, message(dim, x, "index_select"))
        unit = driver.unit(("index_select", self.dtype, integers), lambda: self._unit(integers))
        with text.Result(*outs) as out:
            inner = text.count_of(x.shape[dim + 1 :])
            given = [out.numel(), site, x.shape[dim], places.numel(), inner]
            buffers = [out, x, places, driver.error_cell(device)]
            unit.launch("select", driver.blocks_for(out.numel()), buffers, given, device)
        driver.reports.expect(device)

    def _unit(self, integers: str) -> Unit:
        body = """        const tk_int inner = i % g.inner, above = i / g.inner;
        const tk_int outer = above / g.count, place = (tk_int)places[above % g.count];
        if (place < 0 || place >= g.size) { TG_REPORT(place, g.size); }
        else y[i] = x[(outer * g.size + place) * g.inner + inner];"""
        buffers = ((self.dtype, "y"), (self.dtype, "x"), (integers, "places"), ("int64", "err"))
        fields = self.fields("n", "site", "size", "count", "inner")
        return Unit(self.driver, [Kernel("select", buffers, fields, text.elements(body))], REPORT)


def _combined(dtype: str, how: str, before: str, value: str) -> str:
    """Return the stored combination of what is there and what is written."""
    if how == "set":
        return value
    if KINDS[dtype] == "b":
        sign = {"add": "|", "multiply": "&", "max": "|", "min": "&"}[how]
        return f"({before} {sign} {value})"
    function = {"add": "add", "multiply": "mul", "max": "maximum", "min": "minimum"}[how]
    helper = f"tg_{function}_{suffix(compute_type(dtype))}"
    return f"x_store({helper}(x_load({before}), x_load({value})))"


# Places up to which one lane writes a vector's elements one after the other.
_FEW = 64

_BISECTED = """        if (i == 0) {
            const tk_int least = ordered[0], most = ordered[g.count - 1];
            if (least < 0) TG_REPORT(least, g.n);
            else if (most >= g.n) TG_REPORT(most, g.n);
        }
        tk_int low = 0, high = g.count;
        while (low < high) {
            const tk_int middle = (low + high) / 2;
            if (ordered[middle] < i) low = middle + 1;
            else high = middle;
        }
        const tk_int at = i * g.step;
        for (tk_int j = low; j < g.count && ordered[j] == i; ++j) y[at] = @WRITTEN;"""


class _Scatter(_Along):
    """scatter_src, scatter_value, scatter_add, scatter_multiply, scatter_extreme."""

    def __init__(self, driver: Compiler, name: str, dtype: str) -> None:
        super().__init__(driver, dtype)
        self.name = name

    def __call__(self, outs: Any, args: Any) -> None:
        """Write: the kernel, as the core calls it."""
        x, dim, index, source = args[:4]
        out = outs[0]
        copied(out, x)
        if index.numel() == 0 or out.numel() == 0:
            return
        how = {"scatter_add": "add", "scatter_multiply": "multiply"}.get(self.name, "set")
        if self.name == "scatter_extreme":
            how = "max" if args[4] else "min"
        valued = self.name == "scatter_value"
        target, places = at_least_1d(out), at_least_1d(index)
        if target.ndim == 1 and places.numel() > _FEW and self.driver.dialect.lanes > 1:
            self._sorted(target, places, source, how, valued)
            return
        driver, device, rank = self.driver, x.device.index, rank_of(target.ndim)
        site = driver.reports.site(RuntimeError, message(dim, target, "scatter() or index_reduce"))
        integers = places.dtype.name
        given = [places.numel() // places.shape[dim], site, target.shape[dim], target.stride(dim)]
        given += [places.shape[dim], places.stride(dim)]
        tensors = [target, places]
        if valued:
            given.append(0)
        else:
            source = at_least_1d(source)
            tensors.append(source)
            given.append(source.stride(dim))
        given += padded([1 if d == dim else n for d, n in enumerate(places.shape)], rank, 1)
        for tensor in (target, places, source if not valued else places):
            given += padded([0 if d == dim else s for d, s in enumerate(tensor.stride())], rank, 0)
        if valued:
            given += numbers.encode(source, self.dtype)
        key = ("scatter", self.dtype, integers, rank, how, valued)
        unit = driver.unit(key, lambda: self._unit(rank, integers, how, valued))
        buffers = [target, places, None if valued else source, driver.error_cell(device)]
        unit.launch("scatter", driver.blocks_for(given[0]), buffers, given, device)
        driver.reports.expect(device)

    def _sorted(self, target: Any, places: Any, source: Any, how: str, valued: bool) -> None:
        """Write into a vector: each element by a lane, which finds its places by bisection."""
        driver, device = self.driver, target.device.index
        ordered, order = rows_sorted(driver, places.to(tangrad.int64).contiguous(), False)
        site = driver.reports.site(RuntimeError, message(0, target, "scatter() or index_reduce"))
        given = [target.numel(), site, places.numel(), target.stride(0)]
        given.append(0 if valued else at_least_1d(source).stride(0))
        given += numbers.encode(source if valued else 0, self._compute())
        unit = driver.unit(
            ("scatter_sorted", self.dtype, how, valued), lambda: self._sorted_unit(how, valued)
        )
        buffers = [target, ordered, order, None if valued else source, driver.error_cell(device)]
        unit.launch("scatter", driver.blocks_for(target.numel()), buffers, given, device)
        driver.reports.expect(device)

    def _sorted_unit(self, how: str, valued: bool) -> Unit:
        value = "s[order[j] * g.step_s]"
        if valued:
            value = f"x_store({numbers.text('value', self._compute(), self.driver.dialect)})"
        body = _BISECTED.replace("@WRITTEN", _combined(self.dtype, how, "y[at]", value))
        buffers = ((self.dtype, "y"), ("int64", "ordered"), ("int64", "order"), (self.dtype, "s"))
        fields = self.fields("n", "site", "count", "step", "step_s")
        fields += tuple(numbers.fields("value", self._compute()))
        kernel = Kernel("scatter", (*buffers, ("int64", "err")), fields, text.elements(body))
        return Unit(self.driver, [kernel], self.frame(1))

    def _unit(self, rank: int, integers: str, how: str, valued: bool) -> Unit:
        dialect = self.driver.dialect
        value = "s[at_s + j * g.step_s]"
        if valued:
            value = f"x_store({numbers.text('value', compute_type(self.dtype), dialect)})"
        written = _combined(self.dtype, how, "y[at]", value)
        body = (
            locate("y", "places", "s")
            + f"""
        for (tk_int j = 0; j < g.count; ++j) {{
            const tk_int place = (tk_int)places[at_places + j * g.step_places];
            if (place < 0 || place >= g.size) {{ TG_REPORT(place, g.size); continue; }}
            const tk_int at = at_y + place * g.step;
            y[at] = {written};
        }}"""
        )
        buffers = ((self.dtype, "y"), (integers, "places"), (self.dtype, "s"), ("int64", "err"))
        fields = self.fields("n", "site", "size", "step", "count", "step_places", "step_s")
        fields += self.strides(rank, "y", "places", "s")
        if valued:
            fields += tuple(numbers.fields("value", self._compute()))
        kernel = Kernel("scatter", buffers, fields, text.elements(body))
        return Unit(self.driver, [kernel], self.frame(rank))

    def _compute(self) -> str:
        return compute_type(self.dtype)


_WRITES = ("index_add", "index_select_backward", "index_copy", "index_fill_scalar")

# One lane per column: place after place.
_SERIAL = """        const tk_int inner = i % g.inner, outer = i / g.inner;
        for (tk_int j = 0; j < g.count; ++j) {
            const tk_int place = (tk_int)places[j];
            if (place < 0 || place >= g.size) { TG_REPORT(place, g.size); continue; }
            const tk_int at = (outer * g.size + place) * g.inner + inner;
            y[at] = WRITTEN(y[at], s[(outer * g.count + j) * g.inner + inner]);
        }"""

# One block per row that is written: all lanes look for its places, then add those rows in order.
_OWNED = """    TG_SHARED tk_int found[TG_LANES];
    for (tk_int row = TG_BLOCK; row < g.outer * g.size; row += TG_BLOCKS) {
        const tk_int outer = row / g.size, own = row % g.size;
        for (tk_int start = 0; start < g.count; start += TG_LANES) {
            TG_BARRIER;
            found[TG_LANE] = start + TG_LANE < g.count ? (tk_int)places[start + TG_LANE] : own - 1;
            if (row == 0 && start + TG_LANE < g.count &&
                (found[TG_LANE] < 0 || found[TG_LANE] >= g.size))
                TG_REPORT(found[TG_LANE], g.size);
            TG_BARRIER;
            for (int k = 0; k < TG_LANES; ++k) {
                if (found[k] != own) continue;
                for (tk_int inner = TG_LANE; inner < g.inner; inner += TG_LANES) {
                    const tk_int at = row * g.inner + inner;
                    y[at] = WRITTEN(y[at], s[(outer * g.count + start + k) * g.inner + inner]);
                }
            }
        }
    }"""


class _IndexWrite(_Along):
    """index_add, index_select_backward, index_copy, index_fill_scalar."""

    def __init__(self, driver: Compiler, name: str, dtype: str) -> None:
        super().__init__(driver, dtype)
        self.name = name

    def __call__(self, outs: Any, args: Any) -> None:
        """Write: the kernel, as the core calls it."""
        if self.name == "index_select_backward":
            source, _, dim, index = args
            alpha: Any = 1
        elif self.name == "index_fill_scalar":
            _, dim, index, alpha = args
            source = None
        else:
            _, dim, index, source = args[:4]
            alpha = args[4] if self.name == "index_add" else 1
        with text.Result(*outs) as out:
            if self.name == "index_select_backward":
                out.zero_()
            else:
                copied(out, args[0])
            if out.numel() and index.numel():
                self._write(out, dim, at_least_1d(index).contiguous(), source, alpha)

    def _write(self, out: Any, dim: int, places: Any, source: Any, alpha: Any) -> None:
        driver, device, integers = self.driver, out.device.index, places.dtype.name
        several = self.name == "index_add" and out.ndim > 1
        name = self.name.removesuffix("_backward").removesuffix("_scalar")
        error = RuntimeError if several else IndexError
        target = at_least_1d(out)
        site = driver.reports.site(error, message(dim, target, name))
        if source is not None:
            source = at_least_1d(source).contiguous()
            if source.dtype.name == "bool":
                alpha = bool(alpha)
            elif source.dtype.name.startswith(("int", "uint")):
                alpha = int(alpha.real)  # PyTorch cuts its fraction off
            if not (isinstance(alpha, int) and alpha == 1):
                # A multiple of booleans is of integers.
                source = (source * alpha).to(source.dtype)
        inner, size = text.count_of(target.shape[dim + 1 :]), target.shape[dim]
        outer = target.numel() // (size * inner)
        adds = self.name in ("index_add", "index_select_backward")
        key = ("index_write", self.name if source is None else adds, self.dtype, integers)
        unit = driver.unit(key, lambda: self._unit(adds, integers, source is None))
        given = [outer * inner, site, size, places.numel(), inner, outer]
        if source is None:
            given += numbers.encode(alpha, self._compute())
        buffers = [target, places, source, driver.error_cell(device)]
        owned = driver.dialect.lanes > 1 and places.numel() > 64
        if owned:
            blocks = min(outer * size, driver.dialect.max_blocks)
            unit.launch("owned", blocks, buffers, given, device)
        else:
            unit.launch("serial", driver.blocks_for(outer * inner), buffers, given, device)
        driver.reports.expect(device)

    def _compute(self) -> str:
        return compute_type(self.dtype)

    def _unit(self, adds: bool, integers: str, filled: bool) -> Unit:
        written = _combined(self.dtype, "add" if adds else "set", "a", "b")
        if filled:
            written = f"x_store({numbers.text('value', self._compute(), self.driver.dialect)})"
        frame = self.frame(1) + f"#define WRITTEN(a, b) {written}\n"
        body, owned = _SERIAL, _OWNED
        buffers = ((self.dtype, "y"), (integers, "places"), (self.dtype, "s"), ("int64", "err"))
        fields = self.fields("n", "site", "size", "count", "inner", "outer")
        if filled:
            fields += tuple(numbers.fields("value", self._compute()))
        kernels = [Kernel("serial", buffers, fields, text.elements(body))]
        kernels.append(Kernel("owned", buffers, fields, owned))
        return Unit(self.driver, kernels, frame)
