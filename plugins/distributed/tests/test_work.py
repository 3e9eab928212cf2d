"""Collectives that run while their caller goes on: waiting, failing, and what follows from them."""

import threading
from datetime import timedelta

import pytest

import tangrad
import tangrad.distributed as dist


def test_a_work_is_over_when_all_ranks_have_come():
    gate = threading.Event()

    def step(rank):
        if rank == 1:
            gate.wait()
        x = tangrad.full((2,), rank + 1.0)
        work = dist.all_reduce(x, async_op=True)
        if rank == 0:
            assert not work.is_completed()
            assert not work.is_success()
            with pytest.raises(dist.CollectiveTimeoutError, match=r"did not end within 0\.05 s"):
                work.wait(timedelta(seconds=0.05))
            gate.set()
        doubled = work.get_future().then(lambda done: done.value()[0] * 2)
        assert work.wait()
        assert work.is_completed()
        assert work.is_success()
        assert work.exception() is None
        return work.result()[0].tolist(), doubled.wait().tolist()

    assert dist.run_threads(step, 2) == [([3.0] * 2, [6.0] * 2)] * 2


def test_a_work_that_fails_raises_where_it_is_waited_for():
    def step(rank):
        work = dist.all_reduce(tangrad.ones(1 + rank), async_op=True)
        after = work.get_future().then(lambda done: done.value())
        with pytest.raises(dist.CollectiveMismatchError, match="ranks disagree"):
            work.wait()
        assert work.is_completed()
        assert not work.is_success()
        assert isinstance(work.exception(), dist.CollectiveMismatchError)
        with pytest.raises(dist.CollectiveMismatchError):
            after.wait()

    dist.run_threads(step, 2)


def test_a_message_from_anybody_tells_who_sent_it():
    def step(rank):
        if rank:
            dist.send(tangrad.tensor([float(rank)]), 0)
            return None
        came = tangrad.empty(1)
        work = dist.irecv(came)
        work.wait()
        assert came.item() == work.source_rank()
        return work.source_rank()

    assert dist.run_threads(step, 2) == [1, None]
