"""What distinguishes older versions of operators from the newest, as data.

A node of an older opset is called as the newest operator: attributes become the operands that they
are today, defaults are those of the time, and keywords tell an operator of a meaning that changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

__all__ = ["Change", "changes"]


class Change(NamedTuple):
    """What differs for models whose opset is below a version.

    Attributes:
        before: the version that changed it.
        operands: {attribute: position of the operand that it is today}.
        defaults: attributes that had another default.
        keywords: what the operator's function is told.
        dropped: attributes without a meaning today.
        name: the function, if not that of the operator's name.
        places: new positions of the operands, in order.
    """

    before: int
    operands: Mapping[str, int] = {}
    defaults: Mapping[str, Any] = {}
    keywords: Mapping[str, Any] = {}
    dropped: tuple[str, ...] = ()
    name: str | None = None
    places: tuple[int, ...] | None = None


_OLD_BROADCAST = Change(7, dropped=("broadcast",))
_OF_ROWS = Change(13, defaults={"axis": 1}, keywords={"flat": True})
_AXES = {"axes": 1}
_SEQUENCE = Change(7, dropped=("output_sequence",))

_CHANGES: dict[str, tuple[Change, ...]] = {
    **dict.fromkeys(
        "Add And Div Equal Greater Less Mul Or Pow Sub Xor Gemm".split(), (_OLD_BROADCAST,)
    ),
    **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax"), (_OF_ROWS,)),
    **dict.fromkeys(("Squeeze", "Unsqueeze", "ReduceSum"), (Change(13, operands=_AXES),)),
    **dict.fromkeys(
        "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd "
        "ReduceSumSquare".split(),
        (Change(18, operands=_AXES),),
    ),
    **dict.fromkeys(("RNN", "GRU", "LSTM"), (_SEQUENCE,)),
    "BatchNormalization": (Change(7, dropped=("is_test",)),),
    "Clip": (Change(11, operands={"min": 1, "max": 2}),),
    "Concat": (Change(4, defaults={"axis": 1}),),
    "DFT": (Change(20, operands={"axis": 2}, defaults={"axis": 1}),),
    "Dropout": (Change(12, operands={"ratio": 1}, dropped=("is_test",)),),
    "GroupNormalization": (Change(21, keywords={"of_groups": True}),),
    "GridSample": (Change(20, defaults={"mode": "bilinear"}),),
    "Pad": (
        Change(2, operands={"paddings": 1}),
        Change(11, operands={"pads": 1, "value": 2}),
    ),
    "PRelu": (Change(7, keywords={"of_channels": True}),),
    "Reshape": (Change(5, operands={"shape": 1}),),
    "Resize": (
        Change(
            11,
            defaults={"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
            places=(0, 2),
        ),
    ),
    "RoiAlign": (Change(16, defaults={"coordinate_transformation_mode": "output_half_pixel"}),),
    "Scan": (Change(9, name="ScanOfBatch"),),
    "Selu": (Change(6, defaults={"alpha": 1.673200011253357, "gamma": 1.0506999492645264}),),
    "Slice": (Change(10, operands={"starts": 1, "ends": 2, "axes": 3}),),
    "Split": (Change(2, defaults={"axis": 0}), Change(13, operands={"split": 1})),
    "Tile": (Change(6, name="TileAlong"),),
    "TopK": (Change(10, operands={"k": 1}),),
    "Upsample": (
        Change(7, operands={"height_scale": 1, "width_scale": 2}, name="UpsampleImages"),
        Change(9, operands={"scales": 1}),
    ),
}
_CONSUMED = Change(6, dropped=("consumed_inputs",))


def changes(operator: str, opset: int) -> list[Change]:
    """Return what is to be done to a node of an opset, such that the newest operator takes it."""
    known = (*_CHANGES.get(operator, ()), _CONSUMED)
    return [change for change in known if opset < change.before]
