"""Ops on lists of tensors: norms, and factors that scale all of them, in one launch for many."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import tangrad
from tangrad.plugin.render import KINDS, compute_type
from tangrad_source_kernels import text
from tangrad_source_kernels.dialect import Kernel
from tangrad_source_kernels.unit import Unit

if TYPE_CHECKING:
    from tangrad_source_kernels.compiler import Compiler

# Tensors in one launch, and elements that a block folds. Sums depend on sizes alone.
_AT_ONCE, _STEP = 64, 1 << 14

# A block folds one piece of one tensor.
_PIECES = """    for (tk_int task = TG_BLOCK; task < g.first[g.count]; task += TG_BLOCKS) {
        int k = 0;
        while (task >= g.first[k + 1]) ++k;
        TG_GLOBAL const x_t *x = (TG_GLOBAL const x_t *)g.at[k];
        const tk_int begin = (task - g.first[k]) * g.step;
        const tk_int end = begin + g.step < g.size[k] ? begin + g.step : g.size[k];
        x_r v = x_zero;
        for (tk_int i = begin + TG_LANE; i < end; i += TG_LANES) {
            const x_r w = ELEMENT(x_load(x[i]));
            v = COMBINED;
        }
        v = tk_fold(v, shared);
        if (TG_LANE == 0) parts[g.base + task] = v;
    }"""

# A block folds the pieces of one result.
_JOIN = """    for (tk_int k = TG_BLOCK; k < g.count; k += TG_BLOCKS) {
        x_r v = x_zero;
        for (tk_int i = g.first[k] + TG_LANE; i < g.first[k + 1]; i += TG_LANES) {
            const x_r w = parts[i];
            v = COMBINED;
        }
        v = tk_fold(v, shared);
        if (TG_LANE == 0) y[g.base + k] = x_store(FINISHED(v));
    }"""

_SCALE = """    const x_r factor = x_load(f[0]);
    for (int k = 0; k < g.count; ++k) {
        TG_GLOBAL x_t *x = (TG_GLOBAL x_t *)g.at[k];
        for (tk_int i = (tk_int)TG_BLOCK * TG_LANES + TG_LANE; i < g.size[k];
             i += (tk_int)TG_BLOCKS * TG_LANES)
            x[i] = x_store(x_load(x[i]) * factor);
    }"""

# {order of a norm: (of an element, of two states v and w, of the state at last)}
_ORDERS = {
    1.0: ("x_fabs(e)", "v + w", "v"),
    2.0: ("((e) * (e))", "v + w", "x_sqrt(v)"),
    float("inf"): ("x_fabs(e)", "(w > v || w != w ? w : v)", "v"),
}


def kernel_for(driver: Compiler, op: Any, dtype: str) -> Callable[..., None] | None:
    """Return the kernel of an op on lists; a device without addresses has none."""
    if KINDS[dtype] != "f" or not driver.dialect.addresses:
        return None
    if op.name == "_foreach_mul_tensor_":
        return _Scale(driver, op, dtype)
    return _Norms(driver, op, dtype)


class _Lists:
    def __init__(self, driver: Compiler, op: Any, dtype: str) -> None:
        self.driver, self.dtype, self.total = driver, dtype, op.name == "_total_norm"
        self._decomposed = op.definition.decomposed

    def usual(self, tensors: Any, device: Any) -> bool:
        """Return whether tensors lie as kernels read them; others are decomposed."""
        return all(
            t.dtype.name == self.dtype and t.is_contiguous() and t.device == device for t in tensors
        )


class _Norms(_Lists):
    def __call__(self, outs: Any, args: Any) -> None:
        """Compute norms: the kernel, as the core calls it."""
        tensors, order = args
        out, order = outs[0], float(order)
        # The greatest of no elements is refused, by the decomposition.
        known = order in _ORDERS and (order < 3 or all(t.numel() for t in tensors))
        if not known or not self.usual((*tensors, out), out.device):
            made = self._decomposed(args)
            out.copy_(made)
            return
        index, kind = out.device.index, getattr(tangrad, compute_type(self.dtype))
        unit = self.driver.unit(("norms", self.dtype, order), lambda: self._unit(order))
        pieces = [-(-t.numel() // _STEP) for t in tensors]
        parts = tangrad.empty((max(1, sum(pieces)),), dtype=kind, device=out.device)
        base = 0
        groups = []
        for start in range(0, len(tensors), _AT_ONCE):
            members = tensors[start : start + _AT_ONCE]
            first = [0, *_running(pieces[start : start + _AT_ONCE])]
            if first[-1]:
                given = [len(members), _STEP, base, *_filled(first, _AT_ONCE + 1)]
                given += _filled([t.numel() for t in members], _AT_ONCE)
                given += _filled([t.data_ptr() for t in members], _AT_ONCE)
                blocks = min(first[-1], self.driver.dialect.max_blocks)
                unit.launch("pieces", blocks, [parts], given, index)
            groups.append((start, [base + f for f in first]))
            base += first[-1]
        if self.total:
            groups = [(0, [0, base])]
        for start, first in groups:
            given = [len(first) - 1, start, *_filled(first, _AT_ONCE + 1)]
            unit.launch("join", len(first) - 1, [out, parts], given, index)

    def _unit(self, order: float) -> Unit:
        dialect, compute = self.driver.dialect, compute_type(self.dtype)
        element, combined, finished = _ORDERS[order]
        frame = text.names(dialect, x=self.dtype) + f"#define ELEMENT(e) {element}\n"
        frame += f"#define COMBINED {combined}\n#define FINISHED(v) {finished}\n"
        frame += text.fold_function(dialect, dialect.lanes, compute, "tk_fold", combined)
        shared = text.shared_places(dialect.lanes, compute, dialect)
        firsts = (("int64", "base", 0), ("int64", "first", _AT_ONCE + 1))
        pieces = Kernel(
            "pieces",
            ((compute, "parts"),),
            (("int64", "count", 0), ("int64", "step", 0), *firsts, *_TENSORS),
            shared + _PIECES,
        )
        buffers = ((self.dtype, "y"), (compute, "parts"))
        join = Kernel("join", buffers, (("int64", "count", 0), *firsts), shared + _JOIN)
        return Unit(self.driver, [pieces, join], frame)


_TENSORS = (("int64", "size", _AT_ONCE), ("uint64", "at", _AT_ONCE))


class _Scale(_Lists):
    def __call__(self, outs: Any, args: Any) -> None:
        """Scale tensors: the kernel, as the core calls it."""
        tensors, factor = args
        device = factor.device
        if not self.usual((*tensors, factor), device):
            self._decomposed(args)
            return
        unit = self.driver.unit(("scale", self.dtype), self._unit)
        members = [t for t in tensors if t.numel()]
        for start in range(0, len(members), _AT_ONCE):
            part = members[start : start + _AT_ONCE]
            sizes = [t.numel() for t in part]
            given = [len(part), *_filled(sizes, _AT_ONCE)]
            given += _filled([t.data_ptr() for t in part], _AT_ONCE)
            blocks = self.driver.blocks_for(max(sizes))
            unit.launch("scale", blocks, [factor], given, device.index)

    def _unit(self) -> Unit:
        fields = (("int64", "count", 0), *_TENSORS)
        kernel = Kernel("scale", ((self.dtype, "f"),), fields, _SCALE)
        return Unit(self.driver, [kernel], text.names(self.driver.dialect, x=self.dtype))


def _running(counts: list[int]) -> Iterator[int]:
    total = 0
    for count in counts:
        total += count
        yield total


def _filled(values: list[int], count: int) -> list[int]:
    return values + [values[-1] if values else 0] * (count - len(values))
