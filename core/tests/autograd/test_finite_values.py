"""detect_anomaly(check_finite=True): NaN and infinity, forward and backward, with their place."""

from __future__ import annotations

import queue
import sys
import threading

import pytest

import tangrad
from tangrad import _C, nn
from tangrad.autograd import detect_anomaly
from tangrad.optim.finite import NonFiniteError


class Block(nn.Module):
    def __init__(self, act):
        super().__init__()
        self.first = nn.Linear(3, 2)
        self.act = act

    def forward(self, x):
        return self.act(self.first(x).clamp(-1, 1))


class Act(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def model(function):
    return nn.Sequential(nn.Linear(3, 3), Block(Act(function)))


@pytest.fixture
def x():
    return tangrad.tensor([[1.0, -2.0, 3.0], [0.5, 0.25, -1.0]])


def told(function):
    with pytest.raises(NonFiniteError) as caught, detect_anomaly(check_finite=True):
        function()
    return str(caught.value)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64"])
def test_nan_of_forward_names_op_line_element_and_operands(dtype):
    x = tangrad.tensor([[4.0, 0.0], [1.0, 0.0]]).to(getattr(tangrad, dtype))
    text = told(lambda: x / x)
    assert text.startswith("true_divide, called at ")
    assert f"{__name__.rpartition('.')[2]}.py:" in text
    assert "2 NaN and 0 infinite, the first at [0, 1]: " in text
    assert f"its operands: tangrad.{dtype} [2, 2] between 0 and 4; " in text


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_every_element_is_looked_at(dtype):
    for place in (0, 1, 15, 16, 31, 32, 47, 63, 64, 69):
        x = tangrad.zeros(70).to(getattr(tangrad, dtype))
        x[place] = float("nan")
        assert f"the first at [{place}]: nan" in told(lambda x=x: x.abs())


def test_infinity_of_forward_names_the_module(x):
    text = told(lambda: model(lambda x: (x * 0 + 100).exp())(x))
    assert text.startswith("exp, called at ")
    assert ", in module 1.act (Act), gave tangrad.float32 [2, 2], 0 NaN and 4 infinite" in text
    assert "between 100 and 100" in text


def test_infinity_of_backward_names_the_forward_line_and_the_module(x):
    net = model(lambda x: (x * 0).sqrt())
    text = told(lambda: net(x).sum().backward())
    assert "Function 'SqrtBackward0' returned infinite values in its 0th output" in text
    assert ", in module 1.act (Act): " in text
    assert "the gradients that came in: tangrad.float32 [2, 2] between 1 and 1" in text
    assert "text = told(lambda: net(x).sum().backward())" in text


def test_nan_of_backward_is_told_as_pytorch_tells_it(x):
    text = told(lambda: ((x * 0).requires_grad_().sqrt() * 0).sum().backward())
    assert "Function 'SqrtBackward0' returned nan values in its 0th output" in text


def test_masks_of_infinity_pass_and_what_they_make_does_not(x):
    mask = tangrad.ones(3, 3).triu(1).bool()
    with detect_anomaly(check_finite=True):
        scores = tangrad.zeros(3, 3, requires_grad=True)
        hidden = scores.masked_fill(mask, float("-inf"))
        added = scores + tangrad.full((3, 3), float("-inf")).triu(1)
        (hidden.softmax(1) + added.softmax(1)).sum().backward()
        scores.detach().clone().masked_fill_(mask, float("-inf")).add_(1)
    text = told(lambda: tangrad.full((2, 2), float("-inf")).softmax(1))
    assert "softmax" in text
    assert "4 NaN" in text


def test_what_is_written_in_place_is_told(x):
    y = x.clone()
    text = told(lambda: y[0].mul_(1e38).mul_(1e38))
    assert text.startswith("mul_, called at ")
    assert "its operands: none; one more was overwritten" in text


def test_results_are_those_without_and_nothing_stays_behind(x):
    def gradients(net):
        net.zero_grad()
        net(x).square().sum().backward()
        return [p.grad.clone() for p in net.parameters()]

    net = model(nn.functional.gelu)
    plain = gradients(net)
    for context in (detect_anomaly(check_finite=True), detect_anomaly()):
        with context:
            assert all(map(tangrad.equal, gradients(net), plain))
    assert not nn.modules.module._global_forward_pre_hooks
    (x / (x * 0)).sum()


def test_pytorch_s_meaning_stays_without_it(x):
    with detect_anomaly():
        (x / (x * 0)).sum()
        y = (x * 0).requires_grad_()
        y.sqrt().sum().backward()
        assert y.grad.isinf().all()


def test_contexts_nest(x):
    with detect_anomaly(check_finite=True):
        with detect_anomaly(check_finite=True):
            pass
        with pytest.raises(NonFiniteError):
            x.sqrt()


def caught(function):
    """Return what a function raises."""
    try:
        function()
    except NonFiniteError as error:
        return str(error)
    return None


def in_a_thread(function):
    found = []
    thread = threading.Thread(target=lambda: found.append(caught(function)))
    thread.start()
    thread.join()
    return found[0]


def test_threads_that_begin_are_looked_at_forward_and_backward(x):
    net = model(lambda x: (x * 0).sqrt())
    with detect_anomaly(check_finite=True):
        y = net(x).sum()
        assert in_a_thread(lambda: x.sqrt()).startswith("sqrt, called at ")
        assert "Function 'SqrtBackward0' returned infinite" in in_a_thread(y.backward)
        assert ", in module 1.act (Act), gave" in in_a_thread(
            lambda: model(lambda x: (x * 0).log())(x)
        )
    assert in_a_thread(lambda: x.sqrt()) is None


def test_replicas_in_threads_are_looked_at(x):
    nets = [model(tangrad.tanh), model(lambda x: (x * 0).log())]
    with (
        detect_anomaly(check_finite=True),
        pytest.raises(NonFiniteError, match=r"log, called at .*, in module 1\.act \(Act\), gave"),
    ):
        nn.parallel.parallel_apply(nets, [x, x])


class Worker:
    """A thread that was there before, and calls what it is given."""

    def __init__(self):
        self.asked, self.answers = queue.SimpleQueue(), queue.SimpleQueue()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while (function := self.asked.get()) is not None:
            self.answers.put(caught(function))

    def __call__(self, function):
        self.asked.put(function)
        return self.answers.get()


@pytest.fixture
def worker():
    made = Worker()
    yield made
    made.asked.put(None)
    made.thread.join()


def test_threads_that_were_there_are_looked_at_and_left_alone_afterwards(x, worker):
    def root():
        return x.sqrt()

    intercepted = []
    assert worker(root) is None
    for _ in range(2):
        with detect_anomaly(check_finite=True):
            assert worker(root).startswith("sqrt, called at ")
            with detect_anomaly(check_finite=True):
                assert worker(root).startswith("sqrt, called at ")
            assert worker(root).startswith("sqrt, called at ")
        assert worker(root) is None
        assert worker(lambda: intercepted.append(_C.is_intercepted())) is None
    assert intercepted == [False, False]


def test_profile_functions_of_threads_stay(x, worker):
    seen = []
    worker(lambda: sys.setprofile(lambda *event: seen.append(event)))
    threading.setprofile(lambda *event: seen.append(event))
    try:
        with detect_anomaly(check_finite=True):
            worker(lambda: seen.clear())
            worker(lambda: None)
            assert seen
            seen.clear()
            assert in_a_thread(lambda: x.sqrt()) is not None
            assert seen
        assert threading.getprofile() is not None
    finally:
        threading.setprofile(None)
        worker(lambda: sys.setprofile(None))


def test_sums_of_gradients_are_looked_at():
    large = tangrad.tensor([3e38], requires_grad=True)
    leaf = tangrad.ones(1, requires_grad=True)

    def twice():
        (leaf * large.detach()).sum().backward()
        (leaf * large.detach()).sum().backward()

    def fan_in():
        y = leaf * 1.0
        (y * large.detach() + y * large.detach()).sum().backward()

    assert "inf" in told(twice)
    leaf.grad = None
    assert "inf" in told(fan_in)


def test_decorator_checks_each_call(x):
    @detect_anomaly(check_finite=True)
    def root(x):
        return x.sqrt()

    assert root(x.abs()).shape == (2, 3)
    with pytest.raises(NonFiniteError, match="2 NaN"):
        root(x)


def test_tensors_without_memory_pass():
    x = tangrad.ones(2, 2, device="meta")
    with detect_anomaly(check_finite=True):
        assert (x / x).exp().shape == (2, 2)
