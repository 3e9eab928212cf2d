"""Measure collectives of two ranks beside PyTorch's gloo, in turn, one thread each.

    python benchmarks/distributed.py [--rounds 5]

Each round starts two ranks of each framework, one after the other, and takes the median time of
many calls; printed are the medians over the rounds, in microseconds, their ratio and the goal.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys

# Bytes: (calls, goal as a share of gloo's time).
SIZES = {4: (2000, 0.3), 4 << 20: (40, 0.5), 256 << 20: (4, 1.0)}

PROGRAM = """
import json, sys, time
name = sys.argv[1]
if name == "torch":
    import torch as t
    import torch.distributed as dist
else:
    import tangrad as t
    import tangrad.distributed as dist
t.set_num_threads(1)
begun = time.time()
dist.init_process_group("gloo")
found = {}
for nbytes, calls in json.loads(sys.argv[2]).items():
    x = t.ones(int(nbytes) // 4)
    for _ in range(3):
        dist.all_reduce(x, op=dist.ReduceOp.MAX)
    times = []
    for _ in range(calls):
        start = time.perf_counter()
        dist.all_reduce(x, op=dist.ReduceOp.MAX)
        times.append(time.perf_counter() - start)
    found[nbytes] = sorted(times)[len(times) // 2] * 1e6
if dist.get_rank() == 0:
    print("found", json.dumps(found))
dist.destroy_process_group()
"""


def measured(name: str) -> dict[str, float]:
    """Return the median microseconds per call of each size in one framework."""
    with socket.create_server(("localhost", 0)) as free:
        port = free.getsockname()[1]
    calls = json.dumps({nbytes: count for nbytes, (count, _) in SIZES.items()})
    shared = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}
    shared |= {"MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, name, calls],
            env={**shared, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    said = [rank.communicate()[0] for rank in ranks]
    return json.loads(said[0].partition("found ")[2])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    found = [(measured("tangrad"), measured("torch")) for _ in range(rounds)]
    print(f"{'all_reduce':>12} {'tangrad':>12} {'gloo':>12} {'ratio':>7} {'goal':>6}")
    for nbytes, (_, goal) in SIZES.items():
        ours = statistics.median(pair[0][str(nbytes)] for pair in found)
        theirs = statistics.median(pair[1][str(nbytes)] for pair in found)
        print(f"{nbytes:>12} {ours:>12.1f} {theirs:>12.1f} {ours / theirs:>7.2f} {goal:>6}")


if __name__ == "__main__":
    main()
