"""Average given parameters, by PyTorch's path."""

from tangrad_distributed.training.local_sgd import average_parameters as average_parameters
from tangrad_distributed.training.local_sgd import (
    average_parameters_or_parameter_groups as average_parameters_or_parameter_groups,
)
from tangrad_distributed.training.local_sgd import get_params_to_average as get_params_to_average
