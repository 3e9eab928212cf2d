"""Train SentencePiece on Python's help, and a recurrent network on packed pieces."""

from pydoc_data import topics

import sentencepiece
import torch
from outcome import place, tell
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

texts = [topics.topics[name] for name in sorted(topics.topics)[:10]]
with open(place("text.txt"), "w", encoding="utf-8") as file:
    file.write("\n".join(texts))
sentencepiece.SentencePieceTrainer.Train(
    input=place("text.txt"), model_prefix=place("pieces"), vocab_size=300, minloglevel=2
)
pieces = sentencepiece.SentencePieceProcessor(model_file=place("pieces.model"))
lines = [line.strip() for line in texts[0].splitlines() if len(line.split()) > 3][:40]
encoded = [torch.tensor(pieces.encode(line)) for line in lines]
tell("pieces", pieces.encode(lines[0], out_type=str))
tell("text", pieces.decode(encoded[1].tolist()))

torch.manual_seed(0)
embedding, recurrent, head = nn.Embedding(300, 16), nn.GRU(16, 24), nn.Linear(24, 300)
parameters = [*embedding.parameters(), *recurrent.parameters(), *head.parameters()]
optimizer = torch.optim.SGD(parameters, lr=0.5)
padded = pad_sequence(encoded, padding_value=0)
lengths = torch.tensor([len(one) - 1 for one in encoded])
packed = pack_padded_sequence(embedding(padded[:-1]), lengths, enforce_sorted=False)
tell("batch sizes", packed.batch_sizes)
losses = []
for _ in range(20):
    packed = pack_padded_sequence(embedding(padded[:-1]), lengths, enforce_sorted=False)
    states, _ = pad_packed_sequence(recurrent(packed)[0])
    wanted = padded[1 : 1 + len(states)]
    loss = nn.functional.cross_entropy(head(states).flatten(0, 1), wanted.flatten(), ignore_index=0)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
tell("losses", losses)
