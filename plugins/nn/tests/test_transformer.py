"""Attention and the Transformer, compared with torch's from the same weights."""

import warnings

import pytest


@pytest.fixture(autouse=True)
def quiet():
    """Torch's encoder warns of nested tensors, used or not."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*nested.tensor.*")
        warnings.filterwarnings("ignore", message=".*Support for mismatched.*")
        yield


def values(t, *shape, seed=0):
    count = 1
    for size in shape:
        count *= size
    return ((t.arange(count, dtype=t.float64) + seed) * 0.7).sin().reshape(shape)


def filled(t, made):
    with t.no_grad():
        for place, parameter in enumerate(made.parameters()):
            parameter.copy_(values(t, *parameter.shape, seed=place) * 0.3)
    return made


def with_gradients(t, made, outputs, inputs):
    sum((o * values(t, *o.shape, seed=5)).sum() for o in outputs).backward()
    grads = [p.grad for p in [*inputs, *made.parameters()]]
    return [o.detach() for o in outputs] + grads


ATTENTION = {
    "plain": {},
    "without bias": {"bias": False},
    "with more keys": {"add_bias_kv": True, "add_zero_attn": True},
    "other sizes": {"kdim": 3, "vdim": 5},
    "batch first": {"batch_first": True},
}


@pytest.mark.parametrize(
    "call",
    [
        {},
        {"need_weights": False},
        {"average_attn_weights": False},
    ],
)
@pytest.mark.parametrize("mask", ["none", "bool", "numbers", "padding"])
@pytest.mark.parametrize("name", ATTENTION)
def test_attention_is_pytorchs(agree, name, mask, call):
    def program(t):
        options = ATTENTION[name]
        made = filled(t, t.nn.MultiheadAttention(6, 2, dtype=t.float64, **options))
        inputs = [
            values(t, 4, 2, 6, seed=1),
            values(t, 5, 2, options.get("kdim", 6), seed=2),
            values(t, 5, 2, options.get("vdim", 6), seed=3),
        ]
        if made.batch_first:
            inputs = [x.transpose(0, 1).contiguous() for x in inputs]
        inputs = [x.requires_grad_() for x in inputs]
        masks = {}
        if mask == "bool":
            masks["attn_mask"] = t.ones(4, 5, dtype=t.bool).triu(2)
        if mask == "numbers":
            masks["attn_mask"] = values(t, 4, 4, 5)
        if mask == "padding":
            masks["key_padding_mask"] = t.tensor([[False] * 5, [False] * 3 + [True] * 2])
        result, weights = made(*inputs, **masks, **call)
        outputs = [result] if weights is None else [result, weights]
        return with_gradients(t, made, outputs, inputs)

    agree(program, tolerance=1e-9)


def test_a_single_sequence_attends(agree):
    def program(t):
        made = filled(t, t.nn.MultiheadAttention(4, 2, dtype=t.float64))
        return [x.detach() for x in made(*(values(t, n, 4) for n in (3, 5, 5)))]

    agree(program, tolerance=1e-9)


LAYER = {
    "post-norm": {},
    "pre-norm": {"norm_first": True},
    "gelu": {"activation": "gelu", "batch_first": True},
    "without bias": {"bias": False},
}


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", LAYER)
def test_stacks_are_pytorchs(agree, name, masked):
    def program(t):
        made = t.nn.Transformer(
            6, 2, 2, 2, dim_feedforward=7, dropout=0.0, dtype=t.float64, **LAYER[name]
        )
        filled(t, made)
        src, tgt = values(t, 5, 2, 6), values(t, 4, 2, 6, seed=2)
        if made.batch_first:
            src, tgt = src.transpose(0, 1).contiguous(), tgt.transpose(0, 1).contiguous()
        inputs = [src.requires_grad_(), tgt.requires_grad_()]
        masks = {}
        if masked:
            masks = {
                "tgt_mask": made.generate_square_subsequent_mask(4, dtype=t.float64),
                "src_key_padding_mask": t.tensor([[False] * 5, [False] * 4 + [True]]),
                "memory_key_padding_mask": t.tensor([[False] * 5, [False] * 4 + [True]]),
            }
        return with_gradients(t, made, [made(*inputs, **masks)], inputs)

    agree(program, tolerance=1e-8)


def test_the_causal_mask_and_its_hint_are_the_same(agree):
    def program(t):
        layer = t.nn.TransformerEncoderLayer(
            4, 2, 5, dropout=0.0, batch_first=True, dtype=t.float64
        )
        made = filled(t, t.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)).eval()
        x = values(t, 2, 3, 4)
        mask = t.nn.Transformer.generate_square_subsequent_mask(3, dtype=t.float64)
        return [
            made(x, mask=mask).detach(),
            made(x, mask=mask, is_causal=True).detach(),
            made(x, mask=mask.isinf()).detach(),
        ]

    agree(program, tolerance=1e-9)


MODULES = {
    "attention": lambda t: t.nn.MultiheadAttention(4, 2, add_bias_kv=True),
    "separate": lambda t: t.nn.MultiheadAttention(4, 2, kdim=3, bias=False),
    "encoder layer": lambda t: t.nn.TransformerEncoderLayer(4, 2, 5),
    "decoder layer": lambda t: t.nn.TransformerDecoderLayer(4, 2, 5, norm_first=True),
    "transformer": lambda t: t.nn.Transformer(4, 2, 1, 1, 5),
}


@pytest.mark.parametrize("name", MODULES)
def test_names_and_shapes_are_pytorchs(agree, name):
    def program(t):
        state = MODULES[name](t).state_dict()
        return {key: list(value.shape) for key, value in state.items()}

    agree(program)


def test_text_is_pytorchs(agree):
    agree(lambda t: repr(t.nn.TransformerEncoderLayer(4, 2, 5)))


WRONG = {
    "heads": lambda t: t.nn.MultiheadAttention(5, 2),
    "size": lambda t: t.nn.MultiheadAttention(0, 2),
    "dims": lambda t: t.nn.MultiheadAttention(4, 2)(*[t.ones(4)] * 3),
    "activation": lambda t: t.nn.TransformerEncoderLayer(4, 2, activation="tanh"),
    "batch": lambda t: t.nn.Transformer(4, 2, 1, 1, 5)(t.ones(3, 2, 4), t.ones(3, 1, 4)),
    "features": lambda t: t.nn.Transformer(4, 2, 1, 1, 5)(t.ones(3, 2, 5), t.ones(3, 2, 4)),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input_raises_what_pytorch_raises(agree, name):
    agree(WRONG[name], message=False)


NESTED = {
    "hidden last": [[0, 0, 0, 1], [0, 0, 1, 1]],
    "hidden first": [[1, 0, 0, 0], [0, 0, 0, 1]],
    "all seen": [[0, 0, 0, 0], [0, 0, 0, 0]],
}
STACKS = {
    "as made": {},
    "gelu": {"activation": "gelu"},
    "normalized first": {"norm_first": True},
    "not batch first": {"batch_first": False},
    "another activation": {"activation": abs},
    "one head": {"nhead": 1},
    "without bias": {"bias": False},
}


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("hidden", NESTED)
@pytest.mark.parametrize("stack", STACKS)
def test_hidden_elements_are_zero_where_pytorch_runs_nested_tensors(agree, stack, hidden, grad):
    def program(t):
        options = {"d_model": 8, "nhead": 2, "dim_feedforward": 4, "batch_first": True}
        layer = t.nn.TransformerEncoderLayer(**{**options, **STACKS[stack]})
        model = filled(t, t.nn.TransformerEncoder(layer, 2, norm=t.nn.LayerNorm(8))).eval()
        size = (2, 4, 8) if layer.self_attn.batch_first else (4, 2, 8)
        with t.set_grad_enabled(grad):
            x = values(t, *size).float()
            return model(x, src_key_padding_mask=t.tensor(NESTED[hidden]).bool()).detach()

    agree(program, tolerance=1e-4)
