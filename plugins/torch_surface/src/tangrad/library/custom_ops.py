"""`torch._custom_ops`, of which libraries ask what a fake implementation may."""

from tangrad.compat.commands import API as API
from tangrad.library.operator import get_ctx

__all__ = ["get_ctx"]
