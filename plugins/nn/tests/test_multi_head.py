"""multi_head_attention_forward: results, weights and gradients as torch's."""

import pytest

HEADS, SIZE, BATCH, ROWS, COLUMNS = 2, 4, 3, 2, 5


def tensor(t, shape, start=1):
    """Return numbers between -1 and 1 that repeat nowhere near."""
    size = 1
    for n in shape:
        size *= n
    return t.tensor([((i + start) * 7919 % 4001) / 2000 - 1 for i in range(size)]).reshape(shape)


def hidden(t, *shape):
    """Return a mask that hides some, and nowhere all."""
    mask = tensor(t, shape, 5) > 0.3
    mask[..., 0] = False
    return mask


def packed(t, size=SIZE):
    return {
        "in_proj_weight": tensor(t, (3 * size, size), 2),
        "in_proj_bias": tensor(t, (3 * size,), 3),
    }


def separate(t, key_size=SIZE, value_size=SIZE):
    return {
        "in_proj_weight": None,
        "in_proj_bias": None,
        "use_separate_proj_weight": True,
        "q_proj_weight": tensor(t, (SIZE, SIZE), 4),
        "k_proj_weight": tensor(t, (SIZE, key_size), 5),
        "v_proj_weight": tensor(t, (SIZE, value_size), 6),
    }


def inputs(t, batch=(BATCH,), key_size=SIZE, value_size=SIZE):
    return [
        tensor(t, (ROWS, *batch, SIZE), 7).requires_grad_(),
        tensor(t, (COLUMNS, *batch, key_size), 8).requires_grad_(),
        tensor(t, (COLUMNS, *batch, value_size), 9).requires_grad_(),
    ]


def itself(t, batch=(BATCH,)):
    x = tensor(t, (COLUMNS, *batch, SIZE), 7).requires_grad_()
    return [x, x, x]


CASES = {
    "plain": lambda t: (inputs(t), packed(t)),
    "self": lambda t: (itself(t), packed(t)),
    "unbatched": lambda t: (inputs(t, ()), packed(t)),
    "unbatched self": lambda t: (itself(t, ()), packed(t)),
    "separate": lambda t: (inputs(t, (BATCH,), 3, 2), separate(t, 3, 2)),
    "without biases": lambda t: (inputs(t), {**packed(t), "in_proj_bias": None}),
    "hidden pairs": lambda t: (inputs(t), {**packed(t), "attn_mask": hidden(t, ROWS, COLUMNS)}),
    "numbers for pairs": lambda t: (
        inputs(t),
        {**packed(t), "attn_mask": tensor(t, (BATCH * HEADS, ROWS, COLUMNS))},
    ),
    "hidden keys": lambda t: (
        inputs(t),
        {**packed(t), "key_padding_mask": hidden(t, BATCH, COLUMNS)},
    ),
    "hidden keys, unbatched": lambda t: (
        inputs(t, ()),
        {**packed(t), "key_padding_mask": hidden(t, COLUMNS)},
    ),
    "hidden keys and pairs": lambda t: (
        inputs(t),
        {
            **packed(t),
            "key_padding_mask": hidden(t, BATCH, COLUMNS),
            "attn_mask": hidden(t, ROWS, COLUMNS),
        },
    ),
    "one more key": lambda t: (
        inputs(t),
        {
            **packed(t),
            "bias_k": tensor(t, (1, 1, SIZE), 2),
            "bias_v": tensor(t, (1, 1, SIZE), 3),
            "attn_mask": hidden(t, ROWS, COLUMNS),
            "key_padding_mask": hidden(t, BATCH, COLUMNS),
        },
    ),
    "a key of zeros": lambda t: (
        inputs(t),
        {
            **packed(t),
            "add_zero_attn": True,
            "attn_mask": tensor(t, (ROWS, COLUMNS)),
            "key_padding_mask": tensor(t, (BATCH, COLUMNS)),
        },
    ),
    "static keys": lambda t: (
        inputs(t),
        {
            **packed(t),
            "static_k": tensor(t, (BATCH * HEADS, 6, SIZE // HEADS), 4),
            "static_v": tensor(t, (BATCH * HEADS, 6, SIZE // HEADS), 5),
        },
    ),
    "causal": lambda t: (
        itself(t),
        {
            **packed(t),
            "is_causal": True,
            "attn_mask": t.ones(COLUMNS, COLUMNS).triu(1).bool(),
        },
    ),
    "dropout outside training": lambda t: (
        inputs(t),
        {**packed(t), "dropout_p": 0.5, "training": False},
    ),
}


def attend(t, given, options, **more):
    settings = {
        "embed_dim_to_check": SIZE,
        "num_heads": HEADS,
        "bias_k": None,
        "bias_v": None,
        "add_zero_attn": False,
        "dropout_p": 0.0,
        "out_proj_weight": tensor(t, (SIZE, SIZE), 10),
        "out_proj_bias": tensor(t, (SIZE,), 11),
    }
    return t.nn.functional.multi_head_attention_forward(*given, **{**settings, **options, **more})


@pytest.mark.filterwarnings("ignore:Support for mismatched")
@pytest.mark.parametrize("weights", ["none", "mean", "each"])
@pytest.mark.parametrize("case", CASES)
def test_attention_is_that_of_pytorch(agree, case, weights):
    def program(t):
        given, options = CASES[case](t)
        out, found = attend(
            t,
            given,
            options,
            need_weights=weights != "none",
            average_attn_weights=weights == "mean",
        )
        (out * tensor(t, tuple(out.shape), 3)).sum().backward()
        return [out, found, [x.grad for x in given]]

    agree(program)


WRONG = {
    "dimensions of the query": lambda t: ([t.ones(2)] * 3, packed(t)),
    "dimensions of the key": lambda t: ([t.ones(2, 3, 4), t.ones(2, 4), t.ones(2, 4)], packed(t)),
    "dimensions of a mask": lambda t: (inputs(t), {**packed(t), "attn_mask": t.ones(2)}),
    "dimensions of the keys' mask": lambda t: (
        inputs(t),
        {**packed(t), "key_padding_mask": t.ones(2)},
    ),
    "dtype of a mask": lambda t: (
        inputs(t),
        {**packed(t), "attn_mask": t.ones(ROWS, COLUMNS).long()},
    ),
    "shape of a mask": lambda t: (inputs(t), {**packed(t), "attn_mask": t.ones(ROWS, 2)}),
    "shape of the keys' mask": lambda t: (
        inputs(t),
        {**packed(t), "key_padding_mask": t.ones(BATCH, 2)},
    ),
    "size": lambda t: (inputs(t), {**packed(t), "embed_dim_to_check": 6}),
    "heads": lambda t: (inputs(t), {**packed(t), "num_heads": 3}),
    "key and value": lambda t: (inputs(t, (BATCH,), 3, 2), packed(t)),
    "causal without a mask": lambda t: (inputs(t), {**packed(t), "is_causal": True}),
    "no weight": lambda t: (inputs(t), {"in_proj_weight": None, "in_proj_bias": None}),
    "one of three weights": lambda t: (inputs(t), {**separate(t), "v_proj_weight": None}),
    "one of two biases": lambda t: (inputs(t), {**packed(t), "bias_k": t.ones(1, 1, SIZE)}),
    "heads of static keys": lambda t: (inputs(t), {**packed(t), "static_k": t.ones(5, 5, 2)}),
    "size of static values": lambda t: (inputs(t), {**packed(t), "static_v": t.ones(6, 5, 3)}),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_does_not_fit_raises_as_in_pytorch(agree, case):
    agree(lambda t: attend(t, *WRONG[case](t)), message=False)


def test_dropout_acts_in_training(agree):
    def program(t):
        given, options = CASES["plain"](t)
        return attend(t, given, options, dropout_p=1.0)

    agree(program)


@pytest.mark.parametrize(
    ("name", "mask", "words"),
    [
        ("key_padding_mask", (3,), "expected `key_padding_mask` to be `None` or 2-D but found 1-D"),
        ("attn_mask", (3,), "expected `attn_mask` to be `None`, 2-D or 3-D but found 1-D"),
    ],
)
def test_a_mask_of_another_rank_is_refused_in_words_that_programs_know(name, mask, words):
    import torch

    import tangrad

    for lib in (tangrad, torch):
        attend = lib.nn.MultiheadAttention(4, 2)
        x = lib.ones(3, 2, 4)
        with pytest.raises(AssertionError, match=words):
            attend(x, x, x, **{name: lib.ones(mask, dtype=lib.bool)})


def test_a_bias_of_lower_precision_is_added_where_batches_come_first(agree):
    def program(t):
        attend = t.nn.MultiheadAttention(4, 2, batch_first=True, dtype=t.float64)
        for number, parameter in enumerate(attend.parameters()):
            values = t.arange(parameter.numel(), dtype=t.float64).sin() + number
            parameter.data.copy_(values.reshape(parameter.shape))
        attend.in_proj_bias = t.nn.Parameter(attend.in_proj_bias.detach().to(t.float16))
        x = t.arange(24, dtype=t.float64).cos().reshape(2, 3, 4)
        y = attend(x, x, x)[0]
        y.sum().backward()
        return y.detach(), attend.in_proj_bias.grad

    agree(program)
