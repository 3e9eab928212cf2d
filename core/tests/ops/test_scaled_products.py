"""Products of float8 matrices with scales are PyTorch's: `_scaled_mm`."""

import pytest

import tangrad

torch = pytest.importorskip("torch")

KINDS = ("float8_e4m3fn", "float8_e5m2")


def operands(framework, a="float8_e4m3fn", b="float8_e5m2"):
    """Return matrices (5, 8) and (8, 6), the second stored by columns as GPUs want it."""
    grid = torch.randn(11, 8, generator=torch.Generator().manual_seed(0))
    left, right = grid[:5].to(getattr(torch, a)), grid[5:].to(getattr(torch, b))
    if framework is tangrad:
        left, right = (
            tangrad.tensor(x.view(torch.uint8).tolist(), dtype=tangrad.uint8).view(
                getattr(tangrad, kind)
            )
            for x, kind in ((left, a), (right, b))
        )
    return left, right.t()


def both(call):
    """Return what a call gives in either framework, as float32."""
    ours, theirs = (call(framework, *operands(framework)) for framework in (tangrad, torch))
    assert str(ours.dtype).rpartition(".")[2] == str(theirs.dtype).rpartition(".")[2]
    assert tuple(ours.shape) == tuple(theirs.shape)
    return torch.tensor(ours.float().tolist()), theirs.float()


@pytest.mark.parametrize("out", ["float32", "bfloat16", "float16", *KINDS, None])
def test_one_scale_for_each_matrix(out):
    def call(f, a, b):
        dtype = None if out is None else getattr(f, out)
        return f._scaled_mm(a, b, f.tensor(2.0), f.tensor([0.3]), out_dtype=dtype)

    ours, theirs = both(call)
    # Sums in another order may round to the neighbour in the dtype of the result.
    step = {"float32": 1e-6, "bfloat16": 2**-7, "float16": 2**-10}.get(out, 2**-2)
    torch.testing.assert_close(ours, theirs, rtol=step, atol=1e-6)


def test_a_scale_for_each_row_and_column_with_bias():
    def call(f, a, b):
        rows = f.arange(1, 6, dtype=f.float32).reshape(5, 1) / 4
        columns = f.arange(1, 7, dtype=f.float32).reshape(1, 6) / 3
        return f._scaled_mm(a, b, rows, columns, bias=f.arange(6.0), out_dtype=f.float32)

    ours, theirs = both(call)
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("out", ["float32", *KINDS])
@pytest.mark.parametrize("factor", [1.0, 1e4])
def test_results_of_float8_are_scaled_and_the_finite_one_saturates(out, factor):
    def call(f, a, b):
        one = f.tensor(1.0)
        return f._scaled_mm(
            a,
            b,
            one * factor,
            one,
            scale_result=f.tensor(0.5),
            out_dtype=getattr(f, out),
            use_fast_accum=True,
        )

    ours, theirs = both(call)
    torch.testing.assert_close(ours, theirs, rtol=1e-6 if out == "float32" else 2**-2, atol=1e-6)
    assert not ours.isnan().any()


def test_what_it_writes_has_the_dtype_of_the_result():
    a, b = operands(tangrad)
    one = tangrad.tensor(1.0)
    out = tangrad.empty(5, 6)
    assert tangrad._scaled_mm(a, b, one, one, out_dtype=tangrad.float32, out=out) is out
    assert out.tolist() == tangrad._scaled_mm(a, b, one, one, out_dtype=tangrad.float32).tolist()


@pytest.mark.parametrize(
    ("change", "kind", "told"),
    [
        ({"scale_a": (5, 1)}, ValueError, r"scales, of one element each or contiguous"),
        ({"scale_a": (3,), "scale_b": (3,)}, ValueError, r"\[5, 1\] and \[1, 6\]"),
        ({"bias": (4,)}, RuntimeError, r"bias must be size 6 but got shape \[4\]"),
        ({"scale_result": (2,)}, RuntimeError, "scale_result must be a float32 scalar"),
        ({"mat2": (8, 6)}, ValueError, "takes float8 matrices"),
        ({"mat2": (7, 6)}, RuntimeError, r"\[5, 8\] and \[7, 6\]"),
    ],
)
def test_what_does_not_fit_is_refused(change, kind, told):
    a, b = operands(tangrad)
    one = tangrad.tensor(1.0)
    given = {"self": a, "mat2": b, "scale_a": one, "scale_b": one}
    given |= {name: tangrad.ones(shape) for name, shape in change.items()}
    with pytest.raises(kind, match=told):
        tangrad._scaled_mm(**given)
