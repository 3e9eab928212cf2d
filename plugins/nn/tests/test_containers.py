"""Modules that hold modules or parameters."""

from collections import OrderedDict

import pytest

import tangrad
from tangrad import nn


def layers(t, n=4):
    return [t.nn.Linear(i + 1, i + 2) for i in range(n)]


def widths(container):
    return [layer.out_features for layer in container]


SEQUENTIAL = {
    "index": lambda t, s: s[-1].out_features,
    "slice": lambda t, s: (type(s[1:3]).__name__, widths(s[1:3]), list(s[1:3]._modules)),
    "length": lambda t, s: len(s),
    "append": lambda t, s: widths(s.append(t.nn.Linear(1, 9))),
    "extend": lambda t, s: widths(s.extend(t.nn.Sequential(t.nn.Linear(1, 9)))),
    "insert": lambda t, s: (widths(s.insert(1, t.nn.Linear(1, 9))), list(s._modules)),
    "insert from the end": lambda t, s: widths(s.insert(-1, t.nn.Linear(1, 9))),
    "insert outside": lambda t, s: s.insert(9, t.nn.Linear(1, 9)),
    "pop": lambda t, s: (s.pop(1).out_features, widths(s), list(s._modules)),
    "delete": lambda t, s: (s.__delitem__(0), widths(s), list(s._modules)),
    "delete slice": lambda t, s: (s.__delitem__(slice(0, 2)), widths(s), list(s._modules)),
    "set": lambda t, s: (s.__setitem__(-1, t.nn.Linear(1, 9)), widths(s)),
    "add": lambda t, s: widths(s + s),
    "add in place": lambda t, s: widths(s.__iadd__(t.nn.Sequential(t.nn.Linear(1, 9)))),
    "multiply": lambda t, s: widths(s * 2),
    "multiply from the left": lambda t, s: widths(2 * s),
    "multiply in place": lambda t, s: widths(s.__imul__(2)),
    "outside": lambda t, s: s[4],
    "add no sequential": lambda t, s: s + 3,
    "multiply by nothing": lambda t, s: s * 0,
    "multiply by a float": lambda t, s: s * 1.5,
}


@pytest.mark.parametrize("case", SEQUENTIAL)
def test_sequential_is_a_list_of_modules(agree, case):
    agree(lambda t: SEQUENTIAL[case](t, t.nn.Sequential(*layers(t))))


def test_sequential_takes_names(agree):
    def program(t):
        net = t.nn.Sequential(OrderedDict([("a", t.nn.Flatten()), ("b", t.nn.ReLU())]))
        return [repr(net), net(-t.ones(1, 2, 2)), type(net.b).__name__, repr(net[:1])]

    agree(program)


MODULE_LIST = {
    "index": lambda t, m: m[-1].out_features,
    "slice": lambda t, m: (type(m[::2]).__name__, widths(m[::2]), list(m[::2]._modules)),
    "append": lambda t, m: widths(m.append(t.nn.Linear(1, 9))),
    "extend": lambda t, m: widths(m.extend([t.nn.Linear(1, 9)])),
    "insert": lambda t, m: (m.insert(1, t.nn.Linear(1, 9)), widths(m), list(m._modules)),
    "pop": lambda t, m: (m.pop(1).out_features, widths(m), list(m._modules)),
    "pop slice": lambda t, m: (widths(m.pop(slice(0, 2))), widths(m)),
    "delete": lambda t, m: (m.__delitem__(-1), widths(m), list(m._modules)),
    "delete slice": lambda t, m: (m.__delitem__(slice(0, 4, 2)), widths(m), list(m._modules)),
    "set": lambda t, m: (m.__setitem__(-1, t.nn.Linear(1, 9)), widths(m)),
    "add": lambda t, m: widths(m + [t.nn.Linear(1, 9)]),
    "add in place": lambda t, m: widths(m.__iadd__([t.nn.Linear(1, 9)])),
    "contains": lambda t, m: m[0] in m,
    "outside": lambda t, m: m[4],
    "extend by one": lambda t, m: m.extend(3),
    "call": lambda t, m: m(1),
    "dir": lambda t, m: "0" in dir(m),
}


@pytest.mark.parametrize("case", MODULE_LIST)
def test_module_list_is_a_list(agree, case):
    agree(lambda t: MODULE_LIST[case](t, t.nn.ModuleList(layers(t))))


MODULE_DICT = {
    "keys": lambda t, m: list(m.keys()),
    "iteration": lambda t, m: list(m),
    "items": lambda t, m: [(key, type(value).__name__) for key, value in m.items()],
    "values": lambda t, m: widths(m.values()),
    "contains": lambda t, m: ("a" in m, "x" in m, len(m)),
    "pop": lambda t, m: (m.pop("a").out_features, list(m)),
    "delete": lambda t, m: (m.__delitem__("a"), list(m)),
    "clear": lambda t, m: (m.clear(), len(m)),
    "update from pairs": lambda t, m: (m.update([["c", t.nn.ReLU()]]), list(m)),
    "update from module": lambda t, m: (m.update(t.nn.ModuleDict({"b": t.nn.ReLU()})), repr(m)),
    "update from number": lambda t, m: m.update(3),
    "update from numbers": lambda t, m: m.update([3]),
    "update from triple": lambda t, m: m.update([(1, 2, 3)]),
    "missing": lambda t, m: m["x"],
    "attribute": lambda t, m: m.a.out_features,
}


@pytest.mark.parametrize("case", MODULE_DICT)
def test_module_dict_is_a_dictionary(agree, case):
    def program(t):
        first, second = layers(t, 2)
        return MODULE_DICT[case](t, t.nn.ModuleDict({"a": first, "b": second}))

    agree(program, message="update from" not in case)


PARAMETER_LIST = {
    "types": lambda t, p: [type(x).__name__ for x in p],
    "names": lambda t, p: [name for name, _ in p.named_parameters()],
    "slice": lambda t, p: (type(p[:2]).__name__, len(p[:2])),
    "negative": lambda t, p: p[-1],
    "outside": lambda t, p: p[7],
    "append": lambda t, p: len(p.append(t.ones(1))),
    "extend": lambda t, p: len(p.extend([t.ones(1)])),
    "add": lambda t, p: len(p.__iadd__([t.ones(1)])),
    "set": lambda t, p: (p.__setitem__(0, t.ones(2)), type(p[0]).__name__, p[0]),
    "extend by a tensor": lambda t, p: p.extend(t.ones(1)),
    "call": lambda t, p: p(1),
    "state": lambda t, p: list(p.state_dict()),
}


@pytest.mark.parametrize("case", PARAMETER_LIST)
def test_parameter_list_makes_parameters_of_tensors(agree, case):
    agree(lambda t: PARAMETER_LIST[case](t, t.nn.ParameterList([t.zeros(2), t.ones(1), 7])))


PARAMETER_DICT = {
    "types": lambda t, p: [type(x).__name__ for x in p.values()],
    "names": lambda t, p: [name for name, _ in p.named_parameters()],
    "keys": lambda t, p: (list(p), list(p.keys()), list(reversed(p)), len(p), "a" in p),
    "items": lambda t, p: dict(p.items()),
    "get": lambda t, p: (p.get("a"), p.get("x"), p.get("x", 3)),
    "set default": lambda t, p: (p.setdefault("a", 3), p.setdefault("n", 3), list(p)),
    "pop": lambda t, p: (p.pop("a"), list(p)),
    "pop item": lambda t, p: (p.popitem(), list(p)),
    "copy": lambda t, p: (p.copy()["a"] is p["a"], list(p.copy())),
    "clear": lambda t, p: (p.clear(), len(p)),
    "from keys": lambda t, p: list(p.fromkeys(["x", "y"], 1).items()),
    "or": lambda t, p: list((p | t.nn.ParameterDict({"z": t.ones(1)})).keys()),
    "or in place": lambda t, p: list(p.__ior__(t.nn.ParameterDict({"z": t.ones(1)})).keys()),
    "missing": lambda t, p: p["x"],
    "delete": lambda t, p: (p.__delitem__("a"), list(p)),
    "call": lambda t, p: p(1),
    "state": lambda t, p: list(p.state_dict()),
}


@pytest.mark.parametrize("case", PARAMETER_DICT)
def test_parameter_dict_makes_parameters_of_tensors(agree, case):
    def program(t):
        values = {"b": t.zeros(2), "a": t.ones(1), "c": "text"}
        return PARAMETER_DICT[case](t, t.nn.ParameterDict(values))

    agree(program, message=case != "missing")


def test_keys_of_a_parameter_dict_are_strings():
    with pytest.raises(TypeError, match="not a string"):
        nn.ParameterDict()[3] = tangrad.ones(1)


def test_lists_of_parameters_without_memory_are_told_like_those_with_it():
    import torch

    for lib in (tangrad, torch):
        held = lib.nn.ParameterList([lib.nn.Parameter(lib.empty(1, device="meta"))])
        assert "of size 1])" in str(held)
