"""Conversions of half types that GCC vectorises, instead of the portable ones of the core."""

from __future__ import annotations

_NAMES = {
    "tg_load_float16": ("float", "uint16_t"),
    "tg_store_float16": ("uint16_t", "float"),
    "tg_load_bfloat16": ("float", "uint16_t"),
    "tg_store_bfloat16": ("uint16_t", "float"),
}

# They call those of native/half.h, which a rendered file includes.
HALF_CONVERSIONS = {
    name: f"static inline {result} {name}({operand} a) {{ return tgc{name[2:]}(a); }}"
    for name, (result, operand) in _NAMES.items()
}
