"""Fit normalizing flows with nflows: masked autoregressive ones, and couplings with splines."""

import torch
from nflows.distributions.normal import StandardNormal
from nflows.flows.base import Flow
from nflows.nn.nets import ResidualNet
from nflows.transforms.autoregressive import MaskedAffineAutoregressiveTransform
from nflows.transforms.base import CompositeTransform
from nflows.transforms.coupling import PiecewiseRationalQuadraticCouplingTransform
from nflows.transforms.lu import LULinear
from nflows.transforms.permutations import ReversePermutation
from outcome import place, tell

torch.manual_seed(0)


def moons(count):
    """Return points on two half circles, with noise."""
    angle = torch.rand(count) * torch.pi
    upper = (torch.rand(count) < 0.5).float()
    x = torch.cos(angle) * (2 * upper - 1) + 1 - upper
    y = torch.sin(angle) * (2 * upper - 1) + 0.5 * (1 - upper)
    return torch.stack([x, y], 1) + 0.05 * torch.randn(count, 2)


def fit(name, transform):
    """Train a flow on points and tell its losses, densities and samples."""
    flow = Flow(transform, StandardNormal([2]))
    optimizer = torch.optim.Adam(flow.parameters(), lr=1e-2)
    losses = []
    for _ in range(25):
        loss = -flow.log_prob(moons(64)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    tell(f"{name}.losses", losses)
    flow.eval()
    x = moons(8)
    with torch.no_grad():
        tell(f"{name}.densities", flow.log_prob(x))
        noise = flow.transform_to_noise(x)
        tell(f"{name}.noise", noise)
        back, _ = flow._transform.inverse(noise)
        tell(f"{name}.inverted", float((back - x).abs().max()) < 1e-3)
        samples, densities = flow.sample_and_log_prob(5)
        tell(f"{name}.samples", samples)
        tell(f"{name}.sample_densities", densities)
    torch.save(flow.state_dict(), place(f"{name}.pt"))
    flow.load_state_dict(torch.load(place(f"{name}.pt")))
    with torch.no_grad():
        tell(f"{name}.again", flow.log_prob(x))


layers = []
for _ in range(2):
    layers.append(ReversePermutation(features=2))
    layers.append(MaskedAffineAutoregressiveTransform(features=2, hidden_features=16))
fit("autoregressive", CompositeTransform(layers))


def network(inputs, outputs):
    """Return the network of a coupling."""
    return ResidualNet(inputs, outputs, hidden_features=16, num_blocks=1)


couplings = []
for i in range(2):
    couplings.append(LULinear(2))
    mask = torch.tensor([1, -1]) if i % 2 else torch.tensor([-1, 1])
    couplings.append(
        PiecewiseRationalQuadraticCouplingTransform(mask, network, tails="linear", tail_bound=4.0)
    )
fit("spline", CompositeTransform(couplings))
