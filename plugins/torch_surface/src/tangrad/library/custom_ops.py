"""`torch._custom_ops`, of which libraries ask what a fake implementation may."""

from tangrad.library.operator import get_ctx

API = 1

__all__ = ["get_ctx"]
