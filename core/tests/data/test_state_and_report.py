"""A loader taken up again gives what is left of its pass; a report names the stage that is slow."""

import io
import multiprocessing
import time

import pytest

import tangrad
from tangrad.utils import data

pytestmark = pytest.mark.filterwarnings(
    "ignore:This DataLoader will create", "ignore:.*use of fork.*:DeprecationWarning"
)
SIZE = 23
FORK = pytest.mark.skipif(
    "fork" not in multiprocessing.get_all_start_methods(), reason="workers are forked here"
)


class Keys(data.Dataset):
    """Gives its keys, and counts those that were asked for."""

    def __init__(self, size=SIZE, seconds=0.0):
        self.size, self.seconds, self.asked = size, seconds, 0

    def __len__(self):
        return self.size

    def __getitem__(self, i):
        self.asked += 1
        if self.seconds:
            time.sleep(self.seconds)
        return i


class Stream(data.IterableDataset):
    def __iter__(self):
        return iter(range(SIZE))


def made(workers=0, dataset=None, **options):
    options.setdefault("batch_size", 4)
    if workers:
        options.update(num_workers=workers, multiprocessing_context="fork")
    return data.DataLoader(Keys() if dataset is None else dataset, **options)


def lists(batches):
    return [batch.tolist() for batch in batches]


def weighted(generator=None):
    return data.WeightedRandomSampler([1.0 + i for i in range(SIZE)], SIZE, generator=generator)


ORDERS = {
    "in order": dict,
    "shuffled": lambda: {"shuffle": True},
    "with a generator": lambda: {
        "shuffle": True,
        "generator": tangrad.Generator().manual_seed(7),
    },
    "with replacement": lambda: {
        "sampler": data.RandomSampler(
            Keys(), replacement=True, generator=tangrad.Generator().manual_seed(3)
        )
    },
    "weighted": lambda: {"sampler": weighted()},
    "incomplete left out": lambda: {"shuffle": True, "drop_last": True},
    "batch sampler": lambda: {
        "batch_size": 1,
        "batch_sampler": data.BatchSampler(weighted(tangrad.Generator().manual_seed(5)), 3, False),
    },
    "single samples": lambda: {"shuffle": True, "batch_size": None},
}


@FORK
@pytest.mark.parametrize("workers", [(0, 0), (0, 2), (2, 1), (3, 0)], ids=str)
@pytest.mark.parametrize("order", ORDERS)
def test_what_is_left_of_a_pass_is_the_same(order, workers):
    before, after = workers
    tangrad.manual_seed(1)
    loader = made(before, **ORDERS[order]())
    lists_of = (lambda it: [int(x) for x in it]) if order == "single samples" else lists
    iterator = iter(loader)
    given = lists_of(next(iterator) for _ in range(3))
    stream = io.BytesIO()
    tangrad.save(loader.state_dict(), stream)
    rest = lists_of(iterator)
    tangrad.manual_seed(99)  # another process has another state
    resumed = made(after, **ORDERS[order]())
    stream.seek(0)
    resumed.load_state_dict(tangrad.load(stream))
    own = tangrad.get_rng_state()
    assert lists_of(resumed) == rest
    if "generator" not in ORDERS[order]():
        assert tangrad.equal(tangrad.get_rng_state(), own)
    assert len(given) == 3
    assert rest


def test_later_passes_are_the_same_with_a_generator_of_its_own():
    def program(stop):
        loader = made(shuffle=True, generator=tangrad.Generator().manual_seed(2))
        seen = []
        for _ in range(3):
            for batch in loader:
                seen.append(batch.tolist())
                if len(seen) == stop:
                    state = loader.state_dict()
                    loader = made(shuffle=True, generator=tangrad.Generator())
                    loader.load_state_dict(state)
                    for _ in range(3 - state["epoch"]):
                        seen += lists(loader)
                    return seen
        return seen

    whole = program(None)
    per_pass = -(-SIZE // 4)
    for stop in (1, per_pass - 1, per_pass + 2, 2 * per_pass + 1):
        assert program(stop) == whole


def test_between_passes_the_next_one_begins():
    loader = made(shuffle=True, generator=tangrad.Generator().manual_seed(2))
    list(loader)
    state = loader.state_dict()
    assert (state["epoch"], state["batches"]) == (1, 0)
    again = made(shuffle=True, generator=tangrad.Generator())
    again.load_state_dict(state)
    assert again.state_dict()["epoch"] == 1
    assert lists(again) == lists(loader)


def test_a_state_that_was_loaded_is_the_state():
    loader = made(shuffle=True)
    next(iter(loader))
    state = loader.state_dict()
    again = made(shuffle=True)
    again.load_state_dict(state)
    assert again.state_dict()["batches"] == 1
    iterator = iter(again)
    next(iterator)
    assert again.state_dict()["batches"] == 2


def test_dropped_samples_are_not_loaded():
    loader = made()
    iterator = iter(loader)
    next(iterator), next(iterator)
    dataset = Keys()
    again = made(dataset=dataset)
    again.load_state_dict(loader.state_dict())
    list(again)
    assert dataset.asked == SIZE - 8


@FORK
@pytest.mark.parametrize("workers", [0, 2])
def test_a_stream_is_read_again(workers):
    loader = made(workers, Stream())
    iterator = iter(loader)
    next(iterator), next(iterator)
    state, rest = loader.state_dict(), lists(iterator)
    again = made(workers, Stream())
    again.load_state_dict(state)
    assert lists(again) == rest
    other = made(1, Stream())
    with pytest.raises(ValueError, match="same batches"):
        other.load_state_dict(state)


@FORK
def test_persistent_workers_are_resumed_within_and_across_processes():
    def loader():
        return made(2, shuffle=True, persistent_workers=True)

    first = loader()
    list(first)
    iterator = iter(first)
    next(iterator)
    state, rest = first.state_dict(), lists(iterator)
    second = loader()
    second.load_state_dict(state)
    assert lists(second) == rest
    second.load_state_dict(state)
    assert lists(second) == rest


@pytest.mark.parametrize(
    "options",
    [{"batch_size": 5}, {"drop_last": True}, {"dataset": Keys(SIZE + 1)}],
    ids=lambda options: next(iter(options)),
)
def test_a_state_of_other_batches_is_refused(options):
    loader = made()
    next(iter(loader))
    with pytest.raises(ValueError, match="same batches"):
        made(**options).load_state_dict(loader.state_dict())


@pytest.mark.parametrize("state", [{}, None, {"version": 99}])
def test_what_is_no_state_is_refused(state):
    with pytest.raises(ValueError, match="state_dict"):
        made().load_state_dict(state)


@FORK
def test_batches_as_they_come_have_no_state():
    loader = made(2, in_order=False)
    assert loader.state_dict()["batches"] == 0
    iterator = iter(loader)
    next(iterator)
    with pytest.raises(ValueError, match="in_order"):
        loader.state_dict()


def slow_collate(samples):
    time.sleep(0.04)
    return samples


@FORK
@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("stage", ["samples", "collate", None])
def test_a_report_names_the_slow_stage(stage, workers):
    # A batch takes 40 ms in the slow stage: on a busy machine pipes and wake-ups take several.
    dataset = Keys(60, 0.01 if stage == "samples" else 0.0)
    options = {"collate_fn": slow_collate} if stage == "collate" else {}
    loader = made(workers, dataset, **options)
    assert "no batch" in str(loader.report())
    for _ in loader:
        time.sleep(0.05 if stage is None else 0.0)
    report = loader.report()
    assert report.batches == 15
    assert report.starved_by == stage
    slowest = max(("samples", "collate"), key=lambda name: getattr(report, name))
    assert stage in (None, slowest)
    assert report.wait + report.first < (1.0 if stage is None else 30.0)
    text = str(report)
    assert (f"The stage '{stage}' starves" if stage else "Nothing starves") in text


def test_the_conclusion_counts_workers():
    from tangrad.utils.data.report import Report

    report = Report(2, 100, 0.0, wait=8.0, step=2.0, samples=19.0, collate=0.5, transport=0.5)
    assert report.starved_by == "samples"
    assert "take 10 workers" in str(report)
    assert report._replace(samples=1.0).starved_by == "transport"
    assert report._replace(step=200.0).starved_by is None
