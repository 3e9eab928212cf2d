"""The pointwise kernels: any geometry, any dtype, any number of threads, every level."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tangrad
from tangrad_cpu import _kernels

torch = pytest.importorskip("torch")

DTYPES = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "uint8", "bool")
SPECIAL = (0.0, -0.0, 1.0, -1.0, float("inf"), -float("inf"), float("nan"), 1e-45, -1e-40, 3e38)
BINARY = ("add", "mul", "maximum", "minimum", "lt", "eq", "where")


def both(array: np.ndarray, dtype: str):
    """Return an array as a tensor of ours and of PyTorch's."""
    theirs = torch.from_numpy(array).to(getattr(torch, dtype))
    if dtype == "bfloat16":
        ours = tangrad.from_numpy(array).to(tangrad.bfloat16)
    else:
        ours = tangrad.from_numpy(theirs.numpy().copy())
    return ours, theirs


def bits(t) -> bytes:
    """Return the elements of a tensor in order, as bytes."""
    t = t.contiguous()
    if t.dtype in (torch.bfloat16, tangrad.bfloat16):
        t = t.to(torch.float32 if isinstance(t, torch.Tensor) else tangrad.float32)
    return t.numpy().tobytes()


def assert_same(ours, theirs) -> None:
    """Compare all elements exactly, but that any nan equals any other."""
    assert tuple(ours.shape) == tuple(theirs.shape)
    if theirs.dtype == torch.bfloat16:
        ours, theirs = ours.to(tangrad.float32), theirs.to(torch.float32)
    np.testing.assert_array_equal(ours.contiguous().numpy(), theirs.contiguous().numpy())
    if theirs.is_floating_point():
        np.testing.assert_array_equal(
            np.signbit(np.nan_to_num(ours.contiguous().numpy())),
            np.signbit(np.nan_to_num(theirs.contiguous().numpy())),
        )


def call(library, name, a, b):
    if name == "where":
        return library.where(a > b, a, b)
    return getattr(library, name)(a, b)


@st.composite
def geometries(draw):
    """Return functions that give two tensors strides, by the same steps in both libraries."""
    sizes = st.sampled_from((1, 2, 3, 5, 8, 17, 63, 64, 65, 130))
    shape = draw(st.lists(sizes, min_size=0, max_size=4))
    while np.prod(shape) > 60_000:
        shape.remove(max(shape))
    order = draw(st.permutations(range(len(shape))))
    steps = [draw(st.sampled_from((1, 1, 1, 2, 3))) for _ in shape]
    starts = [draw(st.sampled_from((0, 0, 1))) for _ in shape]
    single = [draw(st.booleans()) and draw(st.booleans()) for _ in shape]
    dropped = draw(st.integers(0, len(shape)))

    def build(t):
        for d, (start, step) in enumerate(zip(starts, steps, strict=True)):
            t = t[(slice(None),) * d + (slice(start, None, step),)]
        return t.permute(order) if shape else t

    def narrow(t):
        for d, one in enumerate(single):
            if one:
                t = t[(slice(None),) * d + (slice(0, 1),)]
        for _ in range(min(dropped, t.ndim)):
            t = t[0]
        return t

    full = [start + n * step for n, start, step in zip(shape, starts, steps, strict=True)]
    return full, build, narrow


@settings(max_examples=400, deadline=None)
@given(geometries(), st.sampled_from(DTYPES), st.sampled_from(BINARY), st.integers(0, 2**31))
def test_any_geometry_gives_what_pytorch_gives(geometry, dtype, name, seed):
    full, build, narrow = geometry
    random = np.random.default_rng(seed)
    values = random.integers(0, 5, full) if dtype == "uint8" else random.integers(-3, 4, full)
    a, theirs_a = both(values.astype("float32"), dtype)
    b, theirs_b = both(random.permutation(values.ravel()).reshape(full).astype("float32"), dtype)
    a, theirs_a = build(a), build(theirs_a)
    b, theirs_b = narrow(build(b)), narrow(build(theirs_b))
    assert_same(call(tangrad, name, a, b), call(torch, name, theirs_a, theirs_b))
    assert_same(call(tangrad, name, b, a), call(torch, name, theirs_b, theirs_a))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize(
    "name", ["add", "sub", "mul", "true_divide", "maximum", "minimum", "le", "ne", "where"]
)
def test_special_values(name, dtype):
    pairs = np.array([(x, y) for x in SPECIAL for y in SPECIAL], "float32")
    a, theirs_a = both(pairs[:, 0].copy(), dtype)
    b, theirs_b = both(pairs[:, 1].copy(), dtype)
    assert_same(call(tangrad, name, a, b), call(torch, name, theirs_a, theirs_b))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_round_once_to_nearest_even(dtype):
    """All pairs of neighbours around every binade: sums that fall between two halves."""
    raw = np.arange(0, 0x7F80, 7, dtype=np.int16)
    theirs = torch.from_numpy(raw).view(getattr(torch, dtype))
    ours = tangrad.from_numpy(raw).view(getattr(tangrad, dtype))
    for shift in (1, 5, 300):
        rolled, theirs_rolled = ours[shift:], theirs[shift:]
        assert_same(ours[:-shift] + rolled, theirs[:-shift] + theirs_rolled)
        assert_same(ours[:-shift] * rolled, theirs[:-shift] * theirs_rolled)


def test_in_place_over_its_own_operands():
    a, theirs = both(np.random.default_rng(0).normal(size=(70, 70)).astype("float32"), "float32")
    a.mul_(a)
    theirs.mul_(theirs)
    assert_same(a, theirs)
    with pytest.raises(RuntimeError, match="single memory location"):
        a.add_(a.t())
    assert_same(a, theirs)
    a[::2, 1::3].sub_(a[1::2, 1::3])
    theirs[::2, 1::3].sub_(theirs[1::2, 1::3].clone())
    assert_same(a, theirs)
    a[:, 0] *= 2.5
    theirs[:, 0] *= 2.5
    assert_same(a, theirs)
    a[1:, ::2].add_(a[:-1, ::2])
    theirs[1:, ::2].add_(theirs[:-1, ::2].clone())
    assert_same(a, theirs)


@pytest.mark.parametrize("offset", [1, 3, 5])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int16"])
def test_memory_at_any_byte(dtype, offset):
    size = np.dtype(dtype).itemsize
    memory = np.zeros(1000 * size + 64, np.uint8)
    values = np.arange(1000).astype(dtype)
    memory[offset : offset + 1000 * size] = np.frombuffer(values.tobytes(), np.uint8)
    x = tangrad.frombuffer(memory, dtype=getattr(tangrad, dtype), count=1000, offset=offset)
    np.testing.assert_array_equal((x + x).numpy(), values + values)
    x.mul_(3)
    np.testing.assert_array_equal(x.numpy(), values * 3)


@pytest.mark.parametrize("name", ["floor_divide", "remainder", "fmod"])
@pytest.mark.parametrize("n", [1, 100, 300_000])
def test_integer_division_by_zero_is_an_error(name, n):
    a = tangrad.arange(n)
    b = tangrad.ones(n, dtype=tangrad.int64)
    assert getattr(tangrad, name)(a, b).shape == (n,)
    b[n - 1] = 0
    for x, y in ((a, b), (a.view(1, n).expand(2, n), b), (a, 0)):
        with pytest.raises(RuntimeError, match=rf"ZeroDivisionError: {name} of integers by zero"):
            getattr(tangrad, name)(x, y)


def test_parameters_keep_their_kind():
    x = tangrad.arange(5)
    assert tangrad.add(x, x, alpha=3).tolist() == [0, 4, 8, 12, 16]
    assert tangrad.nn.functional.threshold(x, 2.0, 7.0).tolist() == [7, 7, 7, 3, 4]
    z = tangrad.ones(2, dtype=tangrad.complex64)
    assert tangrad.add(z, z, alpha=2 + 3j).tolist() == [3 + 3j, 3 + 3j]
    assert tangrad.round(tangrad.tensor([1.2345, 6.789]), decimals=2).numpy() == pytest.approx(
        [1.23, 6.79]
    )


@pytest.mark.parametrize("seed", [7, 2**53 + 1, 2**62 + 3])
def test_dropout_has_the_numbers_of_the_reference(seed):
    """The element's index is the logical one, whatever the memory's order; all bits count."""
    from tangrad.ops import lookup

    drop = lookup("dropout_mask_scale")
    x = tangrad.ones(6, 70, 50)
    for view in (x, x.permute(2, 0, 1), x[:, ::2], x[0, 0].expand(80, 50), x[0].t()):
        expected = drop(view.to("reference"), 0.5, seed, 3)
        assert_same(drop(view, 0.5, seed, 3), torch.from_numpy(expected.cpu().numpy()))


def results() -> dict[str, str]:
    """Return digests of results that have one right answer, and of approximations."""
    random = np.random.default_rng(3)
    exact, close = hashlib.sha256(), []
    for dtype in DTYPES:
        a, _ = both(random.integers(0, 9, (300, 410)).astype("float32"), dtype)
        b, _ = both(random.integers(0, 9, (410, 300)).astype("float32"), dtype)
        for x, y in ((a, a), (a, b.t()), (a, a[0]), (a, a[:, :1]), (a[:, ::3], b.t()[:, ::3])):
            for name in BINARY:
                exact.update(bits(call(tangrad, name, x, y)))
            if dtype.startswith(("float", "bfloat")):
                close.append(tangrad.tanh(x).to(tangrad.float64).sum().item())
    return {"exact": exact.hexdigest(), "close": close}


def test_many_wide_operands_of_joined_rows_fit_their_tiles():
    """The tangent of a product reads four operands, none of them contiguous."""
    frames = [tangrad.randn(2, 116, dtype=tangrad.complex128).unfold(-1, 16, 4) for _ in range(2)]
    rows = [tangrad.randn(16, dtype=tangrad.complex128) for _ in range(2)]
    _, tangent = tangrad.func.jvp(tangrad.mul, (frames[0], rows[0]), (frames[1], rows[1]))
    assert tangent.allclose(frames[1] * rows[0] + frames[0] * rows[1])


WITH_NUMBERS = {
    "add": lambda x, number: x + number,
    "subtracted from": lambda x, number: number - x,
    "scaled": lambda x, number: x.sub(number, alpha=3),
    "mul": lambda x, number: x * number,
    "div": lambda x, number: x / number,
    "divided": lambda x, number: number / x,
    "le": lambda x, number: x <= number,
    "lerp": lambda x, number: tangrad.lerp(x, -x, number),
    "clamp": lambda x, number: x.clamp(number, number + 1),
    "clamp of one": lambda x, number: tangrad.clamp(number, x, x + 1),
    "where": lambda x, number: tangrad.where(x > 0, x, number),
    "where not": lambda x, number: tangrad.where(x > 0, number, x),
    "addcmul": lambda x, number: tangrad.addcmul(x, number, x, value=2),
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("name", WITH_NUMBERS)
def test_a_number_gives_the_bits_of_a_tensor_full_of_it(name, dtype):
    """One of all elements, of each row, of each plane, and of each row of a transpose."""
    f, wanted = WITH_NUMBERS[name], getattr(tangrad, dtype)
    shapes = [(1,), (37,), (20_011,), (5, 63), (7, 64), (3, 1027), (2, 3, 65), (2, 3, 4, 5)]
    for shape in shapes:
        x = tangrad.randn(shape).to(wanted)
        for kept in range(len(shape)):
            number = tangrad.randn(shape[:kept] + (1,) * (len(shape) - kept)).to(wanted)
            full = number.expand(shape).contiguous()
            assert bits(f(x, number)) == bits(f(x, full)), (shape, kept)
            turned = f(x.transpose(0, -1), number.transpose(0, -1))
            assert bits(turned) == bits(f(x, full).transpose(0, -1)), (shape, kept)


def test_rows_written_over_the_number_that_they_take():
    x = tangrad.randn(5, 1000)
    wanted = x - x[:, 500:501].clone()
    x.sub_(x[:, 500:501])
    assert bits(x) == bits(wanted)


def test_results_that_are_stored_past_the_caches():
    n = (9 << 20) + 37  # 36 MiB, and no whole number of pieces or lines
    x = tangrad.arange(n, dtype=tangrad.float32)
    wanted = np.arange(n, dtype=np.float32) * 2
    np.testing.assert_array_equal((x + x).numpy(), wanted)
    np.testing.assert_array_equal((x * 2.0).numpy(), wanted)
    memory = tangrad.full((n + 2,), -1.0)
    tangrad.add(x, x, out=memory[1:-1])  # aligned to no line
    assert (memory[0].item(), memory[-1].item()) == (-1.0, -1.0)
    np.testing.assert_array_equal(memory[1:-1].numpy(), wanted)
    before = tangrad.get_num_threads()
    try:
        tangrad.set_num_threads(3)
        np.testing.assert_array_equal((x < 5).numpy(), np.arange(n) < 5)
        np.testing.assert_array_equal(x.add_(x).numpy(), wanted)
        np.testing.assert_array_equal((x // 2).to(tangrad.int64).numpy(), np.arange(n))
    finally:
        tangrad.set_num_threads(before)


def test_numbers_beside_bfloat16_are_rounded_like_an_element_except_as_factors():
    x = tangrad.randn(100).to(tangrad.bfloat16)
    for ours, expected in ((x * 0.1, x.float() * 0.1), (x + 1.001, x.float() + 1.0)):
        assert bits(ours) == bits(expected.to(tangrad.bfloat16))


def test_threads_do_not_change_results():
    before = tangrad.get_num_threads()
    try:
        seen = []
        for threads in (1, 2, 4):
            tangrad.set_num_threads(threads)
            seen.append(results())
        assert seen[0] == seen[1] == seen[2]
    finally:
        tangrad.set_num_threads(before)


@pytest.mark.parametrize("level", [name for name, runs in _kernels.levels().items() if runs])
def test_levels_agree(level):
    code = f"import sys; sys.path.insert(0, {os.path.dirname(__file__)!r}); import test_pointwise"
    code += "; print(repr(test_pointwise.results()))"
    environment = os.environ | {"TANGRAD_CPU_ISA": level}
    text = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    ).stdout
    got, expected = eval(text), results()
    assert got["exact"] == expected["exact"]
    assert got["close"] == pytest.approx(expected["close"], rel=1e-6)


def test_every_definition_has_its_kernels():
    """An op that the reference would serve instead is a kernel that the build lost."""
    from tangrad.ops.definition import registry

    served = set(_kernels.kernels())
    for op in registry.load_all().values():
        ours = op.definition.module.startswith("tangrad.")  # not of a test
        if ours and op.kind == "pointwise" and "floating" in op.definition.dtypes:
            for dtype in ("float32", "float64", "float16", "bfloat16"):
                assert (op.definition.key, dtype) in served
    assert ("mul_backward(self,other)", "float32") in served
    assert ("tanh_backward(self)", "bfloat16") in served
    assert ("add_plain", "uint16") in served


@pytest.mark.parametrize("name", ["complex", "polar"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gradients_of_parts_of_complex_numbers_are_those_of_the_reference(name, dtype):
    rng = np.random.default_rng(4)
    values = [rng.standard_normal((5, 70)).astype(dtype) for _ in range(4)]
    values[2][0, :3] = np.nan, np.inf, -0.0
    for wanted in ((0,), (1,), (0, 1)):
        found = []
        for device in ("cpu", "reference"):
            a, b, re, im = (tangrad.from_numpy(v).to(device) for v in values)
            leaves = [a.requires_grad_(0 in wanted), b.requires_grad_(1 in wanted)]
            seed = tangrad.complex(re, im)[:, ::2]
            y = getattr(tangrad, name)(*leaves)[:, ::2]
            grads = tangrad.autograd.grad(y, [leaves[i] for i in wanted], seed)
            found.append([g.cpu().numpy() for g in grads])
        rtol = 2e-6 if dtype == "float32" else 1e-14
        for mine, other in zip(*found, strict=True):
            np.testing.assert_allclose(mine, other, rtol=rtol, atol=rtol)
    keys = {key for key, kind in _kernels.kernels() if kind == "complex128"}
    assert [key for key in keys if key.startswith(f"{name}_backward")]


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "int64"])
def test_greatest_common_divisors_of_any_integers(dtype: str) -> None:
    info = np.iinfo(dtype)
    edges = np.array([0, 1, 2, 3, 6, 64, 96, info.max, info.max - 1, info.min, info.min + 1])
    drawn = np.random.default_rng(3).integers(info.min, info.max, 90, endpoint=True)
    x = np.concatenate([edges, drawn]).astype(dtype)
    a, b = x[:, None], x[None, :]
    found = tangrad.gcd(tangrad.from_numpy(a), tangrad.from_numpy(b)).numpy()
    np.testing.assert_array_equal(found, np.gcd(a, b))
