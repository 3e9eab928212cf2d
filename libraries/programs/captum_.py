"""Explain a network by captum."""

import torch
from captum.attr import (
    DeepLift,
    IntegratedGradients,
    LayerConductance,
    LayerGradCam,
    Occlusion,
    Saliency,
)
from outcome import tell

torch.manual_seed(0)
net = torch.nn.Sequential(
    torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(4 * 36, 3)
)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
losses = []
for _ in range(20):
    loss = torch.nn.functional.cross_entropy(
        net(torch.randn(8, 1, 8, 8)), torch.randint(0, 3, (8,))
    )
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
tell("losses", losses)
net.eval()
x = torch.randn(2, 1, 8, 8)
attributions, delta = IntegratedGradients(net).attribute(
    x, target=1, n_steps=20, return_convergence_delta=True
)
tell("integrated", attributions)
tell("saliency", Saliency(net).attribute(x, target=0))
tell("deeplift", DeepLift(net).attribute(x, target=2))
tell("gradcam", LayerGradCam(net, net[0]).attribute(x, target=1))
tell("conductance", LayerConductance(net, net[1]).attribute(x, target=1, n_steps=10))
tell(
    "occlusion",
    Occlusion(net).attribute(x, target=1, sliding_window_shapes=(1, 4, 4), strides=(1, 2, 2)),
)
