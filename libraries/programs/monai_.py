"""Segment volumes with MONAI: transforms, a U-Net, losses, metrics, inference by windows."""

import numpy as np
import torch
from monai.data import DataLoader, Dataset, decollate_batch
from monai.inferers import sliding_window_inference
from monai.losses import DiceCELoss, DiceLoss, FocalLoss
from monai.metrics import DiceMetric, HausdorffDistanceMetric
from monai.networks.nets import DenseNet121, UNet
from monai.transforms import (
    AsDiscrete,
    Compose,
    EnsureChannelFirstd,
    RandFlipd,
    RandRotate90d,
    ScaleIntensityd,
    Spacingd,
)
from monai.utils import set_determinism
from outcome import place, tell

torch.manual_seed(0)
set_determinism(0)
# Volumes with a ball each, and where the ball is.
noise = np.random.RandomState(0)
grid = np.stack(np.meshgrid(*[np.arange(16)] * 3, indexing="ij"))
examples = []
for _ in range(4):
    center = noise.randint(5, 11, 3)[:, None, None, None]
    ball = (((grid - center) ** 2).sum(0) < 16).astype(np.float32)
    image = ball + 0.3 * noise.rand(16, 16, 16).astype(np.float32)
    examples.append({"image": image, "label": ball})

keys = ["image", "label"]
transform = Compose(
    [
        EnsureChannelFirstd(keys, channel_dim="no_channel"),
        ScaleIntensityd("image"),
        RandFlipd(keys, prob=0.5, spatial_axis=0),
        RandRotate90d(keys, prob=0.5, spatial_axes=(0, 2)),
    ]
).set_random_state(0)
data = Dataset(examples, transform)
tell("transformed", [float(data[i]["image"].mean()) for i in range(4)])
spaced = Spacingd(keys, pixdim=(2, 2, 2), mode=("bilinear", "nearest"))(
    EnsureChannelFirstd(keys, channel_dim="no_channel")(examples[0])
)
tell("spaced", [list(spaced["image"].shape), float(spaced["image"].mean())])
tell("affine", spaced["image"].affine)

model = UNet(3, 1, 2, channels=(4, 8, 16), strides=(2, 2), num_res_units=1).double()
optimizer = torch.optim.SGD(model.parameters(), 0.05)
loss_of = DiceCELoss(to_onehot_y=True, softmax=True)
losses = []
for _ in range(10):
    for batch in DataLoader(data, batch_size=2):
        loss = loss_of(model(batch["image"].as_tensor().double()), batch["label"].as_tensor())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
tell("losses", losses)

model.eval()
dice, distance = DiceMetric(include_background=False), HausdorffDistanceMetric()
finish, onehot = AsDiscrete(argmax=True, to_onehot=2), AsDiscrete(to_onehot=2)
with torch.no_grad():
    for batch in DataLoader(data, batch_size=2):
        out = sliding_window_inference(
            batch["image"].as_tensor().double(), (8, 8, 8), 2, model, overlap=0.5
        )
        tell("windows", out.mean((2, 3, 4)))
        found = [finish(x) for x in decollate_batch(out)]
        wanted = [onehot(x) for x in decollate_batch(batch["label"])]
        dice(y_pred=found, y=wanted)
        tell("labels", [[type(x).__name__, float(x.mean())] for x in wanted])
tell("dice", float(dice.aggregate()))
torch.save(model.state_dict(), place("unet.pt"))
model.load_state_dict(torch.load(place("unet.pt")))
logits = torch.randn(2, 1, 6, 6)
target = (torch.rand(2, 1, 6, 6) > 0.5).float()
tell("dice_loss", DiceLoss(sigmoid=True)(logits, target))
tell("focal", FocalLoss(gamma=2.0)(logits, target))
net = DenseNet121(spatial_dims=2, in_channels=1, out_channels=2).eval()
with torch.no_grad():
    tell("densenet", net(torch.randn(1, 1, 32, 32)))
