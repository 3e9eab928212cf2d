"""Batches of compressed matrices, equal indices, broadcasting and `out=`, beside PyTorch."""

import pytest

import tangrad

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
WEIGHT = [[1.0, 2.0], [3.0, 4.0]]
BATCH = [[[1.0, 0], [2, 3]], [[4, 5], [0, 6]]]


def both(program):
    found, wanted = program(tangrad), program(torch)
    assert found == wanted


def repeated(f):
    """Return a tensor of which two values are at one place."""
    values = f.tensor([1.0, 2.0, 3.0])
    return f.sparse_coo_tensor(f.tensor([[0, 1, 0], [1, 0, 1]]), values, (2, 2)).requires_grad_()


USES = {
    "to_dense": lambda f, x, w: x.to_dense() * w,
    "multiply": lambda f, x, w: (x * 2).to_dense() * w,
    "negate": lambda f, x, w: (-x).to_dense() * w,
    "coalesce": lambda f, x, w: x.coalesce().to_dense() * w,
    "transpose": lambda f, x, w: x.t().to_dense() * w,
    "add": lambda f, x, w: (x + x).to_dense() * w,
    "square": lambda f, x, w: (x * x).to_dense() * w,
    "added to a dense one": lambda f, x, w: (w + x) * w,
    "product": lambda f, x, w: f.sparse.mm(x, w) * w,
    "sparse.sum": lambda f, x, w: f.sparse.sum(x) * 3,
    "sum": lambda f, x, w: x.sum() * 3,
}


@pytest.mark.parametrize("use", USES.values(), ids=USES.keys())
def test_a_place_that_is_there_twice_has_its_gradient_once(use):
    def program(f):
        x = repeated(f)
        use(f, x, f.tensor(WEIGHT)).sum().backward()
        return x.grad.to_dense().tolist()

    both(program)


@pytest.mark.parametrize("dense_dim", [0, 1])
def test_batches_and_dense_dimensions_are_compressed(dense_dim):
    def program(f):
        x = f.tensor(BATCH)
        c = x.to_sparse_csr(dense_dim=dense_dim)
        made = f.sparse_compressed_tensor(
            c.crow_indices(), c.col_indices(), c.values(), c.shape, layout=f.sparse_csr
        )
        held = [c.crow_indices().tolist(), c.col_indices().tolist(), c.values().tolist()]
        masked = (x + 1).sparse_mask(c) if dense_dim == 0 else c
        return [
            *held, c.dense_dim(), c.sparse_dim(), c._nnz(), (c.to_dense() == x).all().item(),
            (made.to_dense() == x).all().item(), masked.values().tolist(),
            (c * 2).to_dense().tolist(), c.to(f.float64).values().tolist(),
        ]  # fmt: skip

    both(program)


def test_batches_have_as_many_elements_each():
    for f in (tangrad, torch):
        with pytest.raises(RuntimeError, match="same number of specified elements per batch"):
            f.tensor([[[1.0, 0], [2, 3]], [[0, 5], [0, 6]]]).to_sparse_csr()


def test_rows_and_columns_of_each_batch_are_checked():
    crow, col = [[0, 1, 2], [0, 2, 1]], [[0, 1], [0, 1]]
    with pytest.raises(RuntimeError, match="never fall"):
        tangrad.sparse_csr_tensor(crow, col, [[1.0, 2.0]] * 2, (2, 2, 2))
    with pytest.raises(RuntimeError, match="col_indices must lie within 0 and 0"):
        tangrad.sparse_csr_tensor([[0, 1, 2]] * 2, col, [[1.0, 2.0]] * 2, (2, 2, 1))


def test_layouts_of_other_tensors_are_refused():
    for f in (tangrad, torch):
        parts = f.tensor([0, 1]), f.tensor([0]), f.ones(1)
        for layout in (None, f.strided, f.sparse_coo):
            with pytest.raises(RuntimeError, match="expected sparse compressed tensor layout"):
                f.sparse_compressed_tensor(*parts, (1, 1), layout=layout)
        for layout in (f.sparse_bsr, f.sparse_bsc):
            with pytest.raises(RuntimeError, match="block"):
                f.zeros(2, 2, layout=layout)
        with pytest.raises(RuntimeError, match=r"\[4\]"):
            f.zeros(4, layout=f.sparse_csc)


@pytest.mark.parametrize("shape", [(4, 2, 3), (1, 3), (2, 1), (3,), ()])
def test_products_with_dense_tensors_broadcast(shape):
    def program(f):
        x = f.tensor([[0.0, 1, 2], [3, 0, 4]]).to_sparse()
        other = f.arange(24.0)[: max(1, f.Size(shape).numel())].reshape(shape) + 1
        return [(x * other).to_dense().tolist(), (other * x).to_dense().tolist()]

    both(program)
    other = tangrad.arange(24.0)[: max(1, tangrad.Size(shape).numel())].reshape(shape) + 1
    for name in ("csr", "csc"):
        x = getattr(tangrad.tensor([[0.0, 1, 2], [3, 0, 4]]), f"to_sparse_{name}")()
        assert (x * other).layout is x.layout
        assert (x * other).to_dense().tolist() == (x.to_dense() * other).tolist()


def test_sparse_factors_broadcast_along_dense_dimensions():
    def program(f):
        x = f.arange(12.0).reshape(2, 2, 3).to_sparse(1)
        return (x * f.ones(2, 1, 3).to_sparse(1)).to_dense().tolist()

    both(program)


def test_results_are_written_into_sparse_tensors():
    def program(f):
        x = f.tensor([[0.0, 1], [-2, 0]]).to_sparse()
        out = f.sparse_coo_tensor((2, 2))
        f.abs(x, out=out)
        return out.to_dense().tolist(), f.isposinf(x, out=f.zeros_like(x).bool()).dtype == f.bool

    both(program)
    columns = tangrad.tensor([[0.0, 1], [-2, 0]]).to_sparse_csc()
    out = tangrad.abs(columns, out=tangrad.zeros(2, 2, layout=tangrad.sparse_csc))
    assert (out.layout, out.values().tolist()) == (tangrad.sparse_csc, [2.0, 1.0])
    whole = tangrad.eye(2, dtype=tangrad.int32).to_sparse()
    with pytest.raises(RuntimeError, match="can't be cast to"):
        tangrad.sin(whole, out=tangrad.zeros_like(whole))
    recorded = tangrad.eye(2).to_sparse().requires_grad_()
    with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
        tangrad.sin(recorded, out=tangrad.zeros_like(recorded))


def test_functions_in_place_take_distinct_indices():
    for f in (tangrad, torch):
        with pytest.raises(RuntimeError, match="sqrt_ requires coalesced input"):
            repeated(f).detach().sqrt_()
        assert repeated(f).detach().coalesce().sqrt_().to_dense().tolist()[0] == [0.0, 2.0]


def test_sizes_alone_make_sparse_tensors():
    def program(f):
        made = [
            f.zeros(2, 3, layout=f.sparse_coo), f.empty(2, 3, layout=f.sparse_coo),
            f.zeros(2, 3, layout=f.sparse_csr), f.zeros_like(f.eye(3), layout=f.sparse_coo),
            f.zeros(2, 2, 3, layout=f.sparse_csc), f.zeros_like(f.eye(3), layout=f.sparse_csc),
            f.empty_like(f.eye(3).to_sparse(), layout=f.sparse_csr),
            f.zeros_like(f.eye(3).to_sparse(), layout=f.strided),
            f.zeros_like(f.eye(3).to_sparse(), dtype=f.float64, device="meta"),
        ]  # fmt: skip
        return [(str(x.layout).split(".")[1], tuple(x.shape), x.dtype == f.float32) for x in made]

    both(program)
    with pytest.raises(RuntimeError, match="only supported by strided tensors"):
        tangrad.empty_like(tangrad.eye(3).to_sparse(), memory_format=tangrad.channels_last)


def test_old_constructors_of_a_tensor_make_sparse_ones():
    def program(f):
        x = f.eye(2).to_sparse()
        made = [x.new(x.indices(), x.values(), x.size()), x.new(f.Size([2, 3])), x.new()]
        return [(str(t.layout).split(".")[1], tuple(t.shape), t._nnz()) for t in made]

    both(program)


def test_sparse_dimensions_are_not_changed_by_to_sparse():
    for f in (tangrad, torch):
        with pytest.raises(RuntimeError, match="from Sparse to Sparse with sparse_dim"):
            f.eye(3).to_sparse(1).to_sparse(2)


def test_tensors_without_data_hold_no_element():
    for f in (tangrad, torch):
        x = f.eye(3).to_sparse().to("meta")
        assert (x._nnz(), (x + x)._nnz()) == (0, 0)
        for made in (f.eye(2).to_sparse_csr(), f.eye(2).to_sparse_bsc((2, 1))):
            moved = made.to("meta")
            assert (moved._nnz(), moved.layout, tuple(moved.shape)) == (0, made.layout, (2, 2))


@pytest.mark.parametrize("masked", [True, False])
def test_gradients_of_functions_of_sparse_tensors_are_checked(masked):
    x = tangrad.tensor([[0.0, 1], [-2, 0]], dtype=tangrad.float64)
    check = tangrad.sparse.as_sparse_gradcheck(tangrad.autograd.gradcheck)
    compressed = x.to_sparse_csr(), x.to_sparse_csc(), x.to_sparse_bsr((1, 2))
    for given in (x.to_sparse(), *compressed):
        for function in (tangrad.Tensor.to_dense, tangrad.Tensor.sum, lambda t: t):
            assert check(function, (given.requires_grad_(),), masked=masked)
    twice = x.to_sparse().requires_grad_()
    assert check(lambda t: t * t, (twice,), masked=True)


def test_checks_leave_places_alone_that_a_tensor_has_not():
    values = tangrad.tensor([1 + 1j, 2, 3j], dtype=tangrad.complex128)
    x = tangrad.sparse_coo_tensor([[0, 1, 0], [1, 0, 1]], values, (2, 2)).requires_grad_()
    assert tangrad.autograd.gradcheck(lambda t: t.to_dense(masked_grad=True), (x,), masked=True)
    with pytest.raises(RuntimeError, match="Jacobian mismatch"):
        tangrad.autograd.gradcheck(lambda t: t.to_dense(masked_grad=True), (x,), masked=False)


def test_no_diagonals_make_a_matrix_of_zeros():
    def program(f):
        none = f.zeros(0, 0), f.zeros(0, dtype=f.int64)
        return f.sparse.spdiags(*none, (2, 2)).to_dense().tolist()

    both(program)


def test_norms_take_no_dtype_and_keep_no_dimension():
    for f in (tangrad, torch):
        x = f.eye(2).to_sparse()
        with pytest.raises(RuntimeError, match="does not support keepdim"):
            x.norm(keepdim=True)
        with pytest.raises(ValueError, match="dtype argument is not supported"):
            x.norm(p="fro", dtype=f.float64)
        with pytest.raises(RuntimeError, match="does not support 'dtype'"):
            x.norm(p=0, dtype=f.float64)


def coo(f, dtype=None):
    values = f.tensor([1.0, 2.0, 3.0]).to(dtype or f.float32)
    return f.sparse_coo_tensor(f.tensor([[0, 1, 1], [2, 0, 2]]), values, (2, 3))


OUTSIDE = {
    "softmax": lambda f, x: f.sparse.softmax(x, 2),
    "log_softmax": lambda f, x: f.sparse.log_softmax(x, -3),
    "sum": lambda f, x: f.sparse.sum(x, 5),
}


@pytest.mark.parametrize("use", OUTSIDE.values(), ids=OUTSIDE.keys())
def test_dimensions_that_there_are_not_are_refused(use):
    for f in (tangrad, torch):
        with pytest.raises(IndexError, match="Dimension out of range"):
            use(f, coo(f))


REFUSED = {
    "one dimension twice": (lambda f, x: f.sparse.sum(x, (0, -2)), "multiple times"),
    "a vector of another length": (lambda f, x: x @ f.ones(4), "mv: expected self.size"),
    "a matrix of another size": (lambda f, x: x @ f.ones(4, 5), "3.*4"),
    "sparse by sparse": (lambda f, x: x // x, "Sparse floor division requires"),
    "dense by sparse": (lambda f, x: f.ones(2, 3) // x, "Sparse floor division requires"),
    "another shape": (lambda f, x: x + f.ones(2, 2).to_sparse(), "expected .*size"),
    "a size that elements do not fit": (
        lambda f, x: x.resize_as_(f.zeros(1, 1).to_sparse()),
        "shrinking the size of sparse dimensions",
    ),
}


@pytest.mark.parametrize(("use", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_what_does_not_fit_is_refused(use, words):
    for f in (tangrad, torch):
        with pytest.raises(RuntimeError, match=words):
            use(f, coo(f))


def test_softmax_is_of_coo_tensors():
    for f in (tangrad, torch):
        with pytest.raises(NotImplementedError, match="softmax"):
            f.sparse.softmax(coo(f).to_sparse_csr(), 1)


@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64", "float64"])
def test_elements_keep_their_dtype(dtype):
    def program(f):
        x = coo(f, getattr(f, dtype))
        picked = [x[1], x[1, 2], x[0, 0], x // 2]
        return [str(p.dtype).rpartition(".")[2] for p in picked], [p.sum().item() for p in picked]

    both(program)


def test_places_change_in_place():
    def program(f):
        x, y = coo(f), coo(f)
        moved = [x.transpose_(0, 1), y.t_()]
        cube = f.ones(2, 3, 4).to_sparse(2)
        cube.transpose_(1, 0)
        small = f.zeros(2, 2).to_sparse().resize_as_(f.zeros(4, 5, 2).to_sparse(2))
        scalar = f.tensor(2.0).to_sparse().transpose(0, -1)
        return [
            [t.to_dense().tolist() for t in moved], tuple(x.shape), list(cube.shape),
            (list(small.shape), small.sparse_dim(), small.dense_dim()), scalar.to_dense().item(),
        ]  # fmt: skip

    both(program)


def test_fewer_than_two_elements_are_coalesced():
    def program(f):
        none = f.sparse_coo_tensor(f.zeros(2, 0, dtype=f.int64), f.zeros(0), (2, 3))
        one = f.sparse_coo_tensor([[1], [2]], [3.0], (2, 3))
        return [
            none.is_coalesced(),
            one.is_coalesced(),
            coo(f).is_coalesced(),
            one.values().tolist(),
        ]

    both(program)


def test_products_stay_sparse_by_their_older_names():
    def program(f):
        x, b, c = coo(f), f.arange(6.0).reshape(3, 2), f.ones(2, 2).to_sparse()
        found = [
            x.smm(b), f.smm(x, b), c.sspaddmm(x, b, beta=2, alpha=-1), f.sspaddmm(c, x, b),
            f.saddmm(c, x, b, beta=0.5),
        ]  # fmt: skip
        return [(t.layout is f.sparse_coo, t.to_dense().tolist()) for t in found]

    both(program)
    with pytest.raises(RuntimeError, match="sspaddmm: expected a sparse_coo matrix"):
        coo(tangrad).sspaddmm(tangrad.ones(2, 3), tangrad.ones(3, 3))


@pytest.mark.parametrize(
    ("diagonals", "offsets", "shape", "words"),
    [
        ((1, 3), [0], (3, 3, 3), "Output shape must be 2d"),
        ((1, 3), [0], (3,), "Output shape must be 2d"),
        ((2, 3), [0, 0], (3, 3), "duplicate values"),
        ((2, 3), [0], (3, 3), "Number of diagonals"),
        ((2, 3), [0, 1.5], (3, 3), "must have dtype Long"),
        ((2, 3, 3), [0, 1], (3, 3), "must be vector or matrix"),
        ((2, 3), [[0, 1]], (3, 3), "must be scalar or vector"),
    ],
)
def test_diagonals_that_make_no_matrix_are_refused(diagonals, offsets, shape, words):
    for f in (tangrad, torch):
        with pytest.raises(RuntimeError, match=words):
            f.sparse.spdiags(f.ones(diagonals), f.tensor(offsets), shape)
        with pytest.raises(RuntimeError, match="Only output layouts"):
            f.sparse.spdiags(f.ones(1, 3), f.tensor([0]), (3, 3), f.strided)


def test_a_mask_passes_gradients_to_places_without_elements():
    def program(f):
        x = f.sparse_coo_tensor([[0, 1], [1, 0]], [1.0, 2.0], (2, 2)).requires_grad_()
        wider = f.sparse_coo_tensor([[0, 1], [1, 1]], [1.0, 1.0], (2, 2)).coalesce()
        found = []
        for masks in ([wider], [x.detach(), wider]):
            x.grad, y = None, x
            for mask in masks:
                y = y.sparse_mask(mask)
            (y.to_dense() * f.tensor(WEIGHT)).sum().backward()
            found += [y.detach().to_dense().tolist(), x.grad.layout is f.sparse_coo]
            found.append(x.grad.to_dense().tolist())
        return found

    both(program)


@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr", "sparse_csc"])
def test_zeros_in_another_layout_keep_dense_dimensions(layout):
    def program(f):
        x = f.ones(2, 3, 4).to_sparse_csr(dense_dim=1)
        zeros = f.zeros_like(x, layout=getattr(f, layout))
        return tuple(zeros.shape), zeros.sparse_dim(), zeros.dense_dim(), zeros._nnz()

    both(program)


def test_sparse_numbers_multiply_either_way():
    def program(f):
        parts = f.zeros(0, 3, dtype=f.int64), f.tensor([1, 2, 3], dtype=f.int32)
        number, factor = f.sparse_coo_tensor(*parts, ()), f.tensor(2.5).to_sparse()
        found = [number * factor, factor * number]
        return [(str(t.dtype)[-7:], t._nnz(), t.to_dense().item()) for t in found]

    both(program)


def test_adding_no_elements_needs_no_equal_sparse_dimensions():
    def program(f):
        none, x = f.zeros(2, 3).to_sparse(1), coo(f)
        found = [x + none, none + x, f.add(none, x, alpha=2), x - none]
        return [(t.sparse_dim(), t.to_dense().tolist()) for t in found]

    both(program)
