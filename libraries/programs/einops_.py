"""Rearrange, reduce and multiply by einops, in layers too."""

import einops
import torch
from einops import pack, rearrange, reduce, repeat, unpack
from einops.layers.torch import EinMix, Rearrange, Reduce
from outcome import place, tell

torch.manual_seed(0)
x = torch.randn(2, 3, 8, 8)
tell("patches", rearrange(x, "b c (h p) (w q) -> b (h w) (p q c)", p=4, q=4))
tell("pooled", reduce(x, "b c (h p) (w q) -> b c h w", "max", p=2, q=2))
tell("repeated", repeat(x[0, 0], "h w -> h (w k)", k=2))
packed, shapes = pack([torch.ones(2, 3), torch.zeros(2, 4, 5)], "b *")
tell("packed", packed)
tell("unpacked", [part.numel() for part in unpack(packed, shapes, "b *")])
tell("einsum", einops.einsum(x, x, "b c h w, b d h w -> b c d"))
net = torch.nn.Sequential(
    Rearrange("b c (h p) (w q) -> b (h w) (p q c)", p=4, q=4),
    EinMix("b n c -> b n d", weight_shape="c d", bias_shape="d", c=48, d=16),
    torch.nn.GELU(),
    Reduce("b n d -> b d", "mean"),
    torch.nn.Linear(16, 3),
)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
losses = []
for _ in range(20):
    loss = torch.nn.functional.cross_entropy(
        net(torch.randn(6, 3, 8, 8)), torch.randint(0, 3, (6,))
    )
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
tell("losses", losses)
torch.save(net, place("net.pt"))
tell("again", torch.load(place("net.pt"), weights_only=False)(x))
