"""An engine of a third party is one package: it is found by its entry point and passes the kit."""

import os
import subprocess
import sys

import pytest

import tangrad
import tangrad.distributed as dist
from tangrad_distributed.engines.threads import Threads

# Messages by the store: slow, and complete.
ENGINE = """
from collections import defaultdict

from tangrad.distributed import Engine
from tangrad_distributed.engine import Transfer

API = 1


class Sent(Transfer):
    def __init__(self, peer):
        self.peer = peer

    def test(self):
        return True


class Received(Transfer):
    def __init__(self, engine, peer, tag, into):
        self.engine, self.peer, self.tag, self.into = engine, peer, tag, into
        self.through = False

    def test(self):
        if self.through:
            return True
        engine = self.engine
        peers = range(engine.size) if self.peer < 0 else [self.peer]
        for peer in peers:
            count = engine.received[peer, self.tag]
            key = f"{peer}/{engine.rank}/{self.tag}/{count}"
            if engine.context.store.check([key]):
                engine.received[peer, self.tag] += 1
                content = engine.context.store.get(key)[1:]  # a value may not be empty
                engine.context.store.delete_key(key)
                self.peer, self.through = peer, True
                engine.fill(self.into, content, peer)
                return True
        return False


class ByStore(Engine):
    name = "bystore"

    def __init__(self, context):
        super().__init__(context)
        self.sent, self.received = defaultdict(int), defaultdict(int)

    def send(self, peer, tag, data):
        key = f"{self.rank}/{peer}/{tag}/{self.sent[peer, tag]}"
        self.sent[peer, tag] += 1
        self.context.store.set(key, b"x" + bytes(data))
        return Sent(peer)

    def receive(self, peer, tag, into):
        return Received(self, peer, tag, into)

    def lost(self):
        return {}
"""


@pytest.fixture
def environment(tmp_path):
    (tmp_path / "bystore.py").write_text(ENGINE)
    info = tmp_path / "bystore-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: bystore\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[tangrad.collectives]\nbystore = bystore:ByStore\n")
    return {**os.environ, "PYTHONPATH": str(tmp_path)}


def test_an_engine_of_a_third_party_passes_the_kit(environment):
    command = [sys.executable, "-m", "tangrad.distributed.run", "--nproc-per-node=2", "-m"]
    command += ["tangrad_distributed.conformance", "bystore"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("cases passed") == 2


def summed(rank):
    on_host, elsewhere = tangrad.ones(2), tangrad.ones(2, device="reference")
    dist.all_reduce(on_host)
    work = dist.all_reduce(elsewhere, async_op=True)
    work.wait()
    return on_host.tolist(), elsewhere.tolist(), elsewhere.device.type


@pytest.mark.parametrize("named", [("cpu",), ("cpu", "reference")])
def test_an_engine_is_handed_tensors_of_the_devices_that_it_names(monkeypatch, named):
    seen = []

    class Direct(Threads):
        devices = frozenset(named)

        def all_reduce(self, tensor, op, what, timeout):
            seen.append(tensor.device.type)
            super().all_reduce(tensor, op, what, timeout)

    monkeypatch.setattr(dist.Backend, "_creators", {"direct": Direct})
    assert dist.run_threads(summed, 1, backend="direct") == [([1.0] * 2, [1.0] * 2, "reference")]
    assert seen == ["cpu", named[-1]]


def test_a_device_has_done_its_work_before_a_collective_reads_it(monkeypatch):
    waited = []
    monkeypatch.setattr(tangrad.accelerator, "synchronize", waited.append)
    dist.run_threads(summed, 2)
    assert waited == [tangrad.device("reference")] * 2
