"""What a program for PyTorch prints is PyTorch's text: libraries and tests of users parse it."""

import subprocess
import sys

import pytest
import torch

EXPRESSIONS = """
str(torch.float32)
repr(torch.int64)
f"{torch.bfloat16}"
repr(torch.ones(2, 3).shape)
repr(torch.Size([1]) + torch.Size([2]))
repr(torch.strided)
repr(torch.ones(1).layout)
repr(torch.sparse_coo)
repr(torch.channels_last)
repr(torch.preserve_format)
repr(torch.ones(2, 2, dtype=torch.float64))
repr(torch.ones(2, dtype=torch.int32))
repr(torch.nn.Parameter(torch.ones(1)))
repr(torch.ones(2, device="meta"))
repr(torch.max(torch.ones(2, 2), 0))
repr(torch.ones(2).storage())
repr(torch.finfo(torch.float32))
repr(torch.iinfo(torch.int8))
repr(torch.per_tensor_affine)
repr(torch.device("cpu"))
torch.ones(1).type()
torch.ones(1, dtype=torch.bool).type()
torch.typename(torch.ones(1))
repr(torch.Tensor)
repr(type(torch.ones(1)))
repr(torch.nn.Linear(2, 3))
repr(torch.ones(2).to_sparse())
repr(torch.ones(1, requires_grad=True) * 2)
str(torch.ops.aten.linear.default)
str(torch.ops.aten.add.out)
repr(torch.ops.aten.sort.stable)
f"{torch.ops.aten.relu.default}"
torch.overrides.resolve_name(torch.add)
torch.overrides.resolve_name(torch.Tensor.add_)
""".strip().splitlines()


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    pytest.importorskip("tangrad_sparse")
    program = tmp_path_factory.mktemp("program") / "program.py"
    program.write_text(f"import torch\nfor text in {EXPRESSIONS!r}:\n    print(repr(eval(text)))\n")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tangrad", "run", str(program)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(zip(EXPRESSIONS, done.stdout.splitlines(), strict=True))


@pytest.mark.parametrize("text", EXPRESSIONS)
@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_text_is_pytorch_s(printed, text):
    assert printed[text] == repr(eval(text, {"torch": torch}))
