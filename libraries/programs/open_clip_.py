"""Train a small contrastive model of open_clip."""

import torch
from open_clip import ClipLoss
from open_clip.model import CLIP, CLIPTextCfg, CLIPVisionCfg
from outcome import place, tell


def build():
    return CLIP(
        embed_dim=32,
        vision_cfg=CLIPVisionCfg(layers=2, width=64, head_width=32, patch_size=8, image_size=32),
        text_cfg=CLIPTextCfg(context_length=16, vocab_size=64, width=64, heads=2, layers=2),
    )


torch.manual_seed(0)
model = build()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
criterion = ClipLoss()
losses = []
for _ in range(20):
    images, texts = torch.randn(8, 3, 32, 32), torch.randint(1, 64, (8, 16))
    image, text, scale = model(images, texts)
    loss = criterion(image, text, scale)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
tell("losses", losses)
model.eval()
torch.save(model.state_dict(), place("clip.pt"))
again = build().eval()
again.load_state_dict(torch.load(place("clip.pt")))
with torch.no_grad():
    tell("image", again.encode_image(images, normalize=True))
    tell("text", again.encode_text(texts, normalize=True))
