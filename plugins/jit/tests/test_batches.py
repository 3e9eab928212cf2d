"""A traced graph takes batches of other sizes, or refuses them: it is never silently wrong."""

from __future__ import annotations

import copy
import io

import pytest

import tangrad
from tangrad import jit, nn


class Network(nn.Module):
    """Uses its batch's size in views, ranges and buffers."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)
        self.head = nn.Linear(36, 3)
        self.register_buffer("shift", tangrad.ones(1, 3))

    def forward(self, x, mask=None):
        rows = x.shape[0]
        x = self.norm(self.conv(x)).relu().view(rows, -1)
        x = self.head(x) + self.shift.expand(rows, 3)
        order = tangrad.arange(2 * rows).reshape(rows, 2).sum(1, keepdim=True)
        return x + order if mask is None else (x + order) * mask


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)

    def forward(self, x):
        return self.layer(x).mean(1)


CASES = {
    "network": (Network, (1, 5, 5)),
    "attention": (Attention, (3, 8)),
    "lstm": (lambda: nn.LSTM(8, 4, batch_first=True), (3, 8)),
}


def saved_and_loaded(traced):
    file = io.BytesIO()
    jit.save(traced, file)
    file.seek(0)
    return jit.load(file)


@pytest.mark.parametrize("form", [lambda t: t, saved_and_loaded, jit.freeze], ids="tlf")
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("case", CASES)
def test_batches_of_every_size_give_what_the_program_gives(case, rows, form):
    make, shape = CASES[case]
    program = make().eval()
    traced = form(jit.trace(program, tangrad.randn(rows, *shape)))
    for other in (1, 2, 3, 7, 40):
        x = tangrad.randn(other, *shape)
        tangrad.testing.assert_close(traced(x), program(x), rtol=1e-5, atol=1e-6)


def test_arguments_that_share_the_rows_change_together():
    program = Network().eval()
    traced = jit.trace(program, (tangrad.randn(2, 1, 5, 5), tangrad.ones(2, 3)))
    x, mask = tangrad.randn(4, 1, 5, 5), tangrad.rand(4, 3)
    tangrad.testing.assert_close(traced(x, mask), program(x, mask))
    with pytest.raises(RuntimeError, match="must match the size"):
        traced(x, mask[:3])


def test_an_argument_of_the_same_size_that_is_no_batch_stays_as_it_is():
    weight = tangrad.randn(3, 3)
    traced = jit.trace(lambda x, w: x @ w, (tangrad.randn(3, 3), weight))
    x = tangrad.randn(5, 3)
    assert traced(x, weight).equal(x @ weight)


def test_a_number_that_grows_with_the_rows_grows():
    traced = jit.trace(lambda x: x.sum(0) / x.shape[0] + 3 * x.shape[0], tangrad.randn(2, 3))
    x = tangrad.randn(7, 3)
    assert traced(x).equal(x.sum(0) / 7 + 21)


def test_gradients_of_another_batch():
    program = Network().eval()
    traced = jit.trace(program, tangrad.randn(2, 1, 5, 5))
    x = tangrad.randn(5, 1, 5, 5, requires_grad=True)
    (found,) = tangrad.autograd.grad(traced(x).square().sum(), x)
    (wanted,) = tangrad.autograd.grad(program(x).square().sum(), x)
    tangrad.testing.assert_close(found, wanted)


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x + 1 if x.shape[0] == 4 else x,
        lambda x: tangrad.stack(list(x)).sum(0),
        lambda x: x.view(4, 3) + 1,
    ],
    ids=["branch", "taken apart", "fixed"],
)
@pytest.mark.filterwarnings("ignore::tangrad.jit.TracerWarning")
def test_what_depends_on_the_rows_otherwise_refuses_them(program):
    traced = jit.trace(program, tangrad.randn(4, 3))
    told = "holds for the sizes of its example: trace another|too many values|invalid for input"
    with pytest.raises(RuntimeError, match=told):
        traced(tangrad.randn(6, 3))


def test_sizes_other_than_the_rows_are_refused():
    traced = jit.trace(Network().eval(), tangrad.randn(2, 1, 5, 5))
    for shape in [(2, 1, 5, 6), (2, 25), ()]:
        with pytest.raises(RuntimeError, match="called with float32|cannot be multiplied"):
            traced(tangrad.randn(shape))


class Counted(nn.Module):
    """Counts how often it runs."""

    def __init__(self):
        super().__init__()
        self.runs, self.layer = 0, nn.Dropout(0.5)

    def forward(self, x):
        self.runs += 1
        return self.layer(x) * 2


def test_a_program_runs_once():
    program = Counted().eval()
    traced = jit.trace(program, tangrad.randn(2, 3), check_trace=False)
    traced(tangrad.randn(2, 3))
    jit.optimize_for_inference(traced)
    assert program.runs == 1
    for rows in (5, 6, 7):
        assert traced(tangrad.ones(rows, 3)).tolist() == [[2.0] * 3] * rows
    assert program.runs == 1


@pytest.mark.parametrize(("write", "runs"), [(saved_and_loaded, 1), (jit.freeze, 3)])
def test_what_is_saved_or_frozen_takes_other_batches(write, runs):
    program = Counted().eval()
    other = write(jit.trace(program, tangrad.randn(2, 3), check_trace=False))
    assert program.runs == runs
    assert other(tangrad.ones(4, 3)).tolist() == [[2.0] * 3] * 4


def test_other_batches_are_as_the_program_was_when_it_was_traced():
    program = Counted().eval()
    with tangrad.no_grad():
        traced = jit.trace(program, tangrad.randn(2, 3), check_trace=False)
    program.train()
    assert traced(tangrad.ones(3, 3)).tolist() == [[2.0] * 3] * 3
    assert program.training
    assert program.layer.training


def test_a_batch_looked_for_while_others_follow_the_thread_is_no_part_of_what_they_see():
    inner = jit.trace(lambda x: (x * 3).relu(), tangrad.randn(2, 3), check_trace=False)
    outer = jit.trace(lambda x: inner(x) + 1, tangrad.ones(4, 3), check_trace=False)
    assert jit.export_opnames(outer) == ["aten::add", "aten::mul", "aten::relu"]
    assert outer(tangrad.ones(4, 3)).tolist() == [[4.0] * 3] * 4


def test_a_copy_of_a_traced_module_takes_other_batches():
    traced = copy.deepcopy(jit.trace(Counted().eval(), tangrad.randn(2, 3), check_trace=False))
    assert traced(tangrad.ones(3, 3)).tolist() == [[2.0] * 3] * 3
