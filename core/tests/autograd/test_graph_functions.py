"""Saved-tensor hooks, edges, anomaly mode, forward mode by dual tensors."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

import tangrad
from tangrad.autograd import detect_anomaly, forward_ad, graph, set_detect_anomaly


def leaf(*values):
    return tangrad.tensor(values, dtype=tangrad.float64, requires_grad=True)


pytestmark = pytest.mark.filterwarnings(
    "ignore:.*jit.script.* is deprecated:DeprecationWarning"
)  # torch's forward mode


# --- saved tensors
# ---------------------------------------------------------------------------------


def test_hooks_pack_and_unpack_what_is_saved():
    packed, unpacked = [], []

    def pack(t):
        packed.append(tuple(t.shape))
        return t.detach() * 2

    def unpack(t):
        unpacked.append(tuple(t.shape))
        return t / 2

    x = leaf(1.0, 2.0)
    with graph.saved_tensors_hooks(pack, unpack):
        y = (x * x).sum()
    y.backward()
    assert packed == unpacked == [(2,), (2,)]
    assert x.grad.tolist() == [2, 4]


def test_innermost_hooks_win_and_leave():
    seen = []
    x = leaf(1.0)
    with graph.saved_tensors_hooks(lambda t: seen.append("outer") or t, lambda t: t):
        with graph.saved_tensors_hooks(lambda t: seen.append("inner") or t, lambda t: t):
            x.exp()
        x.sin()
    x.sin()
    assert seen == ["inner", "outer"]


def test_hooks_belong_to_a_thread():
    seen = []
    with graph.saved_tensors_hooks(lambda t: seen.append(1) or t, lambda t: t):
        thread = threading.Thread(target=lambda: leaf(1.0).exp())
        thread.start()
        thread.join()
    assert seen == []


def test_save_on_cpu_gives_the_same_gradients():
    x = leaf(1.0, 2.0)
    with graph.save_on_cpu():
        y = (x.exp() * x).sum()
    y.backward()
    assert tangrad.allclose(x.grad, x.exp() * (1 + x))


def test_disabled_hooks_raise_the_message():
    with (
        graph.disable_saved_tensors_hooks("not here"),
        pytest.raises(RuntimeError, match="not here"),
        graph.saved_tensors_hooks(lambda t: t, lambda t: t),
    ):
        pass
    with graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        pass


def test_gradient_edges_lead_to_nodes():
    x = leaf(1.0)
    y = x * 2
    assert graph.get_gradient_edge(y).node is y.grad_fn
    assert graph.get_gradient_edge(x).node is y.grad_fn.next_functions[0][0]
    assert isinstance(y.grad_fn, graph.Node)
    with pytest.raises(RuntimeError, match="does not require gradients"):
        graph.get_gradient_edge(tangrad.ones(1))


def test_increment_version_spoils_what_was_saved():
    x = leaf(1.0)
    y = x.exp()
    z = y * 1
    graph.increment_version(y)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_hook_of_several_tensors_runs_once():
    x, y, seen = leaf(1.0), leaf(2.0), []
    handle = graph.register_multi_grad_hook(
        [x, y], lambda grads: seen.append([g.tolist() for g in grads])
    )
    (x * y).sum().backward()
    handle.remove()
    (x * y).sum().backward()
    assert seen == [[[2.0], [1.0]]]


# --- anomaly mode
# ----------------------------------------------------------------------------------


def make_nan(x):
    return (x * 0).sqrt() * 0


def test_anomaly_mode_names_the_forward_line_of_nan():
    with (
        detect_anomaly(),
        pytest.raises(RuntimeError, match="returned nan values in its 0th output") as caught,
    ):
        make_nan(leaf(1.0)).sum().backward()
    assert "SqrtBackward0" in str(caught.value)
    assert "in make_nan" in str(caught.value)


@pytest.mark.parametrize("dtype", [tangrad.float32, tangrad.float64, tangrad.bfloat16])
def test_anomaly_mode_tells_the_first_bad_element_and_what_came_in(dtype):
    x = tangrad.arange(12.0, dtype=dtype).reshape(3, 4).requires_grad_()
    with detect_anomaly():
        y = (x - 6).t().sqrt()
        with pytest.raises(
            RuntimeError, match=r"first is at \[0, 0\].*came in: .* between 2 and 2"
        ):
            y.backward(tangrad.full((4, 3), 2.0, dtype=dtype))
        trace = y.grad_fn.metadata["traceback_"]
    assert "y = (x - 6).t().sqrt()" in trace[-1]


def test_anomaly_mode_names_the_forward_line_of_an_error():
    def scale(x):
        y = x.exp()
        z = y * 2
        y.mul_(2)
        return z

    with (
        detect_anomaly(),
        pytest.warns(UserWarning, match="in scale"),
        pytest.raises(RuntimeError, match="modified by an inplace operation"),
    ):
        scale(leaf(1.0)).sum().backward()


def test_anomaly_mode_can_ignore_nan_and_ends():
    with detect_anomaly(check_nan=False):
        make_nan(leaf(1.0)).sum().backward()
    make_nan(leaf(1.0)).sum().backward()
    with set_detect_anomaly(True), pytest.raises(RuntimeError, match="nan values"):
        make_nan(leaf(1.0)).sum().backward()


# --- dual tensors
# ----------------------------------------------------------------------------------


def test_tangents_follow_dual_tensors(agree):
    def program(t):
        fw = t.autograd.forward_ad
        x, d = t.tensor([1.0, 2.0]), t.tensor([3.0, -1.0])
        with fw.dual_level():
            dual = fw.make_dual(x, d)
            y = (dual * dual).sin()
            z = t.zeros(2)
            z.copy_(y)
            z[0].mul_(dual[1])
            results = [fw.unpack_dual(v) for v in (y, z, dual.sum(), dual.detach(), x)]
            return [
                [r.primal, r.tangent.tolist() if r.tangent is not None else None] for r in results
            ]

    agree(program)


def test_dual_tensors_take_what_is_written_to_with_them(agree):
    def program(t):
        fw = t.autograd.forward_ad
        x, d = t.tensor([[1.0, 2.0], [5.0, 1.0]]), t.tensor([[3.0, -1.0], [0.5, 2.0]])
        mean, var, plain = t.zeros(2), t.ones(2), t.ones(2, 2)
        with fw.dual_level():
            dual = fw.make_dual(x, d)
            y = t.nn.functional.batch_norm(dual, mean, var, training=True)
            plain.add_(dual).mul_(dual)
            results = [fw.unpack_dual(v) for v in (y, mean, var, plain)]
            duals = [[r.primal, r.tangent] for r in results]
        return [*duals, mean + 1, plain.tolist()]

    agree(program)


def test_tangents_outside_of_a_dual_view_are_zero(agree):
    def program(t):
        fw = t.autograd.forward_ad
        part = t.arange(20.0)[5:15]
        with fw.dual_level():
            dual = fw.make_dual(part, t.arange(10.0))
            seen = fw.unpack_dual(dual.as_strided((2, 3), (1, 2), 2))
            return [seen.primal, seen.tangent]

    agree(program)


def test_dual_tensors_alone_load_what_their_tangents_need():
    program = """
import tangrad
fw = tangrad.autograd.forward_ad
with fw.dual_level():
    x = fw.make_dual(tangrad.eye(2), tangrad.ones(2, 2))
    assert fw.unpack_dual(tangrad.linalg.qr(x).R).tangent is not None
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_tangents_end_with_their_level():
    x = tangrad.ones(2)
    with forward_ad.dual_level():
        y = forward_ad.make_dual(x, x) * 3
    assert forward_ad.unpack_dual(y).tangent is None
    assert (y + 1).tolist() == [4, 4]


def test_forward_over_reverse_with_dual_tensors():
    x = leaf(1.0, 2.0)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, tangrad.ones_like(x))
        (g,) = tangrad.autograd.grad((dual**3).sum(), dual, create_graph=True)
        assert forward_ad.unpack_dual(g).tangent.tolist() == [6, 12]


def test_dual_tensors_are_refused_where_they_have_no_meaning():
    x = tangrad.ones(2)
    with pytest.raises(RuntimeError, match="no level exists"):
        forward_ad.make_dual(x, x)
    with forward_ad.dual_level():
        with pytest.raises(RuntimeError, match="different size"):
            forward_ad.make_dual(x, x[:1])
        with pytest.raises(RuntimeError, match="Nested forward mode"), forward_ad.dual_level():
            pass


def test_a_node_is_called_with_a_gradient_per_result():
    node = (tangrad.ones(1, requires_grad=True) ** 2).grad_fn
    for wrong in ((), (tangrad.ones(1), tangrad.ones(1))):
        with pytest.raises(TypeError, match=f"expected 1 arguments, got {len(wrong)} instead"):
            node(*wrong)
    assert node(tangrad.ones(1)).tolist() == [2]


@pytest.mark.parametrize("name", ["requires_grad", "_grad_fn", "data", "_backward_hooks"])
def test_what_a_tensor_needs_cannot_be_deleted(name):
    with pytest.raises(RuntimeError, match="[Dd]elet"):
        delattr(tangrad.ones(1, requires_grad=True), name)


def test_a_pack_hook_gets_an_input_itself_and_records_nothing():
    weight, seen = tangrad.ones(2, requires_grad=True), []

    def pack(t):
        seen.append(t is weight)
        return t.exp()

    with tangrad.autograd.graph.saved_tensors_hooks(pack, lambda t: t.log()):
        y = tangrad.full((2,), 3.0) * weight * 5.0
        z = weight.sin()
    assert True in seen
    (y.sum() + z.sum()).backward()
    tangrad.testing.assert_close(weight.grad, 15.0 + weight.detach().cos())
