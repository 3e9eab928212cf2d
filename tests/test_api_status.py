"""The page of the state of the names: what it says works still does."""

import re
from pathlib import Path

from tangrad_testing.api_status import table

PAGE = Path(__file__).resolve().parents[1] / "docs" / "api-status.md"


def names_that_do_not_work() -> dict[str, set[str]]:
    """Read the names that the page lists under its headings."""
    listed: dict[str, set[str]] = {}
    for namespace, names in re.findall(r"^- `([\w.]+)`: (.*)$", PAGE.read_text("utf-8"), re.M):
        listed.setdefault(namespace, set()).update(names.split(", "))
    return listed


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
