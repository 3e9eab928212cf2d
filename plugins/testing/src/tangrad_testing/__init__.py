"""The conformance kit of tangrad: test bodies that run for every op, dtype and device."""

from __future__ import annotations

API = 1
