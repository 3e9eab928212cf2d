"""Programs over sparse tensors, run on tangrad and on PyTorch and compared."""

import copy
import io
import pickle

import pytest

import tangrad
from tangrad.serialization.inspection import describe

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore:Sparse:UserWarning")

INDICES, VALUES = [[0, 1, 1, 0], [2, 0, 2, 2]], [3.0, -4.0, 5.0, 1.5]


def described(x):
    """Return what can be compared: numbers, text of layouts, dense values."""
    if isinstance(x, (tuple, list)):
        return [described(item) for item in x]
    if hasattr(x, "layout"):
        name = str(x.layout).rpartition(".")[2]
        return [
            name,
            list(x.shape),
            str(x.dtype).rpartition(".")[2],
            x.detach().to_dense().tolist(),
        ]
    return x


def coo(framework, **options):
    return framework.sparse_coo_tensor(INDICES, VALUES, (2, 3), **options)


def dense(framework, *shape):
    count = 1
    for n in shape:
        count *= n
    return framework.arange(1.0, count + 1).reshape(shape) / 4


def both(program):
    a, b = described(program(torch)), described(program(tangrad))
    assert _close(a, b), (a, b)


def _close(a, b):
    if isinstance(a, list):
        return type(b) is list and len(a) == len(b) and all(map(_close, a, b))
    if isinstance(a, float):
        return isinstance(b, float) and a == pytest.approx(b, rel=1e-5, abs=1e-6)
    return a == b


OPERATIONS = {
    "coalesce": lambda f, s: s.coalesce(),
    "neg": lambda f, s: -s,
    "sqrt": lambda f, s: s.abs().sqrt(),
    "relu": lambda f, s: s.relu(),
    "pow": lambda f, s: s.pow(2),
    "add": lambda f, s: s + s.coalesce(),
    "add alpha": lambda f, s: f.add(s, s, alpha=-0.5),
    "onto dense": lambda f, s: dense(f, 2, 3) + s,
    "sub": lambda f, s: s - 2 * s,
    "mul": lambda f, s: s.coalesce() * s.t().coalesce().t().coalesce(),
    "mul dense": lambda f, s: s * dense(f, 2, 3),
    "number": lambda f, s: s * 3 / 2,
    "sum": lambda f, s: s.sum(),
    "sum dim": lambda f, s: [f.sparse.sum(s, 0), f.sparse.sum(s, [1]), s.sum(0)],
    "norm": lambda f, s: s.norm(),
    "matmul": lambda f, s: s @ dense(f, 3, 2),
    "sparse.mm": lambda f, s: f.sparse.mm(s, dense(f, 3, 2)),
    "sparse product": lambda f, s: f.sparse.mm(s, s.t()),
    "dense times sparse": lambda f, s: dense(f, 4, 2) @ s,
    "mv": lambda f, s: f.mv(s, dense(f, 3)),
    "addmm": lambda f, s: f.addmm(dense(f, 2, 2), s, dense(f, 3, 2), beta=2, alpha=0.5),
    "sparse.addmm": lambda f, s: f.sparse.addmm(dense(f, 2, 2), s, dense(f, 3, 2)),
    "hspmm": lambda f, s: f.hspmm(s, dense(f, 3, 2)),
    "t": lambda f, s: [s.t(), s.transpose(0, 1), s.permute(1, 0)],
    "select": lambda f, s: [s[1], s[1, 2], s.select(1, 2)],
    "index_select": lambda f, s: s.index_select(0, f.tensor([1, 1, 0])),
    "unsqueeze": lambda f, s: s.unsqueeze(0),
    "cat": lambda f, s: [f.cat([s, s]), f.cat([s, s], 1)],
    "dtype": lambda f, s: s.to(f.float64),
    "mask": lambda f, s: dense(f, 2, 3).sparse_mask(s.coalesce()),
    "csr": lambda f, s: s.to_sparse_csr(),
    "from dense": lambda f, s: [s.to_dense().to_sparse(), s.to_dense().to_sparse(1)],
    "softmax": lambda f, s: [f.sparse.softmax(s, 1), f.sparse.log_softmax(s, 0)],
    "zeros_like": lambda f, s: f.zeros_like(s),
    "in place": lambda f, s: [s.mul_(2), s.add_(s.clone()), s.zero_()],
    "sizes": lambda f, s: [s.sparse_dim(), s.dense_dim(), s._nnz(), s.is_sparse, s.is_coalesced()],
    "csr product": lambda f, s: s.to_sparse_csr() @ dense(f, 3, 2),
    "csr parts": lambda f, s: [
        s.to_sparse_csr().crow_indices().tolist(),
        s.to_sparse_csr().col_indices().tolist(),
        s.to_sparse_csr().values().tolist(),
    ],
    "hybrid": lambda f, s: f.sparse_coo_tensor(
        [[1, 1]], [[1.0, 2.0], [3.0, 4.0]], (3, 2)
    ).coalesce(),
    "empty": lambda f, s: f.sparse_coo_tensor((2, 3)) @ dense(f, 3, 2),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_gives_what_pytorch_gives(name):
    both(lambda f: OPERATIONS[name](f, coo(f)))


@pytest.mark.parametrize(
    "made",
    [
        coo,
        lambda f: coo(f, requires_grad=True),
        lambda f: coo(f).coalesce(),
        lambda f: coo(f).to_sparse_csr(),
        lambda f: coo(f, dtype=f.float64),
        lambda f: f.sparse_coo_tensor((2, 3)),
        lambda f: f.sparse_coo_tensor(size=(2, 3)),
        lambda f: f.sparse_coo_tensor([[1, 1]], [[1.0, 2.0], [3.0, 4.0]], (3, 2)),
    ],
)
def test_it_is_printed_as_pytorch_prints_it(made):
    assert repr(made(tangrad)).replace("tangrad.", "torch.") == repr(made(torch))


GRADIENTS = {
    "to_dense": lambda f, s, d: s.to_dense() * d,
    "mm": lambda f, s, d: s @ d.t(),
    "sparse.mm": lambda f, s, d: f.sparse.mm(s, d.t()),
    "addmm": lambda f, s, d: f.addmm(d[:, :2], s, d.t()),
    "mul": lambda f, s, d: (s * d).to_dense(),
    "add": lambda f, s, d: d + s,
    "sum": lambda f, s, d: s.sum() * d,
    "values": lambda f, s, d: s.coalesce().values() * d.flatten()[:3],
    "csr": lambda f, s, d: s.to_sparse_csr() @ d.t(),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_reach_values_and_the_dense_operand(name):
    def program(f):
        values = f.tensor(VALUES, requires_grad=True)
        d = dense(f, 2, 3).requires_grad_()
        result = GRADIENTS[name](f, f.sparse_coo_tensor(f.tensor(INDICES), values, (2, 3)), d)
        (result * dense(f, *result.shape)).sum().backward()
        return [values.grad, d.grad.to_dense()]

    both(program)


def test_products_have_second_derivatives():
    def product(values, d):
        return tangrad.sparse.mm(tangrad.sparse_coo_tensor(INDICES, values, (2, 3)), d) ** 2

    values = tangrad.tensor(VALUES, dtype=tangrad.float64, requires_grad=True)
    d = tangrad.randn(3, 2, dtype=tangrad.float64, requires_grad=True)
    assert tangrad.autograd.gradcheck(product, (values, d))
    assert tangrad.autograd.gradgradcheck(product, (values, d))


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "before 1.6"])
@pytest.mark.parametrize(
    "made", [coo, lambda f: coo(f).coalesce(), lambda f: coo(f).to_sparse_csr()]
)
def test_files_go_both_ways(made, zipped):
    for writer, reader in ((torch, tangrad), (tangrad, torch)):
        file = io.BytesIO()
        writer.save({"x": made(writer)}, file, _use_new_zipfile_serialization=zipped)
        file.seek(0)
        back = reader.load(file, weights_only=True)["x"]
        assert repr(back) == repr(made(reader))
        file.seek(0)
        assert "_rebuild_sparse_tensor" in str(describe(file)["values"]["x"])


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_are_whole(copied):
    for x in (coo(tangrad), coo(tangrad).to_sparse_csr()):
        assert repr(copied(x)) == repr(x)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda f: f.sparse_coo_tensor([[0, 1]], [1.0], (2,)), RuntimeError, "same nnz"),
        (lambda f: coo(f).values(), RuntimeError, "uncoalesced"),
        (lambda f: coo(f) + dense(f, 2, 3), RuntimeError, "add"),
        (lambda f: coo(f) @ dense(f, 2, 3), RuntimeError, "cannot be multiplied|Expected dim 0"),
        (lambda f: coo(f).numpy(), TypeError, "Use Tensor.to_dense"),
        (lambda f: coo(f)[5], IndexError, "out of range|out of bounds"),
        (lambda f: coo(f).untyped_storage(), NotImplementedError, "storage"),
        (lambda f: f.ones(2).coalesce(), RuntimeError, "layout|Sparse|sparse"),
    ],
)
def test_bad_input_is_an_error_of_pytorchs_type(call, error, text):
    for framework in (torch, tangrad):
        with pytest.raises(error, match=text):
            call(framework)


def test_indices_out_of_range_are_always_refused():
    with pytest.raises(RuntimeError, match="for dim 0, size is 2 but found index 3"):
        tangrad.sparse_coo_tensor([[3], [0]], [1.0], (2, 2))
    with pytest.raises(RuntimeError, match="col_indices"):
        tangrad.sparse_csr_tensor([0, 1], [4], [1.0], (1, 3))


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "before 1.6"])
@pytest.mark.parametrize(
    ("made", "component", "text"),
    [
        (coo, "_indices", "size is inconsistent with indices"),
        (lambda f: coo(f).to_sparse_csr(), "crow_indices", "crow_indices must rise"),
        (lambda f: coo(f).to_sparse_csr(), "col_indices", "size is inconsistent with indices"),
    ],
)
def test_indices_of_a_file_that_are_out_of_range_are_refused(made, component, text, zipped):
    x = made(tangrad)
    getattr(x, component)().fill_(7)
    file = io.BytesIO()
    tangrad.save(x, file, _use_new_zipfile_serialization=zipped)
    file.seek(0)
    with pytest.raises(RuntimeError, match=text):
        tangrad.load(file)


def test_sparse_adam_refuses_sparse_parameters():
    for f in (tangrad, torch):
        group = {"params": [f.nn.Parameter(f.ones(2)), f.ones(2).to_sparse().requires_grad_()]}
        with pytest.raises(ValueError, match=r"Sparse params at indices \[\[0, 1\]\]"):
            f.optim.SparseAdam([group])


@pytest.mark.parametrize("optimizer", ["SparseAdam", "SGD"])
@pytest.mark.parametrize("mode", [None, "sum", "mean"])
def test_embeddings_learn_by_sparse_gradients(optimizer, mode):
    def program(f):
        kind = f.nn.Embedding if mode is None else f.nn.EmbeddingBag
        options = {"padding_idx": 1} if mode is None else {"mode": mode}
        table = kind(6, 3, sparse=True, **options)
        with f.no_grad():
            table.weight.copy_(dense(f, 6, 3))
        rule = getattr(f.optim, optimizer)(table.parameters(), lr=0.1)
        for _ in range(3):
            rule.zero_grad()
            (table(f.tensor([[1, 2, 2], [2, 5, 0]])) ** 2).sum().backward()
            rule.step()
        return [table.weight.grad.is_sparse, table.weight.grad, table.weight]

    both(program)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("kept", [False, True])
def test_gradients_of_both_layouts_are_added(order, kept):
    class Fixed(tangrad.autograd.Function):
        @staticmethod
        def forward(ctx, x, gradient):
            ctx.gradient = gradient
            return x.clone()

        @staticmethod
        def backward(ctx, _):
            return ctx.gradient, None

    sparse = tangrad.sparse_coo_tensor(tangrad.tensor([[0, 2]]), tangrad.tensor([3.0, 4.0]), (3,))
    gradients = sparse, tangrad.tensor([1.0, 2.0, 3.0])
    first, second = (gradients[k] for k in order)
    x = tangrad.zeros(3, requires_grad=True)
    if kept:
        x.grad = first
        Fixed.apply(x, second).sum().backward()
    else:
        (Fixed.apply(x, first) + Fixed.apply(x, second)).sum().backward()
    assert x.grad.tolist() == [4, 2, 7]


def test_a_sparse_gradient_takes_another_in_place():
    x = tangrad.zeros(3, requires_grad=True)
    sparse = tangrad.sparse_coo_tensor(tangrad.tensor([[0]]), tangrad.tensor([3.0]), (3,))
    x.grad = held = sparse.clone()
    x.backward(sparse)
    assert x.grad is held
    assert held.to_dense().tolist() == [6, 0, 0]


WRITES = {
    "mul_": lambda t, other: t.mul_(other),
    "add_": lambda t, other: t.add_(other),
    "sub_": lambda t, other: t.sub_(other),
    "div_": lambda t, other: t.div_(2),
}


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize(
    "dtypes", [("float16", "float32"), ("uint8", "int32"), ("int32", "float32")], ids="-".join
)
def test_what_is_written_keeps_its_dtype(name, dtypes):
    made = []
    for t in (tangrad, torch):
        first, second = (
            t.sparse_coo_tensor(
                t.tensor([[0, 1], [0, 1]]), t.tensor([5, 6], dtype=getattr(t, dtype)), (2, 2)
            )
            for dtype in dtypes
        )
        try:
            result = WRITES[name](first, second)
        except RuntimeError:
            made.append(RuntimeError)
            continue
        kept = [str(x.dtype).rpartition(".")[2] for x in (result, result._values())]
        made.append([*kept, result.to_dense().tolist()])
    assert made[0] == made[1]


@pytest.mark.parametrize("name", ["add_", "sub_", "mul_"])
def test_a_dense_tensor_of_integers_takes_no_sparse_fractions(name):
    for t in (tangrad, torch):
        dense = t.ones(3, dtype=t.int32)
        sparse = t.sparse_coo_tensor(t.tensor([[0, 2]]), t.tensor([0.5, 1.5]), (3,))
        with pytest.raises(RuntimeError):
            getattr(dense, name)(sparse)
        # PyTorch's mul_ leaves zeros behind.
        assert dense.tolist() == [1, 1, 1] or (t, name) == (torch, "mul_")


def test_unsigned_numbers_are_subtracted_in_the_wider_dtype():
    def difference(t):
        first, second = (
            t.sparse_coo_tensor(t.tensor([[0]]), t.tensor([5], dtype=dtype), (2,))
            for dtype in (t.int16, t.uint8)
        )
        return [(first - second).to_dense().tolist(), first.sub_(second).to_dense().tolist()]

    assert difference(tangrad) == difference(torch) == [[0, 0], [0, 0]]


def test_a_function_of_integers_is_not_written_into_them():
    sparse = tangrad.sparse_coo_tensor(tangrad.tensor([[0]]), tangrad.tensor([3]), (3,)).coalesce()
    with pytest.raises(RuntimeError, match="can't be cast to the desired output type"):
        sparse.sqrt_()


def test_gradients_of_half_precision_are_unscaled_in_it():
    parameter = tangrad.zeros(2, 2, dtype=tangrad.float16)
    place = tangrad.tensor([[0, 1], [0, 1]])
    parameter.grad = tangrad.sparse_coo_tensor(place, tangrad.tensor([4.0, 8.0]).half(), (2, 2))
    optimizer = tangrad.optim.SGD([parameter], lr=1.0)
    quarter, found = tangrad.full((1,), 0.25), tangrad.zeros(1)
    tangrad.amp.GradScaler("cpu")._unscale_grads_(optimizer, quarter, found, True)
    dense = parameter.grad.to_dense()
    assert dense.dtype is tangrad.float16
    assert dense.tolist() == [[1, 0], [0, 2]]


def test_a_later_gradient_comes_before_an_earlier_one():
    def gradient(t):
        class Fixed(t.autograd.Function):
            @staticmethod
            def forward(ctx, x, value):
                ctx.value = value
                return x.clone()

            @staticmethod
            def backward(ctx, grad):
                place = t.tensor([[int(ctx.value)]])
                return t.sparse_coo_tensor(place, t.tensor([ctx.value]), (3,)), None

        x = t.zeros(3, requires_grad=True)
        (Fixed.apply(x, 1.0) + Fixed.apply(x, 2.0)).sum().backward()
        return x.grad._indices().tolist(), x.grad._values().tolist()

    assert gradient(tangrad) == gradient(torch)


@pytest.mark.parametrize("kind", ["to_sparse", "to_sparse_csr"])
def test_gradients_of_dense_forms_have_the_places_of_what_they_are_of(kind):
    def gradients(framework):
        x = getattr(framework.tensor([[1.0, 0, 2], [0, 0, 3]]), kind)().requires_grad_()
        weight = framework.tensor([[1.0, 2, 3], [4, 5, 6]])
        (first,) = framework.autograd.grad((x.to_dense() * weight).sum(), x)
        (x.to_dense() * weight).sum().backward()
        return described([first, x.grad])

    assert gradients(tangrad) == gradients(torch)


def test_gradients_of_values_pass_dense_forms():
    values = tangrad.tensor(VALUES, requires_grad=True)
    x = tangrad.sparse_coo_tensor(tangrad.tensor(INDICES), values, (2, 3))
    (x.to_dense() * tangrad.arange(6.0).reshape(2, 3)).sum().backward()
    assert values.grad.tolist() == [2, 3, 5, 2]


@pytest.mark.parametrize("reduce", ["mean", "amax", "amin", "max", "min"])
def test_rows_of_products_are_reduced_with_their_gradients(reduce):
    def program(f):
        left = f.tensor([[1.0, 2, 0], [0, 0, 0], [3, -1, 2], [1, 1, 0]]).to_sparse_csr()
        right = f.tensor([[1.0, -2], [3, -2], [0.5, 1]])  # the last row of products has equals
        left, right = left.requires_grad_(), right.requires_grad_()
        found = f.sparse.mm(left, right, reduce)
        (found * dense(f, 4, 2)).sum().backward()
        return [found.requires_grad, found, right.grad, left.grad]

    both(program)


def test_rows_without_columns_or_elements_are_reduced():
    def program(f):
        empty = f.zeros(2, 3).to_sparse_csr()
        return [f.sparse.mm(empty, dense(f, 3, 2), r) for r in ("mean", "amax")]

    both(program)


@pytest.mark.parametrize("library", [torch, tangrad])
def test_products_that_cannot_be_reduced_are_refused(library):
    matrix = library.eye(3)
    with pytest.raises(NotImplementedError):
        library.sparse.mm(matrix.to_sparse(), matrix, "mean")
    with pytest.raises(RuntimeError, match="prod has not been enabled"):
        library.sparse.mm(matrix.to_sparse_csr(), matrix, "prod")
    with pytest.raises(RuntimeError, match="expected a strided|Expected tensor to have Strided"):
        library.sparse.mm(matrix.to_sparse_csr(), matrix.to_sparse_csr(), "mean")


def test_a_class_that_stands_for_a_sparse_matrix_multiplies_itself():
    class Adjacency(tangrad.Tensor):
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            assert func is tangrad.ops.aten.mm.default
            return tangrad.full((2, 2), 7.0)

    made = tangrad.Tensor._make_wrapper_subclass(Adjacency, (2, 4))
    assert tangrad.sparse.mm(made, tangrad.ones(4, 2)).tolist() == [[7, 7], [7, 7]]
