"""Loading in worker processes: order, seeds, errors, and what remains when a process is killed."""

import gc
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

import tangrad
from tangrad.utils import data

pytestmark = pytest.mark.filterwarnings(
    "ignore:This DataLoader will create", "ignore:.*use of fork.*:DeprecationWarning"
)
METHODS = multiprocessing.get_all_start_methods()


class Squares(data.Dataset):
    def __len__(self):
        return 11

    def __getitem__(self, i):
        return {"x": tangrad.full((2,), float(i * i)), "i": i, "name": str(i)}


class Numbers(data.IterableDataset):
    """The numbers below 10, shared out among the workers."""

    def __iter__(self):
        info = data.get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        return iter(range(first, 10, step))


class Of(data.Dataset):
    """What a function makes of the first keys."""

    def __init__(self, function, size=4):
        self.function, self.size = function, size

    def __len__(self):
        return self.size

    def __getitem__(self, i):
        return self.function(i)


def plain(batches):
    return [{**batch, "x": batch["x"].tolist(), "i": batch["i"].tolist()} for batch in batches]


def loader(dataset, workers=2, method="fork", **options):
    return data.DataLoader(dataset, num_workers=workers, multiprocessing_context=method, **options)


def mappings():
    """Return the shared files without a name that this process maps."""
    with open("/proc/self/maps") as file:
        return [line for line in file if "memfd:tangrad" in line]


def files():
    return len(os.listdir("/proc/self/fd"))


def gone(pid, within=100):
    """Tell whether a process ends within some seconds."""
    end = time.monotonic() + within
    while time.monotonic() < end:
        try:
            with open(f"/proc/{pid}/stat") as file:
                if file.read().rpartition(")")[2].split()[0] == "Z":
                    return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize("method", METHODS)
def test_batches_are_those_of_one_process_in_their_order(method):
    wanted = plain(data.DataLoader(Squares(), 3))
    assert plain(loader(Squares(), method=method, batch_size=3)) == wanted


@pytest.mark.parametrize("options", [{}, {"prefetch_factor": 1}, {"in_order": False}])
@pytest.mark.parametrize("workers", [1, 3, 5])
def test_every_batch_comes_once(workers, options):
    found = [batch["i"].item() for batch in loader(Squares(), workers, **options)]
    assert sorted(found) == list(range(11))
    assert options == {"in_order": False} or found == list(range(11))


def test_batches_may_come_as_soon_as_they_are_made():
    another_came = multiprocessing.get_context("fork").Event()

    def slow_at_first(i):
        return i if i or another_came.wait(100) else -1

    batches = iter(loader(Of(slow_at_first, 6), in_order=False))
    found = [int(next(batches))]
    another_came.set()
    found += [int(i) for i in batches]
    assert sorted(found) == list(range(6))
    assert found[0] != 0


@pytest.mark.parametrize("persistent", [False, True])
def test_streams_share_themselves_out(persistent):
    batches = loader(Numbers(), batch_size=2, persistent_workers=persistent)
    wanted = [[0, 2], [1, 3], [4, 6], [5, 7], [8], [9]]
    for _ in range(2):
        assert [batch.tolist() for batch in batches] == wanted


def test_single_samples_and_dropped_rests():
    assert list(loader(Numbers(), batch_size=None)) == list(range(10))
    found = loader(Numbers(), batch_size=2, drop_last=True)
    assert [batch.tolist() for batch in found] == [[0, 2], [1, 3], [4, 6], [5, 7]]


def test_persistent_workers_stay_and_begin_anew_after_a_break():
    batches = loader(Of(lambda i: os.getpid(), 8), persistent_workers=True)
    first = {int(pid) for pid in batches}
    for _ in batches:
        break
    assert {int(pid) for pid in batches} == first
    assert len(first) == 2
    pids = {int(pid) for pid in loader(Of(lambda i: os.getpid(), 8))}
    assert len(pids) == 2
    assert not pids & first


def test_workers_know_of_themselves_and_run_the_init_function():
    def init(worker):
        data.get_worker_info().dataset.told = worker

    def told(i):
        info = data.get_worker_info()
        assert info.dataset.told == info.id
        assert info.num_workers == 2
        return info.id

    dataset = Of(told)
    assert [int(x) for x in loader(dataset, worker_init_fn=init)] == [0, 1, 0, 1]
    assert not hasattr(dataset, "told")


def test_seeds_are_those_of_pytorch():
    torch = pytest.importorskip("torch")
    numpy = pytest.importorskip("numpy")
    engine = tangrad.random.get_engine()
    tangrad.random.set_engine("mt19937")
    try:

        def drawn(t):
            def sample(i):
                values = random.random(), t.rand(()).item(), numpy.random.rand()
                return (t.utils.data.get_worker_info().seed, i, *map(float, values))

            t.manual_seed(3)
            batches = t.utils.data.DataLoader(
                Of(sample, 6), num_workers=2, multiprocessing_context="fork", shuffle=True
            )
            return [[float(x) for x in batch] for batch in batches]

        assert drawn(tangrad) == drawn(torch)
    finally:
        tangrad.random.set_engine(engine)


def test_random_orders_are_those_of_pytorch():
    torch = pytest.importorskip("torch")
    engine = tangrad.random.get_engine()
    tangrad.random.set_engine("mt19937")
    try:

        def orders(t):
            t.manual_seed(1)
            found = []
            for replacement, count in ((False, None), (False, 17), (True, 40), (True, 64)):
                for own in (None, t.Generator().manual_seed(5)):
                    sampler = t.utils.data.RandomSampler(
                        range(7), replacement=replacement, num_samples=count, generator=own
                    )
                    found += [list(sampler), list(sampler)]
            return found

        assert orders(tangrad) == orders(torch)
    finally:
        tangrad.random.set_engine(engine)


def test_tensors_come_in_shared_memory_and_can_be_written():
    batch = next(iter(loader(Squares(), batch_size=4)))
    assert batch["x"].is_shared()
    batch["x"][0, 0] = 7
    assert batch["x"][0].tolist() == [7, 0]


def test_tensors_keep_what_they_are():
    base = tangrad.arange(12.0).reshape(3, 4)

    def sample(i):
        shared = base.clone()
        return {
            "view": base.t()[1],
            "strided": base.t(),
            "twice": [shared, shared[0]],
            "empty": tangrad.empty(0, 3),
            "scalar": tangrad.tensor(1 + 2j).conj(),
            "leaf": tangrad.ones(2, requires_grad=True),
            "parameter": tangrad.nn.Parameter(tangrad.ones(2)),
            "half": tangrad.ones(2, dtype=tangrad.bfloat16),
        }

    for found in loader(Of(sample, 2), batch_size=None):
        wanted = sample(0)
        for name in wanted.keys() - {"twice"}:
            assert type(found[name]) is type(wanted[name])
            assert found[name].dtype == wanted[name].dtype
            assert found[name].requires_grad == wanted[name].requires_grad
            assert found[name].tolist() == wanted[name].tolist()
        assert [x.tolist() for x in found["twice"]] == [x.tolist() for x in wanted["twice"]]
        assert found["view"].untyped_storage().nbytes() == 3 * 4


@pytest.mark.parametrize("nbytes", [0, 10_000_000])
@pytest.mark.parametrize("elements", [0, 3])
def test_batches_may_be_larger_than_a_channel_holds(nbytes, elements):
    dataset = Of(lambda i: (bytes([i]) * nbytes, tangrad.full((elements,), i)), 3)
    for i, (content, x) in enumerate(loader(dataset, batch_size=None)):
        assert content == bytes([i]) * nbytes
        assert x.tolist() == [i] * elements


def test_a_tensor_with_a_history_is_refused():
    dataset = Of(lambda i: tangrad.ones(1, requires_grad=True) * 2)
    with pytest.raises(RuntimeError, match="detach"):
        list(loader(dataset, batch_size=None))


def fails(i):
    if i == 2:
        raise KeyError("no sample")
    return i


def test_errors_have_their_type_and_the_traceback_of_the_worker():
    batches = iter(loader(Of(fails)))
    assert [next(batches).item() for _ in range(2)] == [0, 1]
    with pytest.raises(KeyError) as caught:
        next(batches)
    text = str(caught.value)
    assert text.startswith(
        "Caught KeyError in DataLoader worker process 0.\nOriginal Traceback (most recent call"
    )
    assert "in fails" in text
    assert "KeyError: 'no sample'" in text
    assert next(batches).item() == 3, "the pass goes on after an error"


def test_errors_that_are_not_made_of_a_message_become_runtime_errors():
    class Odd(Exception):
        def __init__(self, a, b):
            super().__init__(a, b)

    def odd(i):
        raise Odd(1, 2)

    with pytest.raises(RuntimeError, match="Caught .* in DataLoader worker process 0"):
        list(loader(Of(odd)))


def test_errors_of_the_init_function_and_of_samples_that_cannot_be_sent():
    def init(worker):
        raise ValueError("not set up")

    with pytest.raises(ValueError, match="not set up"):
        list(loader(Squares(), worker_init_fn=init))
    with pytest.raises(Exception, match="in DataLoader worker process"):
        list(loader(Of(lambda i: lambda: i), batch_size=None))


def test_a_worker_that_dies_is_named():
    def die(i):
        if i == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return os.getpid()

    batches = iter(loader(Of(die), 1, prefetch_factor=1))
    pid = next(batches).item()
    with pytest.raises(RuntimeError, match=rf"worker \(pid\(s\) {pid}\) exited unexpectedly.*Kill"):
        next(batches)


def test_a_worker_that_exits_is_named_when_persistent_too():
    batches = loader(Of(lambda i: os._exit(3)), 1, persistent_workers=True)
    for _ in range(2):  # the second pass has new workers
        with pytest.raises(RuntimeError, match="exit code 3"):
            list(batches)


def test_waiting_has_an_end(monkeypatch):
    monkeypatch.setattr("tangrad.utils.data.workers.LOOK", 0.5)  # then it is ended
    batches = loader(Of(lambda i: threading.Event().wait()), 1, timeout=0.2)
    with pytest.raises(RuntimeError, match=r"DataLoader timed out after 0\.2 seconds"):
        list(batches)


@pytest.mark.parametrize("keys", ["tensors", "many"])
def test_orders_may_be_large(keys):
    # Neither may wait for the other: orders and answers both exceed what a channel holds.
    if keys == "tensors":
        wanted = [tangrad.arange(4), tangrad.arange(2)]
        batches = loader(Of(lambda i: int(i)), batch_sampler=wanted)
        assert [batch.tolist() for batch in batches] == [[0, 1, 2, 3], [0, 1]]
        return
    many = [[list(range(200_000))] for _ in range(6)]
    batches = loader(Of(lambda i: bytes(2_000_000)), batch_sampler=many)
    assert [len(batch[0]) for batch in batches] == [2_000_000] * 6


def test_iterators_end_their_workers_and_leave_nothing_open():
    list(loader(Squares()))
    gc.collect()
    before, mapped = files(), len(mappings())
    for _ in range(3):
        list(loader(Squares()))
        next(iter(loader(Squares())))
        with pytest.raises(KeyError):
            list(loader(Of(fails)))
    gc.collect()
    assert files() == before
    assert len(mappings()) == mapped
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("method", METHODS)
def test_workers_end_with_a_loader_that_is_killed(method, tmp_path):
    script = tmp_path / "main.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import os, time
            from tangrad.utils import data

            class Pids(data.Dataset):
                def __len__(self):
                    return 100

                def __getitem__(self, i):
                    return os.getpid()

            if __name__ == "__main__":
                batches = data.DataLoader(
                    Pids(), num_workers=2, multiprocessing_context="{method}"
                )
                found = iter(batches)
                print(next(found).item(), next(found).item(), flush=True)
                time.sleep(60)
            """
        )
    )
    shared = set(os.listdir("/dev/shm"))
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE) as main:
        pids = [int(pid) for pid in main.stdout.readline().split()]
        main.kill()
    assert len(pids) == 2
    assert all(map(gone, pids))
    assert not [name for name in set(os.listdir("/dev/shm")) - shared if "tangrad" in name]


def test_a_forked_process_does_not_end_the_workers_of_its_parent():
    batches = iter(loader(Squares(), 1, prefetch_factor=1))
    next(batches)

    def child():
        batches.__dict__["_end"]()

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join()
    assert process.exitcode == 0
    assert len(list(batches)) == 10


def test_options_of_workers():
    batches = data.DataLoader(Squares(), num_workers=1)
    assert batches.prefetch_factor == 2
    assert batches.multiprocessing_context is None
    with pytest.raises(ValueError, match="after DataLoader is initialized"):
        batches.batch_size = 3
    with pytest.raises(ValueError, match="valid start method"):
        loader(Squares(), method="thread")
    with pytest.raises(TypeError, match="valid context"):
        loader(Squares(), method=3)
    with pytest.raises(ValueError, match="timeout"):
        loader(Squares(), timeout=-1)
    with pytest.raises(ValueError, match="prefetch_factor"):
        loader(Squares(), prefetch_factor=0)


def test_more_workers_than_processors_are_warned_of():
    with pytest.warns(UserWarning, match="will create 4096 worker processes"):
        data.DataLoader(Squares(), num_workers=4096)


def test_pinning_without_a_device_is_warned_of():
    if tangrad._C._default_accelerator() != "cpu":
        pytest.skip("there is a device to pin memory for")
    with pytest.warns(UserWarning, match="no accelerator is found"):
        list(data.DataLoader(Squares(), pin_memory=True))


def test_a_stream_longer_than_it_claims_is_warned_of():
    class Claims(Numbers):
        def __len__(self):
            return 4

    batches = data.DataLoader(Claims(), batch_size=None)
    assert len(batches) == 4
    with pytest.warns(UserWarning, match="was reported to be 4"):
        assert len(list(batches)) == 10
