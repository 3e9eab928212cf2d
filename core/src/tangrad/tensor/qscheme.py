"""The names of the ways in which integers can stand for real numbers, as PyTorch has them.

They are data of configurations and files, so they exist without any package that quantizes.
"""

from __future__ import annotations

from tangrad import _C

SCHEMES = (
    "per_tensor_affine",
    "per_channel_affine",
    "per_tensor_symmetric",
    "per_channel_symmetric",
    "per_channel_affine_float_qparams",
)
_all: dict[str, qscheme] = {}


class qscheme:
    """A way in which integers stand for real numbers, e.g. `tangrad.per_tensor_affine`.

    Each exists once, also after copying and pickling.
    """

    __slots__ = ("name",)
    name: str

    def __new__(cls, name: str) -> qscheme:
        """Return the scheme of that name.

        Raises:
            ValueError: there is none.
        """
        if name not in SCHEMES:
            raise ValueError(f"no qscheme is named '{name}'; there are {', '.join(SCHEMES)}")
        if name not in _all:
            made = _all[name] = super().__new__(cls)
            made.name = name
        return _all[name]

    def __repr__(self) -> str:
        return _C.shown(self.name)

    def __reduce__(self) -> tuple[type, tuple[str]]:
        return type(self), (self.name,)

    def __copy__(self) -> qscheme:
        return self

    def __deepcopy__(self, memo: object) -> qscheme:
        return self


per_tensor_affine = qscheme("per_tensor_affine")
per_channel_affine = qscheme("per_channel_affine")
per_tensor_symmetric = qscheme("per_tensor_symmetric")
per_channel_symmetric = qscheme("per_channel_symmetric")
per_channel_affine_float_qparams = qscheme("per_channel_affine_float_qparams")
