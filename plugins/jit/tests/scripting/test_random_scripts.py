"""Random programs: scripted, saved and loaded, as PyTorch runs them."""

import os

import pytest
import torch
from random_scripts import check

FULL = os.environ.get("TANGRAD_TESTS") == "full"
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("seed", range(2000 if FULL else 40))
def test_a_random_program_does_the_same_everywhere(seed, tmp_path):
    assert not check(seed, tmp_path, torch)
