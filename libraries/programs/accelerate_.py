"""Train with accelerate, accumulate gradients, save and load the state."""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from outcome import place, tell
from torch.utils.data import DataLoader, TensorDataset

set_seed(0)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
x = torch.randn(64, 6)
y = x @ torch.randn(6, 1)
model = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, 20)
loader = DataLoader(TensorDataset(x, y), batch_size=8)
model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
losses = []
for epoch in range(3):
    for a, b in loader:
        with accelerator.accumulate(model):
            loss = torch.nn.functional.mse_loss(model(a), b)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        losses.append(loss.item())
    if epoch == 1:
        accelerator.save_state(place("state"))
        kept = [p.clone() for p in model.parameters()]
tell("losses", losses)
accelerator.load_state(place("state"))
tell("restored", all(torch.equal(a, b) for a, b in zip(kept, model.parameters(), strict=False)))
gathered = accelerator.gather_for_metrics(model(x[:4]))
tell("gathered", gathered)
accelerator.save_model(model, place("model"))
tell("device", str(accelerator.device))
