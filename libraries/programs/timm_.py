"""Train networks of timm with its optimizers and schedules; save and load them."""

import timm
import torch
from outcome import place, tell
from timm.loss import LabelSmoothingCrossEntropy
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler
from timm.utils import ModelEmaV2, accuracy

torch.manual_seed(0)
for name, size in (
    ("resnet18", 32),
    ("vit_tiny_patch16_224", 32),
    ("convnext_atto", 32),
    ("efficientnet_lite0", 32),
):
    options = {"img_size": size, "patch_size": 8} if name.startswith("vit") else {}
    model = timm.create_model(name, pretrained=False, num_classes=5, **options)
    optimizer = create_optimizer_v2(model, opt="adamw", lr=2e-4, weight_decay=0.05)
    scheduler = CosineLRScheduler(optimizer, t_initial=20, warmup_t=3, warmup_lr_init=1e-5)
    ema = ModelEmaV2(model, decay=0.9)
    criterion = LabelSmoothingCrossEntropy(0.1)
    losses = []
    steps = 20 if name in ("resnet18", "vit_tiny_patch16_224") else 4
    for step in range(steps):
        x, y = torch.randn(8, 3, size, size), torch.randint(0, 5, (8,))
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step(step)
        ema.update(model)
        losses.append(loss.item())
    tell(f"{name}.losses", losses)
    model.eval()
    x = torch.randn(4, 3, size, size)
    with torch.no_grad():
        out = model(x)
    torch.save(model.state_dict(), place(f"{name}.pt"))
    again = timm.create_model(name, pretrained=False, num_classes=5, **options).eval()
    again.load_state_dict(torch.load(place(f"{name}.pt"), weights_only=True))
    with torch.no_grad():
        tell(f"{name}.same", bool(torch.equal(again(x), out)))
        tell(f"{name}.features", model.forward_features(x).mean().item())
    tell(f"{name}.top", [v.item() for v in accuracy(out, torch.tensor([0, 1, 2, 3]), topk=(1, 3))])
