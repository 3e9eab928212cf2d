"""Typical calls and the types that a checker must find for them."""

from typing import Any, assert_type

import tangrad
import tangrad.nn.functional as F
from tangrad import Tensor, nn, optim

# Construction
x = tangrad.randn(2, 3)
assert_type(x, Tensor)
assert_type(tangrad.tensor([1.0, 2.0], dtype=tangrad.float64, requires_grad=True), Tensor)
assert_type(tangrad.as_tensor([1, 2]), Tensor)
assert_type(tangrad.zeros((2, 3)), Tensor)
assert_type(tangrad.zeros(2, 3, dtype=tangrad.int64, device="cpu"), Tensor)
assert_type(tangrad.ones_like(x), Tensor)
assert_type(tangrad.arange(10), Tensor)
assert_type(tangrad.arange(0, 1, 0.1), Tensor)
assert_type(tangrad.linspace(0, 1, 5), Tensor)
assert_type(tangrad.full((2,), 3.0), Tensor)
assert_type(tangrad.eye(3), Tensor)
assert_type(tangrad.randint(0, 10, (3,)), Tensor)
assert_type(tangrad.rand(3, generator=tangrad.Generator()), Tensor)
assert_type(x.new_zeros(2, 3), Tensor)
assert_type(x.new_tensor([1]), Tensor)

# Attributes
assert_type(x.shape, tangrad.Size)
assert_type(x.shape[0], int)
assert_type(x.size(), tangrad.Size)
assert_type(x.size(0), int)
assert_type(x.dim(), int)
assert_type(x.ndim, int)
assert_type(x.numel(), int)
assert_type(x.dtype, tangrad.dtype)
assert_type(x.device, tangrad.device)
assert_type(x.requires_grad, bool)
assert_type(x.grad, Tensor | None)
assert_type(x.is_floating_point(), bool)
assert_type(x.T, Tensor)
assert_type(x.mT, Tensor)
assert_type(len(x), int)

# Operators
assert_type(x + 1, Tensor)
assert_type(1 - x, Tensor)
assert_type(2.0 * x, Tensor)
assert_type(x / x, Tensor)
assert_type(x @ x.T, Tensor)
assert_type(x**2, Tensor)
assert_type(-x, Tensor)
assert_type(x == 0, Tensor)
assert_type(x > 0.5, Tensor)
assert_type((x > 0) & (x < 1), Tensor)
assert_type(~(x > 0), Tensor)
assert_type(x[0], Tensor)
assert_type(x[:, 1:], Tensor)
assert_type(x[x > 0], Tensor)
x[0] = 1.0
x += 1

# Views and shapes
assert_type(x.view(3, 2), Tensor)
assert_type(x.view((3, 2)), Tensor)
assert_type(x.view(-1), Tensor)
assert_type(x.reshape(3, -1), Tensor)
assert_type(x.reshape([3, 2]), Tensor)
assert_type(x.permute(1, 0), Tensor)
assert_type(x.permute((1, 0)), Tensor)
assert_type(x.transpose(0, 1), Tensor)
assert_type(x.unsqueeze(0).squeeze(0).squeeze(), Tensor)
assert_type(x.expand(4, 2, 3), Tensor)
assert_type(x.repeat(2, 2), Tensor)
assert_type(x.flatten(1), Tensor)
assert_type(x.chunk(2), tuple[Tensor, ...])
assert_type(x.split(1, dim=0), tuple[Tensor, ...])
assert_type(x.unbind(), tuple[Tensor, ...])
assert_type(tangrad.cat([x, x], dim=1), Tensor)
assert_type(tangrad.stack((x, x)), Tensor)
assert_type(tangrad.where(x > 0, x, 0.0), Tensor)
assert_type(x.contiguous(), Tensor)

# Reductions and order
assert_type(x.sum(), Tensor)
assert_type(x.sum(1), Tensor)
assert_type(x.sum((0, 1), keepdim=True), Tensor)
assert_type(x.mean(dim=-1, dtype=tangrad.float64), Tensor)
assert_type(x.max(), Tensor)
assert_type(x.max(1).values, Tensor)
assert_type(x.max(dim=1, keepdim=True).indices, Tensor)
assert_type(tangrad.max(x, x), Tensor)
values, indices = x.sort(descending=True)
assert_type(values, Tensor)
assert_type(x.topk(2).indices, Tensor)
assert_type(x.argmax(), Tensor)
assert_type(x.argmax(dim=1), Tensor)
assert_type(x.std(), Tensor)
assert_type(x.var(0, keepdim=True), Tensor)
assert_type(tangrad.allclose(x, x), bool)
assert_type(tangrad.cumsum(x, 0), Tensor)
assert_type(x.clamp(min=0.0), Tensor)
assert_type(x.clamp(0, 1), Tensor)

x.is_contiguous(memory_format=tangrad.channels_last)

# Elementwise, in place, out=
assert_type(x.exp().log().relu(), Tensor)
assert_type(tangrad.add(x, x, alpha=2), Tensor)
assert_type(tangrad.add(x, 1, out=x), Tensor)
assert_type(x.add_(1).mul_(x).zero_(), Tensor)
assert_type(x.float(), Tensor)
assert_type(x.to(tangrad.float64), Tensor)
assert_type(x.to("cpu", non_blocking=True), Tensor)
assert_type(x.type_as(x), Tensor)
assert_type(x.detach().clone(), Tensor)
assert_type(x.masked_fill(x > 0, -1.0), Tensor)
assert_type(x.gather(1, indices), Tensor)
assert_type(tangrad.einsum("ij,kj->ik", x, x), Tensor)

# Autograd
x.requires_grad_().sum().backward()
with tangrad.no_grad():
    x.grad = None

# Namespaces
assert_type(tangrad.linalg.norm(x), Tensor)
assert_type(tangrad.linalg.svd(x).S, Tensor)
assert_type(tangrad.linalg.solve(x, x), Tensor)
assert_type(tangrad.fft.fft(x, dim=0), Tensor)
assert_type(tangrad.special.gammaln(x), Tensor)
assert_type(tangrad.signal.windows.hann(8), Tensor)
assert_type(F.relu(x, inplace=True), Tensor)
assert_type(F.softmax(x, dim=-1), Tensor)
assert_type(F.cross_entropy(x, x.argmax(1)), Tensor)
assert_type(F.linear(x, x), Tensor)
assert_type(F.conv2d(x, x, padding=1), Tensor)
assert_type(F.layer_norm(x, [3]), Tensor)
assert_type(F.dropout(x, 0.5, training=False), Tensor)
assert_type(F.gelu(x, approximate="tanh"), Tensor)

# Modules
model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Dropout(0.1))
optimizer = optim.AdamW(model.parameters(), lr=1e-3)
loss = nn.MSELoss()(model(x), x)
optimizer.zero_grad()
optimizer.step()
weight: Tensor = nn.Parameter(x)

# Layers
layer = nn.Linear(3, 4)
assert_type(layer.weight, Tensor)
assert_type(layer.forward(x), Tensor)
assert_type(nn.Conv2d(1, 2, 3).forward(x), Tensor)
assert_type(nn.CrossEntropyLoss().forward(x, x), Tensor)
for parameter_name, parameter in layer.named_parameters():
    assert_type(parameter_name, str)
    assert_type(parameter, nn.Parameter)
for _, submodule in layer.named_modules():
    assert_type(submodule, nn.Module)
for _, buffer in layer.named_buffers():
    assert_type(buffer, Tensor)
assert_type(list(layer.parameters()), list[nn.Parameter])
assert_type(layer.state_dict(), dict[str, Any])
optim.SGD(layer.parameters(), 0.1)
layer.load_state_dict(layer.state_dict())

# Switches of recording
assert_type(tangrad.no_grad(), tangrad.no_grad)
assert_type(tangrad.enable_grad(), tangrad.enable_grad)


@tangrad.no_grad()
def evaluated(model: nn.Module, count: int) -> list[float]:
    return [0.0] * count


@tangrad.inference_mode()
def predicted(count: int) -> Tensor:
    return tangrad.zeros(count)


assert_type(evaluated(layer, 3), list[float])
assert_type(predicted(3), Tensor)
