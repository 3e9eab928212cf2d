"""How modules convert their parameters: `torch.__future__`."""

from __future__ import annotations

__all__ = [
    "get_overwrite_module_params_on_conversion",
    "set_overwrite_module_params_on_conversion",
]

_overwrite = False


def set_overwrite_module_params_on_conversion(value: bool) -> None:
    """Say whether `Module.to` and its kin put new parameters in place of the old ones.

    Args:
        value: True for new parameters; False, the default, to give the parameters that there are
            new memory, so that optimizers go on holding them.
    """
    global _overwrite
    _overwrite = value


def get_overwrite_module_params_on_conversion() -> bool:
    """Return whether conversions put new parameters in place of the old ones."""
    return _overwrite
