"""`.data` of tensors without memory of their own: those that `__torch_dispatch__` serves."""

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
