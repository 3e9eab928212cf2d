"""Classes that packages bring for scripts, and modules that extensions are imported as."""

import copy
import importlib
import pickle
import sys

import pytest

import tangrad
from tangrad.library import foreign, register_class


class Counter:
    def __init__(self, start: int) -> None:
        self.count = start

    def next(self) -> int:
        self.count += 1
        return self.count

    def __getstate__(self) -> int:
        return self.count

    def __setstate__(self, state: int) -> None:
        self.count = state


@pytest.fixture
def made():
    return register_class("ours::Counter", Counter)


def test_a_class_for_scripts_is_found_by_its_namespace(made):
    assert tangrad.classes.ours.Counter is made is register_class("ours::Counter", Counter)
    counter = tangrad.classes.ours.Counter(3)
    assert isinstance(counter, (Counter, tangrad.ScriptObject))
    assert not isinstance(Counter(3), tangrad.ScriptObject)
    assert counter.next() == 4
    assert dir(tangrad.classes.ours) == ["Counter"]
    for again in (pickle.loads(pickle.dumps(counter)), copy.deepcopy(counter)):
        assert type(again) is made
        assert again.next() == 5


def test_names_that_mean_nothing_are_refused(made):
    with pytest.raises(RuntimeError, match=r"class 'ours\.Other', but it does not exist"):
        _ = tangrad.classes.ours.Other
    for name in ("Counter", "ours::", "a b::C"):
        with pytest.raises(RuntimeError, match="is no name; write 'namespace::Name'"):
            register_class(name, Counter)
    with pytest.raises(RuntimeError, match="ours::Counter is the name of"):
        register_class("ours::Counter", int)


def test_ops_take_and_give_objects_of_these_classes(made):
    name = "__torch__.torch.classes.ours.Counter"
    library = tangrad.library.Library("ours", "FRAGMENT")
    library.define(f"advance({name} counter, str name) -> {name}")
    library.impl("advance", lambda counter, name: (counter.next(), counter)[1], "")
    counter = made(1)
    assert tangrad.ops.ours.advance(counter, b"bytes \xff are texts of C++") is counter
    assert counter.count == 2
    with pytest.raises(RuntimeError, match=f"'{name}' for argument 'counter'.*found type 'int'"):
        tangrad.ops.ours.advance(3, "")


def test_libraries_are_loaded_by_the_classes_too(tmp_path):
    with pytest.raises(OSError, match="no such file"):
        tangrad.classes.load_library(str(tmp_path / "none.so"))
    assert tangrad.classes.loaded_libraries is foreign.loaded_libraries


def test_an_extensions_module_is_ours(tmp_path, monkeypatch):
    package = tmp_path / "extended"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "_compiled.py").write_text("raise AssertionError('the file is loaded')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(foreign._Modules, "served", {})
    before = list(sys.meta_path)
    foreign._Modules.serve({"extended._compiled": "hub"})
    try:
        found = importlib.import_module("extended._compiled")
        assert found.load is tangrad.hub.load
        assert found is sys.modules["extended"]._compiled
    finally:
        sys.meta_path[:] = before
        for name in ("extended", "extended._compiled"):
            sys.modules.pop(name, None)


def test_what_is_installed_is_told():
    from tangrad.utils import _import_utils

    assert _import_utils.check_module_exists("json")
    assert not _import_utils.check_module_exists("no_such.module")
    assert not _import_utils.dill_available()
    assert _import_utils.import_dill() is None
