"""What programs name though the package is not installed: it can be named, and not used."""

from __future__ import annotations

import importlib
from importlib.util import find_spec

import pytest

import tangrad
from tangrad.discovery import discovery, neutral
from tangrad.discovery.neutral import MissingPluginError
from tangrad.tensor import layouts

ABSENT = pytest.mark.skipif(
    any(find_spec(f"tangrad_{name}") for name in ("distributed", "profiler")),
    reason="tells what is said of packages that are not installed",
)
pytestmark = pytest.mark.skipif(tangrad.cuda.is_available(), reason="the package is installed")
CUDA_ABSENT = pytest.mark.skipif(
    find_spec("tangrad_cuda") is not None, reason="tells what is said where the package is not"
)


def test_a_device_can_be_named_without_its_package():
    device = tangrad.device("cuda", 1)
    assert (device.type, device.index, str(device)) == ("cuda", 1, "cuda:1")
    assert tangrad.ones(1).device != device


@CUDA_ABSENT
@pytest.mark.parametrize(
    "use",
    [
        lambda: tangrad.zeros(2, device="cuda"),
        lambda: tangrad.zeros(2).to("cuda:0"),
        lambda: tangrad.zeros(2).cuda(),
        lambda: tangrad.nn.Linear(2, 2, device="cuda"),
    ],
)
def test_using_it_names_the_package(use):
    with pytest.raises(MissingPluginError, match=r"tangrad\[cuda\]"):
        use()


def test_a_device_that_nobody_knows_cannot_be_named():
    with pytest.raises(RuntimeError, match="Expected one of"):
        tangrad.device("quantum")


@ABSENT
def test_what_programs_import_for_several_processes_refuses_to_be_called():
    from tangrad.distributed import init_process_group
    from tangrad.nn.parallel import DistributedDataParallel

    model = tangrad.nn.Linear(1, 1)
    assert not isinstance(model, DistributedDataParallel)
    for refused in (init_process_group, lambda: DistributedDataParallel(model)):
        with pytest.raises(MissingPluginError, match=r"tangrad\[distributed\]"):
            refused()
    with pytest.raises(AttributeError):
        tangrad.nn.parallel.nothing


def test_a_package_that_exists_is_named_with_how_to_install_it(monkeypatch):
    monkeypatch.setattr(neutral, "is_published", lambda extra: extra == "distributed")
    monkeypatch.setattr(discovery, "version_of", lambda distribution: None)
    told = neutral.missing_message("distributed", "all_gather")
    assert told.endswith("run: pip install tangrad[distributed]")


def test_what_an_installed_package_does_not_bring_is_not_said_to_be_installable(monkeypatch):
    monkeypatch.setattr(neutral, "is_published", lambda extra: True)
    monkeypatch.setattr(discovery, "version_of", lambda distribution: "1.2")
    told = neutral.missing_message("distributed.fsdp", "fully_shard")
    assert told.startswith("tangrad-distributed 1.2 has no 'tangrad.distributed.fsdp.fully_shard'")


def test_a_package_that_does_not_exist_yet_is_not_said_to_be_installable(monkeypatch):
    monkeypatch.setattr(neutral, "is_published", lambda extra: False)
    told = neutral.missing_message("distributed", "all_gather")
    assert "needs the package tangrad[distributed], which does not exist yet" in told
    assert "pip install" not in told


def test_extras_are_those_of_the_installed_core():
    assert neutral.is_published("testing")
    assert neutral.is_published("array-api")
    assert not neutral.is_published("nonsense")


@ABSENT
def test_what_is_only_named_has_its_names():
    """As defaults of parameters, in lists of activities, in tables."""
    from tangrad.distributed import ReduceOp
    from tangrad.profiler import ProfilerAction, ProfilerActivity

    def all_reduce(x, op=ReduceOp.SUM):
        return op

    assert str(ProfilerActivity.CPU) == "ProfilerActivity.CPU"
    assert len({ProfilerActivity.CPU, ProfilerActivity.CUDA, ProfilerAction.RECORD}) == 3
    assert all_reduce(None) is ReduceOp.SUM
    with pytest.raises(MissingPluginError, match=r"tangrad\[profiler\]"):
        tangrad.profiler.profile(activities=[ProfilerActivity.CPU])


def test_the_class_of_tensors_is_no_module():
    """`unittest.mock.patch("torch.Tensor.device")` tries to import it as one."""
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("tangrad.Tensor")
    assert isinstance(tangrad.Tensor, type)


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("to_sparse", r"to_sparse, called on .*float32\[2\].*: pip install tangrad\[sparse\]"),
        ("int_repr", r"int_repr, called on .*: pip install tangrad\[quantization\]"),
    ],
)
def test_a_method_of_tensors_of_a_package_names_it(monkeypatch, name, remedy):
    monkeypatch.setattr(discovery, "version_of", lambda distribution: None)
    monkeypatch.setattr(layouts, "_brought", lambda self, name: None)
    with pytest.raises(NotImplementedError, match=remedy):
        getattr(tangrad.ones(2), name)()


def test_compiling_names_the_package_that_compiles(monkeypatch):
    monkeypatch.setattr(discovery, "version_of", lambda distribution: None)
    monkeypatch.setattr("tangrad.compilation._compiler", lambda: None)
    monkeypatch.setattr("tangrad.compilation._warned", False)
    with pytest.warns(UserWarning, match=r"as it is: .*pip install tangrad\[jit\]"):
        tangrad.compile(abs)
    with pytest.raises(RuntimeError, match=r"compile.explain .*pip install tangrad\[jit\]"):
        tangrad.compile.explain(abs, 1)
