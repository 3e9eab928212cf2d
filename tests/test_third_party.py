"""Packages of third parties: built, installed, used and uninstalled as their users would.

An environment of its own sees the packages of this one and those that a test installs.
"""

from __future__ import annotations

import ast
import os
import shutil
import site
import subprocess
import sys
import textwrap
import venv
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import tangrad

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
FOLDERS = {
    "tangrad-diagonal": "third_party_layout",
    "tangrad-disk": "third_party_device",
    "tangrad-snake": "third_party_op",
}
LONGEST_DEVICE = 60
KIT = "tangrad_testing.plugin"

USE = """
    import pickle
    import sys
    import warnings

    import tangrad
    from tangrad import nn
    from tangrad.plugin import FallbackWarning

    warnings.simplefilter("ignore", FallbackWarning)
    tangrad.manual_seed(0)
    x = tangrad.randn(16, 4)

    class Snake(nn.Module):
        def forward(self, x):
            return tangrad.snake(x, a=2.0)

    def network():
        return nn.Sequential(nn.Linear(4, 8), Snake(), nn.Linear(8, 3))

    model = network().to("disk")
    labels = tangrad.randint(0, 3, (16,)).to("disk")
    step = tangrad.optim.SGD(model.parameters(), lr=0.5)
    losses = []
    for _ in range(5):
        loss = nn.functional.cross_entropy(model(x.to("disk")), labels)
        step.zero_grad()
        loss.backward()
        step.step()
        losses.append(loss.item())
    assert losses == sorted(losses, reverse=True), losses

    state = {name: value.cpu() for name, value in model.state_dict().items()}
    copy = network()
    copy.load_state_dict(state)
    assert tangrad.allclose(copy(x), model(x.to("disk")).cpu(), atol=1e-6)
    back = network().to("disk")
    back.load_state_dict(copy.state_dict())
    assert all(value.device.type == "disk" for value in back.state_dict().values())
    if sys.argv[1:]:
        with open(sys.argv[1], "wb") as file:
            pickle.dump({"here": x, "there": x.to("disk")}, file)
"""

OPS = """
    import tangrad

    x = tangrad.tensor([0.5, -1.5], dtype=tangrad.float64, requires_grad=True)
    assert tangrad.equal(x.snake(), tangrad.snake(x, a=1.0))
    (slope,) = tangrad.autograd.grad(tangrad.snake(x).sum(), x, create_graph=True)
    (bend,) = tangrad.autograd.grad(slope.sum(), x)
    assert tangrad.allclose(bend, 2 * tangrad.cos(2 * x.detach()))
    rows = x.detach().repeat(3, 1)
    assert tangrad.allclose(tangrad.vmap(tangrad.rms)(rows), tangrad.rms(rows, dim=1))
"""

WITHOUT = """
    import pickle
    import sys

    import tangrad

    def message(action):
        try:
            action()
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    x = tangrad.ones(2, requires_grad=True)
    (x * x).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]
    print(message(lambda: x.to("disk")))
    print(message(lambda: tangrad.snake))
    print(message(lambda: x.snake()))
    with open(sys.argv[1], "rb") as file:
        print(message(lambda: pickle.load(file)))
"""


class Environment:
    """A virtual environment that also sees all that this interpreter sees."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, symlinks=True)
        self.python = str(folder / "bin" / "python")
        packages = next(folder.glob("lib/python*/site-packages"))
        # addsitedir, not a path: editable installations are .pth files themselves.
        seen = "".join(f"site.addsitedir({path!r}); " for path in site.getsitepackages())
        (packages / "outer.pth").write_text(f"import site; {seen}\n")

    def pip(self, *arguments: str) -> None:
        run([sys.executable, "-m", "pip", "--python", self.python, *arguments])

    def run(self, code: str, *arguments: str) -> str:
        command = [self.python, "-W", "error", "-c", textwrap.dedent(code), *arguments]
        return run(command)

    def tangrad(self, *arguments: str) -> str:
        return run([self.python, "-W", "error", "-m", "tangrad", *arguments])


def run(command: list[str]) -> str:
    source = str(Path(tangrad.__file__).parents[1])
    path = os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    outcome = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert outcome.returncode == 0, f"{command}\n{outcome.stdout}\n{outcome.stderr}"
    return outcome.stdout


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("packages")
    # A copy: a build leaves its traces in the sources.
    sources = [str(shutil.copytree(EXAMPLES / name, folder / name)) for name in FOLDERS.values()]
    build = ["-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index"]
    run([sys.executable, *build, "--wheel-dir", str(folder), *sources])
    found = sorted(map(str, folder.glob("*.whl")))
    assert len(found) == len(FOLDERS)
    return found


@pytest.fixture(scope="module")
def environment(wheels: list[str], tmp_path_factory: pytest.TempPathFactory) -> Environment:
    made = Environment(tmp_path_factory.mktemp("environment"))
    made.pip("install", "--no-deps", "--no-index", *wheels)
    return made


def lines_of_code(path: Path) -> int:
    """Count the lines that are neither blank nor comment nor documentation."""
    text = path.read_text("utf-8")
    documentation = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            documentation |= set(range(node.lineno, node.end_lineno + 1))
    numbered = enumerate(map(str.strip, text.splitlines()), start=1)
    return sum(bool(t) and not t.startswith("#") and n not in documentation for n, t in numbered)


def test_the_device_has_at_most_sixty_lines_of_code() -> None:
    modules = (EXAMPLES / "third_party_device" / "src").rglob("*.py")
    assert 0 < sum(map(lines_of_code, modules)) <= LONGEST_DEVICE


def test_the_packages_import_nothing_of_tangrad_but_its_plugin_module() -> None:
    for path in EXAMPLES.glob("third_party_*/src/**/*.py"):
        text = path.read_text("utf-8")
        assert "import tangrad\n" not in text
        imported = [
            line.split()[1] for line in text.splitlines() if line.startswith("from tangrad")
        ]
        own = path.relative_to(EXAMPLES).parts[2]
        assert {name.partition(".")[0] for name in imported} - {own} <= {"tangrad"}
        assert {name for name in imported if name.startswith("tangrad.")} <= {"tangrad.plugin"}


def test_info_tells_about_the_installed_packages(environment: Environment) -> None:
    text = " ".join(environment.tangrad("info").split())
    assert "disk tangrad-disk 0.1.0 available" in text
    assert "tangrad.plugins snake tangrad_snake tangrad-snake 0.1.0 ok" in text
    assert "FAILED" not in text


def test_the_command_line_describes_an_installed_op(environment: Environment) -> None:
    text = environment.tangrad("op", "snake")
    assert "snake(Tensor self, Scalar a=1.0)" in text
    assert "tangrad.snake, Tensor.snake" in text
    assert "1 + sin(2 * a * self)" in text


def test_an_installed_op_is_differentiated_twice_and_batched(environment: Environment) -> None:
    environment.run(OPS)


def test_a_network_with_an_installed_op_trains_on_an_installed_device(
    environment: Environment,
) -> None:
    environment.run(USE)


@pytest.mark.parametrize(
    ("package", "chosen"),
    [
        ("third_party_device", ["add_plain", "mm", "sum", "exp", "transpose"]),
        ("third_party_op", []),
        ("third_party_layout", []),
    ],
)
def test_the_own_tests_of_a_package_pass(
    environment: Environment, tmp_path: Path, package: str, chosen: list[str]
) -> None:
    pytest.importorskip("tangrad_testing")
    folder = shutil.copytree(EXAMPLES / package, tmp_path / package)
    known = any(point.value == KIT for point in entry_points(group="pytest11"))
    options = [*([] if known else ["-p", KIT]), *(f"--tangrad-op={name}" for name in chosen)]
    run([environment.python, "-m", "pytest", "-q", *options, str(folder)])


def test_uninstalled_packages_are_named_by_what_needs_them(
    environment: Environment, wheels: list[str], tmp_path: Path
) -> None:
    checkpoint = str(tmp_path / "checkpoint")
    environment.run(USE, checkpoint)
    environment.pip("uninstall", "--yes", *FOLDERS)
    try:
        device, function, method, loading = environment.run(WITHOUT, checkpoint).splitlines()
        assert device.startswith("RuntimeError: Expected one of cpu, meta, reference")
        assert "disk. Other devices come with plugins" in device
        assert function == "AttributeError: module 'tangrad' has no attribute 'snake'"
        assert method == "AttributeError: 'Tensor' object has no attribute 'snake'"
        assert "disk. Other devices come with plugins" in loading
        assert "disk" not in environment.tangrad("info")
    finally:
        environment.pip("install", "--no-deps", "--no-index", *wheels)


ONE_PROCESS = """
    import shutil
    import sys
    import warnings
    import zipfile

    import tangrad
    from tangrad.devices import registry
    from tangrad.plugin import FallbackWarning
    from tangrad.discovery import discovery

    warnings.simplefilter("ignore", FallbackWarning)
    folder, wheels = sys.argv[1], sys.argv[2:]
    sys.path.insert(0, folder)
    assert not hasattr(tangrad, "snake")
    assert "disk" not in registry.device_names()

    for wheel in wheels:
        zipfile.ZipFile(wheel).extractall(folder)
    discovery.rescan()
    x = tangrad.snake(tangrad.ones(3, device="disk"))
    assert "disk" in registry.device_names()

    shutil.rmtree(folder)
    discovery.rescan()
    assert "disk" not in registry.device_names()
    assert not {"tangrad-disk", "tangrad-snake"} & set(discovery.distributions())
    assert discovery.failures() == []
    # Objects of the packages keep working: their code is still in the process.
    assert tangrad.equal((x + x).cpu(), 2 * x.cpu())
    assert tangrad.ones(2).sum().item() == 2.0
"""


def test_packages_come_and_go_while_a_process_runs(wheels: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "site"
    folder.mkdir()
    code = textwrap.dedent(ONE_PROCESS)
    run([sys.executable, "-W", "error", "-c", code, str(folder), *wheels])
