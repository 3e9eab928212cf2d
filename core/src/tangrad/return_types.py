"""The named tuples of ops with several results: `torch.return_types`."""

from __future__ import annotations

from typing import Any

from tangrad.ops.definition import registry


def __getattr__(name: str) -> Any:
    if not name.startswith("_") and registry.is_known(name):
        op = registry.find(name)
        for member in op.overloads or (op,):
            if member.return_type is not None:
                globals()[name] = member.return_type
                return member.return_type
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    found = (op.return_type for op in registry.load_plain().values() if op.return_type is not None)
    return sorted({kind.__name__ for kind in found if not kind.__name__.startswith("_")})
