"""Stands for `torch.testing._internal.optests`: a test again, with every op that it calls checked.

The checks are those of `torch.library.opcheck` on tangrad, which are what the private module does
to PyTorch's ops.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tangrad
from tangrad.overrides import TorchFunctionMode

CHECKS = (
    "test_schema",
    "test_autograd_registration",
    "test_faketensor",
    "test_aot_dispatch_dynamic",
)


def opcheck(op: Any, args: Any, kwargs: Any = None, **more: Any) -> Any:
    """Check an op on arguments."""
    return tangrad.library.opcheck(op, args, kwargs, **more)


class _Checked(TorchFunctionMode):
    """Checks calls of ops of some namespaces; one that is refused is none to check."""

    def __init__(self, check: str, namespaces: Sequence[str]) -> None:
        super().__init__()
        self.check, self.namespaces = check, namespaces

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if getattr(func, "namespace", None) in self.namespaces:
            opcheck(func, args, kwargs, test_utils=self.check)
        return result


def generate_opcheck_tests(
    testcase: Any, namespaces: Sequence[str], *args: Any, test_utils: Sequence[str] = CHECKS,
    **kwargs: Any,
) -> None:  # fmt: skip
    """Give a class of tests one more of each, for each check: `{check}__{name}`."""
    for name in [name for name in dir(testcase) if name.startswith("test_")]:
        for check in test_utils:
            setattr(testcase, f"{check}__{name}", _checked(testcase, name, check, namespaces))


def _checked(
    testcase: Any, name: str, check: str, namespaces: Sequence[str]
) -> Callable[..., None]:
    method = getattr(testcase, name)

    @functools.wraps(method)
    def test(*args: Any, **kwargs: Any) -> None:
        with _Checked(check, namespaces):
            method(*args, **kwargs)

    return test
