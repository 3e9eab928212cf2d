"""What sends tensors to other processes of this machine: files without a name, pickled parts."""

from __future__ import annotations

from tangrad.multiprocessing.reductions import refuse_history as refuse_history
from tangrad.tensor.pickling import reduce_storage as reduce_storage
from tangrad.tensor.pickling import reduce_tensor as reduce_tensor
from tangrad.tensor.shared import SharedMemory as SharedMemory
from tangrad.tensor.shared import host_bytes as host_bytes
from tangrad.tensor.shared import new_file as new_file
from tangrad.tensor.shared import on_host as on_host
from tangrad.tensor.shared import write_at as write_at
