"""One recording serves calls of all sizes, to the bit; where it does not hold, another is made."""

from __future__ import annotations

import pytest

import tangrad
from tangrad import nn
from tangrad.nn import functional as F
from tangrad.plugin import get_driver

# The reference device's kernels are Python of the library, which may count by sizes: where one of
# these runs, each size is recorded.
BY_REFERENCE = not type(get_driver("cpu")).__module__.startswith("tangrad_cpu")


def compiled(function, **options):
    """Return a function compiled as one graph for all sizes, without comparing times."""
    options.setdefault("dynamic", True)
    return tangrad.compile(function, fullgraph=True, options={"measure": False}, **options)


def runs(fast):
    """Return how many runs of Python there were: recordings, and those prepared for other sizes."""
    return sum(event.startswith(("recorded", "prepared")) for event in fast.compiled.events)


def bits(item):
    return repr(item.tolist()) + str(item.stride())


FOLLOWED = {
    "no size is read": lambda x: (x * 2).relu().sum(-1),
    "a size is computed with": lambda x: x[: x.shape[0] // 2] * x.size(0),
    "a size scales": lambda x: x.sum(0) / x.shape[0],
    "a mean": lambda x: x.mean() + x.mean(0),
    "the mean's size is a kernel's number": lambda x: (x.sin() / x.shape[0] + 1).exp(),
    "views of sizes": lambda x: x.reshape(x.shape[0], 3, 1).expand(-1, -1, 4).reshape(-1, 4),
    "tensors of sizes": lambda x: x + tangrad.arange(x.shape[0]).reshape(-1, 1),
    "new tensors": lambda x: tangrad.cat([x, x.new_zeros(x.shape[0], 2)], 1),
    "a decision": lambda x: x * 2 if x.shape[0] > 3 else x.sum(0),
    "a shape handed on": lambda x: x * tangrad.ones(x.shape),
    "sizes that are compared": lambda x: x + 1 if x.shape == (x.shape[0], 3) else x,
    "the number of elements": lambda x: x.reshape(x.numel()) * 2,
}


@pytest.mark.parametrize("name", FOLLOWED)
def test_two_recordings_serve_all_sizes(name):
    function = FOLLOWED[name]
    fast = compiled(function)
    for n in (4, 6, 5, 9, 30, 100, 7, 5):
        x = tangrad.randn(n, 3)
        assert bits(fast(x)) == bits(function(x)), n
    assert runs(fast) == 2, fast.compiled.events


FIXED = {
    "a loop": lambda x: sum(row * k for k, row in zip(range(x.shape[0]), x, strict=True)),
    "a table": lambda x: x * ([1.0] * 6 + [2.0] * 99)[x.shape[0]],
    "a key": lambda x: x * {4: 10, 6: 10}.get(x.shape[0], 30),
    "the length": lambda x: x * (1 if len(x) < 7 else 2),
    "strides": lambda x: x * (1 if x.t().stride(1) < 99 and x.nbytes < 90 else 2),
    "chunks": lambda x: x.chunk(3)[1],
    "a text": lambda x: x * len(str(x.shape[0])),
}


@pytest.mark.parametrize("name", FIXED)
def test_what_is_not_followed_is_recorded_for_each_size(name):
    function = FIXED[name]
    fast = compiled(function)
    sizes = (4, 6, 5, 9, 30, 7, 100)
    for n in sizes:
        x = tangrad.randn(n, 3)
        assert bits(fast(x)) == bits(function(x)), n
    assert runs(fast) > 2
    assert not fast.compiled.off


def test_a_decision_by_a_size_is_a_condition():
    def function(x):
        return x * 2 if x.shape[0] > 6 else x.sum(0)

    fast = compiled(function)
    for n in (4, 5, 3, 12, 6, 20, 7, 30, 2, 40):
        x = tangrad.randn(n, 3)
        assert bits(fast(x)) == bits(function(x)), n
    assert runs(fast) == 4
    told = str(tangrad.compile.explain(fast, tangrad.randn(9, 3)))
    assert "s0 = args[0].shape[0]" in told
    assert "args[0].shape[0] > 6" in told
    assert "args[0].shape[0] <= 6" in told


def test_sizes_of_none_and_one_are_recorded_apart():
    fast = compiled(lambda x: x.sum(0) * x.shape[0])
    for n in (4, 5, 1, 0, 7, 1, 0):
        x = tangrad.randn(n, 3)
        assert fast(x).tolist() == (x.sum(0) * n).tolist()
    assert runs(fast) == 4


def test_sizes_that_were_equal_stay_equal():
    fast = compiled(lambda x, y: x.sum() + y.sum())
    for n, m in ((4, 4), (6, 6), (7, 7), (5, 8), (9, 3), (2, 11), (8, 8)):
        x, y = tangrad.randn(n), tangrad.randn(m)
        assert float(fast(x, y)) == float(x.sum() + y.sum())
    assert runs(fast) == 4


def test_the_third_size_is_the_last_recorded_where_nothing_is_asked_for():
    fast = compiled(lambda x: x * x.shape[0], dynamic=None)
    for n in (4, 5, 6, 7, 8, 9):
        assert fast(tangrad.ones(n)).tolist() == [float(n)] * n
    assert runs(fast) == 3


def test_a_size_that_is_marked_static_is_recorded():
    fast = compiled(lambda x: x + 1)
    for n in (4, 5, 6, 7):
        x = tangrad.ones(n)
        if n > 5:
            tangrad._dynamo.mark_static(x, 0)
        fast(x)
    assert runs(fast) == 4


def test_gradients_from_outside_are_of_all_sizes():
    weight = tangrad.randn(3, 3, requires_grad=True)

    def function(x):
        return (x @ weight).tanh().sum(0), x.mean(1)

    fast = compiled(function)
    for n in (4, 6, 5, 11, 40):
        found = []
        for run in (fast, function):
            x = tangrad.arange(3.0 * n).reshape(n, 3).sin().requires_grad_()
            weight.grad = None
            a, b = run(x)
            (a.sum() * 2 + b.sum()).backward()
            found.append((bits(a), bits(b), bits(x.grad), bits(weight.grad)))
        assert found[0] == found[1], n
    assert runs(fast) == 2


def test_random_numbers_are_the_same_at_other_sizes():
    def function(x):
        return F.dropout(x, 0.5) + tangrad.randn(x.shape[0], 3)

    fast = compiled(function)
    for n in (4, 6, 5, 11, 40):
        x = tangrad.ones(n, 3)
        tangrad.manual_seed(n)
        wanted = bits(function(x))
        tangrad.manual_seed(n)
        assert bits(fast(x)) == wanted
    assert runs(fast) == 2 or BY_REFERENCE


def test_code_of_the_program_within_calls_of_the_library_is_not_followed():
    class Twice(tangrad.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * (2 if g.shape[0] < 7 else 3)

    def function(x):
        x = x.detach().requires_grad_()
        Twice.apply(x).sum().backward()
        return x.grad

    fast = compiled(function)
    for n in (4, 5, 9, 6, 12):
        assert fast(tangrad.ones(n)).tolist() == [2.0 if n < 7 else 3.0] * n
    assert runs(fast) == 5


def test_what_is_outside_is_guarded_at_every_size():
    scale = 3.5
    fast = compiled(lambda x: x * scale)
    for n, scale in ((2, 3.5), (3, 3.5), (4, 3.5), (4, 5.5), (7, 5.5), (2, 3.5)):
        x = tangrad.ones(n)
        assert fast(x).tolist() == [scale] * n


class Attention(nn.Module):
    """A block of a small GPT, whose code reads its sizes."""

    def __init__(self, width, heads, longest):
        super().__init__()
        self.heads, self.longest = heads, longest
        self.embed, self.place = nn.Embedding(11, width), nn.Embedding(longest, width)
        self.norm, self.qkv = nn.LayerNorm(width), nn.Linear(width, 3 * width)
        self.out, self.head = nn.Linear(width, width), nn.Linear(width, 11)
        self.register_buffer("mask", tangrad.ones(longest, longest).tril())

    def forward(self, tokens):
        batch, length = tokens.shape
        if length > self.longest:
            raise ValueError(length)
        x = self.embed(tokens) + self.place(tangrad.arange(length))
        q, k, v = self.qkv(self.norm(x)).split(x.shape[-1], dim=-1)
        shape = (batch, length, self.heads, x.shape[-1] // self.heads)
        q, k, v = (t.view(shape).transpose(1, 2) for t in (q, k, v))
        weights = (q @ k.transpose(-2, -1)) * (1.0 / q.size(-1) ** 0.5)
        weights = weights.masked_fill(self.mask[:length, :length] == 0, float("-inf"))
        mixed = weights.softmax(-1) @ v
        x = x + self.out(mixed.transpose(1, 2).contiguous().view(batch, length, -1))
        return self.head(F.gelu(x))


def gpt(n):
    tokens = (tangrad.arange(n * (n + 2)) * 7 % 11).reshape(n, n + 2)
    return tokens, (tokens + 1) % 11


def rows(n):
    return tangrad.arange(6.0 * n).reshape(n, 6).sin(), tangrad.arange(n) % 3


def images(n):
    return tangrad.arange(64.0 * n).reshape(n, 1, 8, 8).cos(), tangrad.arange(n) % 3


MODELS = {
    "mlp": (
        lambda: nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)),
        rows,
    ),
    "cnn": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 4, 3),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(36, 3),
        ),
        images,
    ),
    "gpt": (lambda: Attention(8, 2, 32), gpt),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_training_step_takes_batches_of_all_sizes(name):
    made, data = MODELS[name]

    def trained(fast):
        tangrad.manual_seed(0)
        model = made()
        optimizer = tangrad.optim.Adam(model.parameters(), lr=0.01)

        def step(x, y):
            optimizer.zero_grad()
            out = model(x)
            loss = F.cross_entropy(out.reshape(-1, out.shape[-1]), y.reshape(-1))
            loss.backward()
            optimizer.step()
            return loss

        run = compiled(step) if fast else step
        losses = [float(run(*data(n))) for n in (4, 4, 4, 6, 5, 9, 12, 6, 3)]
        return losses, [p.tolist() for p in model.parameters()], run

    losses, parameters, run = trained(True)
    assert (losses, parameters) == trained(False)[:2]
    assert runs(run) == 2 or BY_REFERENCE, run.compiled.events


def test_plans_of_many_sizes_share_one_arena():
    def function(x):
        return ((x @ x.t()).sin() @ x).cos() @ x.t()

    fast = compiled(function)
    for n in (8, 10, 40, 20, 30, 16):
        x = tangrad.randn(n, 8)
        assert bits(fast(x)) == bits(function(x))
    made = [e for e in fast.compiled.executables if e.plans[0]._shared_arena.lock.locked() is False]
    arenas = {id(e.plans[0]._shared_arena) for e in made}
    assert len(arenas) == 1
