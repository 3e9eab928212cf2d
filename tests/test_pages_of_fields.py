"""The pages list every field of what an author declares."""

from __future__ import annotations

import inspect
from pathlib import Path

from tangrad.discovery import hookspecs
from tangrad.ops.definition.definition import ReductionDefinition
from tangrad.ops.definition.pointwise import PointwiseDefinition
from tangrad.plugin import DeviceDriver, Layout
from tangrad.tensor.declared import check

DOCS = Path(__file__).resolve().parents[1] / "docs"


def missing(names: list[str], page: str = "which-fields.md") -> list[str]:
    text = (DOCS / page).read_text("utf-8")
    return [name for name in names if f"`{name}`" not in text and f"`{name}(" not in text]


def test_every_field_of_a_definition_is_on_the_page() -> None:
    fields = PointwiseDefinition.fields | ReductionDefinition.fields
    assert not missing(sorted(fields))


def test_every_attribute_of_a_driver_is_on_the_page() -> None:
    assert not missing([name for name in vars(DeviceDriver) if not name.startswith("_")])


def test_every_argument_of_a_dtype_is_on_its_page() -> None:
    assert not missing(list(inspect.signature(check).parameters), "add-a-dtype.md")


def test_every_attribute_of_a_layout_is_on_its_page() -> None:
    by_the_core = {"tolist", "item", "dense", "clone"}  # no plugin has to define these
    names = [name for name in vars(Layout) if name[0] != "_" and name not in by_the_core]
    assert names
    assert not missing(names, "add-a-layout.md")


def test_every_hook_is_on_its_page() -> None:
    names = [name for name in vars(hookspecs) if name.startswith("tangrad_")]
    assert names
    assert not missing(names, "add-a-feature.md")
