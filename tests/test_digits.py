"""The main job: both networks learn the digits, on the CPU backend and on the reference device."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="module")
def digits():
    spec = importlib.util.spec_from_file_location("digits", ROOT / "examples" / "digits.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["digits"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["digits"]


@pytest.mark.parametrize("device", ["cpu", pytest.param("reference", marks=pytest.mark.slow)])
def test_both_networks_read_97_percent_of_the_held_back_digits(digits, tmp_path, device) -> None:
    picture = tmp_path / "digits.png"
    outcomes = digits.main(["--device", device, "--out", str(picture)])
    assert all(outcome.accuracy >= 0.97 for outcome in outcomes.values())
    assert picture.read_bytes().startswith(PNG)


def test_the_same_seed_gives_the_same_losses(digits, tmp_path) -> None:
    arguments = ["--epochs", "1", "--out", str(tmp_path / "digits.png")]
    first, second = (digits.main(arguments) for _ in range(2))
    assert [o.losses for o in first.values()] == [o.losses for o in second.values()]


def test_without_matplotlib_the_picture_is_left_out_with_a_word(
    digits, monkeypatch, capsys, tmp_path
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    digits.draw({}, None, tmp_path / "digits.png")
    assert "pip install matplotlib" in capsys.readouterr().out


def test_no_epoch_at_all_is_refused(digits, capsys) -> None:
    with pytest.raises(SystemExit):
        digits.main(["--epochs", "0"])
    assert "--epochs must be at least 1" in capsys.readouterr().err
