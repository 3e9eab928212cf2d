"""Train and sample small language models of transformers; save and load them."""

import torch
import transformers
from outcome import place, tell
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    get_cosine_schedule_with_warmup,
)

transformers.logging.set_verbosity_error()


def train(name, model, batches, rate=1e-3):
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01)
    scheduler = get_cosine_schedule_with_warmup(optimizer, 3, len(batches))
    losses = []
    model.train()
    for batch in batches:
        loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    tell(f"{name}.losses", losses)


def language_batches(vocabulary, steps):
    ids = [torch.randint(0, vocabulary, (4, 24)) for _ in range(steps)]
    return [{"input_ids": x, "labels": x} for x in ids]


torch.manual_seed(0)
none = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
gpt = GPT2LMHeadModel(
    GPT2Config(
        vocab_size=101,
        n_positions=128,
        n_embd=48,
        n_layer=2,
        n_head=4,
        bos_token_id=1,
        eos_token_id=100,
        **none,
    )
)
train("gpt2", gpt, language_batches(100, 20))
llama = LlamaForCausalLM(
    LlamaConfig(
        vocab_size=101,
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        eos_token_id=100,
        bos_token_id=1,
        pad_token_id=0,
    )
)
train("llama", llama, language_batches(100, 20))
for name, model in (("gpt2", gpt), ("llama", llama)):
    model.eval()
    prompt = torch.tensor([[1, 5, 9, 2]])
    made = model.generate(prompt, max_new_tokens=50, do_sample=False, pad_token_id=0)
    tell(f"{name}.greedy", made.tolist()[0])
    beams = model.generate(prompt, max_new_tokens=12, num_beams=3, do_sample=False, pad_token_id=0)
    tell(f"{name}.beams", beams.tolist()[0])
    model.save_pretrained(place(name))
    again = type(model).from_pretrained(place(name)).eval()
    with torch.no_grad():
        tell(f"{name}.same", bool(torch.equal(again(prompt).logits, model(prompt).logits)))
        tell(f"{name}.logits", model(prompt).logits[0, -1])

bert = BertForSequenceClassification(
    BertConfig(
        vocab_size=101,
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=96,
        num_labels=3,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
)
batches = []
for _ in range(20):
    x = torch.randint(1, 100, (8, 16))
    batches.append({"input_ids": x, "attention_mask": (x > 10).long(), "labels": x[:, 0] % 3})
train("bert", bert, batches)
