"""Networks that training and inference share, each written once for every framework."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

RESNET_18 = ((2, 2, 2, 2), False)
RESNET_50 = ((3, 4, 6, 3), True)
VOCABULARY = 65


@lru_cache(maxsize=2)
def classes(fw: Any) -> SimpleNamespace:
    """Return the classes of modules, derived from a framework's own."""
    nn, functional = fw.nn, fw.nn.functional

    class Block(nn.Module):
        """A transformer's layer, norm first: attention, then a perceptron."""

        def __init__(self, width: int, heads: int, causal: bool = True) -> None:
            super().__init__()
            self.heads, self.causal = heads, causal
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any, past: list[Any] | None = None) -> Any:
            batch, length, width = x.shape
            qkv = self.qkv(self.norm1(x))
            split = qkv.view(batch, length, 3, self.heads, width // self.heads)
            q, k, v = split.permute(2, 0, 3, 1, 4).unbind(0)
            if past is not None:
                if past:
                    k, v = fw.cat((past[0], k), 2), fw.cat((past[1], v), 2)
                past[:] = k, v
            causal = self.causal and length > 1
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
            x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
            return x + self.down(functional.gelu(self.up(self.norm2(x))))

    class Transformer(nn.Module):
        """Embeddings, layers, and the logits of each token."""

        def __init__(self, layers: int, width: int, heads: int, vocabulary: int = VOCABULARY,
                     context: int = 128, causal: bool = True) -> None:  # fmt: skip
            super().__init__()
            self.tokens = nn.Embedding(vocabulary, width)
            self.positions = nn.Embedding(context, width)
            self.layers = nn.ModuleList([Block(width, heads, causal) for _ in range(layers)])
            self.norm = nn.LayerNorm(width)
            self.head = nn.Linear(width, vocabulary) if causal else nn.Identity()

        def forward(self, tokens: Any, pasts: list[Any] | None = None, start: int = 0) -> Any:
            places = fw.arange(start, start + tokens.shape[1])
            x = self.tokens(tokens) + self.positions(places)
            for index, layer in enumerate(self.layers):
                x = layer(x, None if pasts is None else pasts[index])
            return self.head(self.norm(x))

    class Residual(nn.Module):
        """Two 3×3 convolutions, or 1×1, 3×3, 1×1, around which the input passes."""

        def __init__(self, inside: int, width: int, stride: int, bottleneck: bool) -> None:
            super().__init__()
            outside = 4 * width if bottleneck else width
            if bottleneck:
                shapes = ((inside, width, 1, 1), (width, width, 3, stride), (width, outside, 1, 1))
            else:
                shapes = ((inside, width, 3, stride), (width, width, 3, 1))
            self.convolutions = nn.ModuleList([convolution(*shape) for shape in shapes])
            self.norms = nn.ModuleList([nn.BatchNorm2d(shape[1]) for shape in shapes])
            self.shortcut = nn.Identity()
            if stride > 1 or inside != outside:
                self.shortcut = nn.Sequential(
                    convolution(inside, outside, 1, stride), nn.BatchNorm2d(outside)
                )

        def forward(self, x: Any) -> Any:
            y, last = x, len(self.norms) - 1
            for index in range(last + 1):
                y = self.norms[index](self.convolutions[index](y))
                if index < last:
                    y = functional.relu(y)
            return functional.relu(y + self.shortcut(x))

    def convolution(inside: int, outside: int, size: int, stride: int) -> Any:
        return nn.Conv2d(inside, outside, size, stride, size // 2, bias=False)

    class ResNet(nn.Module):
        """He et al., 2016; for 32×32 pictures the stem is one 3×3 convolution."""

        def __init__(self, depths: tuple[int, ...], bottleneck: bool, small: bool,
                     labels: int) -> None:  # fmt: skip
            super().__init__()
            stem = [convolution(3, 64, 3 if small else 7, 1 if small else 2)]
            stem += [nn.BatchNorm2d(64), nn.ReLU()]
            if not small:
                stem.append(nn.MaxPool2d(3, 2, 1))
            blocks, inside = [], 64
            for stage, depth in enumerate(depths):
                width = 64 << stage
                for place in range(depth):
                    stride = 2 if stage and not place else 1
                    blocks.append(Residual(inside, width, stride, bottleneck))
                    inside = 4 * width if bottleneck else width
            self.features = nn.Sequential(*stem, *blocks)
            self.head = nn.Linear(inside, labels)

        def forward(self, x: Any) -> Any:
            return self.head(self.features(x).mean((2, 3)))

    class Language(nn.Module):
        """An LSTM that predicts the next token."""

        def __init__(self, width: int, vocabulary: int = VOCABULARY) -> None:
            super().__init__()
            self.tokens = nn.Embedding(vocabulary, width)
            self.recurrent = nn.LSTM(width, width, batch_first=True)
            self.head = nn.Linear(width, vocabulary)

        def forward(self, tokens: Any, state: Any = None) -> Any:
            hidden, state = self.recurrent(self.tokens(tokens), state)
            return self.head(hidden), state

    class Autoencoder(nn.Module):
        """A variational autoencoder of 28×28 pictures (Kingma and Welling, 2014)."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(784, 400)
            self.mean, self.spread = nn.Linear(400, 20), nn.Linear(400, 20)
            self.outer = nn.Sequential(nn.Linear(20, 400), nn.ReLU(), nn.Linear(400, 784))

        def forward(self, x: Any) -> Any:
            """Return the negative of the evidence's lower bound."""
            hidden = self.inner(x).relu()
            mean, spread = self.mean(hidden), self.spread(hidden)
            code = mean + fw.randn_like(spread) * (0.5 * spread).exp()
            drawn = self.outer(code)
            rebuilt = functional.binary_cross_entropy_with_logits(drawn, x, reduction="sum")
            return rebuilt - 0.5 * (1 + spread - mean.square() - spread.exp()).sum()

    return SimpleNamespace(
        Block=Block,
        Transformer=Transformer,
        ResNet=ResNet,
        Language=Language,
        Autoencoder=Autoencoder,
    )


def perceptron(fw: Any, *widths: int) -> Any:
    """Return linear layers with ReLU between them."""
    nn = fw.nn
    layers: list[Any] = []
    for inside, outside in pairwise(widths):
        layers += [nn.Linear(inside, outside), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def lenet(fw: Any) -> Any:
    """Return a small convolutional network for 28×28 pictures."""
    nn = fw.nn
    return nn.Sequential(
        nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64 * 49, 256), nn.ReLU(), nn.Linear(256, 10),
    )  # fmt: skip


def gpt(fw: Any, layers: int = 4, width: int = 128) -> Any:
    """Return a character model; heads have 32 channels, or 64 in wide models."""
    return classes(fw).Transformer(layers, width, width // (32 if width < 512 else 64))


def resnet(fw: Any, depth: int) -> Any:
    """Return ResNet-18 for 32×32 pictures or ResNet-50 for 224×224."""
    if depth == 18:
        return classes(fw).ResNet(*RESNET_18, True, 10)
    return classes(fw).ResNet(*RESNET_50, False, 1000)
