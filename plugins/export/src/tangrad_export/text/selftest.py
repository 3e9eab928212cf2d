"""A `main` that runs the example, behind `TANGRAD_SELF_TEST`."""

from __future__ import annotations

from typing import Any

from tangrad_export.steps.base import ctype
from tangrad_export.text.weights import array_lines, bytes_of

__all__ = ["self_test"]


def self_test(module: Any) -> list[str]:
    """Return the lines that compare what the first entry computes with what eager does."""
    lines = ["#ifdef TANGRAD_SELF_TEST", "#include <stdio.h>", ""]
    body: list[str] = ["double worst = 0;"]
    if module.arena == "argument":
        lines.append(f"static double test_arena[({module.name.upper()}_ARENA_BYTES + 15) / 8 + 1];")
    main = "int main(void) {"
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
    for entry in module.entries:
        lines += _examples(entry)
        body += _calls(module, entry)
    trains = any(entry.kind != "run" for entry in module.entries)
    body += [
        'printf("max error %.2g\\n", worst);',
        f"return worst <= {'1e-4' if trains else '1e-5'} ? 0 : 1;",
    ]
    return [*lines, "", main, *(f"    {line}" for line in body), "}", "#endif", ""]


def _prefix(entry: Any) -> str:
    return "test" if entry.kind == "run" else "step"


def _examples(entry: Any) -> list[str]:
    lines: list[str] = []
    mark = _prefix(entry)
    for p in entry.inputs:
        head = f"static const {ctype(p.dtype)} {mark}_{p.name}"
        lines += array_lines(head, bytes_of(p.example), p.dtype)
    for p in entry.outputs:
        count = max(1, p.example.numel())
        if p.example.numel():
            head = f"static const {ctype(p.dtype)} wanted_{p.name}"
            lines += array_lines(head, bytes_of(p.example), p.dtype)
        lines.append(f"static {ctype(p.dtype)} {mark}_{p.name}[{count}];")
    return lines


def _calls(module: Any, entry: Any) -> list[str]:
    mark = _prefix(entry)
    args = ["test_arena"] if module.arena == "argument" else []
    args += [str(size) for size in entry.example_sizes]
    args += [f"{mark}_{p.name}" for p in (*entry.inputs, *entry.outputs)]
    call = f"{module.name}_{entry.kind}({', '.join(args)})"
    if entry.kind == "run":
        compared = [line for p in entry.outputs for line in _comparison(p)]
        return [f'if ({call}) {{ printf("refused\\n"); return 1; }}', *compared]
    wanted = entry.example_loss
    # The example's loss is of the numbers that come first, which the run before it has drawn.
    again = [f"stream = {module.stream};"] * ("drawn" in entry.changing)
    if wanted - wanted != 0:
        return [f"(void){call};"]
    return [
        *again,
        f"const double loss = {call}, wanted = {wanted!r};",
        "const double off = fabs(loss - wanted) / (fabs(wanted) > 1 ? fabs(wanted) : 1);",
        "if (!(off <= worst)) worst = off == off ? off : INFINITY;",
    ]


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
