"""Render the folds of all reductions from their definitions: map, combine, identity, finalize.

A fold is rendered once for all ops that share its map and combination (`sum` and `mean`); each op
adds what it makes of the final state. Sums and products of float32 pass through float64, as on the
reference device; of long sums, four elements are added in float32 first, as converting every one
takes longer than reading it.
"""

from __future__ import annotations

from collections.abc import Collection

from render.dialect import cpu_dialect
from tangrad.plugin.render import BITS, DTYPES, Fold, Program, TypedFold, folds, prelude

# What has a fold of contiguous elements of its own: elements whose reading is the greater part of
# the work, by so few instructions that lanes stay in registers.
LINED = {"float32", "float64", "float16", "bfloat16"}
LINED_STEPS = 8
# What sums add in pairs in float32 before they convert it, and how an element becomes a float.
PAIRED = {"float32": "{}", "float16": "tg_load_float16({})", "bfloat16": "tg_load_bfloat16({})"}
# What is converted many at once, by an instruction that GCC does not put into loops, where
# contiguous elements are folded.
WIDENED = {"float16": "tgc_f16_to_floats"}
# Functions so long that GCC puts no more than one of them into a loop, and none into a loop whose
# results lie apart.
LONG = {"pow", "exp", "log"}

LANGUAGE = cpu_dialect()


def _is_long(program: Program) -> bool:
    return any(step.op in LONG for step in program.instructions)


def render_reductions(replaced: set[tuple[str, str]]) -> dict[str, str]:
    """Return {file stem: C source} of all folds.

    Args:
        replaced: (op, dtype) pairs that have a handwritten kernel.
    """
    families: dict[tuple[str, ...], list[Fold]] = {}
    for fold in folds():
        if not fold.is_scan:
            families.setdefault(fold.group, []).append(fold)
    sources = {}
    for members in families.values():
        text = _family([(f, t) for t in DTYPES for f in members if (f.key, t) not in replaced])
        if text:
            sources[f"reduce_{members[0].key}"] = text
    return {stem: text.replace("@STEM@", stem) for stem, text in sources.items()}


def _family(wanted: list[tuple[Fold, str]]) -> str:
    body, table, rendered = [], [], {}
    for fold, dtype in wanted:
        if dtype not in fold.dtypes:
            continue
        typed = fold.typed(dtype)
        if dtype not in rendered:
            rendered[dtype] = _Fold(typed)
            body.append(rendered[dtype].source())
        name = f"{fold.key}_{dtype}"
        body.append(rendered[dtype].finished(typed, name))
        table.append(f'    {{"{fold.key}", "{dtype}", TGC_LOOP, TGC(tgc_reduce), &fold_{name}}},')
    if not table:
        return ""
    text = "\n".join(body)
    lines = "\n".join(table)
    return (
        f'#include "loops/reduction_loop.h"\n\n{prelude(LANGUAGE, text)}\n{text}\n'
        f"const tgc_kernel TGC(tgc_table_@STEM@)[] = {{\n{lines}\n    {{0}}}};\n"
    )


class _Fold:
    """The map and combination of a reduction for one dtype."""

    def __init__(self, typed: TypedFold) -> None:
        fold, dtype = typed.fold, typed.dtype
        self.typed, self.fold, self.dtype = typed, fold, dtype
        self.name = f"{fold.key}_{dtype}"
        self.item = LANGUAGE.type(dtype)
        self.states, self.map, self.combine = typed.states, typed.map, typed.combine
        self.indexed = typed.indexed
        self.lined = not self.indexed and dtype in LINED and typed.steps <= LINED_STEPS
        self.widen = WIDENED.get(dtype, "") if self.lined else ""
        widened = dtype in PAIRED and self.states == ["float64"]
        self.paired = widened and fold.kind == "sum" and fold.takes_elements
        self.multiplied = (
            self.lined
            and dtype == "float32"
            and widened
            and fold.kind == "product"
            and fold.maps_nothing
        )

    def numbered(self, fold: Fold, program: Program, extra: dict[str, str]) -> str:
        """Return the arguments for a program's parameters, read from the loop."""
        kind = "f" if self.typed.param_type in ("float32", "float64") else "i"
        used = {str(step.value) for step in program.instructions if step.op == "param"}
        found = []
        for param in program.params:
            if param not in used:
                found.append(f"({LANGUAGE.type(program.compute)}){{0}}")
            elif param in extra:
                found.append(extra[param])
            else:
                found.append(f"params[{fold.params.index(param)}].{kind}")
        return "".join(f", {text}" for text in found)

    def source(self) -> str:
        """Return the functions of the fold."""
        name, states = self.name, self.states
        types = [LANGUAGE.type(state) for state in states]
        lanes = range(len(states))
        fields = " ".join(
            f"{t} a{k}[TGC_LANES({name}_BYTES)];" for k, t in zip(lanes, types, strict=True)
        )
        size = sum(BITS[state] for state in states) // 8
        taken = "float32" if self.widen else self.dtype
        mapping = self.map.render_c(
            f"{name}_map", {self.fold.input: taken, "index": "int64"}, states, LANGUAGE
        )
        combining = self.combine.render_c(f"{name}_combine", None, states, LANGUAGE)
        map_args = self.numbered(self.fold, self.map, {})
        combine_args = self.numbered(self.fold, self.combine, {})

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
        fresh_rows = f"""\
    if (fresh && t->rows >= 4) {{
{four}
            {store("s", place, "a")}
{end}
        row = 4;
        x += 4 * t->row_stride;
    }} else """
        further_rows = f"""\
    for (; row + 4 <= t->rows; row += 4, x += 4 * t->row_stride) {{
{four}
            {load("e", "s", place)}
            {combined("e", "e", "a")}
            {store("s", place, "e")}
{end}
    }}
"""
        if _is_long(self.map):
            fresh_rows, further_rows = "    ", ""
        text = f"""\
#define {name}_BYTES {size}
typedef struct {{ {fields} }} {name}_states;
{mapping}{combining}{self._summand()}
static void {name}_tile(const char *x, const tgc_tile *t, const tg_scalar *params, void *states,
                        int fresh)
{{
    {name}_states *restrict s = states;
    const int64_t cols = t->cols;
    int64_t row = 0;
{fresh_rows}if (fresh) {{
{begin_one}\
            {declared("b")}
            {mapped("b", row.format(0), steps[0])}
            {store("s", place, "b")}
{end_one}
        row = 1;
        x += t->row_stride;
    }}
{further_rows}    for (; row < t->rows; row++, x += t->row_stride) {{
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

    def _summand(self) -> str:
        """Return the map in float32, for the elements that are added before they are widened."""
        if not self.paired or self.fold.maps_nothing:
            return ""
        single = self.fold.map_in("float32")
        return single.render_c(f"{self.name}_summand", None, ["float32"], LANGUAGE)

    def _pairs(self, *elements: str) -> str:
        """Return the sum of four elements as the state `a0`.

        They are added in the order of memory: of two sums of two, GCC loads the second first, and
        to what is read backwards the prefetcher does not look ahead.
        """
        read = self._taken if self.widen else PAIRED[self.dtype].format
        given = [read(element) for element in elements]
        if self.fold.maps_nothing:
            a, b, c, d = given
            return f"a0 = (double)((({a} + {b}) + {c}) + {d});"
        rest = self.numbered(self.fold, self.map, {})
        name = f"{self.name}_summand"
        mapped = " ".join(f"{name}({x}, 0{rest}, &n{k});" for k, x in enumerate(given))
        return f"float n0, n1, n2, n3; {mapped} a0 = (double)(((n0 + n1) + n2) + n3);"

    def _line(self) -> str:
        """Return the fold of contiguous elements into one state, whose lanes stay in registers."""
        if not self.lined:
            return ""
        states = range(len(self.states))
        types = [LANGUAGE.type(state) for state in self.states]
        map_args = self.numbered(self.fold, self.map, {})
        combine_args = self.numbered(self.fold, self.combine, {})

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
                for kept_states in self._loops()
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

    def _loops(self) -> tuple[tuple[int, ...], ...]:
        """Return which values of the state are combined in one loop: each by itself, if it may.

        Where a minimum and a maximum stand in one loop, GCC joins their tests for NaN and makes
        masks of all combinations.
        """
        return self.fold.independent

    def _fill(self) -> str:
        values = self.fold.identity
        if values is None:
            return ""
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
        if self.fold.decided_by is None:
            return ""
        mark = "" if self.fold.decided_by else "!"
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

    def finished(self, typed: TypedFold, name: str) -> str:
        """Return the last step of one op and its fold."""
        outs, program = typed.result_types, typed.finalize
        rendered = program.render_c(f"{name}_finalize", None, outs, LANGUAGE)
        count = {"n": f"({LANGUAGE.type(typed.count_type)})n"}
        args = ", ".join(f"s->a{k}[k]" for k in range(len(self.states)))
        args += self.numbered(typed.fold, program, count)
        targets = ", ".join(
            f"({LANGUAGE.type(out)} *)(outs[{k}] + k * strides[{k}])" for k, out in enumerate(outs)
        )
        fill = "NULL" if self.fold.identity is None else f"{self.name}_fill"
        settled = "NULL" if self.fold.decided_by is None else f"{self.name}_settled"
        line = f"{self.name}_line" if self.lined else "NULL"
        loop = f"""\
    for (int64_t k = 0; k < cols; k++)
        {name}_finalize({args}, {targets});"""
        if _is_long(program):
            loop = self._finished_beside(f"{name}_finalize({args}", outs)
        return f"""
{rendered}
static void {name}_finish(const void *states, int64_t cols, int64_t n, const tg_scalar *params,
                          char *const *outs, const int64_t *strides)
{{
    const {self.name}_states *s = states;
{loop}
    (void)params;
    (void)n;
}}

static const tgc_fold fold_{name} = {{
    .itemsize = sizeof({self.item}), .lanes = TGC_LANES({self.name}_BYTES), .nout = {len(outs)},
    .indexed = {int(self.indexed)}, .run_most = 24,
    .tile = {self.name}_tile, .run = {self.name}_run, .line = {line},
    .merge = {self.name}_merge, .fill = {fill}, .settled = {settled}, .finish = {name}_finish}};
"""

    def _finished_beside(self, call: str, outs: list[str]) -> str:
        """Return the loop over results that lie side by side until they are written."""
        types = [LANGUAGE.type(out) for out in outs]
        buffers = " ".join(f"{t} to{k}[TGC_TOGETHER];" for k, t in enumerate(types))
        places = ", ".join(f"&to{k}[k - from]" for k in range(len(outs)))
        written = " ".join(
            f"*({t} *)(outs[{o}] + k * strides[{o}]) = to{o}[k - from];"
            for o, t in enumerate(types)
        )
        return f"""\
    for (int64_t from = 0; from < cols; from += TGC_TOGETHER) {{
        const int64_t end = cols - from < TGC_TOGETHER ? cols : from + TGC_TOGETHER;
        {buffers}
        for (int64_t k = from; k < end; k++)
            {call}, {places});
        for (int64_t k = from; k < end; k++) {{ {written} }}
    }}"""
