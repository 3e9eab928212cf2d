"""Render the folds of all reductions from their definitions: map, combine, identity, finalize.

A fold is rendered once for all ops that share its map and combination (`sum` and `mean`); each op
adds what it makes of the final state. Sums and products of float32 pass through float64, as on the
reference device; of long sums, four elements are added in float32 first, as converting every one
takes longer than reading it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from importlib import import_module
from typing import Any

import tangrad
from render.dialect import cpu_dialect
from tangrad.expr.render import c_prelude
from tangrad.ops._index import INDEX

DTYPES = (
    "bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 "
    "float32 float64 float16 bfloat16 complex64 complex128"
).split()
KINDS = {
    "bool": {"bool"},
    "integral": {d for d in DTYPES if "int" in d},
    "floating": {"float16", "bfloat16", "float32", "float64"},
    "complex": {"complex64", "complex128"},
    "all": set(DTYPES),
}
SIZES = {"bool": 1} | {d: int(d.lstrip("abcdefilmnoptux")) // 8 for d in DTYPES[1:]}
WIDE = {"float32": "float64", "complex64": "complex128"}
REAL = {"complex64": "float32", "complex128": "float64"}
SETTLED = {"a | b": "", "a & b": "!"}
NUMBERS = ("Scalar", "int", "float", "bool", "dim")

# What has a fold of contiguous elements of its own: elements whose reading is the greater part of
# the work, by so few instructions that lanes stay in registers.
LINED = {"float32", "float64", "float16", "bfloat16"}
LINED_STEPS = 8
# What sums add in pairs in float32 before they convert it, and how an element becomes a float.
PAIRED = {"float32": "{}", "float16": "tg_load_float16({})", "bfloat16": "tg_load_bfloat16({})"}
# What is converted many at once, by an instruction that GCC does not put into loops, where
# contiguous elements are folded.
WIDENED = {"float16": "tgc_f16_to_floats"}
SUMMANDS = {"self": "{0}", "where(isnan(self), 0, self)": "({0} != {0} ? 0.0f : {0})"}

LANGUAGE = cpu_dialect()


def reductions() -> Iterator[Any]:
    """Give the definitions of all reductions of the core."""
    for name, family in sorted(INDEX.items()):
        op = getattr(import_module(f"tangrad.ops.{family}"), name, None)
        if isinstance(op, tangrad._C.Op) and op.kind == "reduction" and op.definition.name == name:
            yield op.definition


def render_reductions(replaced: set[tuple[str, str]]) -> dict[str, str]:
    """Return {file stem: C source} of all folds.

    Args:
        replaced: (op, dtype) pairs that have a handwritten kernel.
    """
    families: dict[tuple[str, ...], list[Any]] = {}
    for definition in reductions():
        key = (definition.map_text, definition.combine_text, str(definition.identity))
        families.setdefault(key, []).append(definition)
    sources = {}
    for members in families.values():
        text = _family([(d, t) for t in DTYPES for d in members if (d.key, t) not in replaced])
        if text:
            sources[f"reduce_{members[0].key}"] = text
    return {stem: text.replace("@STEM@", stem) for stem, text in sources.items()}


def _family(wanted: list[tuple[Any, str]]) -> str:
    body, table, folds = [], [], {}
    for definition, dtype in wanted:
        if not any(dtype in KINDS[word] for word in definition.dtypes.split()):
            continue
        if dtype not in folds:
            folds[dtype] = _Fold(definition, dtype)
            body.append(folds[dtype].source())
        name = f"{definition.key}_{dtype}"
        body.append(folds[dtype].finished(definition, name))
        table.append(
            f'    {{"{definition.key}", "{dtype}", TGC_LOOP, TGC(tgc_reduce), &fold_{name}}},'
        )
    if not table:
        return ""
    text = "\n".join(body)
    lines = "\n".join(table)
    return (
        f'#include "reduction_loop.h"\n\n{c_prelude(LANGUAGE, text)}\n{text}\n'
        f"const tgc_kernel TGC(tgc_table_@STEM@)[] = {{\n{lines}\n    {{0}}}};\n"
    )


class _Fold:
    """The map and combination of a reduction for one dtype."""

    def __init__(self, definition: Any, dtype: str) -> None:
        self.definition, self.dtype = definition, dtype
        compute = tangrad._C.dtype_by_name(dtype).compute
        self.compute, self.real = compute, REAL.get(compute, compute)
        self.name = f"{definition.key}_{dtype}"
        self.item = LANGUAGE.type(dtype)
        self.input = definition.inputs[0]
        types = {self.input: dtype, "index": "int64"}
        exact = ("index",)
        params = dict.fromkeys(definition.params, self.real)
        self.states = list(definition.map.typed(types | params, compute, None, exact).result_types)
        wide = definition.combine_text in ("a + b", "a * b")
        if wide:
            self.states = [WIDE.get(state, state) for state in self.states]
        self.map = definition.map.typed(types | params, compute, self.states, exact)
        self.wide = WIDE.get(compute, compute) if wide else compute
        names = [*definition.state_names("a"), *definition.state_names("b")]
        kinds = dict(zip(names, self.states * 2, strict=True))
        self.combine = definition.combine.typed(
            kinds | params, self.wide, self.states, tuple(names)
        )
        self.indexed = "index" in definition.map.free
        steps = len(self.map.instructions) + len(self.combine.instructions)
        self.lined = not self.indexed and dtype in LINED and steps <= LINED_STEPS
        self.widen = WIDENED.get(dtype, "") if self.lined else ""
        self.paired = (
            dtype in PAIRED
            and self.states == ["float64"]
            and definition.map_text in SUMMANDS
            and definition.combine_text == "a + b"
        )
        self.multiplied = (
            self.lined
            and dtype == "float32"
            and self.states == ["float64"]
            and (definition.map_text, definition.combine_text) == ("self", "a * b")
        )

    def numbered(self, definition: Any, program: Any, extra: dict[str, str]) -> str:
        """Return the arguments for a program's parameters, read from the loop."""
        kind = "f" if self.real in ("float32", "float64") else "i"
        used = {str(step.value) for step in program.instructions if step.op == "param"}
        found = []
        for param in program.params:
            if param not in used:
                found.append(f"({LANGUAGE.type(program.compute)}){{0}}")
            elif param in extra:
                found.append(extra[param])
            else:
                before = [p.name for p in definition.schema.params if p.type in NUMBERS]
                found.append(f"params[{before.index(param)}].{kind}")
        return "".join(f", {text}" for text in found)

    def source(self) -> str:
        """Return the functions of the fold."""
        d, name, states = self.definition, self.name, self.states
        types = [LANGUAGE.type(state) for state in states]
        lanes = range(len(states))
        fields = " ".join(
            f"{t} a{k}[TGC_LANES({name}_BYTES)];" for k, t in zip(lanes, types, strict=True)
        )
        size = sum(SIZES[state] for state in states)
        taken = "float32" if self.widen else self.dtype
        mapping = self.map.render_c(
            f"{name}_map", {self.input: taken, "index": "int64"}, states, LANGUAGE
        )
        combining = self.combine.render_c(f"{name}_combine", None, states, LANGUAGE)
        map_args = self.numbered(d, self.map, {})
        combine_args = self.numbered(d, self.combine, {})

        def mapped(to: str, element: str, index: str) -> str:
            outs = ", ".join(f"&{to}{k}" for k in lanes)
            return f"{name}_map({self._taken(element)}, {index}{map_args}, {outs});"

        def combined(to: str, a: str, b: str) -> str:
            outs = ", ".join(f"&{to}{k}" for k in lanes)
            args = ", ".join([f"{a}{k}" for k in lanes] + [f"{b}{k}" for k in lanes])
            return f"{name}_combine({args}{combine_args}, {outs});"

        def declared(*letters: str) -> str:
            return " ".join(
                f"{t} {', '.join(f'{letter}{k}' for letter in letters)};"
                for k, t in zip(lanes, types, strict=True)
            )

        def load(letter: str, array: str, at: str) -> str:
            return " ".join(f"{letter}{k} = {array}->a{k}[{at}];" for k in lanes)

        def store(array: str, at: str, letter: str) -> str:
            return " ".join(f"{array}->a{k}[{at}] = {letter}{k};" for k in lanes)

        row = "wide{}[k]" if self.widen else "x{}[k]"
        place = "from + k" if self.widen else "k"
        position = "index + k * step" if self.indexed else "0"
        steps = [f"{position} + {i} * t->row_index" if self.indexed else "0" for i in range(4)]
        index = (
            "        const int64_t index = t->index + row * t->row_index, step = t->lane_index;\n"
            if self.indexed
            else ""
        )
        if self.paired:
            four_rows = f"""\
            {declared("a", "e")}
            {self._pairs(*map(row.format, range(4)))}"""
        else:
            four_rows = f"""\
            {declared("a", "b", "c", "d", "e")}
            {mapped("a", row.format(0), steps[0])}
            {mapped("b", row.format(1), steps[1])}
            {mapped("c", row.format(2), steps[2])}
            {mapped("d", row.format(3), steps[3])}
            {combined("a", "a", "b")}
            {combined("c", "c", "d")}
            {combined("a", "a", "c")}"""
        begin, end = self._columns(4, index)
        four = begin + four_rows
        begin_one, end_one = self._columns(1, index)
        text = f"""\
#define {name}_BYTES {size}
typedef struct {{ {fields} }} {name}_states;
{mapping}{combining}
static void {name}_tile(const char *x, const tgc_tile *t, const tg_scalar *params, void *states,
                        int fresh)
{{
    {name}_states *restrict s = states;
    const int64_t cols = t->cols;
    int64_t row = 0;
    if (fresh && t->rows >= 4) {{
{four}
            {store("s", place, "a")}
{end}
        row = 4;
        x += 4 * t->row_stride;
    }} else if (fresh) {{
{begin_one}\
            {declared("b")}
            {mapped("b", row.format(0), steps[0])}
            {store("s", place, "b")}
{end_one}
        row = 1;
        x += t->row_stride;
    }}
    for (; row + 4 <= t->rows; row += 4, x += 4 * t->row_stride) {{
{four}
            {load("e", "s", place)}
            {combined("e", "e", "a")}
            {store("s", place, "e")}
{end}
    }}
    for (; row < t->rows; row++, x += t->row_stride) {{
{begin_one}\
            {declared("a", "b")}
            {mapped("b", row.format(0), steps[0])}
            {load("a", "s", place)}
            {combined("a", "a", "b")}
            {store("s", place, "a")}
{end_one}
    }}
    (void)params;
}}

static void {name}_run(const char *x, int64_t n, int64_t stride, const tg_scalar *params, \
void *states,
                       int64_t to)
{{
    {name}_states *s = states;
    {declared("a", "b")}
    {mapped("a", f"*(const {self.item} *)x", "0")}
    for (int64_t k = 1; k < n; k++) {{
        {mapped("b", f"*(const {self.item} *)(x + k * stride)", "k")}
        {combined("a", "a", "b")}
    }}
    {store("s", "to", "a")}
    (void)params;
}}

static void {name}_merge(void *states, int64_t at, const void *other, int64_t from, int64_t cols,
                         const tg_scalar *params)
{{
    {name}_states *s = states;
    const {name}_states *o = other;
#pragma GCC ivdep
    for (int64_t k = 0; k < cols; k++) {{
        {declared("a", "b")}
        {load("a", "s", "at + k")}
        {load("b", "o", "from + k")}
        {combined("a", "a", "b")}
        {store("s", "at + k", "a")}
    }}
    (void)params;
}}
"""
        return text + self._line() + self._fill() + self._settled()

    def _taken(self, element: str) -> str:
        """Return an element as the map takes it: those of a buffer `wide` are converted."""
        if not self.widen or element.startswith("wide"):
            return element
        return PAIRED[self.dtype].format(element)

    def _pairs(self, *elements: str) -> str:
        """Return the sum of four elements as the state `a0`.

        They are added in the order of memory: of two sums of two, GCC loads the second first, and
        to what is read backwards the prefetcher does not look ahead.
        """
        summand = SUMMANDS[self.definition.map_text]
        read = self._taken if self.widen else PAIRED[self.dtype].format
        a, b, c, d = (summand.format(read(element)) for element in elements)
        return f"a0 = (double)((({a} + {b}) + {c}) + {d});"

    def _line(self) -> str:
        """Return the fold of contiguous elements into one state, whose lanes stay in registers."""
        if not self.lined:
            return ""
        states = range(len(self.states))
        types = [LANGUAGE.type(state) for state in self.states]
        map_args = self.numbered(self.definition, self.map, {})
        combine_args = self.numbered(self.definition, self.combine, {})

        def declared(name: str, size: str = "") -> str:
            return " ".join(f"{t} {name}{k}{size};" for k, t in zip(states, types, strict=True))

        def mapped(element: str) -> str:
            outs = ", ".join(f"&a{k}" for k in states)
            return f"{self.name}_map({self._taken(element)}, 0{map_args}, {outs});"

        def combined(
            to: str, with_: str, at: str, other: str = "", kept: Collection[int] = states
        ) -> str:
            """Combine states at place `at` with those at `other`; keep some of the results."""
            args = [f"{to}{k}{at}" for k in states] + [f"{with_}{k}{other}" for k in states]
            outs = ", ".join(
                f"&{to}{k}{at}" if k in kept else f"&{with_}{k}{other}" for k in states
            )
            return f"{self.name}_combine({', '.join(args)}{combine_args}, {outs});"

        # Nested combinations of what may be NaN become selections from selections, so only sums are
        # added in pairs before they enter the state.
        if self.paired:
            places = ("k", "k + lanes", "k + 2 * lanes", "k + 3 * lanes")
            lanes, begin = "TGC_LINE(sizeof *x)", "4 * lanes"
            first = self._pairs(*(f"{'wide' if self.widen else 'x'}[{place}]" for place in places))
            some = (f"wide[{place}]" if self.widen else f"x[i + {place}]" for place in places)
            steps = [("4 * lanes", "lanes", self._pairs(*some))]
        else:
            lanes, begin, steps = "4 * TGC_LINE(sizeof *x)", "lanes", []
            first = mapped("wide[k]" if self.widen else "x[k]")
        one = mapped("x[i + k]")
        wide = mapped("wide[k]") if self.widen else one
        steps += [("lanes", "lanes", wide), ("few", "few", one)]
        kept = " ".join(f"s{k}[k] = a{k};" for k in states)
        loops = "".join(
            f"    for (; i + {step} <= n; i += {step}) {{\n{self._buffer(step, '        ')}"
            + "".join(
                f"""\
        for (int k = 0; k < {count}; k++) {{
            {declared("a")}
            {enter}
            {combined("s", "a", "[k]", kept=kept_states)}
        }}
"""
                for kept_states in self._independent()
            )
            + "    }\n"
            for step, count, enter in steps
        )
        name = f"{self.name}_line" + "_singly" * self.multiplied
        line = f"""
static void {name}(const char *first, int64_t n, const tg_scalar *params, void *states,
    int64_t to, int fresh)
{{
    {self.name}_states *total = states;
    const {self.item} *restrict x = (const {self.item} *)first;
    enum {{ lanes = {lanes}, few = lanes < 8 ? lanes : 8 }};
    int64_t i = {begin};
    {declared("s", "[lanes]")}
{self._buffer(begin, "    ", "x")}\
    for (int k = 0; k < lanes; k++) {{
        {declared("a")}
        {first}
        {kept}
    }}
{loops}#pragma GCC unroll 8
    for (int half = lanes / 2; half; half /= 2)
        for (int k = 0; k < half; k++)
            {combined("s", "s", "[k]", "[k + half]")}
    for (; i < n; i++) {{
        {declared("a")}
        {mapped("x[i]")}
        {combined("s", "a", "[0]")}
    }}
    if (!fresh)
        {combined("s", "total->a", "[0]", "[to]")}
    {" ".join(f"total->a{k}[to] = s{k}[0];" for k in states)}
    (void)params;
}}
"""
        return line + self._multiplied()

    def _multiplied(self) -> str:
        """Return the product of contiguous numbers of float32, four of which are multiplied first.

        To convert every one takes twice as long as to read it. Where a product of two or four is
        subnormal, too large or zero, the line is multiplied in float64 from its start; zeros are
        noticed block by block, since where there is one there may be many.
        """
        if not self.multiplied:
            return ""
        return f"""
static void {self.name}_line(const char *first, int64_t n, const tg_scalar *params, void *states,
                             int64_t to, int fresh)
{{
    {self.name}_states *total = states;
    const float *restrict x = (const float *)first;
    enum {{ lanes = TGC_LINE(sizeof *x), block = 32 * 4 * lanes }};
    double s[lanes];
    int64_t i = 0;
    for (int k = 0; k < lanes; k++) s[k] = 1.0;
    while (i + 4 * lanes <= n) {{
        const int64_t end = i + block < n ? i + block : n;
        float least[lanes];
        for (int k = 0; k < lanes; k++) least[k] = 1.0f;
        for (; i + 4 * lanes <= end; i += 4 * lanes)
            for (int k = 0; k < lanes; k++) {{
                const float a = x[i + k] * x[i + k + lanes];
                const float b = x[i + k + 2 * lanes] * x[i + k + 3 * lanes], c = a * b;
                const float p = __builtin_fabsf(a), q = __builtin_fabsf(b), r = __builtin_fabsf(c);
                float m = p < q ? p : q;
                m = r < m ? r : m;
                least[k] = m < least[k] ? m : least[k];
                s[k] *= (double)c;
            }}
#pragma GCC unroll 8
        for (int half = lanes / 2; half; half /= 2)
            for (int k = 0; k < half; k++)
                least[k] = least[k + half] < least[k] ? least[k + half] : least[k];
        if (least[0] < 0x1p-126f) {{
            {self.name}_line_singly(first, n, params, states, to, fresh);
            return;
        }}
    }}
#pragma GCC unroll 8
    for (int half = lanes / 2; half; half /= 2)
        for (int k = 0; k < half; k++)
            s[k] *= s[k + half];
    if (!(__builtin_fabs(s[0]) < INFINITY)) {{
        {self.name}_line_singly(first, n, params, states, to, fresh);
        return;
    }}
    for (; i < n; i++) s[0] *= (double)x[i];
    if (!fresh) s[0] *= total->a0[to];
    total->a0[to] = s[0];
}}
"""

    def _buffer(self, step: str, indent: str, start: str = "x + i") -> str:
        """Return what fills the buffer of converted elements before a step of that many."""
        if not self.widen or step == "few":
            return ""
        return f"{indent}float wide[{step}];\n{indent}{self.widen}(wide, {start}, {step});\n"

    def _columns(self, rows: int, index: str) -> tuple[str, str]:
        """Return how the loop over the columns of some rows begins, and how it ends."""
        if not self.widen:
            pointers = ", ".join(
                f"*restrict x{i} = (const {self.item} *)(x + {i} * t->row_stride)"
                for i in range(rows)
            )
            begin = f"""\
        const {self.item} {pointers};
{index}#pragma GCC ivdep
        for (int64_t k = 0; k < cols; k++) {{
"""
            return begin, "        }"
        buffers = ", ".join(f"wide{i}[TGC_WIDENED]" for i in range(rows))
        filled = "".join(
            f"            {self.widen}(wide{i}, (const {self.item} *)(x + {i} * t->row_stride)"
            " + from, some);\n"
            for i in range(rows)
        )
        begin = f"""\
        for (int64_t from = 0; from < cols; from += TGC_WIDENED) {{
            const int64_t some = cols - from < TGC_WIDENED ? cols - from : TGC_WIDENED;
            float {buffers};
{filled}#pragma GCC ivdep
            for (int64_t k = 0; k < some; k++) {{
"""
        return begin, "            }\n        }"

    def _independent(self) -> list[list[int]]:
        """Return which states are combined in one loop: all, unless each is combined by itself.

        Where a minimum and a maximum stand in one loop, GCC joins their tests for NaN and makes
        masks of all combinations.
        """
        numbers = list(range(len(self.states)))
        parts = self.definition.combine_text.split(";")
        if len(parts) == len(numbers) and all(
            set(re.findall(r"\b[ab]\d?\b", part)) <= {f"a{k}", f"b{k}"}
            for k, part in zip(numbers, parts, strict=True)
        ):
            return [[k] for k in numbers]
        return [numbers]

    def _fill(self) -> str:
        identity = self.definition.identity
        if identity is None:
            return ""
        values = identity if isinstance(identity, tuple) else (identity,)
        stores = " ".join(
            f"s->a{k}[k] = {LANGUAGE.literal(value, state)};"
            for k, (value, state) in enumerate(zip(values, self.states, strict=True))
        )
        return f"""
static void {self.name}_fill(void *states, int64_t cols)
{{
    {self.name}_states *s = states;
    for (int64_t k = 0; k < cols; k++) {{ {stores} }}
}}
"""

    def _settled(self) -> str:
        mark = SETTLED.get(self.definition.combine_text)
        if mark is None:
            return ""
        return f"""
static int {self.name}_settled(const void *states, int64_t cols, int every)
{{
    const {self.name}_states *s = states;
    int64_t count = 0;
    for (int64_t k = 0; k < cols; k++)
        count += {mark}s->a0[k];
    return every ? count == cols : count > 0;
}}
"""

    def finished(self, definition: Any, name: str) -> str:
        """Return the last step of one op and its fold."""
        outs = [self._result(result) for result in definition.results]
        names = definition.state_names("a")
        kinds = dict(zip(names, self.states, strict=True))
        real = REAL.get(self.wide, self.wide)
        count = real if real in ("float32", "float64") else "int64"
        params = dict.fromkeys(definition.params, self.real) | {"n": count}
        results = [tangrad._C.dtype_by_name(out).compute for out in outs]
        program = definition.finalize.typed(kinds | params, self.wide, results, names)
        rendered = program.render_c(f"{name}_finalize", None, outs, LANGUAGE)
        args = ", ".join(f"s->a{k}[k]" for k in range(len(self.states)))
        args += self.numbered(definition, program, {"n": f"({LANGUAGE.type(count)})n"})
        targets = ", ".join(
            f"({LANGUAGE.type(out)} *)(outs[{k}] + k * strides[{k}])" for k, out in enumerate(outs)
        )
        fill = "NULL" if self.definition.identity is None else f"{self.name}_fill"
        settles = self.definition.combine_text in SETTLED
        settled = f"{self.name}_settled" if settles else "NULL"
        line = f"{self.name}_line" if self.lined else "NULL"
        return f"""
{rendered}
static void {name}_finish(const void *states, int64_t cols, int64_t n, const tg_scalar *params,
                          char *const *outs, const int64_t *strides)
{{
    const {self.name}_states *s = states;
    for (int64_t k = 0; k < cols; k++)
        {name}_finalize({args}, {targets});
    (void)params;
    (void)n;
}}

static const tgc_fold fold_{name} = {{
    .itemsize = sizeof({self.item}), .lanes = TGC_LANES({self.name}_BYTES), .nout = {len(outs)},
    .indexed = {int(self.indexed)}, .run_most = 24,
    .tile = {self.name}_tile, .run = {self.name}_run, .line = {line},
    .merge = {self.name}_merge, .fill = {fill}, .settled = {settled}, .finish = {name}_finish}};
"""

    def _result(self, result: str) -> str:
        if result == "promoted":
            return self.dtype
        if result == "truth":
            return "uint8" if self.dtype == "uint8" else "bool"
        return REAL.get(self.dtype, self.dtype) if result == "real" else result
