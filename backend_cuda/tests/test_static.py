"""Every kernel compiles for every architecture, spills nothing, and loads by 128 bits if it can.

A sample by hash of the kernels that the samples of all ops ask for; `TANGRAD_TESTS=full` takes all.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ARCHITECTURES = (75, 80, 90, 100, 120)
FULL = os.environ.get("TANGRAD_TESTS") == "full"
# All kernels take an hour: several processes share them.
SHARDS = 16 if FULL else 1
PART = 1.0 if FULL else 0.012
DTYPES = ("float32", "float16", "int64", "complex64") if FULL else ("float32",)
COLLECT = """
import json, sys
import paper_gpu
paper_gpu.install()
sources, missing = paper_gpu.collected(tuple(sys.argv[2].split(",")))
open(sys.argv[1], "w").write(json.dumps([sorted(sources.values()), sorted(missing)]))
"""
# Training of the models of the targets must not leave the device.
TRAINING = (
    "convolution convolution_input convolution_weight _attention _attention_backward index_select "
    "index_select_backward native_layer_norm native_layer_norm_backward max_pool_with_indices "
    "sort topk gather scatter_add _fused_adamw_ _softmax mm bmm _recurrent_layer "
    "_recurrent_layer_backward _total_norm _foreach_mul_tensor_"
).split()


def tool(name: str) -> str:
    """Return NVIDIA's program of that name, from its wheel."""
    for entry in sys.path:
        for found in Path(entry or ".").glob(f"nvidia/cu[0-9]*/bin/{name}"):
            return str(found)
    pytest.skip(f"{name} is not installed: pip install nvidia-cuda-{name}")


@pytest.fixture(scope="session")
def collected(tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    """Return the sources of all kernels, and the ops without one."""
    pytest.importorskip("tangrad_testing")
    file = tmp_path_factory.mktemp("static") / "sources.json"
    done = subprocess.run(
        [sys.executable, "-c", COLLECT, str(file), ",".join(DTYPES)],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found: list[list[str]] = json.loads(file.read_text())
    return found


@pytest.fixture(scope="session")
def nvrtc():
    from tangrad_cuda import nvrtc

    try:
        nvrtc.library()
    except RuntimeError as error:
        pytest.skip(str(error))
    return nvrtc


def chosen(sources: list[str], shard: int) -> Iterator[str]:
    for source in sources:
        digest = hashlib.sha256(source.encode()).digest()
        if int.from_bytes(digest[:4], "big") < PART * 2**32 and digest[4] % SHARDS == shard:
            yield source


def occupancy(registers: int, shared: int) -> float:
    """Return which part of its 2,048 threads a multiprocessor of sm_90 keeps in blocks of 256."""
    of_warp = -(-registers * 32 // 256) * 256  # handed out by 256
    by_registers = 65_536 // (8 * of_warp)
    by_shared = 228 * 1024 // (shared + 1024)
    return min(by_registers, by_shared, 8) / 8


@pytest.mark.timeout(3600 if FULL else 300)
@pytest.mark.parametrize("shard", range(SHARDS))
def test_every_kernel_compiles_for_every_architecture(collected, nvrtc, shard):
    sources = list(chosen(collected[0], shard))
    assert len(collected[0]) > 400
    assert sources
    for source in sources:
        for architecture in ARCHITECTURES:
            assert nvrtc.compile(source, architecture)


@pytest.mark.timeout(3600 if FULL else 300)
@pytest.mark.parametrize("shard", range(SHARDS))
def test_kernels_keep_their_values_in_registers(collected, nvrtc, tmp_path, shard):
    program, file = tool("cuobjdump"), tmp_path / "kernels.cubin"
    for source in chosen(collected[0], shard):
        file.write_bytes(nvrtc.compile(source, 90))
        told = subprocess.run([program, "-res-usage", str(file)], capture_output=True, text=True)
        usage = re.findall(r"Function (\w+):\s+REG:(\d+) STACK:\d+ SHARED:(\d+) LOCAL:(\d+)",
                           told.stdout)  # fmt: skip
        assert usage, told.stdout + told.stderr
        for name, registers, shared, local in usage:
            # 255 registers for 256 threads are all that a multiprocessor has.
            assert int(registers) <= 255, name
            assert int(shared) <= 48 * 1024, name
            assert int(local) == 0, name
            # Loops wait for memory: a quarter of the threads at least, to hide that.
            least = 0.25 if name in ("dense", "wide", "strided") else 0.125
            assert occupancy(int(registers), int(shared)) >= least, name


@pytest.mark.timeout(3600 if FULL else 300)
def test_dense_loops_of_float32_load_and_store_by_128_bits(collected, nvrtc, tmp_path):
    program, file = tool("nvdisasm"), tmp_path / "kernels.cubin"
    # Where an operand is wider, two elements are a vector.
    four = ("float v[4]; } tk_vector_float32", "(TG_GLOBAL tk_vector_float32 *)y0")
    wide = [s for s in collected[0] if all(text in s for text in four)]
    assert wide
    for source in wide[:: 1 if FULL else len(wide) // 4]:
        file.write_bytes(nvrtc.compile(source, 90))
        told = subprocess.run([program, "-c", str(file)], capture_output=True, text=True).stdout
        assert "STG.E.128" in told, source


def test_what_training_spends_its_time_in_has_kernels(collected):
    missing = {name for name, dtype in collected[1] if dtype == "float32"}
    assert not set(TRAINING) & missing
