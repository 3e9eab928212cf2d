"""What libraries take from `torch._utils` and `torch._jit_internal`, beside PyTorch's."""

import subprocess
import sys
import textwrap

import pytest
import torch._jit_internal
import torch._utils

import tangrad
from tangrad import _utils, stand_in


def place(t):
    return _utils if t is tangrad else torch._utils


def several(t):
    kinds = ("float32", "int64", "float32", "float32", "int64")
    return [t.arange(2 + k).to(getattr(t, kind)) for k, kind in enumerate(kinds)]


CALLS = {
    "flat": lambda t, p: p._flatten_dense_tensors([t.ones(2, 3).t(), t.zeros(()), t.ones(0)]),
    "apart": lambda t, p: p._unflatten_dense_tensors(t.arange(7), [t.ones(2, 3), t.ones(())]),
    "too few": lambda t, p: p._unflatten_dense_tensors(t.arange(3), [t.ones(2, 3)]),
    "nothing": lambda t, p: p._flatten_dense_tensors([]),
    "groups": lambda t, p: [len(g) for g in p._take_tensors(several(t), 20)],
    "large ones": lambda t, p: [g[0].numel() for g in p._take_tensors([t.ones(9), t.ones(8)], 4)],
    "order": lambda t, p: [
        x.numel() for x in p._reorder_tensors_as(reversed(several(t)), several(t))
    ],
    "a number": lambda t, p: p._get_device_index(3),
    "no number": lambda t, p: p._get_device_index(None),
    "the host": lambda t, p: p._get_device_index("cpu"),
    "the host allowed": lambda t, p: p._get_device_index("cpu", allow_cpu=True),
    "rebuilt": lambda t, p: p._rebuild_tensor_v2(
        t.arange(6.0)._typed_storage() if t is torch else t.arange(6.0).storage(),
        1,
        (2, 2),
        (2, 1),
        True,
        {},
    ),
    "a parameter": lambda t, p: type(p._rebuild_parameter(t.ones(2), False, {})).__name__,
}


@pytest.mark.parametrize("call", CALLS)
def test_calls_answer_as_pytorchs(agree, call):
    agree(lambda t: CALLS[call](t, place(t)), message=False)


@pytest.mark.parametrize("kind", [ValueError, KeyError, UnicodeDecodeError])
def test_exceptions_are_carried_to_who_asked(agree, kind):
    def program(t):
        try:
            raise ValueError("here") if kind is ValueError else KeyError("there")
        except Exception:
            wrapped = place(t).ExceptionWrapper(where="in worker 1")
        if kind is UnicodeDecodeError:
            wrapped.exc_type = kind
        try:
            wrapped.reraise()
        except Exception as error:
            return type(error).__name__, str(error)[:60]

    agree(program)


def test_totals_are_running():
    assert list(_utils._accumulate([1, 2, 3])) == [1, 3, 6]


def test_a_bool_chooses_between_functions():
    ours, theirs = stand_in.boolean_dispatch, torch._jit_internal.boolean_dispatch
    for make in (ours, theirs):
        chosen = make(
            "flag", 1, False, lambda x, flag=False: "yes", lambda x, flag=False: "no", None, None
        )
        answers = [chosen(0), chosen(0, True), chosen(0, flag=True), chosen(0, False)]
        assert answers == ["no", "yes", "yes", "no"]


def test_programs_import_them(tmp_path):
    program = tmp_path / "program.py"
    source = """
        import torch
        from torch._utils import _flatten_dense_tensors, _get_device_index, ExceptionWrapper
        from torch._jit_internal import BroadcastingList2, Optional, boolean_dispatch, ignore

        @ignore
        def f(x: BroadcastingList2[int], y: Optional[int] = None): return x

        @ignore(drop=True)
        def g(x): return x

        class Mine(torch.Tensor):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                with torch._C.DisableTorchFunctionSubclass():
                    return type(func(*args, **(kwargs or {}))).__name__

        with torch._C.DisableTorchFunction():
            made = torch.ones(2).as_subclass(Mine)
        moved = torch._C._nn._parse_to("cpu", torch.float64)
        print(f(1), g(2), made + 1, moved[:2], _flatten_dense_tensors([torch.ones(2)]).tolist())
        """
    program.write_text(textwrap.dedent(source))
    command = [sys.executable, "-m", "tangrad", "run", str(program)]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False)
    expected = "1 2 Tensor (device(type='cpu'), tangrad.float64) [1.0, 1.0]\n"
    assert (outcome.stdout, outcome.stderr) == (expected, "")


def test_private_module_is_an_attribute_of_the_package():
    assert tangrad._utils._flatten_dense_tensors([tangrad.ones(2)]).tolist() == [1, 1]
