"""The folds that have a name: what devices know to compute in a better way than step by step."""

from __future__ import annotations

from typing import Any, NamedTuple


class NamedFold(NamedTuple):
    """A combination of two states that a reduction or scan calls by its name.

    Attributes:
        combine: the state of two states a and b.
        identity: the state of no element; None where an empty fold is an error.
        wide: whether states of float32 pass through float64, and complex64 through complex128.
        decided_by: the state that no further element changes, or None.
    """

    combine: str
    identity: Any
    wide: bool = False
    decided_by: bool | None = None


FOLDS = {
    "sum": NamedFold("a + b", 0, wide=True),
    "product": NamedFold("a * b", 1, wide=True),
    "maximum": NamedFold("maximum(a, b)", None),
    "minimum": NamedFold("minimum(a, b)", None),
    "any": NamedFold("a | b", False, decided_by=True),
    "all": NamedFold("a & b", True, decided_by=False),
    "xor": NamedFold("a ^ b", 0),
}
_BY_COMBINATION = {named.combine: name for name, named in FOLDS.items()}


def resolve(
    name: str, fold: str | None, combine: str | None, identity: Any
) -> tuple[str | None, str, Any]:
    """Return (name of the fold or None, combination, identity) of a definition.

    A combination that is written out and has a name gets it: it means the same.

    Raises:
        ValueError: the fold is unknown, or both or neither of fold and combination are given.
    """
    if (fold is None) == (combine is None):
        raise ValueError(f"'{name}' needs either fold= or combine=")
    if combine is not None:
        return _BY_COMBINATION.get(combine), combine, identity
    named = FOLDS.get(str(fold))
    if named is None:
        raise ValueError(f"'{name}': no fold is called '{fold}'; there are {', '.join(FOLDS)}")
    return fold, named.combine, named.identity
