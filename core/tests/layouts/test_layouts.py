"""Tensors of a registered layout: what follows from its definition, and what is refused."""

import copy
import io
import pickle
import warnings
from typing import ClassVar

import pytest

import tangrad
from tangrad.plugin import (
    Layout,
    LayoutWarning,
    component,
    components,
    layout_tensor,
    metadata,
    register_kernel,
    register_layout,
    replace_components,
    to_layout,
)


class Scaled(Layout):
    """A tensor times a number: `values` in the tensor's dtype, `scale` as metadata."""

    components = ("values",)
    elements = ("values",)

    def check(self, components, metadata, shape):
        if tuple(components["values"].shape) != shape or "scale" not in metadata:
            raise ValueError(f"values of shape {shape} and a scale are needed")

    def to_dense(self, t):
        return components(t)["values"] * metadata(t)["scale"]

    def from_dense(self, dense, *, scale=2.0):
        return scaled(dense / scale, scale)

    def picked(self, t, dense):
        return {"values": dense * metadata(t)["scale"]}

    def gradient(self, t, dense):
        return dense


class Strict(Scaled):
    """Scaled tensors that are not made dense unasked, and are made of a size."""

    missing = "refuse"
    misfit = "make the model strict first"
    methods: ClassVar = {"scale": lambda t: metadata(t)["scale"]}

    def empty(self, size, dtype, device):
        values = tangrad.zeros(size, dtype=dtype, device=device)
        return scaled(values, layout=STRICT, dtype=dtype)


SCALED = register_layout("scaled_for_tests", Scaled())
STRICT = register_layout("strict_for_tests", Strict())


def scaled(values, scale=2.0, layout=SCALED, **options):
    return layout_tensor(
        layout, {"values": values}, values.shape, metadata={"scale": scale}, **options
    )


@pytest.fixture
def t():
    return scaled(tangrad.tensor([1.0, 2.0]))


def test_it_is_a_plain_tensor_with_another_layout(t):
    assert type(t) is tangrad.Tensor
    assert (t.layout, t.shape, t.dtype) == (SCALED, (2,), tangrad.float32)
    assert t.device == tangrad.device("cpu")
    assert t.is_leaf
    assert (t.tolist(), scaled(tangrad.tensor(3.0)).item()) == ([2.0, 4.0], 6.0)


def test_components_and_metadata_are_printed(t):
    assert repr(t) == (
        "tensor(values=tensor([1., 2.]), size=(2,), scale=2.0,\n"
        "       layout=tangrad.scaled_for_tests)"
    )
    assert "scale=2.0" in repr(t.requires_grad_())
    assert repr(t).endswith("requires_grad=True)")


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda t: pickle.loads(pickle.dumps(t))])
def test_copies_are_of_the_layout_and_their_own(t, copied):
    back = copied(t.requires_grad_())
    assert back.layout is SCALED
    assert back.requires_grad
    assert metadata(back) == {"scale": 2.0}
    components(t)["values"].zero_()
    assert back.tolist() == [2.0, 4.0]


def test_a_file_holds_it_and_a_load_runs_nothing_of_the_file(t):
    file = io.BytesIO()
    tangrad.save({"weights": t, "parameter": tangrad.nn.Parameter(t)}, file)
    file.seek(0)
    back = tangrad.load(file, weights_only=True)
    assert back["weights"].layout is SCALED
    assert back["weights"].tolist() == [2.0, 4.0]
    assert type(back["parameter"]) is tangrad.nn.Parameter
    assert back["parameter"].requires_grad


def test_dtype_and_copies_follow_the_elements(t):
    wide = t.to(tangrad.float64)
    assert wide.dtype is components(wide)["values"].dtype is tangrad.float64
    assert t.to("cpu") is t
    assert t.clone().layout is t.detach().layout is SCALED
    meta = t.to("meta")
    assert meta.layout is SCALED
    assert components(meta)["values"].device.type == "meta"


def test_detach_shares_what_is_overwritten_in_place(t):
    other, version = t.detach(), t._version
    replace_components(t, {"values": tangrad.tensor([5.0, 6.0])}, metadata={"scale": 1.0})
    assert other.tolist() == t.tolist() == [5.0, 6.0]
    assert t._version == version + 1


def test_an_op_without_a_kernel_warns_once_at_the_callers_line(t):
    with pytest.warns(LayoutWarning, match="'sin' has no kernel for layout") as seen:
        result = t.sin()
    assert seen[0].filename == __file__
    assert result.layout is tangrad.strided
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        t.sin()


@pytest.mark.filterwarnings("ignore::tangrad.plugin.LayoutWarning")
def test_the_dense_form_is_differentiable():
    v = tangrad.tensor([0.5, 0.25], dtype=tangrad.float64, requires_grad=True)
    assert tangrad.autograd.gradcheck(lambda v: scaled(v).cos(), v)
    assert tangrad.autograd.gradgradcheck(lambda v: scaled(v).to_dense() ** 2, v)
    assert tangrad.autograd.gradcheck(lambda v: component(scaled(v), "values") * 3, v)
    (g,) = tangrad.autograd.grad(to_layout(v, SCALED).to_dense().sum(), v)
    assert g.tolist() == [1.0, 1.0]


@pytest.mark.filterwarnings("ignore::tangrad.plugin.LayoutWarning")
def test_a_leaf_gathers_dense_gradients(t):
    t.requires_grad_()
    for _ in range(2):
        (t * 3).sum().backward()
    assert t.grad.layout is tangrad.strided
    assert t.grad.tolist() == [6.0, 6.0]


@pytest.mark.filterwarnings("ignore::tangrad.plugin.LayoutWarning")
def test_a_write_keeps_the_layout(t):
    alias = t.detach()
    assert t.add_(1) is t
    assert t.layout is SCALED
    assert alias.tolist() == [3.0, 5.0]
    t.copy_(tangrad.tensor([8.0, 6.0]))
    assert components(alias)["values"].tolist() == [4.0, 3.0]
    dense = tangrad.zeros(2)
    dense.copy_(t)
    assert dense.tolist() == [8.0, 6.0]


@pytest.mark.filterwarnings("ignore::tangrad.plugin.LayoutWarning")
def test_ops_that_only_write_keep_the_layout_and_what_they_wrote(t):
    with pytest.warns(LayoutWarning, match="fill_"):
        assert t.fill_(6) is t
    assert (t.layout, t.tolist(), components(t)["values"].tolist()) == (SCALED, [6, 6], [3, 3])
    with pytest.warns(LayoutWarning, match="uniform_"):
        t.uniform_(-2, -1)
    assert t.layout is SCALED
    assert t.to_dense().max() < 0
    with pytest.raises(NotImplementedError, match="not recorded"):
        scaled(tangrad.ones(2), requires_grad=True).fill_(1)


def test_it_is_pinned_where_its_components_are(t):
    assert t.is_pinned() is False


def test_transforms_differentiate_through_it():
    def f(v):
        return scaled(v).to_dense().square().sum()

    assert tangrad.func.grad(f)(tangrad.tensor([1.0, 2.0])).tolist() == [8.0, 16.0]


def test_a_kernel_serves_its_slot_dtype_and_composites():
    x = scaled(tangrad.tensor([1.0, 4.0]), layout=STRICT)

    def negated(a):
        return scaled(-components(a)["values"], metadata(a)["scale"], a.layout)

    register_kernel("neg", negated, layout=STRICT.name, device="cpu", dtypes=["float32"])
    register_kernel("add", lambda a, b, alpha=1: "added", layout=STRICT.name)
    register_kernel("flatten", lambda *args: args[0], layout=STRICT.name)
    assert (-x).layout is STRICT
    assert (-x).tolist() == [-2.0, -8.0]
    assert x + 1 == "added"
    assert tangrad.add(x, x, alpha=2) == "added"
    assert x.flatten() is x
    with pytest.raises(NotImplementedError, match="'neg' has no kernel for layout .*float64"):
        -x.double()


def test_a_kernel_without_records_is_recorded_by_the_ops_own_rule():
    def negated(a):
        return scaled(-components(a)["values"], metadata(a)["scale"], a.layout)

    register_kernel("neg", negated, layout=SCALED.name)
    x = scaled(tangrad.tensor([1.0, 4.0]), requires_grad=True)
    y = -x
    assert y.grad_fn.name() == "NegBackward0"
    y.to_dense().sum().backward()
    assert x.grad.tolist() == [-1.0, -1.0]


def test_sizes_make_tensors_of_a_layout_that_says_how():
    like = tangrad.ones(2, 3, dtype=tangrad.float64)
    made = [
        (tangrad.zeros(2, 3, layout=STRICT), tangrad.float32),
        (tangrad.empty((2, 3), layout=STRICT, dtype=tangrad.int32), tangrad.int32),
        (tangrad.zeros_like(like, layout=STRICT), tangrad.float64),
        (tangrad.empty_like(like, layout=STRICT, dtype=tangrad.float32), tangrad.float32),
    ]
    for x, dtype in made:
        assert (x.layout, x.dtype, tuple(x.shape), x.requires_grad) == (
            STRICT,
            dtype,
            (2, 3),
            False,
        )
    assert tangrad.zeros(2, layout=STRICT, requires_grad=True).requires_grad
    assert tangrad.zeros(2, layout=tangrad.strided).layout is tangrad.strided


def test_a_result_is_written_into_a_tensor_of_a_layout():
    def absolute(a):
        return scaled(components(a)["values"].abs(), metadata(a)["scale"])

    register_kernel("abs", absolute, layout=SCALED.name)
    x, out = scaled(tangrad.tensor([1.0, -4.0]), 3.0), scaled(tangrad.ones(1))
    assert tangrad.abs(x, out=out) is out
    assert (out.tolist(), tuple(out.shape), metadata(out)["scale"]) == ([3.0, 12.0], (2,), 3.0)
    with pytest.raises(NotImplementedError, match="out= of layout"):
        tangrad.cos(x, out=out)
    with pytest.raises(RuntimeError, match="can't be cast"):
        tangrad.abs(x, out=scaled(tangrad.ones(2, dtype=tangrad.int32)))
    with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
        tangrad.abs(x.requires_grad_(), out=out)


def test_a_layout_may_refuse_to_be_made_dense():
    x = scaled(tangrad.ones(2), layout=STRICT)
    with pytest.raises(NotImplementedError, match=r"'exp' .* call to_dense\(\)"):
        x.exp()
    assert x.to_dense().exp().shape == (2,)
    assert x.scale() == 2.0
    with pytest.raises(AttributeError, match="scale"):
        tangrad.ones(2).scale()


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: register_layout("not a name"), ValueError, "identifier"),
        (lambda: register_layout("diagonal"), ValueError, "something else already"),
        (lambda: register_layout("float32"), ValueError, "something else already"),
        (lambda: register_layout(SCALED.name, Strict()), ValueError, "defined already"),
        (lambda: register_kernel("neg", abs, layout="sparce"), ValueError, "named 'sparce'"),
        (lambda: register_kernel("nag", abs, layout=SCALED.name), AttributeError, "nag"),
        (
            lambda: register_kernel("neg", abs, layout=SCALED.name, device="cqu"),
            RuntimeError,
            "cqu",
        ),
        (lambda: scaled(tangrad.ones(2), layout=tangrad.strided), NotImplementedError, "strided"),
        (lambda: layout_tensor(SCALED, {"value": tangrad.ones(2)}, (2,)), TypeError, "values"),
        (lambda: layout_tensor(SCALED, {"values": 1}, (2,)), TypeError, "must be a Tensor"),
        (lambda: scaled(tangrad.ones(2)).untyped_storage(), NotImplementedError, "no elements"),
        (lambda: memoryview(scaled(tangrad.ones(2))), BufferError, "to_dense"),
        (lambda: components(tangrad.ones(2)), TypeError, "strided"),
        (lambda: tangrad.zeros(2, layout=SCALED), NotImplementedError, "of a size alone"),
        (lambda: tangrad.zeros(-2, layout=SCALED), RuntimeError, "negative"),
    ],
)
def test_what_is_wrong_is_refused_where_it_is_said(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_a_file_of_an_impossible_tensor_is_refused(t):
    file = io.BytesIO()
    tangrad.save(t, file)
    damaged = file.getvalue().replace(b"scale", b"scule")
    with pytest.raises(tangrad.SerializationError):
        tangrad.load(io.BytesIO(damaged))


def test_a_wrapper_class_has_the_layout_it_asks_for():
    class Wrapped(tangrad.Tensor):
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            return func.name

    x = tangrad.Tensor._make_wrapper_subclass(Wrapped, (2, 3), layout=SCALED)
    assert x.layout is SCALED
    assert x.shape == (2, 3)
    assert x.neg() == "neg"
    with pytest.raises(TypeError, match="'layout' must be"):
        tangrad.Tensor._make_wrapper_subclass(Wrapped, (2,), layout="scaled")


def test_a_state_with_tensors_of_a_layout_that_a_model_lacks_says_what_to_do():
    model = tangrad.nn.Linear(2, 2, bias=False)
    state = {"weight": scaled(tangrad.ones(2, 3), layout=STRICT), "more": (1, None)}
    told = '"weight" has layout tangrad.strict_for_tests: make the model strict first'
    with pytest.raises(RuntimeError, match=told):
        model.load_state_dict(state)
    model.register_buffer("own", scaled(tangrad.ones(2), layout=STRICT))
    with pytest.raises(RuntimeError, match="size mismatch for weight") as caught:
        model.load_state_dict(state)
    assert "make the model strict" not in str(caught.value)


class Columns(Scaled):
    """A scaled tensor that tells the order of its values in memory, and what it is."""

    remarks_alone = True

    def strides(self, t):
        return components(t)["values"].stride()

    def is_contiguous(self, t, memory_format):
        return components(t)["values"].is_contiguous()

    def remarks(self, t):
        return [f"a matrix of {t.dtype}"]


def test_a_layout_tells_its_strides_and_its_text():
    register_layout("columns", Columns())
    values = tangrad.ones(3, 2).t()
    x = layout_tensor("columns", {"values": values}, (2, 3), metadata={"scale": 1.0})
    assert (x.stride(), x.stride(0), x.stride(-1)) == ((1, 2), 1, 2)
    assert not x.is_contiguous()
    with pytest.raises(IndexError):
        x.stride(2)
    assert repr(x).endswith("a matrix of tangrad.float32)")


def test_a_mode_sees_tensors_made_of_components_and_taken_apart():
    class Seen(tangrad.overrides.TorchFunctionMode):
        def __init__(self):
            super().__init__()
            self.calls = []

        def __torch_function__(self, func, types, args=(), kwargs=None):
            self.calls.append(getattr(func, "__name__", str(func)))
            return func(*args, **(kwargs or {}))

    values = tangrad.ones(2)
    with Seen() as seen:
        x = scaled(values)
        assert component(x, "values").shape == (2,)
        assert list(components(x)) == ["values"]
    assert seen.calls.count("layout_tensor") == 1
    assert seen.calls.count("component") == 2
    assert tangrad.equal(components(x)["values"], values)
