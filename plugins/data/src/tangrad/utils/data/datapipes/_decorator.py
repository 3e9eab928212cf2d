"""The decorators of pipes, by the module that PyTorch has them in."""

from tangrad.utils.data.datapipes import argument_validation as argument_validation
from tangrad.utils.data.datapipes import functional_datapipe as functional_datapipe
from tangrad.utils.data.datapipes import (
    guaranteed_datapipes_determinism as guaranteed_datapipes_determinism,
)
from tangrad.utils.data.datapipes import non_deterministic as non_deterministic
from tangrad.utils.data.datapipes import runtime_validation as runtime_validation
from tangrad.utils.data.datapipes import runtime_validation_disabled as runtime_validation_disabled
