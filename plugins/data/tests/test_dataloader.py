"""Collation, and loading in batches."""

import collections
import importlib
import warnings

import pytest

import tangrad
from tangrad.utils import data
from tangrad.utils.data.dataloader import (
    _DatasetKind,
    _MultiProcessingDataLoaderIter,
    _SingleProcessDataLoaderIter,
)

Point = collections.namedtuple("Point", "x y")


class Frozen(collections.abc.Mapping):
    """A mapping that cannot be changed or built from a dictionary."""

    def __getitem__(self, key):
        return {"a": 1}[key]

    def __iter__(self):
        return iter("a")

    def __len__(self):
        return 1


BATCHES = {
    "integers": lambda t: [1, 2],
    "floats": lambda t: [1.5, 2.0],
    "truths": lambda t: [True, False],
    "strings": lambda t: ["a", "b"],
    "bytes": lambda t: [b"a", b"b"],
    "tensors": lambda t: [t.ones(2), t.zeros(2)],
    "tuples": lambda t: [(1, t.ones(1)), (2, t.zeros(1))],
    "lists": lambda t: [[1, "a"], [2, "b"]],
    "dictionaries": lambda t: [{"a": 1, "b": [2.0]}, {"a": 3, "b": [4.0]}],
    "points": lambda t: [Point(1, 2), Point(3, 4)],
    "ordered": lambda t: [collections.OrderedDict(a=1), collections.OrderedDict(a=2)],
    "frozen": lambda t: [Frozen(), Frozen()],
    "unequal": lambda t: [[1], [1, 2]],
    "unknown": lambda t: [object(), object()],
    "sizes": lambda t: [t.ones(1), t.ones(2)],
}


def described(value):
    """Return a batch with the types and dtypes that its text would not tell."""
    if hasattr(value, "dtype"):
        return [str(value.dtype), value.tolist()]
    if isinstance(value, dict):
        return [type(value).__name__, {key: described(item) for key, item in value.items()}]
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, *map(described, value)]
    return value


@pytest.mark.parametrize("case", BATCHES)
def test_samples_are_collated_as_in_pytorch(agree, case):
    agree(
        lambda t: described(t.utils.data.default_collate(BATCHES[case](t))),
        message=case not in ("sizes", "unknown"),
    )


@pytest.mark.parametrize("case", ["tuples", "dictionaries", "points", "strings", "frozen"])
def test_samples_are_converted_as_in_pytorch(agree, case):
    agree(lambda t: described(t.utils.data.default_convert(BATCHES[case](t)[0])), message=False)


@pytest.mark.parametrize("function", ["default_collate", "default_convert"])
def test_arrays_become_tensors(agree, function):
    np = pytest.importorskip("numpy")
    samples = [[np.arange(3), np.float32(1.5), {"a": np.ones((2, 2))}]] * 2
    agree(lambda t: described(getattr(t.utils.data, function)(samples)))


ARRAYS = {
    "numbers": lambda np: [np.array(1), np.array(2)],
    "no rows": lambda np: [np.ones((0, 2)), np.ones((0, 2))],
    "transposed": lambda np: [np.arange(6).reshape(2, 3).T, np.ones((3, 2), "int64")],
    "mixed dtypes": lambda np: [np.ones(2, "float32"), np.ones(2, "int64")],
    "unequal": lambda np: [np.ones(2), np.ones(3)],
    "half": lambda np: [np.ones(2, "float16")] * 3,
    "foreign order": lambda np: [np.ones(2, ">f4")] * 2,
}


@pytest.mark.parametrize("case", ARRAYS)
def test_arrays_are_joined_as_in_pytorch(agree, case):
    np = pytest.importorskip("numpy")
    agree(
        lambda t: described(t.utils.data.default_collate(ARRAYS[case](np))),
        message=case not in ("unequal", "foreign order"),
    )


def test_a_batch_of_arrays_has_memory_of_its_own():
    np = pytest.importorskip("numpy")
    samples = [np.ones((2, 3), "float32") for _ in range(4)]
    batch = data.default_collate(samples)
    samples[0][:] = 7
    assert batch.shape == (4, 2, 3)
    assert batch.sum() == 24
    assert not batch._is_view()
    batch.resize_(8, 2, 3)


def test_arrays_of_strings_are_not_collated(agree):
    np = pytest.importorskip("numpy")
    agree(lambda t: t.utils.data.default_collate([np.array(["a"])] * 2), message=False)


def dataset(t, length=7):
    return t.utils.data.TensorDataset(t.arange(length), t.arange(length) * 10)


LOADERS = {
    "plain": lambda t: {},
    "batches": lambda t: {"batch_size": 3},
    "whole batches": lambda t: {"batch_size": 3, "drop_last": True},
    "single samples": lambda t: {"batch_size": None},
    "sampler": lambda t: {"batch_size": 2, "sampler": [5, 1, 0]},
    "batch sampler": lambda t: {"batch_sampler": [[0, 1], [6]]},
    "collate": lambda t: {"batch_size": 4, "collate_fn": len},
    "single collated": lambda t: {"batch_size": None, "collate_fn": lambda x: x[0] + 1},
}


@pytest.mark.parametrize("case", LOADERS)
def test_batches_are_pytorchs(agree, case):
    def program(t):
        loader = t.utils.data.DataLoader(dataset(t), **LOADERS[case](t))
        return [len(loader), described(list(loader)), described(list(loader))]

    agree(program)


@pytest.mark.parametrize("options", [{}, {"batch_size": 2}, {"batch_size": 2, "drop_last": True}])
def test_streams_are_loaded_in_batches(agree, options):
    def program(t):
        class Count(t.utils.data.IterableDataset):
            def __iter__(self):
                return iter(range(5))

            def __len__(self):
                return 5

        loader = t.utils.data.DataLoader(Count(), **options)
        return [len(loader), list(loader)]

    agree(program)


def test_a_stream_without_length_loads():
    class Endless(data.IterableDataset):
        def __iter__(self):
            return iter(int, 1)

    loader = iter(data.DataLoader(Endless(), batch_size=3))
    assert next(loader).tolist() == [0, 0, 0]
    with pytest.raises(TypeError):
        len(data.DataLoader(Endless()))


def test_shuffling_gives_a_new_order_each_time_and_repeats_by_generator():
    def orders(seed):
        generator = tangrad.Generator().manual_seed(seed)
        loader = data.DataLoader(dataset(tangrad, 30), 30, shuffle=True, generator=generator)
        return [next(iter(loader))[0].tolist() for _ in range(2)]

    first, second = orders(3)
    assert first != second
    assert sorted(first) == list(range(30))
    assert orders(3) == [first, second]


def test_a_data_set_may_give_many_samples_at_once():
    class Many(data.Dataset):
        def __len__(self):
            return 4

        def __getitems__(self, keys):
            return [key * 2 for key in keys]

    assert [batch.tolist() for batch in data.DataLoader(Many(), 2)] == [[0, 2], [4, 6]]


def test_an_error_in_the_data_set_reaches_the_caller():
    class Broken(data.Dataset):
        def __len__(self):
            return 1

        def __getitem__(self, i):
            raise RuntimeError("broken sample")

    with pytest.raises(RuntimeError, match="broken sample"):
        list(data.DataLoader(Broken()))


WRONG = {
    "sampler and shuffle": {"sampler": [0], "shuffle": True},
    "batch sampler and size": {"batch_sampler": [[0]], "batch_size": 2},
    "batch sampler and shuffle": {"batch_sampler": [[0]], "shuffle": True},
    "single samples dropped": {"batch_size": None, "drop_last": True},
    "prefetch": {"prefetch_factor": 2},
    "persistent": {"persistent_workers": True},
    "negative workers": {"num_workers": -1},
    "context": {"multiprocessing_context": "fork"},
    "batch size": {"batch_size": 0},
}


@pytest.mark.parametrize("case", WRONG)
def test_options_that_exclude_each_other_raise_as_in_pytorch(agree, case):
    def program(t):
        t.utils.data.DataLoader(dataset(t), **WRONG[case])

    agree(program, message=False)


@pytest.mark.parametrize("options", [{"shuffle": True}, {"sampler": [0]}, {"batch_sampler": [[0]]}])
def test_streams_have_an_order_of_their_own(agree, options):
    def program(t):
        class Count(t.utils.data.IterableDataset):
            def __iter__(self):
                return iter(())

        t.utils.data.DataLoader(Count(), **options)

    agree(program, message=False)


def test_the_main_process_is_no_worker():
    assert data.get_worker_info() is None


class _Keys:
    """Sample given keys."""

    def __init__(self, keys):
        self.keys = keys

    def __iter__(self):
        return iter(self.keys)

    def __len__(self):
        return len(self.keys)


ROWS = {
    "plain": lambda t, d: d,
    "subset": lambda t, d: t.utils.data.Subset(d, [5, 1, 3]),
    "subset of a subset": lambda t, d: t.utils.data.Subset(t.utils.data.Subset(d, [5, 1, 3]), [2]),
    "of tensors": lambda t, d: t.utils.data.Subset(d, t.tensor([5, 1])),
}


@pytest.mark.parametrize("kind", ["plain", "subset", "subset of a subset", "of tensors"])
def test_rows_of_tensors_are_the_batches_of_their_samples(agree, kind):
    def program(t):
        x = t.arange(12.0).view(6, 2).requires_grad_()
        made = ROWS[kind](t, t.utils.data.TensorDataset(x, t.arange(6).t()))
        batches = list(t.utils.data.DataLoader(made, batch_size=2))
        batches[0][0].sum().backward()
        return [(type(b).__name__, [c.tolist() for c in b]) for b in batches], x.grad.tolist()

    agree(program)


@pytest.mark.parametrize("keys", [[-1, 0], [True, False], [7], ["a"]], ids=str)
def test_keys_of_rows_mean_what_they_mean_one_by_one(agree, keys):
    def program(t):
        made = t.utils.data.TensorDataset(t.arange(6))
        loader = t.utils.data.DataLoader(made, batch_size=2, sampler=_Keys(keys))
        return [b[0].tolist() for b in loader]

    agree(program, message=False)


def test_samples_of_a_subclass_are_asked_for_one_by_one(agree):
    def program(t):
        class Negative(t.utils.data.TensorDataset):
            def __getitem__(self, index):
                return tuple(-x for x in super().__getitem__(index))

        made = Negative(t.arange(4))
        inner = t.utils.data.Subset(made, [1, 2])
        return [[b[0].tolist() for b in t.utils.data.DataLoader(d, 2)] for d in (made, inner)]

    agree(program)


def test_an_added_collation_is_used_for_rows_too(monkeypatch):
    table = dict(data._utils.collate.default_collate_fn_map)
    monkeypatch.setitem(
        data._utils.collate.default_collate_fn_map, tangrad.Tensor, lambda batch, **_: len(batch)
    )
    loader = data.DataLoader(data.TensorDataset(tangrad.arange(4)), batch_size=3)
    assert list(loader) == [[3], [1]]
    assert table != data._utils.collate.default_collate_fn_map


def test_a_loader_takes_the_type_of_its_elements():
    assert str(data.DataLoader[int]).endswith("DataLoader[int]")


def test_strings_of_numpy_stay_as_they_are():
    np = pytest.importorskip("numpy")
    names = np.array(["a", "b"])
    assert data.default_collate(names) is names
    assert data.default_collate([names[0], names[1]]) == ["a", "b"]


class Box:
    def __init__(self, value):
        self.value = value


COLLATED = {
    "nested": lambda t: [{"a": (Box(1), "x")}, {"a": (Box(2), "y")}],
    "tensors too": lambda t: [(Box(1), t.ones(2)), (Box(2), t.zeros(2))],
    "numbers and texts": lambda t: [(1, 2.5, b"x", True)] * 2,
    "a stranger": lambda t: [object()],
    "sizes that differ": lambda t: [[1], [1, 2]],
}


@pytest.mark.parametrize("case", COLLATED)
def test_samples_are_joined_by_functions_of_ones_own(agree, case):
    def program(t):
        place = importlib.import_module(f"{t.__name__}.utils.data._utils.collate")

        def boxes(batch, *, collate_fn_map=None):
            return place.collate([b.value for b in batch], collate_fn_map=collate_fn_map) * 10

        table = {**place.default_collate_fn_map, Box: boxes}
        return described(place.collate(COLLATED[case](t), collate_fn_map=table))

    agree(program, message=False)


def test_an_own_table_keeps_arrays_where_it_stacks_tensors_as_usual():
    np = pytest.importorskip("numpy")
    collate = data._utils.collate
    table = {**collate.default_collate_fn_map, Box: len}
    assert collate.collate([np.ones(2)] * 3, collate_fn_map=table).shape == (3, 2)
    with pytest.raises(TypeError, match="found <class 'numpy.ndarray'>"):
        collate.collate([np.ones(2)] * 3, collate_fn_map={Box: len})
    assert "found list" in collate.default_collate_err_msg_format.format("list")


class Claiming(data.IterableDataset):
    def __iter__(self):
        return iter(range(5))

    def __len__(self):
        return 3


@pytest.mark.parametrize("asked", ["never", "before", "in between", "by list"])
def test_a_length_binds_the_passes_that_begin_after_it_was_asked(asked):
    loader = data.DataLoader(Claiming(), batch_size=None)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        if asked == "before":
            len(loader)
        if asked == "by list":
            list(loader)
        else:
            for _ in loader:
                pass
        expected = 2 if asked == "before" else 0
        assert len(told) == expected
        if asked == "in between":
            len(loader)
            for _ in loader:
                pass
            assert len(told) == 2


class StandIn:
    """An object that stands for a loader by the names that PyTorch's iterators ask it for."""

    _IterableDataset_len_called, _auto_collation, drop_last, generator = None, False, False, None
    _index_sampler, prefetch_factor, _dataset_kind = range(100), 2, _DatasetKind.Iterable
    pin_memory, timeout, persistent_workers, worker_init_fn = False, 0, False, None
    pin_memory_device, multiprocessing_context = "", None

    def __init__(self, workers):
        self.dataset, self.num_workers = self, workers

    def collate_fn(self, batch):
        return batch

    def __iter__(self):
        return iter([tangrad.ones(2), tangrad.zeros(3)])


@pytest.mark.parametrize("workers", [0, 1])
def test_the_iterators_take_an_object_that_stands_for_a_loader(workers):
    kind = _MultiProcessingDataLoaderIter if workers else _SingleProcessDataLoaderIter
    stands = StandIn(workers)
    assert [batch.tolist() for batch in kind(stands)] == [[1, 1], [0, 0, 0]]
    assert vars(stands) == {"dataset": stands, "num_workers": workers}


def test_it_may_lack_what_a_loader_has_by_default():
    class Least:
        dataset, _index_sampler, _auto_collation = [5, 6, 7], [2, 0], False

        def collate_fn(self, sample):
            return -sample

    assert list(_SingleProcessDataLoaderIter(Least())) == [-7, -5]


def test_a_batch_is_pinned_by_its_containers(agree):
    class Kept(dict):
        """Has what a copy keeps."""

    class Own:
        def pin_memory(self, *device):
            return "pinned"

    def program(t):
        pin = importlib.import_module(f"{t.__name__}.utils.data._utils.pin_memory").pin_memory
        kept = Kept(a=Own(), b=[Own(), 2])
        kept.name = "kept"
        found = pin({"x": Point(Own(), "text"), "y": kept, "z": (1, Own()), "b": b"bytes"})
        return repr(found), found["y"].name, pin(range(3)), kept["b"][1]

    agree(program)
