"""The page of the state of the names: what it says works still does."""

import re
from pathlib import Path

import pytest

from tangrad_testing.api_status import APART, family, page, table

PAGE = Path(__file__).resolve().parents[1] / "docs" / "api-status.md"


def names_that_do_not_work() -> dict[str, set[str]]:
    """Read the names that the page lists under its headings."""
    listed: dict[str, set[str]] = {}
    for namespace, names in re.findall(r"^- `([\w.]+)`: (.*)$", PAGE.read_text("utf-8"), re.M):
        listed.setdefault(namespace, set()).update(names.split(", "))
    return listed


@pytest.mark.slow
def test_what_the_page_does_not_list_behaves_as_in_pytorch() -> None:
    """Run `python -m tangrad_testing.api_status docs/api-status.md` after mending what fails."""
    listed = names_that_do_not_work()
    worse = {
        f"{namespace}.{name}": status
        for namespace, names in table().items()
        for name, status in names.items()
        if status != "same" and name not in listed.get(namespace, set())
    }
    assert not worse


def test_what_is_left_to_other_packages_stands_apart() -> None:
    found = {"torch": {"abs": "same", "quantize_per_tensor": "missing", "seed": "untested"}}
    text = page(found)
    assert "Of all names, 1 of 3 behave the same (33.3 %)." in text
    assert "others, 1 of 2 behave the same (50.0 %)." in text
    assert "## Of other packages: Quantized tensors\n- `torch`: quantize_per_tensor\n" in text
    assert family("quantize_per_tensor", "same") == "same"


def test_what_stands_apart_are_names_of_pytorch() -> None:
    known = {name for names in names_that_do_not_work().values() for name in names}
    assert {name for names in APART.values() for name in names.split()} <= known
