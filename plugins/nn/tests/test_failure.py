"""What an exception tells of the model that it was raised in."""

import copy
import pickle
import textwrap
import traceback

import pytest

import tangrad
from tangrad import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear1 = nn.Linear(4, 8)
        self.linear2 = nn.Linear(9, 4)

    def forward(self, x):
        return x + self.linear2(tangrad.relu(self.linear1(x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.ModuleDict({"a-b": nn.Sequential(nn.Identity(), Block())})

    def forward(self, x):
        return self.encoder["a-b"](x)


class Of(nn.Module):
    """What a function makes of its arguments."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def note(call, kind=RuntimeError):
    with pytest.raises(kind) as raised:
        call()
    assert len(raised.value.__notes__) == 1
    return raised.value.__notes__[0]


def test_a_note_names_the_path_the_operands_and_the_fix():
    model = Net()
    shown = note(lambda: model(tangrad.ones(2, 4)))
    expected = """
        in model.encoder['a-b'][1].linear2 (Linear(in_features=9, out_features=4, bias=True))
            F.linear(input, self.weight, self.bias)
                     |      |            (4,) float32
                     |      (4, 9) float32
                     (2, 8) float32
          the last dimension of input is 8 and in_features is 9: make the layer with in_features=8\
, or have what comes before give (..., 9)"""
    assert shown == textwrap.dedent(expected).strip()


def test_type_and_message_stay():
    layer, x = nn.Linear(3, 2), tangrad.ones(1, 4)
    with pytest.raises(RuntimeError) as bare:
        nn.functional.linear(x, layer.weight, layer.bias)
    with pytest.raises(RuntimeError) as noted:
        layer(x)
    assert type(noted.value) is type(bare.value)
    assert noted.value.args == bare.value.args
    assert not hasattr(bare.value, "__notes__")


def test_an_exception_of_the_program_is_the_same_object():
    error = KeyError("mine")

    def fail():
        raise error

    with pytest.raises(KeyError) as raised:
        nn.Sequential(Of(lambda x: fail()))(1)
    assert raised.value is error
    assert error.__notes__[0].startswith("in Sequential[0] (Of())")


def test_an_exception_raised_anew_gets_a_note_of_its_own():
    def anew(x):
        try:
            nn.Linear(2, 2)(x)
        except RuntimeError as error:
            raise ValueError("worse") from error

    outer = Of(anew)
    with pytest.raises(ValueError, match="worse") as raised:
        outer(tangrad.ones(3))
    assert raised.value.__notes__[0].startswith("in outer (Of())")


def test_the_end_of_an_iterator_is_no_failure():
    with pytest.raises(StopIteration) as raised:
        Of(next)(iter(()))
    assert not hasattr(raised.value, "__notes__")


def test_a_note_travels_as_a_text():
    with pytest.raises(RuntimeError) as raised:
        Net()(tangrad.ones(2, 4))
    for again in (pickle.loads(pickle.dumps(raised.value)), copy.deepcopy(raised.value)):
        assert [type(text) for text in again.__notes__] == [str]
        assert again.__notes__ == raised.value.__notes__


def test_a_path_survives_hooks_and_replaced_calls():
    model = Net()
    model.encoder.register_forward_hook(lambda *args: None)
    model.register_forward_pre_hook(lambda *args: None)
    assert "model.encoder['a-b'][1].linear2" in note(lambda: model(tangrad.ones(2, 4)))

    class Wrapped(Net):
        def __call__(self, *args):
            return super().__call__(*args)

    assert "Wrapped.encoder['a-b'][1].linear2" in note(lambda: Wrapped()(tangrad.ones(2, 4)))


def test_a_module_that_is_not_registered_is_told_by_its_class():
    hidden = [nn.Linear(2, 2)]
    outer = Of(lambda x: hidden[0](x))
    assert note(lambda: outer(tangrad.ones(3))).startswith("in outer > Linear (")


def test_code_without_source_still_has_a_path():
    names = {"nn": nn, "tangrad": tangrad}
    program = "class M(nn.Module):\n def forward(self, x): return x @ tangrad.ones(5)\nm = M()"
    exec(compile(program, "<nowhere>", "exec"), names)
    assert note(lambda: names["m"](tangrad.ones(3))) == "in M (M())"


def test_a_long_recursion_and_a_broken_program_end_as_they_did():
    class Hostile:
        def __getattr__(self, name):
            raise RuntimeError("not even this")

    def deep(x):
        return recursive(x)

    recursive = Of(deep)
    with pytest.raises(RecursionError):
        recursive(1)
    hostile = Hostile()
    shown = note(lambda: Of(lambda x: x + hostile.shape)(tangrad.ones(2)))
    assert shown.startswith("in Of (Of())")


one, odd = tangrad.ones, nn.Conv2d(3, 8, 3)
FIXES = {
    "flatten": (nn.Linear(12, 3), [one(5, 3, 4)], "input.flatten(1)"),
    "integers": (nn.Linear(12, 3), [one(5, 12).long()], "input.to(tangrad.float32)"),
    "doubles": (nn.Linear(12, 3), [one(5, 12).double()], "model.to(tangrad.float64)"),
    "channels last": (odd, [one(2, 9, 9, 3)], "input.movedim(-1, -3)"),
    "channels": (odd, [one(2, 4, 9, 9)], "in_channels=4"),
    "dimensions": (odd, [one(9, 9)], "takes 4 (batch, channels, 2 of space)"),
    "index": (nn.Embedding(10, 3), [tangrad.tensor([1, 11])], "num_embeddings=12"),
    "no index": (nn.Embedding(10, 3), [one(2)], "input.long()"),
    "features": (nn.BatchNorm1d(4), [one(3, 5)], "num_features=5"),
    "normalized": (nn.LayerNorm(4), [one(3, 5)], "make the layer with (5,)"),
    "sequence": (nn.LSTM(4, 5), [one(3, 5, 2)], "input_size=2"),
    "classes": (nn.CrossEntropyLoss(), [one(2, 3), tangrad.tensor([0, 3])], "4 outputs"),
    "samples": (nn.CrossEntropyLoss(), [one(2, 3), tangrad.tensor([0])], "2 samples"),
    "product": (Of(lambda a, b: a @ b), [one(2, 5), one(7, 5)], "a @ b.mT"),
    "broadcast": (Of(lambda a, b: a + b), [one(2, 5), one(2, 4)], "dimension 1 is 5 in a and 4"),
    "sizes": (Of(lambda a: a.view(3, -1)), [one(2, 5)], "10 elements"),
    "join": (Of(lambda a, b: tangrad.cat([a, b])), [one(2, 5), one(2)], "as many dimensions"),
    "in place": (Of(lambda a, b: a.add_(b)), [one(2, 5), one(2, 4)], "(2, 4) float32"),
}


@pytest.mark.parametrize("name", FIXES)
def test_the_fix_follows_from_the_operands(name):
    module, args, expected = FIXES[name]
    assert expected in note(lambda: module(*args), (RuntimeError, IndexError, ValueError))


def test_a_rule_says_nothing_where_nothing_is_wrong():
    from tangrad.nn.modules.likely_fix import _RULES

    good = [nn.Linear(4, 2), nn.Conv1d(4, 2, 1), nn.Embedding(4, 2), nn.BatchNorm1d(4)]
    good += [nn.LayerNorm(4), nn.GRU(4, 2)]
    for module in good:
        x = tangrad.ones(2, 4, 4)
        x = x.long() if isinstance(module, nn.Embedding) else x
        module(x)
        (rule,) = [name for name in _RULES if hasattr(module, name)]
        assert _RULES[rule](module, "x", x, getattr(module, rule)) == ""


def test_the_note_is_part_of_a_printed_traceback():
    with pytest.raises(RuntimeError) as raised:
        Net()(tangrad.ones(2, 4))
    assert "linear2" in "".join(traceback.format_exception(raised.value)).splitlines()[-6]
