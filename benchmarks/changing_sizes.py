"""Time everyday calls whose sizes are new in each call, as in text, detection and graphs.

    python benchmarks/changing_sizes.py [--only layer_norm] [--sizes 300] [--rounds 4]

What other benchmarks time again and again is kept after the first call: rules of ops, plans of
kernels. Here a call comes with the next of many sizes. Processor time of one thread, PyTorch and
tangrad in turn, the least of all rounds; "same" repeats one of the sizes.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

import tangrad

Call = Callable[[int], Any]


def calls(fw: Any, sizes: Sequence[int]) -> dict[str, Call]:
    """Return the calls of a framework; each takes the place of a size."""
    f, nn = fw.nn.functional, fw.nn
    line, rows = [fw.rand(n) for n in sizes], [fw.rand(n, 8) for n in sizes]
    batch = [fw.rand(2, n, 8) for n in sizes]
    places, mask = [fw.randint(0, 8, (n,)) for n in sizes], [x > 0.5 for x in line]
    images = [fw.rand(1, 3, n % 40 + 4, n % 37 + 5) for n in sizes]
    weight, bias = fw.rand(8, 8), fw.rand(8)
    linear, norm, conv = nn.Linear(8, 8), nn.LayerNorm(8), nn.Conv2d(3, 4, 3, padding=1)
    attention = nn.MultiheadAttention(8, 2, batch_first=True).eval()

    def step(k: int) -> Any:
        loss = f.cross_entropy(f.relu(linear(rows[k])), places[k])
        loss.backward()
        return loss

    return {
        "add": lambda k: line[k] + line[k],
        "add a row": lambda k: rows[k] + bias,
        "relu": lambda k: f.relu(rows[k]),
        "sum": lambda k: rows[k].sum(),
        "mean, last": lambda k: rows[k].mean(-1),
        "max": lambda k: rows[k].max(),
        "argmax": lambda k: rows[k].argmax(-1),
        "softmax": lambda k: rows[k].softmax(-1),
        "matmul": lambda k: rows[k] @ weight,
        "bmm": lambda k: batch[k] @ batch[k].transpose(1, 2),
        "einsum": lambda k: fw.einsum("bnd,de->bne", batch[k], weight),
        "linear": lambda k: linear(rows[k]),
        "layer_norm": lambda k: norm(batch[k]),
        "attention": lambda k: attention(batch[k], batch[k], batch[k], need_weights=False),
        "conv2d": lambda k: conv(images[k]),
        "max_pool2d": lambda k: f.max_pool2d(images[k], 2),
        "interpolate": lambda k: f.interpolate(images[k], scale_factor=2),
        "embedding": lambda k: f.embedding(places[k], weight),
        "cat": lambda k: fw.cat([rows[k], rows[k]]),
        "stack": lambda k: fw.stack([line[k], line[k]]),
        "contiguous": lambda k: batch[k].transpose(1, 2).contiguous(),
        "index": lambda k: rows[k][places[k].clamp(max=2)],
        "index_select": lambda k: weight.index_select(0, places[k]),
        "gather": lambda k: rows[k].gather(1, places[k][:, None]),
        "index_add": lambda k: fw.zeros(8, 8).index_add(0, places[k], rows[k]),
        "mask": lambda k: line[k][mask[k]],
        "masked_fill": lambda k: line[k].masked_fill(mask[k], 0.0),
        "nonzero": lambda k: mask[k].nonzero(),
        "topk": lambda k: line[k].topk(2),
        "sort": lambda k: line[k].sort(),
        "cumsum": lambda k: line[k].cumsum(0),
        "unique": lambda k: places[k].unique(),
        "one_hot": lambda k: f.one_hot(places[k], 8),
        "pad": lambda k: f.pad(rows[k], (0, 0, 1, 1)),
        "flip": lambda k: line[k].flip(0),
        "roll": lambda k: line[k].roll(1),
        "zeros": lambda k: fw.zeros(sizes[k], 8),
        "ones_like": lambda k: fw.ones_like(rows[k]),
        "arange": lambda k: fw.arange(sizes[k]),
        "cdist": lambda k: fw.cdist(rows[k], weight),
        "training step": step,
    }


def microseconds(call: Call, places: Sequence[int]) -> float:
    """Return the processor time of a call, over calls with each of the places."""
    begin = time.process_time()
    for k in places:
        call(k)
    return (time.process_time() - begin) / len(places) * 1e6


def main() -> None:
    """Time the calls and print them, the slowest beside PyTorch first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="part of the names of calls")
    parser.add_argument("--sizes", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=4)
    options = parser.parse_args()
    sizes = list(range(3, 3 + options.sizes))
    sides = []
    for fw in (torch, tangrad):
        fw.set_num_threads(1)
        sides.append(calls(fw, sizes))
    rows = []
    for name in sides[0]:
        if options.only not in name:
            continue
        best = [[math.inf, math.inf] for _ in sides]
        for _ in range(options.rounds):
            for side, found in zip(sides, best, strict=True):
                for i, places in enumerate((range(len(sizes)), [5] * len(sizes))):
                    found[i] = min(found[i], microseconds(side[name], places))
        (theirs, theirs_same), (ours, ours_same) = best
        rows.append((ours / theirs, name, theirs, ours, theirs_same, ours_same))
    print(f"{'call':16}{'PyTorch':>9}{'tangrad':>9}{'ratio':>7}{'same':>9}{'same':>9}{'ratio':>7}")
    for ratio, name, theirs, ours, theirs_same, ours_same in sorted(rows, reverse=True):
        print(
            f"{name:16}{theirs:9.2f}{ours:9.2f}{ratio:7.2f}"
            f"{theirs_same:9.2f}{ours_same:9.2f}{ours_same / theirs_same:7.2f}"
        )
    mean = math.exp(sum(math.log(row[0]) for row in rows) / len(rows))
    print(f"geometric mean {mean:.2f}, {sum(row[0] > 1.05 for row in rows)} above 1.05")


if __name__ == "__main__":
    main()
