"""What `import tangrad` costs, beside PyTorch and NumPy: `python benchmarks/import_time.py`.

Every measurement is a fresh process; bare Python, ours and the others take turns.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measuring.paired import OURS, Figure, Samples, as_data
from measuring.report import table

FRAMEWORKS = (OURS, "torch", "numpy")
FORBIDDEN = ("numpy", "stevedore", "pluggy")
SOURCES = (".pyx", ".pxi", ".c")
EXTRA_OPS = 10_000
REPORT = """
import json, sys
status = open("/proc/self/status").read() if sys.platform == "linux" else "VmHWM: 0"
peak = int(status.partition("VmHWM:")[2].split()[0]) / 1024
print(json.dumps({"modules": sorted(sys.modules), "MB": peak}))
"""
FIRST_ADD = f"""
import time, {OURS}
begun = time.process_time()
x = {OURS}.ones(4, device="cpu")
x + x
print((time.process_time() - begun) * 1e3)
"""
GENERATED = '''
"""Ten thousand ops that nobody calls."""
from tangrad.ops.definition.define import pointwise

for number in range({count}):
    pointwise(f"generated_{{number}}(Tensor self) -> Tensor", "self", vjp="none: generated")
'''


def environment(*paths: Path) -> dict[str, str]:
    """Return an environment in which Python may keep its compiled modules, as users' does."""
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    if paths:
        kept["PYTHONPATH"] = os.pathsep.join([*map(str, paths), kept.get("PYTHONPATH", "")])
    return kept


def run(program: str, *paths: Path) -> str:
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment(*paths), capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{program!r} failed:\n{done.stderr}")
    return done.stdout


def milliseconds(program: str, *paths: Path) -> float:
    """Return how long a fresh Python takes for a program."""
    start = time.perf_counter()
    run(program, *paths)
    return (time.perf_counter() - start) * 1e3


def available() -> list[str]:
    return [name for name in FRAMEWORKS if importlib.util.find_spec(name) is not None]


def over_bare(rounds: int) -> Figure:
    """Measure the time of the import over that of Python itself."""
    names = available()
    for name in names:
        run(f"import {name}")
    samples = Samples()
    for _ in range(rounds):
        bare = milliseconds("pass")
        for name in names:
            samples.add(name, milliseconds(f"import {name}") - bare)
    return Figure("import, over bare Python", "import", "ms", samples.medians(), samples.ratio(),
                  goal=20)  # fmt: skip


def first_add(rounds: int) -> Figure:
    """Measure what the first op on `cpu` takes of the processor, after the import."""
    run(FIRST_ADD)
    taken = [float(run(FIRST_ADD)) for _ in range(rounds)]
    return Figure("first add on cpu, after the import", "import", "ms",
                  {OURS: statistics.median(taken)}, goal=60)  # fmt: skip


def contents() -> list[Figure]:
    """Count the modules that the import loads, and the memory of the process."""
    bare = json.loads(run(REPORT))
    modules, memory = {}, {}
    for name in available():
        told = json.loads(run(f"import {name}{REPORT}"))
        modules[name] = len(told["modules"])
        memory[name] = told["MB"]
        if name == OURS:
            heavy = [m for m in FORBIDDEN if m in told["modules"]]
            if heavy:
                raise RuntimeError(f"import {OURS} loads {', '.join(heavy)}")
    return [
        Figure("modules after the import", "import", "", modules, goal=80,
               note=f"{len(bare['modules'])} of them Python's own"),
        Figure("peak memory after the import", "import", "MB", memory, goal=20,
               note=f"bare Python {bare['MB']:.1f} MB"),
    ]  # fmt: skip


def copy_with_ops(folder: Path, count: int) -> Path:
    """Copy the package into a folder and add op definitions to its index."""
    package = Path(importlib.util.find_spec(OURS).origin).parent
    ignored = shutil.ignore_patterns("__pycache__", *(f"*{suffix}" for suffix in SOURCES))
    copy = Path(shutil.copytree(package, folder / OURS, ignore=ignored))
    (copy / "ops" / "generated.py").write_text(GENERATED.format(count=count), "utf-8")
    index = copy / "ops" / "_index.py"
    names = " ".join(f"generated_{i}" for i in range(count))
    opening, rest = index.read_text("utf-8").split("_NAMES = {\n", 1)
    index.write_text(f"{opening}_NAMES = {{\n    'generated': '{names}',\n{rest}", "utf-8")
    return folder


def with_many_ops(rounds: int) -> list[Figure]:
    """Measure what ten thousand more op definitions add to the import and to the first op."""
    programs = {
        f"{EXTRA_OPS:,} more op definitions: import": (f"import {OURS}", 2.0),
        f"{EXTRA_OPS:,} more op definitions: first op": (f"import {OURS}; {OURS}.add", None),
    }
    found = []
    with tempfile.TemporaryDirectory() as few, tempfile.TemporaryDirectory() as many:
        plain, grown = copy_with_ops(Path(few), 0), copy_with_ops(Path(many), EXTRA_OPS)
        for name, (program, goal) in programs.items():
            for folder in (plain, grown):
                run(program, folder)
            added = [milliseconds(program, grown) - milliseconds(program, plain)
                     for _ in range(2 * rounds)]  # fmt: skip
            found.append(Figure(name, "import", "ms", {OURS: statistics.median(added)}, goal=goal))
    return found


def installed_size() -> Figure:
    """Add up the files that an installation of the core holds, compiled modules included."""
    package = Path(importlib.util.find_spec(OURS).origin).parent
    tag = sys.implementation.cache_tag
    files = [
        path
        for path in package.rglob("*")
        if path.is_file()
        and path.suffix not in SOURCES
        and (path.suffix != ".pyc" or path.name.endswith(f"{tag}.pyc"))
    ]
    size = sum(path.stat().st_size for path in files) / 1e6
    return Figure("installed size", "import", "MB", {OURS: size}, goal=6)


def figures(rounds: int, only: str = "") -> list[Figure]:
    """Measure everything about the import, if `only` asks for it."""
    if only.lower() not in "import first add modules memory installed size op definitions":
        return []
    return [
        over_bare(rounds),
        first_add(rounds),
        *contents(),
        *with_many_ops(rounds),
        installed_size(),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true", help="print figures as JSON")
    arguments = parser.parse_args()
    measured = figures(arguments.rounds)
    print(json.dumps(as_data(measured)) if arguments.json else table(measured))


if __name__ == "__main__":
    sys.exit(main())
