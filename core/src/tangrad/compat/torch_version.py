"""A version that compares by its numbers: `torch.torch_version`."""

TYPE_CHECKING = False  # what typing.TYPE_CHECKING is: this is loaded with the core
if TYPE_CHECKING:
    from typing import Any

__name__ = "tangrad.torch_version"  # where PyTorch has it, which pickles say

__all__ = ["TorchVersion"]

_FORM = (
    r"v?(?P<release>\d+(?:\.\d+)*)(?:[-_.]?(?P<pre>a|b|c|rc|alpha|beta|pre|preview)[-_.]?(?P<n>\d*))?"
    r"(?:[-_.]?post[-_.]?(?P<post>\d*))?(?:[-_.]?dev[-_.]?(?P<dev>\d*))?"
    r"(?:\+(?P<local>[a-z0-9]+(?:[-_.][a-z0-9]+)*))?"
)
_STAGES = {"a": 0, "alpha": 0, "b": 1, "beta": 1, "c": 2, "rc": 2, "pre": 2, "preview": 2}


def _order(version: "Any") -> "tuple[Any, ...] | None":
    """Return what a version is compared by (PEP 440), or None if it is none.

    Args:
        version: a text, numbers, or an object of another library whose text is a version.
    """
    import re

    if isinstance(version, (tuple, list)):
        version = ".".join(map(str, version))
    found = re.fullmatch(_FORM, str(version).strip().lower())
    if found is None:
        return None
    release = [int(part) for part in found["release"].split(".")]
    while release and not release[-1]:
        release.pop()
    stage = 3 if found["pre"] is None else _STAGES[found["pre"]]
    if stage == 3 and found["post"] is None and found["dev"] is not None:
        stage = -1  # before all that is not under development
    post = -1 if found["post"] is None else int(found["post"] or 0)
    dev = float("inf") if found["dev"] is None else int(found["dev"] or 0)
    local = re.split("[-_.]", found["local"]) if found["local"] else []
    parts = [(1, int(part), "") if part.isdigit() else (0, 0, part) for part in local]
    return release, stage, int(found["n"] or 0), post, dev, parts


class TorchVersion(str):
    """A text that compares as a version with texts, tuples of numbers and versions.

    `TorchVersion("2.13.0") > "2.2"` and `TorchVersion("2.13.0") >= (2, 2)` hold. What is no version
    compares as a text.
    """

    __slots__ = ()
    __hash__ = str.__hash__

    def _compared(self, other: "Any", method: str) -> "Any":
        own, others = _order(str(self)), _order(other)
        if own is None or others is None:
            return getattr(str, method)(self, other)
        return getattr(own, method)(others)

    def __eq__(self, other: object) -> bool:
        return self._compared(other, "__eq__")

    def __ne__(self, other: object) -> bool:
        return self._compared(other, "__ne__")

    def __lt__(self, other: "Any") -> bool:
        return self._compared(other, "__lt__")

    def __le__(self, other: "Any") -> bool:
        return self._compared(other, "__le__")

    def __gt__(self, other: "Any") -> bool:
        return self._compared(other, "__gt__")

    def __ge__(self, other: "Any") -> bool:
        return self._compared(other, "__ge__")
