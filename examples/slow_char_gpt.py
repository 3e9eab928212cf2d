"""Train a small GPT slowly: where the time goes is for `tangrad profile` to find out.

Two things are wrong with this program, as they are with many: it prepares its text anew for every
batch, and it writes GELU out by hand. docs/profiling.md looks for them; each has its remedy here.

    python -m tangrad profile --out slow.html examples/slow_char_gpt.py
    python -m tangrad profile --out fast.html examples/slow_char_gpt.py --encode-once --fused-gelu
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from pathlib import Path

import tangrad
from tangrad import nn
from tangrad.nn import functional as F
from tangrad.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).parent))
from char_gpt import BATCH, CONTEXT, CharGPT, load_text


class Pieces(Dataset[tangrad.Tensor]):
    """Pieces of a text as numbers of characters.

    Args:
        text: to cut into pieces of CONTEXT + 1 characters.
        count: how many pieces, from all over the text.
        encode_once: number the characters of the whole text here, not those of a piece each time.
    """

    def __init__(self, text: str, count: int, encode_once: bool) -> None:
        self.text, self.count = text, count
        self.alphabet = sorted(set(text))
        self.encoded: tangrad.Tensor | None = None
        if encode_once:
            number = {character: place for place, character in enumerate(self.alphabet)}
            self.encoded = tangrad.tensor([number[character] for character in text])

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tangrad.Tensor:
        begin = index * 9973 % (len(self.text) - CONTEXT - 1)
        if self.encoded is not None:
            return self.encoded[begin : begin + CONTEXT + 1]
        alphabet = sorted(set(self.text))
        piece = self.text[begin : begin + CONTEXT + 1]
        return tangrad.tensor([alphabet.index(character) for character in piece])


class GELUByHand(nn.Module):
    """GELU by the formula with tanh, an op for each sign of it."""

    def forward(self, x: tangrad.Tensor) -> tangrad.Tensor:
        """Return GELU of each element."""
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)
        return 0.5 * x * (1 + inner.tanh())


def train(steps: int, encode_once: bool, fused_gelu: bool) -> float:
    """Train for some steps, and return the last loss."""
    tangrad.manual_seed(0)
    pieces = Pieces(load_text(), steps * BATCH, encode_once)
    model = CharGPT(len(pieces.alphabet))
    if not fused_gelu:
        for block in model.blocks:
            block.feed_forward[2] = GELUByHand()
    optimizer = tangrad.optim.AdamW(model.parameters(), lr=5e-3)
    loss = tangrad.zeros(())
    for batch in DataLoader(pieces, batch_size=BATCH):
        loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main(arguments: list[str] | None = None) -> float:
    parser = argparse.ArgumentParser(description="Train a small GPT slowly.")
    parser.add_argument("--steps", type=int, default=30, help="training steps (default: 30)")
    parser.add_argument("--encode-once", action="store_true", help="number all characters at first")
    parser.add_argument("--fused-gelu", action="store_true", help="use the GELU of tangrad.nn")
    options = parser.parse_args(arguments)
    if options.steps < 1:
        parser.error("--steps must be at least 1")
    began = time.perf_counter()
    loss = train(options.steps, options.encode_once, options.fused_gelu)
    rate = options.steps / (time.perf_counter() - began)
    print(f"{rate:.1f} steps/s, the last loss is {loss:.2f}")
    return loss


if __name__ == "__main__":
    main()
