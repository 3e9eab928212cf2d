"""Skip-gram with negative sampling: sparse gradients of two tables, learned by SparseAdam."""

import random

import torch
from torch import nn
from torch.nn import functional as F

TEXT = (
    "the king rules the land and the queen rules the land while the dog chases the cat and the "
    "cat chases the mouse the king loves the queen the queen loves the king the dog hates the cat"
).split()


class SkipGram(nn.Module):
    def __init__(self, words, size):
        super().__init__()
        self.inside = nn.Embedding(words, size, sparse=True)
        self.outside = nn.Embedding(words, size, sparse=True)
        steps = torch.arange(words * size, dtype=torch.float32).reshape(words, size)
        with torch.no_grad():
            self.inside.weight.copy_(torch.sin(steps) / size)
            self.outside.weight.copy_(torch.cos(steps) / size)

    def forward(self, center, context, negative):
        v = self.inside(center)
        right = (v * self.outside(context)).sum(1)
        wrong = torch.bmm(self.outside(negative), v.unsqueeze(2)).squeeze(2)
        return -(F.logsigmoid(right).mean() + F.logsigmoid(-wrong).sum(1).mean())


def main():
    random.seed(0)
    vocabulary = {word: i for i, word in enumerate(sorted(set(TEXT)))}
    numbers = [vocabulary[word] for word in TEXT]
    pairs = [
        (numbers[i], numbers[j])
        for i in range(len(numbers))
        for j in range(max(0, i - 2), min(len(numbers), i + 3))
        if i != j
    ]
    model = SkipGram(len(vocabulary), 8)
    optimizer = torch.optim.SparseAdam(list(model.parameters()), lr=0.05)
    for epoch in range(6):
        random.shuffle(pairs)
        total = 0.0
        for start in range(0, len(pairs), 16):
            batch = pairs[start : start + 16]
            center = torch.tensor([c for c, _ in batch])
            context = torch.tensor([c for _, c in batch])
            negative = torch.tensor(
                [[random.randrange(len(vocabulary)) for _ in range(3)] for _ in batch]
            )
            optimizer.zero_grad()
            loss = model(center, context, negative)
            loss.backward()
            assert model.inside.weight.grad.is_sparse
            optimizer.step()
            total += loss.item()
        print(f"{epoch} {total / len(pairs) * 16:.4f}")


main()
