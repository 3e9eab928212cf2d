"""Level 6: tensors of the device in files and pickles."""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np

import tangrad
from tangrad_testing.levels.check import Check, Device, collected, expect
from tangrad_testing.levels.randomness import require_memory
from tangrad_testing.levels.views import DTYPES, numbered

check, PLAIN = collected(6)


def through_a_file(value: Any, **options: Any) -> Any:
    """Save and load a value."""
    file = io.BytesIO()
    tangrad.save(value, file)
    file.seek(0)
    return tangrad.load(file, **options)


@check
def files_keep_every_dtype(device: Device) -> None:
    """Save and load give back values, dtypes, strides and device, of any size."""
    require_memory(device)
    arrays = {f"{d}, {n}": numbered(d, (n, 3)) for d in DTYPES for n in (0, 1, 65, 4097)}
    found = through_a_file({name: device.tensor(array) for name, array in arrays.items()})
    for name, array in arrays.items():
        expect(f"device of {name} rows", found[name].device.type, device.name)
        expect(f"values of {name} rows", found[name].cpu().numpy(), array)
    turned = through_a_file(device.tensor(numbered()).transpose(0, 2))
    expect("strides of a transposed tensor", tuple(turned.stride()), (1, 7, 91))
    expect("its values", turned.cpu().numpy(), numbered().swapaxes(0, 2))


@check
def map_location_moves(device: Device) -> None:
    """Files of the device open on the host, and files of the host on the device."""
    require_memory(device)
    here = through_a_file(device.tensor(numbered()), map_location="cpu")
    expect("device with map_location='cpu'", here.device.type, "cpu")
    expect("values with map_location='cpu'", here.numpy(), numbered())
    there = through_a_file(tangrad.from_numpy(numbered()), map_location=device.name)
    expect(f"device with map_location='{device.name}'", there.device.type, device.name)
    expect("values there", there.cpu().numpy(), numbered())


@check
def shared_memory_stays_shared(device: Device) -> None:
    """Two views of one storage are two views of one storage after loading."""
    require_memory(device)
    x = device.tensor(numbered("float32", (10,)))
    a, b = through_a_file([x[:6], x[4:]])
    b.fill_(-1.0)
    expected = [0.0, 1.0, 2.0, 3.0, -1.0, -1.0]
    expect("one view after a write to the other", a.cpu().tolist(), expected)


@check
def pickles_and_copies(device: Device) -> None:
    """Pickle and deepcopy make tensors of their own on the same device."""
    require_memory(device)
    import copy

    x = device.tensor(numbered())
    for name, other in (
        ("pickle", pickle.loads(pickle.dumps(x))),
        ("deepcopy", copy.deepcopy(x)),
    ):
        expect(f"device after {name}", other.device.type, device.name)
        other.add_(1.0)
        expect(f"values after {name} and add_", other.cpu().numpy(), numbered() + 1)
        expect(f"the original after {name} and add_", x.cpu().numpy(), numbered())


@check
def models_move(device: Device) -> None:
    """A module's state goes from the device to a file, to the host and back."""
    require_memory(device)
    from tangrad import nn

    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).to(device.name)
    state = through_a_file(model.state_dict())
    host = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    host.load_state_dict(state)
    for name, value in host.state_dict().items():
        expect(f"{name} on the host", value.numpy(), model.state_dict()[name].cpu().numpy())
    model.load_state_dict({k: tangrad.zeros_like(v) for k, v in host.state_dict().items()})
    total = sum(float(np.abs(v.cpu().numpy()).sum()) for v in model.state_dict().values())
    expect("sum of a state of zeros", total, 0.0)


def checks(device: Device) -> Iterator[Check]:
    """Yield the checks of this level."""
    yield from PLAIN
