"""Classify images with vit-pytorch: plain, simple and convolutional transformers."""

import torch
from outcome import place, tell
from vit_pytorch import SimpleViT, ViT
from vit_pytorch.cct import CCT
from vit_pytorch.recorder import Recorder

torch.manual_seed(0)
size = {"image_size": 16, "num_classes": 4, "dim": 16, "depth": 2, "heads": 2, "mlp_dim": 32}
models = {
    "vit": ViT(patch_size=4, dropout=0.1, emb_dropout=0.1, **size),
    "simple": SimpleViT(patch_size=4, **size),
    "cct": CCT(
        img_size=16,
        embedding_dim=16,
        n_conv_layers=1,
        num_layers=2,
        num_heads=2,
        mlp_ratio=2.0,
        num_classes=4,
        positional_embedding="learnable",
    ),
}
for name, model in models.items():
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    losses = []
    for _ in range(20):
        x, y = torch.rand(4, 3, 16, 16), torch.randint(0, 4, (4,))
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    tell(f"{name}.losses", losses)
    model.eval()
    x = torch.rand(2, 3, 16, 16)
    with torch.no_grad():
        before = model(x)
    tell(f"{name}.logits", before)
    torch.save(model.state_dict(), place(f"{name}.pt"))
    model.load_state_dict(torch.load(place(f"{name}.pt")))
    with torch.no_grad():
        tell(f"{name}.same", bool(torch.equal(model(x), before)))

recorder = Recorder(models["vit"])
with torch.no_grad():
    _, attention = recorder(torch.rand(1, 3, 16, 16))
tell("attention", attention)
recorder.eject()
