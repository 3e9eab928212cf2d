"""Averages of parameters now and then, by PyTorch's paths."""

from tangrad_distributed.algorithms.model_averaging import averagers as averagers
from tangrad_distributed.algorithms.model_averaging import (
    hierarchical_model_averager as hierarchical_model_averager,
)
from tangrad_distributed.algorithms.model_averaging import utils as utils
