"""Pipes, the decorators of their classes, and the sampler of processes that train together."""

import pickle

import pytest

import tangrad
from tangrad.utils import data


class Count(data.IterDataPipe[int]):
    def __init__(self, end):
        self.end = end
        self.resets = 0

    def __iter__(self):
        yield from range(self.end)

    def reset(self):
        self.resets += 1


class Lookup(data.MapDataPipe[int]):
    def __getitem__(self, key):
        return key * 2

    def __len__(self):
        return 3


@pytest.fixture
def functions(monkeypatch):
    """Let a test register functions that are gone afterwards."""
    monkeypatch.setattr(data.IterDataPipe, "functions", {})
    monkeypatch.setattr(data.MapDataPipe, "functions", {})


def test_a_new_iterator_resets_the_pipe_and_ends_the_old_one():
    pipe = Count(3)
    first = iter(pipe)
    assert next(first) == 0
    second = iter(pipe)
    assert next(second) == 0
    with pytest.raises(RuntimeError, match="invalidated because another iterator"):
        next(first)
    assert list(second) == [1, 2]
    assert pipe.resets == 2
    copy = pickle.loads(pickle.dumps(pipe))
    assert list(copy) == [0, 1, 2]
    assert repr(pipe) == "Count"


def test_pipes_are_loaded():
    assert [x.tolist() for x in data.DataLoader(Count(5), 2)] == [[0, 1], [2, 3], [4]]
    assert [x.tolist() for x in data.DataLoader(Lookup(), 2)] == [[0, 2], [4]]


def test_a_class_becomes_a_function_of_all_pipes(functions):
    @data.functional_datapipe("scaled")
    class Scale(data.IterDataPipe):
        """Scale all numbers."""

        def __init__(self, source, factor):
            self.source, self.factor = source, factor

        def __iter__(self):
            for x in self.source:
                yield x * self.factor

    assert list(Count(3).scaled(2).scaled(factor=5)) == [0, 10, 20]
    assert "scaled" in dir(Count(1))
    with pytest.raises(AttributeError, match="has no attribute 'scaled'"):
        _ = Lookup().scaled
    with pytest.raises(RuntimeError, match="already taken"):
        data.functional_datapipe("scaled")(Scale)
    with pytest.raises(TypeError, match="can only decorate"):
        data.functional_datapipe("listed")(list)

    @data.functional_datapipe("reversed")
    class Reverse(data.MapDataPipe):
        def __init__(self, source):
            self.source = source

        def __getitem__(self, key):
            return self.source[len(self.source) - 1 - key]

    assert Lookup().reversed()[0] == 4


def test_hooks_make_the_state_of_pipes():
    data.IterDataPipe.set_getstate_hook(lambda state: {**state, "end": 1})
    try:
        with pytest.raises(RuntimeError, match="existing getstate_hook"):
            data.IterDataPipe.set_getstate_hook(lambda state: state)
        assert list(pickle.loads(pickle.dumps(Count(3)))) == [0]
    finally:
        data.IterDataPipe.set_getstate_hook(None)
    data.IterDataPipe.set_reduce_ex_hook(lambda pipe: (Count, (2,)))
    try:
        assert list(pickle.loads(pickle.dumps(Count(3)))) == [0, 1]
    finally:
        data.IterDataPipe.set_reduce_ex_hook(None)


def test_pipes_that_are_not_deterministic_are_refused_where_that_is_asked_for(agree):
    def program(t):
        d = t.utils.data

        @d.non_deterministic
        class Always(d.IterDataPipe):
            pass

        @d.non_deterministic(lambda seed: seed is None)
        class Sometimes(d.IterDataPipe):
            def __init__(self, seed):
                pass

        made = [Always(), Sometimes(None)]
        with d.guaranteed_datapipes_determinism():
            made.append(Sometimes(1))
            for make in (Always, lambda: Sometimes(None)):
                try:
                    made.append(make())
                except TypeError as error:
                    made.append(str(error))
        made.append(Always())
        return [x if isinstance(x, str) else "made" for x in made]

    agree(program)


@pytest.mark.parametrize("wrong", [list, 3])
def test_only_pipes_are_declared_not_deterministic(agree, wrong):
    agree(lambda t: t.utils.data.non_deterministic(wrong))


# PyTorch's validation of types has no effect in 2.13, or fails: what follows is its documentation.


class Texts(data.IterDataPipe[str]):
    pass


class Anything(data.IterDataPipe):
    pass


@data.argument_validation
def take(pipe: data.IterDataPipe[int | None], other: int):
    return "taken"


def test_arguments_are_validated():
    assert take(Count(1), 1) == "taken"
    assert take(Anything(), other="not a pipe") == "taken"
    with pytest.raises(TypeError, match="'pipe' as a subtype of hint int | None, but found"):
        take(Texts(), 1)
    with pytest.raises(TypeError, match="'pipe' as a IterDataPipe, but found <class 'list'>"):
        take([1], 1)


class Pairs(data.IterDataPipe[tuple[int, str]]):
    def __init__(self, samples):
        self.samples = samples

    @data.runtime_validation
    def __iter__(self):
        yield from self.samples


@pytest.mark.parametrize("wrong", [(1, 2), 3, (1, "a", "b"), None])
def test_samples_are_validated(wrong):
    assert list(Pairs([(1, "a")])) == [(1, "a")]
    with pytest.raises(RuntimeError, match="Expected an instance as subtype of tuple"):
        list(Pairs([wrong]))
    with data.runtime_validation_disabled():
        assert list(Pairs([wrong])) == [wrong]


def test_only_iteration_is_validated(agree):
    agree(lambda t: t.utils.data.runtime_validation(len), message=False)


def test_chunks(agree):
    def program(t):
        chunk = t.utils.data.DataChunk(iter([1, 2]))
        return [chunk.as_str("  "), list(chunk), list(chunk.raw_iterator()), len(chunk)]

    agree(program)


@pytest.mark.parametrize("replicas", [1, 3, 20])
@pytest.mark.parametrize("size", [1, 7, 9])
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("shuffle", [False, True])
def test_parts_of_processes_are_those_of_pytorch(agree, replicas, size, drop_last, shuffle):
    engine = tangrad.random.get_engine()
    tangrad.random.set_engine("mt19937")

    def program(t):
        found = []
        for rank in {0, replicas - 1}:
            sampler = t.utils.data.DistributedSampler(
                range(size), replicas, rank, shuffle=shuffle, seed=3, drop_last=drop_last
            )
            sampler.set_epoch(2)
            found.append([len(sampler), list(sampler)])
        return found

    try:
        agree(program)
    finally:
        tangrad.random.set_engine(engine)


def test_a_part_must_be_one_of_the_parts(agree):
    agree(lambda t: t.utils.data.DistributedSampler([1], 2, 2))
    with pytest.raises(RuntimeError, match="pass num_replicas= and rank="):
        data.DistributedSampler([1])


class Numbers(data.IterDataPipe):
    def __iter__(self):
        return iter(range(10))

    def __len__(self):
        return 10


@pytest.mark.parametrize("size", [1, 3, 10])
def test_samples_are_shuffled_as_in_pytorch(size):
    torch = pytest.importorskip("torch")
    theirs = torch.utils.data.datapipes.iter.IterableWrapper(range(10))
    ours = Numbers().shuffle(buffer_size=size)
    assert type(ours).__module__.endswith("utils.data.datapipes.iter.combinatorics")
    expected = list(theirs.shuffle(buffer_size=size).set_seed(3))
    assert list(ours.set_seed(3)) == expected
    assert list(ours.set_shuffle(False)) == list(range(10))
    assert len(ours) == 10


def test_an_order_is_drawn_from_the_default_generator_where_no_seed_is_set():
    from tangrad.utils.data.datapipes.iter import Sampler

    def order():
        tangrad.manual_seed(1)
        return list(Numbers().shuffle())

    assert order() == order()
    assert sorted(order()) == list(Sampler(Numbers())) == list(range(10))
    with pytest.raises(ValueError, match="buffer_size must be at least 1, got 0"):
        Numbers().shuffle(buffer_size=0)
