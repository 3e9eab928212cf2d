"""RMS and group normalization by an op of this package: values, gradients, launches, graphs."""

from __future__ import annotations

PROGRAM = """
import tangrad
import tangrad_cuda_emulator as emulator
F = tangrad.nn.functional

def filled(*shape, dtype=tangrad.float32, step=37):
    count = tangrad.Size(shape).numel()
    return ((tangrad.arange(float(count)) * step % 17) / 8 - 1).reshape(shape).to(dtype)

NORMS = {
    "rms_norm": lambda x, w, b: F.rms_norm(x, x.shape[1:], w.reshape(x.shape[1:]), 1e-3),
    "rms_norm alone": lambda x, w, b: F.rms_norm(x, x.shape[-1:]),
    "group_norm": lambda x, w, b: F.group_norm(x, 2, w[: x.shape[1]], b[: x.shape[1]]),
    "group_norm alone": lambda x, w, b: F.group_norm(x, 3),
    "group_norm by weight": lambda x, w, b: F.group_norm(x, 2, w[: x.shape[1]]),
}

def operands(shape, dtype=tangrad.float32):
    count = tangrad.Size(shape[1:]).numel()
    return [filled(*shape, dtype=dtype), filled(count, dtype=dtype, step=5),
            filled(count, dtype=dtype, step=3)]
"""
VALUES = """
for shape in ((3, 6, 4), (2, 12, 5, 7), (5, 6, 150), (70, 6)):
    for dtype, near in ((tangrad.float32, 1e-4), (tangrad.float64, 1e-9), (tangrad.float16, 2e-2)):
        for name, norm in NORMS.items():
            found = []
            for device in ("cpu", "cuda"):
                wide = tangrad.float64 if device == "cpu" else dtype
                leaves = [t.to(wide).to(device).requires_grad_() for t in operands(shape, dtype)]
                y = norm(*leaves)
                y.backward(filled(*shape, dtype=wide, step=7).to(device))
                assert y.dtype == wide
                grads = [leaf.grad for leaf in leaves if leaf.grad is not None]
                found.append([t.detach().cpu().double() for t in (y, *grads)])
            for a, b in zip(*found, strict=True):
                assert a.allclose(b, rtol=near, atol=near), (shape, dtype, name, a, b)
"""
LAUNCHES = """
def launches(work):
    work()
    before = emulator.calls("cuLaunchKernel")
    made = work()
    return emulator.calls("cuLaunchKernel") - before, made

w, b = (t.cuda().requires_grad_() for t in operands((2, 4, 15))[1:])
x = filled(2, 4, 15).cuda().requires_grad_()
grad = filled(2, 4, 15, step=7).cuda()
for dtype in (tangrad.float32, tangrad.float16):
    x, w, b, grad = (t.detach().to(dtype).requires_grad_() for t in (x, w, b, grad))
    grad = grad.detach()
    rms = lambda: F.rms_norm(x.flatten(1), (60,), w)
    group = lambda: F.group_norm(x, 2, w[:4], b[:4])
    count, y = launches(rms)
    assert count == 1, count
    count, _ = launches(lambda: tangrad.autograd.grad(rms(), (x, w), grad.flatten(1)))
    assert count == 3, count
    v, c = w[:4].detach().requires_grad_(), b[:4].detach().requires_grad_()
    count, y = launches(lambda: F.group_norm(x, 2, v, c))
    assert count == 1, count
    count, _ = launches(lambda: tangrad.autograd.grad(F.group_norm(x, 2, v, c), (x, v, c), grad))
    assert count == 3, count
"""
DERIVATIVES = """
for name, norm in NORMS.items():
    leaves = [t.double().cuda().requires_grad_() for t in operands((2, 6, 3))]
    assert tangrad.autograd.gradgradcheck(lambda *t: norm(*t), leaves), name
x = operands((2, 6, 3))[0].double()
found = []
for device in ("cpu", "cuda"):
    leaf = x.to(device).requires_grad_()
    moments = tangrad.native_group_norm(leaf, None, None, 2, 6, 3, 2, 1e-3)[1:]
    assert moments[0].requires_grad
    found.append(tangrad.autograd.grad((moments[0] * 2 + moments[1]).square().sum(), leaf)[0].cpu())
assert found[0].allclose(found[1])
x, w, b = (t.cuda() for t in operands((2, 6, 3)))
for name, norm in NORMS.items():
    rows = tangrad.func.vmap(lambda x: norm(x.unsqueeze(0), w, b))(x)
    assert rows.squeeze(1).allclose(norm(x, w, b), rtol=1e-5, atol=1e-5), name
"""
REST = """
x = filled(3, 4, 5).cuda()
weight = filled(4).double().cuda()
assert F.group_norm(x, 2, weight).dtype == tangrad.float64  # as its tensor code has it
assert F.group_norm(x[:0], 2).shape == (0, 4, 5)
assert F.rms_norm(x[:, :, :0], (0,)).shape == (3, 4, 0)
y, mean, rstd = tangrad.native_group_norm(x.half(), None, None, 3, 4, 5, 2, 1e-5)
assert mean.shape == rstd.shape == (3, 2) and mean.dtype == tangrad.float16
z = tangrad.complex(x, x)
assert F.rms_norm(z, (5,)).dtype == tangrad.complex64
images = filled(2, 4, 3, 3).cuda().contiguous(memory_format=tangrad.channels_last)
found = F.group_norm(images, 2)
assert found.is_contiguous(memory_format=tangrad.channels_last)
assert found.cpu().allclose(F.group_norm(images.cpu(), 2), rtol=1e-5, atol=1e-5)
try:
    F.group_norm(x, 2, weight[:3].float())
except RuntimeError as error:
    assert "number of channels" in str(error), error
else:
    raise AssertionError("worked")
"""


def test_values_and_gradients_are_those_of_the_cpu(run):
    run(PROGRAM + VALUES)


def test_a_norm_is_one_launch_and_its_gradients_two_more(run):
    run(PROGRAM + LAUNCHES)


def test_transforms_and_second_derivatives_see_tensor_code(run):
    run(PROGRAM + DERIVATIVES)


def test_what_the_op_does_not_take_is_tensor_code(run):
    run(PROGRAM + REST)
