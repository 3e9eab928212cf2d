"""How compiled functions behave for a while: as compiled, as they are, or refusing new graphs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["current", "set_stance"]

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT = "default"
NAMES = (
    *(DEFAULT, "eager_then_compile", "aot_eager_then_compile", "force_eager"),
    *("eager_on_recompile", "fail_on_recompile"),
)

current = DEFAULT


def _set(stance: str) -> str:
    global current
    before, current = current, stance
    return before


class set_stance:
    """Set how all compiled functions behave; also a context manager and a decorator.

    Args:
        stance: "default"; "force_eager": functions run as they are; "eager_on_recompile": graphs
            that there are serve, other calls run as they are; "fail_on_recompile": other calls
            raise; "eager_then_compile", "aot_eager_then_compile": a function's first call runs as
            it is, those after it are compiled.
        skip_guard_eval_unsafe: accepted; guards are looked at.
        force_backend: "eager" and "aot_eager": functions run as they are.

    Raises:
        RuntimeError: an unknown stance.
        NotImplementedError: another back end is to be forced: give it to `compile`.
    """

    def __init__(
        self,
        stance: str = DEFAULT,
        *,
        skip_guard_eval_unsafe: bool = False,
        force_backend: Any = None,
    ) -> None:
        if stance not in NAMES:
            raise RuntimeError(f"set_stance: unknown stance {stance!r}, known are {NAMES}")
        if force_backend in ("eager", "aot_eager"):
            stance = "force_eager"
        elif force_backend is not None:
            raise NotImplementedError(
                f"set_stance: force_backend={force_backend!r} is not supported: take eager or "
                f"aot_eager, or give the back end to compile"
            )
        self._stance, self._before = stance, _set(stance)

    def __call__(self, fn: F) -> F:
        """Return a function that runs under the stance; it is not set otherwise."""
        _set(self._before)

        @functools.wraps(fn)
        def run(*args: Any, **kwargs: Any) -> Any:
            before = _set(self._stance)
            try:
                return fn(*args, **kwargs)
            finally:
                _set(before)

        return run  # type: ignore[return-value]

    def __enter__(self) -> None:
        _set(self._stance)

    def __exit__(self, *exc: object) -> None:
        _set(self._before)
