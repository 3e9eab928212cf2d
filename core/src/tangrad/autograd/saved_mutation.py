"""Writing tensors that backward still needs: they are copied before the write."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tangrad import _C
from tangrad.autograd.grad_mode import no_grad
from tangrad.dispatch.stack import entered

_active = False


class _Handle:
    """What a node holds in place of a tensor that it saved."""


class _AllowMutationOnSavedContext:
    """What was saved inside `allow_mutation_on_saved_tensors`.

    Attributes:
        original: {handle: the saved tensor}, for those that were not written since.
        cloned: {handle: the copy of a tensor from before it was written}.
    """

    def __init__(self) -> None:
        self.original: Any = weakref.WeakKeyDictionary()
        self.cloned: Any = weakref.WeakKeyDictionary()
        # By storage, which its tensors in `original` keep alive, and geometry: what is saved twice
        # is copied once.
        self._handles: dict[int, Any] = {}
        self._being_written: set[int] = set()

    def pack(self, tensor: Any) -> _Handle:
        """Keep a tensor, and return what stands for it."""
        storage = id(tensor.untyped_storage())
        if storage in self._being_written:  # the call that writes it saves it
            handle = _Handle()
            with no_grad():
                self.cloned[handle] = tensor.clone()
            return handle
        saved = self._handles.setdefault(storage, weakref.WeakValueDictionary())
        geometry = (tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.dtype)
        key = (*geometry, tensor.is_conj(), tensor.is_neg())
        handle = saved.get(key)
        if handle is None:
            handle = saved[key] = _Handle()
            self.original[handle] = tensor
        return handle

    def unpack(self, handle: _Handle) -> Any:
        """Return the tensor as it was when it was kept.

        Raises:
            AssertionError: the context has ended.
        """
        found = self.cloned.get(handle, self.original.get(handle))
        if found is None:
            raise AssertionError(
                "Trying to backward outside of the 'allow_mutation_on_saved_tensors' context "
                "in which the graph was originally recorded."
            )
        return found

    @contextmanager
    def writing(self, tensors: list[Any]) -> Iterator[None]:
        """Copy what was kept of the memory that a call is about to write."""
        storages = {id(t.untyped_storage()) for t in tensors}
        with no_grad():
            for storage in storages:
                for handle in list(self._handles.pop(storage, {}).values()):
                    self.cloned[handle] = self.original.pop(handle).clone()
        outer, self._being_written = self._being_written, self._being_written | storages
        try:
            yield
        finally:
            self._being_written = outer

    def clear(self) -> None:
        """Forget everything."""
        self.original.clear()
        self.cloned.clear()
        self._handles.clear()


class allow_mutation_on_saved_tensors:
    """Context manager: tensors that nodes saved may be written, and are copied just before.

    Forward and backward must both run inside. Entering returns an object that holds the copies, for
    looking at.

    Raises:
        RuntimeError: inside another one (when it is entered).
    """

    def __enter__(self) -> _AllowMutationOnSavedContext:
        global _active
        if _active:
            raise RuntimeError("allow_mutation_on_saved_tensors contexts cannot be nested")
        self._context = _AllowMutationOnSavedContext()
        _C.push_saved_tensor_hooks(self._context.pack, self._context.unpack)
        self._watching = entered("write_watchers", self._context.writing)
        self._watching.__enter__()
        _active = True
        return self._context

    def __exit__(self, *exc: Any) -> None:
        global _active
        _active = False
        self._watching.__exit__()
        _C.pop_saved_tensor_hooks()
        self._context.clear()
