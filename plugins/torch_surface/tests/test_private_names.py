"""What libraries take from PyTorch's private modules: the part that has a meaning here."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import pytest

import tangrad
from tangrad.discovery import neutral
from tangrad.nn.parallel.scatter_gather import gather, scatter, scatter_kwargs
from tangrad.nn.utils._named_member_accessor import NamedMemberAccessor
from tangrad.utils import _pytree
from tangrad.utils._contextlib import _DecoratorContextManager
from tangrad.utils.data.dataloader import _DatasetKind
from tangrad.utils.data.worker import _generate_state


def test_placeholders_serve_annotations_and_refuse_to_be_made():
    kind = neutral.refused("somewhere", "Thing", ["ONE"])
    assert neutral.is_placeholder(kind)
    assert not neutral.is_placeholder(int)
    assert kind[int] is kind
    assert isinstance(kind.ONE, kind)
    assert "Thing.ONE" in repr(kind.ONE)
    with pytest.raises(RuntimeError, match=r"somewhere\.Thing"):
        kind()


@pytest.mark.skipif(
    find_spec("tangrad_jit") is not None, reason="tells what is said where it is not installed"
)
def test_private_packages_are_imported_and_refuse_at_use():
    from tangrad._dynamo import OptimizedModule, is_compiling
    from tangrad._dynamo.eval_frame import OptimizedModule as again

    assert OptimizedModule is again
    assert not is_compiling()
    with pytest.raises(RuntimeError, match="jit"):
        OptimizedModule()
    with pytest.raises(AttributeError):
        _ = tangrad._no_such_name


def test_batches_are_divided_and_put_together():
    batch = {"x": tangrad.arange(4), "names": ["a"]}
    parts = scatter(batch, ["cpu", "cpu"])
    assert [p["x"].tolist() for p in parts] == [[0, 1], [2, 3]]
    inputs, named = scatter_kwargs((tangrad.arange(4),), None, ["cpu", "cpu"])
    assert (len(inputs), named) == (2, ({}, {}))
    assert gather([p["x"] for p in parts], "cpu").tolist() == [0, 1, 2, 3]
    assert gather([(tangrad.tensor(1.0),), (tangrad.tensor(2.0),)], "cpu")[0].tolist() == [1, 2]


def test_members_are_swapped_by_their_paths():
    model = tangrad.nn.Sequential(tangrad.nn.Linear(2, 2))
    accessor = NamedMemberAccessor(model)
    before = accessor.swap_tensor("0.bias", tangrad.ones(2))
    assert isinstance(before, tangrad.nn.Parameter)
    assert accessor.get_tensor("0.bias").tolist() == [1, 1]
    assert accessor.check_keys(["0.weight", "more"]) == (["0.bias"], ["more"])
    with pytest.raises(AttributeError, match="has no attribute `absent`"):
        accessor.swap_tensor("0.absent", tangrad.ones(1))
    with pytest.raises(TypeError, match="not an instance of"):
        accessor.set_tensor("0.bias", 3)


def test_a_context_decorates_functions_and_generators():
    entered = []

    class Noting(_DecoratorContextManager):
        def __enter__(self):
            entered.append("in")

        def __exit__(self, *exc):
            entered.append("out")

    @Noting()
    def generate():
        yield len(entered)

    assert Noting()(lambda: len(entered))() == 1
    assert list(generate()) == [3]
    assert entered[-1] == "out"


def test_batches_are_fetched_by_the_kind_of_a_data_set():
    fetch = _DatasetKind.create_fetcher(_DatasetKind.Map, [1, 2, 3], True, list, False)
    assert fetch.fetch([0, 2]) == [1, 3]
    stream = _DatasetKind.create_fetcher(_DatasetKind.Iterable, range(3), True, list, True)
    assert stream.fetch([None, None]) == [0, 1]
    with pytest.raises(StopIteration):
        stream.fetch([None, None])


def test_seeds_of_workers_are_pytorchs():
    assert _generate_state(7, 0) == [1369798745, 2153889110, 378758007, 1154287536]


def test_trees_tell_their_parts():
    leaves, spec = _pytree.tree_flatten({"a": [1, (2,)], "b": 3})
    assert (spec.num_children, spec.num_nodes, spec.num_leaves) == (2, 6, 3)
    assert spec.child(0).children()[0].is_leaf()
    assert spec.unflatten(leaves) == {"a": [1, (2,)], "b": 3}
    assert spec.flatten_up_to({"a": ["x", ("y",)], "b": "z"}) == ["x", "y", "z"]
    with pytest.raises(ValueError, match="does not begin like"):
        spec.flatten_up_to({"a": 1})


@pytest.mark.parametrize(
    ("check", "error"),
    [
        (tangrad._check, RuntimeError),
        (tangrad._check_index, IndexError),
        (tangrad._check_value, ValueError),
        (tangrad._check_type, TypeError),
        (tangrad._check_not_implemented, NotImplementedError),
    ],
)
def test_checks_raise_what_their_names_say(check, error):
    check(True)
    with pytest.raises(error, match="told"):
        check(False, lambda: "told")


def test_checks_take_no_tensors_for_conditions():
    with pytest.raises(TypeError, match="cond must be a bool"):
        tangrad._check(tangrad.tensor(True))
    tangrad._check_tensor_all(tangrad.tensor([True]))
    with pytest.raises(RuntimeError, match="Expected cond"):
        tangrad._check_tensor_all(tangrad.tensor([True, False]))


def test_half_complex_numbers_are_stored_and_converted():
    x = tangrad.tensor([1 + 2j, -3.5j]).to(tangrad.complex32)
    assert x.element_size() == 4
    assert x.to(tangrad.complex64).tolist() == [1 + 2j, -3.5j]


def test_an_alias_is_refused_beside_pytorch():
    done = subprocess.run(
        [sys.executable, "-m", "tangrad", "alias", "install"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "PyTorch itself is installed" in done.stderr


def test_refs_tell_the_shape_to_which_shapes_broadcast():
    from tangrad.compat.stand_in import PRIVATE

    shape_of = PRIVATE["_refs"]["_broadcast_shapes"]
    assert shape_of((3, 1), None, tangrad.ones(4).shape) == [3, 4]
    assert shape_of(()) == []
    assert shape_of(None, None) is None
    with pytest.raises(RuntimeError, match="broadcast"):
        shape_of((2,), (3,))


def test_products_of_refs_go_over_several_dimensions():
    from tangrad.compat.stand_in import PRIVATE

    prod = PRIVATE["_refs"]["prod"]
    x = tangrad.arange(1, 25, dtype=tangrad.float64).reshape(2, 3, 4)
    assert prod(x, (0, -1)).equal(x.prod(2).prod(0))
    assert prod(x, [0, 2], keepdim=True).shape == (1, 3, 1)
    assert prod(x).equal(prod(x, ()))
    assert prod(tangrad.tensor(3)).item() == 3
    assert prod(x.int(), (0, 1), dtype=tangrad.float32).dtype is tangrad.float32
    with pytest.raises(RuntimeError, match="twice"):
        prod(x, (0, 0))
    with pytest.raises(IndexError):
        prod(x, (0, 3))
