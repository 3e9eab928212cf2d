"""Back ends by name."""

from tangrad_jit.compiling.backends import list_backends, register_backend
from tangrad_jit.dynamo import lookup_backend

__all__ = ["list_backends", "lookup_backend", "register_backend"]
