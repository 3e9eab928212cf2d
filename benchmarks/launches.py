"""Count the kernels that a training step launches: ours on the stand-in GPU, PyTorch's by hand.

    python -m tangrad_cuda_emulator --sources FOLDER benchmarks/launches.py

Ours are calls of cuLaunchKernel. PyTorch's are counted from the ops that the same step of the same
model passes to its dispatcher on a CPU: each op that computes launches one kernel on a GPU, but for
those of `SEVERAL` and `NONE`, which say what PyTorch's source for CUDA does. Its optimizers run
fused or by lists, its attention as one op, batch normalization and convolutions by cuDNN.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, NamedTuple

# What only looks at memory otherwise, allocates, or is part of an op counted elsewhere.
NONE = frozenset(
    "detach view _unsafe_view reshape t transpose permute expand unsqueeze squeeze slice select "
    "split chunk unbind alias as_strided empty empty_like new_empty empty_strided lift_fresh "
    # dropout on a CPU draws a mask, divides it and multiplies: on a GPU it is one kernel
    "bernoulli_ div_ _record_function_enter_new _record_function_exit".split()
)
# Ops that launch several, and why.
SEVERAL: dict[str, Callable[[Any], int]] = {
    # the gradient is cleared, then written at the targets
    "nll_loss_backward": lambda args: 2,
    # likewise at the greatest elements
    "max_pool2d_with_indices_backward": lambda args: 2,
    # the input's; weight's and bias' in one
    "native_layer_norm_backward": lambda args: 2,
    # cleared, then added up by rows
    "embedding_dense_backward": lambda args: 2,
    # the sums of products of results and gradients, then all three gradients
    "_scaled_dot_product_flash_attention_for_cpu_backward": lambda args: 2,
    # the bias is added by a kernel of its own
    "convolution": lambda args: 1 + (args[2] is not None),
    # input, weight and bias each by its own
    "convolution_backward": lambda args: sum(args[-1]),
}


class Training(NamedTuple):
    """A model, what it reads and what it is to say."""

    model: Callable[[], Any]
    inputs: Any
    targets: Any
    optimizer: str


def trainings(fw: Any) -> dict[str, Training]:
    """Return small models of each kind, in a framework."""
    nn, functional = fw.nn, fw.nn.functional

    class Gpt(nn.Module):
        """A layer of a transformer that predicts the next token."""

        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.places = nn.Embedding(11, 16), nn.Embedding(8, 16)
            self.norm, self.last = nn.LayerNorm(16), nn.LayerNorm(16)
            self.qkv, self.mixed, self.out = nn.Linear(16, 48), nn.Linear(16, 16), nn.Linear(16, 11)
            self.mlp = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 32), nn.GELU(),
                                     nn.Dropout(0.1), nn.Linear(32, 16))  # fmt: skip

        def forward(self, x: Any) -> Any:
            y = self.tokens(x) + self.places(fw.arange(x.shape[1], device=x.device))
            q, k, v = (
                t.reshape(*x.shape, 2, 8).transpose(1, 2)
                for t in self.qkv(self.norm(y)).chunk(3, -1)
            )
            a = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            y = y + self.mixed(a.transpose(1, 2).reshape(y.shape))
            return self.out(self.last(y + self.mlp(y))).flatten(0, 1)

    class Residual(nn.Module):
        """Two convolutions around which the input passes."""

        def __init__(self, inside: int, outside: int, stride: int) -> None:
            super().__init__()
            self.first = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
            self.second = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
            self.norms = nn.ModuleList([nn.BatchNorm2d(outside), nn.BatchNorm2d(outside)])
            self.shortcut = nn.Identity()
            if inside != outside:
                self.shortcut = nn.Sequential(
                    nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside)
                )

        def forward(self, x: Any) -> Any:
            y = functional.relu(self.norms[0](self.first(x)))
            return functional.relu(self.norms[1](self.second(y)) + self.shortcut(x))

    class Bert(nn.Module):
        """The embeddings of BERT, one layer, and the logits of each token."""

        def __init__(self) -> None:
            super().__init__()
            sizes = ((11, 16), (8, 16), (2, 16))
            self.tokens, self.places, self.kinds = (nn.Embedding(*size) for size in sizes)
            self.norm, self.drop = nn.LayerNorm(16), nn.Dropout(0.1)
            self.layer = nn.TransformerEncoderLayer(
                16, 2, 32, dropout=0.1, activation="gelu", batch_first=True
            )
            # With dropout inside, PyTorch's attention on a CPU is not one op, as on a GPU.
            self.layer.self_attn.dropout = 0.0
            self.out = nn.Linear(16, 11)

        def forward(self, x: Any) -> Any:
            places = fw.arange(x.shape[1], device=x.device)
            y = self.tokens(x) + self.places(places) + self.kinds(x * 0)
            return self.out(self.layer(self.drop(self.norm(y)))).flatten(0, 1)

    def perceptron() -> Any:
        return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))

    def lenet() -> Any:
        return nn.Sequential(
            nn.Conv2d(1, 4, 5, padding=2), nn.ReLU(), nn.AvgPool2d(2),
            nn.Conv2d(4, 8, 3), nn.ReLU(), nn.AvgPool2d(2),
            nn.Flatten(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 4),
        )  # fmt: skip

    def resnet() -> Any:
        return nn.Sequential(
            nn.Conv2d(3, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
            Residual(8, 8, 1), Residual(8, 16, 2),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 5),
        )  # fmt: skip

    def spread(*sizes: int) -> Any:
        count = 1
        for size in sizes:
            count *= size
        return (fw.arange(count) * 37 % 17).reshape(sizes) / 16.0

    tokens = fw.arange(32).reshape(4, 8) * 7 % 11
    following = (tokens.flatten() + 1) % 11
    return {
        "MLP": Training(perceptron, spread(64, 64), fw.arange(64) % 10, "SGD"),
        "LeNet": Training(lenet, spread(4, 1, 12, 12), fw.arange(4), "AdamW"),
        "ResNet": Training(resnet, spread(4, 3, 12, 12), fw.arange(4), "SGD"),
        "char-GPT": Training(Gpt, tokens, following, "AdamW"),
        "BERT layer": Training(Bert, tokens, following, "AdamW"),
    }


def stepping(fw: Any, training: Training, device: str) -> Callable[[], Any]:
    """Return what takes a step of a training."""
    fw.manual_seed(0)
    model = training.model().to(device)
    inputs, targets = training.inputs.to(device), training.targets.to(device)
    fused = {"fused": True} if hasattr(fw, "_dynamo") else {}
    optimizer = getattr(fw.optim, training.optimizer)(model.parameters(), lr=0.05, **fused)

    def step() -> Any:
        optimizer.zero_grad()
        loss = fw.nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        return loss

    return step


def ours() -> dict[str, int]:
    """Count our launches of the third step: the first ones may fill constants."""
    import tangrad
    import tangrad_cuda_emulator as emulator

    found = {}
    for name, training in trainings(tangrad).items():
        step = stepping(tangrad, training, "cuda")
        for _ in range(3):
            before = emulator.calls("cuLaunchKernel")
            loss = step()
            found[name] = emulator.calls("cuLaunchKernel") - before
            loss.item()
    return found


def theirs() -> dict[str, dict[str, int]]:
    """Count PyTorch's, by op."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Counting(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.launches: dict[str, int] = {}

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            name = func.__name__.partition(".")[0]
            if name not in NONE:
                count = SEVERAL.get(name, lambda args: 1)(args)
                self.launches[name] = self.launches.get(name, 0) + count
            return func(*args, **(kwargs or {}))

    found = {}
    for name, training in trainings(torch).items():
        step = stepping(torch, training, "cpu")
        step()
        with Counting() as counting:
            step()
        found[name] = counting.launches
    return found


def main() -> None:
    """Print a row for each model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ops", action="store_true", help="list PyTorch's ops, too")
    options = parser.parse_args()
    mine = ours()
    print(f"{'launches of a step':20} {'tangrad':>8} {'PyTorch':>8}")
    for name, by_op in theirs().items():
        print(f"{name:20} {mine[name]:8} {sum(by_op.values()):8}")
        if options.ops:
            print("   ", ", ".join(f"{op} {count}" for op, count in sorted(by_op.items())))


if __name__ == "__main__":
    main()
