"""What `tangrad.cuda` tells and does: devices, memory, streams, random numbers, exchange."""

from __future__ import annotations


def test_a_gpu_is_told_by_pytorch_s_names(run):
    out = run(
        """
import tangrad
cuda = tangrad.cuda
assert cuda.is_available() and not cuda.is_initialized() and not cuda._initialized
assert cuda.device_count() == 2 and cuda.is_initialized()
properties = cuda.get_device_properties(1)
assert (properties.major, properties.minor) == cuda.get_device_capability(1) == (9, 0)
assert properties.total_memory == cuda.mem_get_info(1)[1] == 2**30
assert cuda.get_device_name() == properties.name and properties.multi_processor_count > 0
assert "sm_90" in cuda.get_arch_list() and cuda.is_bf16_supported()
assert cuda.can_device_access_peer(0, 1)
assert tangrad.accelerator.current_accelerator() == tangrad.device("cuda")
""",
        devices=2,
        memory=2**30,
    )
    assert out == ""


def test_each_thread_has_a_current_device(run):
    run(
        """
import threading, tangrad
cuda = tangrad.cuda
cuda.set_device(1)
assert tangrad.ones(2, device="cuda").device == tangrad.device("cuda:1")
with cuda.device(0):
    assert tangrad.ones(2, device="cuda").device.index == 0
assert cuda.current_device() == 1
found = []
thread = threading.Thread(target=lambda: found.append((tangrad.ones(3, device="cuda") * 2).cpu()))
thread.start(); thread.join()
assert found[0].tolist() == [2, 2, 2]
with tangrad.accelerator.device_index(0):
    assert cuda.current_device() == 0
""",
        devices=2,
    )


def test_devices_copy_to_each_other_in_the_order_of_their_streams(run):
    run(
        """
import tangrad
first = tangrad.arange(1000.0, device="cuda:0") * 3
second = first.to("cuda:1")
first.zero_()
assert second.device.index == 1 and second.sum().item() == 3 * 999 * 500
try:
    second + first
except RuntimeError as error:
    assert "cuda:0" in str(error) and "cuda:1" in str(error)
else:
    raise AssertionError("mixed devices")
assert (tangrad.ones(2, 3, device="cuda:1").T.to("cuda:0") + 1).tolist() == [[2, 2]] * 3
""",
        devices=2,
    )


def test_streams_run_beside_each_other_and_wait_for_events(run):
    run(
        """
import tangrad
cuda = tangrad.cuda
side = cuda.Stream()
x = tangrad.zeros(1000, device="cuda")
start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
with cuda.stream(side):
    assert cuda.current_stream() == side != cuda.default_stream()
    side.wait_stream(cuda.default_stream())
    start.record()
    y = x + 1
    end.record()
done = side.record_event()
cuda.current_stream().wait_event(done)
y.record_stream(cuda.current_stream())
assert (y + x).sum().item() == 1000
end.synchronize()
assert done.query() and side.query() and start.elapsed_time(end) >= 0
low, high = cuda.Stream.priority_range()
assert low == 0 and high < 0 and cuda.Stream(priority=high).cuda_stream
assert [cuda.Stream(priority=p).priority for p in (0, -1, high - 9)] == [0, -1, high]
assert cuda.default_stream().priority == 0
try:
    cuda.Stream(priority="high")
except TypeError as error:
    assert "priority must be an int, not str" in str(error)
else:
    raise AssertionError
foreign = cuda.ExternalStream(side.cuda_stream)
assert foreign == side
with tangrad.Stream("cuda") as stream:
    assert stream.stream_id == cuda.current_stream().stream_id
assert cuda.current_stream() == cuda.default_stream()
"""
    )


def test_copies_from_pinned_memory_do_not_wait(run):
    run(
        """
import tangrad
from tangrad.utils.data import DataLoader, TensorDataset
x = tangrad.arange(64.0).pin_memory()
assert x.is_pinned() and not tangrad.ones(2).is_pinned()
y = x.to("cuda", non_blocking=True)
back = (y * 2).to("cpu", non_blocking=True)
assert back.is_pinned()
tangrad.cuda.synchronize()
assert back.tolist() == [2.0 * i for i in range(64)]
z = tangrad.empty(64, device="cuda").copy_(x, non_blocking=True)
del x
assert z.sum().item() == 2016
loader = DataLoader(TensorDataset(tangrad.arange(6.0)), batch_size=2, pin_memory=True)
assert all(batch.is_pinned() for (batch,) in loader)
assert tangrad.empty(3, pin_memory=True).is_pinned()
assert tangrad.cuda.host_memory_stats()["allocated_bytes.all.peak"] > 0
"""
    )


def test_memory_is_counted_limited_and_given_back(run):
    run(
        """
import tangrad
cuda = tangrad.cuda
x = tangrad.empty(2**20, device="cuda")
assert cuda.memory_allocated() == 2**22 <= cuda.memory_reserved()
del x
assert cuda.memory_allocated() == 0 and cuda.max_memory_allocated() == 2**22
cuda.empty_cache()
assert cuda.memory_reserved() == 0
cuda.reset_peak_memory_stats()
assert cuda.max_memory_allocated() == 0
assert "CUDA memory summary" in cuda.memory_summary()
address = cuda.caching_allocator_alloc(1000)
assert cuda.memory_allocated() == 1024 and cuda.memory_snapshot()
cuda.caching_allocator_delete(address)
cuda.set_per_process_memory_fraction(0.001)
try:
    tangrad.empty(2**28, device="cuda")
except cuda.OutOfMemoryError as error:
    assert "limit" in str(error)
else:
    raise AssertionError("no limit")
"""
    )


def test_one_seed_gives_the_numbers_of_the_cpu(run):
    run(
        """
import tangrad
cuda = tangrad.cuda
tangrad.manual_seed(3)
there = tangrad.rand(100, device="cuda").cpu()
tangrad.manual_seed(3)
assert there.equal(tangrad.rand(100))
cuda.manual_seed(5)
state = cuda.get_rng_state()
first = tangrad.randn(10, device="cuda").cpu()
cuda.set_rng_state(state)
assert first.equal(tangrad.randn(10, device="cuda").cpu()) and cuda.initial_seed() == 5
assert len(cuda.get_rng_state_all()) == 1 and cuda.default_generators[0].initial_seed() == 5
"""
    )


def test_a_generator_of_the_host_is_refused(run):
    run(
        """
import tangrad
host, own = tangrad.Generator(), tangrad.Generator("cuda")
x = tangrad.full((4,), 0.5, device="cuda")
draws = [
    lambda g: x.clone().normal_(generator=g), lambda g: x.clone().random_(generator=g),
    lambda g: tangrad.rand(3, device="cuda", generator=g),
    lambda g: tangrad.randint(9, (3,), device="cuda", generator=g),
    lambda g: tangrad.randperm(3, device="cuda", generator=g),
    lambda g: tangrad.bernoulli(x, generator=g), lambda g: tangrad.multinomial(x, 2, generator=g),
    lambda g: tangrad.poisson(x, generator=g), lambda g: tangrad.normal(x, x, generator=g),
]
for draw in draws:
    draw(own), draw(own), draw(tangrad.Generator("cuda:0"))
    try:
        draw(host)
    except RuntimeError as error:
        assert "Expected a 'cuda' device type for generator but found 'cpu'" in str(error)
        assert "Generator(device='cuda')" in str(error)
    else:
        raise AssertionError("drawn")
assert host.get_offset() == 0
"""
    )


def test_what_is_not_there_yet_says_so(run):
    run(
        """
import tangrad
for use in (tangrad.cuda.MemPool, tangrad.cuda.use_mem_pool,
            tangrad.cuda.FloatStorage, lambda: tangrad.cuda.Event(interprocess=True),
            lambda: tangrad.cuda.GreenContext.create(1),
            tangrad.cuda.memory.change_current_allocator):
    try:
        use()
    except NotImplementedError as error:
        assert "not supported yet" in str(error), error
    else:
        raise AssertionError(use)
assert tangrad.cuda.AcceleratorError is tangrad.AcceleratorError
assert tangrad.cuda.FloatTensor(2, 3).device.type == "cuda"
assert isinstance(tangrad.ones(1, device="cuda"), tangrad.cuda.FloatTensor)
"""
    )
