"""Writes to tensors that backward still needs."""

import gc

import pytest

import tangrad


def allowing(t):
    return t.autograd.graph.allow_mutation_on_saved_tensors()


WRITES = {
    "in place": lambda t, b: b.sin_(),
    "an operator": lambda t, b: b.mul_(3),
    "a part": lambda t, b: b[0].zero_(),
    "an index": lambda t, b: b.__setitem__(0, 5.0),
    "a mask": lambda t, b: b.__setitem__(b > 1, 5.0),
    "a copy": lambda t, b: b.copy_(t.zeros(3)),
    "numbers drawn": lambda t, b: b.detach().uniform_(),
    "an alias": lambda t, b: b.detach().fill_(7),
    "out=": lambda t, b: t.add(t.ones(3), 1, out=b.detach()),
    "a list": lambda t, b: t._foreach_add_([b.detach()], 1.0),
    "a composite in place": lambda t, b: t.nn.functional.relu_(b),
    "twice": lambda t, b: b.sin_().cos_(),
    "nothing": lambda t, b: None,
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("function", ["square", "exp", "product"])
def test_backward_sees_what_was_saved(agree, write, function):
    def program(t):
        functions = {"square": lambda b: b**2, "exp": lambda b: b.exp(), "product": lambda b: b * b}
        a = t.tensor([0.5, 1.5, -2.0], requires_grad=True)
        with allowing(t):
            b = a.clone()
            saved = functions[function](b)
            out = saved.sum()
            WRITES[write](t, saved if function == "exp" else b)
            out.backward()
        return a.grad

    agree(program)


def test_gradients_go_through_the_write_too(agree):
    def program(t):
        a = t.tensor([0.5, 1.5], requires_grad=True)
        with allowing(t):
            b = a.clone()
            first = (b**2).sum()
            b.sin_()
            second = (b**3).sum()
            b.mul_(b)
            (first + second + b.sum()).backward()
        return a.grad

    agree(program)


def test_a_view_is_saved_before_its_base_is_written():
    a = tangrad.tensor([0.5, 1.5, 2.5], requires_grad=True)
    with allowing(tangrad):
        b = a.clone()
        out = (b[1:] ** 2).sum()
        b[2] = 0.0
        out.backward()
    assert a.grad.tolist() == [0, 3, 5]


def test_second_derivatives_see_what_was_saved(agree):
    def program(t):
        a = t.tensor([0.5, 1.5], requires_grad=True)
        with allowing(t):
            b = a.clone()
            out = (b**3).sum()
            b.zero_()
            (grad,) = t.autograd.grad(out, a, create_graph=True)
            (second,) = t.autograd.grad(grad.sum(), a)
        return grad, second

    agree(program)


def test_copies_are_made_on_writes_only_and_die_with_the_graph():
    a = tangrad.ones(3, requires_grad=True)
    with allowing(tangrad) as context:
        b = a.clone()
        out = (b * b).sum() + (b**2).sum()
        assert len(context.original) == 1
        assert len(context.cloned) == 0
        b.detach().zero_()
        assert len(context.original) == 0
        assert len(context.cloned) == 1
        b.detach().zero_()
        assert len(context.cloned) == 1
        out.backward()
        gc.collect()
        assert len(context.cloned) == 0


def test_backward_outside_is_refused(agree):
    def program(t):
        a = t.ones(3, requires_grad=True)
        with allowing(t):
            out = (a * a).sum()
        out.backward()

    agree(program, message=False)


def test_contexts_are_not_nested(agree):
    def program(t):
        with allowing(t), allowing(t):
            pass

    agree(program)
    assert tangrad.autograd.graph.allow_mutation_on_saved_tensors().__enter__().original == {}


@pytest.fixture(autouse=True)
def left():
    yield
    from tangrad.autograd import saved_mutation
    from tangrad.dispatch.stack import current

    stack = current()
    while stack.write_watchers:
        stack.write_watchers.pop()
        tangrad._C.pop_saved_tensor_hooks()
    saved_mutation._active = False
    stack.install()


@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
def test_derivatives_of_reductions_in_place_read_what_was_there_before(agree, reduce, include_self):
    def program(t):
        a = t.tensor([2.0, 0.5, -1.0], requires_grad=True)
        x = t.tensor([1.5, 2.5, -1.5, 3.0], requires_grad=True)
        index = t.tensor([0, 0, 1, 1])
        scattered, indexed = a.clone(), a.clone()
        scattered.scatter_reduce_(0, index, x, reduce, include_self=include_self)
        if reduce != "sum":
            indexed.index_reduce_(0, index, x, reduce, include_self=include_self)
        plain = t.full((3,), 2.0).scatter_reduce_(0, index, x, reduce, include_self=True)
        weights = t.tensor([1.0, 2.0, 3.0])
        ((scattered + indexed * 2 + plain) * weights).sum().backward()
        return a.grad, x.grad

    agree(program)


@pytest.mark.parametrize(
    "write",
    [
        lambda y, b: y.nan_to_num_(),
        lambda y, b: y.ldexp_(b),
        lambda y, b: y.nextafter_(b),
        lambda y, b: y.renorm_(2, 0, 0.5),
        lambda y, b: y.mvlgamma_(2),
        lambda y, b: y.maximum(b).cumsum_(0),
    ],
    ids="nan_to_num ldexp nextafter renorm mvlgamma cumsum".split(),
)
def test_derivatives_of_composites_in_place_read_what_was_there_before(agree, write):
    def program(t):
        x = t.tensor([[1.5, 2.5], [3.5, 3.0]], requires_grad=True)
        b = t.tensor([[2.0, 1.0], [0.5, -1.0]], requires_grad=True)
        y = x * 1
        write(y, b)
        t.autograd.backward(y, t.tensor([[1.0, 2.0], [3.0, 4.0]]))
        return y.detach(), x.grad, b.grad

    agree(program)


@pytest.mark.parametrize(
    "write",
    [
        lambda t, b: b.nan_to_num_(),
        lambda t, b: b.nan_to_num_(nan=2.0, posinf=3.0),
        lambda t, b: b.nextafter_(t.tensor([0.0, 1.0, 5.0, 0.0])),
        lambda t, b: t.nn.functional.rrelu_(b),
    ],
    ids=["nan_to_num_", "nan_to_num_ by numbers", "nextafter_", "rrelu_"],
)
def test_composites_in_place_have_derivatives(agree, write):
    def program(t):
        a = t.tensor([0.5, float("nan"), float("inf"), -2.0], requires_grad=True)
        b = write(t, a.clone())
        b.backward(t.tensor([1.0, 2.0, 3.0, 4.0]))
        return b, a.grad

    agree(program)


def test_integers_hold_no_nan_to_replace():
    x = tangrad.tensor([1, 2])
    assert x.nan_to_num_() is x
    assert x.tolist() == [1, 2]
