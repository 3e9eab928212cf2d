"""Call of the real cuDNN what needs no GPU: python backend_cuda/tests/real_cudnn.py.

It has to be installed (`pip install nvidia-cudnn-cu13`). Its functions are all looked up, and the
descriptions that `tangrad_cuda.cudnn` makes are read back.
"""

from __future__ import annotations

import ctypes

from tangrad_cuda import cudnn
from tangrad_cuda.cudnn_library import TYPES, library

WINDOWS = (
    # sizes of the input and the weight; padding, stride, dilation; groups; sizes of the result
    ((2, 4, 5, 6), (6, 2, 3, 2), ((1, 2), (2, 1), (1, 3)), 2, (2, 6, 3, 7)),
    ((1, 3, 1, 9), (4, 3, 1, 3), ((0, 1), (1, 2), (1, 1)), 1, (1, 4, 1, 5)),
    ((1, 2, 3, 4, 3), (2, 2, 2, 3, 2), ((0,) * 3, (1,) * 3, (1,) * 3), 1, (1, 2, 2, 2, 2)),
)


def told_sizes(window: int, x: int, w: int, rank: int) -> tuple[int, ...]:
    """Return which sizes of a result the library works out."""
    found = (ctypes.c_int * rank)()
    ask = library().cudnnGetConvolutionNdForwardOutputDim
    ask.argtypes = (*(ctypes.c_void_p,) * 3, ctypes.c_int, ctypes.c_void_p)
    assert ask(window, x, w, rank, found) == 0
    return tuple(found)


def main() -> None:
    """Describe some convolutions, and compare what the library makes of them."""
    print("cuDNN", library().cudnnGetVersion())
    for name, dtype in TYPES.items():
        for x, w, placed, groups, expected in WINDOWS:
            described = [
                cudnn.described(n, dtype.stored, s) for n, s in zip("xw", (x, w), strict=True)
            ]
            window = cudnn.described_window(placed, groups, dtype, math=0)
            assert told_sizes(window, *described, len(x)) == expected, (name, x, w)
    print("takes all descriptions")


if __name__ == "__main__":
    main()
