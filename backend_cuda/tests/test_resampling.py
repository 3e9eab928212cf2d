"""Linear modes of `interpolate` by an op of this package: values, gradients, launches."""

from __future__ import annotations

PROGRAM = """
import tangrad
import tangrad_cuda_emulator as emulator
F = tangrad.nn.functional

def filled(*shape, step=37):
    count = tangrad.Size(shape).numel()
    return ((tangrad.arange(float(count)) * step % 17) / 8 - 1).reshape(shape)

CALLS = [
    (mode, shape, {"align_corners": corners, **how})
    for corners in (False, True)
    for mode, shape, hows in (
        ("linear", (2, 3, 5), [{"size": 9}, {"size": 2}, {"size": 1}, {"size": 5}]),
        ("bilinear", (2, 2, 4, 5), [{"size": (8, 10)}, {"size": (3, 7)}, {"size": (1, 1)},
                                    {"scale_factor": 1.7}, {"scale_factor": (0.4, 1.0)}]),
        ("trilinear", (1, 2, 3, 4, 2), [{"size": (6, 2, 5)}, {"scale_factor": 2}]),
    )
    for how in hows
]
"""
VALUES = """
for mode, shape, how in CALLS:
    for dtype in (tangrad.float32, tangrad.float64, tangrad.float16):
        found = []
        for device in ("cpu", "cuda"):
            x = filled(*shape).to(dtype).to(device).requires_grad_()
            before = emulator.calls("cuLaunchKernel")
            y = F.interpolate(x, mode=mode, **how)
            assert emulator.calls("cuLaunchKernel") - before == (device == "cuda"), (mode, how)
            y.backward(filled(*y.shape, step=7).to(dtype).to(device))
            found.append((y.detach().cpu(), x.grad.cpu().double()))
        (y, g), (z, h) = found
        assert y.equal(z), (mode, how, dtype)
        near = {"float16": 5e-3, "float32": 1e-5}.get(dtype.name, 1e-12)
        assert g.allclose(h, rtol=near, atol=near), (mode, how, dtype, g, h)
"""
REST = """
x = filled(1, 1, 3, 4).double().cuda().requires_grad_()
f = lambda x: F.interpolate(x, scale_factor=1.7, mode="bilinear")
assert tangrad.autograd.gradcheck(f, (x,))
assert tangrad.autograd.gradgradcheck(f, (x,))
images = filled(2, 3, 4, 4).cuda()
rows = tangrad.func.vmap(lambda x: f(x.unsqueeze(0)))(images)
assert rows.squeeze(1).allclose(f(images), rtol=1e-5, atol=1e-5)
last = images.contiguous(memory_format=tangrad.channels_last)
assert f(last).equal(f(images))
assert f(last).is_contiguous(memory_format=tangrad.channels_last)
# What has a place of one or two elements that count does not spread what is beside it.
images[0, 0, 0, 0] = float("inf")
assert F.interpolate(images, size=(4, 8), mode="bilinear").isnan().sum() == 0
pixels = (filled(1, 3, 4, 4).abs() * 90).to(tangrad.uint8)
assert f(pixels.cuda()).cpu().equal(f(pixels))
smooth = {"size": (2, 2), "mode": "bilinear", "antialias": True}
assert F.interpolate(images[1:], **smooth).cpu().allclose(F.interpolate(images[1:].cpu(), **smooth))
"""


def test_values_are_those_of_the_cpu_by_one_launch(run):
    run(PROGRAM + VALUES)


def test_derivatives_layouts_and_other_calls(run):
    run(PROGRAM + REST)
