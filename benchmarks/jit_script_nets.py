"""The models of `jit_script_models.py`, for either framework: `scripted_side` is one of them."""

import math

import scripted_side as torch

nn = torch.nn


class Bottleneck(nn.Module):
    """The block of ResNet-50: three convolutions beside what leads around them."""

    def __init__(self, inside: int, width: int, stride: int, down: bool) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inside, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Module | None = None
        if down:
            conv = nn.Conv2d(inside, 4 * width, 1, stride, bias=False)
            self.downsample = nn.Sequential(conv, nn.BatchNorm2d(4 * width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the block's result."""
        around = x
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        if self.downsample is not None:
            around = self.downsample(x)
        out += around
        return self.relu(out)


class ResNet(nn.Module):
    """ResNet-50."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        self.relu, self.maxpool = nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
        inside = 64
        for k, count in enumerate((3, 4, 6, 3)):
            blocks = []
            for block in range(count):
                stride = 2 if k > 0 and block == 0 else 1
                blocks.append(Bottleneck(inside, 64 << k, stride, block == 0))
                inside = 256 << k
            setattr(self, f"layer{k + 1}", nn.Sequential(*blocks))
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d((1, 1)), nn.Linear(2048, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the scores of classes."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


class Perceptron(nn.Module):
    """Three linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the scores of classes."""
        return self.layers(x)


class LeNet(nn.Module):
    """Two convolutions and three linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 5, padding=2), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the scores of classes."""
        x = nn.functional.max_pool2d(torch.relu(self.conv1(x)), 2)
        x = nn.functional.max_pool2d(torch.relu(self.conv2(x)), 2)
        x = torch.relu(self.fc1(torch.flatten(x, 1)))
        return self.fc3(torch.relu(self.fc2(x)))


class Attention(nn.Module):
    """Causal attention of some heads."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what each place gathers of those before it."""
        b, t, c = x.size(0), x.size(1), x.size(2)
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q = q.view(b, t, self.heads, c // self.heads).transpose(1, 2)
        k = k.view(b, t, self.heads, c // self.heads).transpose(1, 2)
        v = v.view(b, t, self.heads, c // self.heads).transpose(1, 2)
        scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(c // self.heads)
        mask = torch.ones(t, t, dtype=torch.bool).tril()
        scores = scores.masked_fill(mask.logical_not(), float("-inf"))
        made = torch.matmul(torch.softmax(scores, -1), v)
        return self.out(made.transpose(1, 2).reshape(b, t, c))


class Layer(nn.Module):
    """Attention and two linear layers, each beside what leads around it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the layer's result."""
        x = x + self.attention(self.norm1(x))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class CharGPT(nn.Module):
    """A transformer that predicts characters."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(65, 64), nn.Embedding(64, 64)
        self.layers = nn.ModuleList([Layer(64, 4) for _ in range(3)])
        self.norm, self.head = nn.LayerNorm(64), nn.Linear(64, 65)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the scores of the next character at each place."""
        held = self.tokens(x) + self.places(torch.arange(x.size(1)))
        for layer in self.layers:
            held = layer(held)
        return self.head(self.norm(held))
