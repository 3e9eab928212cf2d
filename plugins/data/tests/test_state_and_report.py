"""A loader taken up again gives what is left of its pass; a report names the stage that is slow."""

import io
import multiprocessing
from types import SimpleNamespace

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

    def __init__(self, size=SIZE):
        self.size, self.asked = size, 0

    def __len__(self):
        return self.size

    def __getitem__(self, i):
        self.asked += 1
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


class Timed(Keys):
    """Takes ten milliseconds of a clock for a sample, and forty to collate four."""

    def __init__(self, clock, slow):
        super().__init__(60)
        self.clock, self.slow = clock, slow

    def __getitem__(self, i):
        self.clock.now += 0.01 * (self.slow == "samples")
        return i

    def collate(self, samples):
        self.clock.now += 0.04 * (self.slow == "collate")
        return samples


@pytest.fixture
def clock(monkeypatch):
    """The clock of `report`, standing still unless a test moves it; a process has its own."""
    from tangrad.utils.data import loading, worker

    clock = SimpleNamespace(now=1.0)
    for module in (loading, worker):
        monkeypatch.setattr(module, "perf_counter", lambda: clock.now)
    return clock


def reported(clock, slow, workers, step):
    dataset = Timed(clock, slow)
    loader = made(workers, dataset, collate_fn=dataset.collate)
    assert "no batch" in str(loader.report())
    for _ in loader:
        clock.now += step
    return loader.report()


@pytest.mark.parametrize("stage", ["samples", "collate"])
def test_a_report_names_the_stage_that_training_waits_for(clock, stage):
    report = reported(clock, stage, workers=0, step=0.01)
    wanted = {"samples": 0.0, "collate": 0.0, stage: 0.6, "first": 0.04, "wait": 0.56}
    wanted |= {"step": 0.14, "batches": 15, "transport": 0.0, "workers": 0}
    assert report._asdict() == pytest.approx(wanted)
    assert report.starved_by == stage
    assert f"The stage '{stage}' starves" in str(report)


def test_a_report_says_if_nothing_is_waited_for(clock):
    report = reported(clock, "samples", workers=0, step=1.0)
    assert report.starved_by is None
    assert "Nothing starves" in str(report)


@FORK
@pytest.mark.parametrize("stage", ["samples", "collate"])
def test_workers_tell_how_long_their_stages_took(clock, stage):
    report = reported(clock, stage, workers=1, step=0.05)
    wanted = {"samples": 0.0, "collate": 0.0, stage: 0.6, "step": 0.7, "batches": 15}
    assert {name: getattr(report, name) for name in wanted} == pytest.approx(wanted)


def test_the_conclusion_counts_workers():
    from tangrad.utils.data.report import Report

    report = Report(2, 100, 0.0, wait=8.0, step=2.0, samples=19.0, collate=0.5, transport=0.5)
    assert report.starved_by == "samples"
    assert "take 10 workers" in str(report)
    assert report._replace(samples=1.0).starved_by == "transport"
    assert report._replace(samples=0.5, collate=19.0).starved_by == "collate"
    assert report._replace(step=200.0).starved_by is None
