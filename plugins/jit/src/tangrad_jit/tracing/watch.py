"""The tracer of a call of `jit.trace`, which knows of the scripts that the call runs."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad_jit.capture.recorder import Recorder, memory_of

__all__ = ["Watch"]


class Watch:
    """The tracer of a call: the recorder, but for what scripts do, and what ops have made.

    Attributes:
        is_paused: whether a script runs.
        is_over: whether one has run, so that the recorder's graph is none of the call's.
    """

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.is_paused = self.is_over = False
        self._made: set[Any] = set()
        self._keep: list[Any] = []

    def has_made(self, tensor: Any) -> bool:
        """Return whether an op of the call has made a tensor."""
        return memory_of(tensor) in self._made

    def enter(self, op: Any, functional: Any, args: tuple[Any, ...], out: Any) -> Any:
        """Tell the recorder of an op."""
        if self.is_paused or self.is_over:
            return None
        return self.recorder.enter(op, functional, args, out)

    def leave(self, node: Any, result: Any) -> None:
        """Note what an op has made."""
        if self.is_paused:
            return
        for made in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(made, tangrad.Tensor) and made.layout == tangrad.strided:
                self._made.add(memory_of(made))
                self._keep.append(made)
        if not self.is_over:
            self.recorder.leave(node, result)

    def allocated(self, made: Any) -> None:
        """Tell the recorder of a tensor without values."""
        if not (self.is_paused or self.is_over):
            self.recorder.allocated(made)

    def constant(self, made: Any) -> None:
        """Tell the recorder of a tensor that was made of numbers."""
        if not self.is_paused:
            self.recorder.constant(made)

    def read(self, tensor: Any) -> Any:
        """Tell the recorder that Python looks at a value."""
        return None if self.is_paused else self.recorder.read(tensor)

    def gradient(self, tensor: Any) -> None:
        """Tell the recorder that Python looks at a gradient."""
        self.recorder.gradient(tensor)

    def number(self, tensor: Any) -> Any:
        """Return the number that a tensor holds, or what stands for it in the recorder's graph."""
        if self.is_paused or self.is_over:
            return tensor.item()
        return self.recorder.number(tensor)

    def require(self, condition: Any, message: str) -> bool:
        """Look whether a condition holds; the recorder has later runs look as well."""
        if self.is_paused or self.is_over:
            return bool(condition.item())
        return self.recorder.require(condition, message)

    def failed(self) -> None:
        """Tell the recorder of a call that has raised."""
        self.recorder.failed()
