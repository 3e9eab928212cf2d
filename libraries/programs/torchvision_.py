"""Detect, classify and transform with torchvision."""

import torch
import torchvision
from outcome import place, tell
from torchvision.models.detection import fasterrcnn_mobilenet_v3_large_320_fpn
from torchvision.models.feature_extraction import create_feature_extractor
from torchvision.transforms import v2

torch.manual_seed(0)
boxes = torch.rand(40, 4) * 50
boxes[:, 2:] += boxes[:, :2] + 1
scores = torch.rand(40)
tell("nms", torchvision.ops.nms(boxes, scores, 0.4))
tell("iou", torchvision.ops.box_iou(boxes[:5], boxes[5:9]))
features = torch.randn(1, 3, 20, 20, requires_grad=True)
aligned = torchvision.ops.roi_align(features, [boxes[:4]], (3, 3), 0.25, 2, True)
aligned.square().sum().backward()
tell("roi_align", aligned)
tell("roi_align.grad", features.grad)
tell("focal", torchvision.ops.sigmoid_focal_loss(torch.randn(8), torch.ones(8), reduction="mean"))

detector = fasterrcnn_mobilenet_v3_large_320_fpn(
    weights=None, weights_backbone=None, num_classes=3, min_size=64, max_size=64
)
optimizer = torch.optim.SGD(
    [p for p in detector.parameters() if p.requires_grad], lr=1e-4, momentum=0.9
)
losses = []
for _ in range(3):
    images = [torch.rand(3, 64, 64) for _ in range(2)]
    targets = [
        {"boxes": torch.tensor([[5.0, 5.0, 30.0, 40.0]]), "labels": torch.tensor([1])}
        for _ in range(2)
    ]
    found = detector(images, targets)
    loss = sum(found.values())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
tell("detector.losses", losses)
detector.eval()
with torch.no_grad():
    tell("detector.keys", sorted(detector([torch.rand(3, 64, 64)])[0]))

# Batch norm over eight numbers amplifies rounding from step to step: float64 leaves none to see.
torch.set_default_dtype(torch.float64)
model = torchvision.models.resnet18(weights=None, num_classes=4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
losses = []
augment = v2.Compose([v2.RandomHorizontalFlip(), v2.Normalize([0.5] * 3, [0.25] * 3)])
for _ in range(20):
    x, y = augment(torch.rand(8, 3, 32, 32)), torch.randint(0, 4, (8,))
    loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
tell("resnet.losses", losses)
model.eval()
body = create_feature_extractor(model, {"layer2": "middle", "avgpool": "end"})
x = torch.rand(2, 3, 32, 32)
with torch.no_grad():
    tell("features", [float(v.mean()) for v in body(x).values()])
torch.save(model.state_dict(), place("resnet.pt"))
again = torchvision.models.resnet18(weights=None, num_classes=4).eval()
again.load_state_dict(torch.load(place("resnet.pt")))
with torch.no_grad():
    tell("resnet.same", bool(torch.equal(again(x), model(x))))
tell("resized", v2.functional.resize(x, [20, 24], antialias=True).mean())
tell("rotated", v2.functional.rotate(x, 30).mean())
tell("grid", torchvision.utils.make_grid(x, nrow=2).shape[-1])
