"""`torch.cuda.amp` and `torch.cpu.amp`: the names with the device in them."""

import importlib

import pytest

import tangrad
from tangrad import amp

deprecated = pytest.warns(FutureWarning, match="is deprecated")


def test_on_the_host_they_are_the_newer_ones():
    older = importlib.import_module("tangrad.cpu.amp")
    assert older is tangrad.cpu.amp
    with deprecated, older.autocast():
        assert (tangrad.ones(2, 2) @ tangrad.ones(2, 2)).dtype == tangrad.bfloat16
    with deprecated:
        scaler = older.GradScaler(init_scale=4.0)
    assert isinstance(scaler, amp.GradScaler)
    assert scaler.scale(tangrad.ones(1)).item() == 4.0


@pytest.mark.filterwarnings("ignore:.*CUDA.*:UserWarning", "ignore:.*cuda.*:UserWarning")
def test_without_a_gpu_they_are_there_and_do_nothing():
    older = importlib.import_module("tangrad.cuda.amp")
    assert older is tangrad.cuda.amp
    with deprecated, older.autocast():
        assert (tangrad.ones(2, 2) @ tangrad.ones(2, 2)).dtype == tangrad.float32
    with deprecated:
        scaler = older.GradScaler()
    assert not scaler.is_enabled()
    x = tangrad.ones(1)
    assert scaler.scale(x) is x


def test_functions_of_a_program():
    older = tangrad.cpu.amp
    with deprecated:
        cast = older.custom_fwd(cast_inputs=tangrad.float32)

    class Square(tangrad.autograd.Function):
        @staticmethod
        @cast
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad):
            return 2 * ctx.saved_tensors[0] * grad

    with deprecated:
        Square.backward = staticmethod(older.custom_bwd(Square.backward))
    x = tangrad.ones(3, dtype=tangrad.bfloat16, requires_grad=True)
    with tangrad.autocast("cpu"):
        y = Square.apply(x)
    assert y.dtype == tangrad.float32
    y.sum().backward()
    assert x.grad.tolist() == [2, 2, 2]


def test_what_programs_ask_of_a_gpu_that_is_not_there():
    cuda = tangrad.cuda
    assert cuda.get_rng_state_all() == []
    cuda.get_rng_state_all().append(1)
    assert cuda.get_rng_state_all() == []
    cuda.set_rng_state_all([])
    assert cuda.memory_stats() == {}
    assert cuda.OutOfMemoryError is tangrad.OutOfMemoryError
    with cuda.device(0), cuda.stream(None):
        pass
    for name in ("synchronize", "current_device", "get_device_name"):
        with pytest.raises(RuntimeError, match=r"tangrad\[cuda\]|NVIDIA driver"):
            getattr(cuda, name)()
    assert not tangrad.mtia.is_available()
    with tangrad.autograd.profiler.record_function("x"), tangrad.autograd.profiler.emit_nvtx():
        pass
