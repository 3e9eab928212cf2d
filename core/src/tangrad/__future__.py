"""How modules convert their parameters: `torch.__future__`."""

from __future__ import annotations

__all__ = [
    "get_overwrite_module_params_on_conversion",
    "get_swap_module_params_on_conversion",
    "set_overwrite_module_params_on_conversion",
    "set_swap_module_params_on_conversion",
]

_overwrite = False
_swap = False


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


def set_swap_module_params_on_conversion(value: bool) -> None:
    """Say whether `Module.to` and `load_state_dict` exchange parameters by `utils.swap_tensors`.

    Args:
        value: True to exchange: the parameter objects stay and become what the conversion, or
            `Tensor.module_load`, made, whatever its class or device. It goes before what
            `set_overwrite_module_params_on_conversion` was told.
    """
    global _swap
    _swap = value


def get_swap_module_params_on_conversion() -> bool:
    """Return whether conversions and `load_state_dict` exchange parameters in place."""
    return _swap
