"""What computes behind the ops: `torch.backends`.

Libraries that are not part of this installation answer that they are not there.
"""

from __future__ import annotations

# Settings may be written at any time here, which is what this context allows.
from contextlib import nullcontext as __allow_nonbracketed_mutation  # noqa: F401

from tangrad.backends import cpu as cpu
from tangrad.discovery.namespaces import attribute_of

__getattr__ = attribute_of(__name__)
