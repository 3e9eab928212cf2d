"""Recurrent layers, cells and packed sequences, compared with torch's from the same weights."""

import pytest

import tangrad
from tangrad.nn.utils import rnn

LAYERS = {
    "LSTM": ("LSTM", {}),
    "LSTM, deep and both ways": ("LSTM", {"num_layers": 2, "bidirectional": True}),
    "LSTM projected": ("LSTM", {"proj_size": 2, "num_layers": 2, "bidirectional": True}),
    "LSTM without bias": ("LSTM", {"bias": False, "batch_first": True}),
    "LSTM projected without bias": ("LSTM", {"bias": False, "proj_size": 3}),
    "GRU": ("GRU", {}),
    "GRU, deep and both ways": ("GRU", {"num_layers": 3, "bidirectional": True}),
    "GRU without bias": ("GRU", {"bias": False}),
    "RNN": ("RNN", {"num_layers": 2}),
    "RNN by relu": ("RNN", {"nonlinearity": "relu", "bidirectional": True, "batch_first": True}),
}


def values(t, *shape, seed=0):
    count = 1
    for size in shape:
        count *= size
    return ((t.arange(count, dtype=t.float64) + seed) * 0.7).sin().reshape(shape)


def layer(t, name):
    kind, options = LAYERS[name]
    made = getattr(t.nn, kind)(3, 4, dtype=t.float64, **options)
    with t.no_grad():
        for place, parameter in enumerate(made.parameters()):
            parameter.copy_(values(t, *parameter.shape, seed=place) * 0.5)
    return made


def flat(item):
    if isinstance(item, tuple):
        return [part for inner in item for part in flat(inner)]
    return [] if item is None else [item]


def with_gradients(t, made, outputs, *inputs):
    """Return the outputs, and the gradients of inputs and parameters."""
    outputs = [o for o in outputs if o.is_floating_point()]
    sum((o * values(t, *o.shape, seed=5)).sum() for o in outputs).backward()
    grads = [p.grad for p in [*inputs, *made.parameters()]]
    return [o.detach() for o in outputs] + grads


@pytest.mark.parametrize("state", ["no state", "with state"])
@pytest.mark.parametrize("batch", ["batch", "single"])
@pytest.mark.parametrize("name", LAYERS)
def test_layers_are_pytorchs(agree, name, batch, state):
    def program(t):
        made = layer(t, name)
        size = (5, 2, 3) if batch == "batch" else (5, 3)
        if batch == "batch" and made.batch_first:
            size = (2, 5, 3)
        x = values(t, *size).requires_grad_()
        directions = made.num_layers * (2 if made.bidirectional else 1)
        shapes = [(directions, 2, made.proj_size or 4), (directions, 2, 4)]
        if batch == "single":
            shapes = [(shape[0], shape[2]) for shape in shapes]
        hx = None
        if state == "with state":
            states = [values(t, *shape, seed=3).requires_grad_() for shape in shapes]
            hx = tuple(states) if name.startswith("LSTM") else states[0]
        return with_gradients(t, made, flat(made(x, hx)), x, *flat(hx))

    agree(program, tolerance=1e-9)


@pytest.mark.parametrize("name", LAYERS)
def test_text_names_and_shapes_are_pytorchs(agree, name):
    def program(t):
        made = layer(t, name)
        return [
            repr(made),
            {key: list(value.shape) for key, value in made.state_dict().items()},
            [[list(w.shape) for w in weights] for weights in made.all_weights],
        ]

    agree(program)


@pytest.mark.parametrize("is_sorted", [True, False])
@pytest.mark.parametrize("name", LAYERS)
def test_packed_sequences_run_as_in_pytorch(agree, name, is_sorted):
    def program(t):
        made = layer(t, name)
        lengths = [5, 4, 2, 2] if is_sorted else [2, 5, 2, 4]
        x = values(t, 5, 4, 3).requires_grad_()
        packed = t.nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=is_sorted)
        output, states = made(packed)
        padded, counts = t.nn.utils.rnn.pad_packed_sequence(output, padding_value=-1.0)
        indices = [i.tolist() for i in output[1:] if i is not None]
        return [indices, counts.tolist(), *with_gradients(t, made, [padded, *flat(states)], x)]

    agree(program, tolerance=1e-9)


@pytest.mark.parametrize("kind", ["RNNCell", "LSTMCell", "GRUCell"])
@pytest.mark.parametrize("options", [{}, {"bias": False}])
@pytest.mark.parametrize("shape", [(2, 3), (3,)])
def test_cells_are_pytorchs(agree, kind, options, shape):
    def program(t):
        made = getattr(t.nn, kind)(3, 4, dtype=t.float64, **options)
        with t.no_grad():
            for place, parameter in enumerate(made.parameters()):
                parameter.copy_(values(t, *parameter.shape, seed=place))
        x = values(t, *shape).requires_grad_()
        first = made(x)
        second = made(x, first)
        return [repr(made), list(made.state_dict()), *with_gradients(t, made, flat(second), x)]

    agree(program, tolerance=1e-9)


def test_the_other_nonlinearity(agree):
    agree(lambda t: repr(t.nn.RNNCell(2, 3, nonlinearity="relu")))
    agree(lambda t: t.nn.RNNCell(2, 3, nonlinearity="gelu")(t.ones(1, 2)), message=False)


def test_dropout_between_layers_is_off_in_evaluation():
    made = tangrad.nn.LSTM(3, 4, 2, dropout=0.9)
    x = tangrad.randn(5, 2, 3)
    assert not made(x)[0].equal(made(x)[0])
    made.eval()
    assert made(x)[0].equal(made(x)[0])


WRONG = {
    "features": lambda t, m: m(t.ones(5, 2, 2)),
    "dims": lambda t, m: m(t.ones(5)),
    "dtype": lambda t, m: m(t.ones(5, 2, 3, dtype=t.float64)),
    "state": lambda t, m: m(t.ones(5, 2, 3), (t.ones(1, 3, 4), t.ones(1, 3, 4))),
    "state of a single": lambda t, m: m(t.ones(5, 3), (t.ones(1, 1, 4), t.ones(1, 1, 4))),
    "dropout": lambda t, m: t.nn.LSTM(3, 4, dropout=2.0),
    "projection": lambda t, m: t.nn.LSTM(3, 4, proj_size=4),
    "projected gru": lambda t, m: t.nn.GRU(3, 4, proj_size=2),
    "nonlinearity": lambda t, m: t.nn.RNN(3, 4, nonlinearity="gelu"),
    "hidden size": lambda t, m: t.nn.LSTM(3, 0),
    "hidden type": lambda t, m: t.nn.LSTM(3, 4.0),
    "mode": lambda t, m: t.nn.RNNBase("HMM", 3, 4),
    "no steps": lambda t, m: m(t.ones(0, 2, 3)),
    "no steps, unbatched": lambda t, m: t.nn.GRU(3, 4)(t.ones(0, 3)),
    "no steps, batch first": lambda t, m: t.nn.RNN(3, 4, batch_first=True)(t.ones(2, 0, 3)),
    "cell input": lambda t, m: t.nn.LSTMCell(3, 4)(t.ones(2, 2)),
    "cell batch": lambda t, m: t.nn.GRUCell(3, 4)(t.ones(2, 3), t.ones(3, 4)),
    "cell dims": lambda t, m: t.nn.GRUCell(3, 4)(t.ones(2, 2, 3)),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input_raises_what_pytorch_raises(agree, name):
    agree(lambda t: WRONG[name](t, t.nn.LSTM(3, 4)), message=False)


# Sequences


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("side", ["left", "right"])
def test_sequences_are_padded(agree, batch_first, side):
    def program(t):
        sequences = [values(t, n, 2, seed=n) for n in (2, 4, 1)]
        padded = t.nn.utils.rnn.pad_sequence(sequences, batch_first, 9.0, padding_side=side)
        lengths = t.tensor([2, 4, 1])
        # A copy: PyTorch's turns its argument round.
        unpadded = t.nn.utils.rnn.unpad_sequence(padded.clone(), lengths, batch_first)
        return [padded, unpadded if side == "right" else None]

    agree(program)


def test_unpacked_sequences_are_contiguous_and_share_no_memory(agree):
    def program(t):
        rnn = t.nn.utils.rnn
        packed = rnn.pack_sequence([values(t, n, 2, seed=n) for n in (2, 4)], enforce_sorted=False)
        padded, lengths = rnn.pad_packed_sequence(packed, batch_first=True)
        parts = rnn.unpad_sequence(padded, lengths, batch_first=True)
        parts[0].zero_()
        return [padded.view(2, -1), padded.stride(), [part.stride() for part in parts]]

    agree(program)


def test_sequences_are_packed_and_unpacked(agree):
    def program(t):
        sequences = [values(t, n, 2, seed=n) for n in (2, 4, 1)]
        packed = t.nn.utils.rnn.pack_sequence(sequences, enforce_sorted=False)
        moved = packed.to(t.float32)
        return [
            packed.data,
            packed.batch_sizes,
            packed.sorted_indices,
            packed.unsorted_indices,
            str(moved.data.dtype).split(".")[1],
            t.nn.utils.rnn.unpack_sequence(packed),
            t.nn.utils.rnn.pad_packed_sequence(packed, True, -1.0, total_length=6),
        ]

    agree(program)


WRONG_PACKING = {
    "unsorted": lambda r, t: r.pack_padded_sequence(t.ones(3, 2, 1), [1, 2]),
    "zero": lambda r, t: r.pack_padded_sequence(t.ones(3, 2, 1), [2, 0]),
    "number": lambda r, t: r.pack_padded_sequence(t.ones(3, 2, 1), [2]),
    "too short": lambda r, t: r.pad_packed_sequence(r.pack_sequence([t.ones(3)]), total_length=2),
    "side": lambda r, t: r.pad_sequence([t.ones(1)], padding_side="top"),
    "no list": lambda r, t: r.pad_sequence(3),
}


@pytest.mark.parametrize("name", WRONG_PACKING)
def test_wrong_packing_raises_what_pytorch_raises(agree, name):
    agree(lambda t: WRONG_PACKING[name](t.nn.utils.rnn, t), message=False)


def test_a_length_beyond_the_input_is_refused():
    with pytest.raises(RuntimeError, match="at most 3"):
        rnn.pack_padded_sequence(tangrad.ones(3, 1, 1), [4])


@pytest.mark.parametrize("kind", ["RNNCell", "LSTMCell", "GRUCell"])
@pytest.mark.parametrize("grad", [False, True])
def test_cells_of_no_hidden_features(agree, kind, grad):
    def program(t):
        made = getattr(t.nn, kind)(3, 0)
        with t.set_grad_enabled(grad):
            found = made(t.ones(2, 3))
        return found[0].shape if kind == "LSTMCell" else found.shape

    agree(program)


@pytest.mark.parametrize(
    "given",
    [
        {"input_size": 2.5},
        {"input_size": "2"},
        {"input_size": 0},
        {"hidden_size": -1},
        {"num_layers": 0},
        {"bias": 1},
        {"bias": None},
        {"batch_first": "x"},
    ],
)
def test_sizes_are_positive_integers_and_switches_truth_values(agree, given):
    agree(lambda t: t.nn.GRU(**{"input_size": 2, "hidden_size": 3, **given}) and None)


@pytest.mark.parametrize("name", LAYERS)
def test_a_run_takes_the_weights_that_a_library_set(agree, name):
    """As libraries of functional modules do, which keep parameters of each step themselves."""

    def program(t):
        made, x = layer(t, name), values(t, 5, 2, 3)
        if made.batch_first:
            x = x.transpose(0, 1)
        own = [(weight * 0.5 + 0.1).detach().requires_grad_() for weight in made._flat_weights]
        made._flat_weights = own
        run = flat(made(x))
        gradients = t.autograd.grad(sum(part.sum() for part in run), own)
        made.weight_hh_l0 = t.nn.Parameter(made.weight_hh_l0 * 2)
        one_assigned = flat(made(x))
        made.double()
        return [*run, *gradients, *one_assigned, *flat(made(x))]

    agree(program, tolerance=1e-9)
