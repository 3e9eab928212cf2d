"""Calls that run on threads of their own, and calls that are made when they are needed."""

import threading

import pytest

import tangrad


@tangrad.jit.ignore
def thread_of(n: int) -> int:
    return threading.get_ident()


def waits(n: int) -> int:
    return thread_of(n)


BARRIER = threading.Barrier(2)


@tangrad.jit.ignore
def meet(n: int) -> int:
    return BARRIER.wait(timeout=30)


def meeting(n: int) -> int:
    return meet(n)


def both(n: int) -> int:
    first = tangrad.jit.fork(meeting, n)
    second = meeting(n)
    return tangrad.jit.wait(first) + second


def test_a_forked_call_runs_beside_its_caller():
    assert tangrad.jit.script(both)(1) == 1  # each has waited for the other


def fibonacci_by_forks(n: int) -> int:
    futures: list[tangrad.jit.Future[int]] = []
    for k in range(n):
        futures.append(tangrad.jit.fork(nested, k))
    total = 0
    for future in futures:
        total += tangrad.jit.wait(future)
    return total


def nested(k: int) -> int:
    inner = tangrad.jit.fork(leaf, k)
    return tangrad.jit.wait(inner) + 1


def leaf(k: int) -> int:
    innermost = tangrad.jit.fork(square, k)
    return tangrad.jit.wait(innermost)


def square(k: int) -> int:
    return k * k


def test_calls_within_calls_do_not_use_up_the_threads():
    assert tangrad.jit.script(fibonacci_by_forks)(200) == sum(k * k + 1 for k in range(200))


def fails(x):
    if x.size(0) > 1:
        raise ValueError("too long")
    return x


def forks_what_fails(x):
    future = tangrad.jit.fork(fails, x)
    y = x + 1
    return tangrad.jit.wait(future) + y


def test_an_exception_is_raised_where_it_is_waited_for():
    scripted = tangrad.jit.script(forks_what_fails)
    assert scripted(tangrad.ones(1)).item() == 3.0
    with pytest.raises(tangrad.jit.Error, match="too long"):
        scripted(tangrad.ones(2))


def recorded(x):
    return x * 2


def forks_with_derivatives(x):
    with tangrad.no_grad():
        without = tangrad.jit.fork(recorded, x)
    with_them = tangrad.jit.fork(recorded, x)
    return tangrad.jit.wait(without), tangrad.jit.wait(with_them)


def test_a_forked_call_records_derivatives_where_its_caller_did():
    x = tangrad.ones(2, requires_grad=True)
    without, with_them = tangrad.jit.script(forks_with_derivatives)(x)
    assert (without.requires_grad, with_them.requires_grad) == (False, True)


def lazily(x):
    later = tangrad.jit._awaitable(fails, x)
    y = x + 1
    if x.size(0) > 1:
        return y
    return tangrad.jit._awaitable_wait(later) + y


def test_an_awaitable_runs_when_it_is_needed():
    scripted = tangrad.jit.script(lazily)
    assert scripted(tangrad.ones(1)).item() == 3.0
    assert scripted(tangrad.ones(2)).tolist() == [2.0, 2.0]  # what would fail is not asked for


def test_futures_of_python_give_their_results_once():
    future = tangrad.jit.Future()
    told = []
    future.add_done_callback(lambda done: told.append(done.value()))
    with pytest.raises(RuntimeError, match="nothing that runs"):
        future.wait()
    future.set_result(3)
    assert (future.wait(), told, future.then(lambda done: done.value() + 1).wait()) == (3, [3], 4)
    with pytest.raises(RuntimeError, match="completed once"):
        future.set_result(4)
