"""A package describes itself once; what others say of it is written from that."""

from __future__ import annotations

import configparser
import importlib
import tomllib
from pathlib import Path

import pytest

from ci.packages import read_packages
from tangrad.discovery import neutral
from tangrad.ops.definition import registry
from tools import package_tables
from tools.package_tables import BEGIN, END, Described, read_package

ROOT = Path(__file__).resolve().parents[1]
PROJECT = """
[build-system]
requires = ["setuptools>=77", "tangrad-core~=0.2.0", "tangrad-nn~=0.2.0"]

[project]
name = "tangrad-some-thing"
version = "0.2.0"
description = "Something"
dependencies = ["tangrad-core~=0.2.0", "numpy>=1.26"]

[project.optional-dependencies]
more = ["rich"]
"""


def package(folder: Path, table: str = "") -> Described:
    """Write a package with a table of its own and read it."""
    place = folder / "plugins" / "some_thing"
    for module in ("src/tangrad", "src/tangrad_some_thing", "tests"):
        (place / module).mkdir(parents=True, exist_ok=True)
    (place / "src" / "tangrad_some_thing" / "__init__.py").touch()
    (place / "src" / "tangrad_some_thing" / "_fast.pyx").touch()
    (place / "pyproject.toml").write_text(f"{PROJECT}\n[tool.tangrad.package]\n{table}")
    return read_package(place, folder)


def test_what_is_written_of_packages_is_what_they_say() -> None:
    outdated = [str(path.relative_to(ROOT)) for path in package_tables.stale()]
    assert not outdated, "python tools/package_tables.py writes them anew"


def test_every_package_is_read() -> None:
    assert {p.name for p in package_tables.read_packages()} == set(read_packages()) - {"tangrad"}


def test_a_package_that_says_nothing_is_an_extra_of_its_own_and_among_all(tmp_path: Path) -> None:
    document = tomllib.loads("\n".join(package_tables.extras([package(tmp_path)])))
    pinned = ["tangrad-some-thing~=0.2.0"]
    assert document == {"some-thing": pinned, "standard": [], "all": pinned}


@pytest.mark.parametrize(
    ("kind", "extras", "required"),
    [
        ("tangrad", {"standard": [], "all": []}, ["tangrad-some-thing~=0.2.0"]),
        ("nothing", {"standard": [], "all": []}, []),
        (
            "standard",
            {key: ["tangrad-some-thing~=0.2.0"] for key in ["some-thing", "standard", "all"]},
            [],
        ),
    ],
)
def test_a_package_says_which_sets_have_it(
    tmp_path: Path, kind: str, extras: dict[str, list[str]], required: list[str]
) -> None:
    described = [package(tmp_path, f'installed-with = "{kind}"')]
    assert tomllib.loads("\n".join(package_tables.extras(described))) == extras
    told = tomllib.loads("\n".join(package_tables.dependencies(described)))
    assert told == {"dependencies": required}


def test_an_extra_may_ask_for_extras_of_its_package(tmp_path: Path) -> None:
    described = package(tmp_path, 'extra-options = ["more"]')
    document = tomllib.loads("\n".join(package_tables.extras([described])))
    assert document["some-thing"] == ["tangrad-some-thing[more]~=0.2.0"]
    assert document["all"] == ["tangrad-some-thing~=0.2.0"]


def test_tools_are_told_where_a_package_stands(tmp_path: Path) -> None:
    described = [package(tmp_path, 'test-paths = ["tests"]\ntest-note = "slow"')]
    typed = tomllib.loads("\n".join(package_tables.typed(described)))["files"]
    assert ".typed/tangrad_some_thing" in typed
    compiled = tomllib.loads("\n".join(package_tables.untyped(described)))
    assert compiled == {"module": ["tangrad_some_thing._fast"]}
    paths = tomllib.loads("\n".join(package_tables.test_paths(described)))["pythonpath"]
    assert paths[-1] == "plugins/some_thing/tests"
    (factor,) = package_tables.factors(described)
    assert factor.strip() == "some_thing: run the tests of tangrad-some-thing; slow"
    assert package_tables.linted(described)[0].endswith(" plugins/some_thing/src")
    unchecked = [package(tmp_path, "type-checked = false")]
    typed = tomllib.loads("\n".join(package_tables.typed(unchecked)))["files"]
    assert ".typed/tangrad_some_thing" not in typed


def test_the_tables_say_what_it_is_and_needs(tmp_path: Path) -> None:
    described = [package(tmp_path, 'about = "a thing ([more](more.md))"')]
    row = package_tables.architecture(described)[-1]
    assert "| a thing ([more](more.md)) |" in row
    needed = "`tangrad-core`, NumPy; to build also `tangrad-nn`; extras: more |"
    assert row.endswith(needed)
    row = package_tables.listed(described)[-1]
    assert row.endswith("| Something | `tangrad[some-thing]` |")


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ('extras = "x"', "plugins/some_thing: .* knows no extras"),
        ('installed-with = "most"', "tangrad, standard, all or nothing"),
    ],
)
def test_a_table_that_means_nothing_is_refused(tmp_path: Path, table: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        package(tmp_path, table)


def test_only_what_is_between_marks_is_written() -> None:
    mark, tables = BEGIN.format("a"), {"a": lambda packages: ["new"]}
    text = f"above\n# {mark}\nold\nolder\n# {END}\nbelow\n"
    made = package_tables.written(text, "file", tables, [])
    assert made == f"above\n# {mark}\nnew\n# {END}\nbelow\n"
    with pytest.raises(ValueError, match="file has no lines between marks for a"):
        package_tables.written("above\n", "file", tables, [])


def test_the_marks_are_no_part_of_what_tox_reads() -> None:
    tox = configparser.RawConfigParser()
    tox.read(ROOT / "tox.ini", "utf-8")
    assert "#" not in tox["testenv"]["description"] + tox["testenv:lint"]["commands"]


def is_function(name: str) -> bool:
    try:
        return registry.function(name) is not None
    except AttributeError:
        return False


@pytest.mark.parametrize("name", ["data", "distributions", "nn", "optim", "torch_surface"])
def test_the_core_knows_by_itself_what_the_packages_of_tangrad_show(name: str) -> None:
    """Where one is not installed, the core says which: `tangrad.dropout` needs torch_surface."""
    text = (ROOT / "plugins" / name / "pyproject.toml").read_text("utf-8")
    groups = tomllib.loads(text)["project"]["entry-points"]
    shown = set(groups["tangrad.names"]) | set(groups.get("tangrad.namespaces", {}))
    for index in groups.get("tangrad.ops", {}).values():
        module = importlib.import_module(index.partition(":")[0])
        shown |= {op for op in module.INDEX if is_function(op)}
    package = name.replace("_", "-")
    known = {
        key
        for key, row in neutral.rows().items()
        if row.get("package") == package and not key.startswith("command.")
    }
    assert known == shown


def test_the_standard_set_has_what_programs_for_pytorch_import() -> None:
    document = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    standard = document["project"]["optional-dependencies"]["standard"]
    names = {requirement.partition("~")[0] for requirement in standard}
    assert {"tangrad-cpu", "tangrad-jit", "tangrad-quantization", "tangrad-fx"} <= names


@pytest.mark.parametrize(
    "path", sorted(ROOT.glob("plugins/*/pyproject.toml")), ids=lambda path: path.parent.name
)
def test_a_package_that_lists_its_modules_lists_them_all(path: Path) -> None:
    """A module that is not listed is missing in the wheel alone, where no test of sources looks."""
    listed = tomllib.loads(path.read_text("utf-8"))["tool"]["setuptools"]
    if "py-modules" not in listed or "find" in listed["packages"]:
        pytest.skip("setuptools finds the packages by itself")
    source = path.parent / "src"
    modules = {".".join(p.relative_to(source).with_suffix("").parts) for p in source.rglob("*.py")}
    packages = {name.removesuffix(".__init__") for name in modules if name.endswith(".__init__")}
    assert set(listed["packages"]) == packages
    alone = {name for name in modules if name.rpartition(".")[0] not in packages}
    assert set(listed["py-modules"]) == alone - {f"{name}.__init__" for name in packages}
