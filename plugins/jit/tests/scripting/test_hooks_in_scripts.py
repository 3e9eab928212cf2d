"""Forward hooks of modules: scripted with them, and kept in archives."""

import io

# ruff: noqa: UP006, UP035
from typing import Tuple

import pytest
import torch

import tangrad


def hooked(side):
    """Return a module with hooks, inside and around."""

    class Inner(side.nn.Module):
        def forward(self, text: str) -> str:
            return text + "i"

    class Outer(side.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Inner()

        def forward(self, text: str) -> str:
            return self.inner(text + "o") + self.inner.forward("d")

    def before(self, given: Tuple[str]) -> Tuple[str]:
        return (given[0] + "b",)

    def after(self, given: Tuple[str], result: str) -> str:
        return result + "a"

    def seen(self, given: Tuple[str], result: str):
        assert len(result) > 0

    module = Outer()
    for each in (module, module.inner):
        each.register_forward_pre_hook(before)
        each.register_forward_hook(after)
        each.register_forward_hook(seen)
    return side.jit.script(module)


@pytest.mark.filterwarnings("ignore")
def test_hooks_run_around_calls_of_modules_here_and_in_pytorch():
    wanted = hooked(torch)("x")
    scripted = hooked(tangrad)
    assert scripted("x") == wanted
    assert scripted.forward("x") == "xobiadi"
    file = io.BytesIO()
    tangrad.jit.save(scripted, file)
    for side in (torch, tangrad):
        file.seek(0)
        assert side.jit.load(file)("x") == wanted
    theirs = io.BytesIO()
    torch.jit.save(hooked(torch), theirs)
    theirs.seek(0)
    assert tangrad.jit.load(theirs)("x") == wanted


def test_two_hooks_of_one_name_are_refused():
    class Plain(tangrad.nn.Module):
        def forward(self, text: str) -> str:
            return text

    module = Plain()
    for end in ("a", "b"):

        def hook(self, given: Tuple[str], result: str) -> str:
            return result

        hook.__doc__ = end
        module.register_forward_hook(hook)
    with pytest.raises(RuntimeError, match="at least two different python definitions"):
        tangrad.jit.script(module)
