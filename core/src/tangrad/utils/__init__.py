"""Things that stand beside tensors and networks: data loading and removable hooks."""

from tangrad.utils import data as data
from tangrad.utils import hooks as hooks
