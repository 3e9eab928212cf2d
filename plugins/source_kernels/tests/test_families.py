"""The templates of kernels, on blocks of one lane and of several, beside PyTorch."""

from __future__ import annotations

import pytest
import torch
from beside_torch import assert_same, both, moved

import tangrad
from tangrad.plugin import FallbackWarning, fallback_calls

pytestmark = pytest.mark.filterwarnings(f"error::{FallbackWarning.__module__}.FallbackWarning")
NEAR = {"rtol": 2e-4, "atol": 2e-4}


def integers(device: str, high: int, *sizes: int, seed: int = 5):
    torch.manual_seed(seed)
    x = torch.randint(0, high, sizes)
    return x, moved(x, device)


@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (5, 7, 3), (33, 20, 70), (3, 2, 4000)])
def test_products_of_matrices_of_any_size_and_layout(device: str, m: int, n: int, k: int) -> None:
    (a, x), (b, y) = both(device, m, k), both(device, n, k, seed=1)
    expected = (a.double() @ b.double().t()).float()
    assert_same(x @ y.t(), expected, rtol=1e-4, atol=1e-2)
    c, z = both(device, m, seed=2)
    assert_same(tangrad.nn.functional.linear(y, x, z), expected.t() + c, rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("dtype", ["float16", "float64", "int32", "complex64"])
def test_products_of_batches_and_other_dtypes(device: str, dtype: str) -> None:
    (a, x), (b, y) = both(device, 3, 9, 11, dtype=dtype), both(device, 3, 11, 5, dtype=dtype)
    assert_same(x.bmm(y), a.bmm(b), rtol=2e-3, atol=2e-1 if dtype == "float16" else 1e-3)


@pytest.mark.parametrize("shape", [(7, 3), (4, 100), (2, 3000), (3, 40, 5)])
def test_softmax_and_its_logarithm_with_gradients(device: str, shape: tuple[int, ...]) -> None:
    for name in ("softmax", "log_softmax"):
        a, x = both(device, *shape)
        g, h = both(device, *shape, seed=1)
        a.requires_grad_()
        x.requires_grad_()
        expected = getattr(torch, name)(a, 1)
        found = getattr(tangrad, name)(x, 1)
        assert_same(found, expected, **NEAR)
        expected.backward(g)
        found.backward(h)
        assert_same(x.grad, a.grad, **NEAR)


def test_the_loss_of_classes_and_its_gradient(device: str) -> None:
    a, x = both(device, 20, 6)
    t, u = integers(device, 6, 20)
    w, v = both(device, 6, seed=3)
    a.requires_grad_()
    x.requires_grad_()
    expected = torch.nn.functional.cross_entropy(a, t, w.abs(), ignore_index=2)
    found = tangrad.nn.functional.cross_entropy(x, u, v.abs(), ignore_index=2)
    assert_same(found, expected, **NEAR)
    expected.backward()
    found.backward()
    assert_same(x.grad, a.grad, **NEAR)


@pytest.mark.parametrize("length", [5, 40, 1500])
def test_layer_norm_with_gradients(device: str, length: int) -> None:
    tensors = [both(device, 70, length), both(device, length, seed=1), both(device, length, seed=2)]
    g, h = both(device, 70, length, seed=3)
    for pair in tensors:
        for tensor in pair:
            tensor.requires_grad_()
    a, x = zip(*tensors, strict=True)
    expected = torch.nn.functional.layer_norm(a[0], (length,), *a[1:])
    found = tangrad.nn.functional.layer_norm(x[0], (length,), *x[1:])
    assert_same(found, expected, **NEAR)
    expected.backward(g)
    found.backward(h)
    for mine, theirs in zip(x, a, strict=True):
        assert_same(mine.grad, theirs.grad, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_with_gradients(device: str, training: bool) -> None:
    made = [both(device, 4, 3, 5, 5), both(device, 3, seed=1), both(device, 3, seed=2)]
    statistics = [both(device, 3, seed=3), both(device, 3, seed=4)]
    g, h = both(device, 4, 3, 5, 5, seed=5)
    for pair in made:
        for tensor in pair:
            tensor.requires_grad_()
    a, x = zip(*made, strict=True)
    (m, n), (v, w) = statistics
    expected = torch.nn.functional.batch_norm(a[0], m, v.abs(), *a[1:], training)
    found = tangrad.nn.functional.batch_norm(x[0], n, w.abs(), *x[1:], training)
    assert_same(found, expected, **NEAR)
    assert_same(n, m, **NEAR)
    expected.backward(g)
    found.backward(h)
    for mine, theirs in zip(x, a, strict=True):
        assert_same(mine.grad, theirs.grad, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("shape", "weight", "how"),
    [
        ((2, 3, 9, 8), (5, 3, 3, 3), {"padding": 1}),
        ((2, 4, 11), (6, 2, 4), {"stride": 3, "groups": 2, "dilation": 2, "padding": 3}),
        ((1, 2, 5, 6, 4), (3, 2, 2, 3, 2), {"stride": 2}),
        ((9, 1, 12, 12), (2, 1, 5, 5), {"stride": (2, 1)}),
    ],
)
def test_convolutions_with_both_gradients(device: str, shape, weight, how) -> None:
    made = [both(device, *shape), both(device, *weight, seed=1), both(device, weight[0], seed=2)]
    for pair in made:
        for tensor in pair:
            tensor.requires_grad_()
    a, x = zip(*made, strict=True)
    name = f"conv{len(shape) - 2}d"
    expected = getattr(torch.nn.functional, name)(*a, **how)
    found = getattr(tangrad.nn.functional, name)(*x, **how)
    assert_same(found, expected, rtol=1e-3, atol=1e-3)
    g, h = both(device, *expected.shape, seed=3)
    expected.backward(g)
    found.backward(h)
    for mine, theirs in zip(x, a, strict=True):
        assert_same(mine.grad, theirs.grad, rtol=1e-3, atol=1e-2)


def test_the_greatest_of_windows_and_where_it_is(device: str) -> None:
    a, x = both(device, 2, 3, 9, 10)
    a[0, 0, 3, 3] = float("nan")
    x = moved(a, device)
    how = {"stride": 2, "padding": 1, "dilation": 2, "ceil_mode": True, "return_indices": True}
    expected = torch.nn.functional.max_pool2d(a, 3, **how)
    found = tangrad.nn.functional.max_pool2d(x, 3, **how)
    assert_same(found[0], expected[0], equal_nan=True)
    assert_same(found[1], expected[1])


@pytest.mark.parametrize(
    ("queries", "keys", "size", "value_size"), [(5, 7, 4, 3), (40, 33, 16, 24), (1, 70, 130, 9)]
)
@pytest.mark.parametrize("how", ["plain", "causal", "bool", "number"])
def test_attention_with_gradients(device: str, queries, keys, size, value_size, how: str) -> None:
    made = [
        both(device, 2, 3, queries, size),
        both(device, 2, 3, keys, size, seed=1),
        both(device, 2, 3, keys, value_size, seed=2),
    ]
    for pair in made:
        for tensor in pair:
            tensor.requires_grad_()
    a, x = zip(*made, strict=True)
    b, y = both(device, queries, keys, seed=3)
    masks = {"bool": (b > -3, y > -3), "number": (b, y)}.get(how, (None, None))
    causal = how == "causal"
    expected = torch.nn.functional.scaled_dot_product_attention(*a, masks[0], is_causal=causal)
    found = tangrad.nn.functional.scaled_dot_product_attention(*x, masks[1], is_causal=causal)
    assert_same(found, expected, rtol=1e-3, atol=1e-3)
    g, h = both(device, *expected.shape, seed=4)
    expected.backward(g)
    found.backward(h)
    for mine, theirs in zip(x, a, strict=True):
        assert_same(mine.grad, theirs.grad, rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("count", [10, 300])
def test_rows_are_taken_and_added_in_the_order_of_their_places(device: str, count: int) -> None:
    (a, x), (t, u) = both(device, 8, 12), integers(device, 8, count)
    assert_same(x.index_select(0, u), a.index_select(0, t))
    s, v = both(device, count, 12, seed=1)
    expected = a.double().index_add(0, t, s.double()).float()
    assert_same(x.index_add(0, u, v), expected, rtol=1e-3, atol=1e-3)
    assert tangrad.equal(x.index_add(0, u, v), x.index_add(0, u, v))
    a.requires_grad_()
    x.requires_grad_()
    torch.nn.functional.embedding(t, a).pow(2).sum().backward()
    tangrad.nn.functional.embedding(u, x).pow(2).sum().backward()
    assert_same(x.grad, a.grad, rtol=1e-4, atol=1e-3)


def test_elements_are_gathered_and_scattered(device: str) -> None:
    (a, x), (t, u) = both(device, 6, 5), integers(device, 6, 9, 5)
    s, v = both(device, 9, 5, seed=1)
    assert_same(x.t().gather(1, u.t()), a.t().gather(1, t.t()))
    assert_same(x.scatter_add(0, u, v), a.scatter_add(0, t, s), **NEAR)
    assert_same(x.scatter_reduce(0, u, v, "amax"), a.scatter_reduce(0, t, s, "amax"), **NEAR)


@pytest.mark.parametrize("how", ["sum", "prod", "amax", None])
def test_many_places_of_a_vector_are_written_in_their_order(device: str, how: str | None) -> None:
    torch.manual_seed(0)
    a, places, source = torch.randn(20), torch.randint(0, 20, (300,)), torch.randn(300) / 4 + 1
    x, at, s = (moved(v, device) for v in (a, places, source))
    if how is None:
        expected = a.clone()
        for place, value in zip(places.tolist(), source, strict=True):
            expected[place] = value
        assert_same(x.scatter(0, at, s), expected)
        assert_same(x.scatter(0, at, 3.0), a.scatter(0, places, 3.0))
        with pytest.raises(RuntimeError, match="index 20 is out of bounds.*size 20"):
            x.scatter_add(0, at + 1, s).cpu()
        return
    found = x.scatter_reduce(0, at, s, how)
    assert_same(found, a.scatter_reduce(0, places, source, how), rtol=1e-5, atol=1e-5)


def test_an_index_out_of_bounds_is_told_of_the_op_that_was_called(device: str) -> None:
    x, one = (tangrad.zeros(n, device=device) for n in (3, 1))
    index = tangrad.tensor([3], device=device)
    with pytest.raises(RuntimeError, match="scatter.*: index 3 is out of bounds.*size 3"):
        x.scatter(0, index, one).cpu()
    with pytest.raises((IndexError, RuntimeError), match=r"index_reduce\(\): index 3"):
        x.index_reduce(0, index, one, "amax").cpu()


def test_indices_and_masks_read_and_write(device: str) -> None:
    (a, x), (t, u) = both(device, 6, 5, 4), integers(device, 4, 3, 2)
    assert_same(x[u, :, u - 2], a[t, :, t - 2])
    assert_same(x[:, u], a[:, t])
    assert_same(x[x > 1], a[a > 1])
    assert_same((x > 1).nonzero(), (a > 1).nonzero())
    s, v = both(device, 3, 2, 5, seed=1)
    assert_same(
        x.index_put((u, tangrad.tensor(1, device=device)), v[..., :4], accumulate=True),
        a.index_put((t, torch.tensor(1)), s[..., :4], accumulate=True),
        **NEAR,
    )


@pytest.mark.parametrize("length", [1, 16, 17, 100, 1000])
@pytest.mark.parametrize("descending", [False, True])
def test_sorting_is_stable_and_places_nan_last(device: str, length: int, descending: bool) -> None:
    a = both(device, 3, length)[0].round()
    a[1, length // 2] = float("nan")
    x = moved(a, device)
    expected = a.sort(dim=1, descending=descending, stable=True)
    found = x.sort(dim=1, descending=descending, stable=True)
    assert_same(found.values, expected.values, equal_nan=True)
    assert_same(found.indices, expected.indices)
    assert_same(x[0].topk(1).values, a[0].topk(1).values)


def test_elements_find_their_place_in_sorted_rows(device: str) -> None:
    (a, x), (b, y) = both(device, 3, 20), both(device, 3, 7, seed=1)
    a, x = a.sort(dim=1).values, x.sort(dim=1).values
    for right in (False, True):
        expected = torch.searchsorted(a, b, right=right)
        assert_same(tangrad.searchsorted(x, y, right=right), expected)
        expected = torch.searchsorted(a[0], b, right=right)
        assert_same(tangrad.searchsorted(x[0], y, right=right), expected)


def test_a_running_product_has_a_gradient(device: str) -> None:
    a, x = both(device, 4, 6)
    a.requires_grad_()
    x.requires_grad_()
    torch.cumprod(a, 1).sum().backward()
    tangrad.cumprod(x, 1).sum().backward()
    assert_same(x.grad, a.grad, rtol=1e-3, atol=1e-2)


def test_what_moves_elements(device: str) -> None:
    (a, x), (b, y) = both(device, 3, 4), both(device, 2, 4, seed=1)
    assert_same(tangrad.cat([x, y, x]), torch.cat([a, b, a]))
    assert_same(tangrad.nn.functional.pad(x, (1, -2, 2, 0), value=3), torch.nn.functional.pad(
        a, (1, -2, 2, 0), value=3))  # fmt: skip
    assert_same(x.t().flip(0, 1), a.t().flip(0, 1))
    assert_same(x.tril(1) + x.triu(-1), a.tril(1) + a.triu(-1))
    assert_same(x.roll(2, 1), a.roll(2, 1))


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_random_numbers_are_those_of_every_device(device: str, dtype: str) -> None:
    drawn = []
    for where in (device, "reference"):
        generator = tangrad.Generator(device=where).manual_seed(7)
        x = tangrad.empty(37, dtype=getattr(tangrad, dtype), device=where)
        drawn.append([
            x.uniform_(-1, 3, generator=generator).cpu(),
            x.bernoulli_(0.3, generator=generator).cpu(),
            x.random_(3, 90, generator=generator).cpu(),
            tangrad.randperm(50, generator=generator, device=where).cpu(),
            x.normal_(1, 2, generator=generator).cpu().double(),
        ])  # fmt: skip
    *exact, normal = zip(*drawn, strict=True)
    assert all(tangrad.equal(mine, theirs) for mine, theirs in exact)
    assert tangrad.allclose(*normal, rtol=1e-6 if dtype != "float16" else 1e-3)


@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW"])
def test_steps_of_all_parameters_in_one_launch(device: str, kind: str) -> None:
    how = {"momentum": 0.9, "nesterov": True} if kind == "SGD" else {"amsgrad": True}
    found = []
    for framework in (torch, tangrad):
        torch.manual_seed(0)
        values = [torch.randn(size) for size in ((3, 5), (70,), ())]
        tensors = values if framework is torch else [moved(v, device) for v in values]
        parameters = [t.requires_grad_() for t in tensors]
        step = getattr(framework.optim, kind)(parameters, lr=0.1, weight_decay=0.01, **how)
        for _ in range(3):
            step.zero_grad()
            sum((p * p).sum() for p in parameters).backward()
            step.step()
        found.append(parameters)
    for theirs, mine in zip(*found, strict=True):
        assert_same(mine, theirs, **NEAR)


def test_training_never_visits_the_host(device: str) -> None:
    before = dict(fallback_calls())
    nn = tangrad.nn
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(36, 8), nn.GELU(), nn.Dropout(0.1), nn.LayerNorm(8), nn.Linear(8, 3),
    ).to(device)  # fmt: skip
    step = tangrad.optim.AdamW(model.parameters(), lr=1e-2)
    x = tangrad.randn(6, 1, 8, 8, device=device)
    losses = []
    for _ in range(4):
        step.zero_grad()
        loss = nn.functional.cross_entropy(model(x), tangrad.arange(6, device=device) % 3)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        step.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    assert fallback_calls() == before
