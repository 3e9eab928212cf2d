"""Tensors of a transform, and duals, print as PyTorch's do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.func

import tangrad

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*jit.script.* is deprecated:DeprecationWarning"
)  # torch's forward mode


def dual(lib: Any, text: Callable[[Any], Any]) -> None:
    from importlib import import_module

    forward_ad = import_module(f"{lib.__name__}.autograd.forward_ad")
    with forward_ad.dual_level():
        text(forward_ad.make_dual(lib.ones(2, 2), lib.zeros(2, 2)))


TRANSFORMS: dict[str, Callable[[Any, Any], Any]] = {
    "vmap": lambda lib, text: lib.vmap(text, 1)(lib.ones(2, 3)),
    "vmap of vmap": lambda lib, text: lib.vmap(lib.vmap(text), 1)(lib.ones(2, 3)),
    "grad": lambda lib, text: lib.func.grad(text)(lib.tensor(1.5)),
    "grad of grad": lambda lib, text: lib.func.grad(lib.func.grad(text))(lib.tensor(1.5)),
    "vmap in grad": lambda lib, text: lib.func.grad(lambda x: lib.vmap(text)(x).sum())(lib.ones(2)),
    "a dual": dual,
}


@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
def test_wrappers_print_as_those_of_pytorch(transform: Callable[[Any, Any], Any]) -> None:
    texts = []
    for lib in (tangrad, torch):

        def told(x: Any) -> Any:
            texts.append(repr(x))
            return x.sum()

        transform(lib, told)
    assert texts[0] == texts[1]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda f, t: f.jvp(t.sin, t.ones(2), (t.ones(2),)), "Expected primals to be a tuple"),
        (lambda f, t: f.jvp(lambda x: (), (t.ones(2),), (t.ones(2),)), "non-empty output"),
        (lambda f, t: f.jvp(lambda x: None, (t.ones(2),), (t.ones(2),)), "non-empty output"),
        (lambda f, t: f.vjp(lambda x: None, t.ones(2)), "non-empty output"),
        (lambda f, t: f.jacrev(t.sin, argnums=())(t.ones(2)), "must be non-empty"),
    ],
)
def test_what_transforms_refuse_they_refuse_in_words_that_programs_know(
    call: Any, message: str
) -> None:
    for lib in (tangrad, torch):
        with pytest.raises(RuntimeError, match=message):
            call(lib.func, lib)
