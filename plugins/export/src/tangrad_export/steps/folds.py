"""Reductions: a state per result, to which the elements are folded."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from tangrad.plugin.compiled import loop_over
from tangrad.plugin.render import (
    ExpressionTypeError,
    Fold,
    Program,
    TypedFold,
    compute_type,
    render_conversion,
)
from tangrad_export.program.recording import current
from tangrad_export.steps.base import Number, Step, ctype
from tangrad_export.steps.functions import Function, argument, encode
from tangrad_export.steps.loops import (
    Access,
    Body,
    Evaluation,
    access,
    conversion,
    flat_index,
    function_of,
    headers,
    place,
)
from tangrad_export.target.dialect import DIALECT

__all__ = ["Reduction", "fold_kernel"]


class FoldFunctions:
    """The functions of a fold: map, combination and last step.

    Args:
        typed: the programs of the fold.
        results: dtypes of the results as they are stored.
    """

    def __init__(self, typed: TypedFold, results: Sequence[str]) -> None:
        definition = typed.fold.op.definition
        title = typed.fold.title
        first, second = definition.state_names("a"), definition.state_names("b")
        states = dict(zip((*first, *second), typed.states * 2, strict=True))
        element = {typed.fold.input: typed.dtype, "index": "int64"}
        self.typed, self.results = typed, tuple(results)
        self.first, self.second = tuple(first), tuple(second)
        self.states = list(typed.states)
        self.map = Function(f"{title}_map", typed.map, element, typed.states)
        self.combine = Function(f"{title}_combine", typed.combine, states, typed.states)
        self.finalize = None
        if typed.finalize is not None:
            self.finalize = Function(f"{title}_end", typed.finalize, states, results)
        self.params = self._params()

    @property
    def all(self) -> list[Function]:
        """The functions that there are."""
        known = [self.map, self.combine, self.finalize]
        return [f for f in known if f is not None]

    def _params(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for function in self.all:
            used = {str(s.value): s.type for s in function.program.instructions if s.op == "param"}
            for name in function.program.params:
                if name != "n":
                    found.setdefault(name, used.get(name, function.program.compute))
            found |= {n: t for n, t in used.items() if n != "n"}
        return found

    def call(
        self,
        function: Function,
        name: str,
        values: dict[str, str],
        params: dict[str, str],
        outs: Sequence[str],
    ) -> str:
        """Return the call of one of the functions."""
        program: Program = function.program
        indexed = [values["index"]] if function.indexed else []
        args = indexed + [values[text] for text in program.inputs]
        for param, dtype in function.params:
            if param == "n":
                args.append(values["n"])
            else:
                args.append(render_conversion(params[param], self.params[param], dtype))
        args += [f"&{out}" for out in outs]
        return function.call(name, args + ["&bad"] * function.divides)


class Reduction(Step):
    """Fold what a body computes over some dimensions.

    Args:
        functions: of the fold.
        kept, folded: the shape of the results, and of what is folded to one of them.
        body: computes the element, over the dimensions of both.
        element: (evaluation, result) that is folded, or the access of a load.
        outs: the places of the results, over the kept dimensions.
        params: {parameter: numbers}.
    """

    def __init__(
        self,
        functions: FoldFunctions,
        kept: Sequence[int],
        folded: Sequence[int],
        body: Body,
        element: tuple[Evaluation, int] | Access,
        outs: list[Access],
        params: dict[str, list[int | float]],
    ) -> None:
        self.fold, self.kept, self.folded = functions, tuple(kept), tuple(folded)
        self.body, self.element, self.outs, self.params = body, element, outs, params
        super().__init__([], (), [])
        self.settle()

    def accesses(self) -> list[Access]:
        """Return what is loaded, over kept and folded dimensions."""
        if isinstance(self.element, Access):
            return [self.element]
        return self.body.loads

    def settle(self) -> None:
        """Merge dimensions, and fix places and numbers."""
        loads, split = self.accesses(), len(self.kept)
        over = [(self.kept, a.strides) for a in self.outs]
        over += [(self.kept, a.strides[:split]) for a in loads]
        kept = loop_over(self.kept, over)
        inner = [(self.folded, a.strides[split:]) for a in loads]
        folded = loop_over(self.folded, inner, reorder=not self.fold.typed.indexed)
        self.refs = [a.ref for a in (*self.outs, *loads)]
        self.writes = tuple(range(len(self.outs)))
        self.ranks = len(kept.shape), len(folded.shape)
        self.numbers = [folded.elements, *kept.shape, *folded.shape]
        for strides in (*kept.strides, *folded.strides):
            self.numbers += strides
        self.numbers += self.body.numbers()
        for name in self.fold.params:
            self.numbers += self.params[name]
        self.work = kept.elements * folded.elements

    def structure(self) -> Hashable:
        """Return what is folded, and over how many dimensions."""
        element = None
        if not isinstance(self.element, Access):
            element = self.body.value_name(*self.element)
        texts = tuple(f.text for f in self.fold.all)
        dtypes = tuple(r.dtype for r in self.refs if r is not None)
        return "fold", self.ranks, self.body.structure(), element, texts, dtypes

    def functions(self) -> list[Function]:
        """Return the functions of the body and of the fold."""
        return [*(e.function for e in self.body.evaluations), *self.fold.all]

    def text(self, names: list[str], at: list[str], n: list[Number]) -> list[str]:
        """Return loops over the results, and within each over what is folded to it."""
        fold, (outer, inner) = self.fold, self.ranks
        count, ins = len(self.outs), len(self.refs) - len(self.outs)
        rest = list(n)

        def take(size: int) -> list[Number]:
            found = rest[:size]
            del rest[:size]
            return found

        (length,), kept, folded = take(1), take(outer), take(inner)
        of_outs = [take(outer) for _ in range(count)]
        of_ins = [take(outer) for _ in range(ins)]
        within = [take(inner) for _ in range(ins)]
        letters = [f"i{k}" if outer > 1 else "i" for k in range(outer)]
        inside = [f"r{k}" if inner > 1 else "r" for k in range(inner)]
        loads = [
            f"{pointer}[{place([*letters, *inside], [*a, *b])}]"
            for pointer, a, b in zip(at[count:], of_ins, within, strict=True)
        ]
        lines = self.body.lines(names[: len(self.body.evaluations)], loads, rest, "0")
        own = iter(names[len(self.body.evaluations) :])
        element = (
            loads[0] if isinstance(self.element, Access) else self.body.value_name(*self.element)
        )
        params = {}
        for name, dtype in fold.params.items():
            params[name] = argument(take(len(self.params[name])), dtype)
        values = {fold.typed.fold.input: element, "index": flat_index(inside, folded)}
        values["n"] = f"({DIALECT.type(fold.typed.count_type)}){_number(length)}"
        states = [f"s{k}" for k in range(len(fold.states))]
        mapped = [f"m{k}" for k in range(len(states))]
        joined = [f"t{k}" for k in range(len(states))]
        for state, dtype in zip((*mapped,), fold.states, strict=True):
            lines.append(f"{DIALECT.type(dtype)} {state};")
        lines.append(fold.call(fold.map, next(own), values, params, mapped))
        both = dict(zip((*fold.first, *fold.second), (*states, *mapped), strict=True))
        combine = [f"{DIALECT.type(d)} {t};" for t, d in zip(joined, fold.states, strict=True)]
        combine.append(fold.call(fold.combine, next(own), both | values, params, joined))
        combine += [f"{s} = {t};" for s, t in zip(states, joined, strict=True)]
        identity = fold.typed.fold.identity
        start = [f"{DIALECT.type(d)} {s} = 0;" for s, d in zip(states, fold.states, strict=True)]
        if identity is not None and not any(d.startswith("complex") for d in fold.states):
            start = [
                f"{DIALECT.type(d)} {s} = {DIALECT.literal(_value(v, d), d)};"
                for s, d, v in zip(states, fold.states, identity, strict=True)
            ]
            lines += combine
        else:
            start = [f"{DIALECT.type(d)} {s};" for s, d in zip(states, fold.states, strict=True)]
            start += [f"memset(&{s}, 0, sizeof {s});" for s in states]
            start.append("int any = 0;")
            first = " ".join(f"{s} = {m};" for s, m in zip(states, mapped, strict=True))
            lines += [f"if (!any) {{ any = 1; {first} }} else {{"]
            lines += [f"    {line}" for line in combine] + ["}"]
        body = [*start, *headers(inside, folded, lines)]
        results = states
        if fold.finalize is not None:
            results = [f"o{k}" for k in range(count)]
            body += [f"{ctype(d)} {o};" for o, d in zip(results, fold.results, strict=True)]
            known = dict(zip(fold.first, states, strict=True)) | values
            body.append(fold.call(fold.finalize, next(own), known, params, results))
        for pointer, steps, result, dtype in zip(at, of_outs, results, fold.results, strict=False):
            value = result
            if fold.finalize is None:
                value = render_conversion(result, fold.states[0], dtype)
            body.append(f"{pointer}[{place(letters, steps)}] = {value};")
        return headers(letters, kept, body)


def _number(value: Number) -> str:
    return f"({value})" if isinstance(value, str) else str(value)


def _value(value: Any, dtype: str) -> Any:
    return {"inf": float("inf"), "-inf": float("-inf")}.get(value, value)


def fold_kernel(op: Any, dtype: str) -> Any:
    """Return the kernel of a reduction that keeps folds, None where it has no meaning."""
    try:
        typed = Fold(op).typed(dtype)
        FoldFunctions(typed, typed.result_types)
    except ExpressionTypeError:
        return None
    made: dict[tuple[str, ...], FoldFunctions] = {}

    def kernel(outs: Any, x: Any, dims: Any, params: dict[str, Any]) -> None:
        if outs[0].numel() == 0:
            return
        recording = current()
        results = tuple(out.dtype.name for out in outs)
        functions = made.get(results)
        if functions is None:
            functions = made[results] = FoldFunctions(typed, results)
        keeps = [d for d in range(x.ndim) if d not in dims]
        reduced = [d for d in range(x.ndim) if d in dims]
        shape = tuple(x.shape)
        kept, folded = (tuple(shape[d] for d in part) for part in (keeps, reduced))
        whole = access(recording, x, shape)
        loaded = Access(whole.ref, tuple(whole.strides[d] for d in (*keeps, *reduced)))
        places = []
        for out in outs:
            strides = tuple(out.stride())
            places.append(Access(recording.ref(out), tuple(strides[d] for d in keeps)))
        encoded = {n: list(encode(params.get(n), t)) for n, t in functions.params.items()}
        body = Body([])
        element: tuple[Evaluation, int] | Access = loaded
        if x.dtype.name != dtype:
            function = function_of(
                "convert",
                conversion("convert").definition,
                compute_type(dtype),
                {"x": x.dtype.name},
                (dtype,),
            )
            evaluation = Evaluation(function, [("load", loaded)], [])
            body, element = Body([evaluation]), (evaluation, 0)
        recording.add(Reduction(functions, kept, folded, body, element, places, encoded))

    return kernel
