"""Ranks find each other by the environment, a file, an address, or a way of a program's own."""

import importlib
import re
import socket

import pytest

import tangrad.distributed as dist

NAMES = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "TORCHELASTIC_USE_AGENT_STORE")


@pytest.fixture
def free_port():
    with socket.create_server(("localhost", 0)) as free:
        return free.getsockname()[1]


def found(url, **told):
    return next(iter(dist.rendezvous(url, **told)))


def assert_shared(first, second):
    """Both ranks have a rank, the number of ranks, and one store."""
    assert (first[1:], second[1:]) == ((0, 2), (1, 2))
    first[0].set("from", "0")
    assert second[0].get("from") == b"0"


def test_ranks_meet_in_a_file(tmp_path):
    url = f"file://{tmp_path}/store"
    assert_shared(found(url, rank=0, world_size=2), found(f"{url}?rank=1&world_size=2"))


def test_ranks_meet_at_an_address(free_port):
    url = f"tcp://localhost:{free_port}"
    assert_shared(found(f"{url}?rank=0&world_size=2"), found(url, rank=1, world_size=2))


def test_ranks_meet_by_the_environment(monkeypatch, free_port):
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE", raising=False)
    told = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(free_port), "WORLD_SIZE": "2"}
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("RANK", "0")
    first = found("env://")
    monkeypatch.setenv("RANK", "1")
    assert_shared(first, found("env://"))


def test_the_same_addresses_make_a_world(launch, tmp_path, free_port):
    source = """
        import os, sys, tangrad, tangrad.distributed as dist
        rank = int(os.environ["RANK"])
        for method in sys.argv[1:]:
            dist.init_process_group("gloo", init_method=method, rank=rank, world_size=2)
            x = tangrad.tensor([rank + 1.0])
            dist.all_reduce(x)
            dist.destroy_process_group()
            print("sum", x.item())
    """
    done = launch(source, f"file://{tmp_path}/store", f"tcp://localhost:{free_port}")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("sum 3.0") == 4


def test_a_program_may_have_a_way_of_its_own(monkeypatch):
    module = importlib.import_module("tangrad_distributed.rendezvous")
    monkeypatch.setattr(module, "_handlers", dict(module._handlers))
    store = dist.HashStore()

    def meet(url, rank=-1, world_size=-1, **told):
        yield store, rank, 4

    dist.register_rendezvous_handler("mine", meet)
    assert found("mine://somewhere", rank=3) == (store, 3, 4)
    with pytest.raises(RuntimeError, match="handler for mine:// already registered"):
        dist.register_rendezvous_handler("mine", meet)


@pytest.mark.parametrize(
    ("url", "told", "error", "message"),
    [
        ("env://", {}, ValueError, "variable RANK expected, but not set. Start the program by"),
        ("file:///x", {}, ValueError, "world_size must be at least 1, got -1"),
        ("file:///x", {"rank": 2, "world_size": 2}, ValueError, "rank must be from 0 to 1, got 2"),
        ("file://", {"rank": 0, "world_size": 1}, ValueError, "file:// needs a path"),
        ("tcp://host", {"rank": 0, "world_size": 1}, ValueError, "needs a host and a port"),
        ("other://x", {}, RuntimeError, "No rendezvous handler for other://; known: env://"),
        (7, {}, RuntimeError, "the address must be a str, got 7"),
    ],
)
def test_an_address_that_leads_nowhere_is_refused(monkeypatch, url, told, error, message):
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(error, match=re.escape(message)):
        found(url, **told)
