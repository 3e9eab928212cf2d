"""Every forward op of the core's table on its samples: as ONNX, and as it is.

A script, too: `python ops_in_onnx.py [NAMES]` prints the table of docs/onnx.md.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx.reference import ReferenceEvaluator

import tangrad
from tangrad.plugin import Sampler, all_ops, materialise
from tangrad_onnx.tables import DRAWS

DTYPES = ("float32", "int64", "bool", "float64", "int32", "uint8", "complex64")


def ops() -> dict[str, Any]:
    """Return the forward ops that have samples."""
    found = {}
    for name, op in sorted(all_ops().items()):
        definition = op.definition
        if definition.samples is None or name.endswith("_") or "backward" in name:
            continue
        if name.startswith(("empty", "new_empty")):  # elements that nobody gave a value
            continue
        module = definition.module
        if module.startswith("tangrad.ops.") and not module.startswith("tangrad.ops.optimizer"):
            found[name] = op
    return found


def tensor_of(values: Any, dtype: str) -> Any:
    """Return a sample's tensor."""
    stored = values.view(np.float32) if dtype == "bfloat16" else values
    laid_out = np.ascontiguousarray(stored).reshape(stored.shape)
    return tangrad.tensor(laid_out, dtype=getattr(tangrad, dtype))


def tensors_of(value: Any) -> list[Any]:
    """Return the tensors in nested values."""
    if isinstance(value, tangrad.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in tensors_of(v)]
    return []


def as_pairs(t: Any) -> Any:
    """Return a complex tensor as pairs of real numbers, which files have; others as they are."""
    return tangrad.view_as_real(t.resolve_conj()) if t.is_complex() else t


class Called(tangrad.nn.Module):
    """An op with the arguments that are no tensors; complex numbers go in and come out as pairs.

    Args:
        op: the op.
        args, kwargs: of the call, whose tensors are given anew.
    """

    def __init__(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        super().__init__()
        self.op, self.args, self.kwargs = op, args, kwargs

    def forward(self, *tensors: Any) -> Any:
        """Call the op."""
        left = iter(tensors)

        def filled(value: Any) -> Any:
            if isinstance(value, tangrad.Tensor):
                given = next(left)
                return tangrad.view_as_complex(given) if value.is_complex() else given
            if isinstance(value, (list, tuple)):
                return type(value)([filled(v) for v in value])
            return value

        args = tuple(filled(a) for a in self.args)
        result = self.op(*args, **{k: filled(v) for k, v in self.kwargs.items()})
        return tuple(as_pairs(t) for t in tensors_of(result))


def told(op: Any, sample: Any) -> str | None:
    """Return how the file of a sample differs from eager, "" if not, None if eager refuses."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            args, kwargs = materialise(sample, tensor_of, lambda n: getattr(tangrad, n))
            tangrad.manual_seed(3)
            result = tensors_of(op(*args, **kwargs))
        except Exception:
            return None
        if not result:
            return None
        given = tuple(as_pairs(t.clone()).contiguous() for t in tensors_of((args, kwargs)))
        try:
            model = Called(op, args, kwargs)
            proto = tangrad.onnx.export(model, given, opset_version=20).model_proto
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        text = compared(proto, given, result, op.name in DRAWS)
        if text:
            return text
        # With other numbers, too: nothing that the op decides by values may have become a constant.
        others = tuple(t * 1.0625 if t.is_floating_point() else t for t in given)
        try:
            changed = list(model(*others))
        except Exception:
            return ""
        return compared(proto, others, changed, op.name in DRAWS)


def compared(proto: Any, given: Any, result: Any, drawn: bool) -> str:
    """Return how the results of a file differ."""
    try:
        found = outputs_of(proto, [t.numpy() for t in given])
    except Exception as error:
        return f"does not run: {type(error).__name__}: {error}"
    wanted = [as_pairs(t.detach()).resolve_conj().resolve_neg().numpy() for t in result]
    return difference(found, wanted, drawn)


def outputs_of(proto: Any, given: Sequence[Any]) -> list[Any]:
    """Run a file in onnxruntime, or in the reference evaluator what onnxruntime does not have."""
    names = [info.name for info in proto.graph.input]
    feed = dict(zip(names, given, strict=True))
    try:
        import onnxruntime
    except ImportError:
        return list(ReferenceEvaluator(proto).run(None, feed))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(
            proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        return list(session.run(None, feed))
    except Exception:
        return list(ReferenceEvaluator(proto).run(None, feed))


def difference(found: Sequence[Any], wanted: Sequence[Any], drawn: bool) -> str:
    """Return how results differ; of random numbers their shapes and dtypes alone are compared."""
    for k, (got, want) in enumerate(zip(found, wanted, strict=True)):
        got = np.asarray(got)
        if got.shape != want.shape or got.dtype != want.dtype:
            return f"output {k}: {got.dtype}{got.shape} is not {want.dtype}{want.shape}"
        if drawn:
            continue
        if want.dtype.kind == "f":
            with np.errstate(all="ignore"):
                close = np.isclose(got, want, rtol=2e-4, atol=2e-5, equal_nan=True)
        else:
            close = got == want
        if not np.all(close):
            at = tuple(np.argwhere(~close)[0])
            return f"output {k}{list(map(int, at))}: {got[at]} is not {want[at]}"
    return ""


def sweep(names: Sequence[str] | None = None, most: int = 2) -> dict[str, dict[str, str]]:
    """Return {op: {label of a sample: how it differs, "" where it does not}}.

    Args:
        names: of the ops; all by default.
        most: samples of an op, of the first dtype that has some.
    """
    found: dict[str, dict[str, str]] = {}
    for name, op in ops().items():
        if names is not None and name not in names:
            continue
        for dtype in DTYPES:
            for k, sample in enumerate(list(op.definition.samples(Sampler(dtype)))[:most]):
                text = told(op, sample)
                if text is not None:
                    found.setdefault(name, {})[f"{name} {dtype} {k}"] = text.replace("\n", " ")
            if name in found:
                break
    return found


def table(found: dict[str, dict[str, str]]) -> list[str]:
    """Return the lines of the table of docs/onnx.md."""
    from tangrad_onnx.tables import reason_of

    whole = [name for name, texts in found.items() if not any(texts.values())]
    lines = [
        f"{len(whole)} of {len(found)} forward ops ({100 * len(whole) / len(found):.0f} %) "
        "are written from all samples that were tried, and run as they do here.",
        "",
        "| not written | ops |",
        "|---|---|",
    ]
    groups: dict[str, list[str]] = {}
    for name, texts in found.items():
        wrong = [text for text in texts.values() if text]
        if wrong:
            groups.setdefault(reason_of(name, wrong[0]), []).append(f"`{name}`")
    return lines + [f"| {reason} | {', '.join(groups[reason])} |" for reason in sorted(groups)]


def main() -> None:
    """Print the table, and what differs."""
    names = [a for a in sys.argv[1:] if not a.startswith("-")] or None
    found = sweep(names, int(os.environ.get("MOST", "2")))
    if "-v" in sys.argv:
        for texts in found.values():
            for label, text in texts.items():
                if text:
                    print(f"{label}: {text[:220]}")
    print("\n".join(table(found)))


if __name__ == "__main__":
    main()
