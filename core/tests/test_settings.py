"""Settings and questions of the top level, beside PyTorch's answers."""

from __future__ import annotations

import pathlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import tangrad
from tangrad import compilation
from tangrad.discovery import discovery


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    yield
    for t in (tangrad, torch):
        t.use_deterministic_algorithms(False)
        t.set_float32_matmul_precision("highest")
        t.set_default_dtype(t.float32)
        t.set_warn_always(False)


def outcome(library: Any, function: Callable[[Any], Any]) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return function(library)
    except Exception as error:
        return type(error)


def deterministic(t: Any) -> tuple[Any, ...]:
    return (
        t.are_deterministic_algorithms_enabled(),
        t.is_deterministic_algorithms_warn_only_enabled(),
        t.get_deterministic_debug_mode(),
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.use_deterministic_algorithms(True),
        lambda t: t.use_deterministic_algorithms(True, warn_only=True),
        lambda t: t.use_deterministic_algorithms(False, warn_only=True),
        lambda t: t.use_deterministic_algorithms(1),
        lambda t: t.set_deterministic_debug_mode("warn"),
        lambda t: t.set_deterministic_debug_mode(2),
        lambda t: t.set_deterministic_debug_mode(7),
        lambda t: t.set_deterministic_debug_mode("seven"),
        lambda t: t.set_deterministic_debug_mode(1.0),
    ],
)
def test_determinism(change: Callable[[Any], Any]) -> None:
    assert outcome(tangrad, change) == outcome(torch, change)
    assert deterministic(tangrad) == deterministic(torch)


NEW_MEMORY: dict[str, Callable[[Any], Any]] = {
    **{
        name: lambda t, name=name: t.empty(2, dtype=getattr(t, name))
        for name in (
            "float32",
            "float16",
            "complex64",
            "int64",
            "uint8",
            "int8",
            "bool",
            "float8_e5m2",
        )
    },
    "out=": lambda t: t.empty(3, out=t.zeros(1)[:0]),
    "like": lambda t: t.empty_like(t.zeros(2, 3).t()),
    "strided": lambda t: t.empty_strided((2, 2), (1, 2)),
    "permuted": lambda t: t.empty_permuted((2, 3), (1, 0)),
    "channels last": lambda t: t.empty(1, 2, 2, 1, memory_format=t.channels_last),
    "new": lambda t: t.zeros(2).new_empty(3),
    "new strided": lambda t: t.zeros(2, dtype=t.int32).new_empty_strided((2,), (1,)),
    "resized": lambda t: t.zeros(2).resize_(4),
    "resized to less": lambda t: t.zeros(4).resize_(2),
    "resized as": lambda t: t.zeros(2).resize_as_(t.zeros(2, 2)),
    "by the class": lambda t: t.Tensor(2, 2),
    "requires a gradient": lambda t: t.empty(2, requires_grad=True),
    "version": lambda t: t.empty(2)._version,
}


@pytest.mark.parametrize("make", NEW_MEMORY)
def test_new_memory_is_filled_in_deterministic_runs(make: str, agree: Any) -> None:
    def program(t: Any) -> Any:
        t.use_deterministic_algorithms(True)
        try:
            return str(NEW_MEMORY[make](t))
        finally:
            t.use_deterministic_algorithms(False)

    agree(program)


def test_new_memory_is_left_alone_where_that_is_asked() -> None:
    from tangrad.tensor import memory

    assert tangrad.utils.deterministic.fill_uninitialized_memory
    tangrad.use_deterministic_algorithms(True)
    tangrad.utils.deterministic.fill_uninitialized_memory = False
    try:
        assert not memory.fills_memory
        assert not tangrad.utils.deterministic.fill_uninitialized_memory
    finally:
        tangrad.utils.deterministic.fill_uninitialized_memory = True
    assert memory.fills_memory
    with pytest.raises(RuntimeError, match="bool"):
        tangrad.utils.deterministic.fill_uninitialized_memory = 1  # type: ignore[assignment]
    tangrad.set_deterministic_debug_mode("default")
    assert not memory.fills_memory


PINNED: dict[str, Callable[[Any], Any]] = {
    "empty": lambda t: t.empty(2, pin_memory=True),
    "empty_strided": lambda t: t.empty_strided((2,), (1,), pin_memory=True),
    "zeros": lambda t: t.zeros(2, pin_memory=True),
    "full": lambda t: t.full((2,), 1, pin_memory=True),
    "eye": lambda t: t.eye(2, pin_memory=True),
    "arange": lambda t: t.arange(2, pin_memory=True),
    "rand": lambda t: t.rand(2, pin_memory=True),
    "ones_like": lambda t: t.ones_like(t.ones(2), pin_memory=True),
    "new_zeros": lambda t: t.ones(2).new_zeros(2, pin_memory=True),
    "hann_window": lambda t: t.hann_window(2, pin_memory=True),
    "from_file": lambda t: t.from_file(__file__, size=1, dtype=t.uint8, pin_memory=True),
    "meta": lambda t: t.zeros(2, device="meta", pin_memory=True).shape,
    "not asked for": lambda t: t.zeros(2, pin_memory=False),
}


@pytest.fixture
def no_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the devices that other tests have registered."""
    monkeypatch.setattr(tangrad._C, "_default_accelerator", lambda: "cpu")
    monkeypatch.setattr(tangrad.accelerator, "_opened", lambda: None)
    monkeypatch.setattr(tangrad.accelerator, "_installed", lambda: None)


@pytest.mark.usefixtures("no_accelerator")
@pytest.mark.parametrize("make", PINNED)
def test_pinned_memory_needs_an_accelerator(make: str, agree: Any) -> None:
    agree(PINNED[make], message=False)


def test_precision_of_products() -> None:
    for wanted in ("high", "medium", "low", "highest"):
        for t in (tangrad, torch):
            outcome(t, lambda t, wanted=wanted: t.set_float32_matmul_precision(wanted))
        assert tangrad.get_float32_matmul_precision() == torch.get_float32_matmul_precision()
    with pytest.warns(UserWarning, match="no effect"):
        tangrad.set_float32_matmul_precision("low")


@pytest.mark.usefixtures("no_accelerator")
@pytest.mark.parametrize(
    "call",
    [
        lambda t: t.set_flush_denormal(1),
        lambda t: t.set_warn_always(1),
        lambda t: (t.set_warn_always(True), t.is_warn_always_enabled())[1],
        lambda t: t.set_num_interop_threads(0),
        lambda t: t.set_num_interop_threads(2.0),
        lambda t: t.init_num_threads(),
        lambda t: t.thread_safe_generator(),
        lambda t: t.get_device_module(3),
        lambda t: t.get_device_module("nowhere"),
        lambda t: t.set_default_tensor_type(t.int64),
        lambda t: t.accelerator.is_available(),
        lambda t: t.accelerator.device_count(),
        lambda t: t.accelerator.current_accelerator(),
        lambda t: t.backends.cudnn.is_available(),
        lambda t: t.backends.cuda.is_built(),
        lambda t: t.backends.mps.is_available(),
        lambda t: t.version.cuda,
        lambda t: t.compile(lambda x: x, mode="default", options={}),
        lambda t: t.AcceleratorError.__mro__[1:],
        lambda t: t.Stream("cpu").stream_id,
        lambda t: repr(t.Event("cpu")).partition(" ")[2],
        lambda t: repr(t.Stream("cpu")).partition(" ")[2],
        lambda t: t.cpu.device_count(),
        lambda t: t.cpu.current_device(),
    ],
)
def test_answers_of_the_top_level(call: Callable[[Any], Any]) -> None:
    assert outcome(tangrad, call) == outcome(torch, call)


@pytest.mark.usefixtures("no_accelerator")
def test_memory_is_pinned_for_a_device_only() -> None:
    with pytest.raises(RuntimeError, match="Cannot access accelerator device"):
        tangrad.ones(1).pin_memory()


def test_default_tensor_type() -> None:
    for t in (tangrad, torch):
        outcome(t, lambda t: t.set_default_tensor_type("torch.DoubleTensor"))
    assert str(tangrad.ones(1).dtype) == "tangrad.float64"
    assert tangrad.ones(1).item() == torch.ones(1).item()
    with (
        pytest.warns(UserWarning, match="deprecated"),
        pytest.raises(TypeError, match="LongTensor"),
    ):
        tangrad.set_default_tensor_type("torch.LongTensor")


def test_device_modules() -> None:
    assert tangrad.get_device_module() is tangrad.cpu
    assert tangrad.get_device_module(tangrad.device("cpu")) is tangrad.cpu


def test_streams_and_events_of_the_host() -> None:
    stream, start = tangrad.Stream(), tangrad.Event(enable_timing=True)
    start.record()
    with stream:
        end = stream.record_event(tangrad.Event(enable_timing=True))
    stream.wait_event(start), stream.wait_stream(tangrad.Stream()), end.wait()
    stream.synchronize(), end.synchronize()
    assert stream.query()
    assert end.query()
    assert stream == tangrad.Stream("cpu")
    assert start.elapsed_time(end) >= 0
    with pytest.raises(RuntimeError, match="enable_timing"):
        tangrad.Event().elapsed_time(end)
    with pytest.raises(NotImplementedError, match="Stream: device 'meta' does no work"):
        tangrad.Stream("meta")


def test_compile_runs_things_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilation, "_warned", False)
    monkeypatch.setattr(discovery, "find", lambda group, name: None)  # as without a compiler
    with pytest.warns(UserWarning, match="as it is"):
        double = tangrad.compile(lambda x: 2 * x)

    @tangrad.compile(fullgraph=True, dynamic=False, backend="inductor")
    def triple(x: Any) -> Any:
        return 3 * x

    module = tangrad.nn.Linear(2, 2)
    assert double(tangrad.ones(1)).item() == 2
    assert triple(tangrad.ones(1)).item() == 3
    assert tangrad.compile(module, disable=True) is module
    with pytest.raises(RuntimeError, match="can't be None"):
        tangrad.compile()(None)
    with pytest.raises(TypeError, match="expected a function"):
        tangrad.compile(3)


@pytest.mark.parametrize("shared", [False, True])
def test_tensors_of_files(tmp_path: pathlib.Path, shared: bool) -> None:
    path = tmp_path / "numbers"
    path.write_bytes(tangrad.arange(5, dtype=tangrad.float64).numpy().tobytes())
    x = tangrad.from_file(str(path), shared=shared, size=4, dtype=tangrad.float64)
    y = torch.from_file(str(path), shared=False, size=4, dtype=torch.float64)
    assert x.tolist() == y.tolist()
    x[0] = 7
    again = tangrad.from_file(str(path), size=5, dtype=tangrad.float64)
    assert again.tolist() == [7.0 if shared else 0.0, 1.0, 2.0, 3.0, 4.0]
    if shared:
        grown = tangrad.from_file(str(tmp_path / "new"), True, 3, dtype=tangrad.int32)
        assert grown.tolist() == [0, 0, 0]


def test_files_that_cannot_be_mapped(tmp_path: pathlib.Path) -> None:
    small = tmp_path / "small"
    small.write_bytes(b"1234")
    for t in (tangrad, torch):
        with pytest.raises(RuntimeError, match="No such file"):
            t.from_file(str(tmp_path / "none"), size=1)
        with pytest.raises(RuntimeError):
            t.from_file(str(small), shared=False, size=4)
        with pytest.raises(RuntimeError, match="mmap"):
            t.from_file(str(tmp_path), size=1)
    assert tangrad.from_file(str(small)).shape == (0,)


def test_dlpack_capsules() -> None:
    capsule = tangrad.to_dlpack(tangrad.arange(3))
    assert torch.utils.dlpack.from_dlpack(capsule).tolist() == [0, 1, 2]
    with pytest.raises(TypeError, match="expected a Tensor"):
        tangrad.to_dlpack(3)


def test_backends_tell_what_is_there() -> None:
    assert tangrad.backends.cpu.get_cpu_capability() in ("DEFAULT", "AVX2", "AVX512")
    assert not tangrad.backends.mkl.is_available()
    tangrad.backends.cudnn.benchmark = True
    assert not tangrad.backends.cudnn.is_available()
    tangrad.backends.cuda.matmul.allow_tf32 = False
    tangrad.backends.cuda.enable_flash_sdp(False)
    with tangrad.backends.cudnn.flags(enabled=False):
        assert not tangrad.backends.cuda.flash_sdp_enabled()
    assert not hasattr(tangrad.backends, "nowhere")


def test_configuration_is_told() -> None:
    assert f"NumPy {__import__('numpy').__version__}" in tangrad.__config__.show()
    assert "get_num_threads()" in tangrad.__config__.parallel_info()
    assert tangrad.version.__version__ == tangrad.__version__


def test_what_the_processor_can_do_is_told_as_by_pytorch() -> None:
    ours, theirs = (dict(t.cpu.get_capabilities()) for t in (tangrad, torch))
    assert ours["architecture"] == theirs["architecture"]
    assert ours["num_logical_cores"] == theirs["num_logical_cores"]
    if pathlib.Path("/proc/cpuinfo").exists():
        features = {name for name, value in theirs.items() if isinstance(value, bool)}
        assert {n: ours[n] for n in features} == {n: theirs[n] for n in features}
    with pytest.raises(TypeError):
        tangrad.cpu.get_capabilities()["avx2"] = True


CPUINFO = """processor\t: 0
BogoMIPS\t: 50.00
Features\t: fp asimd aes crc32 atomics asimdhp asimddp sve svebf16

processor\t: 1
Features\t: fp asimd
"""


def test_features_of_another_architecture_are_read() -> None:
    from tangrad.cpu import capabilities

    found = capabilities._of_cpuinfo(CPUINFO, capabilities._ARM)
    assert {name for name, there in found.items() if there} == {
        "neon",
        "aes",
        "crc32",
        "atomics",
        "fp16_arith",
        "dot",
        "sve",
        "sve_bf16",
    }
    assert not found["sve2"]


def test_processors_with_several_cores_are_counted() -> None:
    from tangrad.cpu import capabilities

    cores = [(socket, core) for socket in range(2) for core in range(3) for _ in range(2)]
    told = "\n\n".join(
        f"model name : A: B\nphysical id : {socket}\ncore id : {core}\nflags : sse pni"
        for socket, core in cores
    )
    found = capabilities._of_cpuinfo(told, {"sse3": "pni", "avx": None})
    assert found == {
        "sse3": True,
        "avx": False,
        "cpu_name": "A: B",
        "num_physical_cores": 6,
        "num_sockets": 2,
    }
