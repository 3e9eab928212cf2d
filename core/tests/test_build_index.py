"""The index of op definitions, read from the families' syntax at build time."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "src" / "tangrad" / "ops" / "definition" / "indexing.py"


@pytest.fixture(scope="module")
def indexing():
    """The module by its path, as the core's own build has it."""
    spec = importlib.util.spec_from_file_location("indexing", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def index_of(indexing, tmp_path):
    """Return a function that writes a family and returns its index."""

    def make(source: str, family: str = "family") -> dict[str, str]:
        (tmp_path / f"{family}.py").write_text(source, "utf-8")
        module: dict[str, dict] = {}
        exec(indexing.build_index(tmp_path).read_text("utf-8"), module)
        return module["INDEX"]

    return make


def test_an_op_is_found_under_the_name_of_its_schema(index_of) -> None:
    assert index_of('max_ = overload("max", "max_all", "max_dim")') == {"max": "family"}


def test_a_decorated_function_is_a_definition(index_of) -> None:
    source = '@composite("dot(Tensor self, Tensor tensor) -> Tensor")\ndef inner(): ...'
    assert index_of(source) == {"dot": "family"}


def test_a_function_whose_signature_is_the_schema_names_the_op(index_of) -> None:
    assert index_of("@composite(alias=('inner',))\ndef dot(a: Tensor) -> Tensor: ...") == {
        "dot": "family",
        "inner": "family",
    }
    assert index_of('@composite("dot", out=True)\ndef inner(a: Tensor) -> Tensor: ...') == {
        "dot": "family"
    }


def test_a_composite_of_a_function_that_a_template_gives_is_a_definition(index_of) -> None:
    assert index_of('pool = composite("pool", out=True)(of_windows(2))') == {"pool": "family"}


def test_a_definition_without_a_schema_or_function_stops_the_build(index_of) -> None:
    with pytest.raises(SystemExit, match="is a literal schema"):
        index_of("x = op(linear=('self',))")


def test_an_alias_names_the_same_family(index_of) -> None:
    index = index_of('x = op("sub(Tensor self, Operand other) -> Tensor", alias=("subtract",))')
    assert index == {"sub": "family", "subtract": "family"}


def test_an_in_place_form_exists_for_every_alias(index_of) -> None:
    index = index_of('x = op("sub(Tensor self) -> Tensor", alias=("minus",), inplace=True)')
    assert set(index) == {"sub", "sub_", "minus", "minus_"}


def test_an_overload_is_in_place_when_one_of_its_members_is(index_of) -> None:
    member = 'x = op("fill_number(Tensor self, Scalar value) -> Tensor", inplace=True)'
    index = index_of(f'{member}\ny = overload("fill", "fill_number", "fill_tensor")')
    assert set(index) == {"fill_number", "fill_number_", "fill", "fill_"}


def test_other_assignments_and_calls_are_no_definitions(index_of) -> None:
    assert not index_of('LIMIT = 3\nx = table("sub(Tensor self)")\ndef op(): ...')


def test_a_family_in_a_folder_is_named_with_it(indexing, tmp_path) -> None:
    for folder in ("linalg", indexing.LANGUAGE):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "norms.py").write_text('x = op("norm(Tensor self) -> Tensor")')
    assert [found.family for found in indexing.scan(tmp_path)] == ["linalg.norms"]


def test_the_modules_of_another_package_are_named_whole(indexing, tmp_path) -> None:
    (tmp_path / "steps.py").write_text('x = op("step(Tensor self) -> Tensor")')
    module: dict[str, dict] = {}
    exec(indexing.build_index(tmp_path, "box.ops").read_text("utf-8"), module)
    assert module["INDEX"] == {"step": "box.ops.steps"}


def test_two_definitions_of_one_name_stop_the_build_naming_both_places(index_of) -> None:
    first = 'x = op("a(Tensor self) -> Tensor")'
    with pytest.raises(SystemExit, match=r"'a' is already defined at .*family\.py:1"):
        index_of(f'{first}\ny = op("b(Tensor self) -> Tensor", alias=("a",))')


def test_naming_that_is_not_literal_stops_the_build(index_of) -> None:
    with pytest.raises(SystemExit, match="alias= must be a literal"):
        index_of('x = op("a(Tensor self) -> Tensor", alias=NAMES)')


def test_an_unchanged_index_keeps_its_date(indexing, tmp_path) -> None:
    (tmp_path / "family.py").write_text('x = op("a(Tensor self) -> Tensor")', "utf-8")
    before = indexing.build_index(tmp_path).stat().st_mtime_ns
    assert indexing.build_index(tmp_path).stat().st_mtime_ns == before


def test_the_index_of_the_core_names_what_its_families_define() -> None:
    from tangrad.ops.definition import registry

    index = registry.index()
    defined = registry.load_plain()
    assert set(index) <= set(defined)
    assert {defined[name].definition.module for name in index} <= {
        f"tangrad.ops.{family}" for family in registry.families()
    }
    # An op that takes its expression by a word defines one op for each word, for itself only.
    elsewhere = registry.index_of_packages()
    own = {
        name
        for name in defined.keys() - elsewhere.keys()
        if defined[name].definition.module.startswith("tangrad.ops.")
    }
    assert not {name for name in own - set(index) if defined[name].definition.function}


def test_an_op_is_shown_where_its_family_has_the_same_name() -> None:
    from tangrad import ops

    importlib.import_module("tangrad.ops.cat")
    assert ops.cat is ops.lookup("cat")
