"""Trees of containers."""

from __future__ import annotations

import importlib
from collections import OrderedDict, namedtuple

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
