"""Names that programs import from here, where PyTorch has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tangrad_quantization.fuser_method_mappings import MatchAllNode

__all__ = ["MatchAllNode", "Pattern", "get_combined_dict"]

#: A type of module, a function, the name of a method, or a tuple of these.
Pattern = Callable[..., Any] | str | type | tuple[Any, ...]


def get_combined_dict(default_dict: dict[Any, Any], additional_dict: dict[Any, Any]) -> Any:
    """Return the entries of both dicts; those of the second win."""
    return {**default_dict, **additional_dict}
