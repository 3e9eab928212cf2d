"""Train with per-sample gradients clipped by opacus."""

import warnings

import torch
from opacus import PrivacyEngine
from opacus.grad_sample import GradSampleModule
from outcome import place, tell
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
torch.manual_seed(0)
x = torch.randn(64, 1, 8, 8)
y = torch.randint(0, 3, (64,))
net = torch.nn.Sequential(
    torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 3)
)
wrapped = GradSampleModule(net)
torch.nn.functional.cross_entropy(wrapped(x[:6]), y[:6]).backward()
for name, parameter in wrapped.named_parameters():
    tell(name, parameter.grad_sample.square().sum())
net = torch.nn.Sequential(
    torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 3)
)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
engine = PrivacyEngine()
net, optimizer, loader = engine.make_private(
    module=net,
    optimizer=optimizer,
    data_loader=DataLoader(TensorDataset(x, y), batch_size=16),
    noise_multiplier=0.0,
    max_grad_norm=1.0,
    poisson_sampling=False,
)
losses = []
for _ in range(5):
    for a, b in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(a), b)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
tell("losses", losses)
torch.save(net.state_dict(), place("private.pt"))
net.load_state_dict(torch.load(place("private.pt")))
tell("predicted", net(x[:2]))
