"""Kernels from definitions, made as a device that compiles makes them: `tangrad.plugin.render`."""

from __future__ import annotations

import ctypes
import shutil
import subprocess

import numpy as np
import pytest

import tangrad
from tangrad.plugin import find_op, op, pointwise, reduction, reference_kernel, scan
from tangrad.plugin.render import (
    DIALECTS,
    Dialect,
    ExpressionTypeError,
    Fold,
    PointwiseOp,
    definitions,
    describe,
    folds,
    own_functions,
    pointwise_ops,
    prelude,
)


def compiled(source: str, folder) -> ctypes.CDLL:
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    (folder / "kernel.c").write_text(prelude("c", source) + source)
    command = ["gcc", "-O1", "-shared", "-fPIC", "-ffp-contract=off", "kernel.c", "-o", "kernel.so"]
    subprocess.run([*command, "-lm"], cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "kernel.so"))


def test_an_op_is_described_by_what_it_computes() -> None:
    assert isinstance(describe(find_op("tanh")), PointwiseOp)
    assert isinstance(describe(find_op("sum")), Fold)
    assert describe(find_op("cumsum")).is_scan
    assert describe(find_op("mm")) is None


def test_a_pointwise_op_tells_what_a_loop_gets() -> None:
    add = describe(find_op("add_scaled"))
    assert (add.kind, add.inputs, add.params) == ("op", ("self", "other"), ("alpha",))
    assert add.numbers == ("self", "other")
    assert {"bool", "int64", "bfloat16", "complex64"} <= set(add.dtypes)


def test_a_pointwise_op_tells_whether_numbers_are_rounded_to_half_types() -> None:
    add, mul = describe(find_op("add_plain")), describe(find_op("mul"))
    assert (add.exact_numbers, mul.exact_numbers) == (False, True)
    assert mul.gradient(("self",)).exact_numbers
    # 1 + 2^-8 is 1 in bfloat16.
    assert (tangrad.tensor([2.0**-8]).bfloat16() + (1 + 2.0**-8)).item() == 1.0
    assert (tangrad.tensor([3.0]).bfloat16() * (1 + 2.0**-8)).item() == 3.015625


def test_gradients_and_tangents_are_pointwise_ops() -> None:
    mul = describe(find_op("mul"))
    gradient, tangent = mul.gradient(("self", "other")), mul.tangent(("self",))
    assert (gradient.kind, gradient.key) == ("gradient", "mul_backward(self,other)")
    assert (tangent.kind, tangent.key) == ("tangent", "mul_jvp(jvp,self)")
    assert gradient.parent is mul.op
    assert gradient.wrt == ("self", "other")
    assert len(gradient.typed("float32").result_types) == 2
    assert "int64" not in gradient.dtypes
    # Of the gradient of one factor the other is often a number.
    assert mul.gradient(("self",)).numbers == ("other",)


def test_an_op_whose_gradient_is_its_results_has_no_fused_one() -> None:
    assert describe(find_op("add_plain")).gradient(("self", "other")) is None


def test_all_that_can_be_compiled_ahead_is_listed_once() -> None:
    listed = list(pointwise_ops())
    assert len({op.key for op in listed}) == len(listed)
    assert {"mul", "mul_backward(self)", "tanh_jvp(jvp,self)"} <= {op.key for op in listed}
    assert not any(op.title.endswith("_") for op in pointwise_ops(derived=False))
    keys = {fold.key for fold in folds()}
    assert {"sum", "cumsum", "argmax"} <= keys
    made_for = {d.key: d.fingerprint for d in definitions()}
    assert made_for["sum"] == find_op("sum").definition.fingerprint
    assert "mul_backward(self,other)" in made_for


def test_an_input_without_a_derivative_is_left_out_of_what_is_derived() -> None:
    made = pointwise("steps::nextafter(Tensor self) -> Tensor", "nextafter(self, 2 * self)")
    assert list(describe(made).derivatives()) == []


def test_half_types_are_stored_as_they_are_and_computed_in_float32() -> None:
    typed = describe(find_op("mul")).typed("float16")
    assert typed.input_types == ("float16", "float16")
    assert typed.program.compute == "float32"
    assert "tg_store_float16" in typed.render("mul")


def test_what_has_no_meaning_for_a_dtype_is_refused() -> None:
    with pytest.raises(ExpressionTypeError):
        describe(find_op("bitwise_and")).typed("float32").render("bitwise_and")


def test_a_rendered_gradient_computes_what_the_reference_does(tmp_path) -> None:
    gradient = describe(find_op("exp")).gradient(("self",))
    source = gradient.typed("float64").render("gradient")
    source += "void run(double g, double result, double *out) { gradient(g, result, out); }\n"
    assert gradient.inputs == ("g", "result")
    out = ctypes.c_double()
    library = compiled(source, tmp_path)
    library.run(ctypes.c_double(2.0), ctypes.c_double(0.5), ctypes.byref(out))
    assert out.value == 1.0


def test_a_sum_is_declared_and_passes_through_a_wider_type() -> None:
    sum_ = describe(find_op("sum"))
    typed = sum_.typed("float32")
    assert (sum_.kind, sum_.identity, sum_.decided_by) == ("sum", (0,), None)
    assert (typed.states, typed.wide, typed.result_types) == (["float64"], "float64", ["float32"])
    assert sum_.maps_nothing
    assert sum_.takes_elements
    assert describe(find_op("mean")).group == sum_.group


def test_the_map_of_a_fold_is_looked_at_not_its_text() -> None:
    nansum, norm = describe(find_op("nansum")), describe(find_op("norm_euclidean"))
    assert nansum.takes_elements
    assert not nansum.maps_nothing
    assert not norm.takes_elements
    assert norm.kind == "sum"
    assert not describe(find_op("norm_count")).takes_elements


def test_values_of_a_state_that_are_combined_by_themselves() -> None:
    assert describe(find_op("aminmax")).independent == ((0,), (1,))
    assert describe(find_op("argmax")).independent == ((0, 1),)
    assert describe(find_op("any")).decided_by is True
    assert describe(find_op("argmax")).typed("int32").indexed


def test_a_rendered_fold_computes_a_variance(tmp_path) -> None:
    fold = describe(find_op("var_corrected"))
    typed = fold.typed("float64")
    count = len(typed.states)
    source = "".join(
        program.render_c(name, None, outs)
        for name, program, outs in (
            ("map", typed.map, typed.states),
            ("combine", typed.combine, typed.states),
            ("finalize", typed.finalize, typed.result_types),
        )
    )
    # The parameters of each: correction and keepdim; the last step has the count before them.
    names = ["a", "b"]
    declared = " ".join(f"double {n}{k};" for n in names for k in range(count))
    a, b = (", ".join(f"{n}{k}" for k in range(count)) for n in names)
    to_a, to_b = (", ".join(f"&{n}{k}" for k in range(count)) for n in names)
    rest = ", ".join("0.0" if p != "correction" else "1.0" for p in typed.map.params)
    rest = f", {rest}" if rest else ""
    source += f"""
double run(const double *x, int n) {{
    {declared} double out;
    map(x[0], 0{rest}, {to_a});
    for (int i = 1; i < n; i++) {{ map(x[i], i{rest}, {to_b}); combine({a}, {b}{rest}, {to_a}); }}
    finalize({a}, n{rest}, &out);
    return out;
}}
"""
    library = compiled(source, tmp_path)
    library.run.restype = ctypes.c_double
    x = np.array([1.0, 2.0, 4.0, 8.0])
    found = library.run(x.ctypes.data_as(ctypes.c_void_p), 4)
    assert found == pytest.approx(x.var(ddof=1), rel=1e-14)


def test_a_dialect_is_names_of_types_and_texts_in_place_of_others() -> None:
    base = DIALECTS["c"]
    shout = {"tg_exp_f32": "static inline float tg_exp_f32(float a) { return EXP(a); }"}
    mine = Dialect(
        "mine", function="device", types=base.types, header="/* mine */\n", helpers=shout
    )
    source = describe(find_op("exp")).typed("float32").render("exponential", mine)
    assert source.startswith("device void exponential(float in_self, float *out0)")
    assert "EXP(a)" in prelude(mine, source)


def test_functions_that_the_language_writes_itself_are_told_with_their_operands() -> None:
    assert own_functions()["digamma"] == 1
    assert own_functions()["igamma"] == 2


def test_a_combination_that_is_written_out_is_the_fold_of_that_name() -> None:
    written = reduction(
        "written_out_sum(Tensor self, dim[]? dim=None, bool keepdim=False) -> Tensor",
        map="self", combine="a + b", identity=0, vjp="none: a test", function=False, method=False,
    )  # fmt: skip
    assert describe(written).kind == "sum"
    own = scan(
        "own_combination(Tensor self, dim dim) -> Tensor",
        map="self", combine="a - b", vjp="none: a test", function=False, method=False,
    )  # fmt: skip
    assert describe(own).kind is None


@pytest.mark.parametrize("how", [{}, {"fold": "sum", "combine": "a + b"}, {"fold": "avarage"}])
def test_a_fold_is_named_or_written_out(how) -> None:
    with pytest.raises(ValueError, match="'twofold'"):
        reduction("twofold(Tensor self, dim[]? dim=None) -> Tensor", map="self", **how)


def test_the_reference_serves_what_a_device_of_the_host_lacks() -> None:
    x, out = tangrad.tensor([1.0, 4.0]), tangrad.empty(2)
    reference_kernel(find_op("sqrt"), tangrad.float32)((out,), (x,), {})
    assert out.tolist() == [1.0, 2.0]
    nowhere = op("nowhere(Tensor self) -> Tensor", vjp="none: a test", function=False, method=False)
    assert reference_kernel(nowhere, tangrad.float32) is None


def test_ops_of_plugins_are_described_as_the_cores_are() -> None:
    own = pointwise(
        "bent(Tensor self, *, float width=1.0) -> Tensor",
        "sqrt(self * self + width)", function=False, method=False,
    )  # fmt: skip
    described = describe(own)
    assert described.params == ("width",)
    assert described.gradient(("self",)).parent is own
