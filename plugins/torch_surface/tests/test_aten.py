"""Ops by PyTorch's inner names."""

import copy
import pickle

import pytest

import tangrad

CALLS = {
    "a product": lambda t, x: t.ops.aten.mm.default(x, x.t()),
    "an overload": lambda t, x: t.ops.aten.sum.dim_IntList(x, [1]),
    "the packet": lambda t, x: t.ops.aten.add(x, 1),
    "in place": lambda t, x: (t.ops.aten.relu_.default(x), x),
    "slice": lambda t, x: t.ops.aten.slice.Tensor(x, 0, 1, 3),
    "softmax": lambda t, x: t.ops.aten._softmax.default(x, 1, False),
    "softmax of -inf": lambda t, x: t.ops.aten._safe_softmax(x.fill_(-float("inf")), 1),
    "a gradient": lambda t, x: t.ops.aten._softmax_backward_data(x, x, 1, t.float64),
    "a layer": lambda t, x: t.ops.aten.layer_norm.default(x, [4], None, None, 1e-5, False),
    "an activation": lambda t, x: t.ops.aten.gelu(x, approximate="tanh"),
    "threshold_backward": lambda t, x: t.ops.aten.threshold_backward(x, x, 0.5),
    "no dropout": lambda t, x: t.ops.aten.native_dropout(x, 0.5, False),
    "a gradient of pooling": lambda t, x: t.ops.aten.max_pool2d_with_indices_backward(
        t.ones(1, 1, 2), x[None], [2, 2], [2, 2], [0, 0], [1, 1], False, t.tensor([[[5, 2]]])
    ),
    "antialiasing": lambda t, x: [
        t.ops.aten._upsample_bilinear2d_aa(x[None, None], [2, 3], False, 0.5, 0.7),
        t.ops.aten._upsample_bilinear2d_aa(x[None, None], None, True, scale_factors=[0.7, 1.5]),
    ],
    "batch norm": lambda t, x: t.ops.aten._batch_norm_with_update(
        x, None, None, x[0].clone(), x[1].clone(), 0.1, 1e-5
    )[:3],
    "reading at a mask": lambda t, x: t.ops.aten.index.Tensor(x, [x[:, 0] > 0]),
    "reading at two places": lambda t, x: t.ops.aten.index.Tensor(
        x, [None, t.tensor([[True, False, True, True]])[0]]
    ),
    "a copy": lambda t, x: t.ops.aten._to_copy.default(
        x, dtype=t.float64, layout=t.strided, pin_memory=False, non_blocking=True
    ),
    "a result that is given": lambda t, x: t.ops.aten.add.out(x, x, out=t.empty(3, 4)),
    "a stable sort": lambda t, x: t.ops.aten.sort.stable(x, stable=True, dim=0, descending=True)[1],
    "no such op": lambda t, x: t.ops.aten.no_such_op(x),
    "no such overload": lambda t, x: t.ops.aten.mm.no_such_overload(x),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call(agree, name):
    agree(lambda t: CALLS[name](t, (t.arange(12.0) * 0.7).sin().reshape(3, 4)), message=False)


def test_an_overload_is_the_op():
    assert tangrad.ops.aten.mm.default is tangrad.mm
    assert repr(tangrad.ops.aten.mm) == "<OpOverloadPacket(op='aten.mm')>"


def test_an_overload_of_its_own_is_one_object_in_copies_too():
    packet = tangrad.ops.aten.sort
    assert packet.stable is packet.stable is not packet.default
    assert packet.stable.name == "sort"
    assert copy.copy(packet.stable) is pickle.loads(pickle.dumps(packet.stable)) is packet.stable
    assert tangrad.ops.aten.sum.IntList_out is tangrad.ops.aten.sum.out
    assert repr(packet.stable) == "<OpOverload(op='aten.sort', overload='stable')>"


def test_an_overload_is_found_by_its_module_and_name():
    overload = tangrad.ops.aten.add.Tensor  # graphs print targets so
    found = tangrad
    for part in f"{overload.__module__}.{overload.__qualname__}".split(".")[1:]:
        found = getattr(found, part)
    assert found is overload


def test_packets_of_names_of_builtins_are_not_taken_for_these():
    for name in ("any", "all", "slice", "sum", "max", "min", "abs", "round"):
        assert getattr(tangrad.ops.aten, name)
    x = tangrad.arange(4.0)
    assert tangrad.ops.aten.mul.out is tangrad.ops.aten.mul.Tensor_out
    assert tangrad.ops.aten.index.Tensor(x, [x > 1]).tolist() == [2, 3]


def test_a_copy_of_a_packet_is_itself():
    packet = tangrad.ops.aten.mm
    assert copy.copy(packet) is copy.deepcopy(packet) is packet
    assert pickle.loads(pickle.dumps(packet)) is packet


@pytest.mark.parametrize("name", ["mm", "relu", "native_layer_norm"])
def test_an_op_tells_its_names_as_an_overload(agree, name):
    def program(t):
        packet = getattr(t.ops.aten, name)
        op = packet.default
        told = op._overloadpacket is packet, op.namespace, op._opname, op._overloadname
        return told, op._overloadpacket in {packet: 1}

    agree(program)
