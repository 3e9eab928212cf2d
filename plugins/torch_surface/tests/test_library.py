"""Custom ops: the same programs on tangrad and on torch."""

import copy
import importlib
import itertools
from typing import List, Optional, Sequence, Tuple  # noqa: UP035

import numpy as np
import pytest

import tangrad

_numbers = itertools.count()


def fresh():
    """Return a namespace that nothing has been defined in."""
    return f"test_library_{next(_numbers)}"


def annotated(f, function, result="tensor", **kinds):
    """Annotate a function with a framework's types."""
    known = {"tensor": f.Tensor, "tensors": list[f.Tensor], "none": None, "pair": None}
    known["pair"] = tuple[f.Tensor, f.Tensor]
    function.__annotations__ = {k: known.get(v, v) for k, v in kinds.items()}
    function.__annotations__["return"] = known.get(result, result)
    return function


def define(f, ns, function, result="tensor", mutates=(), name="op", devices=None, **kinds):
    """Define a custom op by an annotated function."""
    made = annotated(f, function, result, **kinds)
    return f.library.custom_op(f"{ns}::{name}", made, mutates_args=mutates, device_types=devices)


def numpy_scale(f, ns):
    """Define scale(x, by), computed where nothing records or batches, with its derivative."""

    def kernel(x, by):
        assert not f.is_grad_enabled() or not x.requires_grad
        return f.from_numpy(np.array(x.numpy() * by))

    op = define(f, ns, kernel, x="tensor", by=float)

    def setup(ctx, inputs, output):
        ctx.by = inputs[1]
        ctx.save_for_backward(inputs[0], output)

    def backward(ctx, g):
        x, result = ctx.saved_tensors
        assert ctx.needs_input_grad[1] is False
        return g * ctx.by + 0 * (x + result), None

    op.register_autograd(backward, setup_context=setup)
    op.register_fake(lambda x, by: f.empty_like(x))
    return op


def test_a_custom_op_computes_and_is_found_by_name(agree):
    ns = fresh()

    def program(f):
        op = numpy_scale(f, ns)
        x = f.arange(6.0).reshape(2, 3)
        packet = getattr(f.ops, ns).op
        return (
            [op(x, 2.0), packet(x, 3.0), packet.default(x, by=4), op(x=x, by=5.0)],
            [str(packet), str(packet.default), repr(packet.default), packet.overloads()],
            [packet.__name__, packet.default.__name__, packet.default.name(), repr(op)],
            str(packet.default._schema),
        )

    agree(program)


def test_derivative_follows_backward_and_setup_context(agree):
    ns = fresh()

    def program(f):
        op = numpy_scale(f, ns)
        x = f.arange(3.0, requires_grad=True)
        y = op(x, 2.0)
        y.sum().backward()
        first = x.grad.clone()
        x.grad = None
        # Derivatives of derivatives go through the op again.
        (g,) = f.autograd.grad((op(x, 2.0) * op(x, 3.0)).sum(), x, create_graph=True)
        g.sum().backward()
        return y, y.requires_grad, first, g, x.grad

    agree(program)


def test_vmap_of_a_custom_op(agree):
    ns = fresh()

    def program(f):
        op = numpy_scale(f, ns)
        x = f.arange(6.0).reshape(2, 3)
        loop = f.vmap(lambda v: op(v, 2.0))(x)
        out = f.vmap(lambda v: op(v, 2.0), in_dims=1, out_dims=1)(x)
        return loop, out

    agree(program)


def test_grad_takes_the_registered_derivative():
    """PyTorch refuses grad of a custom op."""
    op = numpy_scale(tangrad, fresh())
    x = tangrad.arange(6.0).reshape(2, 3)
    found = tangrad.func.grad(lambda v: op(v, 3.0).square().sum())(x)
    assert found.tolist() == (18 * x).tolist()
    found = tangrad.vmap(tangrad.func.grad(lambda v: op(v, 3.0).square().sum()))(x)
    assert found.tolist() == (18 * x).tolist()


def test_batch_rule(agree):
    ns = fresh()

    def program(f):
        op = define(f, ns, lambda x, y: x @ y, x="tensor", y="tensor")
        seen = []

        def rule(info, in_dims, x, y):
            seen.append([info.batch_size, info.randomness, list(in_dims)])
            return f.matmul(x.movedim(in_dims[0], 0), y), 0

        op.register_vmap(rule)
        x, y = f.arange(12.0).reshape(2, 3, 2), f.arange(4.0).reshape(2, 2)
        return f.vmap(op, in_dims=(1, None))(x, y), seen

    agree(program)


@pytest.mark.parametrize("several", [False, True])
def test_lists_of_tensors_as_arguments_and_results(agree, several):
    ns = fresh()

    def program(f):
        def double(xs, n):
            return [x * n for x in xs] if several else sum(x * n for x in xs)

        op = define(f, ns, double, "tensors" if several else "tensor", xs="tensors", n=int)

        def setup(ctx, inputs, output):
            ctx.n, ctx.count = inputs[1], len(inputs[0])
            ctx.kinds = [type(i).__name__ for i in inputs]

        def backward(ctx, g):
            assert ctx.kinds == ["list", "int"]
            assert [list(n) if isinstance(n, (list, tuple)) else n for n in ctx.needs_input_grad]
            return [ctx.n * (g[i] if several else g) for i in range(ctx.count)], None

        op.register_autograd(backward, setup_context=setup)
        a, b = (f.full((2,), float(v), requires_grad=True) for v in (1, 2))
        result = op([a, b], 3)
        total = sum(r.sum() * (k + 1) for k, r in enumerate(result)) if several else result.sum()
        total.backward()
        return result, a.grad, b.grad

    agree(program)


def test_several_results_and_keyword_only_arguments(agree):
    ns = fresh()

    def program(f):
        def split(x, *, by=2.0):
            return x * by, x + by

        op = define(f, ns, split, "pair", x="tensor", by=float)

        def setup(ctx, inputs, keyword_only_inputs, output):
            ctx.by = keyword_only_inputs["by"]
            assert len(inputs) == 1
            assert len(output) == 2

        op.register_autograd(lambda ctx, g, h: ctx.by * g + h, setup_context=setup)
        x = f.arange(3.0, requires_grad=True)
        a, b = op(x)
        c, _ = op(x, by=5.0)
        (a.sum() + b.sum() + c.sum()).backward()
        return a, b, c, x.grad

    agree(program)


def test_ops_that_write_bump_versions(agree):
    ns = fresh()

    def program(f):
        def fill(x, out, n):
            out.copy_(x * n)

        op = define(f, ns, fill, "none", ("out",), x="tensor", out="tensor", n=int)
        x, out = f.arange(3.0), f.zeros(3)
        before = out._version
        result = op(x, out, 2)
        leaf = f.ones(3, requires_grad=True)
        product = leaf * out
        op(x, out, 3)
        try:
            product.sum().backward()
            stale = False
        except RuntimeError:
            stale = True
        meta = f.zeros(3, device="meta")
        return (
            result,
            out,
            out._version > before,
            x._version,
            stale,
            op(meta, meta.clone(), 1),
            str(getattr(f.ops, ns).op.default._schema),
        )

    agree(program)


def test_no_derivative_for_what_writes(agree):
    ns = fresh()

    def program(f):
        op = define(f, ns, lambda x: x.add_(1) and None, "none", ("x",), x="tensor")
        op.register_autograd(lambda ctx, g: g)

    agree(program, message=False)


def test_results_without_data(agree):
    ns = fresh()

    def program(f):
        op = define(f, ns, lambda x: x.clone(), x="tensor")
        try:
            op(f.ones(2, device="meta"))
        except RuntimeError as error:
            missing = str(error)
        op.register_fake(lambda x: x.new_empty((x.shape[0], 7)))
        y = op(f.ones(2, device="meta"))
        return missing, list(y.shape), str(y.device), f.library.get_ctx()

    agree(program)


def test_sizes_that_depend_on_data_are_refused_on_meta(agree):
    ns = fresh()

    def program(f):
        op = define(f, ns, lambda x: x.nonzero(), x="tensor")
        op.register_fake(lambda x: x.new_empty((f.library.get_ctx().new_dynamic_size(), x.dim())))
        op(f.ones(2, device="meta"))

    agree(program, message=False)


@pytest.mark.parametrize(
    "call",
    [
        lambda f, op, x: op(),
        lambda f, op, x: op(1.0),
        lambda f, op, x: op(x, 1.5),
        lambda f, op, x: op(x, "a"),
        lambda f, op, x: op(x, None),
        lambda f, op, x: op(x, z=1),
        lambda f, op, x: op(x, 1, 2.0, [1], 7),
        lambda f, op, x: op(x, x=x),
        lambda f, op, x: op(x, 1, "b"),
        lambda f, op, x: op(x, 1, 2.0, 3),
        lambda f, op, x: op(x, 1, 2.0, ["a"]),
        lambda f, op, x: op(x, True, 1),
        lambda f, op, x: op(x, 1, 2, (1, 2)),
        lambda f, op, x: op(x, f.tensor(3)),
        lambda f, op, x: op(x, sizes=[], n=2),
        lambda f, op, x: op([x]),
    ],
)
def test_arguments_are_checked_against_the_schema(agree, call):
    ns = fresh()

    def program(f):
        seen = []

        def kernel(x, n=1, a=2.0, sizes=None):
            seen.append([n, a, sizes])
            return x.clone()

        op = define(f, ns, kernel, x="tensor", n=int, a=float, sizes=Optional[List[int]])  # noqa: UP006, UP045
        return call(f, op, f.ones(2)), seen

    agree(program, message=False)


@pytest.mark.parametrize(
    ("kernel", "result"),
    [
        (lambda x: x, "tensor"),
        (lambda x: x[1:], "tensor"),
        (lambda x: (x.clone(), x.clone()), "tensor"),
        (lambda x: 1.0, "tensor"),
        (lambda x: (x.clone(),) * 2, "pair"),
        (lambda x: x.clone(), "none"),
    ],
)
def test_results_are_checked_against_the_schema(agree, kernel, result):
    ns = fresh()

    def program(f):
        define(f, ns, lambda x: kernel(x), result, x="tensor")(f.ones(3))

    agree(program, message=False)


def test_kernels_by_device(agree):
    ns = fresh()

    def program(f):
        op = define(f, ns, lambda x: x + 1, x="tensor", devices="meta")
        x = f.ones(2)
        try:
            op(x)
        except NotImplementedError:
            missing = True
        op.register_kernel("cpu")(lambda x: x + 2)
        y = op(x)
        with op.set_kernel_enabled("cpu", enabled=False):
            z = op(x)
        f.library.register_kernel(f"{ns}::op", "cpu", lambda x: x + 3)
        return missing, y, z, op(x)

    agree(program)


def test_without_a_derivative_backward_raises(agree):
    ns = fresh()

    def program(f):
        op = define(f, ns, lambda x: x.clone(), x="tensor")
        y = op(f.ones(2, requires_grad=True))
        assert y.requires_grad
        y.sum().backward()

    agree(program)


@pytest.mark.parametrize(
    "gradients", [lambda g: g, lambda g: (g, None, None), lambda g: (g, g), lambda g: (g, None, g)]
)
def test_gradients_are_as_many_as_arguments(agree, gradients):
    ns = fresh()

    def program(f):
        op = define(f, ns, lambda x, n: x.clone(), x="tensor", n=int)
        op.register_autograd(lambda ctx, g: gradients(g))
        op(f.ones(2, requires_grad=True), 1).sum().backward()

    agree(program, message=False)


@pytest.mark.parametrize(
    "kinds",
    [
        {"x": "tensor"},
        {"x": "tensors"},
        {"x": int},
        {"x": float},
        {"x": bool},
        {"x": str},
        {"x": Optional[int]},  # noqa: UP045
        {"x": Sequence[int]},
        {"x": list[float]},
        {"x": Optional[List[bool]]},  # noqa: UP006, UP045
        {"x": "int"},
        {"x": dict},
        {"x": Tuple[int, int]},  # noqa: UP006
        {"x": "nowhere.Known"},
        {},
    ],
)
def test_schemas_are_inferred_from_annotations(agree, kinds):
    def program(f):
        function = annotated(f, lambda x: None, "none", **kinds)
        return f.library.infer_schema(function, mutates_args=(), op_name="op")

    agree(program, message=not kinds and False)


def test_schemas_with_defaults_and_written_arguments(agree):
    def program(f):
        def function(x, y, n=1, a=2.5, s="q", d=None, *, k=True, t=f.float32):
            return x

        annotated(
            f,
            function,
            x="tensor",
            y="tensors",
            n=int,
            a=float,
            s=str,
            d=Optional[f.device],  # noqa: UP045
            k=bool,
            t=f.dtype,
        )
        infer = f.library.infer_schema
        return (
            infer(function, mutates_args=()),
            infer(function, mutates_args=("y",)),
            infer(function, mutates_args="unknown"),
        )

    agree(program)


@pytest.mark.parametrize("mutates", ["nonsense", ("nowhere",), ("n",)])
def test_what_cannot_be_written_is_refused(agree, mutates):
    def program(f):
        function = annotated(f, lambda x, n: x, x="tensor", n=int)
        f.library.infer_schema(function, mutates_args=mutates)

    agree(program, message=False)


def test_a_schema_of_ones_own(agree):
    ns = fresh()

    def program(f):
        op = f.library.custom_op(
            f"{ns}::op",
            lambda x, sizes=(2, 2), *, scale=None: x.expand(*sizes) * (scale or 1),
            mutates_args=(),
            schema="(Tensor x, int[2] sizes=2, *, float? scale=None) -> Tensor",
        )
        x = f.ones(1)
        return op(x), op(x, 3), op(x, [1, 2], scale=2), str(getattr(f.ops, ns).op.default._schema)

    agree(program)


def test_a_schema_must_agree_with_mutates_args(agree):
    ns = fresh()

    def program(f):
        f.library.custom_op(
            f"{ns}::op", lambda x: None, mutates_args=(), schema="(Tensor(a!) x) -> ()"
        )

    agree(program, message=False)


def test_ops_defined_by_schema(agree):
    ns = fresh()

    def program(f):
        library = f.library
        library.define(f"{ns}::twice", "(Tensor x, *, float by=2.0) -> Tensor")
        library.impl(f"{ns}::twice", "cpu", lambda x, by=2.0: x * by)
        library.register_fake(f"{ns}::twice")(lambda x, by=2.0: f.empty_like(x))
        op = getattr(f.ops, ns).twice
        x = f.arange(3.0, requires_grad=True)
        detached = op(x.detach(), by=4.0)
        library.register_autograd(
            f"{ns}::twice",
            lambda ctx, g: g * ctx.by,
            setup_context=lambda ctx, inputs, keyword_only_inputs, output: setattr(
                ctx, "by", keyword_only_inputs["by"]
            ),
        )
        op(x, by=3.0).sum().backward()
        library.register_vmap(f"{ns}::twice", lambda info, dims, x, by=2.0: (op(x, by=by), dims[0]))
        batched = f.vmap(op)(f.ones(2, 2))
        return detached, x.grad, batched, list(op(f.ones(4, device="meta")).shape)

    agree(program)


def test_a_library_takes_its_ops_along(agree):
    ns = fresh()

    def program(f):
        library = f.library.Library(ns, "DEF")
        name = library.define("add_one(Tensor x) -> Tensor")
        library.impl("add_one", lambda x: x + 1, "CompositeImplicitAutograd")
        with f.library._scoped_library(ns, "FRAGMENT") as more:
            more.define("sub_one(Tensor x) -> Tensor")
            more.impl("sub_one", lambda x: x - 1, "CompositeExplicitAutograd")
            sub = getattr(f.ops, ns).sub_one(f.ones(2))
        x = f.ones(2, requires_grad=True)
        getattr(f.ops, ns).add_one(x).sum().backward()
        gone = hasattr(getattr(f.ops, ns), "sub_one")
        library._destroy()
        return name, sub, x.grad, gone

    agree(program)


@pytest.mark.parametrize(
    "program",
    [
        lambda f, ns: f.library.Library(ns, "FOO"),
        lambda f, ns: f.library.Library("prim", "DEF"),
        lambda f, ns: [f.library.Library(ns, "DEF") for _ in range(2)],
        lambda f, ns: f.library.define("nonamespace", "(Tensor x) -> Tensor"),
        lambda f, ns: f.library.define(f"{ns}::op", "Tensor"),
        lambda f, ns: f.library.define(f"{ns}::op", "(Tensr x) -> Tensor"),
        lambda f, ns: [f.library.define(f"{ns}::op", "(Tensor x) -> Tensor") for _ in range(2)],
        lambda f, ns: f.library.register_fake(f"{ns}::nope", lambda x: x),
        lambda f, ns: f.library.register_autograd(f"{ns}::nope", lambda ctx, g: g),
        lambda f, ns: f.library.register_kernel(3, "cpu", lambda x: x),
        lambda f, ns: f.library.register_vmap(3, lambda x: x),
        lambda f, ns: f.library.Library(ns, "IMPL").impl("x", 3, "CPU"),
        lambda f, ns: f.library.opcheck(3, ()),
        lambda f, ns: numpy_scale(f, ns).register_autocast(3, f.float16),
        lambda f, ns: (numpy_scale(f, ns) and getattr(f.ops, ns)).other,
        lambda f, ns: numpy_scale(f, ns)._opoverload.overloadpacket.nope,
        lambda f, ns: f.library.opcheck(numpy_scale(f, ns), (f.ones(1), 1.0), test_utils="nope"),
        lambda f, ns: f.library.opcheck(numpy_scale(f, ns), (f.ones(1), 1.0), atol=1.0),
    ],
)
def test_misuse_raises_what_pytorch_raises(agree, program):
    ns = fresh()
    agree(lambda f: program(f, ns) and None, message=False)


def test_modes_and_subclasses_see_the_op(agree):
    ns = fresh()

    def program(f):
        op = numpy_scale(f, ns)
        seen = []

        class Functions(f.overrides.TorchFunctionMode):
            def __torch_function__(self, func, types, args=(), kwargs=None):
                seen.append(str(func))
                return func(*args, **(kwargs or {}))

        importlib.import_module(f"{f.__name__}.utils._python_dispatch")

        class Mode(f.utils._python_dispatch.TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                if "default" in str(func) and ns in str(func):
                    seen.append([str(func), len(args)])
                return func(*args, **(kwargs or {}))

        class Ruled(Mode):
            pass

        op.register_torch_dispatch(Ruled, lambda mode, func, types, args, kwargs: args[0] - 1)
        x = f.ones(2)
        with Functions():
            a = op(x, 2.0)
        with Mode():
            b = op(x, 2.0)
        with Ruled():
            c = op(x, 2.0)
        return a, b, c, [s for s in seen if ns in str(s)]

    agree(program)


@pytest.mark.parametrize("requires_grad", [False, True])
def test_opcheck_passes_what_is_right(agree, requires_grad):
    ns = fresh()

    def program(f):
        op = numpy_scale(f, ns)
        x = f.arange(3.0, requires_grad=requires_grad)
        return f.library.opcheck(op, (x, 2.0)), f.library.opcheck(
            getattr(f.ops, ns).op.default, (x,), {"by": 2.0}, test_utils="test_schema"
        )

    agree(program)


@pytest.mark.parametrize(
    ("kernel", "fake", "test"),
    [
        (lambda x: x.clone(), lambda x: x.new_empty(7), "test_faketensor"),
        (lambda x: x.clone(), lambda x: x.new_empty((2, 2), dtype=int), "test_faketensor"),
        (lambda x: x.add_(1).clone(), lambda x: x.clone(), "test_schema"),
        (lambda x: x.clone(), None, "test_faketensor"),
    ],
)
def test_opcheck_finds_what_is_wrong(agree, kernel, fake, test):
    ns = fresh()

    def program(f):
        op = define(f, ns, lambda x: kernel(x), x="tensor")
        if fake is not None:
            if fake.__code__.co_consts and "dtype" in str(fake.__code__.co_consts):
                op.register_fake(lambda x: x.new_empty((2, 2), dtype=f.int64))
            else:
                op.register_fake(fake)
        found = f.library.opcheck(op, (f.ones(2, 2),), test_utils=test, raise_exception=False)
        assert found[test] != "SUCCESS"
        f.library.opcheck(op, (f.ones(2, 2),), test_utils=test)

    agree(program, message=False)


def test_opcheck_wants_a_registered_derivative(agree):
    ns = fresh()

    def program(f):
        f.library.define(f"{ns}::op", "(Tensor x) -> Tensor")
        f.library.impl(f"{ns}::op", "cpu", lambda x: x * 2)
        x = f.ones(2, requires_grad=True)
        f.library.opcheck(getattr(f.ops, ns).op, (x,), test_utils="test_autograd_registration")

    agree(program, message=False)


def test_triton_is_refused():
    with pytest.raises(NotImplementedError, match="custom_op"):
        tangrad.library.triton_op("a::b", mutates_args=())
    with pytest.raises(NotImplementedError, match="custom_op"):
        tangrad.library.wrap_triton(print)


def test_without_tensors_the_device_argument_tells_the_kernel(agree):
    ns = fresh()

    def program(f):
        def make(n, device):
            return f.full((n,), 2.0, device=device)

        op = define(f, ns, make, n=int, device=f.device, devices="cpu")
        return op(2, f.device("cpu")), op(n=3, device="cpu")

    agree(program)


def test_a_name_defined_again_is_taken_over(agree):
    ns = fresh()

    def program(f):
        define(f, ns, lambda x: x + 1, x="tensor")
        op = define(f, ns, lambda x: x + 2, x="tensor")
        return op(f.ones(1)), getattr(f.ops, ns).op(f.ones(1))

    agree(program)


def test_autocast_casts_the_inputs(agree):
    ns = fresh()

    def program(f):
        op = define(f, ns, lambda x, y: x @ y, x="tensor", y="tensor")
        op.register_autocast("cpu", f.bfloat16)
        x = f.ones(2, 2)
        with f.autocast("cpu", dtype=f.bfloat16):
            inside = str(op(x, x).dtype), str(op(x.double(), x.double()).dtype)
        return inside, str(op(x, x).dtype)

    agree(program)


def test_a_copy_of_an_op_is_itself():
    ns = fresh()
    define(tangrad, ns, lambda x: x + 1, x="tensor")
    packet = getattr(tangrad.ops, ns).op
    assert copy.copy(packet) is copy.deepcopy(packet) is packet
