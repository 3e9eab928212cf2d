"""Count, per namespace, which public names of PyTorch behave here as they do there.

A name counts where a call of it gives PyTorch's result: of an op, its samples in several dtypes
are run in both libraries; of anything else, a small program of `PROGRAMS` is. A name that merely
exists counts for nothing.

`python -m tangrad_testing.api_status docs/api-status.md` writes the page.
"""

from __future__ import annotations

import io
import math
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

import tangrad
from tangrad.ops import registry
from tangrad_testing.calls import REFUSALS, tangrad_arguments
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


# Programs for what is no op: each is given one of the libraries, and returns what both agree on.
def _row(t: Any, *shape: int) -> Any:
    """Return a tensor of different numbers."""
    count = 1
    for size in shape:
        count *= size
    return (t.arange(count, dtype=t.float64) * 0.7).sin().reshape(shape)


def _saved_and_loaded(t: Any) -> Any:
    stream = io.BytesIO()
    t.save({"w": t.ones(2, 3), "n": 1}, stream)
    stream.seek(0)
    return t.load(stream)


def _with_threads(t: Any, count: int) -> int:
    before = t.get_num_threads()
    t.set_num_threads(count)
    found = t.get_num_threads()
    t.set_num_threads(before)
    return int(found)


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "torch.bilinear": lambda t: t.bilinear(
        _row(t, 2, 3), _row(t, 2, 4), _row(t, 5, 3, 4), _row(t, 5)
    ).tolist(),
    "torch.cond": lambda t: t.cond(
        t.tensor(True), lambda x: x + 1, lambda x: x - 1, (t.ones(2),)
    ).tolist(),
    "torch.get_deterministic_debug_mode": lambda t: t.get_deterministic_debug_mode(),
    "torch.get_float32_matmul_precision": lambda t: t.get_float32_matmul_precision(),
    "torch.is_deterministic_algorithms_warn_only_enabled": lambda t: (
        t.is_deterministic_algorithms_warn_only_enabled()
    ),
    "torch.is_warn_always_enabled": lambda t: t.is_warn_always_enabled(),
    "torch.lobpcg": lambda t: t.lobpcg(_row(t, 9, 9) + _row(t, 9, 9).mT, 2)[0].tolist(),
    "torch.load": lambda t: _saved_and_loaded(t)["w"].tolist(),
    "torch.save": lambda t: sorted(_saved_and_loaded(t)),
    "torch.set_deterministic_debug_mode": lambda t: (
        t.set_deterministic_debug_mode("warn"),
        t.get_deterministic_debug_mode(),
        t.set_deterministic_debug_mode(0),
    ),
    "torch.set_float32_matmul_precision": lambda t: (
        t.set_float32_matmul_precision("high"),
        t.get_float32_matmul_precision(),
        t.set_float32_matmul_precision("highest"),
    ),
    # One, for without a backend that has threads there are no more.
    "torch.set_num_threads": lambda t: _with_threads(t, 1),
    "torch.get_num_threads": lambda t: _with_threads(t, 1),
    "torch.set_warn_always": lambda t: (
        t.set_warn_always(True),
        t.is_warn_always_enabled(),
        t.set_warn_always(False),
    ),
    "torch.sym_float": lambda t: t.sym_float(3),
    "torch.sym_int": lambda t: (t.sym_int(2.7), t.sym_int(-2.7)),
    "torch.sym_ite": lambda t: t.sym_ite(True, 1, 2),
    "torch.sym_sum": lambda t: t.sym_sum([1, 2, 3]),
    "torch.use_deterministic_algorithms": lambda t: (
        t.use_deterministic_algorithms(True),
        t.are_deterministic_algorithms_enabled(),
        t.use_deterministic_algorithms(False),
    ),
    "torch.Tensor.float_power_": lambda t: _row(t, 4).abs().float_power_(2.5).tolist(),
    "torch.nn.functional.fold": lambda t: t.nn.functional.fold(
        _row(t, 1, 8, 6), (3, 4), (2, 2)
    ).tolist(),
    "torch.nn.functional.linear_cross_entropy": lambda t: t.nn.functional.linear_cross_entropy(
        _row(t, 3, 4), _row(t, 5, 4), t.tensor([0, 4, 2])
    ).tolist(),
    "torch.nn.functional.multi_head_attention_forward": lambda t: [
        part.tolist()
        for part in t.nn.functional.multi_head_attention_forward(
            *[_row(t, 3, 1, 4)] * 3,
            4,
            2,
            _row(t, 12, 4),
            _row(t, 12),
            None,
            None,
            False,
            0.0,
            _row(t, 4, 4),
            _row(t, 4),
        )
    ],
    "torch.nn.functional.normalize": lambda t: t.nn.functional.normalize(_row(t, 3, 4)).tolist(),
    "torch.nn.functional.softmin": lambda t: t.nn.functional.softmin(_row(t, 3, 4), 1).tolist(),
    "torch.nn.functional.triplet_margin_with_distance_loss": lambda t: (
        t.nn.functional.triplet_margin_with_distance_loss(
            _row(t, 3, 4), _row(t, 3, 4) + 1, _row(t, 3, 4) * 2
        ).tolist()
    ),
    "torch.nn.functional.unfold": lambda t: t.nn.functional.unfold(
        _row(t, 1, 2, 3, 4), (2, 2)
    ).tolist(),
    "torch.nn.functional.upsample": lambda t: t.nn.functional.upsample(
        _row(t, 1, 2, 3, 4), scale_factor=2
    ).tolist(),
    "torch.nn.functional.upsample_bilinear": lambda t: t.nn.functional.upsample_bilinear(
        _row(t, 1, 2, 3, 4), scale_factor=2
    ).tolist(),
    "torch.nn.functional.upsample_nearest": lambda t: t.nn.functional.upsample_nearest(
        _row(t, 1, 2, 3, 4), size=(5, 6)
    ).tolist(),
    "torch.as_tensor": lambda t: t.as_tensor([1, 2]).tolist(),
    "torch.asarray": lambda t: t.asarray([1.5, 2]).tolist(),
    "torch.are_deterministic_algorithms_enabled": lambda t: (
        t.are_deterministic_algorithms_enabled()
    ),
    "torch.broadcast_shapes": lambda t: tuple(t.broadcast_shapes((2, 1), (3,))),
    "torch.can_cast": lambda t: (t.can_cast(t.float32, t.int64), t.can_cast(t.int8, t.float16)),
    "torch.from_numpy": lambda t: t.from_numpy(t.arange(3).numpy()).tolist(),
    "torch.frombuffer": lambda t: t.frombuffer(bytearray(b"abc"), dtype=t.uint8).tolist(),
    "torch.get_default_dtype": lambda t: str(t.get_default_dtype()).rpartition(".")[2],
    "torch.get_device": lambda t: t.get_device(t.ones(2)),
    "torch.initial_seed": lambda t: (t.manual_seed(7), t.initial_seed())[1],
    "torch.is_complex": lambda t: (t.is_complex(t.tensor(1j)), t.is_complex(t.ones(1))),
    "torch.is_conj": lambda t: t.is_conj(t.tensor([1j]).conj()),
    "torch.is_floating_point": lambda t: t.is_floating_point(t.ones(1)),
    "torch.is_grad_enabled": lambda t: t.is_grad_enabled(),
    "torch.is_inference": lambda t: t.is_inference(t.ones(1)),
    "torch.is_inference_mode_enabled": lambda t: t.is_inference_mode_enabled(),
    "torch.is_neg": lambda t: t.is_neg(t.tensor([1j]).conj().imag),
    "torch.is_nonzero": lambda t: (t.is_nonzero(t.ones(1)), t.is_nonzero(t.zeros(1))),
    "torch.is_same_size": lambda t: t.is_same_size(t.ones(2), t.ones(3)),
    "torch.is_signed": lambda t: (t.is_signed(t.ones(1)), t.is_signed(t.ones(1).bool())),
    "torch.is_storage": lambda t: t.is_storage(t.ones(1).untyped_storage()),
    "torch.is_tensor": lambda t: (t.is_tensor(t.ones(1)), t.is_tensor(1)),
    "torch.numel": lambda t: t.numel(t.ones(2, 3)),
    "torch.promote_types": lambda t: str(t.promote_types(t.int32, t.float16)).rpartition(".")[2],
    "torch.result_type": lambda t: str(t.result_type(t.ones(1).int(), 1.5)).rpartition(".")[2],
    "torch.set_default_dtype": lambda t: (
        t.set_default_dtype(t.float64),
        str(t.ones(1).dtype).rpartition(".")[2],
        t.set_default_dtype(t.float32),
    )[1],
    "torch.sym_max": lambda t: t.sym_max(1, 2),
    "torch.sym_min": lambda t: t.sym_min(1, 2),
    "torch.sym_not": lambda t: t.sym_not(True),
    "torch.tensor": lambda t: t.tensor([[1, 2], [3, 4]]).tolist(),
    "torch.typename": lambda t: t.typename(t.ones(1)).rpartition(".")[2],
    "torch.vmap": lambda t: t.vmap(lambda x: x.sum())(t.ones(2, 3)).tolist(),
    "torch.manual_seed": lambda t: t.manual_seed(3).initial_seed(),
    "torch.get_rng_state": lambda t: _state_returns(t),
    "torch.set_rng_state": lambda t: _state_returns(t),
    "torch.get_default_device": lambda t: str(t.get_default_device()),
    "torch.Tensor.detach": lambda t: t.ones(1, requires_grad=True).detach().requires_grad,
    "torch.Tensor.where": lambda t: t.ones(2).where(t.tensor([True, False]), 5.0).tolist(),
    "torch.Tensor.share_memory_": lambda t: t.ones(2).share_memory_().tolist(),
    "torch.Tensor.storage": lambda t: t.ones(2).storage().tolist(),
    "torch.Tensor.storage_type": lambda t: t.ones(2).storage_type().__name__,
    "torch.Tensor.apply_": lambda t: t.ones(2).apply_(lambda x: x + 1).tolist(),
    "torch.Tensor.as_subclass": lambda t: t.ones(2).as_subclass(t.Tensor).tolist(),
    "torch.Tensor.backward": lambda t: _gradient(t),
    "torch.Tensor.bfloat16": lambda t: _name(t.ones(1).bfloat16()),
    "torch.Tensor.bool": lambda t: _name(t.ones(1).bool()),
    "torch.Tensor.byte": lambda t: _name(t.ones(1).byte()),
    "torch.Tensor.cdouble": lambda t: _name(t.ones(1).cdouble()),
    "torch.Tensor.cfloat": lambda t: _name(t.ones(1).cfloat()),
    "torch.Tensor.char": lambda t: _name(t.ones(1).char()),
    "torch.Tensor.const_data_ptr": lambda t: _pointer(t),
    "torch.Tensor.cpu": lambda t: str(t.ones(1).cpu().device),
    "torch.Tensor.data_ptr": lambda t: t.ones(2)[1:].data_ptr() % 4,
    "torch.Tensor.dense_dim": lambda t: t.ones(2, 3).dense_dim(),
    "torch.Tensor.dequantize": lambda t: t.ones(2).dequantize().tolist(),
    "torch.Tensor.detach_": lambda t: t.ones(2, requires_grad=True).detach_().requires_grad,
    "torch.Tensor.dim": lambda t: t.ones(2, 3).dim(),
    "torch.Tensor.dim_order": lambda t: t.ones(2, 3).t().dim_order(),
    "torch.Tensor.double": lambda t: _name(t.ones(1).double()),
    "torch.Tensor.element_size": lambda t: t.ones(1).double().element_size(),
    "torch.Tensor.float": lambda t: _name(t.ones(1).double().float()),
    "torch.Tensor.get_device": lambda t: t.ones(1).get_device(),
    "torch.Tensor.half": lambda t: _name(t.ones(1).half()),
    "torch.Tensor.int": lambda t: _name(t.ones(1).int()),
    "torch.Tensor.is_complex": lambda t: t.tensor(1j).is_complex(),
    "torch.Tensor.is_conj": lambda t: t.tensor([1j]).conj().is_conj(),
    "torch.Tensor.is_contiguous": lambda t: t.ones(2, 3).t().is_contiguous(),
    "torch.Tensor.is_floating_point": lambda t: t.ones(1).is_floating_point(),
    "torch.Tensor.is_inference": lambda t: t.ones(1).is_inference(),
    "torch.Tensor.is_neg": lambda t: t.ones(1).is_neg(),
    "torch.Tensor.is_nonzero": lambda t: t.ones(1).is_nonzero(),
    "torch.Tensor.is_pinned": lambda t: t.ones(1).is_pinned(),
    "torch.Tensor.is_same_size": lambda t: t.ones(1).is_same_size(t.ones(2)),
    "torch.Tensor.is_set_to": lambda t: t.ones(1).is_set_to(t.ones(1)),
    "torch.Tensor.is_shared": lambda t: t.ones(1).is_shared(),
    "torch.Tensor.is_signed": lambda t: t.ones(1).byte().is_signed(),
    "torch.Tensor.item": lambda t: t.tensor(2.5).item(),
    "torch.Tensor.long": lambda t: _name(t.ones(1).long()),
    "torch.Tensor.map2_": lambda t: t.ones(2).map2_(t.ones(2), t.ones(2), _sum).tolist(),
    "torch.Tensor.map_": lambda t: t.ones(2).map_(t.ones(2), lambda a, b: a - b).tolist(),
    "torch.Tensor.module_load": lambda t: t.ones(2).module_load(t.zeros(2)).tolist(),
    "torch.Tensor.ndimension": lambda t: t.ones(2, 3).ndimension(),
    "torch.Tensor.nelement": lambda t: t.ones(2, 3).nelement(),
    "torch.Tensor.new_tensor": lambda t: t.ones(1).new_tensor([1, 2]).tolist(),
    "torch.Tensor.numel": lambda t: t.ones(2, 3).numel(),
    "torch.Tensor.numpy": lambda t: t.ones(2).numpy().tolist(),
    "torch.Tensor.register_hook": lambda t: _hooked(t),
    "torch.Tensor.requires_grad_": lambda t: t.ones(1).requires_grad_().requires_grad,
    "torch.Tensor.resize_": lambda t: tuple(t.ones(2, 3).resize_(3, 2).shape),
    "torch.Tensor.resize_as_": lambda t: tuple(t.ones(2, 3).resize_as_(t.ones(3, 2)).shape),
    "torch.Tensor.retain_grad": lambda t: _retained(t),
    "torch.Tensor.set_": lambda t: t.ones(0).set_(t.arange(3.0)).tolist(),
    "torch.Tensor.short": lambda t: _name(t.ones(1).short()),
    "torch.Tensor.size": lambda t: (tuple(t.ones(2, 3).size()), t.ones(2, 3).size(1)),
    "torch.Tensor.sparse_dim": lambda t: t.ones(2).sparse_dim(),
    "torch.Tensor.storage_offset": lambda t: t.ones(4)[2:].storage_offset(),
    "torch.Tensor.stride": lambda t: (t.ones(2, 3).stride(), t.ones(2, 3).stride(0)),
    "torch.Tensor.to": lambda t: _name(t.ones(1).to(t.int16)),
    "torch.Tensor.to_dense": lambda t: t.ones(2).to_dense().tolist(),
    "torch.Tensor.tolist": lambda t: t.arange(4).reshape(2, 2).tolist(),
    "torch.Tensor.type": lambda t: t.ones(1).type().rpartition(".")[2],
    "torch.Tensor.type_as": lambda t: _name(t.ones(1).type_as(t.ones(1).int())),
    "torch.Tensor.untyped_storage": lambda t: t.ones(3).untyped_storage().nbytes(),
}


def _sum(*numbers: float) -> float:
    return sum(numbers)


def _name(tensor: Any) -> str:
    return str(tensor.dtype).rpartition(".")[2]


def _state_returns(t: Any) -> bool:
    state = t.get_rng_state()
    first = t.rand(3)
    t.set_rng_state(state)
    return bool((t.rand(3) == first).all())


def _pointer(t: Any) -> bool:
    x = t.ones(2)
    return bool(x.const_data_ptr() == x.data_ptr())


def _gradient(t: Any) -> Any:
    x = t.ones(2, requires_grad=True)
    (x * x).sum().backward()
    return x.grad.tolist()


def _hooked(t: Any) -> Any:
    x = t.ones(2, requires_grad=True)
    x.register_hook(lambda g: g * 3)
    x.sum().backward()
    return x.grad.tolist()


def _retained(t: Any) -> Any:
    x = t.ones(2, requires_grad=True) * 1
    x.retain_grad()
    x.sum().backward()
    return x.grad.tolist()


def status(name: str, namespace: str, place: Any, theirs: Any) -> str:
    """Return "same", "differs", "untested" or "missing" for one name."""
    ours = getattr(place, name, None)
    if ours is None:
        return "missing"
    full = f"{namespace}.{name}"
    program = PROGRAMS.get(full)
    if program is not None:
        return _verdict(lambda: _same_program(program))
    if hasattr(ours, "definition"):
        return _verdict(lambda: _same_op(ours))
    if name in registry.index():  # a function around an op, such as one with inplace=
        definition = registry.find(name).definition
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
    return definition.random or definition.module.endswith((".random", ".random_sequential"))


def _same_samples(definition: Any, oracle: Any, dtype: str, call: Any = None) -> bool:
    from tangrad.ops.samples import Sampler

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
    lines = [
        "# Which names of PyTorch behave here as they do there",
        "",
        "Written by `python -m tangrad_testing.api_status docs/api-status.md`. The names are the",
        "documented functions of the installed PyTorch. A name counts as the same where a call of",
        "it gives PyTorch's result: the samples of an op in several dtypes, or a small program. A",
        "name that only exists is untested, and counts for nothing. Classes (modules, optimizers)",
        "have tests of their own.",
        "",
        "| namespace | names | same | differ | untested | missing |",
        "|---|---|---|---|---|---|",
    ]
    for namespace, names in found.items():
        counts = [list(names.values()).count(s) for s in ("same", "differs", "untested", "missing")]
        lines.append(f"| `{namespace}` | {len(names)} | " + " | ".join(map(str, counts)) + " |")
    for title, word in (("Differ", "differs"), ("Untested", "untested"), ("Missing", "missing")):
        lines += ["", f"## {title}"]
        for namespace, names in found.items():
            listed = [n for n, s in names.items() if s == word]
            if listed:
                lines.append(f"- `{namespace}`: " + ", ".join(listed))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(table()), "utf-8")
