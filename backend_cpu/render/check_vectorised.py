"""List the helpers of the CPU dialect that GCC does not vectorise.

``python check_vectorised.py [LEVEL ...]`` puts every helper of float32, float64 and the half types
into a loop of its own, compiles the loops for each instruction-set level (by default all) and
prints the names of those that stayed scalar. The test of the dialect holds this list to what is
known.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from dialect import cpu_dialect
from levels import USUAL, X86_64

from tangrad.plugin.render import prelude

NATIVE = Path(__file__).parents[1] / "src" / "tangrad_cpu" / "native"
# Without -fno-ipa-icf helpers of the same text would share one loop.
FLAGS = "-std=gnu11 -ffp-contract=off -fno-math-errno -fno-trapping-math -fno-ipa-icf".split()
_HEAD = re.compile(r"static inline (\w+) (tg_\w+_(?:f32|f64|float16|bfloat16))\(([^)]*)\) ?\{")


def loops(helpers: str) -> tuple[str, dict[int, str]]:
    """Return C text with a loop for every helper, and the helpers by line of their loop."""
    lines, at = [helpers], {}
    count = helpers.count("\n") + 1
    for result, name, parameters in _HEAD.findall(helpers):
        types = [parameter.split()[0] for parameter in parameters.split(",")]
        if "*" in parameters or result.startswith("tg_"):
            continue
        arrays = "".join(f", const {kind} *x{k}" for k, kind in enumerate(types))
        values = ", ".join(f"x{k}[i]" for k in range(len(types)))
        lines += [
            f"void loop_{name}({result} *y{arrays}, int64_t n) {{",
            "#pragma GCC ivdep",
            "for (int64_t i = 0; i < n; ++i)",
            f"    y[i] = {name}({values});",
            "}",
        ]
        at[count + 3] = name
        count += 5
    return "\n".join(lines) + "\n", at


def scalar_helpers(level: str) -> list[str]:
    """Return the names of the helpers that are not vectorised at ``level``."""
    text, at = loops(prelude(cpu_dialect()))
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "loops.c"
        source.write_text(text)
        command = [
            "gcc",
            *USUAL,
            *X86_64[level],
            *FLAGS,
            f"-DTGC_LEVEL={level}",
            f"-I{NATIVE}",
            "-c",
        ]
        command += [str(source), "-o", str(source.with_suffix(".o")), "-fopt-info-vec"]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr[:3000])
    found = re.findall(r"loops\.c:(\d+):\d+: optimized: loop vectorized", done.stderr)
    vectorised = {int(line) for line in found}
    return sorted(name for line, name in at.items() if line not in vectorised)


def main(levels: list[str]) -> None:
    """Print the scalar helpers of each level."""
    for level in levels or X86_64:
        print(f"{level}: {' '.join(scalar_helpers(level)) or 'all vectorise'}")


if __name__ == "__main__":
    main(sys.argv[1:])
