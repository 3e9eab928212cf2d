"""Train a small diffusion model with diffusers and sample from it."""

import torch
from diffusers import DDIMScheduler, DDPMScheduler, UNet2DModel
from outcome import place, tell

torch.manual_seed(0)
model = UNet2DModel(
    sample_size=16,
    in_channels=1,
    out_channels=1,
    layers_per_block=1,
    block_out_channels=(16, 32),
    norm_num_groups=8,
    down_block_types=("DownBlock2D", "AttnDownBlock2D"),
    up_block_types=("AttnUpBlock2D", "UpBlock2D"),
)
schedule = DDPMScheduler(num_train_timesteps=100)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
losses = []
for _ in range(20):
    clean = torch.rand(4, 1, 16, 16) * 2 - 1
    noise = torch.randn(clean.shape)
    steps = torch.randint(0, 100, (4,))
    loss = torch.nn.functional.mse_loss(
        model(schedule.add_noise(clean, noise, steps), steps).sample, noise
    )
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
tell("losses", losses)
model.eval()
sampler = DDIMScheduler(num_train_timesteps=100)
sampler.set_timesteps(8)
x = torch.randn(1, 1, 16, 16)
with torch.no_grad():
    for t in sampler.timesteps:
        x = sampler.step(model(x, t).sample, t, x).prev_sample
tell("sample", x)
model.save_pretrained(place("unet"))
again = UNet2DModel.from_pretrained(place("unet")).eval()
with torch.no_grad():
    # Not to the bit: PyTorch's kernels sum by where in memory the weights lie.
    tell("same", bool(torch.allclose(again(x, 3).sample, model(x, 3).sample, atol=1e-5)))
