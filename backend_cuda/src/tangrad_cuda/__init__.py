"""Serve device `cuda`: the driver, its kernels, and what is shown as `tangrad.cuda`."""

from __future__ import annotations

API = 1
