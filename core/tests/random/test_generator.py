"""Generators: streams, their states, and the defaults per device."""

from __future__ import annotations

import copy
import pickle
import threading

import pytest

from tangrad import random
from tangrad.random import Generator, generator

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def states_are_torch_tensors(monkeypatch):
    monkeypatch.setattr(
        generator, "_as_tensor", lambda state: torch.tensor(list(state), dtype=torch.uint8)
    )
    # PyTorch knows nothing of the devices that other tests have registered.
    monkeypatch.setattr(generator, "_defaults", {"cpu": generator.default_generator})
    monkeypatch.setattr(generator, "_by_device", {})
    monkeypatch.setattr(generator, "_as_device", torch.device)
    with random.fork_rng():
        yield


def test_a_generator_starts_at_torchs_seed():
    assert Generator().initial_seed() == torch.Generator().initial_seed()


def test_advance_reserves_counters():
    g = Generator().manual_seed(5)
    assert g.advance(3) == (5, 0)
    assert g.advance(4) == (5, 3)
    assert g.get_offset() == 7


def test_the_offset_wraps_at_64_bits():
    g = Generator()
    g.set_offset(2**64 - 1)
    g.advance(2)
    assert g.get_offset() == 1


def test_threads_never_share_counters():
    g = Generator()
    taken: list[int] = []

    def draw():
        taken.extend(g.advance(1)[1] for _ in range(1000))

    threads = [threading.Thread(target=draw) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == list(range(4000))


@pytest.mark.parametrize("seed", [0, 1, -1, -(2**63), 2**64 - 1])
def test_seeds_are_read_as_in_torch(seed):
    expected = torch.Generator().manual_seed(seed).initial_seed()
    assert Generator().manual_seed(seed).initial_seed() == expected


@pytest.mark.parametrize("seed", [2**64, -(2**63) - 1])
def test_a_seed_past_64_bits_is_refused(seed):
    with pytest.raises(RuntimeError, match="64 bits"):
        Generator().manual_seed(seed)


def test_a_device_that_does_not_exist_is_refused():
    with pytest.raises(RuntimeError, match="nowhere"):
        Generator("nowhere")


def test_manual_seed_returns_the_generator_and_restarts_it():
    g = Generator()
    g.advance(9)
    assert g.manual_seed(3) is g
    assert g.get_offset() == 0


def test_seed_differs_each_time():
    g = Generator()
    assert g.seed() != g.seed()
    assert g.seed() == g.initial_seed()


def test_state_is_sixteen_bytes_and_continues_the_stream():
    g = Generator().manual_seed(-1)
    g.advance(5)
    state = g.get_state()
    assert state.dtype == torch.uint8
    assert state.tolist() == [255] * 8 + [5] + [0] * 7
    expected = g.advance(1)
    other = Generator()
    other.set_state(state)
    assert other.advance(1) == expected


def test_a_wrong_state_is_refused():
    with pytest.raises(RuntimeError, match="16 bytes, got 3"):
        Generator().set_state(torch.zeros(3, dtype=torch.uint8))
    for state in (torch.zeros(16), b"0" * 16):
        with pytest.raises(TypeError, match="uint8"):
            Generator().set_state(state)


def test_a_wrong_offset_is_refused():
    with pytest.raises(RuntimeError, match="offset"):
        Generator().set_offset(-1)


def test_copies_go_their_own_way_from_the_same_place():
    g = Generator().manual_seed(8)
    g.advance(2)
    twins = [g.clone_state(), copy.deepcopy(g), pickle.loads(pickle.dumps(g))]
    for twin in twins:
        assert twin.advance(1) == (8, 2)
    assert g.get_offset() == 2


def test_the_device_is_a_device():
    assert Generator("cpu").device == torch.device("cpu")


def test_manual_seed_seeds_all_devices_those_to_come_too():
    before = random.get_default_generator("meta")
    assert random.manual_seed(77) is random.default_generator
    after = random.get_default_generator("xpu:1")
    assert before.initial_seed() == after.initial_seed() == random.initial_seed() == 77


def test_a_device_has_one_default_generator():
    assert random.get_default_generator() is random.default_generator
    assert random.get_default_generator("meta") is random.get_default_generator("meta")


def test_seed_seeds_the_defaults():
    assert random.seed() == random.initial_seed()


def test_the_default_state_can_be_kept_and_set():
    random.manual_seed(1)
    state = random.get_rng_state()
    first = random.default_generator.advance(4)
    random.set_rng_state(state)
    assert random.default_generator.advance(4) == first


@pytest.mark.parametrize("devices", [None, ["meta"]])
def test_fork_rng_gives_states_back(devices):
    generators = [random.default_generator, random.get_default_generator("meta")]
    random.manual_seed(4)
    with random.fork_rng(devices):
        random.manual_seed(5)
        for g in generators:
            g.advance(3)
    for g in generators:
        assert g.advance(1) == (4, 0)


def test_fork_rng_can_be_disabled():
    with random.fork_rng(enabled=False):
        random.manual_seed(99)
    assert random.initial_seed() == 99


def test_repr_tells_the_state():
    assert repr(Generator().manual_seed(5)) == "<tangrad.Generator device=cpu seed=5 offset=0>"


def test_setting_a_state_returns_the_generator():
    for cls, lib in ((Generator, random), (torch.Generator, torch)):
        g = cls()
        assert g.set_state(g.get_state()) is g, lib
