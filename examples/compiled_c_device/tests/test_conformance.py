"""The conformance kit's tests, for this device: a sample of all ops against PyTorch."""

from tangrad_testing.conformance.test_derivatives import *  # noqa: F403
from tangrad_testing.conformance.test_forward import *  # noqa: F403
from tangrad_testing.conformance.test_levels import *  # noqa: F403
from tangrad_testing.conformance.test_transforms import *  # noqa: F403
