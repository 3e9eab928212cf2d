"""The annotated signature of a composite's Python function is the op's schema."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

import tangrad
from tangrad.dispatch.tracing import at_all_sizes, serves_all_sizes
from tangrad.ops.definition.schema import Schema
from tangrad.ops.definition.signature import schema_of
from tangrad.plugin import (
    Device,
    Dim,
    Dims1,
    DType,
    Generator,
    Ints,
    Ints2,
    MemoryFormat,
    Operand,
    Scalar,
    Tensor,
    TensorLayout,
    WrittenTensor,
    composite,
)

# The same with annotations that Python has evaluated, and in the words of `typing`.
EVALUATED = """
from collections.abc import Sequence
from typing import Any, Optional, Union
import tangrad
from tangrad.plugin import *
from tangrad.plugin import Dim, Dims1, DType, Ints, Ints2, Scalar, WrittenTensor

def plain(self: tangrad.Tensor, n: int, p: float = 0.5, s: str = "sum") -> tangrad.Tensor: ...
def optional(
    x: Optional[tangrad.Tensor], n: Union[int, None] = None, *, dtype: DType | None = None
) -> Any: ...
def lists(x: Sequence[tangrad.Tensor], n: list[int], m: tuple[int, ...] = (1, 2), k: Ints2 = 3
    ) -> list[tangrad.Tensor]: ...
def several(
    out: WrittenTensor, dim: Dims1 | None = None
    ) -> tuple[tangrad.Tensor, tangrad.Tensor]: ...
def nothing(a: Scalar, *, flag: bool = True) -> None: ...
"""


def plain(self: Tensor, n: int, p: float = 0.5, s: str = "sum") -> Tensor: ...


def optional(x: Tensor | None, n: int | None = None, *, dtype: DType | None = None) -> Any: ...


def lists(x: Sequence[Tensor], n: Ints, m: Ints = (1, 2), k: Ints2 = 3) -> Sequence[Tensor]: ...


def several(out: WrittenTensor, dim: Dims1 | None = None) -> tuple[Tensor, Tensor]: ...


def nothing(a: Scalar, *, flag: bool = True) -> None: ...


def factory(
    size: Ints,
    *,
    fill: Operand,
    generator: Generator | None = None,
    layout: TensorLayout | None = None,
    device: Device | None = None,
    memory_format: MemoryFormat | None = None,
) -> Tensor: ...


SAID = {
    plain: "plain(Tensor self, int n, float p=0.5, str s='sum') -> Tensor",
    optional: "optional(Tensor? x, int? n=None, *, dtype? dtype=None) -> any",
    lists: "lists(Tensor[] x, int[] n, int[] m=(1, 2), int[2] k=3) -> Tensor[]",
    several: "several(Tensor! out, dim[1]? dim=None) -> (Tensor, Tensor)",
    nothing: "nothing(Scalar a, *, bool flag=True) -> ()",
    factory: (
        "factory(int[] size, *, Operand fill, generator? generator=None, layout? layout=None,"
        " device? device=None, memory_format? memory_format=None) -> Tensor"
    ),
}


@pytest.mark.parametrize("function", SAID, ids=lambda function: function.__name__)
def test_annotations_are_types_of_the_schema(function):
    assert schema_of(function, function.__name__) == SAID[function]
    Schema(SAID[function])  # it parses


@pytest.mark.parametrize("name", ["plain", "optional", "lists", "several", "nothing"])
def test_annotations_may_be_evaluated(name):
    module: dict[str, Any] = {}
    exec(compile(EVALUATED, "<evaluated>", "exec", dont_inherit=True), module)
    assert schema_of(module[name], name) == SAID[globals()[name]]


def test_results_have_the_names_that_are_given():
    said = schema_of(several, "test::max", ("values", "indices"))
    assert said == "test::max(Tensor! out, dim[1]? dim=None) -> (Tensor values, Tensor indices)"
    assert Schema(said).returns == ("values", "indices")


def test_a_definition_has_the_name_of_its_function_or_the_one_given():
    @composite("test::scaled_sum")
    def scaled(x: Tensor, dim: Dim, *, factor: float = 2.0) -> Tensor:
        """Sum along a dimension and scale."""
        return x.sum(dim) * factor

    assert scaled.definition.schema.text == (
        "test::scaled_sum(Tensor x, dim dim, *, float factor=2.0) -> Tensor"
    )
    assert scaled(tangrad.ones(2, 3), -1).tolist() == [6.0, 6.0]
    assert scaled(tangrad.ones(2, 3), -1, factor=3.0).tolist() == [9.0, 9.0]
    with pytest.raises(TypeError, match="positional"):
        scaled(tangrad.ones(2, 3), -1, 3.0)


def test_a_function_with_keywords_still_serves_all_sizes():
    @composite("test::sized")
    @at_all_sizes
    def sized(x: Tensor, *, most: int = 3) -> Tensor:
        return x[: min(len(x), most)]

    assert serves_all_sizes(sized.definition.function_body.__code__)
    assert len(sized(tangrad.ones(5))) == 3


def unannotated(self: Tensor, n) -> Tensor: ...


def unknown(self: Tensor, n: complex) -> Tensor: ...


def without_result(self: Tensor): ...


def open_ended(self: Tensor, *more: Tensor) -> Tensor: ...


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (unannotated, "'f': parameter 'n' has no annotation"),
        (unknown, "'f': parameter 'n' is annotated with 'complex', which is no type of schemas"),
        (without_result, "'f': the result has no annotation"),
        (open_ended, r"'f': ops take no \*args"),
    ],
)
def test_a_signature_that_is_no_schema_is_refused(function, message):
    with pytest.raises(ValueError, match=message):
        schema_of(function, "f")
