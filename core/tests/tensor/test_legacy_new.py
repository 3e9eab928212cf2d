"""`Tensor.new`, which old programs call, and storages made by hand."""

import pytest

import tangrad


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_new_has_the_dtype_and_takes_sizes_data_or_a_storage(agree, dtype):
    def program(F):
        x = F.ones(2, 3, dtype=getattr(F, dtype))
        made = [x.new(), x.new(2, 0), x.new(F.Size([0, 4])), x.new([1, 2]), x.new(x.storage())]
        return [[list(y.shape), str(y.dtype), y] for y in made]

    agree(program)


def test_new_of_a_storage_shares_it():
    x = tangrad.zeros(3)
    x.new(x.storage()).fill_(1)
    assert x.tolist() == [1, 1, 1]


def test_new_keeps_a_subclass_and_follows_the_device():
    class Mine(tangrad.Tensor):
        pass

    assert type(Mine([1.0]).new(2)) is Mine
    assert type(tangrad.nn.Parameter(tangrad.ones(1)).new(2)) is tangrad.Tensor
    assert tangrad.ones(1, device="meta").new(2).device.type == "meta"


@pytest.mark.parametrize("data", [3, [1, 2, 255], b"ab", [], -1])
def test_an_untyped_storage_by_hand(agree, data):
    def program(F):
        storage = F.UntypedStorage(data)
        shown = storage.tolist() if not isinstance(data, int) else []
        return [storage.nbytes(), str(storage.device), shown]

    agree(program, message=False)


def test_a_storage_that_was_never_made_is_refused():
    null = tangrad.UntypedStorage.__new__(tangrad.UntypedStorage)
    for use in (repr, list, lambda s: s.device, lambda s: tangrad.empty(0).set_(s)):
        with pytest.raises(RuntimeError, match="null Storage"):
            use(null)
    with pytest.raises(RuntimeError, match="already"):
        tangrad.UntypedStorage(2).__init__(3)


def test_a_tensor_without_elements_has_no_address(agree):
    def program(F):
        x = F.ones(2, 2)
        return [x[:0].data_ptr(), F.empty(0).data_ptr(), x[1:].data_ptr() == 0]

    agree(program)


@pytest.mark.parametrize("size", [(2, 3), (3,)])
def test_a_copy_into_elements_that_share_memory_is_refused(agree, size):
    agree(lambda F: F.zeros(1).expand(size).copy_(F.ones(size)), message=False)


def test_a_tensor_with_a_device_is_no_form_of_the_constructors():
    x = tangrad.tensor([1.0])
    for make in (tangrad.Tensor, tangrad.FloatTensor, x.new):
        with pytest.raises(RuntimeError, match=r"\(tensor, device=device\).* not supported"):
            make(x, device="cpu")
    assert x.new(x).tolist() == tangrad.FloatTensor(x).tolist() == [1]
