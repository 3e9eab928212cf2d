"""What cannot be scripted is refused, with the place; what is called wrongly, too."""

import copy
import inspect
import pickle
from typing import List, Optional  # noqa: UP035

import pytest

import tangrad
from tangrad import nn

# ruff: noqa: UP006, UP045


def optional(x: Optional[int]):
    return x + 1


def mismatch(x: int):
    if x > 1:
        y = 1
    else:
        y = "a"
    return y


def one_branch(x: int):
    if x > 1:
        y = 1
    return y


def changed_in_loop(x: int):
    y = 1
    while x > 1:
        y = "a"
    return y


def wrong_result(x: int) -> str:
    return x


def unknown(x):
    return no_such_name(x)  # noqa: F821


def no_method(x):
    return x.no_such_method()


def missing_argument(x):
    return tangrad.add(x)


def empty_list_of_tensors(x: int):
    y = []
    y.append(x)
    return y


def recursive(n: int) -> int:
    return recursive(n - 1)


def handles(x: int):
    try:
        x = 1
    except ValueError:
        x = 2
    return x


def generator(x: int):
    yield x


def several(x: int, *args):
    return x


def filtered(xs: List[int]):
    return [x for x in xs if x > 1]


def bare(xs: list):
    return xs


def global_number(x: int):
    return x + LIMIT


LIMIT = 3

REFUSED = {
    optional: "check that it is not None",
    mismatch: "Type mismatch: y is set to type int in the true branch and type str",
    one_branch: "y is not defined in the false branch",
    changed_in_loop: "Variable 'y' previously had type int",
    wrong_result: "annotated as having type str but is actually of type int",
    unknown: "undefined value no_such_name",
    no_method: "no attribute or method 'no_such_method'",
    missing_argument: "Argument other not provided|Arguments for call are not valid",
    empty_list_of_tensors: "Arguments for call are not valid",
    recursive: "is called recursively",
    handles: "try blocks aren't supported",
    generator: "Yield aren't supported",
    several: "variable number of arguments",
    filtered: "Comprehension ifs are not supported",
    bare: "without a contained type",
    global_number: "closed over global variable",
}


@pytest.mark.parametrize(
    ("function", "reason"), REFUSED.items(), ids=[function.__name__ for function in REFUSED]
)
def test_a_function_is_refused_with_the_place(function, reason):
    with pytest.raises(RuntimeError, match=reason) as caught:
        tangrad.jit.script(function)
    assert "<--- HERE" in str(caught.value)
    assert "test_refusals.py" in str(caught.value)


def test_sources_that_cannot_be_found_are_told():
    namespace = {}
    exec("def f(x):\n    return x", namespace)
    with pytest.raises(OSError, match="Can't get source"):
        tangrad.jit.script(namespace["f"])


def double(x: int, y: float = 2.0) -> float:
    return x * y


@pytest.mark.parametrize(
    ("args", "kwargs", "reason"),
    [
        (("a",), {}, "Expected a value of type 'int' for argument 'x'"),
        ((1.5,), {}, "Expected a value of type 'int' for argument 'x'"),
        ((1 << 70,), {}, "Expected a value of type 'int'"),
        ((), {}, "missing value for argument 'x'"),
        ((1, 2.0, 3), {}, "at most 2 argument"),
        ((1,), {"z": 1}, "unexpected keyword argument 'z'"),
    ],
)
def test_calls_that_do_not_fit_are_refused(args, kwargs, reason):
    with pytest.raises(RuntimeError, match=reason):
        tangrad.jit.script(double)(*args, **kwargs)


def test_numbers_are_converted_at_the_entrance():
    scripted = tangrad.jit.script(double)
    assert scripted(2, 3) == 6.0
    assert scripted(tangrad.tensor(2)) == 4.0


class Empty(nn.Module):
    def __init__(self):
        super().__init__()
        self.held = []

    def forward(self, x):
        return self.held


def test_attributes_without_a_type_are_named():
    with pytest.raises(RuntimeError, match="failed to convert Python type"):
        tangrad.jit.script(Empty())


class Unscriptable:
    def __init__(self, a, *, flag=True):
        self.a = a


class Keeping(nn.Module):
    def __init__(self, kept):
        super().__init__()
        self.kept = kept

    def forward(self, x):
        return x + 1


class Using(Keeping):
    def forward(self, x):
        return x + self.kept.a


@pytest.mark.parametrize("kept", [inspect.signature(optional), Unscriptable(1), [Unscriptable(1)]])
def test_attributes_whose_class_cannot_be_scripted_are_refused_where_they_are_used(kept):
    assert tangrad.jit.script(Keeping(kept))(tangrad.ones(2)).tolist() == [2.0, 2.0]
    with pytest.raises(RuntimeError, match="failed to convert Python type"):
        tangrad.jit.script(Using(kept))


class Lengthless(tuple):
    def __len__(self):
        raise NotImplementedError


class Paired(nn.Module):
    def __init__(self):
        super().__init__()
        self.pairs = (Lengthless((2, 3)), Lengthless((4, 5)))

    def forward(self, x):
        return x * self.pairs[1][0]


def test_tuples_of_classes_without_a_length_can_be_attributes():
    assert tangrad.jit.script(Paired())(tangrad.ones(1)).tolist() == [4.0]


class Weighted(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(tangrad.ones(2))
        self.count = 1

    def forward(self, x):
        return (self.weight * x).sum()


def test_scripted_modules_share_parameters_and_keep_types():
    module = Weighted()
    scripted = tangrad.jit.script(module)
    scripted(tangrad.ones(2)).backward()
    assert module.weight.grad.tolist() == [1.0, 1.0]
    with pytest.raises(RuntimeError, match="has type int"):
        scripted.count = "a"


def test_copies_have_parameters_of_their_own_and_pickles_are_refused():
    scripted = tangrad.jit.script(Weighted())
    other = copy.deepcopy(scripted)
    with tangrad.no_grad():
        other.weight.fill_(3.0)
    assert scripted(tangrad.ones(2)).item() == 2.0
    assert other(tangrad.ones(2)).item() == 6.0
    with pytest.raises(pickle.PickleError):
        pickle.dumps(scripted)


def test_modules_of_the_library_are_scripted():
    layer = nn.Dropout(0.5)
    scripted = tangrad.jit.script(layer).eval()
    assert scripted(tangrad.ones(4)).tolist() == [1.0] * 4
    assert layer.training


@tangrad.jit.ignore
def outside(n: int) -> int:
    return sum(range(n))


def calls_python(n: int) -> int:
    return outside(n) + 1


def test_ignored_functions_are_called_and_not_saved(tmp_path):
    scripted = tangrad.jit.script(calls_python)
    assert scripted(4) == 7
    with pytest.raises(RuntimeError, match="Could not export Python function call 'outside'"):
        scripted.save(tmp_path / "f.pt")


@tangrad.jit.script_if_tracing
def doubled_per_row(x):
    for i in range(x.size(0)):
        x = x + i
    return x


def test_functions_that_are_scripted_if_tracing_run_as_they_are_otherwise():
    assert doubled_per_row(tangrad.zeros(3)).tolist() == [3.0] * 3
    traced = tangrad.jit.trace(doubled_per_row, (tangrad.zeros(3),))
    assert traced(tangrad.ones(3)).tolist() == [4.0] * 3


def test_freezing_takes_modules_in_evaluation_mode():
    scripted = tangrad.jit.script(Weighted())
    with pytest.raises(RuntimeError, match="eval mode"):
        tangrad.jit.freeze(scripted)
    frozen = tangrad.jit.freeze(scripted.eval())
    assert not hasattr(frozen, "weight")
    assert scripted.weight.requires_grad


def as_whole(n: int, x):
    if n > 0:
        n = x
    return n


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (tangrad.tensor(3.5), "as an integral argument"),
        (tangrad.tensor([3]), "of dimension other than 0 as a scalar argument"),
        (tangrad.ones(()).requires_grad_(), "requires grad as a scalar argument"),
    ],
)
def test_tensors_become_numbers_only_where_nothing_is_lost(given, words):
    with pytest.raises(RuntimeError, match=words):
        tangrad.jit.script(as_whole)(1, given)


class SetInBranch:
    def __init__(self, c: bool):
        if c:
            self.x = 1


class Chain:
    def __init__(self):
        self.parent = tangrad.jit.annotate(Optional[Chain], None)


class WithMutable:
    def __init__(self, a: List[int] = [1]):  # noqa: B006
        self.a = a


def makes_mutable():
    return WithMutable().a


class Held:
    def __init__(self, value):
        self.value = value


class HoldsText(nn.Module):
    def __init__(self):
        super().__init__()
        self.held = Held("1")

    def forward(self):
        return self.held.value


def with_gradients():
    return tangrad.ones([2], requires_grad=True)


def initialized():
    return nn.init.eye_(tangrad.zeros(2, 2))


def deleted_in_a_branch(x: int):
    a = x
    if x > 1:
        del a
    return a


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda: SetInBranch, "assignment cannot be in a control-flow block"),
        (lambda: Chain, "cannot hold instances of the same class"),
        (lambda: makes_mutable, "Mutable default parameters are not supported"),
        (HoldsText, "Could not cast attribute 'value' to type Tensor"),
        (lambda: with_gradients, "Keyword argument requires_grad unknown"),
        (lambda: initialized, "has no form in scripts"),
        (lambda: deleted_in_a_branch, "undefined value a"),
    ],
)
def test_what_would_be_something_else_is_refused(made, words):
    with pytest.raises(RuntimeError, match=words):
        tangrad.jit.script(made())


def classes_of_one_name():
    class Named:
        def two(self) -> int:
            return 2

    first = Named

    class Named:
        def three(self) -> int:
            return 3

    return first, Named


def test_classes_of_one_name_have_their_own_sources():
    first, second = classes_of_one_name()

    def calls():
        return second().three()

    assert tangrad.jit.script(second)().three() == 3
    assert tangrad.jit.script(first)().two() == 2
    assert tangrad.jit.script(calls)() == 3


def test_the_folder_of_an_archive_is_there(tmp_path):
    with pytest.raises(RuntimeError, match="Parent directory .* does not exist"):
        tangrad.jit.save(tangrad.jit.script(Weighted()), str(tmp_path / "none" / "m.pt"))


@tangrad.jit.interface
class Stepping(nn.Module):
    def step(self, x: tangrad.Tensor) -> tangrad.Tensor:
        pass


def takes_step(x: tangrad.Tensor, by: Stepping) -> tangrad.Tensor:
    return by.step(x)


class Steps(nn.Module):
    @tangrad.jit.export
    def step(self, x: tangrad.Tensor) -> tangrad.Tensor:
        return x + 1


class StepsNumbers(nn.Module):
    @tangrad.jit.export
    def step(self, x: int) -> int:
        return x + 1


def test_an_argument_serves_the_interface_of_its_parameter():
    scripted = tangrad.jit.script(takes_step)
    assert scripted(tangrad.ones(1), tangrad.jit.script(Steps())).tolist() == [2.0]
    with pytest.raises(RuntimeError, match="is not compatible with interface"):
        scripted(tangrad.ones(1), tangrad.jit.script(StepsNumbers()))


def test_a_module_without_its_modules_is_refused():
    class Unready(tangrad.nn.Module):
        def __init__(self):
            self.x = 2

        def forward(self):
            pass

    with pytest.raises(RuntimeError, match="has not been initialized"):
        tangrad.jit.script(Unready())


def named_member(x: tuple[str, int]) -> int:
    return getattr(x, "x", 2)


def test_the_default_of_an_attribute_is_for_tuples_with_names():
    with pytest.raises(RuntimeError, match="but got a normal Tuple"):
        tangrad.jit.script(named_member)
