"""Parts of data loading by the names that PyTorch has for them: `torch.utils.data._utils`."""

from tangrad.utils.data import collate as collate
from tangrad.utils.data import worker as worker
