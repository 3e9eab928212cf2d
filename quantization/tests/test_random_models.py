"""Random networks by every workflow: from the same statistics, the integers are PyTorch's.

Sums of floats differ in their last bits, hence what observers saw of PyTorch's model is compared
to within these, and then handed over.
"""

import random

import numpy as np
import pytest
import torch
import torch.ao.nn.quantized
import torch.ao.quantization.quantize_fx as their_fx
from quantized_pairs import models, ours, quiet, theirs
from random_models import batches, chains, maker, network, qconfig

import tangrad
import tangrad.ao.quantization.quantize_fx as our_fx

SIDES = ((torch, theirs, their_fx), (tangrad, ours, our_fx))
# In eager mode functions with a range of their own have no quantized module.
EAGER = ("relu", "relu6", "hardtanh", "leaky_relu", "hardswish", "elu")


def eager(model, described, q, fx, config):
    model = q.fuse_modules(model, chains(described)) if chains(described) else model
    model.qconfig = config(q)
    return q.prepare(model), q.convert


def eager_trained(model, described, q, fx, config):
    model = q.fuse_modules_qat(model, chains(described)) if chains(described) else model
    model.qconfig = q.get_default_qat_qconfig("fbgemm")
    return q.prepare_qat(model), q.convert


def graph(model, described, q, fx, config):
    mapping = q.get_default_qconfig_mapping("fbgemm").set_global(config(q))
    return fx.prepare_fx(model, mapping, (None,)), fx.convert_fx


def graph_trained(model, described, q, fx, config):
    mapping = q.get_default_qat_qconfig_mapping("fbgemm")
    return fx.prepare_qat_fx(model, mapping, (None,)), fx.convert_fx


WORKFLOWS = (eager, eager_trained, graph, graph_trained)


def outputs(workflow, seed):
    """Return what the quantized networks of both sides give for the same images."""
    rng = random.Random(seed)
    in_eager = workflow in (eager, eager_trained)
    described = network(rng, *([EAGER] if in_eager else []), joins=("add", "mul"))
    images, chosen, state, made = batches(seed, described.channels), rng.random(), {}, []
    pair = models(maker(described, in_eager), seed)
    for (root, q, fx), model in zip(SIDES, pair, strict=True):
        model.train(workflow in (eager_trained, graph_trained))
        prepared, convert = workflow(
            model, described, q, fx, lambda side: qconfig(random.Random(chosen), side, False)
        )
        for image in images:
            prepared(root.from_numpy(image))
        if not state:
            state = {key: value.numpy().copy() for key, value in prepared.state_dict().items()}
        prepared.load_state_dict({key: root.from_numpy(v) for key, v in state.items()})
        made.append(convert(prepared.eval())(root.from_numpy(images[0])).detach().numpy())
    return made


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda w: w.__name__)
def test_random_networks_give_the_same_integers(workflow, seed):
    expected, found = quiet(outputs, workflow, seed)
    assert found.shape == expected.shape
    assert np.array_equal(found, expected)
