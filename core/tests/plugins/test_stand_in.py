"""`python -m tangrad run` runs programs written for PyTorch in a process without PyTorch."""

import subprocess
import sys
import textwrap

import pytest


def run(tmp_path, source, *arguments):
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(source))
    command = [sys.executable, "-m", "tangrad", "run", str(program), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_torch_is_tangrad_under_every_name(tmp_path):
    outcome = run(
        tmp_path,
        """
        import torch
        import torch.nn as nn
        import torch.nn.functional as F
        import tangrad
        from torch import optim
        from torch.utils.data import DataLoader, TensorDataset
        from torch.optim.lr_scheduler import StepLR
        import sys
        assert torch is tangrad and nn is tangrad.nn and F is tangrad.nn.functional
        assert sys.modules["torch.utils.data"] is sys.modules["tangrad.utils.data"]
        assert torch.__name__ == torch.__spec__.name == "tangrad"
        model = nn.Linear(2, 1)
        step = optim.SGD(model.parameters(), lr=0.1)
        StepLR(step, 1)
        for x, in DataLoader(TensorDataset(torch.ones(4, 2)), batch_size=2):
            F.mse_loss(model(x), torch.zeros(2, 1)).backward()
            step.step()
        print("trained")
        """,
    )
    assert (outcome.stdout, outcome.stderr, outcome.returncode) == ("trained\n", "", 0)


def test_it_is_the_main_program_with_its_own_arguments_and_neighbours(tmp_path):
    (tmp_path / "neighbour.py").write_text("import torch\nvalue = torch.ones(()).item()\n")
    outcome = run(
        tmp_path,
        """
        import sys, pickle, neighbour
        class Here: pass
        assert __name__ == "__main__" and sys.modules["__main__"].Here is Here
        pickle.loads(pickle.dumps(Here()))
        print(__file__, sys.argv, neighbour.value)
        """,
        "--lr",
        "3",
        "--",
        "-h",
    )
    path = str(tmp_path / "program.py")
    assert outcome.stdout.split(" ", 1)[0] == path
    assert outcome.stdout.rstrip().endswith(f"{[path, '--lr', '3', '--', '-h']} 1.0")


@pytest.mark.parametrize(
    ("source", "status"),
    [
        ("", 0),
        ("raise SystemExit(7)", 7),
        ("import sys; sys.exit('told')", 1),
        ("1 / 0", 1),
        ("syntax error", 1),
    ],
)
def test_exit_codes_and_errors_are_those_of_python(tmp_path, source, status):
    outcome = run(tmp_path, source)
    program = str(tmp_path / "program.py")
    plain = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False)
    assert outcome.returncode == plain.returncode == status
    assert outcome.stderr == plain.stderr


def test_a_missing_module_or_file_is_said_to_be_missing(tmp_path):
    outcome = run(tmp_path, "import torch.nonsense")
    assert "No module named 'torch.nonsense'" in outcome.stderr
    outcome = run(tmp_path, "import torch.distributed.rpc")
    assert "pip install tangrad[distributed]" in outcome.stderr
    assert outcome.returncode == 1
    command = [sys.executable, "-m", "tangrad", "run", str(tmp_path / "nowhere.py")]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False)
    assert outcome.returncode == 2
    assert "nowhere.py" in outcome.stderr


def test_a_process_that_it_spawns_has_no_pytorch_either(tmp_path):
    outcome = run(
        tmp_path,
        """
        import torch
        import torch.multiprocessing as mp

        def work(weight, answers):
            answers.put((torch.__name__, isinstance(weight, torch.Tensor)))
            weight.add_(1)

        if __name__ == "__main__":
            mp = mp.get_context("spawn")
            weight, answers = torch.zeros(2).share_memory_(), mp.Queue()
            process = mp.Process(target=work, args=(weight, answers))
            process.start()
            print(answers.get(timeout=60))
            process.join()
            print(weight.tolist())
        """,
    )
    assert outcome.stdout == "('tangrad', True)\n[1.0, 1.0]\n", outcome.stderr


def test_what_libraries_of_models_import_is_there(tmp_path):
    outcome = run(
        tmp_path,
        """
        import torch
        import torch._custom_ops
        from torch._C import _TensorMeta
        from torch._dynamo.utils import is_compile_supported
        from torch.ao.quantization import QuantStub
        from torch.fx.graph_module import GraphModule
        from torch.hub import HASH_REGEX, _get_torch_home
        from torch.jit.annotations import BroadcastingList2
        from torch.nn.attention.flex_attention import BlockMask
        from torch.nn.parallel.distributed import DistributedDataParallel
        from torch.onnx.symbolic_helper import parse_args
        from torch.utils._pytree import _dict_flatten, _dict_flatten_with_keys, _dict_unflatten
        assert isinstance(torch.Tensor, _TensorMeta)
        assert not is_compile_supported("cpu")
        assert torch._dynamo.allow_in_graph(abs) is abs
        torch._C._log_api_usage_once("a model was made")
        assert _dict_unflatten(*_dict_flatten({"a": 1})) == {"a": 1}
        assert _dict_flatten_with_keys({"a": 1}) == ([("a", 1)], ["a"])
        print("imported")
        """,
    )
    assert (outcome.stdout, outcome.stderr, outcome.returncode) == ("imported\n", "", 0)
