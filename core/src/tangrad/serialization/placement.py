"""Where the storages of a file go: the devices of their names, or what `map_location` says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tangrad import _C
from tangrad.serialization.errors import SerializationError


def bytes_tensor(nbytes: int, device: Any = "cpu") -> Any:
    """Return a tensor of uninitialised bytes."""
    return _C.empty((nbytes,), _C.dtype_by_name("uint8"), _C.device(device))


def host_view(tensor: Any) -> memoryview:
    """Return the writable memory of a tensor of bytes on the host."""
    if tensor.numel() == 0:
        return memoryview(bytearray())
    return memoryview(_C.host_buffer(tensor)).cast("B")


def whole(storage: Any) -> Any:
    """Return the tensor of all bytes of a storage, sharing its memory."""
    empty = _C.empty((0,), _C.dtype_by_name("uint8"), storage.device)
    return _C.set_storage(empty, storage, 0, (storage.nbytes(),), (1,))


def storage_on(storage: Any, location: str) -> Any:
    """Return a storage with the same content on a device.

    Raises:
        SerializationError: there is no such device here.
    """
    if str(storage.device) == location:
        return storage
    try:
        device = _C.device(location)
        if device.type == "meta":
            return bytes_tensor(storage.nbytes(), device).untyped_storage()
        return whole(storage).to(device).untyped_storage()
    except (RuntimeError, LookupError, ImportError, ValueError) as error:
        raise SerializationError(
            f"Attempting to deserialize object on device '{location}', which is not available "
            f"here: {error}. If you are running on a machine without it, load with "
            "map_location='cpu' to bring the storages to the host"
        ) from error


def placed(map_location: Any) -> Callable[[Any, str], Any]:
    """Return (storage on the host, its location in the file) -> storage where it belongs.

    Args:
        map_location: None, a device, a dictionary of locations, or a function of a storage and
            its location that returns a storage, or None for the location of the file.
    """
    if map_location is None:
        return storage_on
    if isinstance(map_location, (str, _C.device)):
        return lambda storage, _: storage_on(storage, str(map_location))
    if isinstance(map_location, dict):
        return lambda storage, location: storage_on(
            storage, str(map_location.get(location, location))
        )
    if not callable(map_location):
        raise TypeError(
            "map_location must be a device, a string, a dictionary or a function, got "
            f"{type(map_location).__name__}"
        )

    def by_function(storage: Any, location: str) -> Any:
        found = map_location(storage, location)
        return storage_on(storage, location) if found is None else found

    return by_function
