"""What the rules of an op said of a call is kept for calls like it, and for no others."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import count
from threading import Thread
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tangrad
from tangrad import ops
from tangrad.ops.definition.define import op
from tangrad.random import philox

NUMBERS = count()  # an op's name can be taken once


class Rules:
    """An op whose rules count their calls."""

    def __init__(self, check: Any) -> None:
        self.checked = 0

        def counted(self_: Any, size: Any) -> None:
            self.checked += 1
            check(self_, size)

        self.op = op(
            f"planned_copy_{next(NUMBERS)}(Tensor x, int size) -> Tensor",
            check=lambda x, size: counted(x, size),
            shape=lambda x: x.shape,
            dtype=lambda x: tangrad.get_default_dtype(),
            reference=lambda np, x, size: x.astype(
                "float64" if tangrad.get_default_dtype() == tangrad.float64 else "float32"
            ),
            function=False,
            method=False,
            vjp="none: a test",
            samples=lambda s: [],
        )


def refuse_above_three(x: Any, size: int) -> None:
    if size > 3:
        raise ValueError("more than three")


def refuse_negative_elements(x: Any, size: int) -> None:
    if bool((x < 0).any()):
        raise ValueError("a negative element")


@pytest.fixture
def default_dtype() -> Iterator[None]:
    before = tangrad.get_default_dtype()
    yield
    tangrad.set_default_dtype(before)


def test_rules_are_asked_once_for_calls_that_are_alike() -> None:
    rules = Rules(refuse_above_three)
    for _ in range(5):
        rules.op(tangrad.ones(2, 3), 1)
    assert rules.checked == 1


def test_other_values_shapes_strides_and_dtypes_are_other_calls() -> None:
    rules = Rules(refuse_above_three)
    calls = [
        (tangrad.ones(2, 3), 1),
        (tangrad.ones(2, 3), 2),
        (tangrad.ones(3, 2), 1),
        (tangrad.ones(3, 2).t(), 1),
        (tangrad.ones(2, 3, dtype=tangrad.float64), 1),
    ]
    for x, size in calls:
        assert rules.op(x, size).shape == x.shape
    assert rules.checked == len(calls)
    with pytest.raises(ValueError, match="more than three"):
        rules.op(tangrad.ones(2, 3), 4)


def test_what_was_refused_is_refused_again() -> None:
    rules = Rules(refuse_above_three)
    for _ in range(2):
        with pytest.raises(ValueError, match="more than three"):
            rules.op(tangrad.ones(2), 4)
    assert rules.checked == 2


def test_a_check_that_looks_at_elements_is_run_every_time() -> None:
    rules = Rules(refuse_negative_elements)
    rules.op(tangrad.ones(2), 1)
    with pytest.raises(ValueError, match="a negative element"):
        rules.op(-tangrad.ones(2), 1)


def test_the_default_dtype_is_part_of_a_call(default_dtype: None) -> None:
    rules = Rules(refuse_above_three)
    x = tangrad.ones(2, dtype=tangrad.int64)
    assert rules.op(x, 1).dtype == tangrad.float32
    tangrad.set_default_dtype(tangrad.float64)
    assert rules.op(x, 1).dtype == tangrad.float64


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(4, 7), st.integers(1, 3), st.integers(1, 2), st.booleans()),
        min_size=1,
        max_size=12,
    )
)
def test_calls_in_any_order_give_what_torch_gives(calls: list[tuple[int, int, int, bool]]) -> None:
    for n, kernel, stride, transposed in calls:
        for library in (tangrad, torch):
            x = library.arange(2.0 * n * n).reshape(1, 2, n, n)
            x = x.transpose(2, 3) if transposed else x
            pooled = library.nn.functional.max_pool2d(x, kernel, stride)
            ordered, places = x[0, 0].sort(stride - 1, descending=transposed)
            results = [pooled.tolist(), pooled.shape, ordered.tolist(), places.tolist()]
            if library is tangrad:
                found = results
        assert found == results


@pytest.mark.parametrize("rounds", [1, 3])
def test_in_place_forms_write_into_their_tensor_each_time(rounds: int) -> None:
    x, y = tangrad.zeros(3, 2), torch.zeros(3, 2)
    for _ in range(rounds):
        for z, library in ((x, tangrad), (y, torch)):
            index, source = library.tensor([0, 2]), library.ones(2, 2)
            assert z.index_add_(0, index, source) is z
            assert z.index_add(0, index, source) is not z
            z.scatter_(0, library.tensor([[1, 1]]), z[:1] + 1)
            z.index_add_(0, index, z[:2].clone())
    assert x.tolist() == y.tolist()


def test_an_in_place_form_counts_as_a_write_each_time() -> None:
    x = tangrad.zeros(3)
    for _ in range(3):
        before = x._version
        x.index_fill_(0, tangrad.tensor([1]), 2.0)
        assert x._version > before


def test_a_tensor_whose_places_share_memory_is_refused_each_time() -> None:
    index, source = tangrad.tensor([0]), tangrad.ones(1, 2)
    tangrad.zeros(3, 2).index_add_(0, index, source)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="single memory location"):
            tangrad.zeros(1, 2).expand(3, 2).index_add_(0, index, source)


def test_the_check_of_a_reduction_is_asked_once_and_refuses_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    definition = ops.lookup("argmax").definition
    check, asked = definition.check, []

    def counted(self: Any, dim: Any) -> None:
        asked.append(dim)
        check(self, dim)

    monkeypatch.setattr(definition, "check", counted)
    x = tangrad.ones(5, 3, 7)
    for _ in range(3):
        assert tangrad.argmax(x, 1).shape == (5, 7)
    assert asked == [1]
    for _ in range(2):
        with pytest.raises(IndexError, match="non-zero size"):
            tangrad.argmax(tangrad.ones(5, 0), 1)
    assert asked == [1, 1, 1]


def test_a_check_that_warns_does_so_at_every_call() -> None:
    x = tangrad.empty(2)
    for _ in range(3):
        with pytest.warns(UserWarning, match="to - 1 is out of bounds"):
            x.random_(0, 2**40)


@pytest.mark.parametrize("own", [False, True], ids=["of the device", "given"])
def test_a_planned_draw_goes_on_where_the_stream_stands(own: bool) -> None:
    generator = tangrad.Generator().manual_seed(5) if own else None
    tangrad.manual_seed(5)
    x, found = tangrad.empty(3, 2), []
    for _ in range(3):
        found += x.uniform_(generator=generator).flatten().tolist()
    counters = philox.counters_for(6)
    wanted = [philox.uniform(5, i * counters, 6) for i in range(3)]
    assert found == [number for part in wanted for number in part.tolist()]


def test_a_planned_draw_follows_the_engine() -> None:
    pytest.importorskip("tangrad_mersenne", reason="the engine is a package of its own")
    x = tangrad.empty(3)
    x.uniform_()
    try:
        tangrad.random.set_engine("mt19937")
        tangrad.manual_seed(2)
        torch.manual_seed(2)
        assert x.uniform_().tolist() == torch.empty(3).uniform_().tolist()
    finally:
        tangrad.random.set_engine("philox")


def test_threads_are_never_given_the_same_counters() -> None:
    generator = tangrad.Generator().manual_seed(1)
    starts: list[int] = []

    def draw() -> None:
        starts.extend([generator.advance(1)[1] for _ in range(2000)])

    threads = [Thread(target=draw) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(starts) == list(range(8000))


def test_an_in_place_form_is_planned_where_its_result_would_be_contiguous(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x, places = tangrad.zeros(4), tangrad.tensor([1, 2])
    images = tangrad.zeros(3, 2, 4, 4).contiguous(memory_format=tangrad.channels_last)
    for _ in range(2):
        x[places] = 1.0
        images.index_fill_(0, places, 1.0)
    assert images.index_fill(0, places, 2.0).stride() == images.stride()

    def asked(*args: Any) -> Any:
        raise AssertionError("the rules were asked again")

    definition = tangrad.plugin.find_op("_index_put").definition
    monkeypatch.setattr(type(definition), "output_metas", asked)
    x[places] = 2.0
    assert x.tolist() == [0, 2, 2, 0]


def test_sizes_that_come_again_find_their_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [tangrad.arange(n * 3).reshape(n, 3) for n in range(1, 121)]
    for _ in range(4):  # more places, until all have theirs
        found = [x.flip(0).tolist() for x in rows]
        assert found == [x.tolist()[::-1] for x in rows]
    asked = []
    definition = tangrad.plugin.find_op("flip").definition
    rule = type(definition).output_metas
    monkeypatch.setattr(
        type(definition), "output_metas", lambda self, args: asked.append(1) or rule(self, args)
    )
    assert [x.flip(0).tolist() for x in rows] == found
    assert len(asked) < 60


def test_plans_grow_under_threads() -> None:
    rows = [tangrad.arange(n * 2).reshape(n, 2) for n in range(1, 300)]

    def turned(found: list[Any]) -> None:
        found.extend(x.roll(1, 0).tolist() for _ in range(3) for x in rows)

    results: list[list[Any]] = [[] for _ in range(3)]
    threads = [Thread(target=turned, args=(found,)) for found in results]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wanted = [[row[-1], *row[:-1]] for _ in range(3) for row in [x.tolist() for x in rows]]
    assert all(found == wanted for found in results)


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (2, 3, 2, 4, 5), (1, 3, 1, 1), (2, 3, 0, 5)])
def test_planned_results_keep_the_memory_format(shape: tuple[int, ...]) -> None:
    def found(library: Any) -> list[Any]:
        last = library.channels_last if len(shape) == 4 else library.channels_last_3d
        x = library.arange(float(math.prod(shape))).reshape(shape)
        calls = [x, x.contiguous(memory_format=last)] * 3
        joined = [library.cat([x, x], 1) for x in calls]
        return [(tuple(result.stride()), result.tolist()) for result in joined]

    ours = found(tangrad)
    assert ours == ours[:2] * 3
    assert ours == found(torch)


def test_results_of_other_dimensions_than_the_first_are_contiguous() -> None:
    x = tangrad.arange(2.0 * 4 * 3 * 5).reshape(2, 4, 3, 5)
    last = x.contiguous(memory_format=tangrad.channels_last)
    for _ in range(3):
        result, mean, rstd = tangrad.native_group_norm(last, None, None, 2, 4, 15, 2, 1e-5)
        assert result.is_contiguous(memory_format=tangrad.channels_last)
        assert mean.is_contiguous()
        assert rstd.stride() == (2, 1)
