"""What the namespace can do: `__array_namespace_info__`."""

from __future__ import annotations

from typing import Any

import tangrad
from tangrad.plugin import availability, device_names, get_driver
from tangrad_array_api import dtypes


class Information:
    """Answers of the namespace about itself."""

    def capabilities(self) -> dict[str, Any]:
        """Return what is there: masks, results whose shape depends on data, dimensions."""
        return {
            "boolean indexing": True,
            "data-dependent shapes": True,
            "max dimensions": 64,
        }

    def default_device(self) -> Any:
        """Return the device on which arrays are made."""
        return tangrad.get_default_device()

    def default_dtypes(self, *, device: Any = None) -> dict[str, Any]:
        """Return the dtypes that Python scalars become."""
        real = tangrad.get_default_dtype()
        return {
            "real floating": real,
            "complex floating": real.to_complex(),
            "integral": tangrad.int64,
            "indexing": tangrad.int64,
        }

    def dtypes(
        self, *, device: Any = None, kind: str | tuple[str, ...] | None = None
    ) -> dict[str, Any]:
        """Return the dtypes of a kind, or all, by name."""
        found = {name: getattr(tangrad, name) for name in dtypes.NAMES}
        if kind is None:
            return found
        return {name: each for name, each in found.items() if dtypes.isdtype(each, kind)}

    def devices(self) -> list[Any]:
        """Return the devices that can be used and hold elements, the default one first."""
        default = self.default_device()
        found = [default]
        for name in device_names():
            if availability(name)[1] != "available":
                continue
            driver = get_driver(name)
            if driver.host:
                found.append(tangrad.device(name))
            elif not driver.meta:
                found += [tangrad.device(name, index) for index in range(driver.device_count())]
        return list(dict.fromkeys(found))


def __array_namespace_info__() -> Information:
    """Return the answers of the namespace about itself."""
    return Information()
