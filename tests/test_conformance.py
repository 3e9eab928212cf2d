"""Every op on every device of this repository; the bodies are those that third parties run."""

from tangrad_testing.conformance.test_derivatives import *  # noqa: F403
from tangrad_testing.conformance.test_forward import *  # noqa: F403
from tangrad_testing.conformance.test_levels import *  # noqa: F403
from tangrad_testing.conformance.test_plugins import *  # noqa: F403
from tangrad_testing.conformance.test_reference import *  # noqa: F403
from tangrad_testing.conformance.test_transforms import *  # noqa: F403
