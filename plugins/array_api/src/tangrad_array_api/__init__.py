"""The Python array API standard, version 2024.12, as a namespace of arrays over tensors.

The standard and PyTorch differ: a zero-dimensional array takes part in promotion as every other,
`//`, `%` and `expm1` have tables of special cases, slices may run down, and dtypes of different
kinds do not mix. `Array` is therefore a type of its own; `asarray(tensor)` and `array.tensor` lead
across, without a copy and with gradients.

    import tangrad.array_api as xp
    xp.sum(xp.asarray([1, 2, 3]))
"""

from __future__ import annotations

from tangrad_array_api import fft as fft
from tangrad_array_api import linalg as linalg
from tangrad_array_api.array import Array as Array
from tangrad_array_api.creation import arange as arange
from tangrad_array_api.creation import asarray as asarray
from tangrad_array_api.creation import astype as astype
from tangrad_array_api.creation import e as e
from tangrad_array_api.creation import empty as empty
from tangrad_array_api.creation import empty_like as empty_like
from tangrad_array_api.creation import eye as eye
from tangrad_array_api.creation import from_dlpack as from_dlpack
from tangrad_array_api.creation import full as full
from tangrad_array_api.creation import full_like as full_like
from tangrad_array_api.creation import inf as inf
from tangrad_array_api.creation import linspace as linspace
from tangrad_array_api.creation import meshgrid as meshgrid
from tangrad_array_api.creation import nan as nan
from tangrad_array_api.creation import newaxis as newaxis
from tangrad_array_api.creation import ones as ones
from tangrad_array_api.creation import ones_like as ones_like
from tangrad_array_api.creation import pi as pi
from tangrad_array_api.creation import tril as tril
from tangrad_array_api.creation import triu as triu
from tangrad_array_api.creation import zeros as zeros
from tangrad_array_api.creation import zeros_like as zeros_like
from tangrad_array_api.dtypes import bool as bool
from tangrad_array_api.dtypes import can_cast as can_cast
from tangrad_array_api.dtypes import complex64 as complex64
from tangrad_array_api.dtypes import complex128 as complex128
from tangrad_array_api.dtypes import finfo as finfo
from tangrad_array_api.dtypes import float32 as float32
from tangrad_array_api.dtypes import float64 as float64
from tangrad_array_api.dtypes import iinfo as iinfo
from tangrad_array_api.dtypes import int8 as int8
from tangrad_array_api.dtypes import int16 as int16
from tangrad_array_api.dtypes import int32 as int32
from tangrad_array_api.dtypes import int64 as int64
from tangrad_array_api.dtypes import isdtype as isdtype
from tangrad_array_api.dtypes import result_type as result_type
from tangrad_array_api.dtypes import uint8 as uint8
from tangrad_array_api.dtypes import uint16 as uint16
from tangrad_array_api.dtypes import uint32 as uint32
from tangrad_array_api.dtypes import uint64 as uint64
from tangrad_array_api.elementwise import abs as abs
from tangrad_array_api.elementwise import acos as acos
from tangrad_array_api.elementwise import acosh as acosh
from tangrad_array_api.elementwise import add as add
from tangrad_array_api.elementwise import asin as asin
from tangrad_array_api.elementwise import asinh as asinh
from tangrad_array_api.elementwise import atan as atan
from tangrad_array_api.elementwise import atan2 as atan2
from tangrad_array_api.elementwise import atanh as atanh
from tangrad_array_api.elementwise import bitwise_and as bitwise_and
from tangrad_array_api.elementwise import bitwise_invert as bitwise_invert
from tangrad_array_api.elementwise import bitwise_left_shift as bitwise_left_shift
from tangrad_array_api.elementwise import bitwise_or as bitwise_or
from tangrad_array_api.elementwise import bitwise_right_shift as bitwise_right_shift
from tangrad_array_api.elementwise import bitwise_xor as bitwise_xor
from tangrad_array_api.elementwise import ceil as ceil
from tangrad_array_api.elementwise import clip as clip
from tangrad_array_api.elementwise import conj as conj
from tangrad_array_api.elementwise import copysign as copysign
from tangrad_array_api.elementwise import cos as cos
from tangrad_array_api.elementwise import cosh as cosh
from tangrad_array_api.elementwise import divide as divide
from tangrad_array_api.elementwise import equal as equal
from tangrad_array_api.elementwise import exp as exp
from tangrad_array_api.elementwise import expm1 as expm1
from tangrad_array_api.elementwise import floor as floor
from tangrad_array_api.elementwise import floor_divide as floor_divide
from tangrad_array_api.elementwise import greater as greater
from tangrad_array_api.elementwise import greater_equal as greater_equal
from tangrad_array_api.elementwise import hypot as hypot
from tangrad_array_api.elementwise import imag as imag
from tangrad_array_api.elementwise import isfinite as isfinite
from tangrad_array_api.elementwise import isinf as isinf
from tangrad_array_api.elementwise import isnan as isnan
from tangrad_array_api.elementwise import less as less
from tangrad_array_api.elementwise import less_equal as less_equal
from tangrad_array_api.elementwise import log as log
from tangrad_array_api.elementwise import log1p as log1p
from tangrad_array_api.elementwise import log2 as log2
from tangrad_array_api.elementwise import log10 as log10
from tangrad_array_api.elementwise import logaddexp as logaddexp
from tangrad_array_api.elementwise import logical_and as logical_and
from tangrad_array_api.elementwise import logical_not as logical_not
from tangrad_array_api.elementwise import logical_or as logical_or
from tangrad_array_api.elementwise import logical_xor as logical_xor
from tangrad_array_api.elementwise import maximum as maximum
from tangrad_array_api.elementwise import minimum as minimum
from tangrad_array_api.elementwise import multiply as multiply
from tangrad_array_api.elementwise import negative as negative
from tangrad_array_api.elementwise import nextafter as nextafter
from tangrad_array_api.elementwise import not_equal as not_equal
from tangrad_array_api.elementwise import positive as positive
from tangrad_array_api.elementwise import pow as pow
from tangrad_array_api.elementwise import real as real
from tangrad_array_api.elementwise import reciprocal as reciprocal
from tangrad_array_api.elementwise import remainder as remainder
from tangrad_array_api.elementwise import round as round
from tangrad_array_api.elementwise import sign as sign
from tangrad_array_api.elementwise import signbit as signbit
from tangrad_array_api.elementwise import sin as sin
from tangrad_array_api.elementwise import sinh as sinh
from tangrad_array_api.elementwise import sqrt as sqrt
from tangrad_array_api.elementwise import square as square
from tangrad_array_api.elementwise import subtract as subtract
from tangrad_array_api.elementwise import tan as tan
from tangrad_array_api.elementwise import tanh as tanh
from tangrad_array_api.elementwise import trunc as trunc
from tangrad_array_api.information import __array_namespace_info__ as __array_namespace_info__
from tangrad_array_api.linalg import matmul as matmul
from tangrad_array_api.linalg import matrix_transpose as matrix_transpose
from tangrad_array_api.linalg import tensordot as tensordot
from tangrad_array_api.linalg import vecdot as vecdot
from tangrad_array_api.manipulation import broadcast_arrays as broadcast_arrays
from tangrad_array_api.manipulation import broadcast_to as broadcast_to
from tangrad_array_api.manipulation import concat as concat
from tangrad_array_api.manipulation import expand_dims as expand_dims
from tangrad_array_api.manipulation import flip as flip
from tangrad_array_api.manipulation import moveaxis as moveaxis
from tangrad_array_api.manipulation import permute_dims as permute_dims
from tangrad_array_api.manipulation import repeat as repeat
from tangrad_array_api.manipulation import reshape as reshape
from tangrad_array_api.manipulation import roll as roll
from tangrad_array_api.manipulation import squeeze as squeeze
from tangrad_array_api.manipulation import stack as stack
from tangrad_array_api.manipulation import take as take
from tangrad_array_api.manipulation import take_along_axis as take_along_axis
from tangrad_array_api.manipulation import tile as tile
from tangrad_array_api.manipulation import unstack as unstack
from tangrad_array_api.ordering import argmax as argmax
from tangrad_array_api.ordering import argmin as argmin
from tangrad_array_api.ordering import argsort as argsort
from tangrad_array_api.ordering import nonzero as nonzero
from tangrad_array_api.ordering import searchsorted as searchsorted
from tangrad_array_api.ordering import sort as sort
from tangrad_array_api.ordering import unique_all as unique_all
from tangrad_array_api.ordering import unique_counts as unique_counts
from tangrad_array_api.ordering import unique_inverse as unique_inverse
from tangrad_array_api.ordering import unique_values as unique_values
from tangrad_array_api.ordering import where as where
from tangrad_array_api.reductions import all as all
from tangrad_array_api.reductions import any as any
from tangrad_array_api.reductions import count_nonzero as count_nonzero
from tangrad_array_api.reductions import cumulative_prod as cumulative_prod
from tangrad_array_api.reductions import cumulative_sum as cumulative_sum
from tangrad_array_api.reductions import diff as diff
from tangrad_array_api.reductions import max as max
from tangrad_array_api.reductions import mean as mean
from tangrad_array_api.reductions import min as min
from tangrad_array_api.reductions import prod as prod
from tangrad_array_api.reductions import std as std
from tangrad_array_api.reductions import sum as sum
from tangrad_array_api.reductions import var as var

__array_api_version__ = "2024.12"

API = 1

# What is seen under a public name says so: pickles and messages lead there.
for _room in (fft, linalg):
    for _shown in list(vars(_room).values()):
        if getattr(_shown, "__module__", "") == _room.__name__:
            _shown.__module__ = _room.__name__.replace("tangrad_", "tangrad.", 1)
for _shown in list(globals().values()):
    if getattr(_shown, "__module__", "").startswith(__name__):
        _shown.__module__ = "tangrad.array_api"
