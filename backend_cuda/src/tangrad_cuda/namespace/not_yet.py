"""Name what PyTorch's `cuda` has and this package does not have yet; using it says so."""

from __future__ import annotations

from typing import Any


class _NotYet(type):
    """Make classes of which nothing can be used; `told` of each says why."""

    told: str

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise NotImplementedError(f"tangrad.cuda.{cls.__name__}.{name}: {cls.told}")


def _class(name: str, what: str) -> type:
    told = f"{what} not supported yet"

    def refuse(cls: type, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"tangrad.cuda.{name}: {told}")

    members = {"__module__": "tangrad.cuda", "__doc__": f"Refuse to be made: {told}."}
    return _NotYet(name, (), {"__new__": refuse, "told": told, **members})


MemPool = _class("MemPool", "separate pools of memory are")
use_mem_pool = _class("use_mem_pool", "separate pools of memory are")
CUDAPluggableAllocator = _class("CUDAPluggableAllocator", "foreign allocators are")
change_current_allocator = _class("change_current_allocator", "foreign allocators are")
GreenContext = _class("GreenContext", "contexts of a part of a GPU are")

_DTYPES = (
    "BFloat16 Bool Byte Char ComplexDouble ComplexFloat Double Float Half Int Long Short"
).split()
STORAGES = {
    f"{name}Storage": _class(
        f"{name}Storage", "storages of one dtype on GPUs (UntypedStorage has all) are"
    )
    for name in _DTYPES
}
