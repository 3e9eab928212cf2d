"""Time torchvision on PyTorch and on tangrad: ops, transforms, decoders, a detector, the import.

    python benchmarks/vision.py --oracle PYTHON [--only nms] [--rounds 3] [--json FILE]

Both Pythons have torchvision; `--oracle` names the one whose PyTorch it fits. Every workload is
timed by processor time in one thread, in processes of the two in turn; the least of all rounds
counts, and the ratio is ours to PyTorch's. `goal` is what issue 42 asks for.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

GOALS = {"import": 0.25, "nms 10,000": 0.5, "train pipeline": 0.8}


def boxes(torch: Any, count: int, size: float, part: float) -> Any:
    """Return boxes in a square, the same for both libraries."""
    import numpy as np

    generator = np.random.default_rng(count)
    corner = generator.random((count, 2)) * size * 0.7
    found = np.concatenate([corner, corner + generator.random((count, 2)) * size * part + 0.1], 1)
    return torch.from_numpy(found.astype("float32"))


def numbers(torch: Any, *shape: int) -> Any:
    """Return normal numbers."""
    import numpy as np

    return torch.from_numpy(np.random.default_rng(7).standard_normal(shape).astype("float32"))


def picture(torch: Any) -> Any:
    """Return a picture of bytes (3, 375, 500)."""
    import numpy as np

    y, x = np.mgrid[:375, :500]
    waves = [np.sin(x / 17 + k) + np.cos(y / 15 * (k + 1)) for k in range(3)]
    noise = np.random.default_rng(1).normal(0, 9, (3, 375, 500))
    return torch.from_numpy((np.stack(waves) * 50 + 128 + noise).clip(0, 255).astype("uint8"))


def of_ops(torch: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield workloads of boxes and regions."""
    from torchvision import ops

    few, many = boxes(torch, 500, 1000, 0.2), boxes(torch, 10000, 1000, 0.1)
    scores, all_scores = few[:, 0] % 1, many[:, 0] % 1
    labels = (few[:, 1] % 80).to(torch.int64)
    yield "nms 500", lambda: ops.nms(few, scores, 0.5)
    yield "nms 10,000", lambda: ops.nms(many, all_scores, 0.5)
    yield "batched_nms 500", lambda: ops.batched_nms(few, scores, labels, 0.5)
    yield "box_iou 500 by 300", lambda: ops.box_iou(few, few[:300])
    maps = numbers(torch, 2, 256, 50, 68)
    rois = torch.cat([(few[:, :1] % 2).floor(), few * 0.8], 1)
    yield "roi_align", lambda: ops.roi_align(maps, rois, 7, 1 / 16, 2)
    yield "roi_pool", lambda: ops.roi_pool(maps, rois[:100], 7, 1 / 16)
    sensitive = numbers(torch, 2, 490, 40, 40)
    yield "ps_roi_align", lambda: ops.ps_roi_align(sensitive, rois[:64], 7, 1 / 24, 2)
    x, offset = numbers(torch, 2, 64, 32, 32), numbers(torch, 2, 18, 32, 32)
    weight = numbers(torch, 64, 64, 3, 3).requires_grad_()
    yield "deform_conv2d", lambda: ops.deform_conv2d(x, offset, weight.detach(), padding=1)
    yield (
        "deform_conv2d, backward",
        lambda: ops.deform_conv2d(x, offset, weight, padding=1).sum().backward(),
    )


def of_pictures(torch: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield workloads of decoders and transforms."""
    import torchvision.transforms.v2 as v2
    from torchvision.io import decode_jpeg, decode_png, encode_jpeg, encode_png

    plain = picture(torch)
    last = plain.permute(1, 2, 0).contiguous().permute(2, 0, 1)
    jpeg, png = encode_jpeg(plain, 90), encode_png(plain)
    yield "decode JPEG", lambda: decode_jpeg(jpeg)
    yield "decode PNG", lambda: decode_png(png)
    resize = v2.functional.resize
    yield "resize, planes", lambda: resize(plain, [224, 224], antialias=True)
    yield "resize, channels last", lambda: resize(last, [224, 224], antialias=True)
    train = v2.Compose([
        v2.RandomResizedCrop(224, antialias=True), v2.RandomHorizontalFlip(),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
    ])  # fmt: skip
    yield "train pipeline", lambda: train(last)


def of_models(torch: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield a detector's step."""
    from torchvision.models import detection

    torch.manual_seed(0)
    model = detection.fasterrcnn_resnet50_fpn(weights=None, weights_backbone=None).eval()
    images = [picture(torch)[:, :192, :256].float() / 255]
    model.transform.min_size, model.transform.max_size = (192,), 256

    def detect() -> Any:
        with torch.no_grad():
            return model(images)

    yield "Faster R-CNN ResNet-50", detect


def measure(only: str) -> dict[str, float]:
    """Return milliseconds of processor time of each workload in this process."""
    import warnings

    warnings.simplefilter("ignore")
    begin = time.process_time()
    import torch
    import torchvision  # noqa: F401

    found = {"import": (time.process_time() - begin) * 1e3} if only in "import" else {}
    torch.set_num_threads(1)
    for group in (of_ops, of_pictures, of_models):
        for name, call in group(torch):
            if only in name:
                found[name] = least(call)
    return found


def least(call: Callable[[], Any]) -> float:
    """Return the least milliseconds that a call takes, of some within half a second."""
    call()
    best, until = float("inf"), time.process_time() + 0.5
    while best == float("inf") or time.process_time() < until:
        begin, calls = time.process_time(), 0
        while time.process_time() - begin < 0.01:
            call()
            calls += 1
        best = min(best, (time.process_time() - begin) / calls * 1e3)
    return best


def side(python: list[str], only: str) -> dict[str, float]:
    """Measure in a process of its own."""
    one = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "MKL", "OPENBLAS")}
    # Where no byte code may be written, each process would compile what it imports.
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    told = subprocess.run(
        [*python, __file__, "--child", "--only", only], env={**kept, **one}, check=True,
        capture_output=True, text=True,
    )  # fmt: skip
    return dict(json.loads(told.stdout.splitlines()[-1]))


def main() -> None:
    """Measure both in turn and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--oracle", default=sys.executable, help="a Python with PyTorch")
    parser.add_argument("--only", default="", help="part of the names of workloads")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measure(options.only)))
        return
    sides = [[options.oracle], [sys.executable, "-m", "tangrad", "run"]]
    rounds = [[side(python, options.only) for python in sides] for _ in range(options.rounds)]
    rows = {}
    print(f"{'workload':26}{'PyTorch ms':>12}{'tangrad ms':>12}{'ratio':>8}{'goal':>7}")
    for name in rounds[0][0]:
        theirs, ours = (min(r[k][name] for r in rounds) for k in (0, 1))
        rows[name] = {"theirs": theirs, "ours": ours}
        goal = GOALS.get(name, 1.0)
        print(f"{name:26}{theirs:12.3f}{ours:12.3f}{ours / theirs:8.2f}{goal:7.2f}")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1), "utf-8")


if __name__ == "__main__":
    main()
