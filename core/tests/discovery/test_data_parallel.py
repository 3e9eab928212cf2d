"""A batch divided among the devices of one process: fake ones, whose memory the host cannot see."""

import pytest

import tangrad
from tangrad import nn
from tangrad.discovery import discovery

pytestmark = pytest.mark.filterwarnings("ignore::tangrad.plugin.FallbackWarning")
DRIVER = '''
"""Two devices without kernels."""
import itertools
from tangrad.plugin import DeviceDriver

API = 1


def device_count():
    return 2


class Driver(DeviceDriver):
    module = "acme_pair"

    def open(self):
        self.blocks = {}
        self.handles = itertools.count(1)

    def device_count(self):
        return 2

    def allocate(self, nbytes, index):
        handle = next(self.handles)
        self.blocks[handle] = bytearray(nbytes)
        return handle

    def release(self, handle, nbytes):
        del self.blocks[handle]

    def copy_from_host(self, handle, offset, source):
        self.blocks[handle][offset : offset + len(source)] = source

    def copy_to_host(self, handle, offset, target):
        target[:] = self.blocks[handle][offset : offset + len(target)]
'''


@pytest.fixture
def pair(site):
    """Return the name of a type of which there are two devices."""
    entry = {"tangrad.devices": {"pair": "acme_pair:Driver"}}
    site.install("acme-pair", entry, {"acme_pair.py": DRIVER})
    discovery.rescan()
    return "pair"


class Seen(nn.Module):
    """Note on which device each call comes, and with how many rows."""

    def __init__(self, inner):
        super().__init__()
        self.inner, self.seen = inner, []

    def forward(self, x, factor=1.0):
        self.seen.append((str(x.device), len(x)))
        return self.inner(x) * factor


def network():
    tangrad.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.GRU(4, 2, batch_first=True))


def tied():
    tangrad.manual_seed(0)
    first = nn.Linear(3, 3)
    return nn.Sequential(first, nn.Tanh(), first)


@pytest.mark.parametrize("rows", [4, 5, 1])
def test_a_batch_is_divided_and_gradients_come_together(pair, rows):
    x = tangrad.linspace(-1, 1, rows * 3).reshape(rows, 3)
    alone = tied()
    expected = alone(x)
    expected.square().sum().backward()

    inner = Seen(tied().to(pair))
    model = nn.DataParallel(inner)
    result = model(x.to(pair))
    assert result.device == tangrad.device("pair:0")
    result.square().sum().backward()
    parts = {1: [1], 4: [2, 2], 5: [3, 2]}[rows]
    assert sorted(inner.seen) == [(f"pair:{at}", part) for at, part in enumerate(parts)]
    tangrad.testing.assert_close(result.cpu(), expected)
    for mine, other in zip(inner.parameters(), alone.parameters(), strict=True):
        tangrad.testing.assert_close(mine.grad.cpu(), other.grad)


def test_modules_that_hand_out_their_weights_are_divided(pair):
    x = tangrad.linspace(-1, 1, 2 * 5 * 3).reshape(2, 5, 3)
    alone, model = network(), nn.DataParallel(network().to(pair))
    tangrad.testing.assert_close(model(x.to(pair))[0].cpu(), alone(x)[0])


def test_arguments_are_divided_and_the_rest_goes_to_all(pair):
    model = nn.DataParallel(Seen(nn.Identity()), [tangrad.device("pair:0"), "pair:1"])
    x = tangrad.arange(4.0).reshape(4, 1).to(pair)
    assert model(x, factor=2.0).flatten().tolist() == [0.0, 2.0, 4.0, 6.0]
    assert len(model.module.seen) == 2


def test_statistics_stay_those_of_the_first_device(pair):
    model = nn.DataParallel(nn.BatchNorm1d(1).to(pair))
    model(tangrad.tensor([[1.0], [3.0], [100.0], [200.0]]).to(pair))
    assert model.module.running_mean.item() == pytest.approx(0.2)
    assert model.module.num_batches_tracked.item() == 1


def test_results_may_be_gathered_elsewhere_and_along_another_dimension(pair):
    model = nn.DataParallel(nn.Identity(), ["pair:0", "pair:1"], output_device="cpu", dim=1)
    found = model(tangrad.arange(6.0).reshape(2, 3).to(pair))
    assert found.tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    assert found.device.type == "cpu"


def test_settings_of_the_caller_hold_in_all_replicas(pair):
    model = nn.DataParallel(nn.Linear(1, 1).to(pair))
    with tangrad.no_grad():
        assert not model(tangrad.ones(2, 1).to(pair)).requires_grad


def test_the_states_of_programs_that_divide_are_unchanged(pair):
    model = nn.DataParallel(nn.Linear(1, 1).to(pair))
    assert list(model.state_dict()) == ["module.weight", "module.bias"]
    assert model.device_ids == [0, 1]


def test_what_a_replica_raises_is_raised_with_its_place(pair):
    class Picky(nn.Module):
        def forward(self, x):
            if x.device.index == 1:
                raise KeyError("mine")
            return x

    model = nn.DataParallel(Picky(), ["pair:0", "pair:1"])
    with pytest.raises(KeyError, match="mine") as caught:
        model(tangrad.ones(2, 1).to(pair))
    assert "Caught in replica 1 on pair:1." in caught.value.__notes__


def test_parameters_elsewhere_are_refused(pair):
    model = nn.DataParallel(nn.Linear(1, 1), ["pair:0", "pair:1"])
    with pytest.raises(RuntimeError, match=r"on device pair:0 .* one of them on device: cpu"):
        model(tangrad.ones(2, 1))


def test_one_device_is_moved_to(pair):
    model = nn.DataParallel(nn.Linear(1, 1), ["pair:1"])
    assert model.module.weight.device == tangrad.device("pair:1")
    assert model(tangrad.ones(2, 1)).device == tangrad.device("pair:1")


def test_numbers_of_devices_mean_nothing_where_there_is_one():
    model = nn.DataParallel(nn.Linear(1, 1), device_ids=[0, 1])
    assert model.device_ids == []
    assert model(tangrad.ones(2, 1)).shape == (2, 1)


def test_as_many_inputs_as_modules_are_needed():
    with pytest.raises(ValueError, match="2 modules need as many inputs, got 1"):
        nn.parallel.parallel_apply([nn.Identity()] * 2, [tangrad.ones(1)])
