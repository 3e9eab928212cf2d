"""Solve and learn differential equations by torchdiffeq."""

import torch
from outcome import place, tell
from torchdiffeq import odeint, odeint_adjoint, odeint_event

torch.manual_seed(0)


class Field(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(
            torch.nn.Linear(2, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2)
        )

    def forward(self, t, y):
        return self.net(y**3)


times = torch.linspace(0, 1, 6)
matrix = torch.tensor([[-0.1, 2.0], [-2.0, -0.1]])
start = torch.tensor([[2.0, 0.0]])
truth = odeint(lambda t, y: (y**3) @ matrix, start, times, method="dopri5")
tell("truth", truth)
field = Field()
optimizer = torch.optim.RMSprop(field.parameters(), lr=1e-3)
losses = []
for step in range(20):
    solve = odeint_adjoint if step % 2 else odeint
    loss = (solve(field, start, times, method="rk4") - truth).abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
tell("losses", losses)
for method in ("euler", "midpoint", "bosh3", "adaptive_heun", "explicit_adams"):
    tell(method, odeint(lambda t, y: -y, torch.ones(2), times, method=method))
when, state = odeint_event(
    lambda t, y: torch.stack([y[1], -9.8 * torch.ones_like(y[1])]),
    torch.tensor([10.0, 0.0]),
    torch.tensor(0.0),
    event_fn=lambda t, y: y[0],
    atol=1e-6,
    rtol=1e-6,
)
tell("event", when)
torch.save(field.state_dict(), place("field.pt"))
field.load_state_dict(torch.load(place("field.pt")))
