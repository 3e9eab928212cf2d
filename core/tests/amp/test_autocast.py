"""Autocast does with every op what PyTorch does, and leaves no trace behind."""

import pytest

import tangrad

CALLS = {
    "matmul": lambda t, a, b: a @ b,
    "linear": lambda t, a, b: t.nn.functional.linear(a, b),
    "einsum": lambda t, a, b: t.einsum("ij,jk->ik", a, b),
    "baddbmm": lambda t, a, b: t.baddbmm(a[None], a[None], b[None]),
    "attention": lambda t, a, b: t.nn.functional.scaled_dot_product_attention(a, b, a),
    "conv1d": lambda t, a, b: t.nn.functional.conv1d(a[None], b[None]),
    "prelu": lambda t, a, b: t.prelu(a, b[0]),
    "mse_loss": lambda t, a, b: t.nn.functional.mse_loss(a, b),
    "cdist": lambda t, a, b: t.cdist(a, b),
    "prod": lambda t, a, b: a.prod(),
    "solve": lambda t, a, b: t.linalg.inv(a),
    "rfft": lambda t, a, b: t.fft.rfft(t.cat([a, a[:, :1]], 1)),
    "cat": lambda t, a, b: t.cat([a, b.float()]),
    "softmax": lambda t, a, b: a.softmax(-1),
    "bilinear": lambda t, a, b: t.nn.functional.bilinear(a, b, a[None]),
    "reflect": lambda t, a, b: t.nn.functional.pad(a, (1, 1), mode="reflect"),
    "zeros": lambda t, a, b: t.nn.functional.pad(a, (1, 1)),
    "in place": lambda t, a, b: a.double().float().addmm_(b.float(), a.float()),
    "out": lambda t, a, b: t.mm(a.float(), b.float(), out=t.empty(3, 3)),
    "double": lambda t, a, b: a.double() @ b.double(),
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("call", CALLS)
def test_ops_compute_in_the_dtype_that_is_theirs(agree, call, dtype):
    def program(t):
        fast = t.float16 if dtype == "float16" else t.bfloat16
        a = (t.eye(3) * 2 + 0.25).to(getattr(t, dtype))
        b = (t.eye(3) + 0.5).to(getattr(t, dtype))
        with t.autocast("cpu", dtype=fast):
            result = CALLS[call](t, a, b)
        return str(result.dtype).split(".")[1], t.view_as_real(result).tolist() if (
            result.is_complex()
        ) else result.double().tolist()

    agree(program, tolerance=2e-2)


def test_a_network_trains_with_float32_gradients(agree):
    def program(t):
        weight = (t.arange(6.0).reshape(2, 3) / 8).requires_grad_()
        x = t.arange(12.0).reshape(4, 3) / 16
        with t.autocast("cpu", dtype=t.bfloat16):
            hidden = t.nn.functional.linear(x, weight)
            again = t.nn.functional.linear(x, weight)
            loss = t.nn.functional.mse_loss(hidden + again, t.ones(4, 2))
        loss.backward()
        return str(loss.dtype)[-7:], str(weight.grad.dtype)[-7:], weight.grad.tolist()

    agree(program, tolerance=1e-2)


def test_regions_nest_and_can_be_switched_off(agree):
    def program(t):
        a = t.ones(2, 2)
        found = []

        def note():
            found.append((str((a @ a).dtype)[-8:], t.is_autocast_enabled("cpu")))

        with t.autocast("cpu"):
            note()
            with t.autocast("cpu", dtype=t.float16):
                note()
                with t.autocast("cpu", enabled=False):
                    note()
                note()
            note()
        note()
        t.autocast("cpu")(note)()
        return found, str(t.get_autocast_dtype("cpu")).split(".")[1]

    agree(program)


def test_an_error_inside_leaves_nothing_active():
    with pytest.raises(ZeroDivisionError), tangrad.autocast("cpu"):
        raise ZeroDivisionError
    assert not tangrad.is_autocast_enabled("cpu")
    assert (tangrad.ones(2, 2) @ tangrad.ones(2, 2)).dtype is tangrad.float32


def casts_in(region):
    """Return the names of the conversions of a dtype that a region runs."""
    from tangrad.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            narrow = isinstance(result, tangrad.Tensor) and result.dtype is tangrad.bfloat16
            if narrow and args[0].dtype is tangrad.float32:
                seen.append(str(func))
            return result

    with Watch():
        region()
    return seen


@pytest.mark.parametrize(("cached", "count"), [(True, 1), (False, 3)])
def test_the_cast_of_a_parameter_is_kept_within_a_region(cached, count):
    weight = tangrad.nn.Parameter(tangrad.ones(2, 2))
    x = tangrad.ones(2, 2, dtype=tangrad.bfloat16)

    def region():
        with tangrad.autocast("cpu", cache_enabled=cached):
            for _ in range(3):
                x @ weight

    assert len(casts_in(region)) == count


def test_a_cast_without_recording_does_not_hide_the_parameter():
    weight = tangrad.nn.Parameter(tangrad.ones(2, 2))
    with tangrad.autocast("cpu"):
        with tangrad.no_grad():
            weight @ weight
        result = weight @ weight
        with tangrad.no_grad():
            weight.mul_(2)
        assert (weight @ weight)[0, 0].item() == 8
    assert result.requires_grad


def test_transforms_work_within_autocast():
    def f(w, x):
        return tangrad.nn.functional.linear(x, w).sum()

    w, x = tangrad.ones(2, 2), tangrad.ones(3, 2)
    with tangrad.autocast("cpu"):
        gradient = tangrad.func.grad(f)(w, x)
        batched = tangrad.vmap(lambda v: w @ v)(x)
    assert gradient.tolist() == [[3, 3], [3, 3]]
    assert batched.dtype is tangrad.bfloat16


def test_custom_functions_are_cast_as_a_whole(agree):
    def program(t):
        seen = []

        class Product(t.autograd.Function):
            @staticmethod
            @t.amp.custom_fwd(device_type="cpu", cast_inputs=t.float32)
            def forward(ctx, a, b):
                ctx.save_for_backward(a, b)
                seen.append((str(a.dtype)[-7:], t.is_autocast_enabled("cpu")))
                return a @ b

            @staticmethod
            @t.amp.custom_bwd(device_type="cpu")
            def backward(ctx, g):
                a, b = ctx.saved_tensors
                seen.append(t.is_autocast_enabled("cpu"))
                return g @ b.T, a.T @ g

        a = t.ones(2, 2, dtype=t.bfloat16, requires_grad=True)
        with t.autocast("cpu"):
            result = Product.apply(a, a)
        result.sum().backward()
        return seen, str(result.dtype)[-7:], a.grad.tolist()

    agree(program)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda t: t.autocast(3),
        lambda t: t.autocast("cpu")(3),
        lambda t: t.autocast("nonsense"),
        lambda t: t.autocast("meta"),
        lambda t: t.set_autocast_enabled("cpu", 1),
        lambda t: t.amp.custom_fwd(device_type=3),
    ],
)
def test_wrong_arguments_are_refused(agree, wrong):
    agree(wrong, message=False)


def test_a_dtype_that_cannot_be_used_switches_off_with_a_warning():
    with pytest.warns(UserWarning, match="only supports dtypes of"):
        region = tangrad.autocast("cpu", dtype=tangrad.float32)
    with region:
        assert not tangrad.is_autocast_enabled("cpu")
