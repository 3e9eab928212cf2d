"""Weights from addresses and models of folders; and the small modules beside."""

import hashlib
import subprocess
import sys

import pytest

import tangrad
from tangrad import hub
from tangrad.serialization import SerializationError


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(hub, "_dir", None)
    return tmp_path / "home" / "hub"


@pytest.fixture
def weights(tmp_path):
    path = tmp_path / "net.pth"
    tangrad.save({"w": tangrad.arange(3.0)}, path)
    return path


def test_weights_are_kept_for_the_next_time(home, weights, capsys):
    for _ in range(2):
        state = hub.load_state_dict_from_url(weights.as_uri())
        assert state["w"].tolist() == [0, 1, 2]
        weights.unlink(missing_ok=True)
    assert capsys.readouterr().err.count("net.pth") == 1
    assert [path.name for path in (home / "checkpoints").iterdir()] == ["net.pth"]


def test_the_hash_in_a_name_is_checked(home, weights):
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()
    right = weights.rename(weights.with_name(f"net-{digest[:8]}.pth"))
    loaded = hub.load_state_dict_from_url(right.as_uri(), check_hash=True, progress=False)
    assert list(loaded) == ["w"]
    wrong = right.rename(right.with_name("net-00000000.pth"))
    with pytest.raises(RuntimeError, match="invalid hash"):
        hub.load_state_dict_from_url(wrong.as_uri(), check_hash=True, progress=False)
    assert not (home / "checkpoints" / "net-00000000.pth").exists()
    assert len(list((home / "checkpoints").iterdir())) == 1


def test_what_is_no_file_of_weights(home, weights):
    weights.write_bytes(b"<html>not found</html>")
    with pytest.raises(SerializationError):
        tangrad.utils.model_zoo.load_url(weights.as_uri(), progress=False)


def test_models_of_a_folder(tmp_path):
    (tmp_path / "helper_of_hub.py").write_text("SIZE = 3")
    (tmp_path / "hubconf.py").write_text(
        "dependencies = ['torch', 'math']\n"
        "from helper_of_hub import SIZE\n"
        "def net(factor=1):\n    'A net.'\n    return SIZE * factor\n"
        "def _hidden(): pass\n"
    )
    folder = str(tmp_path)
    assert hub.list(folder, source="local") == ["net"]
    assert hub.help(folder, "net", source="local") == "A net."
    assert hub.load(folder, "net", source="local", factor=2) == 6
    assert folder not in sys.path
    with pytest.raises(RuntimeError, match="Cannot find callable"):
        hub.load(folder, "none", source="local")
    (tmp_path / "hubconf.py").write_text("dependencies = ['no_such_package']")
    with pytest.raises(RuntimeError, match="no_such_package"):
        hub.load(folder, "net", source="local")


def test_code_from_the_network_is_not_run():
    with pytest.raises(NotImplementedError, match="clone"):
        hub.load("pytorch/vision", "resnet18")
    with pytest.raises(ValueError, match="Unknown source"):
        hub.load("x", "y", source="elsewhere")


def test_the_directory(home, monkeypatch):
    assert hub.get_dir() == str(home)
    hub.set_dir("/elsewhere")
    assert hub.get_dir() == "/elsewhere"


def test_small_modules_beside():
    assert tangrad.utils.dlpack.from_dlpack(tangrad.arange(2)).tolist() == [0, 1]
    with pytest.raises(AttributeError, match="PyTorch's library"):
        _ = tangrad.utils.cpp_extension.BuildExtension
    command = [sys.executable, "-m", "tangrad.utils.collect_env"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert f"tangrad version: {tangrad.__version__}" in shown
    assert "CUDA available: False" in shown


def test_libraries_that_try_to_build_an_extension_go_on_without():
    from tangrad.utils.cpp_extension import CUDA_HOME, load, load_inline

    assert CUDA_HOME is None
    with pytest.raises(RuntimeError, match="load: cannot build 'fast'.*add-an-op"):
        load("fast", sources=["fast.cpp"], verbose=True)
    with pytest.raises(RuntimeError, match="load_inline: cannot build 'fast'"):
        load_inline(name="fast", cpp_sources="", functions=["run"])


@pytest.mark.parametrize("total", [None, 8])
def test_progress_is_told_without_the_package_for_it(monkeypatch, capsys, total):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    assert tangrad.utils.model_zoo.tqdm is hub.tqdm
    with hub.tqdm(total=total, unit="B", unit_scale=True) as bar:
        bar.set_description("loading")
        bar.update(2)
        bar.update(4)
        bar.write("a line")
    quiet = hub.tqdm(disable=True)
    quiet.update(1)
    told = "2.0 6.0" if total is None else "25.0% 75.0%"
    first, second = told.split()
    assert capsys.readouterr().err == f"\r{first}\r{second}a line\n\n"
    bar.close()
    bar.update(1)
    assert not capsys.readouterr().err
