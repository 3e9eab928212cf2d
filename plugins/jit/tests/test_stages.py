"""`python -m tangrad jit FILE:FUNCTION` shows every stage, and tells bad input in one sentence."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tangrad
from tangrad.plugin import get_driver
from tangrad_jit.codegen.compiled import native_level
from tangrad_jit.hooks import run_jit
from tangrad_jit.stages import stages_of

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "jit.md"
PROGRAM = """
import tangrad
from tangrad import nn

def small(x, bias):
    return (x + bias).relu() * 1

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 4)

    def forward(self, x):
        return self.layer(x).softmax(-1)

net = Net()
optimizer = tangrad.optim.RMSprop(net.parameters(), lr=1e-3)

def train(x, bias):
    optimizer.zero_grad()
    loss = net(x + bias).log().mean()
    loss.backward()
    optimizer.step()
    return loss

def looks(x, bias):
    return x if x.sum() > 0 else bias

def prints(x, bias):
    y = x + bias
    print(y)
    return y

def raises(x, bias):
    raise ValueError("no such\\nthing")

number = 3
example_inputs = tangrad.ones(4, 8), tangrad.ones(8)
"""


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))


def stages(target: str, text: str = PROGRAM, svg: str | None = None) -> int:
    """Write the program; return the exit status."""
    Path("program.py").write_text(text, encoding="utf-8")
    return run_jit(argparse.Namespace(target=target, fast=False, svg=svg))


def test_the_command_is_found() -> None:
    Path("program.py").write_text(PROGRAM, encoding="utf-8")
    command = [sys.executable, "-m", "tangrad", "jit", "program.py:small"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("== recorded\ngraph small(")


def test_all_stages_of_a_chain_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert stages("program.py:small", svg="graph.svg") == 0
    said = capsys.readouterr()
    assert said.err == ""
    titles = [line for line in said.out.splitlines() if line.startswith("== ")]
    assert titles[:3] == [
        "== recorded",
        "== guards",
        "== forward, after algebra: 1 calls rewritten",
    ]
    assert titles[-1].startswith("== forward, plan: arena of ")
    assert Path("graph.svg").read_text("utf-8").startswith("<svg")
    if get_driver("cpu").properties(0).get("instruction_set"):
        assert "== forward, groups: fusion: 2 calls are 1 kernels" in titles


@pytest.mark.parametrize("name", ["net", "train"])
def test_modules_and_training_steps_are_shown_as_they_are_run(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    text = PROGRAM if name == "train" else PROGRAM + "\nexample_inputs = tangrad.ones(4, 8)\n"
    assert stages(f"program.py:{name}", text) == 0
    said = capsys.readouterr()
    assert said.err == ""
    if name == "train" and get_driver("cpu").properties(0).get("instruction_set"):
        assert "horizontal fusion: " in said.out
        assert "side by side:" in said.out


@pytest.mark.parametrize(
    ("target", "text", "said", "status"),
    [
        ("program.py", PROGRAM, "the target is FILE:FUNCTION", 2),
        ("program.py:", PROGRAM, "the target is FILE:FUNCTION", 2),
        ("absent.py:small", PROGRAM, "absent.py: No such file or directory", 2),
        (".:small", PROGRAM, "__main__", 2),
        ("program.py:big", PROGRAM, "program.py defines no big", 2),
        ("program.py:big", "", "program.py defines no big and no example_inputs", 2),
        ("program.py:number", PROGRAM, "number of program.py is no function or module but 3", 2),
        ("program.py:small", "def small(x:\n", "program.py, line 1: ", 2),
        ("program.py:small", "import absent_module", "raised ModuleNotFoundError: No module", 2),
        ("program.py:small", "raise SystemExit(0)", "program.py raised SystemExit: 0", 2),
        ("program.py:small", PROGRAM + "def example_inputs():\n    return 1 / 0\n",
         "example_inputs raised ZeroDivisionError", 2),
        ("program.py:raises", PROGRAM, "raises raised ValueError: no such thing (", 2),
        ("program.py:small", PROGRAM + "example_inputs = ()", "raised TypeError: ", 2),
        ("program.py:Net", PROGRAM, "Net of program.py is a class; name a function", 2),
        ("program.py:looks", PROGRAM, "looks is no graph: ", 1),
        ("program.py:prints", PROGRAM, "prints is no graph: after the last op of this call", 1),
    ],
)  # fmt: skip
def test_bad_input_is_one_sentence(
    capsys: pytest.CaptureFixture[str], target: str, text: str, said: str, status: int
) -> None:
    assert stages(target, text) == status
    told = capsys.readouterr().err
    assert said in told
    assert len(told.splitlines()) == 1, told


def test_a_file_imports_its_neighbours(capsys: pytest.CaptureFixture[str]) -> None:
    Path("below").mkdir()
    Path("below/neighbour_of_main.py").write_text(PROGRAM, encoding="utf-8")
    text = "from neighbour_of_main import example_inputs, small\n"
    Path("below/main.py").write_text(text, encoding="utf-8")
    assert stages("below/main.py:small") == 0
    assert capsys.readouterr().err == ""


def test_what_is_told_is_what_is_run() -> None:
    """The stages end with the groups and the plan of the compiled function itself."""

    def program(x, y):
        return (x * y).clone().relu().sum(1) + 1

    x, y = tangrad.randn(7, 40), tangrad.randn(40)
    compiled = tangrad.compile(program, fullgraph=True, options={"measure": False})
    compiled(x, y)
    plan = compiled.compiled.executables[0].plans[0]
    told = list(stages_of(program, (x, y)))
    steps = "\n".join(f"{k:4d}  {step}" for k, step in enumerate(plan.steps))
    assert told[-1] == (f"forward, plan: arena of {plan.arena_bytes} bytes", steps)


@pytest.mark.skipif(native_level() != "avx512", reason="the document shows AVX-512")
def test_the_code_that_the_document_annotates_is_the_code(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = DOCUMENT.read_text("utf-8")
    example = re.search(r"^def small.*?(?=^fast = )", text, re.MULTILINE | re.DOTALL)
    assert example
    program = f"import tangrad\n{example[0]}\nexample_inputs = x, bias\n"
    assert stages("program.py:small", program) == 0
    lines = capsys.readouterr().out.splitlines()
    told = [line.split(None, 1)[1] for line in lines if re.match(r" +[0-9a-f]+  \S", line)]
    shown = re.search(r"^mov \[rsp\+8\], rdi.*?^```", text, re.MULTILINE | re.DOTALL)
    assert shown
    code = [line.partition(";  ")[0].split(" ; ")[0] for line in shown[0].splitlines()[:-1]]
    wanted = [one.strip() for line in code for one in line.split("; ") if one.strip()]
    # In the order of the document; what it leaves out is "...", and the jump's place.
    place = 0
    for one in wanted:
        if one != "...":
            place = next(k for k in range(place, len(told)) if told[k].startswith(one)) + 1
    assert place > 20
