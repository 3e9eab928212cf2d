"""Train a classifier in the form of torchtext's tutorial, on a local copy of an archive.

PyTorch of today cannot load torchtext 0.18's extension, so that the other side of the comparison
is Python: it reads the same files, and counts the same words.
"""

import csv
import hashlib
import re
from collections import Counter
from functools import partial
from pathlib import Path
from pydoc_data import topics

import torch
from outcome import place, tell
from torch import nn
from torch.utils.data import DataLoader

SUBJECTS = ("assignment", "exceptions", "formatstrings", "specialnames")


def write_archive(root):
    """Write two files as AG_NEWS has them, of sentences of Python's help; return checksums."""
    folder = Path(root, "datasets", "AG_NEWS")
    folder.mkdir(parents=True)
    parts = {"train": [], "test": []}
    for label, subject in enumerate(SUBJECTS, 1):
        sentences = re.split(r"(?<=[.:])\s+", topics.topics[subject])
        for number, sentence in enumerate(s for s in sentences if len(s.split()) > 4):
            parts["test" if number % 5 == 0 else "train"].append((label, subject[:2], sentence))
    checksums = {}
    for split, rows in parts.items():
        path = folder / f"{split}.csv"
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, quoting=csv.QUOTE_ALL).writerows(rows)
        checksums[split] = hashlib.md5(path.read_bytes()).hexdigest()
    return checksums


def with_torchtext(root, checksums):
    """Return the samples, the tokenizer and the vocabulary, made by torchtext."""
    import torchtext

    torchtext.disable_torchtext_deprecation_warning()
    import torchtext.datasets.ag_news as source
    from torchtext.data.functional import to_map_style_dataset
    from torchtext.data.utils import get_tokenizer
    from torchtext.vocab import build_vocab_from_iterator

    source.MD5.update(checksums)
    parts = source.AG_NEWS(root=root, split=("train", "test"))
    train, test = (to_map_style_dataset(part) for part in parts)
    tokenizer = get_tokenizer("basic_english")
    vocab = build_vocab_from_iterator((tokenizer(text) for _, text in train), specials=["<unk>"])
    vocab.set_default_index(vocab["<unk>"])
    return train, test, tokenizer, vocab


REPLACED = {
    "'": " '  ", '"': "", ".": " . ", "<br />": " ", ",": " , ", "(": " ( ", ")": " ) ",
    "!": " ! ", "?": " ? ", ";": " ", ":": " ",
}  # fmt: skip


def normalized(line):
    """Return the words of a line, as torchtext's `basic_english` documents them."""
    line = line.lower()
    for mark, text in REPLACED.items():
        line = line.replace(mark, text)
    return line.split()


def numbers_of(known, tokens):
    """Return the numbers of tokens; that of others is 0."""
    return [known.get(token, 0) for token in tokens]


def by_hand(root, checksums):
    """Return the same without torchtext."""
    parts = []
    for split in ("train", "test"):
        with Path(root, "datasets", "AG_NEWS", f"{split}.csv").open(newline="") as file:
            parts.append([(int(label), f"{a} {b}") for label, a, b in csv.reader(file)])
    counts = Counter(token for _, text in parts[0] for token in normalized(text))
    ordered = sorted(counts, key=lambda token: (-counts[token], token))
    known = {token: number for number, token in enumerate(["<unk>", *ordered])}
    vocab = partial(numbers_of, known)
    vocab.__dict__["size"] = len(known)
    return *parts, normalized, vocab


root = place("cache")
checksums = write_archive(root)
try:
    train, test, tokenizer, vocab = with_torchtext(root, checksums)
except OSError:  # PyTorch's side
    train, test, tokenizer, vocab = by_hand(root, checksums)
size = len(vocab) if hasattr(vocab, "__len__") else vocab.size


class TextClassificationModel(nn.Module):
    def __init__(self, vocab_size, embed_dim, num_class):
        super().__init__()
        self.embedding = nn.EmbeddingBag(vocab_size, embed_dim, sparse=False)
        self.fc = nn.Linear(embed_dim, num_class)
        for weight in (self.embedding.weight, self.fc.weight):
            weight.data.uniform_(-0.5, 0.5)
        self.fc.bias.data.zero_()

    def forward(self, text, offsets):
        return self.fc(self.embedding(text, offsets))


def collate_batch(batch):
    labels, texts, offsets = [], [], [0]
    for label, text in batch:
        labels.append(int(label) - 1)
        processed = torch.tensor(vocab(tokenizer(text)), dtype=torch.int64)
        texts.append(processed)
        offsets.append(processed.size(0))
    return torch.tensor(labels), torch.cat(texts), torch.tensor(offsets[:-1]).cumsum(dim=0)


tell("sizes", [len(train), len(test), size])
tell("numbers", vocab(tokenizer('The "for" statement, isn\'t it? unheardof')))
torch.manual_seed(0)
loader = DataLoader(train, batch_size=16, shuffle=True, collate_fn=collate_batch)
model = TextClassificationModel(size, 32, len(SUBJECTS))
optimizer = torch.optim.SGD(model.parameters(), lr=4.0)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.6)
losses = []
for _ in range(4):
    model.train()
    for label, text, offsets in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(text, offsets), label)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        losses.append(loss.item())
    scheduler.step()
tell("losses", losses)
model.eval()
right = 0
with torch.no_grad():
    for label, text, offsets in DataLoader(test, batch_size=16, collate_fn=collate_batch):
        right += int((model(text, offsets).argmax(1) == label).sum())
tell("accuracy", right / len(test))
torch.save(model.state_dict(), place("model.pt"))
again = TextClassificationModel(size, 32, len(SUBJECTS))
again.load_state_dict(torch.load(place("model.pt")))
_, text, offsets = collate_batch([test[0], test[1]])
tell("again", again(text, offsets))
