"""Functions and methods that are given as text, and classes that declare what is scripted."""

import io

import pytest

import tangrad
from tangrad import nn

HERE = 3.0


def test_functions_of_a_text_call_each_other_and_what_is_around():
    local = tangrad.jit.script(_doubled)
    unit = tangrad.jit.CompilationUnit("""
        def inner(x, n: int = 2):
            return local(x) * n

        def outer(x):
            # type: (Tensor) -> Tensor
            return inner(x) + inner(x, n=3)
    """)
    assert unit.outer(tangrad.ones(1)).item() == 10.0
    assert unit.find_function("inner").name == "inner"
    assert local(tangrad.ones(1)).item() == 2.0
    with pytest.raises(AttributeError, match="no attribute 'other'"):
        _ = unit.other


def _doubled(x):
    return x * 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", "nothing but def"),
        ("def f(x):\n    return nowhere(x)", "undefined value nowhere"),
        ("def f(x)\n    return x", "cannot be parsed"),
        ("def f(*x):\n    return x", "variable number of arguments"),
        ("def f(x=[1].pop()):\n    return x", "a default in a text is a constant"),
    ],
)
def test_texts_that_are_no_programs_are_refused(text, message):
    with pytest.raises(RuntimeError, match=message):
        tangrad.jit.CompilationUnit(text)


def test_a_name_is_defined_once():
    unit = tangrad.jit.CompilationUnit("def f(x):\n    return x")
    with pytest.raises(RuntimeError, match="already defined"):
        unit.define("def f(x):\n    return x")


class Declared(tangrad.jit.ScriptModule):
    __constants__ = ("times",)

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(tangrad.ones(2))
        self.times = 3
        self.seen = tangrad.jit.Attribute([], list[int])
        self.define("def shifted(self, x):\n    return x + self.weight")

    @tangrad.jit.script_method
    def forward(self, x):
        self.seen.append(x.size(0))
        return self.shifted(x) * self.times


def test_a_class_declares_what_is_scripted():
    module = Declared()
    x = tangrad.ones(2)
    assert module(x).tolist() == [6.0, 6.0]
    assert module.shifted(x).tolist() == [2.0, 2.0]
    assert module.seen == [2]
    assert [*module.state_dict()] == ["weight"]
    file = io.BytesIO()
    tangrad.jit.save(module, file)
    file.seek(0)
    assert tangrad.jit.load(file)(x).tolist() == [6.0, 6.0]


def test_a_declared_module_is_part_of_a_scripted_one():
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Declared()

        def forward(self, x):
            return self.inner(x) + 1

    assert tangrad.jit.script(Outer())(tangrad.ones(2)).tolist() == [7.0, 7.0]


def test_methods_are_added_to_one_module_alone():
    one, other = (tangrad.jit.script(nn.Sequential(nn.ReLU())) for _ in range(2))
    one.define("def tripled(self, x):\n    return x * 3")
    assert one.tripled(tangrad.ones(1)).item() == 3.0
    assert not hasattr(other, "tripled")


def test_a_signature_tells_its_parameters():
    def signed(x, y: tuple[int, str], *, k: float = 2.0) -> list[int]:
        return [y[0]]

    schema = tangrad.jit.script(signed).schema
    assert str(schema) == "signed(Tensor x, (int, str) y, *, float k=2.) -> int[]"
    assert [argument.name for argument in schema.arguments] == ["x", "y", "k"]
    assert schema.arguments[2].default_value == 2.0


def test_lists_and_dicts_are_shared_once_they_are_scripted():
    def fill(xs: list[int], entries: dict[str, int]):
        xs.append(len(xs))
        entries["a"] = 1

    shared, plain = tangrad.jit.script([5]), [5]
    entries = tangrad.jit.script({"b": 2})
    scripted = tangrad.jit.script(fill)
    scripted(shared, entries)
    scripted(plain, {"b": 2})
    assert (shared, plain, entries) == ([5, 1], [5], {"b": 2, "a": 1})
    with pytest.raises(TypeError):
        shared.append("text")
    with pytest.raises(TypeError):
        entries["c"] = "text"
