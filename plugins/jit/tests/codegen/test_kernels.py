"""Compiled groups: sizes, memory, threads, numbers of the call, and what is refused."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import numpy as np
import pytest
from codegen_groups import bits, compare, eager, empty_outputs, full, inputs_of, ops, step

import tangrad
from tangrad_jit.codegen import (
    Cast,
    Const,
    Group,
    GroupInput,
    Number,
    Step,
    can_compile,
    compile_group,
)
from tangrad_jit.codegen.compiled import LEVELS, Refused, native_level
from tangrad_jit.codegen.tiles import values_of

pytestmark = pytest.mark.skipif(native_level() is None, reason="tangrad-cpu has no kernels here")
needs_code = pytest.mark.skipif(
    native_level() == "tiles", reason="there is no executable memory here"
)


def softmax() -> Group:
    steps = (
        step("amax", "float32", 0),
        step("sub_plain", "float32", 0, 1),
        step("exp", "float32", 2),
        step("sum", "float32", 3),
        step("true_divide", "float32", 3, 4),
    )
    return Group(full("float32"), steps, (5,))


def layer_norm() -> Group:
    column = GroupInput("float32", "column")
    steps = (
        step("add_plain", "float32", 0, 1),
        step("mean", "float32", 4),
        step("sub_plain", "float32", 4, 5),
        step("mul", "float32", 6, 6),
        step("mean", "float32", 7),
        step("add_plain", "float32", 8, Const(1e-5)),
        step("rsqrt", "float32", 9),
        step("mul", "float32", 6, 10),
        step("mul", "float32", 11, 2),
        step("add_plain", "float32", 12, 3),
    )
    return Group((*full("float32", "float32"), column, column), steps, (13,))


def adam() -> Group:
    number = GroupInput("float64", "number")
    steps = (
        step("mul", "float32", 1, 4),
        step("add_scaled", "float32", 6, 3, alpha=Number(5)),
        step("mul", "float32", 3, 3),
        step("add_plain", "float32", 2, 8),
        step("sqrt", "float32", 9),
        step("add_plain", "float32", 10, Const(1e-8)),
        step("true_divide", "float32", 7, 11),
        step("sub_plain", "float32", 0, 12),
    )
    return Group(
        (*full("float32", "float32", "float32", "float32"), number, number), steps, (13, 7, 9)
    )


COLUMNS = (1, 7, 8, 63, 65, 1000, 4097)


@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("make", [softmax, layer_norm])
def test_normalizations_have_the_bits_of_their_ops(make: Any, columns: int) -> None:
    for rows in (1, 5, 64, 130):
        compare(make(), rows, columns)


@pytest.mark.parametrize("columns", COLUMNS)
def test_an_optimizer_step_has_several_results(columns: int) -> None:
    compare(adam(), 3, columns)


@pytest.mark.parametrize(("rows", "columns"), [(0, 5), (5, 0), (0, 0)])
def test_no_elements(rows: int, columns: int) -> None:
    total = Group(full("float32"), (step("neg", "float32", 0), step("sum", "float32", 1)), (1, 2))
    compare(total, rows, columns)


@pytest.mark.parametrize("columns", [32767, 32768, 32831, 32832, 40000])
def test_long_rows_are_folded_in_the_order_of_the_reduction(columns: int) -> None:
    group = Group(full("float32"), (step("square", "float32", 0), step("sum", "float32", 1)), (2,))
    for rows in (1, 3, 20):
        ins = [tangrad.randn(rows, columns)]
        outs = empty_outputs(group, rows, columns)
        compile_group(group).run(outs, ins, rows, columns)
        assert np.array_equal(bits(outs[0]), bits(eager(group, ins)[0]))


def test_sizes_and_numbers_never_compile_anew() -> None:
    kernel = compile_group(adam())
    for columns in range(1, 40):
        for number in (0.5, -2.0, 1e-3):
            ins = inputs_of(adam(), 2, columns)
            ins[4:] = [number, number / 3]
            outs = empty_outputs(adam(), 2, columns)
            assert compile_group(adam()) is kernel
            kernel.run(outs, ins, 2, columns)
            for found, wanted in zip(outs, eager(adam(), ins), strict=True):
                assert np.array_equal(bits(found), bits(wanted))


def test_integer_and_truth_numbers_come_with_the_call() -> None:
    inputs = (*full("int64"), GroupInput("int64", "number"), GroupInput("bool", "number"))
    steps = (step("add_plain", "int64", 0, 1), step("mul", "int64", 3, 2))
    group = Group(inputs, steps, (4,))
    x = tangrad.arange(5).reshape(1, 5)
    out = tangrad.empty((1, 5), dtype=tangrad.int64)
    compile_group(group).run([out], [x, 2**62 + 1, True], 1, 5)
    assert out.tolist() == [[k + 2**62 + 1 for k in range(5)]]


@needs_code
@pytest.mark.parametrize(("n", "more"), [(40, 0), (22, 0), (14, 12)])
def test_more_values_than_registers_are_spilled(n: int, more: int) -> None:
    """Products are all alive until the last one is made; two vectors in turn spill on their own."""
    steps = [step("mul", "float32", 0, Const(1.0 + k)) for k in range(n)]
    steps.append(step("maximum", "float32", 1, n))
    for k in range(n):
        steps.append(step("add_plain", "float32", n + 1 + k, k + 1))
    steps += [step("mul", "float32", 2 * n + 1, k) for k in (1, n // 2)]
    steps += [step("square", "float32", 2 * n + 3 + k) for k in range(more)]
    outputs = (2 * n + 1, 2 * n + 2, 2 * n + 3 + more)
    group = Group(full("float32"), tuple(steps), outputs)
    for columns in COLUMNS:
        compare(group, 2, columns)


@needs_code
def test_long_bodies_of_half_types_keep_two_vectors_apart() -> None:
    """Rounding to a half type goes through a register that both vectors have."""
    steps = (
        step("mul", "float16", 0, 1),
        step("log", "float16", 2),
        step("softplus", "float16", 3, beta=1.5, threshold=1.5),
    )
    inputs = (*full("float16"), GroupInput("float16", "scalar"))
    for columns in COLUMNS:
        compare(Group(inputs, steps, (4,)), 4, columns)


@needs_code
def test_the_greater_of_a_value_and_itself_is_not_computed() -> None:
    steps = (
        step("maximum", "float32", 0, 0),
        step("minimum", "float32", 1, 1),
        step("neg", "float32", 2),
    )
    group = Group(full("float32"), steps, (3,))
    compare(group, 3, 65)
    assert "vmaxps" not in compile_group(group).listing()


@needs_code
@pytest.mark.parametrize("inputs", [14, 30])
def test_more_streams_than_general_registers(inputs: int) -> None:
    steps = [step("add_plain", "float32", 0, 1)]
    steps += [step("add_plain", "float32", inputs + k - 2, k) for k in range(2, inputs)]
    compare(Group(full(*["float32"] * inputs), tuple(steps), (2 * inputs - 2,)), 3, 65)


def test_a_result_may_be_written_over_an_operand() -> None:
    group = adam()
    ins = inputs_of(group, 3, 130)
    wanted = eager(group, [x.clone() if hasattr(x, "clone") else x for x in ins])
    compile_group(group).run([ins[0], ins[1], ins[2]], ins, 3, 130)
    for found, expected in zip(ins, wanted, strict=False):
        assert np.array_equal(bits(found), bits(expected))


@pytest.mark.parametrize("columns", [65, 8])
def test_what_is_read_again_is_not_overwritten_before(columns: int) -> None:
    """Softmax reads its operand in two passes."""
    x = tangrad.randn(4, columns)
    wanted = eager(softmax(), [x.clone()])[0]
    compile_group(softmax()).run([x], [x], 4, columns)
    assert np.array_equal(bits(x), bits(wanted))


def test_a_result_may_overlap_an_operand_partly() -> None:
    group = Group(full("float32"), (step("neg", "float32", 0),), (1,))
    memory = tangrad.arange(130.0)
    wanted = -memory[:100].clone()
    compile_group(group).run([memory[30:].view(1, 100)], [memory[:100].view(1, 100)], 1, 100)
    assert memory[30:].tolist() == wanted.tolist()


def test_results_do_not_depend_on_threads() -> None:
    threads = tangrad.get_num_threads()
    x = tangrad.randn(300, 700)
    found = []
    try:
        for count in (1, 2, 3):
            tangrad.set_num_threads(count)
            out = tangrad.empty(300, 700)
            compile_group(softmax()).run([out], [x], 300, 700)
            found.append(bits(out))
    finally:
        tangrad.set_num_threads(threads)
    assert all(np.array_equal(found[0], other) for other in found)


def test_one_kernel_runs_in_several_threads_at_once() -> None:
    kernel = compile_group(layer_norm())
    wrong = []

    def work(seed: int) -> None:
        for columns in (5, 65, 500):
            ins = inputs_of(layer_norm(), 40, columns, seed)
            outs = empty_outputs(layer_norm(), 40, columns)
            kernel.run(outs, ins, 40, columns)
            if not np.array_equal(bits(outs[0]), bits(eager(layer_norm(), ins)[0])):
                wrong.append((seed, columns))

    workers = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert wrong == []


def test_without_kernels_nothing_can_be_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    from tangrad_jit.codegen import compiled

    monkeypatch.setattr(compiled, "_state", {"level": None})
    assert "tangrad-cpu" in str(can_compile(softmax()))
    with pytest.raises(Refused, match="no kernels of tangrad-cpu"):
        compile_group(softmax())


def test_c_code_calls_a_kernel_by_its_address() -> None:
    kernel = compile_group(softmax()).kernel
    x, out = tangrad.randn(2, 70), tangrad.empty(2, 70)
    pointers = ctypes.c_void_p * 1
    call = ctypes.CFUNCTYPE(
        ctypes.c_int,
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_int64,
        ctypes.c_int64,
    )(kernel.entry)
    outs, ins = pointers(out.data_ptr()), pointers(x.data_ptr())
    assert call(kernel.context, outs, ins, None, 2, 70) == 0
    assert np.array_equal(bits(out), bits(eager(softmax(), [x])[0]))


def test_division_of_integers_by_zero_is_an_error_of_the_call() -> None:
    steps = (step("add_plain", "int64", 0, 0), step("floor_divide", "int64", 2, 1))
    group = Group(full("int64", "int64"), steps, (3,))
    for columns in (4, 100_000):
        x, y = (
            tangrad.ones(1, columns, dtype=tangrad.int64),
            tangrad.zeros(1, columns, dtype=tangrad.int64),
        )
        out = tangrad.empty((1, columns), dtype=tangrad.int64)
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            compile_group(group).run([out], [x, y], 1, columns)
        compile_group(group).run([out], [x, x], 1, columns)
        assert out.sum().item() == 2 * columns


@pytest.mark.parametrize(
    "source", ["float32", "float64", "bfloat16", "float16", "int64", "int32", "uint8", "bool"]
)
@pytest.mark.parametrize(
    "target", ["float32", "float64", "bfloat16", "float16", "int64", "int32", "int8", "bool"]
)
def test_conversions_have_the_bits_of_to(source: str, target: str) -> None:
    group = Group(full(source), (Step(Cast(), target, (0,)),), (1,))
    if source == target:
        return
    x = tangrad.tensor(np.random.default_rng(0).integers(0, 100, (3, 67)) / 3).to(
        getattr(tangrad, source)
    )
    out = empty_outputs(group, 3, 67)
    compile_group(group).run(out, [x], 3, 67)
    assert np.array_equal(bits(out[0]), bits(x.to(getattr(tangrad, target))))


def test_operands_are_converted_as_the_op_converts_them() -> None:
    inputs = (
        *full("bfloat16"),
        GroupInput("float64", "scalar"),
        GroupInput("int32", "row"),
        GroupInput("bool", "column"),
    )
    steps = (
        step("mul", "bfloat16", 0, 1),
        step("hypot", "bfloat16", 4, 2),
        step("add_plain", "bfloat16", 5, 3),
    )
    compare(Group(inputs, steps, (6,)), 5, 67)


def refused(group: Group) -> str:
    reason = can_compile(group)
    assert reason is not None
    with pytest.raises(Refused):
        compile_group(group)
    return reason


def test_what_cannot_be_compiled_says_why() -> None:
    neg = step("neg", "float32", 0)
    assert "nothing to compute" in refused(Group(full("float32"), (), (0,)))
    assert "no step's" in refused(Group(full("float32"), (neg,), (0,)))
    assert "twice" in refused(Group(full("float32"), (neg,), (1, 1)))
    assert "before it" in refused(Group(full("float32"), (step("neg", "float32", 3),), (1,)))
    assert "takes 2 operands" in refused(Group(full("float32"), (step("mul", "float32", 0),), (1,)))
    assert "scan" in refused(Group(full("float32"), (step("cumsum", "float32", 0),), (1,)))
    assert "float32" in refused(Group((GroupInput("float32", "number"),), (neg,), (1,)))
    assert "pattern" in refused(Group((GroupInput("float32", "diagonal"),), (neg,), (1,)))  # type: ignore[arg-type]
    row = Group((GroupInput("float32", "row"),), (step("sum", "float32", 0),), (1,))
    assert "same for all" in refused(row)
    column = Group(
        (*full("float32"), GroupInput("float32", "column")),
        (neg, step("neg", "float32", 1)),
        (2, 3),
    )
    assert "group of its own" in refused(column)


@pytest.mark.parametrize(("rows", "columns"), [(1, 40_000), (300, 1000), (70, 33), (5, 7), (3, 4)])
def test_random_numbers_are_those_of_the_op_in_every_tile(rows: int, columns: int) -> None:
    """Philox counts by the place of an element in the whole tensor."""
    number = GroupInput("int64", "number")
    steps = (
        step("add_plain", "float32", 0, 1),
        step("dropout_mask_scale", "float32", 4, p=0.5, seed=Number(2), offset=Number(3)),
        step("add_plain", "float32", 5, 0),
    )
    bias = GroupInput("float32", "column")
    group = Group((*full("float32"), bias, number, number), steps, (6,))
    ins = [tangrad.randn(rows, columns), tangrad.randn(columns), 2**40 + 17, 1000]
    outs = empty_outputs(group, rows, columns)
    compile_group(group).run(outs, ins, rows, columns)
    assert np.array_equal(bits(outs[0]), bits(eager(group, ins)[0]))


def test_random_numbers_for_a_part_of_the_space_are_refused() -> None:
    dropout = step("dropout_mask_scale", "float32", 0, p=0.5, seed=1, offset=0)
    assert "random" in refused(Group((GroupInput("float32", "row"),), (dropout,), (1,)))


def test_an_unknown_level_is_an_error() -> None:
    with pytest.raises(ValueError, match="known are avx512, avx2, tiles"):
        compile_group(softmax(), "sse2")
    assert LEVELS == ("avx512", "avx2", "tiles")


def test_a_level_that_the_machine_may_lack_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from tangrad_jit.codegen import compiled

    monkeypatch.setattr(compiled, "_state", {"level": "avx2"})
    with pytest.raises(Refused, match="for avx512 here: those of tangrad-cpu are for avx2"):
        compile_group(softmax(), "avx512")


def test_constants_are_part_of_the_code_and_of_its_key() -> None:
    kernels = {
        id(compile_group(Group(full("float32"), (step("mul", "float32", 0, Const(value)),), (1,))))
        for value in (2, 2.0, True, -0.0, 0.0)
    }
    assert len(kernels) == 5


def test_values_know_their_dtypes_and_patterns() -> None:
    found = values_of(softmax())
    assert [(v.row, v.column) for v in found] == [
        (True, True),
        (True, False),
        *[(True, True)] * 2,
        (True, False),
        (True, True),
    ]
    assert {v.dtype for v in found} == {"float32"}
    assert set(ops()) >= {"sum", "mul", "tanh_backward(self)"}
