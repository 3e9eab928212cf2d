"""What scripts hold beside tensors and plain values: objects of the classes of `torch.classes`."""

from typing import Any

import tangrad


class ScriptObject:
    """An object of a class that a package brings for scripts: `torch.ScriptObject`.

    Its class says by annotations what its methods take and return, so that scripts can call them.
    `__getstate__` and `__setstate__` say how archives hold it.
    """

    def __reduce__(self) -> Any:
        # Its class is found by the namespace, not where a module of its name would be.
        return _restored, (type(self).__module__, type(self).__name__, self.__getstate__())


def _restored(module: str, name: str, state: Any) -> Any:
    """Return an object from its pickle."""
    cls = getattr(getattr(tangrad.classes, module.rpartition(".")[2]), name)
    made = cls.__new__(cls)
    made.__setstate__(state)
    return made
