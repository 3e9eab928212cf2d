"""Stores: the same behaviour in a process, in a file and over TCP."""

import socket
import struct
import subprocess
import sys
import threading
import time
from contextlib import suppress
from datetime import timedelta

import pytest

import tangrad.distributed as dist
from tangrad_distributed.stores import frames, tcp_store


@pytest.fixture(params=["hash", "file", "tcp", "prefix"])
def store(request, tmp_path):
    if request.param == "file":
        return dist.FileStore(str(tmp_path / "store"), 1)
    if request.param == "tcp":
        return dist.TCPStore("localhost", 0, is_master=True)
    made = dist.HashStore()
    return dist.PrefixStore("part", made) if request.param == "prefix" else made


def test_keys_are_written_read_counted_and_deleted(store):
    store.set("a", "1")
    store.set("b", b"\0\1")
    assert (store.get("a"), store.get("b")) == (b"1", b"\0\1")
    assert store.add("n", 3) == 3
    assert store.add("n", -1) == 2
    store.append("a", "2")
    assert store.get("a") == b"12"
    assert store.check(["a", "b"])
    assert not store.check(["a", "c"])
    assert store.delete_key("a")
    assert not store.delete_key("a")
    assert sorted(store.list_keys()) == ["b", "n"]
    assert store.num_keys() == 2


def test_a_value_is_replaced_only_if_it_is_what_was_expected(store):
    assert store.compare_set("k", "", "first") == b"first"
    assert store.compare_set("k", "other", "second") == b"first"
    assert store.compare_set("k", "first", "second") == b"second"


def test_queues_keep_their_order(store):
    store.queue_push("q", "a")
    store.queue_push("q", "b")
    assert store.queue_len("q") == 2
    assert (store.queue_pop("q"), store.queue_pop("q")) == (b"a", b"b")
    with pytest.raises(dist.QueueEmptyError, match="'q' is empty"):
        store.queue_pop("q", block=False)


def test_who_waits_goes_on_when_the_key_comes(store):
    other = store.clone()
    writer = threading.Timer(0.1, lambda: other.set("late", "here"))
    writer.start()
    assert store.get("late") == b"here"
    writer.join()  # its answer may still be on the way


def test_a_key_that_does_not_come_is_named(store):
    store.set_timeout(timedelta(seconds=0.2))
    with pytest.raises(dist.DistStoreError, match=r"wait timeout after 0\.2 s, keys: .*never"):
        store.get("never")


def test_values_are_bytes_or_text(store):
    with pytest.raises(TypeError, match="holds str or bytes, not int"):
        store.set("k", 1)


def test_a_used_port_is_told():
    first = dist.TCPStore("localhost", 0, is_master=True)
    with pytest.raises(dist.DistNetworkError, match=f"cannot listen at port {first.port}"):
        dist.TCPStore("localhost", first.port, is_master=True)


def test_a_store_that_is_gone_is_told():
    first = dist.TCPStore("localhost", 0, is_master=True)
    second = first.clone()
    first.close()
    with pytest.raises(dist.DistNetworkError, match="is gone"):
        second.get("k")


def set_slowly(monkeypatch, store):
    """Have the store answer who writes a key only when it is being closed."""
    written = threading.Event()

    def answer(held, key, value):
        written.set()
        while not store._server._closed:
            time.sleep(0.001)
        time.sleep(0.01)
        return ()

    monkeypatch.setitem(tcp_store._COMMANDS, tcp_store._SET, answer)
    return written


def test_what_a_store_was_asked_before_it_closes_is_answered(monkeypatch):
    store = dist.TCPStore("localhost", 0, is_master=True)
    other, written, failed = store.clone(), set_slowly(monkeypatch, store), []

    def write():
        try:
            other.set("k", "v")
        except dist.DistNetworkError as error:
            failed.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    written.wait()
    store.close()
    writer.join()
    assert failed == []


EXITS = """
import threading, time
import tangrad.distributed as dist
from tangrad_distributed.stores import tcp_store

store, written = dist.TCPStore("localhost", 0, is_master=True), threading.Event()

def answer(held, key, value):
    written.set()
    while not store._server._closed:
        time.sleep(0.001)
    time.sleep(0.01)
    return ()

tcp_store._COMMANDS[tcp_store._SET] = answer
print(store.port, flush=True)
written.wait()
"""


def test_a_process_that_ends_answers_what_its_store_was_asked():
    command = [sys.executable, "-c", EXITS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        dist.TCPStore("localhost", int(holder.stdout.readline())).set("k", "v")
        assert holder.wait() == 0


def test_a_fork_leaves_its_parents_store_open():
    store = dist.TCPStore("localhost", 0, is_master=True)
    store._server._process = 0  # what a fork sees: another process opened it
    store._server.close()
    store.set("k", "v")
    assert store.get("k") == b"v"


def test_who_does_not_hold_the_key_is_turned_away(monkeypatch):
    monkeypatch.setenv(frames.KEY_VARIABLE, "right")
    store = dist.TCPStore("localhost", 0, is_master=True)
    monkeypatch.setenv(frames.KEY_VARIABLE, "wrong")
    with pytest.raises(dist.DistNetworkError, match="does not hold this run's key"):
        dist.TCPStore("localhost", store.port)


@pytest.mark.parametrize("noise", [b"GET / HTTP/1.1\r\n\r\n" * 4, b"\xff" * 100, b""])
def test_a_hostile_peer_changes_nothing(noise):
    store = dist.TCPStore("localhost", 0, is_master=True)
    with socket.create_connection(("localhost", store.port)) as peer, suppress(OSError):
        peer.sendall(noise)
        peer.shutdown(socket.SHUT_WR)
        assert peer.recv(1 << 16) == b""
    store.set("k", "v")
    assert store.get("k") == b"v"


def test_a_damaged_request_of_a_rank_gets_an_error():
    store = dist.TCPStore("localhost", 0, is_master=True)
    endless = b"\x00\x08\0\0\0" + struct.pack("<d", float("inf"))
    for request in (b"", b"\xff", b"\x02\xff\xff\xff\xff", b"\x03" + b"\0" * 8, endless):
        frames.send_frame(store._sock, request)
        assert frames.receive_frame(store._sock).startswith(b"-")
    store.set("k", "v")
    assert store.get("k") == b"v"
