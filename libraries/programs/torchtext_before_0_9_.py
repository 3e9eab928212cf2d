"""Train a classifier with torchtext 0.6.0: fields, examples, and batches of about one length."""

import random
import re
from pydoc_data import topics

import torch
from outcome import place, tell
from torch import nn
from torchtext import data
from torchtext.vocab import Vectors

SUBJECTS = ("assignment", "exceptions", "formatstrings", "specialnames")

text = data.Field(tokenize="basic_english", lower=True, include_lengths=True, batch_first=True)
label = data.LabelField(dtype=torch.long)
fields = [("text", text), ("label", label)]
examples = [
    data.Example.fromlist([sentence, subject], fields)
    for subject in SUBJECTS
    for sentence in re.split(r"(?<=[.:])\s+", topics.topics[subject])
    if len(sentence.split()) > 4
]
random.seed(0)
torch.manual_seed(0)
train, test = data.Dataset(examples, fields).split(0.8, random_state=random.getstate())
with open(place("words.vec"), "w", encoding="utf-8") as file:
    for number, word in enumerate(("the", "a", "is")):
        file.write(f"{word} {' '.join(str((number + k) % 5 / 5) for k in range(32))}\n")
vectors = Vectors("words.vec", cache=place(""), unk_init=lambda t: t.zero_())
text.build_vocab(train, max_size=1000, vectors=vectors)
label.build_vocab(train)
tell("sizes", [len(train), len(test), len(text.vocab), len(label.vocab)])
tell("words", text.vocab.itos[:20])
tell("vectors", text.vocab.vectors[text.vocab.stoi["is"]])

iterators = data.BucketIterator.splits(
    (train, test), batch_size=16, sort_key=lambda x: len(x.text), sort_within_batch=True
)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding.from_pretrained(text.vocab.vectors, freeze=False)
        self.recurrent = nn.GRU(32, 32, batch_first=True)
        self.fc = nn.Linear(32, len(label.vocab))

    def forward(self, ids, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(self.embedding(ids), lengths, batch_first=True)
        return self.fc(self.recurrent(packed)[1][0])


model = Classifier()
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
losses = []
for _ in range(3):
    for batch in iterators[0]:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(*batch.text), batch.label)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
tell("losses", losses)
with torch.no_grad():
    batch = next(iter(iterators[1]))
    tell("scores", model(*batch.text))
torch.save(model.state_dict(), place("model.pt"))
tell("saved", torch.load(place("model.pt"))["fc.bias"])
