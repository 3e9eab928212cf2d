"""Random networks of sequences by every workflow, beside PyTorch's.

Rows of embeddings, and static LSTMs, have PyTorch's integers. Gates of dynamic layers are computed
in float; in these networks no last bit moves a number by a step of the next layer.
"""

import random

import numpy as np
import pytest
import torch
import torch.ao.nn.quantized
import torch.ao.quantization.quantize_fx as their_fx
from quantized_pairs import models, ours, quiet, theirs
from random_sequences import framework, inputs, maker, sequence

import tangrad
import tangrad.ao.quantization.quantize_fx as our_fx

SIDES = ((torch, theirs, their_fx), (tangrad, ours, our_fx))
DYNAMIC = ("default_dynamic_qconfig", "per_channel_dynamic_qconfig", "float16_dynamic_qconfig")


def spec(q, chosen):
    """Return what the kinds of layers are quantized by."""
    nn, rows = framework(q).nn, q.float_qparams_weight_only_qconfig
    # Recurrent layers have one scale for each weight.
    plain = "default_dynamic_qconfig" if "channel" in chosen else chosen
    layers = {nn.Linear: chosen, nn.LSTM: plain, nn.GRU: plain}
    named = {kind: getattr(q, name) for kind, name in layers.items()}
    return {**named, nn.Embedding: rows, nn.EmbeddingBag: rows}


def dynamic(model, q, fx, chosen, shown, state):
    return q.quantize_dynamic(model, spec(q, chosen))


def dynamic_graph(model, q, fx, chosen, shown, state):
    mapping = q.QConfigMapping()
    for kind, qconfig in spec(q, chosen).items():
        mapping = mapping.set_object_type(kind, qconfig)
    return fx.convert_fx(fx.prepare_fx(model, mapping, (None,)))


def handed_over(prepared, state):
    """Give the second side what the first one's observers saw: sums differ in their last bits."""
    root = torch if isinstance(prepared, torch.nn.Module) else tangrad
    if not state:
        state.update({key: v.numpy().copy() for key, v in prepared.state_dict().items()})
    prepared.load_state_dict({key: root.from_numpy(v) for key, v in state.items()})
    return prepared


def static(model, q, fx, chosen, shown, state):
    model.qconfig = q.default_qconfig
    if hasattr(model, "start"):
        model.start.qconfig = q.float_qparams_weight_only_qconfig
    prepared = q.prepare(model)
    for batch in shown:
        prepared(batch)
    return q.convert(handed_over(prepared, state))


def trained(model, q, fx, chosen, shown, state):
    """Only embeddings and linear layers are trained with rounding; gates stay as they are."""
    model.train().qconfig = q.get_default_qat_qconfig("fbgemm")
    if hasattr(model, "start"):
        model.start.qconfig = q.default_embedding_qat_qconfig
    prepared = q.prepare_qat(model)
    for batch in shown:
        prepared(batch)
    return q.convert(handed_over(prepared.eval(), state))


def outputs(workflow, seed):
    """Return what the quantized networks of both sides give for the same inputs."""
    rng, in_float = random.Random(seed), workflow in (dynamic, dynamic_graph)
    kinds = ("LSTM", "GRU") if in_float else ("LSTM",) if workflow is static else ()
    described, chosen = sequence(rng, kinds), rng.choice(DYNAMIC)
    batches, made, state = inputs(described, seed), [], {}
    pair = models(maker(described, not in_float), seed)
    for (root, q, fx), model in zip(SIDES, pair, strict=True):
        shown = [root.from_numpy(batch) for batch in batches]
        done = workflow(model.eval(), q, fx, chosen, shown, state)
        made.append(done(shown[0]).detach().numpy())
    return made


# Of the static networks, that of 6 joins two directions beyond 127, where PyTorch's sums of 16 bits
# saturate on processors without VNNI (docs/quantization.md).
@pytest.mark.parametrize("seed", [0, 1, 2, 3, 4, 5, 7, 8])
@pytest.mark.parametrize(
    "workflow", [dynamic, dynamic_graph, static, trained], ids=lambda w: w.__name__
)
def test_random_sequences_are_pytorchs(workflow, seed):
    expected, found = quiet(outputs, workflow, seed)
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5)


BAGS = {"quint8": 1e-5, "quint4x2": 4e-3}  # PyTorch keeps scales of 4 bits in half precision


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("dtype", BAGS)
def test_random_bags_are_pytorchs(dtype, seed):
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    width, ends, weighted = 2 * rng.randint(1, 9), rng.random() < 0.5, rng.random() < 0.5
    pair = models(
        lambda nn, q: nn.Sequential(
            nn.EmbeddingBag(17, width, mode="sum", include_last_offset=ends)
        ),
        seed,
    )
    indices = numbers.integers(0, 17, 11)
    offsets = np.sort(np.append(numbers.integers(0, 11, 3), [0, *([11] if ends else [])]))
    weights = numbers.standard_normal(11).astype("float32") if weighted else None
    made = []
    for (root, q, _), model in zip(SIDES, pair, strict=True):
        done = quiet(q.quantize_dynamic, model, dtype=getattr(root, dtype))
        given = None if weights is None else root.from_numpy(weights)
        made.append(done[0](root.from_numpy(indices), root.from_numpy(offsets), given).numpy())
    np.testing.assert_allclose(made[1], made[0], rtol=0, atol=BAGS[dtype] * 4)
