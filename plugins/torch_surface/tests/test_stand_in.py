"""`python -m tangrad run` runs programs written for PyTorch in a process without PyTorch."""

import importlib.util
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
        assert (torch.__name__, torch.__spec__.name) == ("torch", "tangrad")
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


def test_a_program_has_only_the_future_features_that_it_imports(tmp_path):
    outcome = run(
        tmp_path,
        """
        class Point:
            x: int
        def f(x: int): pass
        print(f.__annotations__, Point.__annotations__)
        """,
    )
    shown = "{'x': <class 'int'>}"
    assert (outcome.stdout, outcome.stderr) == (f"{shown} {shown}\n", "")


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
    outcome = run(tmp_path, "import torch.onnx.nowhere")
    installed = importlib.util.find_spec("tangrad_onnx") is not None
    said = "No module named 'torch.onnx.nowhere'" if installed else "tangrad[onnx]"
    assert said in outcome.stderr
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
    assert outcome.stdout == "('torch', True)\n[1.0, 1.0]\n", outcome.stderr


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
        from torch.utils._pytree import MappingKey
        from torch.utils._pytree import _dict_flatten, _dict_flatten_with_keys, _dict_unflatten
        assert isinstance(torch.Tensor, _TensorMeta)
        assert is_compile_supported("cpu") == torch._dynamo.is_dynamo_supported()
        assert torch._dynamo.allow_in_graph(abs) is abs
        torch._C._log_api_usage_once("a model was made")
        assert torch._C._get_default_device() == "cpu"
        assert not torch._C._is_tracing()
        from torch._vmap_internals import _vmap
        assert _vmap(torch.sum)(torch.ones(2, 3)).tolist() == [3, 3]
        assert _dict_unflatten(*_dict_flatten({"a": 1})) == {"a": 1}
        assert _dict_flatten_with_keys({"a": 1}) == ([(MappingKey("a"), 1)], ["a"])
        print("imported")
        """,
    )
    assert (outcome.stdout, outcome.stderr, outcome.returncode) == ("imported\n", "", 0)


def test_what_libraries_of_training_graphs_and_processes_import_is_there(tmp_path):
    outcome = run(
        tmp_path,
        """
        import torch
        from torch import ScriptModule
        from torch._dynamo import OptimizedModule
        from torch._dynamo import eval_frame
        assert eval_frame.OptimizedModule is OptimizedModule
        from torch._tensor_str import PRINT_OPTS, _add_suffixes, _str_intern, _tensor_str
        from torch.distributed import P2POp, ProcessGroup, Work, rpc
        from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
        from torch.distributed.tensor import DTensor
        assert not isinstance(torch.ones(1), DTensor)
        from torch.futures import Future
        from torch.utils.data._utils.collate import default_collate
        from torch.utils.data._utils.worker import get_worker_info
        assert default_collate is torch.utils.data.default_collate
        from torch.utils.data.dataloader import _BaseDataLoaderIter, _MultiProcessingDataLoaderIter
        assert isinstance(torch.profiler.kineto_available(), bool) and not rpc.is_available()
        assert PRINT_OPTS.threshold == 1000 and not hasattr(PRINT_OPTS, "width")
        assert _tensor_str(torch.arange(2), 0) == "[0, 1]"
        assert _str_intern(torch.ones(2), tensor_contents="...") == "tensor(...)"
        assert _add_suffixes("x(1", ["size=2"], 2, force_newline=False) == "x(1, size=2)"
        loader = torch.utils.data.DataLoader([1, 2])
        assert isinstance(iter(loader), _BaseDataLoaderIter)
        assert not isinstance(iter(loader), _MultiProcessingDataLoaderIter)
        assert not isinstance(loader, (ScriptModule, OptimizedModule))
        place, dtype, *_ = torch._C._nn._parse_to("cpu", torch.float64)
        assert (place, dtype) == (torch.device("cpu"), torch.float64)
        try:
            torch.PyTorchFileReader("file")
        except NotImplementedError as error:
            print(error)
        """,
    )
    expected = "PyTorchFileReader: tangrad stands in for torch, and has none\n"
    assert (outcome.stdout, outcome.stderr, outcome.returncode) == (expected, "", 0)


def test_a_class_of_tensors_handles_overloads_of_aten(tmp_path):
    outcome = run(
        tmp_path,
        """
        import torch

        aten = torch.ops.aten
        HANDLED = {aten.index_select.default, aten.no_such_op.default}

        class Index(torch.Tensor):
            __torch_function__ = torch._C._disabled_torch_function_impl

            @classmethod
            def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
                if func in HANDLED:
                    print("handled", func.__name__)
                return func(*(x.plain if isinstance(x, Index) else x for x in args))

        index = torch.Tensor._make_wrapper_subclass(Index, (3,), dtype=torch.int64)
        index.plain = torch.tensor([5, 6, 7])
        print(index.index_select(0, torch.tensor([2])).tolist(), index.neg().tolist())
        print(type(index.sum()).__name__, aten.neg(torch.ones(1)).item())
        """,
    )
    expected = "handled index_select\n[7] [-5, -6, -7]\nTensor -1.0\n"
    assert (outcome.stdout, outcome.stderr, outcome.returncode) == (expected, "", 0)


def test_a_submodule_does_not_hide_the_function_of_its_name(tmp_path):
    outcome = run(
        tmp_path,
        """
        import torch
        from torch.autograd.gradcheck import gradgradcheck
        from torch.nn.utils.spectral_norm import SpectralNorm
        x = torch.ones(2, dtype=float, requires_grad=True)
        print(torch.autograd.gradcheck(torch.sin, x), callable(torch.nn.utils.spectral_norm))
        """,
    )
    assert (outcome.stdout, outcome.stderr) == ("True True\n", "")


def test_an_inner_op_that_is_not_there_has_no_overloads(tmp_path):
    outcome = run(
        tmp_path,
        """
        from torch import torch
        print(torch.ops.aten.add, torch.ops.aten.no_such_op.default)
        import tangrad.library.operator  # imports the namespace in passing
        print(torch.ops.aten.no_such_op.default, torch.ops.aten.add.overloads())
        try:
            torch.ops.aten.no_such_op(torch.ones(1))
        except AttributeError as error:
            print(str(error).partition(";")[0])
        """,
    )
    expected = "aten.add None\nNone ['Scalar', 'Tensor']\n"
    expected += "torch.ops.aten has no attribute 'no_such_op': tangrad defines no op of this name\n"
    assert outcome.stdout == expected, outcome.stderr


def test_definitions_of_ops_are_the_ops(tmp_path):
    outcome = run(
        tmp_path,
        """
        import torch
        import torch._refs as refs
        import torch._refs.linalg, torch._refs.nn.functional, torch._refs.fft
        from torch._refs.special import erf
        assert refs.sum is torch.sum and erf is torch.special.erf
        assert refs.linalg.vector_norm is torch.linalg.vector_norm
        assert refs.nn.functional.relu is torch.nn.functional.relu
        for name in ("no_such_op", "_C"):
            assert not hasattr(refs, name)
        print("same")
        """,
    )
    assert (outcome.stdout, outcome.stderr) == ("same\n", "")


TEXT = """
import sys, torch
print(sys.argv, sys.path[0] == "", __name__, "__file__" in globals(), torch.ones(2).sum().item())
if len(sys.argv) > 2:
    raise ValueError(sys.argv[2])
"""


@pytest.mark.parametrize("form", ["-c", "-"])
@pytest.mark.parametrize("arguments", [["-x"], ["-x", "wrong"], []])
def test_a_program_may_be_a_text_or_come_by_standard_input(form, arguments):
    words = [form, *([TEXT] if form == "-c" else []), *arguments]
    given = {"capture_output": True, "text": True, "check": False}
    given["input"] = TEXT if form == "-" else ""
    outcome = subprocess.run([sys.executable, "-m", "tangrad", "run", *words], **given)
    plain = TEXT.replace("import sys, torch", "import sys").replace(
        "torch.ones(2).sum().item()", "2.0"
    )
    words = [plain if word is TEXT else word for word in words]
    given["input"] = plain if form == "-" else ""
    wanted = subprocess.run([sys.executable, *words], **given)
    assert outcome.returncode == wanted.returncode
    assert outcome.stdout == wanted.stdout
    assert outcome.stderr.splitlines()[-1:] == wanted.stderr.splitlines()[-1:]


@pytest.mark.parametrize("words", [[], ["-m"], ["-c"]])
def test_what_runs_nothing_is_refused_with_what_there_is(words):
    command = [sys.executable, "-m", "tangrad", "run", *words]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False)
    assert outcome.returncode == 2
    assert "error:" in outcome.stderr


def test_suites_that_take_warnings_for_errors_run(tmp_path):
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    (tmp_path / "test_it.py").write_text("import torch\ndef test(): assert torch.ones(2).sum()")
    words = ["-m", "tangrad", "run", "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider"]
    outcome = subprocess.run(
        [sys.executable, *words], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "1 passed" in outcome.stdout, outcome.stderr


def test_annotations_of_symbolics_name_classes_of_the_compiled_part(tmp_path):
    outcome = run(
        tmp_path,
        """
        import torch

        class Doubled(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2

            @staticmethod
            def symbolic(g: torch._C.Graph, x: torch._C.Value) -> torch._C.Value:
                return g.op("Mul", x, x)

        assert not isinstance(3, (torch._C.Type, torch._C.TensorType))
        assert isinstance(torch.ones(2), torch._C.TensorBase)
        assert isinstance(torch.Generator(), torch._C.Generator)
        print(Doubled.apply(torch.ones(2)).tolist())
        """,
    )
    assert outcome.stdout == "[2.0, 2.0]\n", outcome.stderr
