"""Arguments of a call that runs again in backward."""

from __future__ import annotations

from typing import Any

from tangrad import _C


class SavedArguments(_C.FunctionNode):
    """A call's arguments, its tensors saved as every node saves: with their versions, by hooks.

    So a write after the call is an error when the function is to run again, and a checkpoint
    inside another one keeps nothing.

    Args:
        args: of the call.
    """

    def __init__(self, args: tuple[Any, ...]) -> None:
        self.places = [i for i, a in enumerate(args) if isinstance(a, _C.Tensor)]
        tensors = [args[i] for i in self.places]
        self._take_edges(tensors)
        self._save(tensors, range(len(tensors)))
        hooked = bool(getattr(_C._saved_hooks, "stack", None))
        self.args = [None if hooked and i in self.places else a for i, a in enumerate(args)]

    def again(self) -> list[Any]:
        """Return the arguments for the second run.

        Raises:
            RuntimeError: one was written since.
        """
        args = list(self.args)
        for i, tensor in zip(self.places, self._saved(), strict=True):
            args[i] = tensor if args[i] is None else args[i]
        return args
