"""Data sets, samplers, and the order in which samples come."""

from itertools import islice

import pytest

import tangrad
from tangrad.utils import data


class Squares:
    """Give squares, of any of the frameworks' Dataset."""

    @staticmethod
    def of(t, length=5):
        class Made(t.utils.data.Dataset):
            def __len__(self):
                return length

            def __getitem__(self, i):
                return i * i

        return Made()


def test_tensor_dataset_gives_rows():
    made = data.TensorDataset(tangrad.arange(6).reshape(3, 2), tangrad.arange(3))
    assert len(made) == 3
    assert [x.tolist() for x in made[1]] == [[2, 3], 1]
    with pytest.raises(AssertionError, match="Size mismatch"):
        data.TensorDataset(tangrad.ones(2), tangrad.ones(3))


CONCATENATED = {
    "first": lambda d: d[0],
    "across": lambda d: (len(d), [d[i] for i in range(len(d))]),
    "negative": lambda d: (d[-1], d[-8]),
    "sizes": lambda d: d.cumulative_sizes,
    "too negative": lambda d: d[-9],
    "outside": lambda d: d[8],
}


@pytest.mark.parametrize("case", CONCATENATED)
def test_concatenation_follows_pytorch(agree, case):
    agree(
        lambda t: CONCATENATED[case](Squares.of(t, 3) + Squares.of(t, 5)),
        message=case != "outside",
    )


def test_concatenation_of_nothing_or_of_streams_is_refused():
    class Stream(data.IterableDataset):
        pass

    for datasets in ([], [Stream()]):
        with pytest.raises(AssertionError):
            data.ConcatDataset(datasets)


def test_streams_chain():
    class Count(data.IterableDataset):
        def __iter__(self):
            return iter(range(3))

        def __len__(self):
            return 3

    both = Count() + Count()
    assert list(both) == [0, 1, 2, 0, 1, 2]
    assert len(both) == 6


def test_stacked_data_sets_give_tuples_or_dictionaries():
    a, b = Squares.of(tangrad), Squares.of(tangrad)
    assert data.StackDataset(a, b)[2] == (4, 4)
    assert data.StackDataset(x=a, y=b)[2] == {"x": 4, "y": 4}
    for bad in (lambda: data.StackDataset(), lambda: data.StackDataset(a, x=b)):
        with pytest.raises(ValueError, match="StackDataset"):
            bad()
    with pytest.raises(ValueError, match="Size mismatch"):
        data.StackDataset(a, Squares.of(tangrad, 4))


def test_a_subset_gives_the_chosen_samples():
    made = data.Subset(Squares.of(tangrad), [4, 0])
    assert len(made) == 2
    assert made[0] == 16
    assert made.__getitems__([1, 0]) == [0, 16]


SPLITS = {
    "numbers": [3, 2],
    "shares": [0.5, 0.3, 0.2],
    "shares with a rest": [0.33, 0.67],
    "too few": [3, 1],
    "share above one": [1.5, -0.5],
}


@pytest.mark.parametrize("case", SPLITS)
def test_random_splits_have_pytorchs_sizes(agree, case):
    def program(t):
        parts = t.utils.data.random_split(Squares.of(t, 5), SPLITS[case])
        assert sorted(i for part in parts for i in part.indices) == list(range(5))
        return [len(part) for part in parts]

    agree(program)


def test_an_empty_split_warns():
    with pytest.warns(UserWarning, match="might result in an empty dataset"):
        data.random_split(Squares.of(tangrad, 1), [0.9, 0.1])


def test_orders_are_drawn_where_their_generator_is_not_where_new_tensors_are():
    def orders():
        seeds = (tangrad.Generator().manual_seed(seed) for seed in range(4))
        source = Squares.of(tangrad, 9)
        parts = data.random_split(source, [4, 5], generator=next(seeds))
        samplers = [
            data.RandomSampler(source, generator=next(seeds)),
            data.RandomSampler(source, True, 40, generator=next(seeds)),
            data.SubsetRandomSampler(range(9), generator=next(seeds)),
            data.DistributedSampler(source, num_replicas=2, rank=0),
        ]
        return [*(part.indices for part in parts), *map(list, samplers)]

    expected = orders()
    tangrad.set_default_device("reference")
    try:
        assert orders() == expected
    finally:
        tangrad.set_default_device("cpu")


def test_random_orders_are_permutations_that_a_generator_repeats():
    source = Squares.of(tangrad, 20)
    orders = [
        list(data.RandomSampler(source, generator=tangrad.Generator().manual_seed(5)))
        for _ in range(2)
    ]
    assert sorted(orders[0]) == list(range(20))
    assert orders[0] == orders[1]
    sampler = data.RandomSampler(source)
    assert list(sampler) != list(sampler)


def test_random_draws_may_be_more_than_there_are_samples():
    source = Squares.of(tangrad, 5)
    drawn = list(data.RandomSampler(source, num_samples=12))
    assert len(drawn) == 12
    assert sorted(drawn[:5]) == sorted(drawn[5:10]) == list(range(5))
    drawn = list(data.RandomSampler(source, replacement=True, num_samples=100))
    assert len(drawn) == 100
    assert set(drawn) == set(range(5))


def test_other_samplers_draw_what_they_say():
    assert list(data.SequentialSampler([7, 8, 9])) == [0, 1, 2]
    assert sorted(data.SubsetRandomSampler([3, 5, 9])) == [3, 5, 9]
    weighted = data.WeightedRandomSampler([0.0, 1.0, 3.0], 200)
    drawn = list(weighted)
    assert len(weighted) == len(drawn) == 200
    assert set(drawn) == {1, 2}
    assert drawn.count(2) > 110
    assert sorted(data.WeightedRandomSampler([1.0, 1.0, 1.0], 3, replacement=False)) == [0, 1, 2]


@pytest.mark.parametrize("drop_last", [True, False])
@pytest.mark.parametrize("size", [1, 3, 4, 9])
def test_batches_of_keys_are_pytorchs(agree, size, drop_last):
    def program(t):
        sampler = t.utils.data.SequentialSampler(range(8))
        batches = t.utils.data.BatchSampler(sampler, size, drop_last)
        return [list(batches), len(batches)]

    agree(program)


WRONG = {
    "batch size": lambda d: d.BatchSampler([1], 0, False),
    "batch size by bool": lambda d: d.BatchSampler([1], True, False),
    "drop_last": lambda d: d.BatchSampler([1], 2, 1),
    "replacement": lambda d: d.RandomSampler([1], replacement=1),
    "number of samples": lambda d: d.RandomSampler([1], num_samples=-1),
    "weights": lambda d: d.WeightedRandomSampler([[1.0]], 1),
    "draws": lambda d: d.WeightedRandomSampler([1.0], 0),
    "weighted replacement": lambda d: d.WeightedRandomSampler([1.0], 1, 2),
    "data set": lambda d: d.Dataset()[0],
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arguments_raise_as_in_pytorch(agree, case):
    agree(lambda t: (WRONG[case](t.utils.data), None)[1], message=False)


def test_an_endless_sampler_is_fine_in_batches():
    def keys():
        while True:
            yield from range(3)

    batches = data.BatchSampler(keys(), 2, False)
    assert list(islice(batches, 2)) == [[0, 1], [2, 0]]


class Many(list):
    def __getitems__(self, keys):
        return [self[key] for key in keys if key < 2]


def test_stacked_data_sets_are_asked_for_many_samples_at_once(agree):
    def program(t):
        stack = t.utils.data.StackDataset
        return [
            stack(Many([1, 2, 3]), [4, 5, 6]).__getitems__([1, 0]),
            stack(a=Many([1, 2, 3]), b=[4, 5, 6]).__getitems__([1, 0]),
        ]

    agree(program)
    agree(lambda t: t.utils.data.StackDataset(Many([1, 2, 3])).__getitems__([2]), message=False)


@pytest.mark.parametrize("count", range(2, 40))
def test_shares_whose_sum_is_rounded_are_shares(count):
    parts = data.random_split(range(2 * count), [1 / count] * count)
    assert {len(part) for part in parts} <= {1, 2, 3}
    assert sorted(x for part in parts for x in part) == list(range(2 * count))
