"""What pip fetched of PyTorch is read from its report: `libraries/without_pytorch.py`."""

import sys
from pathlib import Path

import pytest

LIBRARIES = Path(__file__).parents[1] / "libraries"


@pytest.fixture
def without_pytorch(monkeypatch):
    monkeypatch.syspath_prepend(str(LIBRARIES))
    import without_pytorch

    yield without_pytorch
    for name in ("without_pytorch", "test_libraries"):
        sys.modules.pop(name, None)


def report(*names):
    return {"install": [{"metadata": {"name": name, "version": "1"}} for name in names]}


def test_pytorch_and_what_comes_with_it_are_seen(without_pytorch):
    found = report("timm", "torch", "nvidia_cublas", "Triton", "torchvision")
    assert without_pytorch.fetched(found) == ["nvidia-cublas", "torch", "triton"]


def test_a_library_alone_is_no_pytorch(without_pytorch):
    assert without_pytorch.fetched(report("torchmetrics", "torch_geometric", "numpy")) == []


def test_a_library_without_a_program_is_refused(without_pytorch, capsys, tmp_path):
    with pytest.raises(SystemExit):
        without_pytorch.main(["--folder", str(tmp_path), "no_such_library"])
    assert "no program for no_such_library; there are accelerate" in capsys.readouterr().err
