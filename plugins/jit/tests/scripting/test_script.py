"""Scripted programs: what they give, and what they raise, as in PyTorch."""

import io

import pytest
import torch
from script_sides import OURS, WANTED, close, outcome

import tangrad


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("wanted", "ours"),
    list(zip(WANTED.CASES, OURS.CASES, strict=True)),
    ids=[function.__name__ for function, _ in WANTED.CASES],
)
def test_a_scripted_function_does_what_pytorchs_does(wanted, ours):
    theirs, mine = torch.jit.script(wanted[0]), tangrad.jit.script(ours[0])
    for one, other in zip(wanted[1], ours[1], strict=True):
        expected, found = outcome(theirs, one), outcome(mine, other)
        assert close(expected, found), (expected, found)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("wanted", "ours"),
    list(zip(WANTED.MODULES, OURS.MODULES, strict=True)),
    ids=[cls.__name__ for cls, _ in WANTED.MODULES],
)
def test_a_scripted_module_does_what_pytorchs_does(wanted, ours):
    theirs, mine = wanted[0]().eval(), ours[0]().eval()
    state = {key: tangrad.tensor(value.tolist()) for key, value in theirs.state_dict().items()}
    mine.load_state_dict(state)
    theirs, mine = torch.jit.script(theirs), tangrad.jit.script(mine)
    for one, other in zip(wanted[1], ours[1], strict=True):
        expected, found = outcome(theirs, one), outcome(mine, other)
        assert close(expected, found), (expected, found)
    assert [*mine.state_dict()] == [*theirs.state_dict()]


def test_calls_of_scripts_are_counted_and_timed():
    def twice(x):
        return x * 2

    scripted = tangrad.jit.script(twice)
    profile = tangrad.jit._ScriptProfile()
    scripted(tangrad.ones(1))
    assert profile.dump_string() == ""
    profile.enable()
    scripted(tangrad.ones(1))
    scripted(tangrad.ones(1))
    profile.disable()
    found = profile.dump_string()
    scripted(tangrad.ones(1))
    assert profile.dump_string() == found
    assert found.splitlines()[1].split()[0] == "2"
    assert "twice" in found


def test_modules_that_change_places_are_not_frozen():
    class Swapping(tangrad.nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = tangrad.nn.Linear(2, 2), tangrad.nn.Linear(2, 2)

        def forward(self, x):
            return self.one(x) + self.two(x)

    frozen = tangrad.jit.freeze(tangrad.jit.script(Swapping().eval()))
    assert not any(p.requires_grad for p in frozen.parameters())
    with pytest.raises(RuntimeError, match="does not support SetAttr on an interface type"):
        tangrad.jit.freeze(tangrad.jit.script(Swaps().eval()))


@tangrad.jit.interface
class Doing(tangrad.nn.Module):
    def forward(self, x: tangrad.Tensor) -> tangrad.Tensor:
        pass


class Negated(tangrad.nn.Module):
    def forward(self, x: tangrad.Tensor) -> tangrad.Tensor:
        return -x


class Swaps(tangrad.nn.Module):
    does: Doing

    def __init__(self):
        super().__init__()
        self.one, self.two = Negated(), Negated()
        self.does = self.one

    def forward(self, x: tangrad.Tensor) -> tangrad.Tensor:
        self.does = self.two
        return self.does.forward(x)


def test_types_are_texts_which_archives_do_not_hold():
    def told(x, n: int):
        return f"{type(x)} {type(n)}"

    scripted = tangrad.jit.script(told)
    assert scripted(tangrad.ones(1), 2) == "<class 'tangrad.Tensor'> <class 'int'>"
    with pytest.raises(RuntimeError, match="type"):
        scripted.save(io.BytesIO())
