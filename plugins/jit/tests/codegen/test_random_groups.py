"""200 random groups over odd sizes: the bits of the ops called one by one."""

from __future__ import annotations

import os

import pytest
from codegen_groups import compare
from codegen_random import make

from tangrad_jit.codegen import can_compile
from tangrad_jit.codegen.compiled import native_level

pytestmark = pytest.mark.skipif(native_level() is None, reason="tangrad-cpu has no kernels here")

SIZES = (
    (3, 1),
    (70, 7),
    (2, 8),
    (5, 63),
    (9, 65),
    (67, 20),
    (4, 1000),
    (2, 4097),
    (1, 33000),
    (0, 5),
)
PER_TEST = 20
GROUPS = int(os.environ.get("TANGRAD_JIT_TEST_GROUPS", "200"))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("first", range(0, GROUPS, PER_TEST))
def test_random_groups_have_the_bits_of_eager(first: int) -> None:
    refused = 0
    for seed in range(first, first + PER_TEST):
        group = make(seed)
        if can_compile(group) is not None:
            refused += 1
            continue
        for rows, columns in SIZES[seed % 2 :: 2]:
            compare(group, rows, columns, seed=seed)
    assert refused <= 2


@pytest.mark.filterwarnings("ignore")
def test_the_tile_frame_alone_has_the_same_bits() -> None:
    for seed in range(200, 220):
        group = make(seed)
        if can_compile(group) is None:
            compare(group, 9, 65, "tiles", seed)
            compare(group, 70, 7, "tiles", seed)
