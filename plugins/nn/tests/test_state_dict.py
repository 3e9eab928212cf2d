"""Writing and reading the state of modules."""

import copy
import gc
import weakref
from collections import OrderedDict

import pytest

import tangrad
from tangrad import nn


def network(t):
    return t.nn.Sequential(t.nn.Linear(2, 3), t.nn.BatchNorm1d(3), t.nn.Linear(3, 1, bias=False))


def test_state_dicts_have_pytorchs_keys_and_metadata(agree):
    def program(t):
        state = network(t).state_dict(prefix="net.")
        return [type(state).__name__, list(state), dict(state._metadata)]

    agree(program)


def test_a_state_dict_shares_memory_and_is_detached():
    net = nn.Linear(1, 1)
    state = net.state_dict()
    assert not state["weight"].requires_grad
    assert net.state_dict(keep_vars=True)["weight"] is net.weight
    with tangrad.no_grad():
        net.weight.fill_(7.0)
    assert state["weight"].item() == 7


def test_a_state_dict_loads_into_another_module():
    source, target = network(tangrad), network(tangrad)
    weight = target[0].weight
    result = target.load_state_dict(source.state_dict())
    assert str(result) == "<All keys matched successfully>"
    assert target[0].weight is weight
    assert target[0].weight.tolist() == source[0].weight.tolist()


def test_state_is_exchangeable_with_pytorch():
    torch = pytest.importorskip("torch", reason="torch is the oracle")
    theirs, ours = network(torch), network(tangrad)
    state = {
        key: tangrad.tensor(value.tolist(), dtype=getattr(tangrad, str(value.dtype).split(".")[1]))
        for key, value in theirs.state_dict().items()
    }
    ours.load_state_dict(state)
    x = [[0.5, -1.0], [2.0, 3.0], [1.0, 1.0]]
    expected = theirs(torch.tensor(x)).flatten().tolist()
    assert ours(tangrad.tensor(x)).flatten().tolist() == pytest.approx(expected, abs=1e-5)


BROKEN = {
    "missing": lambda t, s: s.pop("0.weight"),
    "unexpected": lambda t, s: s.update(
        {"0.scale": t.ones(1), "more": t.ones(1), "9.x": t.ones(1)}
    ),
    "both": lambda t, s: (s.pop("2.weight"), s.update({"2.weights": t.ones(1)})),
    "size": lambda t, s: s.update({"0.weight": t.ones(3, 3), "2.weight": t.ones(1)}),
    "no tensor": lambda t, s: s.update({"0.weight": 3}),
    "extra state": lambda t, s: s.update({"0._extra_state": 3}),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_state_dict_that_does_not_fit_is_refused_with_a_list(agree, case):
    def program(t):
        state = network(t).state_dict()
        BROKEN[case](t, state)
        network(t).load_state_dict(state)

    agree(program)


@pytest.mark.parametrize("case", ["missing", "unexpected", "both"])
def test_without_strict_the_differences_are_returned(agree, case):
    def program(t):
        state = network(t).state_dict()
        BROKEN[case](t, state)
        result = network(t).load_state_dict(state, strict=False)
        return [result.missing_keys, result.unexpected_keys, repr(result)]

    agree(program)


def test_a_state_dict_must_be_a_mapping(agree):
    agree(lambda t: network(t).load_state_dict([1]))


def test_assign_makes_the_module_hold_the_given_tensors():
    net = nn.Linear(2, 1, device="meta")
    net.bias.requires_grad_(False)
    state = {"weight": tangrad.ones(1, 2), "bias": nn.Parameter(tangrad.ones(1))}
    net.load_state_dict(state, assign=True)
    assert isinstance(net.weight, nn.Parameter)
    assert net.weight.requires_grad
    assert net.bias is state["bias"]
    assert not net.bias.requires_grad


def test_loading_into_meta_without_assign_warns():
    net = nn.Linear(2, 1, bias=False, device="meta")
    with pytest.warns(UserWarning, match="assign=True"):
        net.load_state_dict({"weight": tangrad.ones(1, 2)})


def test_scalars_of_shape_one_load_into_scalars():
    net = nn.Module()
    net.scale = nn.Parameter(tangrad.tensor(0.0))
    net.load_state_dict({"scale": tangrad.tensor([3.0])})
    assert net.scale.item() == 3


def test_extra_state_travels_with_the_rest():
    class Counting(nn.Module):
        count = 0

        def get_extra_state(self):
            return {"count": self.count}

        def set_extra_state(self, state):
            self.count = state["count"]

    source, target = nn.Sequential(Counting()), nn.Sequential(Counting())
    source[0].count = 5
    assert list(source.state_dict()) == ["0._extra_state"]
    target.load_state_dict(source.state_dict())
    assert target[0].count == 5
    with pytest.raises(RuntimeError, match=r'Missing key\(s\) in state_dict: "0._extra_state"'):
        target.load_state_dict({})


def test_hooks_run_around_saving(agree):
    def program(t):
        net, log = t.nn.Linear(1, 1), []
        net.register_state_dict_pre_hook(lambda m, prefix, keep: log.append((prefix, keep)))
        net.register_state_dict_post_hook(lambda m, state, prefix, meta: state.pop("bias") and None)
        net._register_state_dict_hook(lambda m, state, prefix, meta: {**state, "new": 1})
        return [list(net.state_dict()), log]

    agree(program)


def test_a_post_hook_must_return_none(agree):
    def program(t):
        net = t.nn.Linear(1, 1)
        net.register_state_dict_post_hook(lambda *args: 3)
        net.state_dict()

    agree(program)


def test_hooks_run_around_loading(agree):
    def program(t):
        net, log = t.nn.Linear(1, 1), []

        def rename(module, state, prefix, meta, strict, missing, unexpected, errors):
            log.append((type(module).__name__, prefix, strict))
            state[prefix + "weight"] = state.pop(prefix + "kernel")

        net.register_load_state_dict_pre_hook(rename)
        net._register_load_state_dict_pre_hook(lambda *args: log.append(len(args)))
        net.register_load_state_dict_post_hook(lambda m, keys: keys.missing_keys.clear())
        state = {"kernel": t.ones(1, 1)}
        return [net.load_state_dict(state).missing_keys, log, sorted(state)]

    agree(program)


def test_a_hook_that_gets_its_module_does_not_keep_it_alive():
    net = nn.Linear(1, 1)
    seen = []
    net.register_load_state_dict_pre_hook(lambda module, *_: seen.append(module))
    twin = copy.deepcopy(net)
    twin.load_state_dict(net.state_dict())
    assert seen == [twin]
    gone = weakref.ref(net)
    gc.disable()  # it must go at once, not with the next collection
    try:
        del net
        assert gone() is None
    finally:
        gc.enable()


def test_the_version_reaches_the_module_that_loads(agree):
    def program(t):
        seen = []

        class Versioned(t.nn.Module):
            _version = 3

            def _load_from_state_dict(self, state, prefix, metadata, *rest):
                seen.append(metadata.get("version"))
                super()._load_from_state_dict(state, prefix, metadata, *rest)

        net = t.nn.Sequential(Versioned())
        net.load_state_dict(net.state_dict())
        net.load_state_dict({})
        return seen

    agree(program)


def test_batch_norm_state_of_version_one_lacks_the_count():
    net = nn.BatchNorm1d(2)
    state = OrderedDict((k, v) for k, v in net.state_dict().items() if "num_batches" not in k)
    net.load_state_dict(state)
    assert net.num_batches_tracked.item() == 0


def test_positional_arguments_of_state_dict_are_deprecated():
    with pytest.warns(FutureWarning, match="Positional args are being deprecated"):
        state = nn.Linear(1, 1).state_dict(OrderedDict(), "net.")
    assert list(state) == ["net.weight", "net.bias"]
