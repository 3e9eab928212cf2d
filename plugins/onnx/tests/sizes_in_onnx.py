"""Every forward op with sizes that vary: the file runs with sizes other than the example's.

A script, too: `python sizes_in_onnx.py [NAMES]` prints what differs.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from ops_in_onnx import DTYPES, Called, as_pairs, compared, ops, tensor_of, tensors_of

import tangrad
from tangrad.export import Dim
from tangrad.plugin import Sampler, materialise
from tangrad_onnx.tables import DRAWS

GROWTHS = (1, 3)


def sweep(names: Sequence[str] | None = None, most: int = 2) -> dict[str, str]:
    """Return {label: how the file differs}, "" where it does not, without what is refused.

    Args:
        names: of the ops; all by default.
        most: samples of an op, of the first dtype that has some.
    """
    found: dict[str, str] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, op in ops().items():
            if names is not None and name not in names:
                continue
            for dtype in DTYPES:
                before = len(found)
                for k, sample in enumerate(list(op.definition.samples(Sampler(dtype)))[:most]):
                    for size, first, text in _told(op, sample):
                        axes = "its first dimension" if first else "all dimensions"
                        found[f"{name} {dtype} {k}, {axes} of {size}"] = text.replace("\n", " ")
                if len(found) > before:
                    break
    return found


def _told(op: Any, sample: Any) -> Iterator[tuple[int, bool, str]]:
    """Yield a size that varies, whether in one dimension alone, and how results differ."""
    args, kwargs = materialise(sample, tensor_of, lambda n: getattr(tangrad, n))
    tensors = tensors_of((args, kwargs))
    try:
        if not tensors or not tensors_of(op(*args, **kwargs)):
            return
    except Exception:
        return
    model = Called(op, args, kwargs)
    given = tuple(as_pairs(t.clone()).contiguous() for t in tensors)
    for size in sorted({n for t in tensors for n in t.shape if n > 1}):
        every = [{dim for dim, n in enumerate(t.shape) if n == size} for t in tensors]
        first = [set(sorted(dims)[:1]) if k == 0 else set() for k, dims in enumerate(every)]
        for dims in [every, first] if every != first and any(first) else [every]:
            text = _with_other_sizes(op, model, given, dims, size)
            if text is not None:
                yield size, dims is first, text


def _with_other_sizes(
    op: Any, model: Called, given: Any, dims: list[set[int]], size: int
) -> str | None:
    """Return how the file differs for greater sizes; None where the model or export refuses."""
    vary = Dim("n", max=4 * size + 8)
    shapes = tuple(dict.fromkeys(of, vary) or None for of in dims)
    try:
        proto = tangrad.onnx.export(
            model, given, opset_version=20, dynamic_shapes=shapes
        ).model_proto
    except Exception:
        return None
    told = None
    for by in GROWTHS:
        others = tuple(_grown(t, of, by) for t, of in zip(given, dims, strict=True))
        try:
            wanted = list(model(*others))
        except Exception:
            continue
        told = compared(proto, others, wanted, op.name in DRAWS)
        if told:
            return told
    return told


def _grown(t: Any, dims: set[int], by: int) -> Any:
    for dim in dims:
        # The last again, so that what is sorted stays so.
        t = tangrad.cat([t, *[t.narrow(dim, t.shape[dim] - 1, 1)] * by], dim)
    return t


def main() -> None:
    """Print what differs, and how many files ran."""
    found = sweep(sys.argv[1:] or None)
    wrong = {label: text for label, text in found.items() if text}
    for label, text in wrong.items():
        print(f"{label}: {text[:220]}")
    print(f"{len(found)} files with sizes that vary, {len(wrong)} of them wrong")


if __name__ == "__main__":
    main()
