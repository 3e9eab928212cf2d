"""Trees of containers."""

from __future__ import annotations

import dataclasses
import importlib
from collections import OrderedDict, defaultdict, deque, namedtuple

import pytest

from tangrad.utils._pytree import (
    register_pytree_node,
    tree_flatten,
    tree_leaves,
    tree_map,
    tree_map_only,
    tree_structure,
    tree_unflatten,
)

Point = namedtuple("Point", "x y")


@pytest.mark.parametrize(
    "tree",
    [
        1,
        (),
        [1, (2, 3)],
        {"a": 1, "b": [2]},
        OrderedDict(b=1, a=2),
        Point(1, [2, 3]),
        (None, Point({"k": 1}, ())),
    ],
)
def test_flatten_and_unflatten_are_inverse(tree):
    leaves, spec = tree_flatten(tree)
    rebuilt = tree_unflatten(leaves, spec)
    assert rebuilt == tree
    assert type(rebuilt) is type(tree)
    assert spec.num_leaves == len(leaves)


def test_leaves_come_in_order():
    assert tree_leaves({"b": 1, "a": (2, [3])}) == [1, 2, 3]


def test_map_over_several_trees():
    assert tree_map(lambda a, b: a + b, [1, (2,)], [10, (20,)]) == [11, (22,)]
    assert tree_map_only(int, lambda a: -a, [1, "x"]) == [-1, "x"]


def test_structure_compares_by_shape():
    assert tree_structure([1, 2]) == tree_structure([3, 4])
    assert tree_structure([1, 2]) != tree_structure((1, 2))


def test_wrong_number_of_leaves_is_an_error():
    with pytest.raises(
        ValueError, match="has length 1 but the spec refers to a pytree that holds 2 items"
    ):
        tree_unflatten([1], tree_structure([1, 2]))


def test_registered_class_is_a_container():
    class Pair:
        def __init__(self, a, b):
            self.a, self.b = a, b

    register_pytree_node(Pair, lambda p: ([p.a, p.b], None), lambda children, _: Pair(*children))
    assert tree_leaves(Pair(1, [2])) == [1, 2]
    with pytest.raises(ValueError, match="already registered"):
        register_pytree_node(Pair, None, None)


def test_a_package_walks_the_nodes_by_itself(agree):
    def program(t):
        pytree = importlib.import_module(f"{t.__name__}.utils._pytree")
        Point = namedtuple("Point", "x y")
        tree = [Point(1, {"a": 2})]

        def flatten(node):
            kind = pytree._get_node_type(node)
            if kind not in pytree.SUPPORTED_NODES:
                return pytree.tree_flatten(node)
            children, context = pytree.SUPPORTED_NODES[kind].flatten_fn(node)
            parts = [flatten(child) for child in children]
            specs = [spec for _, spec in parts]
            return [x for leaves, _ in parts for x in leaves], pytree.TreeSpec(kind, context, specs)

        leaves, spec = flatten(tree)
        same = pytree.tree_flatten(tree)[1] == spec
        return leaves, same, str(pytree.tree_unflatten([3, 4], spec))

    agree(program)


def trees(t):
    """The functions of PyTorch's place for trees, in either framework."""
    return importlib.import_module(f"{t.__name__}.utils._pytree")


TREE = {
    "a": [1, (2.5, "x")],
    "b": OrderedDict(c=Point(3, [4])),
    "d": deque([5]),
    "e": defaultdict(list, {6: 7}),
    "none": None,
    "empty": (),
}
PATHS = {
    "paths": lambda p: [(p.keystr(path), leaf) for path, leaf in p.tree_leaves_with_path(TREE)],
    "keys": lambda p: [repr(path) for path, _ in p.tree_leaves_with_path(TREE)],
    "flat": lambda p: [leaf for _, leaf in p.tree_flatten_with_path(TREE)[0]],
    "same shape": lambda p: p.tree_flatten_with_path(TREE)[1] == p.tree_structure(TREE),
    "back": lambda p: [p.key_get(TREE, path) for path, _ in p.tree_leaves_with_path(TREE)],
    "map": lambda p: p.tree_map_with_path(
        lambda path, x, y: p.keystr(path) + str(x) + str(y), [1, {"a": 2}], [3, {"a": 4}]
    ),
    "stopped": lambda p: str(p.tree_leaves_with_path([1, (2,)], is_leaf=lambda x: x == (2,))),
    "leaves": lambda p: list(p.tree_iter(TREE)),
    "some leaves": lambda p: list(p.tree_iter([1, (2,)], is_leaf=lambda x: type(x) is tuple)),
    "is a leaf": lambda p: [p.tree_is_leaf(x) for x in (1, None, [], (1,), {}, Point(1, 2))],
    "by classes": lambda p: p.tree_map_only((int, str), lambda x: x * 2, TREE),
    "by a union": lambda p: p.tree_map_only(int | str, lambda x: x * 2, TREE),
    "by a predicate": lambda p: p.tree_map_only(lambda x: x == 7, lambda x: 8, TREE),
    "in place": lambda p: p.tree_map_only_(list, len, TREE) is TREE,
    "all": lambda p: [
        p.tree_all_only(int, lambda x: x < 8, TREE),
        p.tree_any_only(str, lambda x: x == "y", TREE),
        p.tree_all(lambda x: x, [(0,)], is_leaf=lambda x: isinstance(x, tuple)),
        p.tree_any(lambda x: x, [(0,)], is_leaf=lambda x: isinstance(x, tuple)),
    ],
    "named tuples": lambda p: [p.is_namedtuple(x) for x in (Point, Point(1, 2), (1,), tuple, 3)],
    "keys are equal": lambda p: [
        p.SequenceKey(1) == p.SequenceKey(1),
        p.SequenceKey(1) == p.MappingKey(1),
        len({p.GetAttrKey("a"), p.GetAttrKey("a")}),
    ],
    "keys have fields": lambda p: [
        p.SequenceKey(1).idx,
        p.MappingKey("k").key,
        p.GetAttrKey("n").name,
    ],
}


@pytest.mark.parametrize("question", PATHS)
def test_paths_and_leaves_are_pytorchs(agree, question):
    agree(lambda t: PATHS[question](trees(t)))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"field_names": ["x", "y"]},
        {"field_names": ["x"], "drop_field_names": ["y"]},
        {"field_names": ["x"]},
        {"field_names": ["x", "z"]},
    ],
)
def test_dataclasses_are_containers(agree, options):
    def program(t):
        @dataclasses.dataclass
        class Pair:
            x: object
            y: object = 3

        p = trees(t)
        p.register_dataclass(Pair, **options)
        pair = p.tree_map(lambda v: v * 2, Pair(1, 5))
        half = p.tree_map(lambda v: v * 2, Pair(None, 5))
        named = [p.keystr(path) for path, _ in p.tree_leaves_with_path(Pair(1, 5))]
        return [pair.x, pair.y, half.x, half.y], named

    agree(program, message=False)


def test_other_classes_of_fields_are_containers(agree):
    def program(t):
        class Pair:
            def __init__(self, x, y):
                self.x, self.y = x, y

        p = trees(t)
        try:
            p.register_dataclass(Pair)
        except ValueError as error:
            refused = "field_names must be specified" in str(error)
        p.register_dataclass(Pair, field_names=["x", "y"])
        return refused, p.tree_leaves(Pair(1, [2]))

    agree(program)


def test_a_class_without_keys_has_no_paths(agree):
    def program(t):
        class Box:
            pass

        p = trees(t)
        p.register_pytree_node(Box, lambda b: ([1], None), lambda children, _: Box())
        p.tree_leaves_with_path(Box())

    agree(program, message=False)


@pytest.mark.parametrize("name", ["torch", "tangrad"])
def test_named_results_are_known_as_the_interpreters_sequences_of_fields(name):
    library = importlib.import_module(name)
    pytree = importlib.import_module(f"{name}.utils._pytree")
    found = library.tensor([2, 0, 1]).max(0)
    assert pytree.is_structseq_instance(found)
    kind = type(found)
    assert kind.__match_args__ == ("values", "indices")
    assert (kind.n_fields, kind.n_sequence_fields, kind.n_unnamed_fields) == (2, 2, 0)


def test_leaves_of_a_call_are_those_of_all_its_arguments():
    leaves = importlib.import_module("tangrad.utils._pytree").arg_tree_leaves
    assert leaves(1, [2, {"a": 3}], b=4) == [1, 2, 3, 4]


def test_a_shape_is_a_tuple_of_leaves(agree):
    def program(t):
        pytree = importlib.import_module(f"{t.__name__}.utils._pytree")
        leaves, spec = pytree.tree_flatten({"a": t.ones(2, 3).shape})
        keyed, _ = pytree.tree_flatten_with_path(t.Size([4]))
        return [leaves, pytree.tree_unflatten(["x", 1], spec), keyed[0][1], str(keyed[0][0])]

    agree(program)
