"""Texts that Python 2 pickled have no encoding of their own: `load` is told it, as PyTorch's is."""

from __future__ import annotations

import io

import pytest
import torch

import tangrad

pytestmark = pytest.mark.filterwarnings("ignore:pickle_load_args only works")

BEGINS = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.\x80\x02}q\x00."
TEXT = "żą".encode()
FILE = BEGINS + b"\x80\x02]q\x00(U\x04" + TEXT + b"K\x02e.\x80\x02]q\x01."


@pytest.mark.parametrize("weights_only", [True, False])
@pytest.mark.parametrize("given", [{}, {"encoding": "bytes"}, {"encoding": "latin1"}])
def test_a_text_is_read_by_the_encoding_that_is_given(given, weights_only):
    found = [
        library.load(io.BytesIO(FILE), weights_only=weights_only, **given)
        for library in (tangrad, torch)
    ]
    assert found[0] == found[1]


@pytest.mark.parametrize("weights_only", [True, False])
def test_a_text_of_another_encoding_is_refused(weights_only):
    with pytest.raises(tangrad.serialization.SerializationError, match="ascii"):
        tangrad.load(io.BytesIO(FILE), weights_only=weights_only, encoding="ascii")


def test_names_of_storages_may_be_bytes():
    buffer = io.BytesIO()
    tangrad.save(tangrad.ones(2), buffer, _use_new_zipfile_serialization=False)
    # As Python 2 wrote the key, in the persistent id and in the list of keys.
    content = buffer.getvalue()
    start = content.index(b"X", content.index(b"Storage\n"))
    key = content[start : start + 5 + content[start + 1]]
    old = content.replace(key, b"U" + key[1:2] + key[5:])
    assert old != content
    assert tangrad.load(io.BytesIO(old), encoding="bytes").tolist() == [1, 1]


def test_a_storage_of_a_device_that_is_not_there_says_so():
    buffer = io.BytesIO()
    tangrad.save(tangrad.ones(2), buffer, _use_new_zipfile_serialization=False)
    content = buffer.getvalue().replace(b"X\x03\x00\x00\x00cpu", b"X\x06\x00\x00\x00cuda:0")
    with pytest.raises(RuntimeError, match="Attempting to deserialize object on a CUDA device"):
        tangrad.load(io.BytesIO(content))
