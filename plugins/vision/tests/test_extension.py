"""The extension of torchvision is answered for without being opened."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import tangrad


@pytest.fixture(scope="module", autouse=True)
def loaded(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Load files that have the extensions' names and nothing in them."""
    folder = tmp_path_factory.mktemp("site") / "torchvision"
    folder.mkdir()
    for name in ("_C.so", "image.so"):
        (folder / name).write_bytes(b"")
        tangrad.ops.load_library(str(folder / name))


def test_declared_ops_are_computed_by_this_package() -> None:
    dets = tangrad.tensor([[0.0, 0, 2, 2], [0, 0, 2, 2.1], [5, 5, 6, 6]])
    kept = tangrad.ops.torchvision.nms(dets, tangrad.tensor([0.1, 0.9, 0.5]), 0.5)
    assert kept.tolist() == [1, 2]
    rois = tangrad.tensor([[0.0, 0, 0, 2, 2]])
    x = tangrad.arange(16.0).reshape(1, 1, 4, 4)
    assert tangrad.ops.torchvision.roi_align(x, rois, 1.0, 1, 1, 1, False).item() == 5.0
    pooled, places = tangrad.ops.torchvision.roi_pool(x, rois, 1.0, 1, 1)
    assert (pooled.item(), places.item(), places.dtype) == (10.0, 10, tangrad.int32)
    gradient = tangrad.ops.torchvision._roi_pool_backward(
        pooled, rois, places, 1.0, 1, 1, 1, 1, 4, 4
    )
    assert gradient.flatten().nonzero().item() == 10
    assert tangrad.ops.torchvision._cuda_version() == -1


def test_a_declared_op_that_nothing_computes_says_so() -> None:
    with pytest.raises(NotImplementedError, match="box_iou_rotated: .*does not compute it"):
        tangrad.ops.torchvision.box_iou_rotated(tangrad.ones(1, 5), tangrad.ones(1, 5))


def test_autocast_kernels_are_called_in_autocast_alone() -> None:
    with tangrad.library._scoped_library("torchvision", "IMPL") as library:
        seen = []

        def cast(dets: tangrad.Tensor, scores: tangrad.Tensor, threshold: float) -> tangrad.Tensor:
            seen.append(dets.dtype)
            return tangrad.ops.torchvision.nms(dets.float(), scores.float(), threshold)

        library.impl("nms", cast, "AutocastCPU")
        args = tangrad.ones(1, 4).bfloat16(), tangrad.ones(1).bfloat16(), 0.5
        with tangrad.autocast("cpu"):
            assert tangrad.ops.torchvision.nms(*args).tolist() == [0]
        tangrad.ops.torchvision.nms(*args)
        assert seen == [tangrad.bfloat16]


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_pictures_are_read_and_written(kind: str, tmp_path: Path) -> None:
    pixels = np.arange(5 * 4 * 3, dtype=np.uint8).reshape(5, 4, 3) * 4
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, kind)
    (tmp_path / "picture").write_bytes(buffer.getvalue())
    data = tangrad.ops.image.read_file(str(tmp_path / "picture"))
    decoded = tangrad.ops.image.decode_image(data, 0)
    assert decoded.shape == (3, 5, 4)
    expected = np.array(Image.open(io.BytesIO(buffer.getvalue()))).transpose(2, 0, 1)
    assert (decoded.numpy() == expected).all()
    again = tangrad.ops.image.decode_image(tangrad.ops.image.encode_png(decoded, 6), 0)
    assert (again == decoded).all()
    assert tangrad.ops.image.decode_image(data, 1).shape == (1, 5, 4)


def test_other_extensions_are_not_loaded(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="Could not load this library"):
        tangrad.ops.load_library(str(tmp_path / "absent.so"))
    (tmp_path / "other.so").write_bytes(b"")
    with pytest.raises(OSError, match="compiled for PyTorch"):
        tangrad.ops.load_library(str(tmp_path / "other.so"))
