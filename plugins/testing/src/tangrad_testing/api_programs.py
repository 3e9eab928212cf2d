"""Small programs for the names of PyTorch that are no ops: their behaviour in both libraries."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

__all__ = ["PROGRAMS"]


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


def _refusal(call: Callable[[], Any], kind: type[Exception]) -> bool:
    """Return whether a call is refused by an exception of a kind."""
    try:
        call()
    except kind:
        return True
    return False


def _refuses_to_pin(t: Any) -> bool:
    """Return whether memory is pinned for no device; one that a test has opened counts."""
    opened = getattr(t._C, "_default_accelerator", None)
    available = t.accelerator.is_available() if opened is None else opened() != "cpu"
    return available or _refusal(t.ones(1).pin_memory, RuntimeError)


def _refuses_device(t: Any, name: str) -> bool:
    """Return whether a tensor cannot go to a device that the machine need not have."""
    module = getattr(t, name, None)
    if module is not None and module.is_available():
        return True
    return _refusal(getattr(t.ones(1), name), Exception)


def _from_file(t: Any) -> list[float]:
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "numbers")
        written = t.from_file(path, shared=True, size=3)
        written.copy_(t.tensor([1.0, 2.5, -3.0]))
        return t.from_file(path, size=3).tolist()  # type: ignore[no-any-return]


def _default_dtype_by(t: Any, change: Callable[[], None]) -> str:
    try:
        change()
        return _name(t.ones(1))
    finally:
        t.set_default_dtype(t.float32)


def _default_device(t: Any) -> tuple[str, str]:
    t.set_default_device("meta")
    first = t.ones(1).device.type
    t.set_default_device(None)
    return first, t.ones(1).device.type


def _printed(t: Any, **options: Any) -> str:
    t.set_printoptions(**options)
    text = repr(t.linspace(0, 2, 30))
    t.set_printoptions(profile="default")
    return text


def _seeded(t: Any) -> tuple[bool, bool]:
    """Seed from the machine: the seed is told, and differs from the one before."""
    first, second = t.seed(), t.seed()
    told = t.initial_seed() == second
    t.manual_seed(0)
    return first != second, told


def _hooked_after(t: Any) -> Any:
    x = t.ones(2, requires_grad=True)
    seen: list[Any] = []
    x.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.tolist()))
    (x * 3).sum().backward()
    return seen


class _Overriding:
    """A class that takes functions over."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func.__name__, len(types), len(args), sorted(kwargs or {})


def _handled(t: Any) -> Any:
    def function(x: Any, scale: int = 1) -> Any:
        return t.nn.functional.handle_torch_function(function, (x,), x, scale=scale)

    return function(_Overriding(), scale=2)


def _whole_numbers(t: Any, *shape: int) -> Any:
    """Return numbers from -8 to 8: their sums of products are exact, in whatever order."""
    return (_row(t, *shape) * 8).round()


def _scaled_product(t: Any) -> Any:
    F = t.nn.functional
    a = _whole_numbers(t, 16, 32).to(t.float8_e4m3fn)
    b = _whole_numbers(t, 16, 32).to(t.float8_e4m3fn).mT
    by_row = F.ScalingType.RowWise
    rows, columns = t.arange(1.0, 17).reshape(16, 1), t.arange(2.0, 18).reshape(1, 16)
    product = F.scaled_mm(a, b, rows, by_row, columns, by_row, output_dtype=t.float32)
    return product.tolist()


def _grouped_product(t: Any) -> Any:
    a, b = _whole_numbers(t, 12, 16).bfloat16(), _whole_numbers(t, 2, 16, 8).bfloat16()
    ends = t.tensor([4, 12], dtype=t.int32)
    return t.nn.functional.grouped_mm(a, b, offs=ends).float().tolist()


# Each is given one of the libraries, and returns what both must agree on.
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
    "torch.compile": lambda t: t.compile(lambda x: x.sin() + 1, backend="eager")(
        _row(t, 3)
    ).tolist(),
    "torch.dequantize": lambda t: t.dequantize(t.ones(2)).tolist(),
    "torch.from_file": lambda t: _from_file(t),
    "torch.get_device_module": lambda t: (
        t.get_device_module("cpu") is t.cpu,
        _refusal(lambda: t.get_device_module(3.5), RuntimeError),
    ),
    "torch.get_num_interop_threads": lambda t: t.get_num_interop_threads() > 0,
    "torch.init_num_threads": lambda t: t.init_num_threads(),
    "torch.seed": lambda t: _seeded(t),
    "torch.set_default_device": lambda t: _default_device(t),
    "torch.set_default_tensor_type": lambda t: _default_dtype_by(
        t, lambda: t.set_default_tensor_type("torch.DoubleTensor")
    ),
    "torch.set_flush_denormal": lambda t: t.set_flush_denormal(False),
    # Setting a number that is allowed works once in a process there.
    "torch.set_num_interop_threads": lambda t: [
        _refusal(partial(t.set_num_interop_threads, n), RuntimeError) for n in (0, -1, 1.5)
    ],
    "torch.set_printoptions": lambda t: [
        _printed(t, precision=2),
        _printed(t, threshold=5, edgeitems=2),
        _printed(t, linewidth=40, sci_mode=True),
        _printed(t, profile="short"),
    ],
    "torch.thread_safe_generator": lambda t: t.thread_safe_generator(),
    "torch.Tensor.cuda": lambda t: _refuses_device(t, "cuda"),
    "torch.Tensor.ipu": lambda t: _refuses_device(t, "ipu"),
    "torch.Tensor.mtia": lambda t: _refuses_device(t, "mtia"),
    "torch.Tensor.pin_memory": lambda t: _refuses_to_pin(t),
    "torch.Tensor.record_stream": lambda t: _refusal(
        lambda: t.ones(1).record_stream(None), RuntimeError
    ),
    "torch.Tensor.register_post_accumulate_grad_hook": lambda t: _hooked_after(t),
    "torch.Tensor.xpu": lambda t: _refuses_device(t, "xpu"),
    "torch.nn.functional.grouped_mm": lambda t: _grouped_product(t),
    "torch.nn.functional.handle_torch_function": lambda t: _handled(t),
    "torch.nn.functional.has_torch_function": lambda t: (
        t.nn.functional.has_torch_function((1, _Overriding())),
        t.nn.functional.has_torch_function((1, t.ones(1))),
    ),
    "torch.nn.functional.has_torch_function_unary": lambda t: (
        t.nn.functional.has_torch_function_unary(_Overriding()),
        t.nn.functional.has_torch_function_unary(t.ones(1)),
    ),
    "torch.nn.functional.has_torch_function_variadic": lambda t: (
        t.nn.functional.has_torch_function_variadic(1, _Overriding()),
        t.nn.functional.has_torch_function_variadic(1, t.ones(1)),
    ),
    "torch.nn.functional.scaled_grouped_mm": lambda t: _refusal(
        lambda: t.nn.functional.scaled_grouped_mm(
            *[t.ones(2, 2).to(t.float8_e4m3fn)] * 2,
            t.ones(1),
            t.nn.functional.ScalingType.TensorWise,
            t.ones(1),
            t.nn.functional.ScalingType.TensorWise,
        ),
        NotImplementedError,
    ),
    "torch.nn.functional.scaled_mm": lambda t: _scaled_product(t),
}
