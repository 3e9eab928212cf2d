"""`.data` of tensors without memory of their own: those that `__torch_dispatch__` serves."""

import io
import pickle

import pytest

import tangrad
from tangrad.utils._pytree import tree_map


class Wrapper(tangrad.Tensor):
    __slots__ = ("inner",)

    @staticmethod
    def __new__(cls, inner):
        made = tangrad.Tensor._make_wrapper_subclass(cls, inner.size(), dtype=inner.dtype)
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        args, kwargs = tree_map(lambda x: getattr(x, "inner", x), (args, kwargs or {}))
        return tree_map(
            lambda x: cls(x) if isinstance(x, tangrad.Tensor) else x, func(*args, **kwargs)
        )


def test_data_of_a_wrapper_is_one_too():
    # It used to be a plain tensor without memory, whose use ended the process.
    data = Wrapper(tangrad.tensor([1.0, 2.0])).data
    assert type(data) is Wrapper
    assert (data + 1).inner.tolist() == [2, 3]
    assert data.clone().inner.tolist() == [1, 2]


def test_data_is_not_exchanged_between_a_wrapper_and_a_tensor():
    plain = tangrad.ones(2)
    for target, value in ((plain, Wrapper(plain)), (Wrapper(plain), plain)):
        with pytest.raises(RuntimeError, match="unwrap it first"):
            target.data = value
    assert plain.tolist() == [1, 1]


def test_the_storage_of_a_wrapper_tells_its_size_and_has_no_memory():
    storage = Wrapper(tangrad.ones(3, 2)).untyped_storage()
    assert storage.nbytes() == storage.size() == len(storage) == 24
    for use in (
        storage.data_ptr,
        lambda: storage.resize_(0),
        lambda: storage.fill_(0),
        lambda: storage.copy_(storage),
        lambda: tangrad.empty(0).set_(storage),
        storage.tolist,
    ):
        with pytest.raises(RuntimeError, match="on an invalid python storage"):
            use()


def test_a_wrapper_is_set_to_the_storage_of_another():
    target, source = Wrapper(tangrad.ones(3)), Wrapper(tangrad.zeros(3))
    target.set_(source)
    assert target.untyped_storage() is source.untyped_storage()


class Slotted(tangrad.Tensor):
    __slots__ = ("unit",)


def _saved(x):
    file = io.BytesIO()
    tangrad.save(x, file)
    file.seek(0)
    return tangrad.load(file, weights_only=False)


@pytest.mark.parametrize("copied", [_saved, lambda x: pickle.loads(pickle.dumps(x))])
def test_files_and_pickles_hold_what_a_wrapper_wraps(copied):
    x = Wrapper(tangrad.tensor([[1.0, 2.0]]))
    back = copied(x)
    assert type(back) is Wrapper
    assert (back.shape, back.inner.tolist()) == ((1, 2), [[1, 2]])
    assert (back + 1).inner.tolist() == [[2, 3]]


@pytest.mark.parametrize("copied", [_saved, lambda x: pickle.loads(pickle.dumps(x))])
def test_files_and_pickles_hold_the_slots_of_a_class(copied):
    x = tangrad.ones(2).as_subclass(Slotted)
    x.unit = "m"
    back = copied(x)
    assert (type(back), back.unit, back.tolist()) == (Slotted, "m", [1, 1])


def test_a_file_that_wraps_what_is_no_tensor_is_refused():
    from tangrad.tensor.pickling import rebuild_wrapper, wrapper_parts

    _, *parts = wrapper_parts(Wrapper(tangrad.ones(2)))
    with pytest.raises(TypeError, match="no tensor class"):
        rebuild_wrapper(dict, *parts)
