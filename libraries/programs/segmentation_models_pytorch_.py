"""Train a U-Net of segmentation_models_pytorch."""

import segmentation_models_pytorch as smp
import torch
from outcome import place, tell

torch.manual_seed(0)
model = smp.Unet(
    "resnet18", encoder_weights=None, in_channels=1, classes=2, decoder_channels=(32, 16, 16, 8, 8)
)
criterion = smp.losses.DiceLoss("multiclass")
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
losses = []
for _ in range(20):
    x = torch.rand(2, 1, 32, 32)
    y = (x[:, 0] > 0.5).long()
    loss = criterion(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
tell("losses", losses)
model.eval()
stats = smp.metrics.get_stats(model(x).argmax(1), y, mode="multiclass", num_classes=2)
tell("stats", [part.shape[0] for part in stats])
torch.save(model.state_dict(), place("unet.pt"))
before = model(x)
model.load_state_dict(torch.load(place("unet.pt")))
tell("same", bool(torch.equal(before, model(x))))
