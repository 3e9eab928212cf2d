"""Warnings where PyTorch warns: results that mean nothing, and forms that will go."""

import subprocess
import sys
import warnings

import pytest

import tangrad


@pytest.mark.parametrize("name", ["std", "var", "std_mean", "var_mean"])
@pytest.mark.parametrize(
    ("shape", "given"),
    [((1,), {}), ((3, 1), {"dim": 1}), ((3,), {"correction": 3}), ((0, 3), {"dim": 0})],
)
def test_moments_without_degrees_of_freedom_warn(name, shape, given):
    with pytest.warns(UserWarning, match=rf"{name}\(\): degrees of freedom"):
        getattr(tangrad, name)(tangrad.ones(shape), **given)


@pytest.mark.parametrize(
    ("word", "call"),
    [
        ("degrees", lambda t: t.ones(1).std()),
        ("uint8", lambda t: t.where(t.ones(2, dtype=t.uint8), 1, 2)),
        ("size", lambda t: t.nn.functional.mse_loss(t.ones(2, 1), t.ones(2))),
        ("rounded", lambda t: t.ones(3, dtype=t.float16).random_(3000)),
        ("indexing", lambda t: t.meshgrid(t.ones(2), t.ones(3))),
        ("align_corners", lambda t: t.nn.functional.grid_sample(*t.zeros(2, 1, 2, 2, 2))),
    ],
)
def test_calls_that_are_alike_warn_every_time(word, call):
    for _ in range(3):
        with pytest.warns(UserWarning, match=word):
            call(tangrad)


def test_moments_of_enough_elements_do_not_warn():
    for unbiased in (True, False):
        tangrad.ones(2).std(unbiased=unbiased)
    tangrad.ones(1).var(unbiased=False)
    tangrad.ones(3, 0).var(0)


def test_covariance_of_one_observation_warns():
    with pytest.warns(UserWarning, match="cov: degrees of freedom"):
        tangrad.cov(tangrad.ones(2, 1))


def test_a_grid_without_indexing_warns_and_is_in_matrix_order():
    x, y = tangrad.arange(2), tangrad.arange(3)
    with pytest.warns(UserWarning, match="indexing"):
        grids = tangrad.meshgrid(x, y)
    assert grids[0].equal(tangrad.meshgrid(x, y, indexing="ij")[0])
    tangrad.meshgrid(x)


def test_a_condition_of_bytes_warns():
    with pytest.warns(UserWarning, match="uint8"):
        chosen = tangrad.where(tangrad.tensor([1, 0], dtype=tangrad.uint8), 1, 2)
    assert chosen.tolist() == [1, 2]


def test_masks_of_bytes_warn_in_index_put():
    mask = tangrad.tensor([1, 0, 1], dtype=tangrad.uint8)
    with pytest.warns(UserWarning, match="uint8"):
        written = tangrad.zeros(3).index_put_((mask,), tangrad.ones(2))
    assert written.tolist() == [1, 0, 1]


def test_backward_of_second_order_warns_once_in_a_process():
    program = """
import warnings, tangrad
x = tangrad.ones(2, requires_grad=True)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for _ in range(3):
        (x * x).sum().backward(create_graph=True)
        x.grad = None
        tangrad.autograd.grad((x * x).sum(), x, create_graph=True)
print(*[str(w.message) for w in caught], sep="\\n")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    (told,) = done.stdout.splitlines()
    assert "create_graph" in told
    assert "autograd.grad" in told


def test_no_warning_where_the_results_are_asked_of_meta():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tangrad.ones(3, 4, device="meta").std(0)
