"""Everything works on every device: nothing here knows one."""

from __future__ import annotations

import json
import re

import pytest

import tangrad
from tangrad import nn, why_no_grad
from tangrad.autograd import detect_anomaly
from tangrad.optim.finite import NonFiniteError, checked_step
from tangrad.profiler import counters, profile


@pytest.fixture(params=["cpu", "reference", "loopback"])
def device(request):
    if request.param == "loopback":
        pytest.importorskip("tangrad_testing", reason="brings the device")
    return request.param


pytestmark = pytest.mark.filterwarnings("ignore::tangrad.plugin.FallbackWarning")


def model_on(device):
    tangrad.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).to(device)


def test_profile_and_page(device, tmp_path):
    model = model_on(device)
    optimizer = tangrad.optim.Adam(model.parameters())
    x = tangrad.randn(5, 4).to(device)
    with profile(
        record_shapes=True, profile_memory=True, with_stack=True, with_modules=True, with_flops=True
    ) as prof:
        for _ in range(2):
            optimizer.zero_grad()
            model(x).square().sum().backward()
            optimizer.step()
    rows = {r.key: r for r in prof.key_averages()}
    assert rows["aten::linear"].count == 4
    assert rows["aten::linear"].flops == 2 * 2 * (5 * 4 * 8 + 5 * 8 * 3)
    here, there = rows["aten::linear"].cpu_memory_usage, rows["aten::linear"].device_memory_usage
    assert (here > 0 and not there) if device == "cpu" else there > 0
    assert prof.key_averages().table().count(" Mem ") == (2 if device == "cpu" else 4)
    prof.export_html(tmp_path / "p.html")
    page = (tmp_path / "p.html").read_text()
    data = json.loads(re.search(r"^const data = (.*);$", page, flags=re.M)[1])
    kinds = {row[2] for row in data["memory"]["at_peak"]}
    assert {"parameter", "optimizer state"} <= kinds
    assert sum(row[1] for row in data["memory"]["at_peak"]) == data["memory"]["peak"]


def test_memory_is_that_device_s(device):
    allocator = tangrad.plugin.allocator_of(device)
    x = tangrad.ones(3).to(device)
    with profile(profile_memory=True) as prof:
        kept = [x + 1 for _ in range(3)]
    changes = prof.trace.changes
    numbers = {n for n, d in prof.trace.devices.items() if d.partition(":")[0] == device}
    mine = [int(i) for i in range(len(changes["time"])) if int(changes["allocator"][i]) in numbers]
    assert (
        int(changes["allocated"][mine[-1]])
        == allocator.memory_stats()["allocated_bytes.all.current"]
    )
    assert counters(device).live_bytes >= sum(t.untyped_storage().nbytes() for t in kept)


def test_faults_are_found(device):
    model = model_on(device)
    x = tangrad.full((2, 4), -1.0).to(device)
    with why_no_grad(model[0].weight) as why:
        model[2](model[0](x).detach()).sum().backward()
    assert [r.kind for r in why.reasons] == ["detached"]

    def step(x):
        loss = (model(x).sum() - 1e9).log()
        loss.backward()
        return loss

    with pytest.raises(NonFiniteError, match="log, called at .*test_devices.py"):
        checked_step(step, state=[model])(x)
    text = "Function 'LogBackward0' returned|log, called at .*test_devices.py"
    with detect_anomaly(check_finite=True), pytest.raises(NonFiniteError, match=text):
        step(x)
