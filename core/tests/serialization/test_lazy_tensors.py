"""What is lazy about a tensor is in its file: bits, shared memory, shapes that are not known."""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tangrad
from tangrad.multiprocessing.reductions import ForkingPickler
from tangrad.serialization import SerializationError, safetensors
from tangrad.serialization.inspection import describe

torch = pytest.importorskip("torch", reason="torch is the oracle")

STEPS = {
    "conj": lambda t, x: x.conj(),
    "imaginary part": lambda t, x: x.imag if x.is_complex() else x,
    "real part": lambda t, x: x.real,
    "adjoint": lambda t, x: x.mH if x.ndim > 1 else x,
    "transpose": lambda t, x: x.transpose(0, -1) if x.ndim else x,
    "expand": lambda t, x: x.expand(2, *x.shape),
    "odd rows": lambda t, x: x[1::2] if x.ndim else x,
    "last": lambda t, x: x[..., -1] if x.ndim and x.shape[-1] else x,
    "pairs": lambda t, x: t.view_as_real(x.resolve_conj()) if x.is_complex() else x,
    "parameter": lambda t, x: t.nn.Parameter(x),
    "frozen": lambda t, x: t.nn.Parameter(x.detach(), requires_grad=False),
    "attribute": lambda t, x: marked(x.detach().requires_grad_(x.is_complex())),
}
programs = st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=4)


def marked(x):
    x.note = "kept"
    return x


def lazy_tensors(t, program):
    """Return the tensors of a program of views, all on one memory."""
    x = t.arange(12.0).reshape(2, 3, 2)
    made = [t.view_as_complex(x)]
    for name in program:
        made.append(STEPS[name](t, made[-1]))
    return [x for x in made if x.dtype == made[-1].dtype]


def facts(x):
    """Return all that is to be seen of a tensor, whichever framework's."""
    bits = (x.is_conj(), x.is_neg(), x.requires_grad, getattr(x, "note", None))
    values = x.detach().resolve_conj().resolve_neg().tolist()
    return type(x).__name__, bits, tuple(x.shape), x.stride(), x.storage_offset(), values


def carried(to, of, obj, zipped=True, plain=True):
    """Return what one framework reads of the file that the other wrote."""
    file = io.BytesIO()
    of.save(obj, file, _use_new_zipfile_serialization=zipped)
    file.seek(0)
    return to.load(file, weights_only=plain)


@given(programs, st.booleans(), st.booleans())
@pytest.mark.parametrize(("to", "of"), [(tangrad, torch), (torch, tangrad), (tangrad, tangrad)])
def test_lazy_tensors_go_both_ways(to, of, program, zipped, plain):
    made = lazy_tensors(of, program)
    loaded = carried(to, of, made, zipped, plain)
    assert [facts(x) for x in loaded] == [facts(x) for x in lazy_tensors(torch, program)]
    memory = [x.untyped_storage().data_ptr() for x in loaded if x.numel()]
    kept = [x.untyped_storage().data_ptr() for x in made if x.numel()]
    assert [m == memory[0] for m in memory] == [k == kept[0] for k in kept]


@given(programs)
def test_copies_have_what_a_lazy_tensor_shows(program):
    for x in lazy_tensors(tangrad, program):
        sent = ForkingPickler.loads(ForkingPickler.dumps(x.detach()))
        stored = safetensors.load(safetensors.save({"x": x}))["x"]
        copies = [pickle.loads(pickle.dumps(x)), copy.copy(x), copy.deepcopy(x.detach())]
        copies += [sent, stored, tangrad.as_tensor(x.detach().numpy(force=True))]
        assert [facts(c)[-1] for c in copies] == [facts(x)[-1]] * len(copies)
        assert facts(copies[0]) == facts(copies[1]) == facts(x)


@pytest.mark.filterwarnings("ignore:ComplexHalf support")
@pytest.mark.parametrize(("to", "of"), [(tangrad, torch), (torch, tangrad), (tangrad, tangrad)])
def test_a_dtype_whose_storage_has_no_name_keeps_its_bits(to, of):
    loaded = carried(to, of, of.tensor([1 + 2j]).to(of.complex32).conj())
    assert loaded.is_conj()
    assert loaded.to(to.complex64).tolist() == [1 - 2j]


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e8m0fnu", "complex32"])
def test_a_dtype_that_nobody_asked_for_yet_is_found(name, tmp_path):
    code = f"import tangrad; print(tangrad.load({str(tmp_path / 'x.pt')!r}).dtype)"
    torch.save(torch.empty(2, dtype=getattr(torch, name)), tmp_path / "x.pt")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"tangrad.{name}"


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_bits_that_numbers_cannot_have_are_refused():
    class Wrong:
        def __reduce__(self):
            storage = torch.ones(2).storage()
            metadata = {"conj": True}
            args = (storage, 0, (2,), (1,), False, {}, metadata)
            return torch._utils._rebuild_tensor_v2, args

    file = io.BytesIO()
    torch.save(Wrong(), file)
    file.seek(0)
    with pytest.raises(SerializationError, match="marked as .*conj"):
        tangrad.load(file)


def test_a_file_of_lazy_tensors_can_be_inspected():
    file = io.BytesIO()
    torch.save({"w": torch.tensor([1 + 2j]).conj()}, file)
    file.seek(0)
    found = describe(file)["tensors"]["w"]
    assert (found.dtype, found.shape) == ("complex64", (1,))


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "before 1.6"])
@pytest.mark.parametrize(("to", "of"), [(tangrad, torch), (torch, tangrad), (tangrad, tangrad)])
def test_parameters_without_a_shape_go_both_ways(to, of, zipped):
    state = of.nn.LazyBatchNorm1d(dtype=of.float64).state_dict()
    loaded = carried(to, of, state, zipped, plain=False)
    kinds = [type(x).__name__ for x in loaded.values()]
    assert kinds == ["UninitializedParameter"] * 2 + ["UninitializedBuffer"] * 2 + ["Tensor"]
    assert loaded["weight"].requires_grad
    if of is tangrad:  # PyTorch's files do not tell it
        assert loaded["weight"].dtype == to.float64


class Scaled(tangrad.Tensor):
    """A tensor that says itself how it is rebuilt."""

    def __reduce_ex__(self, protocol):
        return scaled, (self.tolist(),)


def scaled(values):
    return tangrad.tensor(values).as_subclass(Scaled)


def test_a_class_of_tensors_is_asked_how_it_is_rebuilt():
    x = scaled([1.0, 2.0])
    x.note = "not kept"
    loaded = carried(tangrad, tangrad, {"x": x}, plain=False)["x"]
    assert (type(loaded), loaded.tolist(), vars(loaded)) == (Scaled, [1.0, 2.0], {})


def test_names_of_python_2_in_a_file_are_understood():
    """A bound method is pickled as a call of `__builtin__.getattr`."""
    assert carried(tangrad, torch, [1, 2].index, plain=False)(2) == 1


def test_whole_modules_of_the_format_before_1_6_are_read():
    loaded = carried(tangrad, torch, torch.nn.Linear(3, 2), zipped=False, plain=False)
    assert type(loaded) is tangrad.nn.Linear
    assert loaded.weight.shape == (2, 3)
