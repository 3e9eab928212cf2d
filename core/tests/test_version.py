"""Versions compare by their numbers."""

import operator
import pickle

import pytest
import torch
from torch.torch_version import TorchVersion

import tangrad
from tangrad.torch_version import TorchVersion as Ours

VERSIONS = (
    "1.9", "1.10", "1.10.0", "1.10.0a", "1.10.0a0+git123", "1.10.0rc1", "1.10.0.dev20240101",
    "1.10.0.post1", "1.10.0+cpu", "1.10.0+cu118", "1.10.0rc1.dev2", "2.13.0+tangrad0.1.0", "2",
    "parrot", (1, 10), (1, 9, 5), (2,), (2, 13, 1), "1.10.0+2", "1.10.0+10", "v1.10",
)  # fmt: skip


@pytest.mark.parametrize("comparison", ["lt", "le", "eq", "ge", "gt"])
def test_versions_compare_as_pytorchs(comparison):
    compare = getattr(operator, comparison)
    for first in (v for v in VERSIONS if isinstance(v, str)):
        for second in VERSIONS:
            if "parrot" in (first, second) and first != second:
                continue
            expected = compare(TorchVersion(first), second)
            assert compare(Ours(first), second) is expected, (first, second)


def test_what_is_no_version_compares_as_text():
    assert Ours("parrot") > "cat"
    assert Ours("1.0") != "parrot"
    assert Ours("1.0") != 3
    with pytest.raises(TypeError):
        assert Ours("parrot") > 3


def test_programs_may_ask_for_a_version_in_every_way():
    version = tangrad.__version__
    assert version >= "2.2"
    assert version >= (1, 9)
    assert not version < "2.9"
    assert version.startswith("2.13")
    assert version != "2.13.0"
    assert tuple(int(part) for part in version.split("+")[0].split(".")) == (2, 13, 0)
    assert {version: 1}[str(version)] == 1
    assert pickle.loads(pickle.dumps(version)) == version
    assert isinstance(version, str)
    packaging = pytest.importorskip("packaging.version")
    assert version > packaging.parse("2.2")
    assert packaging.parse(version) > packaging.parse("2.2")
    assert type(torch.__version__).__name__ == type(version).__name__
