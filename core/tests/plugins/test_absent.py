"""What programs name though the package is not installed: it can be named, and not used."""

from __future__ import annotations

import pytest

import tangrad
from tangrad.plugins.namespaces import MissingPluginError

pytestmark = pytest.mark.skipif(tangrad.cuda.is_available(), reason="the package is installed")


def test_a_device_can_be_named_without_its_package():
    device = tangrad.device("cuda", 1)
    assert (device.type, device.index, str(device)) == ("cuda", 1, "cuda:1")
    assert tangrad.ones(1).device != device


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
    with pytest.raises(MissingPluginError, match=r"pip install tangrad\[cuda\]"):
        use()


def test_a_device_that_nobody_knows_cannot_be_named():
    with pytest.raises(RuntimeError, match="Expected one of"):
        tangrad.device("quantum")


def test_what_programs_import_for_several_processes_refuses_to_be_called():
    from tangrad.distributed import init_process_group
    from tangrad.nn.parallel import DistributedDataParallel

    model = tangrad.nn.Linear(1, 1)
    assert not isinstance(model, DistributedDataParallel)
    for refused in (init_process_group, lambda: DistributedDataParallel(model)):
        with pytest.raises(MissingPluginError, match=r"pip install tangrad\[distributed\]"):
            refused()
    with pytest.raises(AttributeError):
        tangrad.nn.parallel.nothing
