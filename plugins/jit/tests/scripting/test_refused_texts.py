"""Texts and functions that PyTorch refuses are refused here, in words that say as much."""

import math
from collections import namedtuple
from typing import Any, List, NamedTuple, Optional, Tuple  # noqa: UP035

import pytest
import torch as pytorch

import tangrad
from tangrad import nn

# ruff: noqa: UP006, UP045, B006, RUF013, RUF059, RET503

TEXTS = {
    "def f(x: Tuple[(int,)]) -> int:\n    return x[0]": "must not have any elements",
    "def f(x):\n    for i in [1, 2], [3, 4]:\n        x = x + i\n    return x": "List of iterables",
    "def f(x):\n    for *a in [1, 2]:\n        x = x + 1\n    return x": "A Starred expression may",
    "def f(x):\n    *b, = (x, x)\n    return b": "A Starred expression may only appear on the lhs",
    "def f(x):\n    a, b += x\n    return a": "augmented assignment can only have one LHS",
    "def f(x):\n    x + 1 = x\n    return x": "unexpected expression",
    "def f(x):\n    a, *1 = (3, 4, 5)\n    return x": "Cannot pack a tuple into a non-variable",
    'def f(x):\n    print("\n    a")\n    return x': "expected a valid token",
    "def f(x):\n    return [x x]": r"expected \]",
    "def f(x):\n    break": "Syntax",
    "def f(x: Tuple[3 + 4, int]):\n    return x": r"Expression of type \+ cannot be used in a type",
    "def f(x: List[int][int]):\n    return x": "Subscripted type must be a type identifier",
    "def f(x):\n    for a, (b, c) in zip([1], [2], [3]):\n        x = x + a\n    return x": (
        "too many values to unpack: need 2 but found 3"
    ),
    "def f(x):\n    return [[x]] + [[1]]": "previously matched to type",
    "def f(x: int):\n    for i in range(.5):\n        x = x + i\n    return x": "found float",
    "def f(x):\n    for i in enumerate(x, 1, 2):\n        x = x + 1\n    return x": (
        "enumerate expected at most 2 arguments, got 3"
    ),
}


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_is_refused_in_words_that_pytorchs_users_know(text):
    for side in (pytorch, tangrad):
        with pytest.raises(RuntimeError, match=TEXTS[text]):
            side.jit.CompilationUnit(f"{text}\n")


def wrong_default(x, a: int = 0.5):
    return x + a


def missing_default(x: int = None):
    return x


def number_as_tensor(x, a=2):
    return x + a


def mutable_default(x: Optional[List[int]] = [1]):
    return x


def mutable_in_tuple(x=(1, [])):
    # type: (Tuple[int, List[int]]) -> int
    return x[0]


def comment_and_comments(
    a,  # type: tangrad.Tensor
    b,  # type: tangrad.Tensor
):
    # type: (int, int) -> tangrad.Tensor
    return a + b


def comment_for_one(
    a,  # type: tangrad.Tensor
    b,
):
    # type: (...) -> tangrad.Tensor
    return a + b


def misspelt_comment(a):
    #     type: (int) -> int
    return a


def may_end(x) -> Optional[int]:
    if bool(x):
        return 1


def far_from_four(x: float):
    return math.hypot(x, 4.0)


def unrefined(t: Any):
    if isinstance(t, tuple):
        a, b = t
    return 1


def not_known(points, dim):
    return points.sum(dim)


def given_twice(x):
    return tangrad.sum(x, self=x)


def list_as_int():
    return tangrad.jit.annotate(int, [x for x in [1, 2]])  # noqa: C416


def names_nothing():
    return tangrad.jit._unwrap_optional(None)


def none_as_data():
    return tangrad.tensor([None])


def nothing_as_data():
    return tangrad.tensor([])


def number_has_no_id(x: int):
    return id(x)


@tangrad.jit.script
class Plain:
    def __init__(self):
        self.x = 1


def augments_an_object():
    a = Plain()
    a += Plain()
    return a


class WithTensor(NamedTuple):
    x: tangrad.Tensor = tangrad.ones(1)


def takes_default_tensor(x: WithTensor):
    return x.x


Untold = namedtuple("Untold", ["value"])


def makes_untold():
    return Untold(1)


FUNCTIONS = {
    wrong_default: 'Expected a default value of type int on parameter "a"',
    missing_default: 'Expected a default value of type int on parameter "x"',
    number_as_tensor: r"type Tensor \(inferred\) on parameter \"a\"",
    mutable_default: "Mutable default parameters are not supported",
    mutable_in_tuple: "Mutable default parameters are not supported",
    comment_and_comments: "Return type line",
    comment_for_one: "Number of type annotations",
    misspelt_comment: "annotation prefix in line",
    may_end: "does not return along all",
    far_from_four: "Python builtin <built-in function hypot> is currently not supported",
    unrefined: "Provided tuple is not fully defined/refined",
    not_known: "Inferred the value for argument 'dim' to be of type 'Tensor'",
    given_twice: "specified twice",
    list_as_int: "Expected an annotation of type List",
    names_nothing: "could not be inferred from actual type None",
    none_as_data: "must be of ints, floats, or bools, got None",
    nothing_as_data: r"Empty lists default to List\[Tensor\]",
    number_has_no_id: "Expected a value of type 'Optional.AnyClassType.'",
    augments_an_object: "Cannot emit inplace op",
    takes_default_tensor: "Tensors are not supported as default NamedTuple fields",
    makes_untold: r"'Tensor \(inferred\)' for argument 'value' but instead found type 'int'",
}


@pytest.mark.parametrize("function", FUNCTIONS, ids=[function.__name__ for function in FUNCTIONS])
def test_a_function_is_refused_in_words_that_pytorchs_users_know(function):
    with pytest.raises(RuntimeError, match=FUNCTIONS[function]):
        tangrad.jit.script(function)


def widened(x: float = 2, y: Tuple[int, float] = (1, 2), z: List[int] = (1, 2)):
    return x, y, z


def test_defaults_that_widen_are_taken():
    assert tangrad.jit.script(widened)() == (2, (1, 2), [1, 2])


def inferred(a):
    return a


def test_an_argument_without_annotation_is_told_to_be_a_tensor():
    with pytest.raises(RuntimeError, match=r"(?s)'Tensor \(inferred\)'.*Inferred 'a' to be of"):
        tangrad.jit.script(inferred)("1")


class Inconstant(nn.Module):
    __constants__ = ["held"]  # noqa: RUF012

    def __init__(self, held):
        super().__init__()
        self.held = held

    def forward(self, x):
        return x


@pytest.mark.parametrize(
    ("held", "named"), [([nn.ReLU()], "ReLU"), (int, "type"), ((3, {}), "dict")]
)
def test_constants_are_of_plain_types(held, named):
    with pytest.raises(TypeError, match=f"{named}' object in attribute 'Inconstant.held' is not"):
        tangrad.jit.script(Inconstant(held))


class ClassAttribute(nn.Module):
    limit = 3

    def forward(self, x):
        return x + self.limit


class AssignsSelf(nn.Module):
    def forward(self, x):
        for _ in range(2):
            self = x
        return self


class AssignsModule(nn.Module):
    def forward(self, x):
        for _ in range(2):
            x = self
        return x


class Selfless(nn.Module):
    @tangrad.jit.ignore
    def nothing():
        # type: () -> int
        return 1

    def forward(self, x):
        return x + self.nothing()


@pytest.mark.parametrize(
    ("cls", "reason"),
    [
        (ClassAttribute, "has no attribute 'limit'"),
        (AssignsSelf, "Cannot re-assign 'self'"),
        (AssignsModule, "Cannot re-assign 'x' to a value of type module"),
        (Selfless, "does not have a self argument"),
    ],
)
def test_a_module_is_refused_in_words_that_pytorchs_users_know(cls, reason):
    with pytest.raises(RuntimeError, match=reason):
        tangrad.jit.script(cls())


def test_methods_that_are_declared_take_self():
    with pytest.raises(RuntimeError, match="methods must have a self argument"):

        class Declared(tangrad.jit.ScriptModule):
            @tangrad.jit.script_method
            def forward():
                return 1


@tangrad.jit._overload
def only_declared(x: int) -> int: ...


def calls_only_declared():
    return only_declared(1)


def test_overloads_have_an_implementation_and_no_bodies():
    with pytest.raises(RuntimeError, match="Only `pass` statement or `...` can be the body"):

        @tangrad.jit._overload
        def with_body(x: int) -> int:
            return x + 1

    with pytest.raises(RuntimeError, match='Implementation for the function ".+" is missing'):
        tangrad.jit.script(calls_only_declared)


@tangrad.jit._overload
def shifted(x: tangrad.Tensor, by: None = None) -> tangrad.Tensor: ...
@tangrad.jit._overload
def shifted(x: tangrad.Tensor, by: tangrad.Tensor) -> tangrad.Tensor: ...  # noqa: F811
def shifted(x, by=None):  # noqa: F811
    if by is None:
        return x.no_such_method()
    return x + by


def calls_shifted(x: tangrad.Tensor) -> tangrad.Tensor:
    return shifted(x)


def test_an_overload_that_takes_the_arguments_is_not_passed_over_for_its_body():
    with pytest.raises(RuntimeError, match="no attribute or method 'no_such_method'"):
        tangrad.jit.script(calls_shifted)


def test_a_traced_function_takes_as_many_arguments_as_it_was_traced_with():
    traced = tangrad.jit.trace(lambda x: x + 1, tangrad.zeros(1))

    def calls(x):
        return traced(x, x, x)

    with pytest.raises(RuntimeError, match="Expected at most 1 arguments but found 3"):
        tangrad.jit.script(calls)


def sorts(xs: List[Any]):
    xs.sort()
    return xs


@pytest.mark.parametrize(
    ("items", "reason"),
    [
        ([(1, 2), ("a", "b")], "Only values of same type can be compared"),
        ([(1, (2, 3)), (2, ("a", "b"))], "Only values of same type can be compared"),
        ([3, 1.5], "Only values of same type can be compared. Found int and float"),
        ([({1: 2}, {2: 3})], "are not sortable"),
    ],
)
def test_lists_of_what_has_no_order_are_not_sorted(items, reason):
    with pytest.raises(RuntimeError, match=reason):
        tangrad.jit.script(sorts)(items)


def test_steps_of_zero_and_ragged_data_are_told():
    def steps(xs: List[int], k: int):
        return xs[::k]

    def ragged():
        return tangrad.tensor([[2, 2], [1]])

    with pytest.raises(RuntimeError, match="should have non-zero step"):
        tangrad.jit.script(steps)([1], 0)
    with pytest.raises(RuntimeError, match="Expected sequence of length 2"):
        tangrad.jit.script(ragged)()


@tangrad.jit.ignore
def any_number_of(x, *args):
    return args[0] if args else x


def calls_any_number_of(x, y):
    return any_number_of(x), any_number_of(x, y), any_number_of(x, y, x)


def test_ignored_functions_take_any_number_of_arguments():
    found = tangrad.jit.script(calls_any_number_of)(tangrad.zeros(1), tangrad.ones(1))
    assert [float(value) for value in found] == [0.0, 1.0, 1.0]


def gradients(x, y):
    # type: (tangrad.Tensor, tangrad.Tensor) -> List[Optional[tangrad.Tensor]]
    z = 2 * y + y
    return tangrad.autograd.grad((z.sum(),), (x, y), allow_unused=True)


def test_gradients_in_scripts_are_optional():
    x, y = (tangrad.ones(2, requires_grad=True) for _ in range(2))
    none, found = tangrad.jit.script(gradients)(x, y)
    assert none is None
    assert found.tolist() == [3.0, 3.0]


def goes_backward(x):
    # type: (tangrad.Tensor) -> None
    tangrad.autograd.backward(x.sum())
    tangrad.autograd.backward((x,), tangrad.jit.annotate(List[Optional[tangrad.Tensor]], [x]))


def test_scripts_go_backward():
    x = tangrad.ones(2, requires_grad=True)
    scripted = tangrad.jit.script(goes_backward)
    scripted(x)
    assert x.grad.tolist() == [2.0, 2.0]
    assert "torch.autograd.backward" in scripted.code


class Uninitialized(tangrad.jit.ScriptModule):
    def __init__(self):
        self.x = 1


def test_modules_whose_init_is_not_called_are_told():
    with pytest.raises(RuntimeError, match="did you forget to call"):
        Uninitialized()


@tangrad.jit.ignore
class LeftToPython:
    pass


def makes_what_is_left_to_python():
    return LeftToPython()


def test_classes_that_are_left_to_python_are_not_made():
    with pytest.raises(RuntimeError, match="Cannot instantiate class 'LeftToPython'"):
        tangrad.jit.script(makes_what_is_left_to_python)


def takes_second(x):
    return x[1]


def test_an_index_beyond_a_tensor_is_told_with_its_size():
    with pytest.raises(RuntimeError, match="index 1 out of range for tensor of size"):
        tangrad.jit.script(takes_second)(tangrad.ones(0))


def test_deletion_and_expansion_that_are_not_there_are_named():
    @tangrad.jit.script
    class Bare:
        def __init__(self):
            self.a = 1

    def deleted() -> int:
        bare = Bare()
        del bare[1]
        return bare.a

    def expanded():
        held = {"a": 1}
        return {**held}

    with pytest.raises(RuntimeError, match="Class does not define __delitem__"):
        tangrad.jit.script(deleted)
    with pytest.raises(RuntimeError, match="Dict expansion"):
        tangrad.jit.script(expanded)
