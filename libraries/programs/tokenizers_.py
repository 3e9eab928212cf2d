"""Train a tokenizer and a language model on Python's help, and generate with a cache."""

from pydoc_data import topics

import tokenizers
import torch
from outcome import place, tell
from torch import nn
from torch.nn import functional as F

texts = [topics.topics[name] for name in sorted(topics.topics)[:20]]
bpe = tokenizers.ByteLevelBPETokenizer()
bpe.train_from_iterator(texts, vocab_size=500, show_progress=False)
bpe.save(place("tokenizer.json"))
bpe = tokenizers.Tokenizer.from_file(place("tokenizer.json"))
stream = torch.tensor(bpe.encode("\n".join(texts)).ids)
tell("tokens", bpe.encode("The for statement").tokens)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.project, self.combine = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed_forward = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x, before=None):
        batch, length, width = x.shape
        parts = self.project(self.first(x)).view(batch, length, 3, self.heads, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        if before is not None:
            key, value = torch.cat([before[0], key], 2), torch.cat([before[1], value], 2)
        seen = torch.ones(length, key.shape[2], dtype=torch.bool).tril(key.shape[2] - length)
        found = F.scaled_dot_product_attention(query, key, value, attn_mask=seen)
        x = x + self.combine(found.transpose(1, 2).reshape(batch, length, width))
        return x + self.feed_forward(self.second(x)), (key, value)


class Language(nn.Module):
    def __init__(self, tokens, width=32, heads=4, layers=2, places=64):
        super().__init__()
        self.token, self.place = nn.Embedding(tokens, width), nn.Embedding(places, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.head = nn.Linear(width, tokens)

    def forward(self, ids, cache=None):
        start = 0 if cache is None else cache[0][0].shape[2]
        x = self.token(ids) + self.place(torch.arange(start, start + ids.shape[1]))
        kept = []
        for k, block in enumerate(self.blocks):
            x, pair = block(x, None if cache is None else cache[k])
            kept.append(pair)
        return self.head(x), kept


torch.manual_seed(0)
model = Language(bpe.get_vocab_size())
optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
losses = []
for _ in range(30):
    starts = torch.randint(0, len(stream) - 33, (8, 1))
    window = stream[starts + torch.arange(33)]
    loss = F.cross_entropy(model(window[:, :-1])[0].flatten(0, 1), window[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
tell("losses", losses)


@torch.no_grad()
def generate(ids, count, choose):
    scores, cache = model(ids)
    for _ in range(count):
        following = choose(scores[:, -1])
        ids = torch.cat([ids, following], 1)
        scores, cache = model(following, cache)
    return ids


def sampled(scores, top_k=None, top_p=None):
    if top_k is not None:
        scores = scores.masked_fill(scores < scores.topk(top_k).values[:, -1:], float("-inf"))
    if top_p is not None:
        ordered, places = scores.softmax(-1).sort(-1, descending=True)
        beyond = ordered.cumsum(-1) - ordered >= top_p
        scores = scores.masked_fill(beyond.scatter(-1, places, beyond), float("-inf"))
    return scores.softmax(-1).multinomial(1)


@torch.no_grad()
def beam(ids, count, width):
    scores, cache = model(ids)
    total = torch.zeros(1)
    for _ in range(count):
        every = total[:, None] + scores[:, -1].log_softmax(-1)
        total, at = every.flatten().topk(width)
        rows, following = at // every.shape[1], at % every.shape[1]
        ids = torch.cat([ids[rows], following[:, None]], 1)
        cache = [(key[rows], value[rows]) for key, value in cache]
        scores, cache = model(following[:, None], cache)
    return ids[0], total[0]


prompt = torch.tensor([bpe.encode("The statement").ids])
tell("greedy", generate(prompt, 16, lambda s: s.argmax(-1, keepdim=True)))
torch.manual_seed(1)
tell("sampled", generate(prompt, 16, sampled))
tell("top k", generate(prompt, 16, lambda s: sampled(s, top_k=5)))
tell("top p", generate(prompt, 16, lambda s: sampled(s, top_p=0.9)))
best, likelihood = beam(prompt, 16, 4)
tell("beam", best)
tell("likelihood", likelihood)
tell("text", bpe.decode(best.tolist()))
