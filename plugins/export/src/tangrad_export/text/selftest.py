"""A `main` that runs the example, behind `TANGRAD_SELF_TEST`."""

from __future__ import annotations

from typing import Any

from tangrad_export.steps.base import ctype
from tangrad_export.text.weights import array_lines, bytes_of

__all__ = ["self_test"]

_TOLERANCE = {"float32": "1e-5", "float64": "1e-5", "complex64": "1e-5", "complex128": "1e-5"}


def self_test(module: Any) -> list[str]:
    """Return the lines that compare what the first entry computes with what eager does."""
    entry = module.entries[-1]
    lines = ["#ifdef TANGRAD_SELF_TEST", "#include <stdio.h>", ""]
    body: list[str] = ["double worst = 0;"]
    args: list[str] = []
    if module.arena == "argument":
        lines.append(f"static double test_arena[({module.name.upper()}_ARENA_BYTES + 15) / 8 + 1];")
        args.append("test_arena")
    args += [str(size) for size in entry.example_sizes]
    for p in entry.inputs:
        head = f"static const {ctype(p.dtype)} test_{p.name}"
        lines += array_lines(head, bytes_of(p.example), p.dtype)
        args.append(f"test_{p.name}")
    compared: list[str] = []
    for p in entry.outputs:
        count = max(1, p.example.numel())
        head = f"static const {ctype(p.dtype)} wanted_{p.name}"
        lines += array_lines(head, bytes_of(p.example), p.dtype)
        lines.append(f"static {ctype(p.dtype)} test_{p.name}[{count}];")
        args.append(f"test_{p.name}")
        compared += _comparison(p)
    if module.in_file:
        size = len(module.file_bytes)
        lines.append(f"static double test_weights[{size // 8 + 1}];")
        body += [
            f'FILE *file = fopen(argc > 1 ? argv[1] : "{module.name}_weights.bin", "rb");',
            "size_t got = file ? fread(test_weights, 1, sizeof test_weights, file) : 0;",
            "if (file) fclose(file);",
            f'if ({module.name}_bind(test_weights, got)) {{ printf("no weights\\n"); return 1; }}',
        ]
        main = "int main(int argc, char **argv) {"
    else:
        main = "int main(void) {"
    call = f"{module.name}_{entry.kind}({', '.join(args)})"
    if entry.kind == "run":
        body += [f'if ({call}) {{ printf("refused\\n"); return 1; }}', *compared]
    else:
        wanted = entry.example_loss
        body += [
            f"const double loss = {call}, wanted = {wanted!r};",
            "worst = fabs(loss - wanted) / (fabs(wanted) > 1 ? fabs(wanted) : 1);",
            "if (!(worst == worst) && !(wanted == wanted)) worst = 0;",
        ]
    body += [
        'printf("max error %.2g\\n", worst);',
        f"return worst <= {'1e-5' if entry.kind == 'run' else '1e-4'} ? 0 : 1;",
    ]
    lines += ["", main, *(f"    {line}" for line in body), "}", "#endif", ""]
    return lines


def _comparison(p: Any) -> list[str]:
    count = p.example.numel()
    if count == 0:
        return []
    if p.dtype.startswith("complex"):
        parts = [(f"wanted_{p.name}[i].{x}", f"test_{p.name}[i].{x}") for x in ("re", "im")]
    elif p.dtype in ("float16", "bfloat16"):
        convert = f"tg_load_{p.dtype}"
        parts = [(f"{convert}(wanted_{p.name}[i])", f"{convert}(test_{p.name}[i])")]
    else:
        parts = [(f"wanted_{p.name}[i]", f"test_{p.name}[i]")]
    lines = [f"for (int i = 0; i < {count}; ++i) {{"]
    for wanted, got in parts:
        lines += [
            "    {",
            f"        const double a = (double){wanted}, b = (double){got};",
            "        double error = fabs(a - b) / (fabs(a) > 1 ? fabs(a) : 1);",
            "        if (a == b || (a != a && b != b)) error = 0;",
            "        if (!(error <= worst)) worst = error;",
            "    }",
        ]
    return [*lines, "}"]
