"""What a definition may say reaches it whole, under whichever form it is said."""

from __future__ import annotations

from itertools import combinations

import pytest

import tangrad
from tangrad.ops.definition import fields
from tangrad.ops.definition.define import pointwise
from tangrad.ops.definition.definition import Definition, ReductionDefinition
from tangrad.ops.definition.pointwise import PointwiseDefinition
from tangrad.ops.definition.schema import Schema

GROUPS = (fields.Results, fields.Computing, fields.Derivatives, fields.Forms, fields.Examples)
SCHEMA = "told(Tensor self) -> Tensor"
MADE = [
    (lambda **said: Definition(Schema(SCHEMA), **said), Definition.fields),
    (
        lambda **said: PointwiseDefinition(Schema(SCHEMA), "self", **said),
        PointwiseDefinition.fields,
    ),
    (
        lambda **said: ReductionDefinition(
            Schema(SCHEMA), "self", ("sum", "a + b", 0), "a", **said
        ),
        ReductionDefinition.fields,
    ),
]
# What tells one field from another, where any object does not do.
VALUES = {"names": {"input": "self"}, "results": ("bool",), "fixed": {"self": "bool"},
          "partials": {"self": "1.0"}, "alias": ("other_name",)}  # fmt: skip


@pytest.mark.parametrize(("make", "known"), MADE, ids=["op", "pointwise", "fold"])
def test_every_field_is_kept_as_it_is_said(make, known):
    said = {name: VALUES.get(name, object()) for name in known}
    definition = make(**said)
    assert {name: getattr(definition, name) for name in known} == said


def test_a_field_belongs_to_one_group():
    assert not [a & b for a, b in combinations(map(fields.names_in, GROUPS), 2) if a & b]
    assert fields.names_in(*GROUPS) == Definition.fields


def test_of_an_op_of_several_expressions_each_field_reaches_the_op_or_all_expressions():
    of_op = {
        "function": False, "method": False, "names": {"input": "self"}, "doc": "Tell.",
        "strict_out": True, "strict_out_dtype": True, "out_refusal": TypeError, "oracle": "neg",
        "samples": lambda s: [], "errors": lambda s: [],
    }  # fmt: skip
    of_expressions = {
        "promote": "float", "dtypes": "floating", "numbers": True, "checks_kinds": True,
        "check": lambda self: None, "linear": ("self",), "vjp": "none: a test", "jvp": None,
        "node": "otherwise", "exact_numbers": True, "results": ("real",), "fixed": {"self": "bool"},
    }  # fmt: skip
    schema = "told_in_two_ways(Tensor self, *, str way) -> Tensor"
    texts = {"once": "self", "twice": "self + self"}
    made = pointwise(schema, texts, **of_op, **of_expressions).definition
    assert {name: getattr(made, name) for name in of_op} == of_op
    assert len(made.variants) == 2
    for one in made.variants.values():
        assert {name: getattr(one.definition, name) for name in of_expressions} == of_expressions


@pytest.mark.parametrize(
    ("field", "hint"), [("shap", "did you mean 'shape'"), ("quux", "no field 'quux'$")]
)
def test_what_is_no_field_is_refused(field, hint):
    from tangrad.plugin import op

    with pytest.raises(
        TypeError, match=f"the definition of 'told' has no field '{field}'"
    ) as found:
        op(SCHEMA, **{field: None})
    assert found.match(hint)
    assert not hasattr(tangrad.ops, "told")
