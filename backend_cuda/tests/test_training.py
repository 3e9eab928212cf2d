"""Models train on the stand-in GPU to the losses that they have on `cpu`, and never leave it.

Nor do they launch more kernels than they did, or copy anything between the host and the device
within a step; docs/cuda.md compares the numbers of launches with PyTorch's.
"""

from __future__ import annotations

import pytest

COMMON = """
import tangrad
import tangrad_cuda_emulator
from tangrad import nn
from tangrad.plugin import fallback_calls
F = nn.functional

def driver_calls():
    return [tangrad_cuda_emulator.calls(f"cu{name}") for name in
            ("LaunchKernel", "MemcpyHtoDAsync_v2", "MemcpyDtoHAsync_v2")]

def losses(device, make, x, y, optimizer, steps=3):
    tangrad.manual_seed(0)
    model = make().to(device)
    steps_of = getattr(tangrad.optim, optimizer)(model.parameters(), lr=0.05)
    tangrad.manual_seed(1)  # a model is drawn on the host, by the host's generator
    x, y, found = x.to(device), y.to(device), []
    for _ in range(steps):
        before = driver_calls()
        steps_of.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        steps_of.step()
        spent.append([b - a for a, b in zip(before, driver_calls())])
        found.append(loss.item())
    return found

spent = []

def compare(make, x, y, optimizer, launches):
    there = losses("cuda", make, x, y, optimizer)
    assert spent[-1][0] <= launches and spent[-1][1:] == [0, 0], spent
    here = losses("cpu", make, x, y, optimizer)
    # Sums are taken in another order there.
    assert all(abs(a - b) <= 2e-6 * abs(b) for a, b in zip(there, here)), (there, here)
    assert there[-1] < there[0] and not fallback_calls(), fallback_calls()
"""
MLP = """
x = (tangrad.arange(64 * 64).reshape(64, 64) * 37 % 17) / 16.0
compare(lambda: nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)), x,
        tangrad.arange(64) % 10, "SGD", 19)
"""
CNN = """
def make():
    return nn.Sequential(
        nn.Conv2d(1, 4, 5, padding=2), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(4, 8, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(32, 4))
x = (tangrad.arange(4 * 144).reshape(4, 1, 12, 12) % 17) / 17.0
compare(make, x, tangrad.arange(4), "AdamW", 32)
"""
GPT = """
class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(11, 16), nn.Embedding(8, 16)
        self.norm, self.qkv, self.out = nn.LayerNorm(16), nn.Linear(16, 48), nn.Linear(16, 11)
        self.mlp = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 32), nn.GELU(), nn.Dropout(0.1),
                                 nn.Linear(32, 16))
    def forward(self, x):
        y = self.tokens(x) + self.places(tangrad.arange(x.shape[1], device=x.device))
        q, k, v = (t.reshape(*x.shape, 2, 8).transpose(1, 2)
                   for t in self.qkv(self.norm(y)).chunk(3, -1))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = y + a.transpose(1, 2).reshape(y.shape)
        return self.out(y + self.mlp(y)).flatten(0, 1)
x = tangrad.arange(32).reshape(4, 8) * 7 % 11
compare(Gpt, x, (x.flatten() + 1) % 11, "AdamW", 62)
"""
LSTM = """
class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.cells = nn.Embedding(11, 8), nn.LSTM(8, 8, batch_first=True)
        self.out = nn.Linear(8, 11)
    def forward(self, x):
        return self.out(self.cells(self.tokens(x))[0]).flatten(0, 1)
x = tangrad.arange(32).reshape(4, 8) * 7 % 11
compare(Lstm, x, (x.flatten() + 1) % 11, "Adam", 68)
"""


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(MLP, id="mlp"),
        *(
            pytest.param(model, id=name, marks=pytest.mark.slow)
            for name, model in {"cnn": CNN, "gpt": GPT, "lstm": LSTM}.items()
        ),
    ],
)
def test_losses_are_those_of_the_cpu(run, model):
    run(COMMON + model)
