"""`check-program` tells what a program uses and how much of it is here, and runs none of it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tangrad.compat.checking_programs import as_json, check, rendered, sections_of
from tangrad.compat.program_names import states, uses_in

PROGRAM = """\
import os
import torch as t
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader
import torchvision
import a_package_that_is_not_there

raise SystemExit("this program must not be run")


def step(x):
    import torch.optim
    opt = torch.optim.SGD([x], lr=0.1)
    y = F.relu(nn.Linear(3, 4)(x)) + t.randn(4) + t.no_such_function(x)
    return opt, y.sum().no_such_method, t.float32.itemsize
"""


@pytest.fixture
def program(tmp_path):
    """A program that uses names that are here, one that is not, and packages."""
    path = tmp_path / "train.py"
    path.write_text(PROGRAM)
    return path


def test_names_are_found_through_every_form_of_import() -> None:
    uses = uses_in(PROGRAM)
    assert uses.names["torch.nn.functional.relu"] == [15]
    assert uses.names["torch.nn.Linear"] == [15]
    assert uses.names["torch.optim.SGD"] == [14]
    assert uses.names["torch.randn"] == [15]
    assert uses.names["torch.utils.data.DataLoader"] == [5]
    assert uses.names["torch"] == [2, 4]
    assert set(uses.modules) == {"os", "torch", "torchvision", "a_package_that_is_not_there"}


def test_names_resolve_as_far_as_they_are_there() -> None:
    wanted = {
        "torch.nn.Linear.forward": "works",
        "torch.float32.itemsize": "works",
        "torch.utils.data.DataLoader": "works",
        "torch.no_such_function": "missing",
        "torch.nn.NoSuchLayer": "missing",
        "functorch.vmap": "works",
    }
    assert states(wanted) == wanted


def test_a_report_tells_what_is_missing_and_where(program) -> None:
    report = check([program])
    assert report.files == 1
    assert not report.unread
    assert report.of("missing") == ["torch.no_such_function"]
    assert report.names["torch.no_such_function"] == [f"{program}:15"]
    assert report.deviating["torch.randn"] == ["random-numbers"]
    assert report.libraries["a_package_that_is_not_there"] is None
    text = rendered(report)
    assert f"torch.no_such_function  {program}:15" in text
    assert "torch.randn  #random-numbers" in text
    assert "torchvision  " in text
    assert "its program agrees with PyTorch" in text
    assert text.splitlines()[-1].startswith("Verdict: some names are missing")
    assert json.loads(as_json(report))["state"]["torch.no_such_function"] == "missing"


def test_folders_are_searched_without_what_is_installed_in_them(tmp_path, program) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "model.py").write_text("import torch\nfrom lib import other\ntorch.ones")
    for other in (".venv", "site-packages", "made"):
        (tmp_path / other).mkdir()
        (tmp_path / other / "x.py").write_text("import torch\ntorch.no_such_place")
    (tmp_path / "made" / "pyvenv.cfg").write_text("")
    report = check([tmp_path, program])
    assert report.files == 2
    assert "torch.ones" in report.names
    assert "torch.no_such_place" not in report.names
    assert "lib" not in report.libraries  # the program's own


def test_notebooks_are_read_without_their_commands(tmp_path) -> None:
    cells = [
        {"cell_type": "markdown", "source": ["import torch.words"]},
        {"cell_type": "code", "source": ["%matplotlib inline\n", "import torch\n", "!ls\n"]},
        {"cell_type": "code", "source": "%%bash\nnot python"},
        {"cell_type": "code", "source": "torch.zeros(2)"},
    ]
    (tmp_path / "a.ipynb").write_text(json.dumps({"cells": cells, "nbformat": 4}))
    report = check([tmp_path])
    assert not report.unread
    assert set(report.names) == {"torch", "torch.zeros"}


def test_lines_of_notebooks_that_are_not_python_are_passed_over(tmp_path) -> None:
    lines = ["import torch", "found = !ls", "files = %pwd", "torch.zeros?", "?torch", "torch.on*??"]
    lines += ["if found:", "    !ls", "x = torch.ones(2) % 2 if found else 3 != 4"]
    cells = [{"cell_type": "code", "source": "\n".join(lines)}]
    (tmp_path / "a.ipynb").write_text(json.dumps({"cells": cells, "nbformat": 4}))
    report = check([tmp_path])
    assert not report.unread
    assert set(report.names) == {"torch", "torch.ones"}
    assert rendered(report).startswith("1 file uses 2 names of PyTorch; 2 are here")


def test_a_placeholder_is_named_once(tmp_path) -> None:
    (tmp_path / "a.py").write_text("import torch\ntorch.nested.nested_tensor([])\n")
    told = rendered(check([tmp_path]))
    assert ".." not in told
    assert "'tangrad.nested'" in told


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.py", b"def f(:", "invalid syntax"),
        ("b.py", b"import torch\0", "null"),
        ("c.py", b"\xff\xfe\x00", "encoding"),
        ("d.py", b"x = " + b"(" * 5000 + b")" * 5000, "parenthes"),
        ("e.ipynb", b"[]", "notebook"),
        ("f.ipynb", b"{", "Expecting"),
    ],
)
def test_what_cannot_be_read_is_told_and_the_rest_goes_on(tmp_path, name, text, said):
    (tmp_path / name).write_bytes(text)
    (tmp_path / "plain.py").write_text("import os")
    report = check([tmp_path])
    assert report.files == 1
    assert list(report.unread) == [str(tmp_path / name)]
    assert said in report.unread[str(tmp_path / name)]
    assert f"{tmp_path / name}" in rendered(report)


def test_a_program_without_pytorch_is_said_to_have_no_names(tmp_path) -> None:
    (tmp_path / "plain.py").write_text("import os\nprint(os.sep)")
    report = check([tmp_path / "plain.py"])
    assert (report.names, report.state) == ({}, {})
    assert rendered(report).endswith("no name of PyTorch was found.")


def test_sections_of_deviations_are_found_by_full_names() -> None:
    assert sections_of("torch.jit.trace") == ["parts-that-are-not-installed"]
    assert "random-numbers" in sections_of("torch.nn.Dropout")
    assert sections_of("torch.nn.Module") == []


@pytest.mark.parametrize(("paths", "status"), [(["train.py"], 1), (["ok.py"], 0), (["no.py"], 2)])
def test_the_command_ends_with_a_status(program, paths, status) -> None:
    (program.parent / "ok.py").write_text("import torch\nprint(torch.ones(2))")
    done = subprocess.run(
        [sys.executable, "-m", "tangrad", "check-program", *paths],
        cwd=program.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stderr
    if status == 2:
        assert "no file or folder no.py" in done.stderr
    else:
        assert "Verdict:" in done.stdout
