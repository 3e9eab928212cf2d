"""The page of fields lists every field that there is."""

from __future__ import annotations

import inspect
from pathlib import Path

from tangrad.ops.definition.definition import Definition
from tangrad.plugin import DeviceDriver

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "which-fields.md").read_text("utf-8")


def missing(names: list[str]) -> list[str]:
    return [name for name in names if f"`{name}`" not in PAGE and f"`{name}(" not in PAGE]


def test_every_field_of_a_definition_is_on_the_page() -> None:
    parameters = inspect.signature(Definition.__init__).parameters
    assert not missing([name for name in parameters if name not in ("self", "schema")])


def test_every_attribute_of_a_driver_is_on_the_page() -> None:
    assert not missing([name for name in vars(DeviceDriver) if not name.startswith("_")])
