"""Functions of `nn.functional` in scripts, and in archives that PyTorch and we read."""

import importlib.util
import io
from pathlib import Path
from typing import Optional

import pytest
import torch

import tangrad

# ruff: noqa: UP045
pytestmark = pytest.mark.filterwarnings("ignore")
PROGRAMS = {
    "max_pool2d": "F.max_pool2d(x, 2)",
    "avg_pool2d": "F.avg_pool2d(x, 2, 1)",
    "adaptive_avg_pool2d": "F.adaptive_avg_pool2d(x, 1)",
    "adaptive_max_pool2d": "F.adaptive_max_pool2d(x, 2)",
    "adaptive_max_pool1d": "F.adaptive_max_pool1d(x[0], 2)",
    "max_pool3d": "F.max_pool3d(torch.stack([x, x], 2), 2)",
    "avg_pool3d": "F.avg_pool3d(torch.stack([x, x], 2), 2)",
    "adaptive_avg_pool3d": "F.adaptive_avg_pool3d(torch.stack([x, x], 2), 2)",
    "interpolate": "F.interpolate(x, 3)",
    "interpolate_factor": "F.interpolate(x, scale_factor=2.0)",
    "interpolate_bilinear": 'F.interpolate(x, (2, 3), mode="bilinear", align_corners=False)',
    "interpolate_again": 'F.interpolate(x, scale_factor=[2.0, 3.0], mode="bicubic", '
    "recompute_scale_factor=True)",
    "interpolate_antialias": 'F.interpolate(x, [7, 9], mode="bilinear", antialias=True)',
    "interpolate_area": 'F.interpolate(x, 3, mode="area")',
    "interpolate_exact": 'F.interpolate(x, 7, mode="nearest-exact")',
    "interpolate_linear": 'F.interpolate(x[0], 7, mode="linear")',
    "grid_sample": "F.grid_sample(x, F.affine_grid(torch.ones(1, 2, 3) * 0.3, [1, 1, 4, 4], "
    'align_corners=False), mode="nearest", padding_mode="reflection", align_corners=True)',
    "normalize": "F.normalize(x, dim=-1)",
    "normalize_of_one": "F.normalize(x, 1.0, 2)",
    "dropout2d": "F.dropout2d(x, 0.5, False)",
    "alpha_dropout": "F.alpha_dropout(x)",
    "binary_cross_entropy": "F.binary_cross_entropy(torch.sigmoid(x), (x > 5).float())",
    "with_logits": "F.binary_cross_entropy_with_logits(x, (x > 5).float(), "
    'reduction="sum", pos_weight=torch.ones(4))',
    "smooth_l1_loss": "F.smooth_l1_loss(x, torch.sigmoid(x), beta=0.5)",
    "huber_loss": "F.huber_loss(x, torch.sigmoid(x), delta=2.0)",
    "kl_div": 'F.kl_div(torch.sigmoid(x), torch.sigmoid(x), reduction="batchmean")',
    "soft_margin_loss": "F.soft_margin_loss(x, (x > 5).float() * 2 - 1)",
    "hinge_embedding_loss": "F.hinge_embedding_loss(x, (x > 5).float() * 2 - 1)",
    "margin_ranking_loss": "F.margin_ranking_loss(x, torch.sigmoid(x), (x > 5).float() * 2 - 1)",
    "triplet_margin_loss": "F.triplet_margin_loss(x, torch.sigmoid(x), torch.sigmoid(x) * 2)",
    "cosine_embedding_loss": "F.cosine_embedding_loss(x[0, 0], x[0, 0] + 1, torch.ones(4))",
    "celu": "F.celu(x)",
    "threshold": "F.threshold(x, 3.0, 1.0)",
    "rrelu": "F.rrelu(x)",
    "glu": "F.glu(x)",
    "softshrink": "F.softshrink(x)",
    "softsign": "F.softsign(x)",
    "tanhshrink": "F.tanhshrink(x)",
    "logsigmoid": "F.logsigmoid(x)",
    "softmin": "F.softmin(x, 1)",
    "instance_norm": "F.instance_norm(x)",
    "rms_norm": "F.rms_norm(x, [4])",
    "unfold": "F.unfold(x, 2)",
    "fold": "F.fold(F.unfold(x, (2, 2)), (4, 4), (2, 2))",
}
SOURCE = "import {side} as torch\nimport {side}.nn.functional as F\n" + "".join(
    f"\n\ndef {name}(x: torch.Tensor):\n    return {text}\n" for name, text in PROGRAMS.items()
)


@pytest.fixture(scope="module")
def sides(tmp_path_factory):
    """Return the programs as modules of either side: scripts are found in files."""
    found = {}
    for side in ("torch", "tangrad"):
        path = Path(tmp_path_factory.mktemp("programs"), f"functional_{side}.py")
        path.write_text(SOURCE.format(side=side))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        found[side] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(found[side])
    return found


def close(found, wanted):
    return torch.allclose(torch.tensor(found.tolist()), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", PROGRAMS)
def test_functions_are_what_they_are_in_pytorch_also_after_an_archive(sides, name):
    x = torch.arange(16.0).reshape(1, 1, 4, 4)
    ours = tangrad.arange(16.0).reshape(1, 1, 4, 4)
    wanted = torch.jit.script(getattr(sides["torch"], name))(x)
    scripted = tangrad.jit.script(getattr(sides["tangrad"], name))
    assert close(scripted(ours), wanted)
    file = io.BytesIO()
    tangrad.jit.save(scripted, file)
    assert close(torch.jit.load(io.BytesIO(file.getvalue()))(x), wanted)
    assert close(tangrad.jit.load(io.BytesIO(file.getvalue()))(ours), wanted)


def resized(x: tangrad.Tensor, factor: Optional[float], size: Optional[int]):
    return tangrad.nn.functional.interpolate(x, size=size, scale_factor=factor)


def test_optional_numbers_are_written_where_lists_are_taken():
    file = io.BytesIO()
    tangrad.jit.save(tangrad.jit.script(resized), file)
    loaded = torch.jit.load(io.BytesIO(file.getvalue()))
    x = torch.arange(4.0).reshape(1, 1, 4)
    assert loaded(x, 2.0, None).shape == (1, 1, 8)
    assert loaded(x, None, 3).shape == (1, 1, 3)


def test_numpys_numbers_are_attributes(sides):
    numpy = pytest.importorskip("numpy")

    class Scaled(tangrad.nn.Module):
        def __init__(self):
            super().__init__()
            self.factor = numpy.float64(2.5)

        def forward(self, x):
            return x * self.factor

    scripted = tangrad.jit.script(Scaled())
    assert scripted(tangrad.ones(1)).tolist() == [2.5]
    assert type(scripted.factor) is float


def resized_by_level(x):
    if "AVX" in tangrad.backends.cpu.get_cpu_capability():
        return x + 1
    return x + 1.0


def test_scripts_ask_for_the_level_of_kernels():
    scripted = tangrad.jit.script(resized_by_level)
    assert scripted(tangrad.ones(2)).tolist() == [2, 2]
    file = io.BytesIO()
    tangrad.jit.save(scripted, file)
    assert torch.jit.load(io.BytesIO(file.getvalue()))(torch.ones(2)).tolist() == [2, 2]
    asked = tangrad.jit.script(tangrad.backends.cpu.get_cpu_capability)
    assert asked() == tangrad.backends.cpu.get_cpu_capability()
