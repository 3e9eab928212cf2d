"""`freeze` of scripts: attributes are constants, calls are written out, results stay."""

import copy
import io

import pytest
import torch
from script_sides import OURS, WANTED, close, outcome
from test_library_modules import CASES

import tangrad
from tangrad import jit, nn

pytestmark = pytest.mark.filterwarnings("ignore")
CLASSES = [cls.__name__ for cls, _ in WANTED.MODULES]


def read_again(module, side=tangrad):
    """Return what a side reads from the archive of a module."""
    file = io.BytesIO()
    module.save(file)
    return side.jit.load(io.BytesIO(file.getvalue()))


@pytest.mark.parametrize("name", CLASSES)
def test_a_frozen_module_does_what_its_original_does(name):
    (cls, calls), theirs = OURS.MODULES[CLASSES.index(name)], WANTED.MODULES[CLASSES.index(name)]
    plain = jit.script(cls().eval())
    frozen = jit.freeze(copy.deepcopy(plain))
    loaded, elsewhere = read_again(frozen), read_again(frozen, torch)
    wanted = torch.jit.freeze(torch.jit.script(theirs[0]().eval()))
    for args, given in zip(calls, theirs[1], strict=True):
        expected = outcome(plain, args)
        found = outcome(frozen, args)
        assert close(found, expected)
        assert outcome(loaded, args) == found
        other = outcome(elsewhere, given)
        assert close(other, outcome(wanted, given)) or close(other, expected)


@pytest.mark.parametrize(("name", "options", "shapes"), CASES)
def test_a_module_of_the_library_is_written_out(name, options, shapes):
    module = getattr(nn, name)(**options).eval()
    args = [tangrad.rand(*shape) for shape in shapes]
    alone = jit.freeze(jit.script(module))
    assert tangrad.allclose(alone(*args), module(*args), equal_nan=True)
    if len(args) == 1:
        frozen = jit.freeze(jit.script(nn.Sequential(module, nn.Identity()).eval()))
        assert not list(frozen.parameters())
        assert not list(frozen.children())
        assert tangrad.equal(frozen(*args), alone(*args))


class Stage(nn.Module):
    def __init__(self, inside: int, outside: int, transposed: bool = False) -> None:
        super().__init__()
        layer = nn.ConvTranspose2d if transposed else nn.Conv2d
        self.conv = layer(inside, outside, 3, bias=transposed)
        self.norm = nn.BatchNorm2d(outside, affine=not transposed)
        self.relu = nn.ReLU(inplace=True)
        self.rate: float | None = 0.5

    def forward(self, x):
        x = self.relu(self.norm(self.conv(x)))
        rate = self.rate
        if rate is not None:
            x = nn.functional.dropout(x, rate, self.training)
        return x


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stages = nn.ModuleList([Stage(1, 4), Stage(4, 4, True), Stage(4, 2)])
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(2 * 6 * 6, 3))
        self.weights = {"a": 2.0, "b": 0.5}
        self.sizes = [1, 2, 3]

    def forward(self, x):
        for k, stage in enumerate(self.stages):
            x = stage(x) * self.sizes[k]
        x = x + x if self.training else x
        return self.head(x) * self.weights["a"]

    @jit.export
    def scale(self, name: str) -> float:
        return self.weights[name] * len(self.sizes)


def net() -> nn.Module:
    """Return a model whose norms do something."""
    tangrad.manual_seed(0)
    made = Net()
    for module in made.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2.0)
    return made.eval()


@pytest.mark.parametrize("kind", ["scripted", "traced", "loaded", "traced and loaded"])
def test_norms_are_folded_into_convolutions(kind):
    model, x = net(), tangrad.rand(2, 1, 8, 8)
    made = jit.trace(model, x) if "traced" in kind else jit.script(model)
    made = read_again(made) if "loaded" in kind else made
    wanted = model(x)
    for frozen in (jit.freeze(made), jit.optimize_for_inference(made)):
        assert "batch_norm" not in frozen.code
        assert "dropout" not in frozen.code
        assert "If" not in str(frozen.graph)
        assert "GetAttr" not in str(frozen.graph)
        assert not list(frozen.parameters())
        assert not list(frozen.buffers())
        assert tangrad.allclose(frozen(x), wanted, atol=1e-5)
        other = read_again(frozen, torch)(torch.tensor(x.tolist()))
        assert torch.allclose(other, torch.tensor(wanted.tolist()), atol=1e-5)
    kept = jit.freeze(made, optimize_numerics=False)
    assert kept.code.count("batch_norm") == 3
    assert tangrad.equal(kept(x), made(x))


def test_attributes_and_methods_are_preserved():
    scripted = jit.script(net())
    plain = jit.freeze(scripted)
    assert not hasattr(plain, "sizes")
    assert not hasattr(plain, "scale")
    frozen = jit.freeze(scripted, ["scale", "sizes", "stages", "head.1.weight"])
    assert frozen.scale("b") == 1.5
    assert frozen.sizes == [1, 2, 3]
    assert len(frozen.stages) == 3
    assert frozen.get_submodule("head.1").weight is scripted.head[1].weight
    x = tangrad.rand(2, 1, 8, 8)
    frozen.sizes = [1, 2, 4]
    assert not tangrad.equal(frozen(x), plain(x))
    assert read_again(frozen, torch).scale("b") == 1.5
    with pytest.raises(RuntimeError, match="Unknown name: nothing"):
        jit.freeze(scripted, ["nothing"])
    with pytest.raises(RuntimeError, match="Unknown name: head.2"):
        jit.freeze(scripted, ["head.2"])


class Counting(nn.Module):
    seen: list[int]

    def __init__(self) -> None:
        super().__init__()
        self.count, self.step = 0, 2
        self.register_buffer("total", tangrad.zeros(2))
        self.register_buffer("rows", tangrad.zeros(2, 2))
        self.register_buffer("scale", tangrad.ones(2))
        self.seen = []
        self.named = {"a": 1}

    def forward(self, x):
        self.count += self.step
        self.total.add_(x)
        row = self.rows[0]
        row += x
        self.seen.append(self.count)
        return self.total * self.scale * self.named["a"] + self.rows


class Around(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = Counting(), Counting()

    def forward(self, x):
        return self.one(x) + self.two(x) * self.one.count


def test_what_is_set_or_written_stays_an_attribute():
    frozen, wanted = jit.freeze(jit.script(Around().eval())), Around().eval()
    loaded = read_again(frozen, torch)
    for k in range(3):
        x = tangrad.tensor([1.0, 2.0]) + k
        expected = wanted(x)
        assert tangrad.equal(frozen(x), expected)
        assert loaded(torch.tensor(x.tolist())).tolist() == expected.tolist()
    assert [n for n, _ in frozen.named_buffers()] == [
        "one.total",
        "one.rows",
        "two.total",
        "two.rows",
    ]
    assert frozen.one.count == 6
    assert frozen.one.seen == [2, 4, 6]
    assert not hasattr(frozen.one, "step")
    assert not hasattr(frozen.one, "scale")


def test_the_original_is_left_alone_but_for_what_is_written():
    model = Around().eval()
    scripted = jit.script(model)
    frozen = jit.freeze(scripted)
    frozen(tangrad.ones(2))
    assert scripted.one.count == 0
    assert scripted.one.seen == []
    assert frozen.one.total is model.one.total  # as in PyTorch, where buffers are shared


class Early(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Branching()

    def forward(self, x):
        y = self.inner(x)
        while bool(self.inner(y).sum() < 50):
            y = self.inner(y) + (self.inner(x) if x.size(0) > 1 else x)
        return [self.inner(y + k) for k in range(2)]


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(tangrad.tensor([1.0, 3.0]))
        self.most: int | None = None

    def forward(self, x):
        limit = self.most
        if limit is not None and x.size(0) > limit:
            return x
        for k in range(3):
            if bool(x.sum() > 10 * k):
                return x + self.weight
        return x * 2 * self.weight


def test_calls_that_return_early_stay_calls():
    model = Early().eval()
    frozen = jit.freeze(jit.script(model))
    assert not list(frozen.parameters())
    assert "inner" not in [n for n, _ in frozen.named_modules()]
    for x in (tangrad.ones(2), tangrad.ones(1, 2), tangrad.full((2,), 9.0)):
        again = [frozen, read_again(frozen)]
        for one in again:
            assert [t.tolist() for t in one(x)] == [t.tolist() for t in model(x)]
        theirs = read_again(frozen, torch)(torch.tensor(x.tolist()))
        assert [t.tolist() for t in theirs] == [t.tolist() for t in model(x)]


class Returning(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(tangrad.ones(2))
        self.table = [[1, 2], [3]]

    def forward(self, x):
        bias = self.weight * 2
        again = bias.view(-1)
        return x + self.weight.exp() * 3, again, self.table


def test_what_is_returned_belongs_to_the_caller():
    frozen = jit.freeze(jit.script(Returning().eval()))
    assert "exp" not in frozen.code
    _, given, table = frozen(tangrad.zeros(2))
    given.add_(1)
    table[0].append(5)
    assert frozen(tangrad.zeros(2))[1].tolist() == [2.0, 2.0]
    assert frozen(tangrad.zeros(2))[2] == [[1, 2], [3]]


def test_hooks_are_written_out():
    class Hooked(nn.Module):
        def forward(self, x: tangrad.Tensor) -> tangrad.Tensor:
            return x + 1

    def doubled(self, args: "tuple[tangrad.Tensor]", result: tangrad.Tensor) -> tangrad.Tensor:
        return result * 2

    model = Hooked().eval()
    model.register_forward_hook(doubled)
    outer = nn.Sequential(model, nn.Tanh()).eval()
    x = tangrad.rand(2)
    assert tangrad.equal(jit.freeze(jit.script(model))(x), model(x))
    assert tangrad.equal(jit.freeze(jit.script(outer))(x), outer(x))


def test_what_is_no_script_or_in_training_is_refused():
    for freezes, words in (
        (jit.freeze, "Freezing expects"),
        (jit.optimize_for_inference, "expects"),
    ):
        with pytest.raises(RuntimeError, match=f"{words}.* a? ?ScriptModule as input"):
            freezes(nn.Linear(2, 2))
    with pytest.raises(RuntimeError, match="eval mode"):
        jit.freeze(jit.script(nn.Linear(2, 2)))
    frozen = jit.freeze(jit.script(nn.Linear(2, 2)).eval())
    again = jit.freeze(frozen)
    x = tangrad.rand(1, 2)
    assert tangrad.equal(again(x), frozen(x))
    assert tangrad.equal(copy.deepcopy(frozen)(x), frozen(x))


def test_a_trace_that_writes_keeps_what_it_writes():
    class Summing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 2)
            self.register_buffer("total", tangrad.zeros(1, 2))

        def forward(self, x):
            self.total.add_(x)
            return self.layer(x) + self.total

    model, x = Summing().eval(), tangrad.ones(1, 2)
    frozen = jit.freeze(jit.trace(model, x, check_trace=False))
    assert [name for name, _ in frozen.named_buffers()] == ["total"]
    assert not list(frozen.parameters())
    for _ in range(2):
        before = model.total.clone()
        assert tangrad.equal(frozen(x), model.layer(x) + before + 1)
    assert frozen.total is model.total


def test_traces_preserve_attributes():
    model, x = net(), tangrad.rand(2, 1, 8, 8)
    frozen = jit.freeze(jit.trace(model, x), ["head"])
    assert frozen.get_submodule("head.1").weight is model.head[1].weight
    with tangrad.no_grad():
        model.head[1].weight.zero_()
    assert tangrad.allclose(frozen(x), model(x), atol=1e-5)
    with pytest.raises(RuntimeError, match="Unknown name: heads"):
        jit.freeze(jit.trace(model, x), ["heads"])


def test_statistics_that_are_updated_stay():
    class Normed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("low", tangrad.tensor([-1.0, 1.0]))
            self.register_buffer("mean", tangrad.zeros(2))
            self.register_buffer("variance", tangrad.ones(2))
            self.register_buffer("scale", tangrad.ones(2))

        def forward(self, x):
            low = nn.functional.relu(self.low, inplace=True)
            normed = nn.functional.batch_norm(
                x, self.mean, self.variance, self.scale, training=True
            )
            return normed + low

    frozen = jit.freeze(jit.script(Normed().eval()))
    assert [name for name, _ in frozen.named_buffers()] == ["low", "mean", "variance"]
    wanted, x = Normed().eval(), tangrad.rand(3, 2)
    assert tangrad.equal(frozen(x), wanted(x))
    assert tangrad.equal(frozen.mean, wanted.mean)


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3)
        self.factor, self.shift = tangrad.tensor(2.5), tangrad.tensor(2)
        self.register_buffer("each", tangrad.rand(3, 1, 1) + 1)
        self.register_buffer("width", tangrad.rand(4))

    def forward(self, x):
        y = self.norm(tangrad.add(tangrad.mul(self.conv(x), self.factor), self.shift))
        return y / self.each - 0.5, self.conv(x) * self.width


def test_sums_and_products_go_into_convolutions():
    model, x = Scaled().eval(), tangrad.rand(2, 2, 6, 6)
    for made in (jit.script(model), read_again(jit.trace(model, x))):
        frozen = jit.freeze(made)
        assert frozen.code.count("mul(") == 1
        assert not any(name in frozen.code for name in ("add", "sub", "div", "batch_norm"))
        for found, wanted in zip(frozen(x), model(x), strict=True):
            assert tangrad.allclose(found, wanted, atol=1e-5)


def test_a_module_is_folded_after_it_was_frozen():
    model, x = net(), tangrad.rand(2, 1, 8, 8)
    frozen = jit.freeze(jit.script(model), optimize_numerics=False)
    wanted = frozen(x)
    assert "batch_norm" in frozen.code
    jit.run_frozen_optimizations(frozen)
    assert "batch_norm" not in frozen.code
    assert tangrad.allclose(frozen(x), wanted, atol=1e-5)


def test_tuples_that_are_taken_apart_are_not_made():
    class Pairing(nn.Module):
        def forward(self, x):
            return x + 1, (x * 2, x)

    class Swapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.pair = Pairing()

        def forward(self, x):
            a, (b, c) = self.pair(x)
            a, b = b, a
            return a - b + c

    model, x = Swapped().eval(), tangrad.rand(3)
    frozen = jit.freeze(jit.script(model))
    assert "Tuple" not in str(frozen.graph)
    assert tangrad.equal(frozen(x), model(x))


def test_modules_of_one_type_change_places():
    class Shift(nn.Module):
        def __init__(self, by: float) -> None:
            super().__init__()
            self.by = nn.Parameter(tangrad.tensor(by))

        def forward(self, x):
            return x + self.by

    class Turning(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = Shift(1.0), Shift(2.0)
            self.now = self.one
            self.turn = 0

        def forward(self, x):
            self.turn += 1
            if self.turn % 2 == 1:
                self.now = self.one
            else:
                self.now = self.two
            return self.now(x)

    scripted = jit.script(Turning().eval())
    frozen = jit.freeze(scripted)
    x = tangrad.zeros(1)
    for module in (scripted, frozen):
        assert [module(x).item() for _ in range(4)] == [1.0, 2.0, 1.0, 2.0]
    scripted.now = jit.script(Shift(5.0))
    with pytest.raises(RuntimeError, match="for field 'now', but found"):
        scripted.now = jit.script(nn.Linear(1, 1))
