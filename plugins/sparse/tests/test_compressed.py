"""Tensors of compressed rows and columns, beside PyTorch's: CSC, BSR, BSC, batches, dense parts."""

import copy
import io
import pickle

import pytest

import tangrad

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore:Sparse:UserWarning", "ignore::RuntimeWarning")

BOTH = (torch, tangrad)
LAYOUTS = ("sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc")


def dense(f, rows=4, columns=6):
    x = f.arange(float(rows * columns)).reshape(rows, columns)
    x = x * (f.arange(rows * columns).reshape(rows, columns) % 5 < 2)
    x[rows // 2 :, :2] = 0
    return x


def made(f, name, x=None):
    x = dense(f) if x is None else x
    convert = getattr(x, f"to_{name}")
    return convert((2, 3)) if name in ("sparse_bsr", "sparse_bsc") else convert()


def described(x):
    if isinstance(x, (tuple, list)):
        return [described(item) for item in x]
    if isinstance(x, (torch.Tensor, tangrad.Tensor)):
        words = [str(i).rpartition(".")[2] for i in (x.layout, x.dtype)]
        return [*words, list(x.shape), described_parts(x.detach())]
    return x


def described_parts(x):
    name = str(x.layout).rpartition(".")[2]
    if name == "strided":
        return x.tolist()
    if name == "sparse_coo":
        x = x.coalesce()
        return [x.indices().tolist(), x.values().tolist()]
    starts = x.crow_indices() if name.endswith("r") else x.ccol_indices()
    others = x.col_indices() if name.endswith("r") else x.row_indices()
    return [starts.tolist(), others.tolist(), x.values().tolist()]


def both(program):
    expected, found = (described(program(f)) for f in BOTH)
    assert expected == found


@pytest.mark.parametrize("name", LAYOUTS)
def test_texts_are_pytorchs(name):
    assert repr(made(tangrad, name)).replace("tangrad.", "torch.") == repr(made(torch, name))


@pytest.mark.parametrize("source", ["strided", "sparse_coo", *LAYOUTS])
@pytest.mark.parametrize("target", ["sparse_coo", *LAYOUTS])
def test_layouts_are_converted(source, target):
    def program(f):
        x = dense(f)
        x = (
            x
            if source == "strided"
            else x.to_sparse()
            if source == "sparse_coo"
            else made(f, source)
        )
        blocks = {"blocksize": (2, 3)} if target in ("sparse_bsr", "sparse_bsc") else {}
        return [
            made(f, target, x) if target in LAYOUTS else x.to_sparse_coo(),
            x.to_sparse(layout=getattr(f, target), **blocks),
            x.to_dense(),
        ]

    if source.startswith("sparse_bs") and target in ("sparse_csr", "sparse_csc"):
        found, same, _ = program(tangrad)  # PyTorch does not take blocks apart
        assert described(found) == described(same)
        assert found.to_dense().tolist() == dense(tangrad).tolist()
    else:
        both(program)


@pytest.mark.parametrize("name", ["sparse_bsr", "sparse_bsc"])
def test_one_number_is_the_size_of_square_blocks(name):
    both(lambda f: [getattr(f.ones(4, 6), f"to_{name}")(2)])


@pytest.mark.parametrize("name", ["sparse_bsr", "sparse_bsc"])
def test_values_copied_into_blocks_keep_their_size(name):
    x = getattr(tangrad.ones(4, 6), f"to_{name}")((2, 3))
    dense = tangrad.arange(24.0).reshape(4, 6).tril()
    assert x.copy_(dense).to_dense().equal(dense)
    assert x.values().shape == (3, 2, 3)


def test_values_copied_into_dense_dimensions_keep_them():
    dense = tangrad.arange(24.0).reshape(2, 3, 4)
    for x in (tangrad.ones(2, 3, 4).to_sparse(1), tangrad.ones(2, 3, 4).to_sparse_csr(dense_dim=1)):
        dims = x.sparse_dim(), x.dense_dim()
        assert x.copy_(dense).to_dense().equal(dense)
        assert (x.sparse_dim(), x.dense_dim()) == dims


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("name", ["sparse_bsr", "sparse_bsc"])
@pytest.mark.filterwarnings("ignore:'sum' has no kernel")
def test_gradients_in_blocks_are_those_of_differences(name, masked):
    def program(f):
        x = getattr(f.arange(32.0, dtype=f.float64).reshape(4, 8), f"to_{name}")((2, 2))
        x.requires_grad_()
        options = {"masked": masked, "check_batched_grad": False}
        check = f.autograd.gradcheck
        return [check(f.sum, x, fast_mode=fast, **options) for fast in (True, False)]

    both(program)


@pytest.mark.parametrize("size", [(2, 3), (4, 5), (3, 4, 5)])
@pytest.mark.parametrize("name", ["sparse_coo", "sparse_csr", "sparse_csc"])
def test_zeros_empty_the_tensor_of_out(name, size):
    def program(f):
        out = f.ones(2, 3).to_sparse(layout=getattr(f, name))
        found = f.zeros(size, out=out)
        return found is out, tuple(out.shape), out._nnz(), out.to_dense().tolist()

    both(program)


def test_a_gradient_is_not_lost_in_the_tensor_of_out():
    out = tangrad.ones(2, 2).to_sparse().requires_grad_()
    with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
        tangrad.zeros(2, 2, out=out)


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_tensor_of_the_layout_stays_itself(name):
    x = made(tangrad, name)
    assert made(tangrad, name, x) is x
    if name.startswith("sparse_bs"):
        assert getattr(x, f"to_{name}")((1, 2)).values().shape[1:] == (1, 2)


def _parts(f, name):
    x = made(f, name)
    starts = x.crow_indices() if name.endswith("r") else x.ccol_indices()
    others = x.col_indices() if name.endswith("r") else x.row_indices()
    return starts, others, x.values()


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("size", [None, (4, 6)])
def test_constructors_take_the_parts(name, size):
    def program(f):
        parts = _parts(f, name)
        given = (*parts, size) if size else parts
        return [
            getattr(f, f"{name}_tensor")(*given),
            f.sparse_compressed_tensor(*given, layout=getattr(f, name), dtype=f.float64),
            getattr(f, f"{name}_tensor")(*(p.tolist() for p in parts), size=(4, 6)),
            getattr(f, f"{name}_tensor")(*(p.int() for p in parts[:2]), parts[2]).to_dense(),
        ]

    both(program)


OPERATIONS = {
    "t": lambda f, s: [s.t(), s.transpose(0, 1), s.mT, s.t().t()],
    "values": lambda f, s: [-s, s.abs(), s.sqrt(), s * 2, 2 * s, s.double(), s.clone()],
    "add": lambda f, s: s + s,
    "onto dense": lambda f, s: [s.to_dense() + s, s + s.to_dense()],
    "sum": lambda f, s: s.sum(),
    "products": lambda f, s: [s @ dense(f, 6, 3), f.mv(s, f.ones(6)), f.mm(f.ones(2, 4), s)],
    "addmm": lambda f, s: f.addmm(f.ones(4, 3), s, dense(f, 6, 3), beta=2, alpha=0.5),
    "sparse.mm": lambda f, s: f.sparse.mm(s, dense(f, 6, 3)),
    "sparse product": lambda f, s: [(s @ s.t()).layout == f.sparse_csr, (s @ s.t()).to_dense()],
    "linear": lambda f, s: f.nn.functional.linear(f.ones(2, 6), s, f.ones(4)),
    "filled": lambda f, s: [f.zeros_like(s).to_dense(), f.ones_like(s), s.fill_(3), s.zero_()],
    "in place": lambda f, s: [s.mul_(2), s.neg_()],
    "added in place": lambda f, s: s.add_(s.clone()),
    "new_zeros": lambda f, s: s.new_zeros((2, 2)),
    "mask": lambda f, s: f.ones(4, 6).sparse_mask(s),
    "said": lambda f, s: [s.is_sparse, s.is_sparse_csr, s._nnz(), s.dense_dim(), s.sparse_dim()],
    "rows": lambda f, s: [s[1], s.select(1, 2), s[1, 4], list(s)],
    "pinned": lambda f, s: s.is_pinned(),
}
REFUSED = {  # by PyTorch for some layouts or for blocks that are not square
    "onto dense": ("sparse_bsr", "sparse_bsc"),
    "sparse product": ("sparse_bsr", "sparse_bsc"),
    "new_zeros": ("sparse_bsr", "sparse_bsc"),
    "rows": ("sparse_csc", "sparse_bsr", "sparse_bsc"),
    "added in place": ("sparse_csc", "sparse_bsr", "sparse_bsc"),
    **dict.fromkeys(("products", "addmm", "sparse.mm", "linear"), ("sparse_bsr", "sparse_bsc")),
}


@pytest.mark.parametrize(
    ("operation", "name"),
    [(o, n) for o in OPERATIONS for n in LAYOUTS if n not in REFUSED.get(o, ())],
)
def test_an_operation_gives_what_pytorch_gives(operation, name):
    both(lambda f: OPERATIONS[operation](f, made(f, name)))


@pytest.mark.parametrize("name", ["sparse_csc", "sparse_bsr", "sparse_bsc"])
def test_what_pytorch_refuses_is_what_it_is_of_dense_tensors(name):
    x, s = dense(tangrad), made(tangrad, name)
    for f in (
        lambda m: m @ dense(tangrad, 6, 3),
        lambda m: tangrad.ones(2, 4) @ m,
        lambda m: m @ m.t(),
        lambda m: tangrad.nn.functional.linear(tangrad.ones(2, 3, 6), m),
        lambda m: tangrad.addmm(tangrad.ones(4, 3), m, dense(tangrad, 6, 3), beta=2),
        lambda m: x + m,
        lambda m: m * m,
        lambda m: m[1],
        lambda m: m[1:3],
        lambda m: m.sum(0),
        lambda m: m.clone().add_(m),
    ):
        assert f(s).to_dense().tolist() == f(x).tolist()


@pytest.mark.parametrize("name", LAYOUTS)
def test_batches_and_dense_dimensions(name):
    def program(f):
        x = dense(f)
        batch = made(f, name, f.stack([x, 2 * x]))
        kept = made(f, name, f.stack([x, x + (x != 0)], -1).sum(-1))
        return [batch, batch.to_dense(), batch * 2, batch.mT, kept]

    both(program)

    def mixed(f):
        blocks = ((2, 3),) if name.startswith("sparse_bs") else ()
        x = getattr(f.stack([dense(f), dense(f)], -1), f"to_{name}")(*blocks, dense_dim=1)
        return [x, x.to_dense(), x.dense_dim(), -x]

    both(mixed)


@pytest.mark.parametrize("name", LAYOUTS)
def test_gradients_reach_values_and_dense_operands(name):
    def gradients(program):
        starts, others, values = _parts(tangrad, name)
        values = values.clone().requires_grad_()
        right = dense(tangrad, 6, 3).requires_grad_()
        s = getattr(tangrad, f"{name}_tensor")(starts, others, values, (4, 6))
        program(s, right).sum().backward()
        return values.grad, right.grad

    x, right = dense(tangrad).requires_grad_(), dense(tangrad, 6, 3).requires_grad_()
    (x @ right).sum().backward()
    at = made(tangrad, name, tangrad.ones(4, 6)) if "b" in name[7:] else made(tangrad, name)
    of_values, of_right = gradients(lambda s, b: s @ b)
    expected = x.grad.sparse_mask(made(tangrad, name)).values()
    assert of_values.tolist() == expected.tolist()
    assert of_right.tolist() == right.grad.tolist()
    assert at.layout is getattr(tangrad, name)
    doubled, _ = gradients(lambda s, b: (s.t() * 2).to_dense())
    assert doubled.tolist() == tangrad.full_like(doubled, 2).tolist()
    leaf = made(tangrad, name).requires_grad_()
    (leaf.to_dense() * dense(tangrad)).sum().backward()
    assert leaf.grad.layout is leaf.layout
    source = dense(tangrad).requires_grad_()
    (made(tangrad, name, source).to_dense() * 3).sum().backward()
    assert source.grad.max() == 3


def test_values_have_second_derivatives():
    starts, others, values = _parts(tangrad, "sparse_csc")

    def product(values, right):
        s = tangrad.sparse_csc_tensor(starts, others, values, (4, 6))
        return (s @ right) ** 2

    values = values.double().requires_grad_()
    right = tangrad.randn(6, 2, dtype=tangrad.float64, requires_grad=True)
    assert tangrad.autograd.gradcheck(product, (values, right))
    assert tangrad.autograd.gradgradcheck(product, (values, right))


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "before 1.6"])
@pytest.mark.parametrize("name", LAYOUTS)
def test_files_go_both_ways(name, zipped):
    for writer, reader in ((torch, tangrad), (tangrad, torch)):
        file = io.BytesIO()
        writer.save({"x": made(writer, name)}, file, _use_new_zipfile_serialization=zipped)
        file.seek(0)
        assert repr(reader.load(file, weights_only=True)["x"]) == repr(made(reader, name))


@pytest.mark.parametrize("name", LAYOUTS)
def test_copies_are_whole(name):
    x = made(tangrad, name)
    for copied in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert repr(copied) == repr(x)


@pytest.mark.parametrize("name", LAYOUTS)
def test_places_of_a_file_that_lie_outside_are_refused(name):
    x = made(tangrad, name)
    x._nnz()
    (x.col_indices() if name.endswith("r") else x.row_indices()).fill_(7)
    file = io.BytesIO()
    tangrad.save(x, file)
    file.seek(0)
    with pytest.raises(RuntimeError, match=f"{name}_tensor: size is inconsistent with indices"):
        tangrad.load(file)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: tangrad.sparse_csc_tensor([0, 1, 3], [0], [1.0]), "csc_tensor: ccol_indices must"),
        (lambda: tangrad.sparse_csc_tensor([1, 1], [0], [1.0]), "csc_tensor: ccol_indices must"),
        (lambda: tangrad.sparse_csc_tensor([0, 2, 1, 3], [0, 1, 2], [1.0, 2, 3]), "must rise"),
        (lambda: tangrad.sparse_csc_tensor([0, 1], [0, 1], [1.0], (2, 1)), "same nnz"),
        (lambda: tangrad.sparse_csc_tensor([0, 1], [7], [1.0], (2, 1)), "row_indices must lie"),
        (lambda: tangrad.sparse_csc_tensor([0, 1], [0], [1.0], (2, 2)), "number of ncols"),
        (lambda: tangrad.sparse_csc_tensor([0.0, 1], [0], [1.0], (2, 1)), "int32 or int64"),
        (lambda: tangrad.sparse_csc_tensor(0, [0], [1.0]), "a matrix of ccol_indices"),
        (lambda: tangrad.sparse_bsr_tensor([0, 1], [0], [1.0]), "sparse_bsr: a matrix of"),
        (lambda: tangrad.sparse_bsr_tensor([0, 1], [0], [[[1.0, 2]]], (1, 3)), "into blocks"),
        (
            lambda: tangrad.sparse_compressed_tensor([0, 1], [0], [1.0], layout=tangrad.sparse_coo),
            "sparse_compressed_tensor expected sparse compressed tensor layout",
        ),
        (lambda: dense(tangrad).to_sparse_bsr((3, 2)), "to_sparse_bsr: blocksize must"),
        (lambda: dense(tangrad).to_sparse_bsc(5), "to_sparse_bsc: blocksize must"),
        (lambda: dense(tangrad)[0].to_sparse_csc(), "to_sparse_csc: expected a matrix"),
        (lambda: dense(tangrad).to_sparse_csc(3), "to_sparse_csc: expected a matrix"),
        (lambda: tangrad.zeros(0, 2, 3).to_sparse_csc(), "to_sparse_csc: no matrices"),
        (
            lambda: dense(tangrad).to_sparse(layout=tangrad.sparse_csc, blocksize=(2, 2)),
            "blocksize",
        ),
        (lambda: tangrad.tensor([[[1.0]], [[0.0]]]).to_sparse_csc(), "same number of specified"),
        (lambda: made(tangrad, "sparse_csc").crow_indices(), "row compressed"),
        (
            lambda: made(tangrad, "sparse_csc").unsqueeze(0).to_sparse_csc().permute(1, 0, 2),
            "permute",
        ),
    ],
)
def test_what_does_not_fit_is_refused(call, text):
    with pytest.raises((RuntimeError, TypeError), match=text):
        call()


@pytest.mark.parametrize("name", ["sparse_coo", *LAYOUTS])
def test_close_tensors_are_told_as_pytorch_tells_them(name):
    def told(f, change):
        x = dense(f)
        pair = [i.to_sparse() if name == "sparse_coo" else made(f, name, i) for i in (x, change(x))]
        try:
            f.testing.assert_close(*pair)
        except AssertionError as error:
            return str(error).replace("tangrad.", "torch.")
        return None

    changes = (
        lambda x: x,
        lambda x: x * 2,
        lambda x: x + 1,
        lambda x: x.double(),
        lambda x: x.flip(1),
    )
    for change in changes:
        expected, found = (told(f, change) for f in BOTH)
        assert found == expected
