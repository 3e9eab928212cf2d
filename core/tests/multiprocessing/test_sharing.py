"""Tensors in memory that processes share."""

import gc
import multiprocessing as standard
import os
import signal
import threading

import pytest

import tangrad
import tangrad.multiprocessing as mp
from tangrad import nn

pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")


def forked(function, *args):
    process = mp.get_context("fork").Process(target=function, args=args)
    process.start()
    return process


def files():
    return len(os.listdir("/proc/self/fd"))


def test_the_names_of_the_standard_module_are_here():
    torch = pytest.importorskip("torch")
    assert set(mp.__all__) >= set(torch.multiprocessing.__all__)
    assert all(hasattr(mp, name) for name in mp.__all__)
    assert mp.Process is standard.Process
    assert tangrad.multiprocessing is mp
    assert callable(mp.spawn)


def test_strategies():
    assert mp.get_all_sharing_strategies() == {"file_descriptor", "file_system"}
    assert mp.get_sharing_strategy() == "file_descriptor"
    mp.set_sharing_strategy("file_system")
    assert mp.get_sharing_strategy() == "file_system"
    mp.set_sharing_strategy("file_descriptor")
    with pytest.raises(ValueError, match="invalid sharing strategy"):
        mp.set_sharing_strategy("hope")


def test_a_thread_has_a_name_for_the_system():
    told = []

    def work():
        mp._set_thread_name("a name of more than fifteen bytes")
        told.append(mp._get_thread_name())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert told == ["a name of more "]
    assert mp._get_thread_name() != told[0]


def test_memory_is_moved_with_all_tensors_on_it():
    base = tangrad.arange(6.0).reshape(2, 3)
    row, storage = base[1], base.untyped_storage()
    assert not base.is_shared()
    assert base.share_memory_() is base
    assert base.is_shared()
    assert row.is_shared()
    assert storage.is_shared()
    assert row.data_ptr() == base.data_ptr() + 12
    row.fill_(7)
    assert base.tolist() == [[0, 1, 2], [7, 7, 7]]
    pointer = base.data_ptr()
    assert base.share_memory_().data_ptr() == pointer
    assert not base.clone().is_shared()


@pytest.mark.parametrize(
    "make",
    [
        lambda: tangrad.empty(0, 3),
        lambda: tangrad.tensor(True),
        lambda: tangrad.ones(3, dtype=tangrad.bfloat16),
        lambda: tangrad.ones(2, 3, dtype=tangrad.complex64).t(),
        lambda: tangrad.frombuffer(bytearray(b"\1\2\3\4"), dtype=tangrad.int16),
        lambda: tangrad.ones(2, device="meta"),
    ],
)
def test_any_tensor_can_be_shared(make):
    x = make()
    shape, dtype, stride = x.shape, x.dtype, x.stride()
    values = None if x.is_meta else x.tolist()
    x.share_memory_()
    assert (x.shape, x.dtype, x.stride()) == (shape, dtype, stride)
    assert values is None or x.tolist() == values


def test_shared_memory_keeps_its_size():
    x = tangrad.ones(3).share_memory_()
    with pytest.raises(RuntimeError, match="cannot be resized"):
        x.untyped_storage().resize_(100)


def test_storages_of_elements_are_shared():
    storage = tangrad.FloatStorage([1.0, 2.0])
    assert not storage.is_shared()
    assert storage.share_memory_().is_shared()
    assert storage.tolist() == [1, 2]


def add(x, amount):
    with tangrad.no_grad():
        x.add_(amount)


def test_a_forked_process_writes_into_shared_memory_only():
    shared, own = tangrad.zeros(3).share_memory_(), tangrad.zeros(3)
    for x in (shared, own):
        forked(add, x, 2).join()
    assert shared.tolist() == [2, 2, 2]
    assert own.tolist() == [0, 0, 0]


def test_a_module_is_trained_by_other_processes():
    model = nn.Linear(2, 1)
    model.share_memory()
    assert all(parameter.is_shared() for parameter in model.parameters())
    before = model.weight.tolist()
    process = forked(add, model.weight, 1)
    process.join()
    assert process.exitcode == 0
    assert model.weight.tolist() == [[pytest.approx(x + 1) for x in before[0]]]
    assert model(tangrad.ones(1, 2)).requires_grad


def answer(inbox, outbox):
    for x in iter(inbox.get, None):
        x.add_(1)
        outbox.put(x)


@pytest.mark.parametrize("kind", ["Queue", "SimpleQueue"])
def test_queues_send_the_memory_and_not_a_copy(kind):
    context = mp.get_context("fork")
    inbox, outbox = getattr(context, kind)(), getattr(context, kind)()
    process = context.Process(target=answer, args=(inbox, outbox))
    process.start()
    x = tangrad.zeros(2, 3)
    for count in (1, 2):
        inbox.put(x)
        back = outbox.get(timeout=30) if kind == "Queue" else outbox.get()
        assert back.untyped_storage() is x.untyped_storage()
        assert x.tolist() == [[count] * 3] * 2
    inbox.put(None)
    process.join()
    assert process.exitcode == 0


def test_pipes_keep_views_and_classes():
    here, there = mp.get_context("fork").Pipe()
    base = tangrad.arange(6).reshape(2, 3)
    parameter = nn.Parameter(tangrad.ones(2))
    here.send([base, base.t()[1], parameter, tangrad.empty(0)])
    whole, column, weight, nothing = there.recv()
    assert column.tolist() == [1, 4]
    column.fill_(9)
    assert whole.tolist() == base.tolist() == [[0, 9, 2], [3, 9, 5]]
    assert isinstance(weight, nn.Parameter)
    assert weight.requires_grad
    assert nothing.shape == (0,)


def test_a_tensor_with_a_history_is_refused():
    here, _ = mp.get_context("fork").Pipe()
    with pytest.raises(RuntimeError, match="non-leaf tensor which requires_grad"):
        here.send(tangrad.ones(1, requires_grad=True) * 2)


def test_memory_and_descriptors_are_given_back():
    before = files()
    for _ in range(3):
        tangrad.ones(100).share_memory_()
    gc.collect()
    assert files() == before


def forever(x, ready):
    ready.set()
    signal.pause()


def test_nothing_remains_of_a_process_that_is_killed():
    listed = set(os.listdir("/dev/shm"))
    x = tangrad.ones(4).share_memory_()
    ready = mp.get_context("fork").Event()
    process = forked(forever, x, ready)
    ready.wait(30)
    before = files()
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    process.close()
    assert x.tolist() == [1, 1, 1, 1]
    del x, process
    gc.collect()
    assert files() < before
    new = set(os.listdir("/dev/shm")) - listed
    assert not [name for name in new if "tangrad" in name]


# Processes that are joined together ---------------------------------------------------------------


def mark(number, x):
    x[number] = number + 1


def fail(number, which):
    if number == which:
        raise ValueError(f"wrong number {number}")
    signal.pause()


def leave(number, how):
    if how > 0:
        os._exit(how)
    os.kill(os.getpid(), -how)


def test_processes_share_what_they_are_started_with():
    x = tangrad.zeros(2)
    mp.spawn(mark, args=(x,), nprocs=2)
    assert x.tolist() == [1, 2]
    assert mp.start_processes(mark, args=(x + 1,), nprocs=1, start_method="fork") is None
    context = mp.start_processes(mark, args=(x,), nprocs=2, join=False, start_method="fork")
    assert len(set(context.pids())) == 2
    while not context.join(timeout=10):
        pass
    assert context.join()


def test_a_failure_ends_the_other_processes():
    context = mp.start_processes(fail, args=(1,), nprocs=2, join=False, start_method="fork")
    with pytest.raises(mp.ProcessRaisedException, match="wrong number 1") as caught:
        context.join()  # returns when any of them has ended, and only that one does
    assert str(caught.value).startswith(
        "\n\n-- Process 1 terminated with the following error:\nTraceback"
    )
    assert caught.value.error_index == 1
    assert caught.value.error_pid == context.pids()[1]
    assert not any(process.is_alive() for process in context.processes)
    assert not any(map(os.path.exists, context.error_files))


@pytest.mark.parametrize(("how", "text"), [(3, "exit code 3"), (-signal.SIGKILL, "signal SIGKILL")])
def test_how_a_process_ended_is_told(how, text):
    with pytest.raises(mp.ProcessExitedException, match=f"process 0 terminated with {text}") as e:
        mp.start_processes(leave, args=(how,), start_method="fork")
    assert e.value.exit_code == how
    assert (e.value.signal_name == "SIGKILL") == (how < 0)


def test_other_ways_than_spawn_have_another_function():
    with pytest.warns(FutureWarning, match="start_processes"):
        mp.spawn(mark, args=(tangrad.zeros(1),), start_method="fork")
