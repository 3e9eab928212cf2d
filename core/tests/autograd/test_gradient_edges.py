"""Gradients from and for edges of the graph, where no tensor need be left."""

import pytest

import tangrad


def edge_of(F, tensor):
    return F.autograd.graph.get_gradient_edge(tensor)


def start(F):
    leaf = F.tensor([1.0, 2.0], requires_grad=True)
    return leaf, leaf * 3


def test_grad_for_an_edge(agree):
    def program(F):
        leaf, x = start(F)
        edges = [edge_of(F, x), edge_of(F, leaf)]
        return F.autograd.grad((x * x).sum(), [*edges, x], retain_graph=True)

    agree(program)


def test_an_edge_keeps_its_place_when_its_tensor_is_written(agree):
    def program(F):
        _, x = start(F)
        edge = edge_of(F, x)
        x *= 2
        return F.autograd.grad(x.sum(), [edge, x])

    agree(program)


@pytest.mark.parametrize("seed", [None, [1.0, 2.0], [1.0, 2.0, 3.0]])
def test_grad_from_an_edge(agree, seed):
    def program(F):
        leaf, x = start(F)
        return F.autograd.grad(edge_of(F, x), leaf, seed and F.tensor(seed))

    agree(program, message=False)


def test_a_scalar_edge_needs_no_seed(agree):
    def program(F):
        leaf, x = start(F)
        F.autograd.backward(edge_of(F, x.sum()))
        return leaf.grad

    agree(program)


def test_backward_accumulates_at_leaves_only(agree):
    def program(F):
        leaf, x = start(F)
        out = x.sum()
        F.autograd.backward(out, inputs=[edge_of(F, x)], retain_graph=True)
        before = leaf.grad
        F.autograd.backward(out, inputs=[edge_of(F, leaf), x], retain_graph=True)
        F.autograd.backward(out, inputs=edge_of(F, leaf))
        return [before, leaf.grad, x.grad]

    agree(program)


@pytest.mark.parametrize("options", [{}, {"allow_unused": True}, {"materialize_grads": True}])
def test_an_edge_that_is_not_reached(agree, options):
    def program(F):
        _, x = start(F)
        _, other = start(F)
        return F.autograd.grad(x.sum(), [x, edge_of(F, other)], **options)

    agree(program, message=False)


@pytest.mark.parametrize("inputs", [[3], [None], 3])
def test_neither_tensor_nor_edge(agree, inputs):
    def program(F):
        _, x = start(F)
        return F.autograd.grad(x.sum(), inputs)

    agree(program)


@pytest.mark.parametrize("name", ["grad", "backward"])
def test_an_edge_of_no_result(name):

    _, x = start(tangrad)
    edge = tangrad.autograd.graph.GradientEdge(x.grad_fn, 1)
    with pytest.raises(IndexError, match="1 results"):
        getattr(tangrad.autograd, name)(x.sum(), inputs=[edge])


def test_what_a_node_knows_of_its_result(agree):
    def program(F):
        _, x = start(F)
        known = x.grad_fn._input_metadata[0]
        return [list(known.shape), str(known.dtype), str(known.device)]

    agree(program)


def test_backward_into_a_tensor_that_retains_its_gradient(agree):
    def program(F):
        leaf, x = start(F)
        x.retain_grad()
        out, seen = x.sum(), []
        for wanted in (x, leaf, x):
            out.backward(inputs=[wanted], retain_graph=True)
            seen.append(x.grad.clone())
        return seen

    agree(program)
