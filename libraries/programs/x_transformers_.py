"""Train and sample x-transformers' models: a decoder with rotary positions, an encoder-decoder."""

import torch
from outcome import place, tell
from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper, XTransformer

torch.manual_seed(0)


def train(model, losses_of, steps=20):
    """Train by AdamW and return the loss of every step."""
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    losses = []
    for _ in range(steps):
        loss = losses_of()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        losses.append(loss.item())
    return losses


layers = Decoder(
    dim=32,
    depth=2,
    heads=4,
    attn_dim_head=8,
    attn_kv_heads=2,
    rotary_pos_emb=True,
    use_rmsnorm=True,
    ff_glu=True,
    ff_swish=True,
    attn_qk_norm=True,
)
language = AutoregressiveWrapper(
    TransformerWrapper(num_tokens=20, max_seq_len=48, attn_layers=layers)
)
# Counting upwards from anywhere, which is learned in a few steps.
counting = (torch.arange(24) + torch.randint(0, 20, (4, 1))) % 20
tell("decoder.losses", train(language, lambda: language(counting)))
language.eval()
prompt = counting[:2, :4]
for name, settings in {
    "greedy": {"temperature": 0.0},
    "without a cache": {"temperature": 0.0, "cache_kv": False},
    "sampled": {"temperature": 0.8, "filter_logits_fn": "top_p", "filter_kwargs": {"thres": 0.9}},
}.items():
    tell(f"decoder.{name}", language.generate(prompt, 25, **settings))
torch.save(language.state_dict(), place("decoder.pt"))
language.load_state_dict(torch.load(place("decoder.pt")))
with torch.no_grad():
    tell("decoder.logits", language.net(prompt).log_softmax(-1))

translation = XTransformer(
    dim=32,
    enc_num_tokens=12,
    enc_depth=1,
    enc_heads=2,
    enc_max_seq_len=8,
    dec_num_tokens=12,
    dec_depth=1,
    dec_heads=2,
    dec_max_seq_len=9,
    tie_token_emb=True,
)
source = torch.randint(2, 12, (4, 8))
start = torch.zeros(4, 1, dtype=torch.long)
mask = torch.arange(8) < torch.tensor([8, 6, 7, 5])[:, None]
target = torch.cat([start, source.flip(1)], 1)
tell("translation.losses", train(translation, lambda: translation(source, target, mask=mask)))
tell(
    "translation.greedy",
    translation.generate(source, start, 8, mask=mask, temperature=0.0),
)
