"""Results: values, dtypes, shapes, strides; the forms of an op; the errors of an op."""

from __future__ import annotations

from typing import Any

import pytest

import tangrad
from tangrad.plugin import Sampler, find_op, get_driver
from tangrad_testing.calls import REFUSALS, describe, tangrad_arguments
from tangrad_testing.cases import Case, has_values, is_random
from tangrad_testing.closeness import agrees, as_array, describe_difference, dtype_name
from tangrad_testing.oracle import (
    PRECISE,
    WIDER,
    NoOracle,
    assert_same,
    counterpart,
    tensors_in,
    torch_arguments,
    widened,
)


def is_view(case: Case) -> bool:
    """Tell whether an op's result shares the memory of its first argument."""
    return case.call.kind == "view"


def has_inplace_form(case: Case) -> bool:
    """Tell whether an op has a form that writes its first argument."""
    return case.definition.inplace and has_values(case) and not is_view(case)


def takes_out(case: Case) -> bool:
    """Tell whether an op can write into tensors given as out=."""
    return case.call.takes_out and has_values(case)


def is_method(case: Case) -> bool:
    """Tell whether tensors have a method of the op's name."""
    return case.definition.is_method and has_values(case)


def ask_oracle(oracle: Any, sample: Any) -> tuple[Any, Any, Exception | None]:
    """Return torch's (arguments, result, refusal) for a sample."""
    args, kwargs = torch_arguments(sample)
    try:
        return (args, kwargs), oracle(*args, **kwargs), None
    except REFUSALS as error:
        return (args, kwargs), None, error


@pytest.mark.tangrad_cases(always=("float32",), when=has_values)
def test_result_is_that_of_torch(case: Case) -> None:
    """Values within the dtype's tolerance; dtype and shape exactly; what is written to, as well."""
    oracle = counterpart(case.definition)
    for sample in case.samples():
        given, expected, refusal = ask_oracle(oracle, sample)
        args, kwargs = tangrad_arguments(sample, case.device, case.definition)
        if refusal is not None:
            compare_where_torch_refuses(case, oracle, sample, (args, kwargs), refusal)
            continue
        actual = case.call(*args, **kwargs)
        for t in tensors_in(actual):
            assert t.device.type == case.device
        precise = None
        if case.dtype in PRECISE:
            precise = ask_oracle(oracle, widened(sample, case.dtype, PRECISE[case.dtype]))[1]
        context = f"{case.op}{describe(sample)}: "
        assert_same(actual, expected, precise=precise, context=context)
        if not callable(case.definition.oracle):  # such an oracle may write to nothing
            assert_same(
                tensors_in((args, kwargs)),
                tensors_in(given),
                context=f"{context}argument after the call, ",
            )


def compare_where_torch_refuses(
    case: Case, oracle: Any, sample: Any, arguments: Any, refusal: Exception
) -> None:
    """Check a call that torch has no kernel for: refused too, or right in the wider dtype."""
    args, kwargs = arguments
    try:
        actual = case.call(*args, **kwargs)
    except REFUSALS:
        return
    if case.dtype not in WIDER:
        missing = "not implemented" in str(refusal) or isinstance(refusal, NotImplementedError)
        assert missing, f"{case.op}{describe(sample)} gives {actual!r}; torch refuses: {refusal!r}"
        return
    _, expected, still = ask_oracle(oracle, widened(sample, case.dtype, WIDER[case.dtype]))
    if still is None and not unsigned(case.dtype):
        assert_same(
            actual,
            expected,
            dtypes=False,
            context=f"{case.op}{describe(sample)}, torch in {WIDER[case.dtype]}: ",
        )


def unsigned(dtype: str) -> bool:
    """Tell whether a dtype wraps where the wider one would not."""
    return dtype.startswith("uint")


@pytest.mark.tangrad_cases(when=is_view, always=("float32",))
def test_view_has_the_geometry_of_torchs_and_shares_memory(case: Case) -> None:
    oracle = counterpart(case.definition)
    for sample in case.samples():
        _, expected, refusal = ask_oracle(oracle, sample)
        if refusal is not None:
            continue
        args, kwargs = tangrad_arguments(sample, case.device)
        source = tensors_in(args)[0]
        for ours, theirs in zip(
            tensors_in(case.call(*args, **kwargs)), tensors_in(expected), strict=True
        ):
            found = (tuple(ours.shape), tuple(ours.stride()), ours.storage_offset())
            assert found == (tuple(theirs.shape), theirs.stride(), theirs.storage_offset()), (
                describe(sample)
            )
            assert ours._version == source._version
            if ours.numel() and not ours.dtype.is_complex and ours.dtype == source.dtype:
                before = source._version
                ours.zero_()
                assert source._version > before, (
                    f"{describe(sample)}: writing the view left its base's version"
                )


@pytest.mark.tangrad_cases(when=has_inplace_form)
def test_inplace_form_writes_what_the_function_returns(case: Case) -> None:
    """Where the result fits the first argument; elsewhere it is refused and nothing is written."""
    inplace = find_op(case.op + "_")
    for sample in case.samples():
        args, kwargs = tangrad_arguments(sample, case.device)
        if not args or not isinstance(args[0], tangrad.Tensor):
            continue
        try:
            expected = case.call(*args, **kwargs)
        except REFUSALS:
            continue
        target = args[0].clone()
        if case.definition.strict_out_dtype:
            takes = expected.dtype == target.dtype
        else:
            takes = tangrad.can_cast(expected.dtype, target.dtype)
        fits = tuple(expected.shape) == tuple(target.shape) and takes
        if not fits:
            with pytest.raises(RuntimeError):
                inplace(target, *args[1:], **kwargs)
            assert same_bits(target, args[0]), f"{describe(sample)}: a refused write left traces"
            continue
        before = target._version
        returned = inplace(target, *args[1:], **kwargs)
        assert returned is target
        assert target._version > before or not target.numel()
        assert same_bits(target, expected.to(target.dtype)), describe(sample)


def same_bits(a: Any, b: Any) -> bool:
    """Tell whether two tensors hold the same values; NaN is as good as NaN."""
    x, y = a.detach().to("cpu"), b.detach().to("cpu")
    if tuple(x.shape) != tuple(y.shape) or x.dtype != y.dtype:
        return False
    equal = x == y
    if x.dtype.is_floating_point or x.dtype.is_complex:
        equal = equal | ((x != x) & (y != y))
    return bool(equal.all())


@pytest.mark.tangrad_cases(when=takes_out)
def test_out_receives_the_result(case: Case) -> None:
    """An empty `out` is resized, a wide one is cast to; a narrow one is refused."""
    for sample in case.samples():
        args, kwargs = tangrad_arguments(sample, case.device, case.definition)
        try:
            expected = case.call(*args, **kwargs)
        except REFUSALS:
            continue
        many = isinstance(expected, tuple)
        outs = tuple(
            tangrad.empty(0, dtype=e.dtype, device=case.device) for e in tensors_in(expected)
        )
        returned = case.call(*args, **kwargs, out=outs if many else outs[0])
        for out, r, e in zip(outs, tensors_in(returned), tensors_in(expected), strict=True):
            assert r is out
            assert same_bits(out, e), describe(sample)
        first = tensors_in(expected)[0]
        if not many and first.dtype.is_floating_point and first.numel():
            narrow = tangrad.empty(tuple(first.shape), dtype=tangrad.int32, device=case.device)
            with pytest.raises(case.definition.out_refusal, match="can't be cast"):
                case.call(*args, **kwargs, out=narrow)


@pytest.mark.tangrad_cases(when=is_method)
def test_method_is_the_function(case: Case) -> None:
    name = case.op if hasattr(tangrad.Tensor, case.op) else case.definition.public_name
    for sample in case.samples():
        args, kwargs = tangrad_arguments(sample, case.device)
        if not args or not isinstance(args[0], tangrad.Tensor):
            continue
        try:
            expected = case.call(*args, **kwargs)
        except REFUSALS:
            continue
        args, kwargs = tangrad_arguments(sample, case.device)
        actual = getattr(args[0], name)(*args[1:], **kwargs)
        for a, e in zip(tensors_in(actual), tensors_in(expected), strict=True):
            good = agrees(as_array(a), as_array(e), dtype_name(e))
            assert good.all(), (
                f"{describe(sample)}: {describe_difference(as_array(a), as_array(e), good)}"
            )


def goes_to_meta(case: Case) -> bool:
    """Tell whether a result's geometry follows without data, on a device that has data."""
    d = case.definition
    return not d.shape_depends_on_data and case.device != "meta"


@pytest.mark.tangrad_cases(when=goes_to_meta, always=("float32",))
def test_meta_foretells_shape_dtype_and_strides(case: Case) -> None:
    for sample in case.samples():
        args, kwargs = tangrad_arguments(sample, case.device, case.definition)
        try:
            real = case.call(*args, **kwargs)
        except REFUSALS:
            continue
        args, kwargs = tangrad_arguments(sample, "meta", case.definition)
        try:
            meta = case.call(*args, **kwargs)
        except REFUSALS as error:
            if "data" not in str(error) and "meta" not in str(error):
                raise
            continue
        for m, r in zip(tensors_in(meta), tensors_in(real), strict=True):
            found = (tuple(m.shape), m.dtype, tuple(m.stride()))
            assert found == (tuple(r.shape), r.dtype, tuple(r.stride())), describe(sample)
            assert m.device.type == "meta"


def has_errors(case: Case) -> bool:
    """Tell whether an op lists wrong calls."""
    return case.definition.errors is not None


def has_errors_of_torch(case: Case) -> bool:
    """Tell whether torch has the op itself, and so refuses wrong calls of it."""
    return has_errors(case) and not callable(case.definition.oracle)


@pytest.mark.tangrad_cases(when=has_errors, always=("float32",), dtypes="float32")
def test_wrong_call_is_refused_as_its_definition_says(case: Case) -> None:
    for sample, kind, message in case.definition.errors(Sampler("float32")):
        args, kwargs = tangrad_arguments(sample, case.device, case.definition)
        with pytest.raises(kind, match=message):  # noqa: PT012
            case.call(*args, **kwargs)
            # A device that computes later finds what is wrong with the values later.
            get_driver(case.device).synchronize()


@pytest.mark.tangrad_cases(when=has_errors_of_torch, always=("float32",), dtypes="float32")
def test_wrong_call_is_refused_by_torch_with_the_same_type(case: Case) -> None:
    oracle = counterpart(case.definition)
    for sample, kind, _ in case.definition.errors(Sampler("float32")):
        _, result, refusal = ask_oracle(oracle, sample)
        assert refusal is not None, f"{describe(sample)}: torch returns {result!r}"
        kinds = kind if isinstance(kind, tuple) else (kind,)
        same = isinstance(refusal, kinds) or any(issubclass(k, type(refusal)) for k in kinds)
        assert same, f"{describe(sample)}: torch raises {refusal!r}"


@pytest.mark.tangrad_cases(when=is_random, always=("float32",))
def test_random_op_repeats_with_its_seed_on_every_device(case: Case) -> None:
    for sample in case.samples():
        known, expected, refusal = ask_oracle_if_any(case, sample)
        drawn = []
        for device in (case.device, case.device, "reference"):
            tangrad.manual_seed(1234)
            args, kwargs = tangrad_arguments(sample, device, case.definition)
            try:
                drawn.append(case.call(*args, **kwargs))
            except REFUSALS:
                assert refusal is not None or not known, f"{describe(sample)}: refused, torch draws"
                break
        if len(drawn) < 3 or refusal is not None:
            continue
        for first, second, reference in zip(*map(tensors_in, drawn), strict=True):
            assert same_bits(first, second), describe(sample)
            # All devices have the bits of uniform numbers; logarithms and cosines of those differ
            # in the last ones. Another mask or integer would differ by far more than the tolerance.
            good = agrees(as_array(first), as_array(reference), dtype_name(first))
            assert good.all(), describe(sample)
        for first, theirs in zip(tensors_in(drawn[0]), tensors_in(expected), strict=False):
            assert tuple(first.shape) == tuple(theirs.shape)
            assert str(first.dtype).rpartition(".")[2] == str(theirs.dtype).rpartition(".")[2]


def ask_oracle_if_any(case: Case, sample: Any) -> tuple[bool, Any, Exception | None]:
    """Return (whether torch has the op, its result, its refusal)."""
    try:
        oracle = counterpart(case.definition)
    except NoOracle:
        return False, None, None
    return (True, *ask_oracle(oracle, sample)[1:])


def test_the_devices_under_test_exist() -> None:
    """Name what is there, so that a typing error does not pass as an empty matrix."""
    assert tangrad.device("reference")
    assert tangrad.__version__
