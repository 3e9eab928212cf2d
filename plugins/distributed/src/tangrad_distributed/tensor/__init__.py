"""How tensors lie on a mesh of ranks; the tensors themselves are not there yet.

`Shard`, `Replicate` and `Partial` say how a tensor is placed; plans for parallel layers are
written with them. `DTensor` and what makes one can be named, and say so when they are used.
"""

from tangrad_distributed.absent import absent
from tangrad_distributed.device_mesh import DeviceMesh, init_device_mesh
from tangrad_distributed.tensor.placement_types import Partial, Placement, Replicate, Shard

__all__ = [
    "DTensor",
    "DeviceMesh",
    "Partial",
    "Placement",
    "Replicate",
    "Shard",
    "distribute_module",
    "distribute_tensor",
    "init_device_mesh",
]

_WHY = "tensors that are spread over ranks are not there yet"
DTensor = absent("tensor", "DTensor", _WHY)
distribute_module = absent("tensor", "distribute_module", _WHY)
distribute_tensor = absent("tensor", "distribute_tensor", _WHY)
