"""Where the storages of a file go: the devices of their names, or what `map_location` says."""

from __future__ import annotations

from bisect import insort_right
from collections.abc import Callable
from operator import itemgetter
from typing import Any

from tangrad import _C
from tangrad.serialization.errors import SerializationError
from tangrad.tensor.on_storage import bytes_of


def bytes_tensor(nbytes: int, device: Any = "cpu") -> Any:
    """Return a tensor of uninitialised bytes."""
    return _C.empty((nbytes,), _C.dtype_by_name("uint8"), _C.device(device))


def host_view(tensor: Any) -> memoryview:
    """Return the writable memory of a tensor of bytes on the host."""
    if tensor.numel() == 0:
        return memoryview(bytearray())
    return memoryview(_C.host_buffer(tensor)).cast("B")


def _on_device(storage: Any, location: str) -> Any:
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
        return bytes_of(storage).to(device).untyped_storage()
    except (RuntimeError, LookupError, ImportError, ValueError) as error:
        kind = location.partition(":")[0].upper()
        raise SerializationError(
            f"Attempting to deserialize object on a {kind} device ('{location}'), not available "
            f"here: {error}. If you are running on a machine without it, load with "
            "map_location='cpu' to bring the storages to the host"
        ) from error


def _on_host(storage: Any, location: str) -> Any:
    return _on_device(storage, location) if location == "cpu" else None


# Who tells the location of a storage that is saved, and who brings one to a location, by priority:
# the host stands at PyTorch's 10, its devices from 20 on.
_packages: list[tuple[int, Callable[[Any], Any], Callable[[Any, str], Any]]] = [
    (10, lambda storage: "cpu" if storage.device.type == "cpu" else None, _on_host),
    (20, lambda storage: str(storage.device), _on_device),
]


def register_package(
    priority: int, tagger: Callable[[Any], str | None], deserializer: Callable[[Any, str], Any]
) -> None:
    """Have functions say where storages are, and bring them there when they are loaded.

    The functions are asked in the order of their priorities until one returns no None.

    Args:
        priority: the lowest is asked first. The host has 10, its devices 20.
        tagger: (storage) -> the location that is saved with it, or None.
        deserializer: (storage on the host, location) -> storage, or None.
    """
    insort_right(_packages, (priority, tagger, deserializer), key=itemgetter(0))


def location_tag(storage: Any) -> str:
    """Return the location that `save` writes for a storage, such as "cpu"."""
    for _, tagger, _ in _packages:
        location = tagger(storage)
        if location is not None:
            return location
    raise RuntimeError(f"don't know how to determine data location of {type(storage).__name__}")


def default_restore_location(storage: Any, location: str) -> Any:
    """Return a storage of a file, brought to its location.

    Args:
        storage: on the host.
        location: a device's name, or what a registered tagger said.

    Raises:
        SerializationError: there is no such device here.
    """
    for _, _, deserializer in _packages:
        found = deserializer(storage, location)
        if found is not None:
            return found
    raise SerializationError(f"don't know how to restore data location {location!r}")


def placed(map_location: Any) -> Callable[[Any, str], Any]:
    """Return (storage on the host, its location in the file) -> storage where it belongs.

    Args:
        map_location: None, a device, a dictionary of locations, or a function of a storage and
            its location that returns a storage, or None for the location of the file.
    """
    if map_location is None:
        return default_restore_location
    if isinstance(map_location, (str, _C.device)):
        return lambda storage, _: default_restore_location(storage, str(map_location))
    if isinstance(map_location, dict):
        return lambda storage, location: default_restore_location(
            storage, str(map_location.get(location, location))
        )
    if not callable(map_location):
        raise TypeError(
            "map_location must be a device, a string, a dictionary or a function, got "
            f"{type(map_location).__name__}"
        )

    def by_function(storage: Any, location: str) -> Any:
        found = map_location(storage, location)
        return default_restore_location(storage, location) if found is None else found

    return by_function
