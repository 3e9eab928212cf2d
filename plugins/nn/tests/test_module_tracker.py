"""Which modules are running is told in forward and in backward, as by PyTorch."""

from importlib import import_module

import pytest

import tangrad


def seen(t):
    """Return what the tracker tells inside of an inner layer, in forward and in backward."""
    tracker_of = import_module(f"{t.__name__}.utils.module_tracker").ModuleTracker

    class Inner(t.nn.Module):
        def forward(self, x):
            told.append((sorted(tracker.parents), tracker.is_bw))
            y = x * 2
            y.register_hook(lambda grad: told.append((sorted(tracker.parents), tracker.is_bw)))
            return y + 1

    class Outer(t.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = Inner(), t.nn.Sequential(Inner())

        def forward(self, x):
            return self.second(self.first(x))

    told, outer = [], Outer()
    with tracker_of() as tracker:
        told.append((sorted(tracker.parents), tracker.is_bw))
        loss = outer(t.ones(2, requires_grad=True)).sum()
        told.append((sorted(tracker.parents), tracker.is_bw))
        loss.backward()
        told.append((sorted(tracker.parents), tracker.is_bw))
    return told


def test_modules_are_told_by_their_paths():
    told = seen(tangrad)
    assert told[0] == told[3] == told[6] == (["Global"], False)
    assert told[1] == (["Global", "Outer", "Outer.first"], False)
    assert told[2] == (["Global", "Outer", "Outer.second", "Outer.second.0"], False)
    assert told[4] == (["Global", "Outer", "Outer.second", "Outer.second.0"], True)


def test_pytorch_tells_the_same():
    assert seen(tangrad) == seen(pytest.importorskip("torch"))


def test_nothing_is_followed_behind_it():
    with import_module("tangrad.utils.module_tracker").ModuleTracker() as tracker:
        pass
    layer = tangrad.nn.Linear(1, 1)
    layer.register_forward_hook(lambda *args: told.append(tracker.parents))
    told = []
    layer(tangrad.ones(1))
    assert told == [{"Global"}]
