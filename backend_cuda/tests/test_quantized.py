"""Quantized tensors and modules on the stand-in GPU: by the definitions, the CPU's integers."""

import pytest

pytest.importorskip("tangrad_quantization")

PROGRAM = """
import warnings
import tangrad, tangrad.ao.quantization as q
from tangrad import nn

warnings.simplefilter("ignore")  # reductions and gathers that fall back say so
x = tangrad.linspace(-1, 1, 12).reshape(3, 4)
on_cpu, on_gpu = (
    tangrad.quantize_per_tensor(t, 0.013, 77, tangrad.quint8) for t in (x, x.to("cuda"))
)
assert on_gpu.device.type == "cuda" and on_gpu.cpu().equal(on_cpu)
assert on_gpu.dequantize().cpu().equal(on_cpu.dequantize())

model = nn.Sequential(q.QuantStub(), nn.Linear(4, 2), q.DeQuantStub()).eval()
model.qconfig = q.get_default_qconfig("onednn")
prepared = q.prepare(model)
prepared(x)
done = q.convert(prepared)
expected = done(x)
made = done.to("cuda")(x.to("cuda"))
assert made.device.type == "cuda" and made.cpu().equal(expected)
print("equal")
"""


def test_integers_are_those_of_the_cpu(run):
    assert run(PROGRAM).strip().endswith("equal")
