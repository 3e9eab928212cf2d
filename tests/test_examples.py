"""The examples do what they say, in a few seconds each."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

import tangrad

FOLDER = Path(__file__).resolve().parents[1] / "examples"


@pytest.fixture
def example() -> Callable[[str], ModuleType]:
    """A function that imports an example by its name."""

    def load(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        return module

    return load


def test_training_goes_on_from_a_checkpoint_as_without_a_break(example, tmp_path) -> None:
    pytest.importorskip("matplotlib", reason="draws the picture")
    checkpoint, picture = tmp_path / "resume.pt", tmp_path / "resume.png"
    arguments = ["--epochs", "6", "--checkpoint", str(checkpoint), "--out", str(picture)]
    through, resumed, accuracy = example("resume").main(arguments)
    assert through == resumed
    assert accuracy > 0.9
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_scripted_model_runs_from_its_file_without_pytorch(example, tmp_path) -> None:
    pytest.importorskip("tangrad_jit")
    here, there = example("scripted_model").main(["--out", str(tmp_path / "reader.pt")])
    assert here == there


@pytest.mark.slow
def test_a_small_gpt_learns_to_predict_characters(example, tmp_path, capsys) -> None:
    weights = tmp_path / "gpt.pt"
    losses, written = example("char_gpt").main(["--steps", "40", "--out", str(weights)])
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5])
    assert written.startswith("The statement ")
    assert set(tangrad.load(weights)) == {"model", "alphabet"}
    assert "bits/character" in capsys.readouterr().out


@pytest.mark.slow
def test_a_slow_gpt_computes_the_same_as_a_fast_one(example, capsys, monkeypatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    slow = example("slow_char_gpt")
    loss = slow.main(["--steps", "2"])
    assert slow.main(["--steps", "2", "--encode-once"]) == loss
    assert abs(slow.main(["--steps", "2", "--encode-once", "--fused-gelu"]) - loss) < 1e-2
    assert "steps/s" in capsys.readouterr().out


def test_a_model_is_exported_run_elsewhere_and_trained_further(example, tmp_path, capsys) -> None:
    pytest.importorskip("tangrad_onnx", reason="needs tangrad-onnx")
    before, after = example("onnx_models").main(["--out", str(tmp_path / "classifier.onnx")])
    assert after[0] < before[0]
    assert after[-1] < before[-1]
    assert "ops." in capsys.readouterr().out


def test_a_network_of_digits_runs_and_learns_in_c(example, tmp_path) -> None:
    pytest.importorskip("tangrad_export")
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    tools = ("arm-none-eabi-gcc", "qemu-system-arm")
    board = ["--board"] if all(map(shutil.which, tools)) else []
    in_c, eager = example("digits_in_c").main(["--out", str(tmp_path), *board])
    assert in_c[-1] < 0.5 * in_c[0]
    assert in_c == pytest.approx(eager, abs=1e-4)
