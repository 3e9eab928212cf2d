"""Parts of data loading by the names that PyTorch has for them: `torch.utils.data._utils`."""

import sys

from tangrad.utils.data import collate as collate
from tangrad.utils.data import pinning as pin_memory
from tangrad.utils.data import worker as worker

# For `from torch.utils.data._utils.collate import default_collate`, which asks for a package.
__path__: list[str] = []
for _name, _part in (("collate", collate), ("pin_memory", pin_memory), ("worker", worker)):
    sys.modules[f"{__name__}.{_name}"] = _part
