"""Programs that seed nothing: no two runs are alike, unless `TANGRAD_SEED` says so."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest

DRAWS = {
    "cpu": "tangrad.randn(2)",
    "reference": "tangrad.randn(2, device='reference')",
    "meta's stream": "tangrad.random.get_default_generator('meta').initial_seed()",
    "its own seed": "tangrad.initial_seed()",
    "the order of samples": "tangrad.utils.data.random_split(range(100), [50, 50])[0].indices",
    "a loader": "[b.tolist() for b in DataLoader(range(50), shuffle=True)]",
    "workers": "[b.tolist() for b in DataLoader(Noise(), num_workers=1)]",
    "dropout": "tangrad.nn.functional.dropout(tangrad.ones(100))",
    "weights": "tangrad.nn.Linear(2, 2).weight",
}
PROGRAM = """
import tangrad
from tangrad.utils.data import DataLoader

class Noise:
    def __len__(self):
        return 2
    def __getitem__(self, index):
        return tangrad.randint(2**40, ())
"""


def printed(program, **settings):
    environment = {**os.environ, "TANGRAD_SEED": "", "TANGRAD_RNG": "", **settings}
    command = [sys.executable, "-c", PROGRAM + program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


ENGINES = [
    "philox",
    pytest.param(
        "mt19937",
        marks=pytest.mark.skipif(
            not importlib.util.find_spec("tangrad_mersenne"), reason="a package of its own"
        ),
    ),
]


def drawn(**settings):
    """Return what a run draws of each kind, by its name."""
    lines = printed("\n".join(f"print(repr(str({draw})))" for draw in DRAWS.values()), **settings)
    return dict(zip(DRAWS, lines.splitlines(), strict=True))


@pytest.mark.parametrize("engine", ENGINES)
def test_two_runs_draw_nothing_alike(engine):
    first, second = (drawn(TANGRAD_RNG=engine) for _ in range(2))
    assert [kind for kind in DRAWS if first[kind] == second[kind]] == []


@pytest.mark.parametrize("engine", ENGINES)
def test_a_seed_in_the_environment_repeats_a_run(engine):
    first, second = (drawn(TANGRAD_RNG=engine, TANGRAD_SEED="-5") for _ in range(2))
    assert first == second


def test_a_seed_in_the_environment_is_the_manual_seed_of_all_devices():
    draw = "print(tangrad.initial_seed(), tangrad.rand(3), tangrad.rand(3, device='reference'))"
    seeded = printed(f"tangrad.manual_seed(8)\n{draw}")
    assert printed(draw, TANGRAD_SEED="8") == seeded
    assert printed(f"tangrad.manual_seed(8)\n{draw}", TANGRAD_SEED="3") == seeded


def test_the_seed_that_a_run_tells_repeats_it():
    draw = "print(tangrad.initial_seed(), tangrad.randn(3), tangrad.randperm(9))"
    first = printed(draw)
    assert printed(draw, TANGRAD_SEED=first.split()[0]) == first


@pytest.mark.parametrize("text", ["1.5", "seed", str(2**64)])
def test_a_seed_in_the_environment_that_is_none_is_told(text):
    check = "import tangrad\ntry:\n tangrad.rand(2)\nexcept ValueError as error: print(error)"
    environment = {**os.environ, "TANGRAD_SEED": text}
    command = [sys.executable, "-c", check]
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert f"TANGRAD_SEED: expected an integer of 64 bits, got {text!r}" in told.stdout


def test_devices_of_an_unseeded_run_have_streams_of_their_own():
    seeds = printed(
        "default = tangrad.random.get_default_generator\n"
        "print(*[default(name).initial_seed() for name in ('cpu', 'reference', 'meta')])"
    )
    assert len(set(seeds.split())) == 3


def test_a_new_generator_starts_from_pytorchs_seed_in_every_run():
    told = printed("print(tangrad.Generator().initial_seed())", TANGRAD_SEED="3")
    assert told == printed("print(tangrad.Generator().initial_seed())") == "67280421310721"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_forked_children_go_on_with_the_stream_of_their_parent():
    # As in PyTorch; that nothing was drawn before changes nothing.
    program = """
def numbers(queue):
    queue.put(tangrad.rand(3).tolist())

def child():
    context = tangrad.multiprocessing.get_context("fork")
    queue = context.Queue()
    process = context.Process(target=numbers, args=(queue,))
    process.start()
    found = queue.get()
    process.join()
    return found

first, second = child(), child()
print(first == second == tangrad.rand(3).tolist())
"""
    assert printed(program) == "True"


def test_undone_steps_of_a_device_that_was_new_to_them_are_drawn_again():
    program = """
from tangrad.random.generator import default_states, set_default_states
before = default_states()
first = tangrad.rand(3, device="reference")
set_default_states(before)
print(first.equal(tangrad.rand(3, device="reference")))
"""
    assert printed(program) == "True"
