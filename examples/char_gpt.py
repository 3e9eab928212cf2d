"""Train a small GPT on the characters of Python's own reference, and let it write.

The text ships with Python: the help topics of `pydoc`. A model of two layers learns to predict
the next character in under a minute; then it continues a line of its own.

    python examples/char_gpt.py --steps 300 --out char_gpt.pt
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path
from pydoc_data import topics

import tangrad
from tangrad import nn
from tangrad.nn import functional as F

CONTEXT, WIDTH, HEADS, LAYERS, BATCH = 64, 96, 4, 2, 24


class Block(nn.Module):
    """Attention to what came before, then two affine layers, each added to its input."""

    def __init__(self) -> None:
        super().__init__()
        self.before_attention = nn.LayerNorm(WIDTH)
        self.project = nn.Linear(WIDTH, 3 * WIDTH)
        self.combine = nn.Linear(WIDTH, WIDTH)
        self.feed_forward = nn.Sequential(
            nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x: tangrad.Tensor) -> tangrad.Tensor:
        """Return the sequence (N, T, WIDTH) after the block."""
        batch, length, _ = x.shape
        heads = self.project(self.before_attention(x)).view(batch, length, 3, HEADS, -1)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        found = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.combine(found.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.feed_forward(x)


class CharGPT(nn.Module):
    """Predict each next character from those before it.

    Args:
        characters: number of different characters.
    """

    def __init__(self, characters: int) -> None:
        super().__init__()
        self.character = nn.Embedding(characters, WIDTH)
        self.place = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, characters)
        for embedding in (self.character, self.place):
            nn.init.normal_(embedding.weight, std=0.02)

    def forward(self, text: tangrad.Tensor) -> tangrad.Tensor:
        """Return scores (N, T, characters) of what follows each character of (N, T)."""
        places = tangrad.arange(text.shape[1], device=text.device)
        return self.head(self.norm(self.blocks(self.character(text) + self.place(places))))

    @tangrad.no_grad()
    def write(self, text: tangrad.Tensor, count: int, temperature: float = 0.7) -> tangrad.Tensor:
        """Continue a text (T) by `count` characters, drawn by their probabilities."""
        for _ in range(count):
            scores = self(text[-CONTEXT:].unsqueeze(0))[0, -1]
            drawn = (scores / temperature).softmax(0).multinomial(1)
            text = tangrad.cat([text, drawn])
        return text


def load_text() -> str:
    """Return the help topics of Python as one text."""
    return "\n".join(topics.topics[name] for name in sorted(topics.topics))


def train(model: CharGPT, text: tangrad.Tensor, steps: int) -> list[float]:
    """Train on random pieces of the text, and return the loss of each step, in nats."""
    optimizer = tangrad.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0.01)
    schedule = tangrad.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, total_steps=steps)
    losses = []
    start = time.perf_counter()
    for step in range(1, steps + 1):
        begins = tangrad.randint(len(text) - CONTEXT - 1, (BATCH, 1))
        pieces = text[begins + tangrad.arange(CONTEXT + 1)]
        scores = model(pieces[:, :-1])
        loss = F.cross_entropy(scores.flatten(0, 1), pieces[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        if step % 50 == 0 or step == steps:
            recent = sum(losses[-50:]) / len(losses[-50:])
            rate = step / (time.perf_counter() - start)
            print(f"step {step:>4}  {recent / math.log(2):.2f} bits/character  {rate:.1f} steps/s")
    return losses


def main(arguments: list[str] | None = None) -> tuple[list[float], str]:
    parser = argparse.ArgumentParser(description="Train a small GPT on Python's reference.")
    parser.add_argument("--steps", type=int, default=300, help="training steps (default: 300)")
    parser.add_argument("--out", type=Path, default=None, help="file for the trained weights")
    options = parser.parse_args(arguments)
    if options.steps < 1:
        parser.error("--steps must be at least 1")

    tangrad.manual_seed(0)
    text = load_text()
    alphabet = sorted(set(text))
    number = {character: place for place, character in enumerate(alphabet)}
    encoded = tangrad.tensor([number[character] for character in text])
    model = CharGPT(len(alphabet))
    print(f"{len(text):,} characters, {sum(p.numel() for p in model.parameters()):,} parameters")
    losses = train(model, encoded, options.steps)
    begin = tangrad.tensor([number[character] for character in "The statement "])
    written = "".join(alphabet[place] for place in model.write(begin, 300).tolist())
    print(f"\n{written}")
    if options.out is not None:
        tangrad.save({"model": model.state_dict(), "alphabet": alphabet}, options.out)
        print(f"\nweights: {options.out}")
    return losses, written


if __name__ == "__main__":
    main()
