"""Save and load by safetensors, lazily and whole; share and refuse."""

import torch
from outcome import place, tell
from safetensors import safe_open
from safetensors.torch import load, load_file, load_model, save, save_file, save_model

torch.manual_seed(0)
given = {
    "float": torch.randn(3, 4),
    "half": torch.randn(5).half(),
    "brain": torch.randn(2, 2).bfloat16(),
    "int": torch.arange(6).reshape(2, 3),
    "bool": torch.tensor([True, False]),
    "empty": torch.zeros(0, 3),
}
save_file(given, place("a.safetensors"), metadata={"made": "here"})
found = load_file(place("a.safetensors"))
tell("equal", all(torch.equal(found[k], v) and found[k].dtype == v.dtype for k, v in given.items()))
with safe_open(place("a.safetensors"), framework="pt") as file:
    tell("keys", sorted(file.keys()))
    tell("metadata", file.metadata()["made"])
    tell("slice", file.get_slice("float")[1:, :2])
tell("bytes", len(save(given)))
tell("loaded", load(save(given))["float"])
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
model[1].weight = model[0].weight
save_model(model, place("m.safetensors"))
other = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
other[1].weight = other[0].weight
tell("missing", [sorted(part) for part in load_model(other, place("m.safetensors"))])
tell("same", bool(torch.equal(other[1].weight, model[1].weight)))
try:
    save_file({"a": given["float"], "b": given["float"]}, place("b.safetensors"))
except RuntimeError as error:
    tell("refused", "share memory" in str(error))
