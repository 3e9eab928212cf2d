"""What a definition may say: each field once, with what holds where nothing is said.

A field is given by name to `pointwise`, `op` and the others, which pass all of them on whole, and
read as an attribute of the definition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any


class Results:
    """Which arguments have a result, and of what shape and dtype it is.

    Attributes:
        shape, dtype: rules of the results (functions over parameters by name).
        check: function over parameters by name that raises the op's own errors.
        checks_kinds: whether `check` is about kinds of numbers only: a float or int beside
            floating tensors is right.
        geometry: of a view, over parameters by name: (shape, stride, offset), or a list of such.
        memory_format: function over parameters by name -> the format of the results in memory;
            contiguous by default.
        shape_depends_on_data: whether the shape is not known before the values.
        promote: "promote", "float" (integers become the default dtype), "integral" or "number"
            (bool becomes int64).
        dtypes: accepted promoted dtypes, words of "bool integral floating complex all".
        numbers: whether a call without any tensor, on Python numbers alone, has a result.
        extra_dims: dimensions that a dim argument may name beyond those of the first tensor.
        any_dim: function over the list of tensors that says whether no dim argument is wrong; it
            is then 0.
        mixes_devices, allows_none_in_list: whether operands may be on several devices ("cpu": on
            that of the first and on the CPU); whether None may stand among the tensors of a list.
    """

    shape: Any = None
    dtype: Any = None
    check: Any = None
    checks_kinds: bool = False
    geometry: Any = None
    memory_format: Any = None
    shape_depends_on_data: bool = False
    promote: str = "promote"
    dtypes: str = "all"
    numbers: bool = False
    extra_dims: int = 0
    any_dim: Any = None
    mixes_devices: bool | str = False
    allows_none_in_list: bool = False


class Computing:
    """How a result comes about.

    Attributes:
        reference: NumPy kernel `(np, ...)` over parameters by name.
        decompose: tensor code with the same parameters, for devices without a kernel.
        function_body: a composite's tensor code.
        writes: a composite's in-place form, where it is not the result copied over the tensor.
        native: what the core computes by copies.
        loops: whether the kernels of an op that is not pointwise are loops all the same.
        random: whether it draws numbers. words: then, how many words of the counter-based engine a
            call takes. sequential: function over parameters by name, `generator` being the
            sequential engine, that returns the result.
        c_implementation: the name of what C computes in place of this definition, for the calls
            that programs make most (`native/c_implementations.pxi`).
        forgets_base: whether a view's result counts as the owner of its memory.
    """

    reference: Any = None
    decompose: Any = None
    function_body: Any = None
    writes: Any = None
    native: Any = None
    loops: bool = False
    random: bool = False
    words: Any = None
    sequential: Any = None
    c_implementation: str | None = None
    forgets_base: bool = False


class Derivatives:
    """What transforms make of the op.

    Attributes:
        vjp: {input: function}, {(inputs): function} or "none: reason". A function of inputs that
            have functions of their own, too, stands before these and is called if all are wanted.
        jvp: function over parameters by name and NAME_t, or None.
        linear: inputs in which the op is (multi)linear.
        batch: "dims", a function, or None for a loop over the batch.
        surrogate: why the derivative is on purpose another than the slope (a straight-through
            estimate, one triangle of a symmetric matrix): the kit then does not compare them.
        node: name in `grad_fn`, in snake case, where it differs from the op's.
    """

    vjp: Any = None
    jvp: Any = None
    linear: Sequence[str] = ()
    batch: Any = None
    surrogate: str | None = None
    node: str | None = None


class Forms:
    """How programs reach the op.

    Attributes:
        namespace: "nn" where only `nn.functional` shows the op; "linalg", "fft", "special",
            "windows" where only the module of that name does, without this prefix of the name.
        alias: further names. function, method, inplace: which forms exist; a method does, unless a
            namespace shows the op.
        names: {further keyword: parameter}, where PyTorch has several names for one.
        varargs: whether the last positional parameter, a list of tensors, may be given as single
            ones.
        old_form: (keywords of factors that old programs write in front, how many tensors follow
            the first), or "labels": of operands, each followed by its own.
        out: whether results can be written to tensors given as out=. Default: what has a kernel
            can, views and composites cannot; a composite that says True copies its results.
        strict_out: whether these must be apart from the inputs in memory, as a kernel that writes
            where it still reads has it; "in place": what its in-place form writes must be,
            instead. strict_out_dtype: whether they must have the result's
            dtype, not only one it casts to. any_out_dtype: whether they may have any, as results
            of 0 and 1 are in each.
        overlapping: function over the parameters that stands for the in-place form where elements
            of what it writes share memory, which it refuses by default.
        out_refusal: the exception for out= of a dtype to which the result cannot be cast.
        doc: first line imperative.
    """

    namespace: str | None = None
    alias: Sequence[str] = ()
    method: bool | None = None
    function: bool = True
    inplace: bool = False
    names: Mapping[str, str] | None = None
    varargs: bool = False
    old_form: tuple[tuple[str, ...], int] | str | None = None
    out: bool | None = None
    strict_out: bool | str = False
    strict_out_dtype: bool = False
    any_out_dtype: bool = False
    overlapping: Any = None
    out_refusal: type[Exception] = RuntimeError
    doc: str | None = None


class Examples:
    """What tests call the op with.

    Attributes:
        samples, errors: functions of a Sampler.
        oracle: name of PyTorch's counterpart, or a callable (torch, *args).
    """

    samples: Callable[..., Any] | None = None
    errors: Callable[..., Any] | None = None
    oracle: Any = None


class Elements:
    """What a pointwise op says besides.

    Attributes:
        results: dtype of each output: "promoted", "bool", "real" or a dtype's name.
        fixed: inputs that take no part in promotion, with their dtype.
        partials: authored partial derivatives; derived from the expression otherwise.
        exact_numbers: beside a tensor of half precision, a Python number given as an `Operand`
            keeps its value; else it is rounded as an element would be.
        beyond: what becomes of a number, given as an `Operand`, that the dtype computed in has no
            place for: "refused"; "wrapped" around, an integer beside integers; or, in the core's
            own ops, "compared" or "divided" by as it is. A word for all operands, or one for each;
            then for each `Scalar`, or all, "narrow" where a half dtype has to hold it, or "wide",
            as by default, where that in which is computed has to.
    """

    results: Sequence[str] = ("promoted",)
    fixed: Mapping[str, str] = {}
    partials: Mapping[str, Any] = {}
    exact_numbers: bool = False
    beyond: str = "refused"


class States:
    """What a fold says besides.

    Attributes:
        results: as for a pointwise op; "truth" is bool, and uint8 of uint8.
        keeps_without_dims: whether an empty list of dimensions reduces none of them, where else it
            reduces all.
    """

    results: Sequence[str] = ("promoted",)
    keeps_without_dims: bool = False


def names_in(*groups: type) -> frozenset[str]:
    """Return the names of the fields of groups."""
    return frozenset(name for group in groups for name in group.__annotations__)


def refuse_unknown(op: str, said: Mapping[str, Any], known: frozenset[str]) -> None:
    """Raise TypeError unless all that is said of an op are fields."""
    for name in sorted(said.keys() - known):
        from difflib import get_close_matches

        near = get_close_matches(name, sorted(known), 1)
        hint = f"; did you mean '{near[0]}'?" if near else ""
        raise TypeError(f"the definition of '{op}' has no field '{name}'{hint}")
