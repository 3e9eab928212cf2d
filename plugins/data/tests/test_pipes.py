"""The pipes that chains are made of, compared with PyTorch's, and loaders over them."""

import functools
import io
import json
import pickle

import pytest

import tangrad
from tangrad.utils import data
from tangrad.utils.data.datapipes.iter import FileLister, FileOpener, IterableWrapper
from tangrad.utils.data.datapipes.utils.common import StreamWrapper
from tangrad.utils.data.graph import traverse_dps


def double(x):
    return 2 * x


def plus(x, y):
    return x + y


def is_even(x):
    return x % 2 == 0


def third(x):
    return x % 3


def third_or_none(x):
    return x % 3 or None


def told(pipe):
    """Return what a pipe hands on, and its length if it has one."""
    samples = list(pipe)
    try:
        return [samples, len(pipe)]
    except TypeError as error:
        return [samples, str(error)]


def wrapped(t, items):
    return t.utils.data.datapipes.iter.IterableWrapper(items)


CHAINS = {
    "map": lambda p, t: p.map(double),
    "map of columns": lambda p, t: p.zip(p.map(double)).map(plus, input_col=[0, 1]),
    "map to the end": lambda p, t: p.zip(wrapped(t, "abcdefg")).map(
        double, input_col=1, output_col=-1
    ),
    "map of a column": lambda p, t: wrapped(t, [{"a": 1}, {"a": 2}]).map(
        double, input_col="a", output_col="b"
    ),
    "filter": lambda p, t: p.filter(is_even),
    "filter by a column": lambda p, t: p.zip(p.map(double)).filter(is_even, input_col=0),
    "batch": lambda p, t: p.batch(3),
    "batch, drop": lambda p, t: p.batch(3, drop_last=True),
    "unbatch": lambda p, t: p.batch(3).unbatch(),
    "unbatch two": lambda p, t: p.batch(2).batch(2).unbatch(unbatch_level=2),
    "unbatch all": lambda p, t: p.batch(2).batch(2).unbatch(unbatch_level=-1),
    "unbatch too deep": lambda p, t: p.unbatch(),
    "unbatch wrongly": lambda p, t: p.unbatch(unbatch_level=-2),
    "collate": lambda p, t: p.batch(2).collate(sum),
    "concat": lambda p, t: p.concat(wrapped(t, [7, 8])),
    "zip": lambda p, t: p.zip(wrapped(t, "abc")),
    "mux": lambda p, t: p.mux(wrapped(t, "abc")),
    "sharding": lambda p, t: p.sharding_filter(),
    "group": lambda p, t: p.groupby(third),
    "group, small buffer": lambda p, t: p.groupby(third, buffer_size=3, group_size=2),
    "group, dropping": lambda p, t: p.groupby(
        third, buffer_size=3, group_size=3, guaranteed_group_size=2, drop_remaining=True
    ),
    "group, too small": lambda p, t: p.groupby(third, buffer_size=3, group_size=3),
    "group, keys": lambda p, t: p.groupby(third, keep_key=True, group_size=2),
}


@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_hands_on_what_pytorchs_does(agree, name):
    agree(lambda t: told(CHAINS[name](wrapped(t, range(7)), t)), message=False)


WRONG = {
    "no batch": lambda p: p.batch(0),
    "no bool": lambda p: list(p.filter(double)),
    "output without input": lambda p: p.map(double, output_col=1),
    "several outputs": lambda p: p.map(double, input_col=0, output_col=[1, 2]),
    "too few arguments": lambda p: p.map(double, input_col=[0, 1]),
    "too many arguments": lambda p: p.map(plus),
    "no function": lambda p: p.map(3),
    "no fork": lambda p: p.fork(0),
    "unknown copy": lambda p: p.fork(2, copy="flat"),
    "no pipe": lambda p: p.concat([1]),
    "no pipe to zip": lambda p: p.zip([1]),
    "unknown mode": lambda p: p.open_files(mode="w"),
    "encoded bytes": lambda p: p.open_files(mode="b", encoding="utf-8"),
    "no such part": lambda p: p.sharding_filter().apply_sharding(2, 2),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_chain_is_the_error_that_pytorchs_is(agree, name):
    agree(lambda t: WRONG[name](wrapped(t, range(7))), message=False)


@pytest.mark.filterwarnings("ignore:Some child DataPipes|Unlimited buffer")
@pytest.mark.parametrize("name", ["fork", "demux"])
def test_several_pipes_of_one_share_its_samples(agree, name):
    def program(t):
        source = wrapped(t, range(9))
        pipes = source.fork(3) if name == "fork" else source.demux(3, third)
        found = [list(pipe) for pipe in pipes]
        found.append([list(pipe) for pipe in reversed(pipes)])
        begun = iter(pipes[0])
        found.append(next(begun))
        found.append(list(pipes[1]))
        list(pipes[0])
        try:
            next(begun)
        except RuntimeError as error:
            found.append("invalidated" in str(error))
        return found

    agree(program)


def test_a_buffer_that_is_too_small_is_an_error(agree):
    def fork(t):
        first, second = wrapped(t, range(9)).fork(2, buffer_size=4)
        pairs = list(zip(first, second, strict=True))
        return [pairs, list(first)]

    def demux(t):
        first, _ = wrapped(t, [1, 1, 1, 0]).demux(2, double, buffer_size=2)
        return list(first)

    agree(fork, message=False)
    agree(demux, message=False)
    agree(
        lambda t: [list(p) for p in wrapped(t, range(5)).demux(3, third_or_none, drop_none=True)],
        message=False,
    )


def test_copies_of_a_forked_sample_are_apart():
    first, second = IterableWrapper([[1]]).fork(2, copy="deep")
    next(iter(first)).append(2)
    assert list(second) == [[1]]


def test_an_iterable_is_copied_for_each_pass():
    held = [[1]]
    pipe = IterableWrapper(held)
    next(iter(pipe)).append(2)
    assert list(pipe) == held == [[1]]
    with pytest.warns(UserWarning, match="can not be deepcopied"):
        assert list(IterableWrapper(x for x in "ab")) == ["a", "b"]


def test_files_are_listed_opened_read_and_decoded(tmp_path):
    (tmp_path / "b.txt").write_text("two\nlines\n")
    (tmp_path / "a.json").write_text(json.dumps({"one": 1}))
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "c.cls").write_text("3")
    paths = list(FileLister(str(tmp_path), recursive=True))
    assert paths == [str(tmp_path / name) for name in ("a.json", "b.txt", "inner/c.cls")]
    assert list(FileLister([str(tmp_path)], "*.txt")) == [str(tmp_path / "b.txt")]
    texts = FileLister(str(tmp_path), "*.txt").open_files()
    assert list(texts.read_from_stream(4)) == [
        (paths[1], part) for part in ("two\n", "line", "s\n")
    ]
    opened = FileOpener(FileLister(str(tmp_path), recursive=True), mode="b")
    assert [value for _, value in opened.routed_decode()] == [{"one": 1}, "two\nlines\n", 3]
    with pytest.raises(FileNotFoundError):
        list(IterableWrapper([str(tmp_path / "none")]).open_files())
    with pytest.raises(TypeError, match="doesn't have valid length"):
        len(opened)


def test_a_stream_closes_with_the_last_stream_out_of_it():
    parent = StreamWrapper(io.BytesIO(b"archive"))
    children = [StreamWrapper(io.BytesIO(b"member"), parent) for _ in range(2)]
    parent.autoclose()
    children[0].close()
    assert not parent.closed
    assert children[1].read() == b"member"
    StreamWrapper.close_streams({"sample": (children[1], 3)})
    assert parent.closed
    assert parent.file_obj.closed
    with pytest.raises(RuntimeError, match="should be StreamWrapper"):
        StreamWrapper(io.BytesIO(), parent_stream=3)


def test_pipes_by_key(agree):
    def program(t):
        d = t.utils.data.datapipes.map
        pipe = d.SequenceWrapper(list(range(7)))
        chains = [
            pipe.map(double),
            pipe.batch(3),
            pipe.batch(3, drop_last=True),
            pipe.concat(d.SequenceWrapper("ab")),
            pipe.zip(d.SequenceWrapper("abc")),
        ]
        found = [[len(chain), [chain[k] for k in range(len(chain))]] for chain in chains]
        shuffled = d.Shuffler(pipe, indices=[1, 3, 5]).set_seed(4)
        return [*found, list(shuffled), list(shuffled.set_shuffle(False)), len(shuffled)]

    agree(program)
    agree(lambda t: t.utils.data.datapipes.map.SequenceWrapper([1, 2, 3]).batch(2)[2])
    agree(lambda t: t.utils.data.datapipes.map.SequenceWrapper([1]).zip([2]), message=False)


def test_the_graph_of_a_chain_has_its_pipes(agree):
    def program(t):
        d = t.utils.data
        first, second = wrapped(t, range(4)).map(double).fork(2)
        end = first.zip(second).shuffle().sharding_filter()

        def shape(graph):
            return [[type(pipe).__name__, shape(inner)] for pipe, inner in graph.values()]

        settings = __import__(f"{t.__name__}.utils.data.graph_settings", fromlist=["x"])
        pipes = settings.get_all_graph_pipes(d.graph.traverse_dps(end))
        settings.apply_sharding(end, 2, 1)
        settings.apply_shuffle_settings(end, False)
        return [shape(d.graph.traverse_dps(end)), len(pipes), list(end)]

    agree(program)
    with pytest.raises(RuntimeError, match="Expected `IterDataPipe` or `MapDataPipe`"):
        traverse_dps([1])


def test_samples_are_not_shared_out_twice():
    from tangrad.utils.data.graph_settings import apply_sharding

    pipe = IterableWrapper(range(4)).sharding_filter().map(double).sharding_filter()
    with pytest.raises(RuntimeError, match="Sharding twice"):
        apply_sharding(pipe, 2, 0)


def chain(t=tangrad, size=20, shuffle=True):
    return wrapped(t, range(size)).shuffle().set_shuffle(shuffle).map(double).sharding_filter()


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_workers_share_a_chain_out(workers):
    loader = data.DataLoader(chain(shuffle=False), 4, num_workers=workers)
    found = sorted(x for batch in loader for x in batch.tolist())
    assert found == list(range(0, 40, 2))


@pytest.mark.parametrize("workers", [0, 2])
def test_workers_shuffle_a_chain_alike(workers):
    tangrad.manual_seed(3)
    loader = data.DataLoader(
        chain(), None, shuffle=True, num_workers=workers, persistent_workers=workers > 0
    )
    passes = [[int(x) for x in loader] for _ in range(2)]
    assert passes[0] != passes[1]
    assert sorted(passes[0]) == sorted(passes[1]) == list(range(0, 40, 2))


@pytest.mark.parametrize("shuffle", [True, False, None])
def test_a_loader_over_a_chain_gives_pytorchs_order(agree, shuffle):
    engine = tangrad.random.get_engine()
    tangrad.random.set_engine("mt19937")

    def program(t):
        t.manual_seed(5)
        loader = t.utils.data.DataLoader(chain(t), 6, shuffle=shuffle)
        return [[batch.tolist() for batch in loader] for _ in range(2)]

    try:
        agree(program)
    finally:
        tangrad.random.set_engine(engine)


def test_a_chain_that_cannot_shuffle_gets_what_can():
    with pytest.warns(UserWarning, match="does not contain a `Shuffler`"):
        loader = data.DataLoader(IterableWrapper(range(30)), None, shuffle=True)
    found = [int(x) for x in loader]
    assert sorted(found) == list(range(30)) != found


def test_chains_are_pickled_where_they_stand():
    first, second = IterableWrapper(range(4)).fork(2)
    pipe = first.zip(second.map(functools.partial(plus, 1))).batch(2)
    assert list(pickle.loads(pickle.dumps(pipe))) == list(pipe)
