"""Kernels give the same on both engines: to the bit for integers and copies, else to a few ulp."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from emulator_client import Compile, Gpu, image

rng = np.random.default_rng(0)


def run(
    gpu: Gpu,
    engine: str,
    source: str,
    inputs: list[np.ndarray],
    count: int,
    dtype: str,
    block: int = 128,
    shared: int = 0,
) -> np.ndarray:
    """Call `f(out, in..., count)` in blocks of a fixed size and return what it wrote."""
    function = gpu.function(gpu.load(image(source, engine)), "f")
    out = gpu.put(np.zeros(count, dtype))
    gpu.launch(
        function,
        -(-count // block),
        block,
        out,
        *map(gpu.put, inputs),
        ctypes.c_int(count),
        shared=shared,
    )
    return gpu.get(out, count, dtype)


def pointwise(expression: str, given: str, told: str) -> str:
    return (
        f'extern "C" __global__ void f({told} *o, const {given} *a, const {given} *b, int n) {{'
        "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;"
        f"{given} x = a[i], y = b[i]; o[i] = {expression}; }}"
    )


INTEGERS = [
    "x + y",
    "x - y",
    "x * y",
    "y ? x / y : 0",
    "y ? x % y : 0",
    "x & y",
    "x | y",
    "x ^ y",
    "~x",
    "-x",
    "x < y ? x : y",
    "x >> (y & 7)",
    "x << (y & 7)",
    "(x < y) + 2 * (x == y) + 4 * (x >= y)",
]
C_TYPES = {
    "i1": "signed char",
    "u1": "unsigned char",
    "i2": "short",
    "u2": "unsigned short",
    "i4": "int",
    "u4": "unsigned",
    "i8": "long long",
    "u8": "unsigned long long",
}


@pytest.mark.parametrize("dtype", C_TYPES)
def test_integers_agree_to_the_bit(gpu: Gpu, dtype: str) -> None:
    limits = np.iinfo(dtype)
    a, b = (rng.integers(limits.min, limits.max, 300, dtype, endpoint=True) for _ in range(2))
    a[:4] = b[2:6] = [limits.min, limits.max, 0, 1]
    # A division of the least by -1 has no result, and b's first two are safe.
    b[a == limits.min] = 1
    body = "".join(
        f"o[{len(INTEGERS)} * i + {k}] = ({C_TYPES[dtype]})({each});"
        for k, each in enumerate(INTEGERS)
    )
    c = C_TYPES[dtype]
    source = (
        f'extern "C" __global__ void f({c} *o, const {c} *a, const {c} *b, int n) {{'
        "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= 300) return;"
        f"{c} x = a[i], y = b[i]; {body} }}"
    )
    host, ptx = (
        run(gpu, engine, source, [a, b], 300 * len(INTEGERS), dtype) for engine in ("host", "ptx")
    )
    np.testing.assert_array_equal(host, ptx)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(
            ptx.reshape(300, -1)[:, :3], np.stack([a + b, a - b, a * b], 1)
        )


BITS = {
    "__popc(x)": "u4",
    "__clz(x)": "u4",
    "__brev(x)": "u4",
    "__ffs(x)": "u4",
    "__umulhi(x, y)": "u4",
    "__byte_perm(x, y, 0x5140)": "u4",
    "__funnelshift_l(x, y, 5)": "u4",
    "__funnelshift_r(x, y, 37)": "u4",
    "(unsigned)(((unsigned long long)x * y + x) >> 7)": "u4",
    "(unsigned)__mul64hi((long long)x << 30, y)": "u4",
    "(unsigned)(x >> 4 & 1023)": "u4",
    "(unsigned)(int)(signed char)(x >> 3)": "u4",
}


@pytest.mark.parametrize("expression", BITS)
def test_bits_agree(gpu: Gpu, expression: str) -> None:
    a, b = (rng.integers(0, 1 << 32, 200, "u4") for _ in range(2))
    source = pointwise(expression, "unsigned", "unsigned")
    host, ptx = (run(gpu, engine, source, [a, b], 200, "u4") for engine in ("host", "ptx"))
    np.testing.assert_array_equal(host, ptx)


FLOATS = [
    "x + y",
    "x * y",
    "x / y",
    "fmaf(x, y, x)",
    "sqrtf(fabsf(x))",
    "fminf(x, y)",
    "fmaxf(x, y)",
    "floorf(x)",
    "ceilf(x)",
    "truncf(x)",
    "rintf(x)",
    "copysignf(x, y)",
    "isnan(x) ? 1.f : isinf(x) ? 2.f : 0.f",
    "(float)(int)x",
    "(float)(unsigned)fabsf(x)",
    "(float)(double)x * 3",
    "(float)__float2int_rd(x)",
    "fmodf(x, y)",
    "__int_as_float(__float_as_int(x) ^ 1)",
    "(float)((double)x / (double)y)",
    "x < y",
    "!(x >= y)",
    "x == y || x != x",
]


@pytest.mark.parametrize("expression", FLOATS)
def test_exact_floating_point_agrees_to_the_bit(gpu: Gpu, expression: str) -> None:
    a, b = (rng.normal(0, 100, 200).astype("f4") for _ in range(2))
    a[:5] = [0, -0.0, np.inf, -np.inf, np.nan]
    b[3:8] = [0, np.nan, -np.inf, np.inf, -0.0]
    # What is not finite has no integer on the host.
    if "int)x" in expression or "unsigned)" in expression:
        a[:5] = [0, -0.0, 1.5, -2.5, 7]
    source = pointwise(expression, "float", "float")
    host, ptx = (run(gpu, engine, source, [a, b], 200, "f4") for engine in ("host", "ptx"))
    np.testing.assert_array_equal(host, ptx)


TRANSCENDENTAL = {
    "expf(x)": 2,
    "logf(fabsf(x) + .1f)": 2,
    "log1pf(fabsf(x))": 2,
    "expm1f(x)": 2,
    "sinf(x)": 3,
    "cosf(x)": 3,
    "tanhf(x)": 3,
    "erff(x)": 3,
    "powf(fabsf(x), y)": 5,
    "rsqrtf(fabsf(x) + .1f)": 3,
    "atanf(x)": 3,
    "exp2f(x)": 3,
    "cbrtf(x)": 2,
    "lgammaf(fabsf(x) + 3)": 6,
}


@pytest.mark.parametrize(("expression", "ulps"), TRANSCENDENTAL.items())
def test_functions_agree_to_a_few_ulp(gpu: Gpu, expression: str, ulps: int) -> None:
    a, b = (rng.normal(0, 3, 500).astype("f4") for _ in range(2))
    source = pointwise(expression, "float", "float")
    host, ptx = (run(gpu, engine, source, [a, b], 500, "f4") for engine in ("host", "ptx"))
    np.testing.assert_array_max_ulp(host, ptx, ulps)


DOUBLES = {
    "exp(x)": 2,
    "log(fabs(x))": 2,
    "sin(x)": 2,
    "tanh(x)": 2,
    "pow(fabs(x), y)": 3,
    "x / y": 0,
    "erf(x)": 2,
    "floor(x) + rint(y)": 0,
}


@pytest.mark.parametrize(("expression", "ulps"), DOUBLES.items())
def test_double_precision_agrees(gpu: Gpu, expression: str, ulps: int) -> None:
    a, b = (rng.normal(0, 3, 200) for _ in range(2))
    source = pointwise(expression, "double", "double")
    host, ptx = (run(gpu, engine, source, [a, b], 200, "f8") for engine in ("host", "ptx"))
    np.testing.assert_array_max_ulp(
        host, ptx, max(ulps, 1)
    ) if ulps else np.testing.assert_array_equal(host, ptx)


HALVES = """
extern "C" __global__ void f(float *o, const unsigned short *a, const float *b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float r; unsigned short h, g;
    asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(a[i]));
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(b[i]));
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(g) : "f"(b[i]));
    o[i] = r != r ? -1.f : r;
    o[i + n / 2] = h + 65536.f * g;
}"""


def test_half_precision_rounds_alike(gpu: Gpu) -> None:
    a = np.arange(0, 1 << 16, 64, dtype="u2")[:1024]
    b = (rng.normal(0, 1, 1024) * 10.0 ** rng.integers(-9, 6, 1024)).astype("f4")
    b[:3] = [np.inf, -np.inf, np.nan]
    results = []
    for engine in ("host", "ptx"):
        function = gpu.function(gpu.load(image(HALVES, engine)), "f")
        out = gpu.put(np.zeros(2048, "f4"))
        gpu.launch(function, 8, 128, out, gpu.put(a), gpu.put(b), ctypes.c_int(2048))
        results.append(gpu.get(out, 2048))
    np.testing.assert_array_equal(*results)
    expected = a.view("f2").astype("f4")
    np.testing.assert_array_equal(results[0][:1024], np.where(np.isnan(expected), -1, expected))


SUM = """
extern "C" __global__ void f(float *o, const float *a, int n) {
    extern __shared__ float s[];
    int t = threadIdx.x;
    float v = a[blockIdx.x * blockDim.x + t];
    for (int d = 16; d; d >>= 1) v += __shfl_down_sync(0xffffffffu, v, d);
    if (t % 32 == 0) s[t / 32] = v;
    __syncthreads();
    if (t < 32) {
        v = t < blockDim.x / 32 ? s[t] : 0.f;
        for (int d = 16; d; d >>= 1) v += __shfl_xor_sync(0xffffffffu, v, d);
        if (t == 0) atomicAdd(o, v);
    }
}"""


def test_a_sum_by_shuffles_and_shared_memory(gpu: Gpu, kernel: Compile) -> None:
    a = rng.integers(-9, 9, 1024).astype("f4")
    out = gpu.put(np.zeros(1, "f4"))
    gpu.launch(kernel(SUM), 4, 256, out, gpu.put(a), ctypes.c_int(1024), shared=32)
    assert gpu.get(out, 1)[0] == a.sum()


SOFTMAX = """
extern "C" __global__ void f(float *o, const float *a, int n) {
    __shared__ float s[64];
    int t = threadIdx.x;
    float x = a[blockIdx.x * 64 + t];
    s[t] = x; __syncthreads();
    for (int d = 32; d; d >>= 1) { if (t < d) s[t] = fmaxf(s[t], s[t + d]); __syncthreads(); }
    float m = s[0]; __syncthreads();
    float e = expf(x - m);
    s[t] = e; __syncthreads();
    for (int d = 32; d; d >>= 1) { if (t < d) s[t] += s[t + d]; __syncthreads(); }
    o[blockIdx.x * 64 + t] = e / s[0];
}"""


def test_softmax(gpu: Gpu, kernel: Compile) -> None:
    a = rng.normal(0, 3, (5, 64)).astype("f4")
    out = gpu.put(np.zeros(320, "f4"))
    gpu.launch(kernel(SOFTMAX), 5, 64, out, gpu.put(a), ctypes.c_int(320))
    e = np.exp(a.astype("f8") - a.max(1, keepdims=True))
    # CUDA documents 2 ulp for expf; the difference, the sum and the quotient round, too.
    np.testing.assert_allclose(
        gpu.get(out, 320).reshape(5, 64), e / e.sum(1, keepdims=True), rtol=2e-6
    )


PRODUCT = """
extern "C" __global__ void f(float *c, const float *a, const float *b, int n) {
    __shared__ float A[16][17], B[16][17];
    int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 16 + y, column = blockIdx.x * 16 + x;
    float sum = 0;
    for (int k = 0; k < n; k += 16) {
        A[y][x] = a[row * n + k + x]; B[y][x] = b[(k + y) * n + column];
        __syncthreads();
        for (int j = 0; j < 16; j++) sum += A[y][j] * B[j][x];
        __syncthreads();
    }
    c[row * n + column] = sum;
}"""


def test_a_product_of_matrices_in_tiles(gpu: Gpu, kernel: Compile) -> None:
    a, b = (rng.integers(-9, 9, (48, 48)).astype("f4") for _ in range(2))
    out = gpu.put(np.zeros(48 * 48, "f4"))
    gpu.launch(
        kernel(PRODUCT), (3, 3, 1), (16, 16, 1), out, gpu.put(a), gpu.put(b), ctypes.c_int(48)
    )
    np.testing.assert_array_equal(gpu.get(out, 48 * 48).reshape(48, 48), a @ b)


WARP = """
extern "C" __global__ void f(unsigned *o, const unsigned *a, int n) {
    int t = threadIdx.x;
    unsigned v = a[t], all = 0xffffffffu;
    o[t * 12 + 0] = __ballot_sync(all, v & 1);
    o[t * 12 + 1] = __any_sync(all, v == 3) + 2 * __all_sync(all, v < 64);
    o[t * 12 + 2] = __shfl_up_sync(all, v, 3);
    o[t * 12 + 3] = __shfl_sync(all, v, 5, 8);
    o[t * 12 + 4] = __shfl_xor_sync(all, v, 9);
    o[t * 12 + 5] = __shfl_down_sync(all, v, 4, 16);
    o[t * 12 + 6] = __match_any_sync(all, v & 3);
    o[t * 12 + 7] = __reduce_add_sync(all, v);
    o[t * 12 + 8] = __reduce_max_sync(all, (int)v - 20);
    o[t * 12 + 9] = t % 2 ? __shfl_sync(0xaaaaaaaau, v, 7) : __shfl_sync(0x55555555u, v, 6);
    o[t * 12 + 10] = __syncthreads_count(v & 1);
    o[t * 12 + 11] = __syncthreads_or(v == 3) + 2 * __syncthreads_and(v < 64);
}"""


def test_what_the_threads_of_a_warp_do_together(gpu: Gpu, kernel: Compile) -> None:
    a = rng.integers(0, 64, 64).astype("u4")
    out = gpu.put(np.zeros(64 * 12, "u4"))
    gpu.launch(kernel(WARP), 1, 64, out, gpu.put(a), ctypes.c_int(64))
    told, lane = gpu.get(out, 64 * 12, "u4").reshape(64, 12), np.arange(64)
    warp = a.reshape(2, 32)
    ballots = [sum(int(v & 1) << i for i, v in enumerate(row)) for row in warp]
    assert told[:, 0].tolist() == np.repeat(ballots, 32).tolist()
    np.testing.assert_array_equal(told[:, 2], a[np.where(lane % 32 >= 3, lane - 3, lane)])
    np.testing.assert_array_equal(told[:, 3], a[lane // 8 * 8 + 5])
    np.testing.assert_array_equal(told[:, 4], a[lane ^ 9])
    np.testing.assert_array_equal(told[:, 5], a[np.where(lane % 16 < 12, lane + 4, lane)])
    np.testing.assert_array_equal(told[:, 7], np.repeat(warp.sum(1), 32))
    np.testing.assert_array_equal(
        told[:, 8].view("i4"), np.repeat(warp.astype("i4").max(1) - 20, 32)
    )
    np.testing.assert_array_equal(told[:, 9], a[lane // 32 * 32 + np.where(lane % 2, 7, 6)])
    assert set(told[:, 10].tolist()) == {int((a & 1).sum())}
    for i, row in enumerate(warp):
        same = [sum(1 << j for j, w in enumerate(row) if w & 3 == v & 3) for v in row]
        assert told[32 * i : 32 * i + 32, 6].tolist() == same


OLDER_THAN_SYNCWARP = """
extern "C" __global__ void f(int *o, const int *a, int n) {
    extern __shared__ int sums[];
    int t = threadIdx.x;
    sums[t] = a[t];
    __syncthreads();
    if (t < 32) {
        volatile int *s = sums;
        s[t] = s[t] + s[t + 32];
        if (n > 16) s[t] = s[t] + s[t + 16];
        s[t] += s[t + 8];
        s[t] += s[t + 4]; s[t] += s[t + 2]; s[t] += s[t + 1];
    }
    if (t == 0) o[0] = sums[0];
}"""


def test_a_warp_stores_what_is_volatile_in_one_step(gpu: Gpu, kernel: Compile) -> None:
    a, out = rng.integers(0, 64, 64).astype("i4"), gpu.put(np.zeros(1, "i4"))
    function = kernel(OLDER_THAN_SYNCWARP)
    gpu.launch(function, 1, 64, out, gpu.put(a), ctypes.c_int(64), shared=4 * 96)
    assert gpu.get(out, 1, "i4")[0] == a.sum()


ATOMICS = """
__device__ unsigned long long count;
extern "C" __global__ void f(int *o, const int *a, int n) {
    int v = a[blockIdx.x * blockDim.x + threadIdx.x];
    atomicAdd(&o[0], v); atomicMax(&o[1], v); atomicMin(&o[2], v); atomicOr(&o[3], v);
    atomicXor(&o[4], v);
    atomicInc((unsigned *)&o[5], 6); atomicCAS(&o[6], 0, 42); atomicAdd(&count, 1ull);
    if (blockIdx.x == gridDim.x - 1 && threadIdx.x == 0)
        o[7] = (int)atomicAdd((float *)&o[8], 2.5f);
}"""


def test_atomics(gpu: Gpu, kernel: Compile) -> None:
    a = rng.integers(-1000, 1000, 512).astype("i4")
    out = gpu.put(np.zeros(9, "i4"))
    gpu.launch(kernel(ATOMICS), 4, 128, out, gpu.put(a), ctypes.c_int(512))
    told = gpu.get(out, 9, "i4")
    expected = [
        a.sum(),
        a.max(),
        a.min(),
        np.bitwise_or.reduce(a),
        np.bitwise_xor.reduce(a),
        512 % 7,
        42,
        0,
    ]
    assert told[:8].tolist() == expected
    assert told[8:].view("f4")[0] == 2.5


def test_variables_of_a_module_can_be_set(gpu: Gpu) -> None:
    source = """
    __constant__ float scale[2] = {1, 2};
    extern "C" __global__ void f(float *o) { o[threadIdx.x] = scale[threadIdx.x]; }"""
    for engine in ("host", "ptx"):
        module, address, size = (
            gpu.load(image(source, engine)),
            ctypes.c_uint64(),
            ctypes.c_size_t(),
        )
        gpu("cuModuleGetGlobal_v2", ctypes.byref(address), ctypes.byref(size), module, b"scale")
        assert size.value == 8
        out = gpu.put(np.zeros(2, "f4"))
        gpu.launch(gpu.function(module, "f"), 1, 2, out)
        assert gpu.get(out, 2).tolist() == [1, 2]
        new = np.array([5, 6], "f4")
        gpu("cuMemcpyHtoD_v2", address, new.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(8))
        gpu.launch(gpu.function(module, "f"), 1, 2, out)
        assert gpu.get(out, 2).tolist() == [5, 6]


def test_structures_and_vectors_pass_as_parameters(gpu: Gpu, kernel: Compile) -> None:
    class Sizes(ctypes.Structure):
        _fields_ = [("n", ctypes.c_longlong * 3), ("k", ctypes.c_short)]

    source = """
    struct Sizes { long long n[3]; short k; };
    extern "C" __global__ void f(char c, float4 *o, Sizes s, double d) {
        o[threadIdx.x] = make_float4(c, s.n[1], s.k, (float)d);
    }"""
    out = gpu.put(np.zeros(8, "f4"))
    sizes = Sizes((ctypes.c_longlong * 3)(1, 2, 3), -4)
    gpu.launch(kernel(source), 1, 2, ctypes.c_char(7), out, sizes, ctypes.c_double(0.5))
    assert gpu.get(out, 8).tolist() == [7, 2, -4, 0.5] * 2


def test_arrays_of_a_thread_and_calls_with_branches(gpu: Gpu, kernel: Compile) -> None:
    source = """
    extern "C" __global__ void f(int *o, int n) {
        int digits[16], count = 0, x = threadIdx.x * n;
        while (x) { digits[count++ & 15] = x % 10; x /= 10; }
        int told = 0;
        for (int i = 0; i < count; i++) told = told * 10 + digits[i];
        o[threadIdx.x] = told;
    }"""
    out = gpu.put(np.zeros(100, "i4"))
    gpu.launch(kernel(source), 1, 100, out, ctypes.c_int(137))
    assert gpu.get(out, 100, "i4").tolist() == [int(str(137 * i)[::-1]) for i in range(100)]
