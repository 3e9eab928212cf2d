"""Measure two ranks of this machine beside PyTorch's gloo, in turn, one thread each.

    python benchmarks/distributed.py [--rounds 5] [--only all_reduce always_on step ...]

All of it takes some six minutes on two cores that have nothing else to do. Each round starts two
ranks of each framework, one after the other. Of many calls the median and the best are printed,
over the rounds the median of each: the best tells most on a machine that has other things to do.

`always_on` is what header and flight recorder take of a collective, `states` the share of Adam's
states on a rank of ZeroRedundancyOptimizer, and `overlap` what a profile tells of a step.
`recovery` kills a rank again and again (`--kills 100`), and tells how long it takes until all
ranks have ended a collective of the next attempt.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Bytes: (calls, goal as a share of gloo's time).
SIZES = {4: (2000, 0.3), 4 << 20: (40, 0.5), 256 << 20: (4, 1.0)}
STEPS, STEP_GOAL = 12, 1.0
STATES_GOAL = 0.55
START_GOAL = 0.5  # seconds
RECOVERY_GOAL = 2.0  # seconds

HEAD = """
import json, sys, time
name = sys.argv[1]
if name == "torch":
    import torch as t
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel as DDP
else:
    import tangrad as t
    import tangrad.distributed as dist
    from tangrad.nn.parallel import DistributedDataParallel as DDP
t.set_num_threads(1)
dist.init_process_group("gloo")

def timed(call, count, before=3):
    times = []
    for at in range(before + count):
        start = time.perf_counter()
        call()
        if at >= before:
            times.append(1e6 * (time.perf_counter() - start))
    return sorted(times)[count // 2], min(times)

def tell(found):
    if dist.get_rank() == 0:
        print("found", json.dumps(found), flush=True)
    dist.destroy_process_group()
"""

ALL_REDUCE = """
found = {}
for nbytes, calls in json.loads(sys.argv[2]).items():
    x = t.ones(int(nbytes) // 4)
    found[nbytes] = timed(lambda: dist.all_reduce(x, op=dist.ReduceOp.MAX), calls)
# Of the largest: what no reduction in place can avoid, to read a tensor once and write it once.
found["pass"] = timed(lambda: x.neg_(), calls)
tell(found)
"""

STEP = """
sys.path.insert(0, sys.argv[2])
from workloads import networks
t.manual_seed(0)
net = networks.gpt(t)
tokens = t.randint(0, networks.VOCABULARY, (8, 129))

def step(model, optimizer):
    optimizer.zero_grad()
    logits = model(tokens[:, :-1])
    loss = t.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    optimizer.step()

alone = t.optim.SGD(net.parameters(), lr=0.01)
found = {"alone": timed(lambda: step(net, alone), int(sys.argv[3]))}
ddp = DDP(net)
found["step"] = timed(lambda: step(ddp, alone), int(sys.argv[3]))
tell(found)
"""

START = """
x = t.ones(1)
dist.all_reduce(x)
tell({"first": 0})
"""

# What is told and checked in each collective, by itself: `meetings` times for those of many pieces.
ALWAYS_ON = """
import timeit
from tangrad_distributed.watching.recorder import Recorder
group = dist.group.WORLD
engine, recorder = group.engine, Recorder("by itself", 0)

def header(y, meetings):
    # Of the next step, which nobody looks at yet.
    names = {"begin": recorder.begin, "end": recorder.end, "y": y, "op": dist.ReduceOp.SUM}
    names |= {"show": engine._meeting.show, "unlike": engine._meeting.unlike}
    names["step"] = engine.steps + 1
    lines = ["what = begin('all_reduce', y.shape, y.dtype, op, -1)"]
    lines += ["show(step, what); unlike(step, what)"] * meetings + ["end(what)"]
    times = timeit.repeat(chr(10).join(lines), globals=names, number=1000, repeat=9)
    return 1e3 * sorted(times)[4]

dist.barrier()
found = {}
for nbytes, calls in ((4, 2000), (4 << 20, 40)):
    y = t.ones(nbytes // 4)
    dist.all_reduce(y)
    before = engine.steps
    dist.all_reduce(y)
    meetings = engine.steps - before
    dist.barrier()
    took = timed(lambda: dist.all_reduce(y), calls)[0]
    dist.barrier()
    found[nbytes] = [took, header(y, meetings)]
    dist.barrier()
tell(found)
"""

STATES = """
sys.path.insert(0, sys.argv[2])
from workloads import networks
from tangrad.distributed.optim import ZeroRedundancyOptimizer
net = networks.gpt(t)
whole = t.optim.Adam(net.parameters())
parts = ZeroRedundancyOptimizer(net.parameters(), t.optim.Adam)
net(t.randint(0, networks.VOCABULARY, (2, 16))).sum().backward()
held = []
for optimizer, states in ((whole, whole.state), (parts, parts.optim.state)):
    optimizer.step()
    held.append(sum(v.nbytes for s in states.values() for v in s.values()
                    if isinstance(v, t.Tensor) and v.numel() > 1))
shares = [None, None]
dist.all_gather_object(shares, held[1] / held[0])
tell({"shares": shares})
"""

OVERLAP = """
sys.path.insert(0, sys.argv[2])
from workloads import networks
from tangrad.profiler import profile
from tangrad_profiler.page import advice_of
net = DDP(networks.gpt(t), bucket_cap_mb=0.5)
tokens = t.randint(0, networks.VOCABULARY, (8, 129))
def step():
    logits = net(tokens[:, :-1])
    t.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
step()
with profile() as prof:
    for _ in range(4):
        step()
rows = {row.key: row.cpu_time_total for row in prof.key_averages()}
told = [a.text for a in advice_of(prof.trace) if "other ranks" in a.text]
tell({"sent": rows["gloo:all_reduce"], "waited": rows["wait for gradients"], "told": told})
"""

LOOP = """
import os, time, tangrad, tangrad.distributed as dist
dist.init_process_group("gloo")
x = tangrad.ones(1)
dist.all_reduce(x)
print("pid", os.environ["TORCHELASTIC_RESTART_COUNT"], dist.get_rank(), os.getpid(), flush=True)
while True:
    dist.all_reduce(x)
    time.sleep(0.001)
"""


def ranks(name: str, source: str, *arguments: str) -> tuple[dict, float]:
    """Run a program in two ranks; return what it found, and the seconds that both took."""
    with socket.create_server(("localhost", 0)) as free:
        port = free.getsockname()[1]
    shared = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}
    shared |= {"MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    begun = time.perf_counter()
    both = [
        subprocess.Popen(
            [sys.executable, "-c", HEAD + source, name, *arguments],
            env={**shared, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    line = next((line for line in both[0].stdout or () if line.startswith("found ")), "")
    took = time.perf_counter() - begun
    for rank in both:
        rank.communicate()
    if not line:
        raise RuntimeError(f"the ranks of {name} failed")
    return json.loads(line.removeprefix("found ")), took


def pairs(rounds: int, source: str, *arguments: str) -> list[tuple[dict, dict]]:
    """Return what both frameworks found in each round."""
    return [
        (ranks("tangrad", source, *arguments)[0], ranks("torch", source, *arguments)[0])
        for _ in range(rounds)
    ]


def row(name: str, ours: list, theirs: list, goal: float) -> None:
    """Print a row: the median and the best of both, in microseconds, and their ratios."""
    (a, b), (c, d) = (
        [statistics.median(one[at] for one in side) for at in (0, 1)] for side in (ours, theirs)
    )
    print(
        f"{name:<24} {a:>12.1f} {c:>12.1f} {a / c:>6.2f}   "
        f"{b:>12.1f} {d:>12.1f} {b / d:>6.2f} {goal:>6}"
    )


def all_reduce(rounds: int, kills: int) -> None:
    """Measure reductions of three sizes, and how near the largest is to what copies allow."""
    calls = json.dumps({nbytes: count for nbytes, (count, _) in SIZES.items()})
    found = pairs(rounds, ALL_REDUCE, calls)
    for nbytes, (_, goal) in SIZES.items():
        key = str(nbytes)
        row(f"all_reduce {nbytes} B", [a[key] for a, _ in found], [b[key] for _, b in found], goal)
    passed = min(ours["pass"][1] for ours, _ in found)
    largest = max(SIZES)
    best = min(ours[str(largest)][1] for ours, _ in found)
    share = 100 * passed / best
    print(f"  {largest} B: {share:.0f} % of what memory allows (a pass over it by both ranks)")


def step(rounds: int, kills: int) -> None:
    """Measure a training step of a small GPT, alone and with its gradients averaged."""
    found = pairs(rounds, STEP, str(HERE), str(STEPS))
    for key, name in (("alone", "char-GPT step, alone"), ("step", "char-GPT step, averaged")):
        row(name, [a[key] for a, _ in found], [b[key] for _, b in found], STEP_GOAL)


def start(rounds: int, kills: int) -> None:
    """Measure from the start of two processes to the end of their first collective."""
    both = [[1e6 * ranks(name, START)[1] for _ in range(rounds)] for name in ("tangrad", "torch")]
    ours, theirs = ([[statistics.median(times), min(times)]] for times in both)
    row(f"start (≤ {START_GOAL} s)", ours, theirs, START_GOAL)


def recovery(rounds: int, kills: int) -> None:
    """Kill a rank again and again; tell how long the next attempt takes to be at work."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "program.py")
        program.write_text(LOOP)
        command = [sys.executable, "-m", "tangrad.distributed.run", "--nproc-per-node=2"]
        launcher = subprocess.Popen(
            [*command, f"--max-restarts={kills}", str(program)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        lines = iter(launcher.stdout or ())
        times, draw = [], random.Random(0)
        processes = _attempt(lines, 0)
        for kill in range(1, kills + 1):
            time.sleep(draw.uniform(0.02, 0.2))
            os.kill(processes[draw.randrange(2)], signal.SIGKILL)
            begun = time.perf_counter()
            processes = _attempt(lines, kill)
            times.append(time.perf_counter() - begun)
        launcher.send_signal(signal.SIGINT)
        launcher.wait()
    times.sort()
    p50, p99 = times[len(times) // 2], times[min(len(times) - 1, 99 * len(times) // 100)]
    print(f"recovery of {kills} kills: p50 {p50:.2f} s, p99 {p99:.2f} s, goal {RECOVERY_GOAL} s")


def _attempt(lines: Iterator[str], number: int) -> dict[int, int]:
    """Wait until both ranks of an attempt have ended a collective; return rank to process."""
    found: dict[int, int] = {}
    for line in lines:
        word, *numbers = line.split()
        if word == "pid" and int(numbers[0]) == number:
            found[int(numbers[1])] = int(numbers[2])
            if len(found) == 2:
                return found
    raise RuntimeError("the launcher ended")


def always_on(rounds: int, kills: int) -> None:
    """Tell what header and recorder take of a collective."""
    found = [ranks("tangrad", ALWAYS_ON)[0] for _ in range(rounds)]
    for nbytes in found[0]:
        took, header = (statistics.median(one[nbytes][at] for one in found) for at in (0, 1))
        print(
            f"header and recorder: {header:.2f} us of {took:.1f} us for {nbytes} B, "
            f"{100 * header / took:.1f} %"
        )


def states(rounds: int, kills: int) -> None:
    """Tell which share of Adam's states a rank holds."""
    shares = ranks("tangrad", STATES, str(HERE))[0]["shares"]
    print(f"states under ZeRO, the larger of two ranks: {max(shares):.3f}, goal {STATES_GOAL}")


def overlap(rounds: int, kills: int) -> None:
    """Tell how much of the collectives of a step a profile shows beside backward."""
    found = ranks("tangrad", OVERLAP, str(HERE))[0]
    hidden = max(0.0, 1 - found["waited"] / found["sent"])
    print(
        f"overlap: collectives take {found['sent'] / 4000:.2f} ms of a step, of which "
        f"{100 * hidden:.0f} % beside backward"
    )
    print(*found["told"], sep="\n")


ROWS = {
    "all_reduce": all_reduce,
    "always_on": always_on,
    "step": step,
    "overlap": overlap,
    "states": states,
    "start": start,
    "recovery": recovery,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--kills", type=int, default=100)
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; microseconds")
    heads = ("median", "gloo", "ratio", "best", "gloo", "ratio", "goal")
    print("{:<24} {:>12} {:>12} {:>6}   {:>12} {:>12} {:>6} {:>6}".format("", *heads))
    for name in options.only:
        ROWS[name](options.rounds, options.kills)


if __name__ == "__main__":
    main()
