"""The C file and its header."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tangrad
from tangrad.random.generator import get_default_generator
from tangrad_export.plan.arena import POOLS
from tangrad_export.plan.entry import Entry, Parameter, Variant
from tangrad_export.program.buffers import Buffer, Ref
from tangrad_export.steps.base import Number, Step, ctype, itemsize
from tangrad_export.steps.control_flow import Marker
from tangrad_export.steps.copies import Upload
from tangrad_export.steps.reports import Guard
from tangrad_export.steps.templates import Call
from tangrad_export.text.names import identifier, unique
from tangrad_export.text.selftest import self_test
from tangrad_export.text.source import Functions, wrapped
from tangrad_export.text.weights import array_lines, bytes_of

__all__ = ["Module"]

_YOURS = " * Written by tangrad.export.c. The code in this file is yours: use it as you like. */"
_UNITS = {"float": 4, "double": 8, "int64": 8, "int32": 4, "int16": 2, "bytes": 1}
_ALIGNED = 64
_ALIGNMENT = (
    "#ifdef __GNUC__",
    "#define TK_ALIGNED __attribute__((aligned(64)))",
    "#else",
    "#define TK_ALIGNED",
    "#endif",
)
# Bytes of a constant up to which it stands in the source, whatever the others do.
_SMALL = 64


class Module:
    """The two files of a model.

    Args:
        name: an identifier.
        entries: the functions.
        state: {path: tensor} that `NAME_weights` reads and sets, a tensor of two paths for both;
            empty where nothing trains.
        in_file: whether weights are in a file of their own.
        arena: "static", or "argument": the caller gives the memory.
        simd: whether vectors of the compiler are used.
    """

    def __init__(
        self,
        name: str,
        entries: list[Entry],
        state: dict[str, Any],
        in_file: bool,
        arena: str,
        simd: bool,
        title: str,
    ) -> None:
        self.name, self.entries, self.state = name, entries, state
        self.in_file, self.arena, self.simd, self.title = in_file, arena, simd, title
        self.stream = int(get_default_generator("cpu").get_offset())
        self.functions = Functions(simd)
        self.weights: dict[Any, tuple[str, Buffer]] = {}
        self.written: set[Any] = set()
        self._taken: set[str] = set()
        self._keys: dict[str, tuple[str, str]] = {}
        self._offsets: dict[Any, int] = {}
        self._content: list[bytes] = []
        self._find_weights()

    # --- weights ----------------------------------------------------------------------------------

    def _key(self, buffer: Buffer) -> Any:
        if buffer.kind == "constant":
            return "constant", buffer.dtype, buffer.value
        return "weight", buffer.name

    def _find_weights(self) -> None:
        for entry in self.entries:
            for step in entry.steps:
                for ref in step.refs:
                    if ref is None or ref.buffer.kind not in ("weight", "constant"):
                        continue
                    key = self._key(ref.buffer)
                    if key not in self.weights:
                        kind = "w" if ref.buffer.kind == "weight" else "c"
                        title = ref.buffer.name or "constant"
                        shown = unique(identifier(f"{kind}_{title}"), self._taken)
                        self.weights[key] = shown, ref.buffer
                for buffer in step.written_buffers():
                    if buffer.kind == "weight":
                        self.written.add(self._key(buffer))
        paths: dict[int, list[str]] = {}
        for path, value in self.state.items():
            paths.setdefault(id(value), []).append(path)
        for path, value in self.state.items():
            same = paths[id(value)]
            own = next((p for p in same if ("weight", p) in self.weights), same[0])
            key = self._keys[path] = ("weight", own)
            if key not in self.weights:
                if value.dtype is not tangrad.float32:
                    continue  # neither computed with nor shown
                buffer = Buffer(-1, value.numel() * value.itemsize, "weight", own)
                buffer.value, buffer.dtype = value.detach(), value.dtype.name
                self.weights[key] = unique(identifier(f"w_{own}"), self._taken), buffer
            self.written.add(key)
        if self.in_file:
            total = 0
            for key, (_, buffer) in self.weights.items():
                small = buffer.kind == "constant" and buffer.nbytes < _SMALL
                if key in self.written or small:
                    continue
                content = bytes_of(buffer.value)
                gap = -total % _ALIGNED
                self._content += [bytes(gap), content]
                self._offsets[key] = total + gap
                total += gap + len(content)

    @property
    def file_bytes(self) -> bytes:
        """The bytes of the file of weights."""
        return b"".join(self._content)

    def flash_bytes(self) -> int:
        """Return the bytes of all weights and constants."""
        return sum(buffer.nbytes for _, buffer in self.weights.values())

    def ram_bytes(self) -> int:
        """Return the bytes of the arena."""
        return sum(self.pools().values())

    def pools(self) -> dict[str, int]:
        """Return {pool: bytes} that all functions together need."""
        found: dict[str, int] = {}
        for entry in self.entries:
            for variant in entry.variants:
                for pool, size in variant.arena.sizes.items():
                    found[pool] = max(found.get(pool, 0), size)
        return {pool: found[pool] for pool in POOLS if pool in found}

    # --- signatures -------------------------------------------------------------------------------

    def _parameters(self, entry: Entry) -> list[str]:
        made = ["void *arena"] if self.arena == "argument" else []
        made += [f"int {size.name}" for size in entry.sizes]
        made += [f"const {ctype(p.dtype)} *{p.name}" for p in entry.inputs]
        made += [f"{ctype(p.dtype)} *{p.name}" for p in entry.outputs]
        return made

    def prototype(self, entry: Entry) -> str:
        """Return the head of a function."""
        kind = "int" if entry.kind == "run" else "float"
        return f"{kind} {self.name}_{entry.kind}({', '.join(self._parameters(entry)) or 'void'})"

    def header(self) -> str:
        """Return the header."""
        capital = self.name.upper()
        lines = [
            f"/* {comment(self.title)}",
            _YOURS,
            f"#ifndef {capital}_H",
            f"#define {capital}_H",
            "",
            "#include <stddef.h>",
            "#include <stdint.h>",
            "",
            "#ifdef __cplusplus",
            'extern "C" {',
            "#endif",
        ]
        if any("complex" in p.dtype for e in self.entries for p in (*e.inputs, *e.outputs)):
            lines += [
                "",
                "#ifndef TG_COMPLEX_TYPES",
                "#define TG_COMPLEX_TYPES",
                "typedef struct { float re, im; } tg_c64;",
                "typedef struct { double re, im; } tg_c128;",
                "#endif",
            ]
        lines += [
            "",
            "/* Bytes of all memory that changes, trained weights apart. */",
            f"#define {capital}_ARENA_BYTES {self.ram_bytes()}",
        ]
        for entry in self.entries:
            lines += ["", *self._described(entry), f"{self.prototype(entry)};"]
        if any(e.kind == "train_step" for e in self.entries):
            lines += [
                "",
                "/* Weights by the names of state_dict, to be read and set; NULL for others. */",
                f"float *{self.name}_weights(const char *name, size_t *count);",
            ]
        if self.in_file:
            lines += [
                "",
                f"/* Hands over the bytes of {self.name}_weights.bin, aligned to 8, before the",
                " * first run; they must stay.",
                " * Returns 0, or 1 where they are others. */",
                f"int {self.name}_bind(const void *weights, size_t bytes);",
            ]
        lines += ["", "#ifdef __cplusplus", "}", "#endif", "", "#endif", ""]
        return wrapped("\n".join(lines))

    def _described(self, entry: Entry) -> list[str]:
        lines = []
        if entry.kind == "run":
            causes = ["a size is out of its bounds"] * bool(entry.sizes)
            causes += [
                "an index is out of its tensor's bounds or a variance negative"
            ] * entry.reports
            told = f"; else {', or '.join(causes)}, and nothing was written" if causes else ""
            lines.append(f"/* Computes the outputs. Returns 0{told}.")
        else:
            lines.append(
                "/* Takes a step of the optimizer; returns the loss before it, NaN where a "
                "size is out of its bounds."
            )
        for size in entry.sizes:
            lines.append(f" *   {size.name}: {size.min} to {size.max}")
        for kind, params in (("in", entry.inputs), ("out", entry.outputs)):
            for p in params:
                shape = ", ".join(map(str, p.shape))
                note = f" {p.note}" if p.note else ""
                lines.append(f" *   {p.name}: {kind}, {p.dtype}[{shape}]{note}")
        if self.arena == "argument":
            lines.append(f" *   arena: {self.name.upper()}_ARENA_BYTES bytes, aligned to 16")
        lines[-1] += " */"
        return lines

    # --- the file ---------------------------------------------------------------------------------

    def source(self) -> str:
        """Return the C file."""
        bodies = [line for entry in self.entries for line in self._entry(entry)]
        if self.state and any(e.kind == "train_step" for e in self.entries):
            bodies += self._weights_function()
        if self.in_file:
            bodies += self._bind_function()
        bodies += self_test(self)
        memory = self._memory()
        rest = "\n".join(bodies)
        definitions = self.functions.definitions(rest + "\n".join(memory))
        head = [
            f"/* {comment(self.title)}",
            _YOURS,
            f'#include "{self.name}.h"',
            "",
            "#include <math.h>",
            "#include <string.h>",
        ]
        if "tg_c64" in definitions or "tg_c128" in definitions:
            shown = any("complex" in p.dtype for e in self.entries for p in (*e.inputs, *e.outputs))
            if shown:
                for mark, part in (("tg_c64", "float"), ("tg_c128", "double")):
                    text = f"typedef struct {{ {part} re, im; }} {mark};"
                    definitions = definitions.replace(text, "")
        head += ["", "#define TG_INF INFINITY", "#define TG_NAN NAN", *_ALIGNMENT, ""]
        text = "\n".join(head) + definitions + "\n" + "\n".join([*memory, "", *bodies]) + "\n"
        return wrapped(text)

    def _memory(self) -> list[str]:
        lines: list[str] = []
        for key, (shown, buffer) in self.weights.items():
            if key in self._offsets:
                continue
            title = f"/* {comment(buffer.name)} */" if buffer.kind == "weight" else ""
            const = "" if key in self.written else "const "
            head = f"static {const}{ctype(buffer.dtype)} {shown}"
            lines += [title] * bool(title)
            lines += array_lines(head, bytes_of(buffer.value), buffer.dtype)
        if self.in_file:
            lines.append("static const unsigned char *bound;")
        if self.arena != "argument":
            for pool, size in self.pools().items():
                kind, count = POOLS[pool], size // _UNITS[pool]
                lines.append(f"static {kind} arena_{pool}[{count}] TK_ALIGNED;")
        if any(entry.reports for entry in self.entries):
            lines.append("static int64_t report[8];")
        if any("drawn" in entry.changing for entry in self.entries):
            lines.append(f"static int64_t stream = {self.stream}; /* place in the random stream */")
        if any("taken" in entry.changing for entry in self.entries):
            lines.append("static int64_t steps_taken;")
        return lines

    def _entry(self, entry: Entry) -> list[str]:
        lines = [f"{self.prototype(entry)} {{"]
        body: list[str] = []
        failed = "1" if entry.kind == "run" else "NAN"
        for size in entry.sizes:
            body.append(
                f"if ({size.name} < {size.min} || {size.name} > {size.max}) return {failed};"
            )
        if self.in_file:
            body.append(f"if (!bound) return {failed};")
        if entry.reports:
            body.append("report[0] = 0;")
        if "drawn" in entry.changing:
            body += ["const int64_t drawn = stream;", f"stream += {entry.draws};"]
        if "taken" in entry.changing:
            body.append("const int64_t taken = steps_taken++;")
        if entry.kind == "train_step":
            body.append(f"{ctype(entry.loss_dtype)} loss[1];")
        body += self._pool_pointers(entry)
        used = {r.buffer.name for s in entry.steps for r in s.refs if r is not None}
        body += [f"(void){p.name};" for p in (*entry.inputs, *entry.outputs) if p.name not in used]
        for k, variant in enumerate(entry.variants):
            steps = self._steps(entry, variant)
            if len(entry.variants) == 1:
                body += steps
            else:
                head = f"if ({variant.condition}) {{" if variant.condition else "{"
                body += [f"{'else ' * (k > 0)}{head}", *(f"    {s}" for s in steps), "}"]
        if entry.kind == "run":
            body.append("return 0;")
        else:
            body.append("return (float)loss[0];")
        lines += [f"    {line}" for line in body]
        return [*lines, "}", ""]

    def _pool_pointers(self, entry: Entry) -> list[str]:
        if self.arena != "argument":
            return []
        lines, at = [], 0
        used = {p for v in entry.variants for p in v.arena.sizes}
        for pool, size in sorted(self.pools().items(), key=lambda p: -_UNITS[p[0]]):
            if pool in used:
                kind = POOLS[pool]
                lines.append(f"{kind} *const arena_{pool} = ({kind} *)((char *)arena + {at});")
            at += size
        return lines or ["(void)arena;"]

    def _steps(self, entry: Entry, variant: Variant) -> list[str]:
        lines: list[str] = []
        before, indent = "", ""
        every = zip(variant.steps, variant.numbers, variant.offsets, strict=True)
        for step, numbers, offsets in every:
            closes = isinstance(step, Marker) and step.closes
            if closes:
                indent, before = indent[4:], ""
            told = comment(place_of(step))
            if told != before and not closes:
                lines.append(f"{indent}/* {told} */")
                before = told
            made = self._step(step, numbers, offsets, variant, entry.kind)
            lines += [f"{indent}{line}" for line in made]
            if isinstance(step, Marker) and step.opens:
                indent += "    "
        return lines

    def _step(
        self,
        step: Step,
        numbers: list[Number],
        offsets: list[Number],
        variant: Variant,
        kind: str,
    ) -> list[str]:
        at = []
        for k, (ref, offset) in enumerate(zip(step.refs, offsets, strict=True)):
            if ref is None:
                at.append("0")
                continue
            plain = isinstance(step, Call) or k in step.writes
            at.append(self.pointer(ref, offset, variant, plain))
        if isinstance(step, Upload):
            key = ("upload", step.content)
            if key not in self.weights:
                buffer = Buffer(-1, len(step.content), "constant", "constant")
                buffer.value, buffer.dtype = step.content, "uint8"
                self.weights[key] = unique("c_bytes", self._taken), buffer
            return [f"memcpy({at[0]}, {self.weights[key][0]}, {len(step.content)});"]
        names = [self.functions.name(f) for f in step.functions()]
        lines = step.text(names, at, list(numbers))
        if isinstance(step, Guard):
            return [line.replace("@", "1" if kind == "run" else "NAN") for line in lines]
        return lines

    def pointer(self, ref: Ref, offset: Number, variant: Variant, plain: bool) -> str:
        """Return a pointer to a place, which writes if it must."""
        buffer, kind = ref.buffer, ctype(ref.dtype)
        const = False
        if buffer.kind == "arena":
            pool, start = variant.arena.places[buffer.number]
            base, own = f"arena_{pool}", POOLS[pool]
            offset = start + offset if isinstance(offset, int) else f"{start} + {offset}"
        elif buffer.kind in ("weight", "constant"):
            key = self._key(buffer)
            const = key not in self.written
            own = ctype(buffer.dtype)
            if key in self._offsets:
                start = self._offsets[key]
                base, own = "bound", "unsigned char"
                offset = start + offset if isinstance(offset, int) else f"{start} + {offset}"
            else:
                base = self.weights[key][0]
        elif buffer.kind == "error":
            base, own = "report", "int64_t"
        else:
            base, own, const = buffer.name, ctype(buffer.dtype), buffer.kind == "input"
        qualified = "const " if const and not plain else ""
        if own == kind and isinstance(offset, int) and offset % itemsize(ref.dtype) == 0:
            cast = f"({kind} *)" if const and plain else ""
            if offset == 0:
                return f"({cast}{base})" if cast else base
            return f"({cast}{base} + {offset // itemsize(ref.dtype)})"
        if offset == 0:
            return f"(({qualified}{kind} *){base})"
        return f"(({qualified}{kind} *)(({qualified}char *){base} + {offset}))"

    def _weights_function(self) -> list[str]:
        rows = []
        for path, value in self.state.items():
            if value.dtype is tangrad.float32:
                shown, buffer = self.weights[self._keys[path]]
                rows.append(f"    {{{quoted(path)}, {shown}, {buffer.nbytes // 4}}},")
        head = f"float *{self.name}_weights(const char *name, size_t *count) {{"
        if not rows:
            return [head, "    (void)name;", "    (void)count;", "    return NULL;", "}", ""]
        return [
            head,
            "    static const struct { const char *name; float *values; size_t count; }",
            "    known[] = {",
            *(f"    {row}" for row in rows),
            "    };",
            "    for (size_t k = 0; k < sizeof known / sizeof *known; ++k) {",
            "        const char *a = known[k].name, *b = name;",
            "        while (*a && *a == *b) ++a, ++b;",
            "        if (*a == *b) {",
            "            if (count) *count = known[k].count;",
            "            return known[k].values;",
            "        }",
            "    }",
            "    return NULL;",
            "}",
            "",
        ]

    def _bind_function(self) -> list[str]:
        return [
            f"int {self.name}_bind(const void *weights, size_t bytes) {{",
            f"    if (!weights || bytes != {len(self.file_bytes)}) return 1;",
            "    if ((uintptr_t)weights % 8) return 1;",
            "    bound = (const unsigned char *)weights;",
            "    return 0;",
            "}",
            "",
        ]


def place_of(step: Step) -> str:
    """Return what a comment says of a step."""
    module, where, backward = step.origin
    parts = [module] if module else []
    parts.append(f"backward of {step.title}" if backward else step.title)
    return ": ".join(parts) + (f" ({where})" if where else "")


def quoted(text: str) -> str:
    """Return a text as a string of C: bytes beyond ASCII, quotes and the like by their numbers."""
    plain = set(range(32, 127)) - set(b'"\\?')
    return '"' + "".join(chr(b) if b in plain else f"\\{b:03o}" for b in text.encode("utf-8")) + '"'


def comment(text: str) -> str:
    """Return a text that ends no comment and has no line's end."""
    text = "".join(c if c.isprintable() and c.isascii() else "?" for c in text)
    return text.replace("*/", "* /").replace("/*", "/ *").replace("??", "? ?")[:100]


def parameters(params: Iterable[Parameter]) -> list[str]:
    """Return the names of parameters."""
    return [p.name for p in params]
