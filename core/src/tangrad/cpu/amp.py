"""Mixed precision on the host by its older names; `tangrad.amp` has the newer ones."""

from __future__ import annotations

import sys

from tangrad.amp.of_device import show

show(sys.modules[__name__], "cpu")
