"""Collectives are phases: whoever watches, the profiler for one, sees them beside backward."""

import threading

import pytest

import tangrad
import tangrad.distributed as dist
from tangrad import nn
from tangrad.plugin import unwatch_phases, watch_phases


class Begun:
    """Tell when a collective begins in another thread than its caller."""

    def __init__(self):
        self.event, self.names, self.caller = threading.Event(), [], threading.get_ident()

    def enter_phase(self, name):
        self.names.append(name)
        if name == "gloo:all_reduce" and threading.get_ident() != self.caller:
            self.event.set()

    def leave_phase(self, token):
        pass

    def done_elsewhere(self, *told):
        pass


@pytest.fixture
def alone():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture
def begun():
    watcher = Begun()
    watch_phases(watcher)
    yield watcher
    unwatch_phases(watcher)


def test_each_collective_is_a_phase_named_as_pytorch_names_it(alone, begun):
    x = tangrad.ones(3)
    dist.all_reduce(x)
    dist.all_reduce(tangrad.ones(9000))
    dist.all_gather([tangrad.ones(3)], x)
    dist.barrier()
    assert begun.names == ["gloo:all_reduce", "gloo:all_reduce", "gloo:all_gather", "gloo:barrier"]


def averaged_beside_backward(begun):
    """Run a step whose first layer's backward ends after the last layer's gradients are sent."""
    seen = []

    class Waits(tangrad.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, gradient):
            seen.append(begun.event.wait(60))
            return gradient

    first, last = nn.Linear(4, 4), nn.Linear(4, 4)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = first, last

        def forward(self, x):
            return self.last(Waits.apply(self.first(x)))

    model = nn.parallel.DistributedDataParallel(Model(), bucket_cap_mb=1e-5)
    begun.event.clear()
    model(tangrad.ones(2, 4)).sum().backward()
    return seen


def test_full_buckets_are_sent_while_backward_goes_on(alone, begun):
    assert averaged_beside_backward(begun) == [True]


def test_a_profile_shows_collectives_beside_backward(alone, begun):
    profiler = pytest.importorskip("tangrad_profiler")
    averaged_beside_backward(begun)  # the thread of collectives is there before the profile
    with profiler.profile() as prof:
        averaged_beside_backward(begun)
    e, names = prof.trace.events, prof.trace.names
    sent = e["name"] == names.index("gloo:all_reduce")
    waits = e["name"] == names.index("WaitsBackward")
    assert set(e["thread"][sent]).isdisjoint(e["thread"][waits])
    assert e["start"][sent].min() < e["end"][waits].max()
