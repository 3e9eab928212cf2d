"""How tensors are sent through queues and pipes: their memory is shared, not copied."""

from __future__ import annotations

from multiprocessing.reduction import DupFd, ForkingPickler
from typing import Any

from tangrad import _C
from tangrad.tensor.pickling import reduce_storage, reduce_tensor
from tangrad.tensor.shared import on_file, on_host, share

__all__ = ["refuse_history"]


def refuse_history(x: Any) -> None:
    """Raise if a tensor cannot cross to another process: its history would be lost.

    Raises:
        RuntimeError: it requires a gradient and is no leaf.
    """
    if x.requires_grad and not x.is_leaf:
        raise RuntimeError(
            "Cowardly refusing to serialize non-leaf tensor which requires_grad, since autograd "
            "does not support crossing process boundaries.  If you just want to transfer the "
            "data, call detach() on the tensor before serializing (e.g., putting it on the queue)."
        )


def _reduce_tensor(x: Any) -> tuple[Any, ...]:
    refuse_history(x)
    return reduce_tensor(x)


def _reduce_storage(storage: Any) -> tuple[Any, ...]:
    # Of a device without host memory, the bytes are sent; of nothing, there is nothing to share.
    file = share(storage) if on_host(storage) else None
    if file is None:
        return reduce_storage(storage)
    return _rebuild_storage, (DupFd(file), storage.nbytes(), str(storage.device))


def _rebuild_storage(file: Any, nbytes: int, device: str) -> Any:
    return on_file(file.detach(), nbytes, device)


for _kind in (_C.Tensor, _C.Parameter):
    ForkingPickler.register(_kind, _reduce_tensor)
ForkingPickler.register(_C.UntypedStorage, _reduce_storage)
