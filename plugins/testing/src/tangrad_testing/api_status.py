"""Count, per namespace, which public names of PyTorch behave here as they do there.

A name counts where a call of it gives PyTorch's result: of an op, its samples in several dtypes
are run in both libraries; of anything else, a small program of `PROGRAMS` is. A name that merely
exists counts for nothing.

`python -m tangrad_testing.api_status docs/api-status.md` writes the page.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

import tangrad
from tangrad.plugin import Sampler, find_op, has_op
from tangrad_testing.api_programs import PROGRAMS
from tangrad_testing.calls import REFUSALS, tangrad_arguments
from tangrad_testing.cases import DRAWING
from tangrad_testing.oracle import (
    WIDER,
    NoOracle,
    assert_same,
    counterpart,
    tensors_in,
    torch_arguments,
)

# In double precision a difference is one of meaning, not of rounding.
DTYPES = ("float64", "int64", "complex128", "bool")


def _documented(place: Any) -> list[str]:
    """List the public functions of a module or class that have documentation."""
    listed = getattr(place, "__all__", None)
    names = set(listed or ()) | {n for n in dir(place) if listed is None}
    if place is torch:
        names |= set(dir(torch._C._VariableFunctions))
    return sorted(n for n in names if _is_function(n, getattr(place, n, None)))


def _is_function(name: str, value: Any) -> bool:
    if name.startswith("_") or not callable(value) or isinstance(value, type):
        return False
    if getattr(value, "__module__", None) == "typing":  # an import that shows
        return False
    doc = getattr(value, "__doc__", None)
    return isinstance(doc, str) and bool(doc.strip())


NAMESPACES: dict[str, tuple[Any, Callable[[], Any]]] = {
    "torch": (torch, lambda: tangrad),
    "torch.Tensor": (torch.Tensor, lambda: tangrad.Tensor),
    "torch.nn.functional": (torch.nn.functional, lambda: tangrad.nn.functional),
    "torch.linalg": (torch.linalg, lambda: tangrad.linalg),
    "torch.fft": (torch.fft, lambda: tangrad.fft),
    "torch.special": (torch.special, lambda: tangrad.special),
    "torch.signal.windows": (torch.signal.windows, lambda: tangrad.signal.windows),
}


# What a core of dense tensors has no use for: it comes with the packages that bring these.
APART: dict[str, str] = {
    "Sparse layouts": (
        "coalesce col_indices col_indices_copy crow_indices crow_indices_copy hspmm indices "
        "indices_copy is_coalesced smm sparse_bsc_tensor sparse_bsr_tensor "
        "sparse_compressed_tensor sparse_coo_tensor sparse_csc_tensor sparse_csr_tensor "
        "sparse_mask sparse_resize_ sparse_resize_and_clear_ sspaddmm to_sparse to_sparse_bsc "
        "to_sparse_bsr to_sparse_coo to_sparse_csc to_sparse_csr values values_copy"
    ),
    "Other layouts": "to_mkldnn to_padded_tensor",
    "Quantized tensors": (
        "int_repr q_per_channel_axis q_per_channel_scales q_per_channel_zero_points q_scale "
        "q_zero_point qscheme quantize_per_channel quantize_per_tensor "
        "quantize_per_tensor_dynamic quantized_batch_norm quantized_max_pool1d "
        "quantized_max_pool2d"
    ),
    "TorchScript": (
        "boolean_dispatch fork import_ir_module import_ir_module_from_buffer "
        "merge_type_from_type_comment parse_ir parse_schema parse_type_comment unify_type_list "
        "wait"
    ),
}


def family(name: str, status: str) -> str:
    """Return the heading under which a name stands that does not behave as in PyTorch."""
    for title, names in APART.items():
        if status != "same" and name in names.split():
            return title
    return status


def status(name: str, namespace: str, place: Any, theirs: Any) -> str:
    """Return "same", "differs", "untested" or "missing" for one name."""
    ours = getattr(place, name, None)
    if ours is None or "_stands_for_missing" in getattr(ours, "__dict__", {}):  # or a placeholder
        return "missing"
    full = f"{namespace}.{name}"
    program = PROGRAMS.get(full)
    if program is not None:
        return _verdict(lambda: _same_program(program))
    if hasattr(ours, "definition"):
        return _verdict(lambda: _same_op(ours))
    if has_op(name):  # a function around an op, such as one with inplace=
        definition = find_op(name).definition
        return _verdict(lambda: _same_function(definition, ours, getattr(theirs, name)))
    return "untested"


def _same_function(definition: Any, ours: Any, theirs: Any) -> bool:
    if definition.samples is None:
        return False
    found = [_same_samples(definition, theirs, dtype, ours) for dtype in DTYPES]
    return any(found)


def _verdict(check: Callable[[], bool]) -> str:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return "same" if check() else "untested"
    except Exception:
        return "differs"


def _same_program(program: Callable[[Any], Any]) -> bool:
    if not _agree(program(tangrad), program(torch)):
        raise AssertionError("results differ")
    return True


def _agree(ours: Any, theirs: Any) -> bool:
    """Compare what programs return; floating-point numbers may differ in the last digits."""
    if isinstance(theirs, (list, tuple)):
        return len(ours) == len(theirs) and all(map(_agree, ours, theirs))
    if isinstance(theirs, float):
        return math.isclose(ours, theirs, rel_tol=1e-9, abs_tol=1e-12)
    return bool(ours == theirs)


def _definitions(op: Any) -> Iterator[Any]:
    source = op if op.functional is None else op.functional
    yield source.definition
    for member in source.definition.members:
        yield member.definition


def _same_op(op: Any) -> bool:
    """Run the samples of an op, and of the forms behind it; tell whether any could be compared."""
    compared = False
    for definition in _definitions(op):
        if definition.samples is None:
            continue
        try:
            oracle = counterpart(definition)
        except NoOracle:
            continue
        for dtype in DTYPES:
            compared |= _same_samples(definition, oracle, dtype)
    return compared


def _is_random(definition: Any) -> bool:
    return definition.random or definition.module.endswith((*DRAWING, ".random.sequential"))


def _same_samples(definition: Any, oracle: Any, dtype: str, call: Any = None) -> bool:
    compared = False
    for sample in definition.samples(Sampler(dtype)):
        args, kwargs = torch_arguments(sample)
        try:
            expected = oracle(*args, **kwargs)
        except REFUSALS:
            continue
        args, kwargs = tangrad_arguments(sample, "reference", definition)
        actual = (call or definition.op)(*args, **kwargs)
        if _is_random(definition) or definition.name.startswith(("empty", "new_empty")):
            shapes = [tuple(x.shape) for x in tensors_in(actual)]
            if shapes != [tuple(x.shape) for x in tensors_in(expected)]:
                raise AssertionError("shapes differ")
        else:
            assert_same(actual, expected, dtypes=dtype not in WIDER)
        compared = True
    return compared


def table() -> dict[str, dict[str, str]]:
    """Return {namespace: {name: status}}."""
    found: dict[str, dict[str, str]] = {}
    for namespace, (theirs, ours) in NAMESPACES.items():
        place = ours()
        found[namespace] = {n: status(n, namespace, place, theirs) for n in _documented(theirs)}
    return found


def page(found: dict[str, dict[str, str]]) -> str:
    """Return the page as Markdown."""
    families = {
        namespace: {name: family(name, word) for name, word in names.items()}
        for namespace, names in found.items()
    }
    states = [word for names in families.values() for word in names.values()]
    lines = [
        "# Which names of PyTorch behave here as they do there",
        "",
        "Written by `python -m tangrad_testing.api_status docs/api-status.md`. The names are the",
        "documented functions of the installed PyTorch. A name counts as the same where a call of",
        "it gives PyTorch's result: the samples of an op in several dtypes, or a small program. A",
        "name that only exists is untested, and counts for nothing. Classes (modules, optimizers)",
        "have tests of their own.",
        "",
        f"Of all names, {_share(states)}. Some belong to layouts other than dense ones,",
        "to quantized tensors or to TorchScript, which the core leaves to other packages: of the",
        f"others, {_share(s for s in states if s not in APART)}.",
        "",
        "| namespace | names | same | differ | untested | missing | of other packages |",
        "|---|---|---|---|---|---|---|",
    ]
    for namespace, words in families.items():
        kinds = list(words.values())
        counts = [kinds.count(s) for s in ("same", "differs", "untested", "missing")]
        counts.append(sum(kinds.count(title) for title in APART))
        lines.append(f"| `{namespace}` | {len(kinds)} | " + " | ".join(map(str, counts)) + " |")
    own = {"Differ": "differs", "Untested": "untested", "Missing": "missing"}
    for title, word in {**own, **{f"Of other packages: {t}": t for t in APART}}.items():
        lines += ["", f"## {title}"]
        for namespace, words in families.items():
            listed = [n for n, s in words.items() if s == word]
            if listed:
                lines.append(f"- `{namespace}`: " + ", ".join(listed))
    return "\n".join(lines) + "\n"


def _share(states: Iterable[str]) -> str:
    counted = list(states)
    same = counted.count("same")
    return f"{same:,} of {len(counted):,} behave the same ({100 * same / len(counted):.1f} %)"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(table()), "utf-8")
