"""Keep, index, stack, map and save dictionaries of tensors by tensordict."""

import torch
from outcome import place, tell
from tensordict import TensorDict, tensorclass
from tensordict.nn import TensorDictModule, TensorDictSequential

torch.manual_seed(0)
data = TensorDict(
    {
        "x": torch.randn(8, 4),
        "nested": TensorDict({"y": torch.arange(8.0)[:, None]}, batch_size=[8]),
    },
    batch_size=[8],
)
tell("keys", sorted(map(str, data.keys(True, True))))
tell("indexed", data[2:4]["x"])
tell("stacked", torch.stack([data, data * 2])["nested", "y"])
tell("split", [len(part) for part in data.split(3)])
tell("reshaped", list(data.reshape(2, 4).batch_size))
tell("cat", torch.cat([data, data])["x"].shape[0])
net = TensorDictSequential(
    TensorDictModule(torch.nn.Linear(4, 5), in_keys=["x"], out_keys=["h"]),
    TensorDictModule(
        torch.nn.Sequential(torch.nn.Tanh(), torch.nn.Linear(5, 1)), in_keys=["h"], out_keys=["out"]
    ),
)
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
losses = []
for _ in range(20):
    out = net(data.clone())
    loss = (out["out"] - data["nested", "y"]).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
tell("losses", losses)
weights = TensorDict.from_module(net)
torch.save(weights.state_dict(), place("weights.pt"))
with (weights * 0).to_module(net):
    tell("zero", net(data.clone())["out"])
data.memmap(place("mapped"))
tell("mapped", TensorDict.load_memmap(place("mapped"))["x"])


@tensorclass
class Pair:
    a: torch.Tensor
    b: torch.Tensor


pair = Pair(a=torch.ones(3, 2), b=torch.zeros(3), batch_size=[3])
tell("class", (pair[1:] + 1).a)
