"""`tangrad.export.c`: the file computes what the model does, and needs nothing."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compiling import (
    COMPILERS,
    array,
    compiled,
    exported,
    loaded,
    needs_compiler,
    pointer,
    self_tested,
)

import tangrad
from tangrad import nn
from tangrad.export import Dim
from tangrad_export import ExportError

F = nn.functional
pytestmark = needs_compiler


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.deep = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 8, 3, padding=1)
        self.up, self.out = nn.ConvTranspose2d(8, 4, 2, stride=2), nn.Conv2d(8, 1, 1)

    def forward(self, x: Any) -> Any:
        a = F.relu(self.down(x))
        b = F.relu(self.deep(F.avg_pool2d(a, 2)))
        return self.out(tangrad.cat([a, self.up(b)], 1))


class Sequence(nn.Module):
    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.words, self.rnn = nn.Embedding(9, 5), kind(5, 7, num_layers=2, batch_first=True)
        self.out = nn.Linear(7, 3)

    def forward(self, words: Any) -> Any:
        return self.out(self.rnn(self.words(words))[0][:, -1])


def convolutional() -> Any:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
        nn.Conv2d(8, 8, 3, stride=2, groups=4, dilation=2, padding=2),
        nn.GroupNorm(2, 8),
        nn.SiLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(32, 5),
    )


MODELS = {
    "mlp": lambda: (
        nn.Sequential(nn.Linear(7, 6), nn.GELU(), nn.LayerNorm(6), nn.Linear(6, 3), nn.Softmax(-1)),
        (tangrad.randn(4, 7),),
    ),
    "cnn": lambda: (convolutional(), (tangrad.randn(2, 3, 12, 12),)),
    "conv1d": lambda: (
        nn.Sequential(nn.Conv1d(2, 4, 3, padding=1), nn.Tanh(), nn.AvgPool1d(2)),
        (tangrad.randn(2, 2, 8),),
    ),
    "conv3d": lambda: (nn.Conv3d(2, 3, 2, padding=1), (tangrad.randn(1, 2, 3, 4, 3),)),
    "unet": lambda: (UNet(), (tangrad.randn(1, 1, 8, 8),)),
    "lstm": lambda: (Sequence(nn.LSTM), (tangrad.randint(0, 9, (2, 4)),)),
    "gru": lambda: (Sequence(nn.GRU), (tangrad.randint(0, 9, (2, 4)),)),
    "encoder": lambda: (
        nn.TransformerEncoderLayer(8, 2, 16, batch_first=True),
        (tangrad.randn(2, 5, 8),),
    ),
    "upsampled": lambda: (
        lambda x: F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False),
        (tangrad.randn(1, 2, 3, 4),),
    ),
    "orders": lambda: (
        lambda x: (x.argmax(1), *x.topk(3), *x.sort(1), x.cumsum(0), x.flip(1)),
        (tangrad.randn(3, 6),),
    ),
    "integers": lambda: (
        lambda a, b: {"sum": a + b, "quotient": a // (b.abs() + 1), "less": a < b},
        (tangrad.randint(-9, 9, (5,)), tangrad.randint(-9, 9, (5,))),
    ),
    "doubles": lambda: (
        nn.Sequential(nn.Linear(3, 4), nn.Sigmoid()).double(),
        (tangrad.randn(2, 3, dtype=tangrad.float64),),
    ),
    "halves": lambda: (
        lambda x, y: (x + x.t(), x.t(), y * 2 - y.flip(0)),
        (tangrad.randn(3, 3).bfloat16(), tangrad.randn(3).half()),
    ),
    "losses": lambda: (
        lambda x, y: (F.cross_entropy(x, y), F.nll_loss(F.log_softmax(x, 1), y)),
        (tangrad.randn(4, 3), tangrad.randint(0, 3, (4,))),
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_computed_as_eager_does(name: str, tmp_path: Path) -> None:
    tangrad.manual_seed(3)
    model, args = MODELS[name]()
    if isinstance(model, nn.Module):
        model.eval()
    self_tested(exported(model, args, tmp_path, name))


def test_flags_and_numbers_are_left_as_they_were(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout()).train()
    state = tangrad.get_rng_state()
    exported(model, (tangrad.ones(1, 2),), tmp_path)
    assert all(part.training for part in model.modules())
    assert tangrad.equal(state, tangrad.get_rng_state())


def test_sizes_vary_within_their_bounds(tmp_path: Path) -> None:
    model = convolutional().eval()
    batch = Dim("batch", min=1, max=6)
    x = tangrad.randn(3, 3, 12, 12)
    source = exported(model, (x,), tmp_path, dynamic_shapes=({0: batch},))
    self_tested(source)
    library = loaded(source)
    for size in (1, 2, 6):
        given = tangrad.randn(size, 3, 12, 12)
        out = np.zeros((size, 5), np.float32)
        assert library.model_run(size, pointer(array(given)), pointer(out)) == 0
        with tangrad.no_grad():
            np.testing.assert_allclose(out, model(given).numpy(), atol=1e-5)
    for size in (0, 7, -1):
        out = np.full((8, 5), 9, np.float32)
        assert library.model_run(size, pointer(array(x)), pointer(out)) != 0
        assert (out == 9).all()


def test_two_sizes_vary(tmp_path: Path) -> None:
    rows, columns = Dim("rows", min=1, max=9), Dim("columns", min=2, max=50)
    x = tangrad.randn(3, 4)
    model = lambda x: (x.softmax(1) * 2, x.t().cumsum(0))  # noqa: E731
    source = exported(model, (x,), tmp_path, dynamic_shapes=({0: rows, 1: columns},))
    library = loaded(source)
    for shape in ((1, 2), (9, 50), (4, 17)):
        given = tangrad.randn(*shape)
        outs = [np.zeros(shape, np.float32), np.zeros(shape[::-1], np.float32)]
        assert library.model_run(*shape, pointer(array(given)), *map(pointer, outs)) == 0
        for out, wanted in zip(outs, model(given), strict=True):
            np.testing.assert_allclose(out, wanted.numpy(), atol=1e-5)


class Attentive(nn.Module):
    """Attention over a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Any) -> Any:
        """Return the values."""
        return self.layer(x, x, x)[0]


@pytest.mark.parametrize("most", [(3, 5), (32, 128)])  # all sizes looked at, and some
def test_batches_of_matrices_vary(most: tuple[int, int], tmp_path: Path) -> None:
    model, x = Attentive(), tangrad.randn(2, 3, 8)
    batch, length = Dim("b", min=1, max=most[0]), Dim("length", min=1, max=most[1])
    source = exported(model, (x,), tmp_path, dynamic_shapes=({0: batch, 1: length},))
    self_tested(source)
    library = loaded(source)
    for sizes in ((1, 1), (1, 4), (3, 1), (2, 5), most):
        x = tangrad.randn(*sizes, 8)
        out = np.zeros(tuple(x.shape), np.float32)
        assert library.model_run(*sizes, pointer(array(x)), pointer(out)) == 0
        np.testing.assert_allclose(out, model(x).detach().numpy(), atol=1e-5)


WIDE = {
    "bicubic": lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"),
    "pools": lambda x: F.max_pool2d(F.adaptive_avg_pool2d(x, 3), 2, return_indices=True),
    "index": lambda x: x[:, [0, 1, 1]],
    "losses": lambda x: F.cross_entropy(x[:, :, 0, 0], x[:, 0, 0, 0].long() * 0),
    "folds": lambda x: (x.var(), x.norm(), x.prod(0), x.logsumexp(0), x.mean((0, 2, 3))),
}


@pytest.mark.parametrize("name", WIDE)
def test_a_batch_that_varies_widely(name: str, tmp_path: Path) -> None:
    x = tangrad.rand(3, 2, 4, 5)
    batch = Dim("batch", min=1, max=50)
    source = exported(WIDE[name], (x,), tmp_path, dynamic_shapes=({0: batch},))
    self_tested(source)
    library = loaded(source)
    for size in (1, 2, 17, 50):
        x = tangrad.rand(size, 2, 4, 5)
        wanted = WIDE[name](x)
        wanted = wanted if isinstance(wanted, tuple) else (wanted,)
        outs = [np.zeros(tuple(w.shape), w.numpy().dtype) for w in wanted]
        assert library.model_run(size, pointer(array(x)), *map(pointer, outs)) == 0
        for out, want in zip(outs, wanted, strict=True):
            np.testing.assert_allclose(out, want.numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["i", "k", "g", "out", "x", "arena", "int"])
def test_a_size_may_be_called_as_variables_are(name: str, tmp_path: Path) -> None:
    batch = Dim(name, min=1, max=3)
    model = nn.Sequential(Attentive(), nn.Softmax(1), nn.Conv1d(3, 2, 3))
    x = tangrad.randn(2, 3, 8)
    self_tested(exported(model, (x,), tmp_path, dynamic_shapes=({0: batch},)))


def test_a_size_without_a_greatest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="'n' has no greatest value"):
        exported(lambda x: x + 1, (tangrad.ones(3),), tmp_path, dynamic_shapes=({0: Dim("n")},))
    assert list(tmp_path.iterdir()) == []


def test_only_libm_and_memory_functions_are_undefined(tmp_path: Path) -> None:
    source = exported(convolutional().eval(), (tangrad.randn(1, 3, 8, 8),), tmp_path)
    target = source.with_suffix(".o")
    compiled(source, target, "-O2", "-c")
    said = subprocess.run(["nm", "-g", str(target)], capture_output=True, text=True, check=True)
    names = [line.split()[-2:] for line in said.stdout.splitlines()]
    defined = {name for kind, name in names if kind != "U"}
    wanted = {name for kind, name in names if kind == "U"} - {"_GLOBAL_OFFSET_TABLE_"}
    assert defined
    assert all(name.startswith("model_") for name in defined)
    known = {"memcpy", "memmove", "memset", "memcmp", "expf", "sqrtf", "sqrt", "exp", "tanhf"}
    assert wanted <= known, wanted - known


def test_lines_are_short_and_tell_where_they_come_from(tmp_path: Path) -> None:
    source = exported(convolutional().eval(), (tangrad.randn(1, 3, 8, 8),), tmp_path)
    lines = source.read_text().splitlines() + source.with_suffix(".h").read_text().splitlines()
    assert max(map(len, lines)) <= 120
    assert any(re.search(r"/\* 9: linear \(\w+.py:\d+\) \*/", line) for line in lines)


STEMS = ("3d", "int", "a-b c", "modell_ü", "модель", "class", "x" * 60, "_a", "a__b")


@pytest.mark.parametrize("stem", STEMS)
def test_any_file_name_compiles(stem: str, tmp_path: Path) -> None:
    exported(lambda x: x * 2, (tangrad.ones(2),), tmp_path, stem)
    self_tested(tmp_path / f"{stem}.c")
    header = (tmp_path / f"{stem}.h").read_text()
    (name,) = re.findall(r"int (\w+)_run\(", header)
    assert re.fullmatch(r"[A-Za-z]\w*", name)
    assert f"#define {name.upper()}_ARENA_BYTES" in header


def test_arguments_may_be_called_as_variables_are(tmp_path: Path) -> None:
    def added(v0: Any, i: Any, at: Any, x0: Any) -> Any:
        return (v0.transpose(0, 1) + i) @ at * x0

    args = (tangrad.randn(4, 3, 4), *(tangrad.randn(3, 4, 4) for _ in range(2)), tangrad.ones(1))
    self_tested(exported(added, args, tmp_path))


def test_arguments_may_be_called_as_c_keywords(tmp_path: Path) -> None:
    class Named(nn.Module):
        def forward(self, int: Any, out: Any, report: Any) -> Any:
            return int + out * report

    self_tested(exported(Named(), tuple(tangrad.ones(2) for _ in range(3)), tmp_path))


def test_models_link_into_one_program_of_two_languages(tmp_path: Path) -> None:
    for name in ("first", "second"):
        exported(nn.Linear(2, 2), (tangrad.ones(1, 2),), tmp_path, name)
    main = tmp_path / "main.c"
    main.write_text(
        '#include "first.h"\n#include "second.h"\n'
        "int main(void) {\n    float x[2] = {1, 2}, y[2];\n"
        "    return first_run(x, y) || second_run(x, y);\n}\n"
    )
    files = [str(tmp_path / f"{name}.c") for name in ("first", "second")]
    compiled(main, tmp_path / "main", *files)
    assert subprocess.run([str(tmp_path / "main")], check=False).returncode == 0
    if "gcc" in COMPILERS:
        command = [
            "g++",
            "-fsyntax-only",
            "-Wall",
            "-Werror",
            "-x",
            "c++",
            str(tmp_path / "first.h"),
        ]
        said = subprocess.run(command, capture_output=True, text=True, check=False)
        assert said.returncode in (0, 127), said.stderr


def test_weights_stand_in_a_file(tmp_path: Path) -> None:
    source = exported(nn.Linear(5, 3), (tangrad.randn(2, 5),), tmp_path, "model", weights="file")
    assert (tmp_path / "model_weights.bin").stat().st_size >= 4 * 15
    self_tested(source)
    library = loaded(source)
    x, y = np.zeros((2, 5), np.float32), np.zeros((2, 3), np.float32)
    assert library.model_run(pointer(x), pointer(y)) != 0  # nothing is bound yet
    content = np.fromfile(tmp_path / "model_weights.bin", np.uint8)
    assert library.model_bind(pointer(content), content.nbytes - 1) != 0
    assert library.model_bind(pointer(content), content.nbytes) == 0
    assert library.model_run(pointer(x), pointer(y)) == 0


def test_the_caller_gives_the_arena(tmp_path: Path) -> None:
    source = exported(
        convolutional().eval(), (tangrad.randn(1, 3, 8, 8),), tmp_path, arena="argument"
    )
    assert "int model_run(void *arena, const float *" in source.with_suffix(".h").read_text()
    self_tested(source)


def test_the_arena_is_as_large_as_what_is_alive_at_once(tmp_path: Path) -> None:
    report = tangrad.export.c(UNet().eval(), (tangrad.randn(1, 1, 32, 32),), tmp_path / "unet.c")
    assert report.largest <= report.ram <= 1.05 * report.largest
    assert {layer.module for layer in report.layers} >= {"down", "deep", "up", "out"}
    assert "largest moment" in str(report)
    assert report.svg().startswith("<svg")


@pytest.mark.parametrize("level", ["-O0", "-O2", "-O3", "-Os"])
@pytest.mark.parametrize("compiler", COMPILERS)
def test_no_level_of_optimization_warns(compiler: str, level: str, tmp_path: Path) -> None:
    models = {"cnn": MODELS["cnn"], "mlp": MODELS["mlp"], "lstm": MODELS["lstm"]}
    for name, make in models.items():
        model, args = make()
        source = exported(model.eval(), args, tmp_path, name)
        compiled(source, tmp_path / "out.o", level, "-c", compiler=compiler)


def test_a_small_mlp_is_small(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)).eval()
    source = exported(model, (tangrad.randn(1, 64),), tmp_path)
    target = source.with_suffix(".o")
    compiled(source, target, "-O2", "-c")
    said = subprocess.run(["size", str(target)], capture_output=True, text=True, check=True)
    assert int(said.stdout.splitlines()[1].split()[3]) <= 40 << 10


class Refused(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x.nonzero(), "nonzero"),
        (lambda x: x.add_(1), "writes into its input"),
        (lambda x: tangrad.linalg.svd(x)[1], "svd"),
        (lambda x: x * x.sum().item(), "item"),
        (lambda x: x[x > 0], "index|nonzero|sizes"),
        (lambda x: tangrad.vmap(lambda row: row.sum())(x), "transform"),
    ],
)
def test_what_cannot_be_written_is_named(function: Any, message: str, tmp_path: Path) -> None:
    model = nn.Sequential(Refused(function))
    with pytest.raises(ExportError, match=message):
        exported(model, (tangrad.ones(3, 3),), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_an_error_names_op_dtype_module_and_line(tmp_path: Path) -> None:
    model = nn.Sequential(Refused(lambda x: tangrad.linalg.svdvals(x)))
    with pytest.raises(ExportError) as caught:
        exported(model, (tangrad.ones(3, 3),), tmp_path)
    error = caught.value
    assert (error.op, error.dtype, error.module) == ("linalg_svdvals", "float32", "0")
    assert error.where is not None
    assert error.where.startswith("test_export_c.py:")


def test_an_error_of_a_value_that_is_asked_for_names_its_place(tmp_path: Path) -> None:
    model = nn.Sequential(Refused(lambda x: x if x.sum() > 0 else -x))
    with pytest.raises(ExportError, match="module '0', line 'test_export_c.py:") as caught:
        exported(model, (tangrad.ones(3, 3),), tmp_path)
    assert (caught.value.op, caught.value.dtype) == ("__bool__", "bool")


def test_hooks_are_refused(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    model.register_forward_hook(lambda *args: None)
    with pytest.raises(ExportError, match="hooks"):
        exported(model, (tangrad.ones(1, 2),), tmp_path)


def test_an_index_out_of_bounds_writes_nothing(tmp_path: Path) -> None:
    words = tangrad.tensor([1, 2])
    source = exported(nn.Embedding(4, 3), (words,), tmp_path)
    self_tested(source)
    library = loaded(source)
    out = np.full((2, 3), 9, np.float32)
    assert library.model_run(pointer(np.array([1, 4])), pointer(out)) != 0
    assert (out == 9).all()
    assert library.model_run(pointer(np.array([1, 3])), pointer(out)) == 0


def test_results_that_are_inputs_and_weights_are_copied(tmp_path: Path) -> None:
    class Same(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(tangrad.randn(3))

        def forward(self, x: Any) -> Any:
            return x, self.weight, x.t(), x[1:], tangrad.zeros(2)

    self_tested(exported(Same(), (tangrad.randn(3, 2),), tmp_path))


def test_buffers_that_a_model_writes_change_in_c_alone(tmp_path: Path) -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", tangrad.zeros(1))

        def forward(self, x: Any) -> Any:
            self.count.add_(1)
            return x + self.count, x[:0]

    model = Counting()
    source = exported(model, (tangrad.zeros(2),), tmp_path)
    assert model.count.item() == 0
    self_tested(source)
    library, x, y = loaded(source), np.zeros(2, np.float32), np.zeros(2, np.float32)
    for count in (1, 2, 3):
        assert library.model_run(pointer(x), pointer(y), pointer(np.zeros(1, np.float32))) == 0
        assert (y == count).all()


def test_tied_weights_stand_once(tmp_path: Path) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.out = nn.Embedding(50, 40), nn.Linear(40, 50, bias=False)
            self.out.weight = self.words.weight

        def forward(self, words: Any) -> Any:
            return self.out(self.words(words))

    source = tmp_path / "tied.c"
    report = tangrad.export.c(Tied(), (tangrad.tensor([1, 2]),), source)
    assert report.flash <= 4 * 50 * 40 + 64
    self_tested(source)


def test_the_command_writes_c_and_libraries(tmp_path: Path) -> None:
    model = tmp_path / "networks.py"
    model.write_text(
        "import tangrad\nNET = tangrad.nn.Linear(2, 3)\nexample_inputs = (tangrad.ones(1, 2),)\n"
    )
    for kind, name in (("c", "net.c"), ("library", "net_library")):
        command = [sys.executable, "-m", "tangrad", "export", f"{model}:NET", "--to", kind]
        out = tmp_path / name
        told = subprocess.run(
            [*command, "--out", str(out)], check=True, capture_output=True, text=True
        )
        assert "largest moment: " in told.stdout
    self_tested(tmp_path / "net.c")
    script = "import numpy, net_library; print(net_library.run(numpy.ones((1, 2), 'f')).shape)"
    said = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, cwd=tmp_path
    )
    assert said.stdout.strip() == "(1, 3)"


def test_random_numbers_go_on_as_eagers(tmp_path: Path) -> None:
    model = lambda x: x + tangrad.rand_like(x)  # noqa: E731
    x = tangrad.zeros(7)
    tangrad.manual_seed(5)
    library = loaded(exported(model, (x,), tmp_path))
    for _ in range(3):
        out = np.zeros(7, np.float32)
        assert library.model_run(pointer(array(x)), pointer(out)) == 0
        np.testing.assert_array_equal(out, model(x).numpy())


def test_a_model_draws_from_several_distributions(tmp_path: Path) -> None:
    model = lambda x: (  # noqa: E731
        x + tangrad.randn_like(x),
        tangrad.rand(3),
        tangrad.rand(2, dtype=tangrad.float64),
        tangrad.randint(0, 9, (4,)),
        tangrad.bernoulli(tangrad.full((5,), 0.3)),
        F.dropout(x, 0.5),
    )
    self_tested(exported(model, (tangrad.zeros(7),), tmp_path))


def test_a_negative_variance_is_reported(tmp_path: Path) -> None:
    x, y, var = tangrad.randn(4), tangrad.randn(4), tangrad.rand(4)
    source = exported(F.gaussian_nll_loss, (x, y, var), tmp_path)
    self_tested(source)
    library, out = loaded(source), np.full((), 9, np.float32)
    given = [pointer(array(t)) for t in (x, y)]
    assert library.model_run(*given, pointer(array(var - 2)), pointer(out)) != 0
    assert out == 9
