"""Which calls handlers of `__torch_dispatch__` see, beside what PyTorch's see."""

from __future__ import annotations

import importlib

import pytest
import torch

import tangrad


def noting(library, seen):
    dispatch = importlib.import_module(f"{library.__name__}.utils._python_dispatch")

    def shown(value):
        if isinstance(value, library.Tensor):
            return tuple(value.shape)
        if isinstance(value, (list, tuple)):
            return [shown(item) for item in value]
        return value if isinstance(value, (int, float, bool, str, type(None))) else "-"

    class Noting(dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            kwargs = kwargs or {}
            named = {k: shown(v) for k, v in kwargs.items() if k != "memory_format"}
            seen.append((str(func).replace("<op ", "aten.").replace(">", ".default"),
                         shown(args), named))  # fmt: skip
            return func(*args, **kwargs)

    return Noting()


def numbers(library, *shape):
    count = 1
    for size in shape:
        count *= size
    return (library.arange(float(count)) * 0.7).sin().reshape(shape)


F = "nn.functional"


def function(library, name):
    found = library
    for part in name.split("."):
        found = getattr(found, part)
    return found


# {name: (call of the library and tensors, shapes)}
CALLS = {
    "linear": (lambda t, x, w, b: t.nn.functional.linear(x, w, b), (4, 5), (6, 5), (6,)),
    "linear of a sequence": (
        lambda t, x, w, b: t.nn.functional.linear(x, w, b), (2, 3, 5), (6, 5), (6,)),
    "linear without bias": (lambda t, x, w: t.nn.functional.linear(x, w), (2, 3, 5), (6, 5)),
    "linear of a vector": (lambda t, x, w: t.nn.functional.linear(x, w), (5,), (6, 5)),
    "addmm": (lambda t, b, x, y: t.addmm(b, x, y), (6,), (4, 5), (5, 6)),
    "matmul of batches": (lambda t, x, y: x @ y, (2, 3, 4, 5), (3, 5, 4)),
    "matmul with a vector": (lambda t, x, y: x @ y, (2, 3, 5), (5,)),
    "vector with a matrix": (lambda t, x, y: x @ y, (5,), (5, 3)),
    "conv2d": (
        lambda t, x, w, b: t.nn.functional.conv2d(x, w, b, padding=1),
        (2, 3, 8, 8), (4, 3, 3, 3), (4,)),
    "conv2d in groups": (
        lambda t, x, w: t.nn.functional.conv2d(x, w, stride=2, groups=3),
        (2, 3, 8, 8), (3, 1, 3, 3)),
    "conv2d of one picture": (
        lambda t, x, w: t.nn.functional.conv2d(x, w), (3, 8, 8), (4, 3, 3, 3)),
    "conv_transpose2d": (
        lambda t, x, w: t.nn.functional.conv_transpose2d(x, w, stride=2, output_padding=1),
        (2, 3, 4, 4), (3, 4, 3, 3)),
    "layer_norm": (
        lambda t, x, w, b: t.nn.functional.layer_norm(x, (5,), w, b), (2, 3, 5), (5,), (5,)),
    "group_norm": (
        lambda t, x, w, b: t.nn.functional.group_norm(x, 3, w, b), (2, 3, 4, 4), (3,), (3,)),
    "softmax": (lambda t, x: x.softmax(1), (4, 5)),
    "log_softmax": (lambda t, x: x.log_softmax(1), (4, 5)),
    "gelu by tanh": (lambda t, x: t.nn.functional.gelu(x, approximate="tanh"), (4, 5)),
    "selu": (lambda t, x: t.nn.functional.selu(x), (4, 5)),
    "relu6": (lambda t, x: t.nn.functional.relu6(x), (4, 5)),
    "prelu": (lambda t, x, w: t.nn.functional.prelu(x, w), (4, 5), (1,)),
    "cross_entropy": (lambda t, x: t.nn.functional.cross_entropy(x, t.arange(4)), (4, 5)),
    "mse_loss": (lambda t, x, y: t.nn.functional.mse_loss(x, y), (4, 5), (4, 5)),
    "mse_loss in sum": (
        lambda t, x, y: t.nn.functional.mse_loss(x, y, reduction="sum"), (4, 5), (4, 5)),
    "attention": (
        lambda t, x, y: t.nn.functional.scaled_dot_product_attention(x, y, y, is_causal=True),
        (2, 2, 4, 8), (2, 2, 4, 8)),
    "embedding": (
        lambda t, w: t.nn.functional.embedding(t.arange(4), w, padding_idx=0), (6, 5)),
    "max_pool2d": (lambda t, x: t.nn.functional.max_pool2d(x, 3, 2, 1), (2, 3, 8, 8)),
    "avg_pool2d": (lambda t, x: t.nn.functional.avg_pool2d(x, 2), (2, 3, 8, 8)),
    "interpolate": (
        lambda t, x: t.nn.functional.interpolate(x, scale_factor=2.0, mode="bilinear"),
        (2, 3, 4, 4)),
    "interpolate to a size": (
        lambda t, x: t.nn.functional.interpolate(x, size=(5, 5)), (2, 3, 4, 4)),
    "reflecting pad": (
        lambda t, x: t.nn.functional.pad(x, (1, 1, 1, 1), mode="reflect"), (2, 3, 4, 4)),
    "numbers first": (lambda t, x: (1 + x, 2 * x, 1 - x), (4, 5)),
    "comparisons": (lambda t, x, y: (x > 0, x == y, x <= y), (4, 5), (4, 5)),
    "powers": (lambda t, x, y: (x**2, 2**x, x.exp() ** y), (4, 5), (4, 5)),
    "sums": (lambda t, x: (x.sum(), x.sum(1), x.mean(0, keepdim=True), x.mean()), (4, 5)),
    "extremes": (lambda t, x: (x.max(), x.max(1), x.amax(0), x.argmax(1)), (4, 5)),
    "variance": (lambda t, x: (x.var(1, unbiased=False), x.std(1)), (4, 5)),
    "norm": (lambda t, x: (x.norm(), x.norm(dim=1)), (4, 5)),
    "masked_fill": (lambda t, x: x.masked_fill(x > 0, 0.0), (4, 5)),
    "parts": (lambda t, x: (x.split(2, 1), x.unbind(0), x.select(0, 1)), (4, 5)),
    "stack": (lambda t, x, y: t.stack([x, y], 1), (4, 5), (4, 5)),
    "repeat": (lambda t, x: x.repeat(2, 1), (4, 5)),
    "in place": (lambda t, x: x.clone().mul_(2).div_(3).zero_().fill_(1), (4, 5)),
    "factories": (lambda t: (t.arange(5), t.arange(1, 5, 2), t.eye(3), t.full((2,), 3.0)),),
    "like another": (lambda t, x: (t.zeros_like(x), t.full_like(x, 2), x.new_zeros((3,))), (4, 5)),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_handlers_see_the_calls_that_pytorch_s_see(name):
    call, *shapes = CALLS[name]
    seen = {}
    for library in (torch, tangrad):
        tensors = [numbers(library, *shape) for shape in shapes]
        with noting(library, seen.setdefault(library, [])):
            call(library, *tensors)
    assert [of for of, *_ in seen[tangrad]] == [of for of, *_ in seen[torch]]
    for (of, args, named), (_, wanted, wanted_named) in zip(
        seen[tangrad], seen[torch], strict=True
    ):
        assert named == wanted_named, of
        dims = {-1, -2}  # are told from the front here
        same = [
            a == w or (isinstance(w, int) and w in dims) for a, w in zip(args, wanted, strict=True)
        ]
        assert all(same), (of, args, wanted)


# Steps of backward that are one op in PyTorch and the same here.
STEPS = {
    "conv2d": "convolution_backward",
    "layer_norm": "native_layer_norm_backward",
    "softmax": "_softmax_backward_data",
    "gelu by tanh": "gelu_backward",
    "selu": "elu_backward",
    "cross_entropy": "nll_loss_backward",
    "mse_loss": "mse_loss_backward",
    "attention": "_scaled_dot_product_flash_attention_for_cpu_backward",
    "embedding": "embedding_dense_backward",
    "max_pool2d": "max_pool2d_with_indices_backward",
}


@pytest.mark.parametrize("name", STEPS)
def test_handlers_see_the_steps_of_backward_that_pytorch_s_see(name):
    call, *shapes = CALLS[name]
    seen, found = {}, {}
    for library in (torch, tangrad):
        tensors = [numbers(library, *shape).requires_grad_() for shape in shapes]
        noted = seen.setdefault(library, [])
        with noting(library, noted):
            (call(library, *tensors) ** 2).sum().backward()
        found[library] = [x.grad.tolist() for x in tensors]
        seen[library] = [
            (len(args), sorted(named)) for of, args, named in noted if STEPS[name] in of
        ]
    assert seen[tangrad] == seen[torch]
    assert len(seen[tangrad]) >= 1
    for ours, theirs in zip(found[tangrad], found[torch], strict=True):
        assert torch.allclose(torch.tensor(ours), torch.tensor(theirs), atol=1e-5)


@pytest.mark.parametrize("name", CALLS)
def test_a_mode_that_only_looks_changes_no_value(name):
    call, *shapes = CALLS[name]
    results = []
    for seen in (None, []):
        tensors = [numbers(tangrad, *shape).requires_grad_() for shape in shapes]
        leaves = tangrad.utils._pytree.tree_leaves
        if seen is None:
            made = leaves(call(tangrad, *tensors))
        else:
            with noting(tangrad, seen):
                made = leaves(call(tangrad, *tensors))
        used = [x for x in made if x.requires_grad]
        if used:
            with noting(tangrad, []):
                sum((x * x).sum() for x in used).backward()
        results.append((made, [x.grad for x in tensors]))
    for left, right in zip(*map(leaves, results), strict=True):
        assert (left is None) is (right is None)
        assert left is None or tangrad.allclose(left, right, atol=1e-6)


def test_inference_mode_shows_composites_whole():
    seen = []
    x, w, target = numbers(tangrad, 4, 5), numbers(tangrad, 6, 5), tangrad.arange(4)
    with tangrad.inference_mode(), noting(tangrad, seen):
        tangrad.nn.functional.linear(x, w)
        tangrad.nn.functional.cross_entropy(x, target)
        x.softmax(1)
    assert [of for of, *_ in seen] == [
        *("aten.linear.default", "aten.cross_entropy_loss.default", "aten.softmax.int"),
    ]


class Wrapper(tangrad.Tensor):
    """Has its values in an attribute; its handler passes calls on."""

    @staticmethod
    def __new__(cls, held, requires_grad=False):
        made = tangrad.Tensor._make_wrapper_subclass(
            cls, held.shape, strides=held.stride(), dtype=held.dtype, requires_grad=requires_grad
        )
        made.held = held
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        tree_map = tangrad.utils._pytree.tree_map
        args, kwargs = tree_map(lambda x: getattr(x, "held", x), (args, kwargs or {}))
        return tree_map(
            lambda x: cls(x) if isinstance(x, tangrad.Tensor) else x, func(*args, **kwargs)
        )


@pytest.mark.parametrize(
    "name", [name for name in CALLS if name not in ("factories", "comparisons")]
)
def test_wrappers_learn_as_plain_tensors_do(name):
    call, *shapes = CALLS[name]
    leaves = tangrad.utils._pytree.tree_leaves
    gradients = []
    for wraps in (False, True):
        tensors = [numbers(tangrad, *shape) for shape in shapes]
        given = [Wrapper(x, True) if wraps else x.requires_grad_() for x in tensors]
        used = [x for x in leaves(call(tangrad, *given)) if x.requires_grad]
        if used:
            sum((x * x).sum() for x in used).backward()
        gradients.append([getattr(x.grad, "held", x.grad) for x in given])
    for plain, wrapped in zip(*gradients, strict=True):
        assert (plain is None) is (wrapped is None)
        assert plain is None or tangrad.allclose(plain, wrapped, atol=1e-5)


def test_gradients_of_wrappers_are_batched():
    x = Wrapper(tangrad.tensor(2.0), requires_grad=True)
    y = x.unsqueeze(0).repeat(4)
    (found,) = tangrad.autograd.grad(y, x, tangrad.eye(4), is_grads_batched=True)
    assert found.tolist() == [1, 1, 1, 1]


def test_results_of_what_is_recorded_as_one_may_be_written():
    nn = tangrad.nn
    layers = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.ReLU(True)
    )
    x, gradients = numbers(tangrad, 2, 3, 8, 8), []
    for looks in (False, True):
        layers.zero_grad()
        if looks:
            with noting(tangrad, []):
                layers(x).square().sum().backward()
        else:
            layers(x).square().sum().backward()
        gradients.append([p.grad.clone() for p in layers.parameters()])
    for plain, seen in zip(*gradients, strict=True):
        assert tangrad.allclose(plain, seen, atol=1e-4)


def test_overloads_are_objects_of_their_own_and_equal_to_the_op():
    aten = tangrad.ops.aten
    assert aten.add.Tensor != aten.add.Scalar
    assert aten.sum.default is aten.sum.default != aten.sum.dim_IntList
    assert len({aten.max.default: 0, aten.max.dim: 1}) == 2
    assert aten.add.Tensor == tangrad.ops.add
    assert tangrad.ops.add in {aten.add.Tensor}
    assert str(aten.add.Tensor) == "aten.add.Tensor"
    assert aten.add.Tensor.name() == "aten::add.Tensor"
    assert aten.sum.default.name() == "aten::sum"
    assert aten.add.Tensor.name == "add"
