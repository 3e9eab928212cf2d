"""Mixed precision: ops that gain by it compute in a narrower dtype, the delicate ones in float32.

`autocast` chooses a dtype per op while it is active (`amp/policies.py` says which), `GradScaler`,
which comes with the optimizers, keeps small gradients from vanishing in float16.
"""

from __future__ import annotations

from tangrad.amp.autocast_mode import autocast, custom_bwd, custom_fwd, is_autocast_available
from tangrad.discovery.namespaces import attribute_of

__all__ = ["autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]

__getattr__ = attribute_of(__name__)
