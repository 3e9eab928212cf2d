"""Products of matrices of float32 in C: by vectors of the compiler where it has them."""

from __future__ import annotations

from tangrad_export.steps.routines import Text

__all__ = ["VECTORS", "broadcast_product", "dot_product"]

#: What is put in front of functions that use vectors.
VECTORS = """#if defined(__GNUC__) && !defined(TANGRAD_PLAIN)
#if defined(__AVX512F__)
#define TK_BYTES 64
#elif defined(__AVX__)
#define TK_BYTES 32
#elif defined(__SSE2__) || defined(__ARM_NEON)
#define TK_BYTES 16
#endif
#endif
#ifdef TK_BYTES
typedef float tk_vector __attribute__((vector_size(TK_BYTES), aligned(4), may_alias));
enum { TK_N = TK_BYTES / 4 };
/* Products may be added without a rounding in between, which -std=c99 forbids GCC elsewhere. */
#ifdef __clang__
#define TK_FUSED
#else
#define TK_FUSED __attribute__((optimize("fp-contract=fast")))
#endif
#endif
"""
# How many rows are held at once: as the registers of the target suffice for.
_FITS = {8: "TK_BYTES == 64 && ", 6: "TK_BYTES < 64 && "}


def _rows(rows: int, wide: int) -> str:
    """Return the function of some rows and of one panel of columns, which holds its sums."""
    declared, loop, stored = [], [], []
    for i in range(rows):
        for j in range(wide):
            declared.append(f"tk_vector c{i}{j} = {{0}};")
            stored.append(f"*(tk_vector *)(c + {i} * ldc + {j} * TK_N) = c{i}{j} + s{i};")
    loads = " ".join(
        f"const tk_vector b{j} = *(const tk_vector *)(b + {j} * TK_N);" for j in range(wide)
    )
    loop.append(loads)
    for i in range(rows):
        loop.append(
            f"{{ const float f = a[{i} * row]; "
            + " ".join(f"c{i}{j} += f * b{j};" for j in range(wide))
            + " }"
        )
    starts = " ".join(f"const float s{i} = bias ? bias[{i}] : 0;" for i in range(rows))
    joined = "\n        ".join(loop)
    return f"""TK_FUSED static void @_{rows}_{wide}(float *c, int64_t ldc, const float *a,
    int64_t row, int64_t step, const float *b, int64_t ldb, const float *bias, int k) {{
    {" ".join(declared)}
    {starts}
    for (int p = 0; p < k; ++p, a += step, b += ldb) {{
        {joined}
    }}
    {" ".join(stored)}
}}
"""


def broadcast_product() -> Text:
    """Return c = a b + bias: columns of `b` and `c` side by side, `bias` of each row or none."""
    sizes = [(r, w) for r in (8, 6, 4, 2, 1) for w in (2, 1)]
    kernels = "".join(_rows(r, w) for r, w in sizes)

    def block(rows: int, wide: int, j: str) -> str:
        return (
            f"@_{rows}_{wide}(c + i * ldc + {j}, ldc, a + i * row, row, step, b + {j}, ldb,\n"
            "                        bias ? bias + i : 0, k);"
        )

    def across(rows: int) -> str:
        return f"""int j = 0;
                for (; j + TK_N < n && n >= 2 * TK_N; j += 2 * TK_N) {{
                    const int at = j + 2 * TK_N <= n ? j : n - 2 * TK_N;
                    {block(rows, 2, "at")}
                }}
                for (; j < n; j += TK_N) {{
                    const int at = j + TK_N <= n ? j : n - TK_N;
                    {block(rows, 1, "at")}
                }}"""

    branches = "\n            ".join(
        f"{'if' if rows == 8 else 'else if' if rows > 1 else 'else'} "
        + (f"({_FITS.get(rows, '')}m - i >= {rows}) " if rows > 1 else "")
        + f"{{\n                {across(rows)}\n                i += {rows};\n            }}"
        for rows in (8, 6, 4, 2, 1)
    )
    down = "\n            ".join(
        f"for (; {_FITS.get(rows, '')}i + {rows} <= m; i += {rows})\n                {{}}".replace(
            "{}",
            "if (wide) " + block(rows, 2, "at") + "\n                else " + block(rows, 1, "at"),
        )
        for rows in (8, 6, 4, 2, 1)
    )
    text = f"""#ifdef TK_BYTES
{kernels}#endif
static void @(float *c, int64_t ldc, const float *a, int64_t row, int64_t step, const float *b,
    int64_t ldb, const float *bias, int m, int n, int k) {{
#ifdef TK_BYTES
    /* Whichever operand is larger is gone through once. */
    if (n >= TK_N && n <= m) {{
        for (int i = 0; i < m;) {{
            {branches}
        }}
        return;
    }}
    if (n >= TK_N) {{
        for (int j = 0; j < n;) {{
            const int wide = n - j > TK_N && n >= 2 * TK_N, step_n = wide ? 2 * TK_N : TK_N;
            const int at = j + step_n <= n ? j : n - step_n;
            int i = 0;
            {down}
            j += step_n;
        }}
        return;
    }}
#endif
    for (int i = 0; i < m; ++i) {{
        for (int j = 0; j < n; ++j) c[i * ldc + j] = bias ? bias[i] : 0;
        for (int p = 0; p < k; ++p) {{
            const float f = a[i * row + p * step];
            for (int j = 0; j < n; ++j) c[i * ldc + j] += f * b[p * ldb + j];
        }}
    }}
}}
"""
    return Text("product", text)


def _dots(rows: int, columns: int) -> str:
    pairs = [(i, j) for i in range(rows) for j in range(columns)]
    declared = " ".join(f"float s{i}{j} = bias ? bias[{j}] : 0;" for i, j in pairs)
    vectors = " ".join(f"tk_vector v{i}{j} = {{0}};" for i, j in pairs)
    loads = " ".join(
        f"const tk_vector a{i} = *(const tk_vector *)(a + {i} * lda + p);" for i in range(rows)
    )
    steps = "\n            ".join(
        f"{{ const tk_vector w = *(const tk_vector *)(b + {j} * ldb + p); "
        + " ".join(f"v{i}{j} += a{i} * w;" for i in range(rows))
        + " }"
        for j in range(columns)
    )
    sums = "\n        ".join(
        f"for (int q = 0; q < TK_N; ++q) s{i}{j} += v{i}{j}[q];" for i, j in pairs
    )
    rest = " ".join(f"s{i}{j} += a[{i} * lda + p] * b[{j} * ldb + p];" for i, j in pairs)
    stored = " ".join(f"c[{i} * ldc + {j}] = s{i}{j};" for i, j in pairs)
    return f"""static void @_{rows}_{columns}(float *c, int64_t ldc, const float *a, int64_t lda,
    const float *b, int64_t ldb, const float *bias, int k) {{
    {declared}
    int even = 0;
#ifdef TK_BYTES
    even = k - k % TK_N;
    {{
        {vectors}
        for (int p = 0; p < even; p += TK_N) {{
            {loads}
            {steps}
        }}
        {sums}
    }}
#endif
    for (int p = even; p < k; ++p) {{ {rest} }}
    {stored}
}}
"""


def dot_product(single: bool) -> Text:
    """Return c = a b^T + bias: rows of `a` and `b` side by side, `bias` of each column or none.

    Args:
        single: whether `a` is one row.
    """
    sizes = [(1, 4), (1, 1)] if single else [(2, 4), (1, 4), (2, 1), (1, 1)]
    lines = []
    for rows, word in ((2, "for"), (1, "if"))[int(single) :]:
        head = "for (; i + 2 <= m; i += 2)" if word == "for" else "if (i < m)"
        lines.append(
            f"""    {head} {{
        int j = 0;
        for (; j + 4 <= n; j += 4)
            @_{rows}_4(c + i * ldc + j, ldc, a + i * lda, lda, b + j * ldb, ldb,
                bias ? bias + j : 0, k);
        for (; j < n; ++j)
            @_{rows}_1(c + i * ldc + j, ldc, a + i * lda, lda, b + j * ldb, ldb,
                bias ? bias + j : 0, k);
    }}"""
        )
    body = "\n".join(lines)
    text = f"""{"".join(_dots(r, c) for r, c in sizes)}static void @(float *c, int64_t ldc,
    const float *a, int64_t lda, const float *b, int64_t ldb, const float *bias, int m, int n,
    int k) {{
    int i = 0;
{body}
}}
"""
    return Text("dots", text)
