"""Scripted programs: what they give, and what they raise, as in PyTorch."""

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
