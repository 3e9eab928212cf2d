"""Train a low-rank adapter with peft; save, load and merge it."""

import torch
from outcome import place, tell
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)


def base():
    torch.manual_seed(1)
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=64,
            n_positions=64,
            n_embd=32,
            n_layer=2,
            n_head=2,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=1,
            eos_token_id=2,
        )
    )


model = get_peft_model(
    base(),
    LoraConfig(
        r=4,
        lora_alpha=8,
        target_modules=["c_attn"],
        lora_dropout=0.0,
        task_type="CAUSAL_LM",
        fan_in_fan_out=True,
    ),
)
tell("trainable", list(model.get_nb_trainable_parameters()))
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
losses = []
for _ in range(20):
    ids = torch.randint(0, 64, (4, 16))
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
tell("losses", losses)
model.save_pretrained(place("adapter"))
again = PeftModel.from_pretrained(base(), place("adapter")).eval()
model.eval()
ids = torch.arange(8)[None]
with torch.no_grad():
    tell("same", bool(torch.equal(again(ids).logits, model(ids).logits)))
    merged = again.merge_and_unload()
    tell("merged", merged(ids).logits[0, -1])
