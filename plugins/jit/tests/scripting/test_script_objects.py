"""Objects of `tangrad.classes` in scripts, and modules that others stand for there."""

import io

import pytest

import tangrad
from tangrad import nn
from tangrad.library import register_class


class Table:
    """Numbers by name."""

    def __init__(self, names: list[str], start: int = 0) -> None:
        self.numbers = {name: start + k for k, name in enumerate(names)}

    def __len__(self) -> int:
        return len(self.numbers)

    def __contains__(self, name: str) -> bool:
        return name in self.numbers

    def __getitem__(self, name: str) -> int:
        return self.numbers[name]

    def find(self, name: str, otherwise: int | None = None) -> int | None:
        return self.numbers.get(name, otherwise)

    def scaled(self, x: tangrad.Tensor, by: float = 2.0) -> tangrad.Tensor:
        return x * by

    def not_for_scripts(self):
        return self

    def __getstate__(self) -> dict[str, int]:
        return self.numbers

    def __setstate__(self, state: dict[str, int]) -> None:
        self.numbers = state


ScriptTable = register_class("jit_tests::Table", Table)


class Asks(nn.Module):
    def __init__(self, table):
        super().__init__()
        self.table = table

    def forward(self, name: str) -> list[int]:
        found = self.table.find(name)
        if found is None:
            found = self.table.find(name, 7)
        assert found is not None
        here = -1
        if name in self.table:
            here = self.table[name]
        return [len(self.table), here, found]


class Scales(nn.Module):
    def __init__(self, table):
        super().__init__()
        self.table = table

    def forward(self, x):
        return self.table.scaled(x)


class Prepared(nn.Module):
    """Stands for itself outside of scripts only."""

    def __init__(self, table):
        super().__init__()
        self.table = table

    def forward(self, name: str) -> int:
        return len(self.table)

    def __prepare_scriptable__(self):
        if isinstance(self.table, tangrad.ScriptObject):
            return self
        return Prepared(ScriptTable([*self.table.numbers, "prepared"]))


class Outer(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.first, self.second, self.nothing = inner, inner, None

    def forward(self, name: str) -> int:
        return self.first(name) + self.second(name)


def through_a_file(module):
    file = io.BytesIO()
    tangrad.jit.save(module, file)
    file.seek(0)
    return tangrad.jit.load(file)


def test_a_script_calls_methods_by_their_annotations():
    scripted = tangrad.jit.script(Asks(ScriptTable(["a", "b"])))
    for module in (scripted, through_a_file(scripted)):
        assert module("b") == [2, 1, 1]
        assert module("c") == [2, -1, 7]


def test_tensors_go_through_an_objects_methods():
    scripted = tangrad.jit.script(Scales(ScriptTable([])))
    x = tangrad.ones(2, requires_grad=True)
    scripted(x).sum().backward()
    assert x.grad.tolist() == [2, 2]


def test_what_scripts_do_not_call_is_refused_where_they_are_made():
    class Wrong(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = ScriptTable([])

        def forward(self) -> int:
            return self.table.find(3)

    class Untyped(Wrong):
        def forward(self) -> int:
            return self.table.not_for_scripts()

    for module, name in ((Wrong(), "find"), (Untyped(), "not_for_scripts")):
        with pytest.raises(RuntimeError, match=name):
            tangrad.jit.script(module)


def test_a_module_inside_may_have_another_that_stands_for_it():
    inner = Prepared(Table(["a"]))
    outer = Outer(inner)
    scripted = tangrad.jit.script(outer)
    assert scripted("x") == 4
    assert outer("x") == 2
    assert outer.first is inner


def test_an_archives_object_of_an_unknown_class_is_an_error(monkeypatch):
    from tangrad.library import classes

    file = io.BytesIO()
    tangrad.jit.save(tangrad.jit.script(Asks(ScriptTable(["a"]))), file)
    file.seek(0)
    monkeypatch.setattr(classes, "_registered", {})
    with pytest.raises(RuntimeError, match="jit_tests.Table"):
        tangrad.jit.load(file)


def test_a_damaged_state_is_an_error_of_the_file(monkeypatch):
    def refuse(self, state):
        raise RuntimeError("the state is of another version")

    file = io.BytesIO()
    tangrad.jit.save(tangrad.jit.script(Asks(ScriptTable(["a"]))), file)
    file.seek(0)
    monkeypatch.setattr(Table, "__setstate__", refuse)
    with pytest.raises(tangrad.serialization.SerializationError, match="of another version"):
        tangrad.jit.load(file)


class Stateless:
    def __init__(self) -> None:
        self.count = 0

    def next(self) -> int:
        self.count += 1
        return self.count


def test_an_object_without_a_state_is_refused_by_archives():
    class Holds(nn.Module):
        def __init__(self):
            super().__init__()
            self.held = register_class("jit_tests::Stateless", Stateless)()

        def forward(self) -> int:
            return self.held.next()

    scripted = tangrad.jit.script(Holds())
    assert scripted() == 1
    with pytest.raises(RuntimeError, match="has no __getstate__, by which archives hold"):
        tangrad.jit.save(scripted, io.BytesIO())
