"""Embed sentences by a small model of sentence-transformers, trained a little."""

import os

import torch
from outcome import place, tell
from sentence_transformers import InputExample, SentenceTransformer, losses, models, util
from torch.utils.data import DataLoader
from transformers import BertConfig, BertModel, BertTokenizer

torch.manual_seed(0)
words = "[PAD] [UNK] [CLS] [SEP] [MASK] the a cat dog sat ran on mat road sky is blue red".split()
os.makedirs(place("bert"), exist_ok=True)
with open(place("bert/vocab.txt"), "w") as file:
    file.write("\n".join(words))
config = BertConfig(
    vocab_size=len(words),
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=64,
    max_position_embeddings=32,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)
BertModel(config).save_pretrained(place("bert"))
BertTokenizer(place("bert/vocab.txt")).save_pretrained(place("bert"))
body = models.Transformer(place("bert"), max_seq_length=16)
model = SentenceTransformer(modules=[body, models.Pooling(32)], device="cpu")
sentences = [
    "the cat sat on the mat",
    "a dog ran on the road",
    "the sky is blue",
    "a small red cat",
]
tell("before", util.cos_sim(model.encode(sentences), model.encode(sentences)))
criterion = losses.CosineSimilarityLoss(model)
examples = [
    InputExample(texts=[a, b], label=float(a[0] == b[0])) for a in sentences for b in sentences
]
loader = DataLoader(examples, batch_size=4, collate_fn=model.smart_batching_collate)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
found = []
model.train()
for _ in range(5):
    for features, labels in loader:
        loss = criterion(features, labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.item())
tell("losses", found)
model.eval()
model.save(place("model"))
again = SentenceTransformer(place("model"), device="cpu")
tell("after", again.encode(sentences))
tell(
    "nearest",
    [
        hit["corpus_id"]
        for hit in util.semantic_search(again.encode(["the mat"]), again.encode(sentences))[0]
    ],
)
