"""Parts of data loading by the names that PyTorch has for them: `torch.utils.data._utils`."""

import sys

from tangrad.utils.data import collate as collate
from tangrad.utils.data import worker as worker

# For `from torch.utils.data._utils.collate import default_collate`, which asks for a package.
__path__: list[str] = []
for _part in (collate, worker):
    sys.modules[f"{__name__}.{_part.__name__.rpartition('.')[2]}"] = _part
