"""A traced graph takes batches of other sizes, or refuses them: it is never silently wrong."""

from __future__ import annotations

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
    with pytest.raises(RuntimeError, match="of its example, and of other batches"):
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
        lambda x: x * x.shape[0] ** 2,
        lambda x: (x, x.shape[0]),
        lambda x: x + 1 if x.shape[0] == 4 else x,
        lambda x: x[: max(4, x.shape[0])] * tangrad.ones(max(5, x.shape[0]))[0],
        lambda x: tangrad.stack(list(x)).sum(0),
        lambda x: x.view(4, 3) + 1,
        lambda x: tangrad.nn.functional.dropout(x, 0.5),
    ],
    ids=["power", "returned", "branch", "larger", "taken apart", "fixed", "random"],
)
@pytest.mark.filterwarnings("ignore::tangrad.jit.TracerWarning")
def test_what_depends_on_the_rows_otherwise_refuses_them(program):
    traced = jit.trace(program, tangrad.randn(4, 3))
    with pytest.raises(RuntimeError, match="holds for the sizes of its example: trace another"):
        traced(tangrad.randn(6, 3))


def test_sizes_other_than_the_rows_are_refused():
    traced = jit.trace(Network().eval(), tangrad.randn(2, 1, 5, 5))
    for shape in [(2, 1, 5, 6), (0, 1, 5, 5), (2, 25), ()]:
        with pytest.raises(RuntimeError, match="called with float32"):
            traced(tangrad.randn(shape))
