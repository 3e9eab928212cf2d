"""The conformance kit of tangrad: test bodies that run for every op, dtype and device.

PYTEST_DONT_REWRITE: tangrad's command line reads this package's commands before pytest looks at it.
"""

from __future__ import annotations

API = 1
