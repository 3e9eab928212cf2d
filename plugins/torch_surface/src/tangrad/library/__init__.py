"""Ops of one's own, as `torch.library` has them: `custom_op`, `Library`, and what they take.

They are called as `tangrad.ops.<namespace>.<name>`. An op that is to be fused, compiled for every
device or differentiated by its expression is defined by `tangrad.plugin` instead.
"""

from __future__ import annotations

from tangrad.library.check import OpCheckError, opcheck
from tangrad.library.classes import register_class
from tangrad.library.definitions import CustomOpDef, custom_op, triton_op, wrap_triton
from tangrad.library.operator import get_ctx
from tangrad.library.registration import (
    Library,
    _scoped_library,
    define,
    fallthrough_kernel,
    impl,
    impl_abstract,
    register_autocast,
    register_autograd,
    register_fake,
    register_kernel,
    register_torch_dispatch,
    register_vmap,
)
from tangrad.library.schemas import Tag, infer_schema

__all__ = [
    "CustomOpDef",
    "Library",
    "OpCheckError",
    "Tag",
    "_scoped_library",
    "custom_op",
    "define",
    "fallthrough_kernel",
    "get_ctx",
    "impl",
    "impl_abstract",
    "infer_schema",
    "opcheck",
    "register_autocast",
    "register_autograd",
    "register_class",
    "register_fake",
    "register_kernel",
    "register_torch_dispatch",
    "register_vmap",
    "triton_op",
    "wrap_triton",
]
