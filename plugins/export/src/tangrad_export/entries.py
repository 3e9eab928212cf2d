"""A program as a function of the file: laid out at as many sizes as it takes to know it at all."""

from __future__ import annotations

from functools import partial
from typing import Any

import tangrad
from tangrad import Tensor
from tangrad.export import export as exported
from tangrad.utils import _pytree
from tangrad_export.errors import ExportError
from tangrad_export.plan.arena import place
from tangrad_export.plan.cleaning import fold_norms, join_rectifiers, without_unused
from tangrad_export.plan.entry import (
    Entry,
    Parameter,
    Size,
    Variant,
    make_constants,
    refuse_written_inputs,
)
from tangrad_export.plan.fusion import fuse
from tangrad_export.plan.sizes import fitted, points_of, variants_of
from tangrad_export.program.layouts import array_of, note_of, with_array
from tangrad_export.program.running import LaidOut, lay_out
from tangrad_export.steps.base import Number, Step
from tangrad_export.text.names import parameter_name

__all__ = [
    "Entries",
    "example_leaves",
    "leaves_at",
    "names_of",
    "ordered_sizes",
    "program_of",
    "run_entry",
    "sizes_of",
]


def program_of(model: Any, args: tuple[Any, ...], dynamic_shapes: Any) -> Any:
    """Return `tangrad.export.export` of a model; what it refuses is an `ExportError`."""
    try:
        return exported(model, args, dynamic_shapes=dynamic_shapes)
    except (RuntimeError, NotImplementedError) as error:
        if "export:" not in str(error):
            raise
        known = {kind: getattr(error, kind, None) for kind in ("op", "dtype", "module", "where")}
        raise ExportError(str(error), **known) from error


def example_leaves(program: Any) -> list[Any]:
    """Return the leaves of a program's example."""
    if program.example_inputs is None:
        raise ExportError("the program has no example: export.c needs one for its self-test")
    return list(_pytree.tree_leaves(program.example_inputs))


def sizes_of(program: Any) -> list[Size]:
    """Return the sizes that vary, in the order of their first appearance.

    Raises:
        ExportError: one has no greatest value.
    """
    found = sorted(
        program.range_constraints.values(),
        key=lambda size: min((place.input, place.dim) for place in size.places),
    )
    taken: set[str] = set()
    made = []
    for size in found:
        if size.max is None:
            raise ExportError(
                f"the size {size.name!r} has no greatest value: the arena is static; give it one, "
                f"as in Dim({size.name!r}, min=1, max=8)"
            )
        made.append(Size(parameter_name(size.name, "size", taken), size.min, size.max))
    return made


def ordered_sizes(program: Any) -> list[Any]:
    """Return the program's own descriptions of the sizes that vary, in the same order."""
    return sorted(
        program.range_constraints.values(),
        key=lambda size: min((place.input, place.dim) for place in size.places),
    )


def leaves_at(program: Any, leaves: list[Any], point: tuple[int, ...]) -> list[Any]:
    """Return arguments without values, of other sizes."""
    shapes = {k: list(x.shape) for k, x in enumerate(leaves) if isinstance(x, Tensor)}
    for size, value in zip(ordered_sizes(program), point, strict=True):
        for at in size.places:
            shapes[at.input][at.dim] = at.of(value)
    return [
        with_array(x, tangrad.empty(shapes[k], dtype=array_of(x).dtype, device="meta"))
        if k in shapes
        else x
        for k, x in enumerate(leaves)
    ]


def names_of(program: Any, leaves: list[Any], sizes: list[Size]) -> list[str]:
    """Return names of the inputs that are tensors, as identifiers."""
    nodes = [n for n in program.graph.nodes if n.op == "placeholder"]
    specs = program.graph_signature.input_specs
    taken = {size.name for size in sizes}
    found = []
    users = (n for n, s in zip(nodes, specs, strict=True) if s.kind.name == "USER_INPUT")
    for node, leaf in zip(users, leaves, strict=True):
        if isinstance(leaf, Tensor):
            found.append(parameter_name(str(node.target), "in", taken))
    return found


def settled(laid: LaidOut) -> list[Step]:
    """Return the steps of a program behind all passes."""
    results = {b for b, _, _ in laid.outputs}
    steps = without_unused(make_constants(laid.steps), results)
    steps = fold_norms(steps, results, laid.constant)
    steps = fuse(join_rectifiers(steps, results), results)
    for step in steps:
        step.settle()
    return steps


def run_entry(program: Any, trained: bool) -> Entry:
    """Return the function that runs a program.

    Args:
        program: what `tangrad.export.export` gives.
        trained: whether its weights change between two calls.
    """
    leaves, sizes = example_leaves(program), sizes_of(program)
    names = names_of(program, leaves, sizes)
    wanted = eager(program, leaves)
    given = [x for x in leaves if isinstance(x, Tensor)]
    run = partial(_run_at, program, leaves, names, len(sizes), trained)
    made = Entries(run, sizes)
    laid, variants = made.laid, made.variants
    shapes = made.shapes([[s for _, s, _ in kept.outputs] for kept in made.all])
    in_shapes = made.shapes(
        [
            [x.shape for x in leaves_at(program, leaves, p[: len(sizes)]) if isinstance(x, Tensor)]
            for p in made.points
        ]
    )
    reports = any(
        ref is not None and ref.buffer.kind == "error"
        for v in variants
        for s in v.steps
        for ref in s.refs
    )
    inputs = [
        Parameter(name, array_of(x).dtype.name, tuple(shape), array_of(x), note_of(x))
        for name, x, shape in zip(names, given, in_shapes, strict=True)
    ]
    outputs = [
        Parameter(
            f"out{k}" if len(shapes) > 1 else "out",
            dtype,
            tuple(shape),
            array_of(value),
            note_of(value),
        )
        for k, ((_, _, dtype), shape, value) in enumerate(
            zip(laid.outputs, shapes, wanted, strict=True)
        )
    ]
    if len(shapes) == 1:
        for variant in variants:
            for step in variant.steps:
                for ref in step.refs:
                    if ref is not None and ref.buffer.kind == "output":
                        ref.buffer.name = "out"
    entry = Entry("run", sizes, inputs, outputs, variants, reports)
    entry.changing, entry.draws = made.changing, made.draws
    entry.example_sizes = [int(size.example) for size in ordered_sizes(program)]
    refuse_written_inputs(entry)
    return entry


def _run_at(
    program: Any,
    leaves: list[Any],
    names: list[str],
    count: int,
    trained: bool,
    point: Any,
    drawn: int,
    taken: int,
) -> LaidOut:
    given = leaves_at(program, leaves, point) if count else leaves
    return lay_out(program, given, names, drawn, trained)


class Entries:
    """A program laid out at as many sizes as it takes to know it at all.

    Args:
        lay_out: called with sizes, a place in the random stream, and how many steps were taken.
        sizes: those that vary.
        counts: whether the program depends on the number of steps taken.

    Attributes:
        laid: the program at the smallest sizes.
        all: the program at all `points`.
        variants: what is written.
        changing: what changes from call to call.
        draws: how many counters of the random stream a call takes: C, or a number.
    """

    def __init__(self, lay_out: Any, sizes: list[Size], counts: bool = False) -> None:
        smallest = tuple(size.min for size in sizes)
        self.laid = lay_out(smallest, 0, 0)
        self.changing = ["drawn"] * bool(self.laid.drawn) + ["taken"] * counts
        self.points, self.every = points_of(sizes, self.changing)
        self.names = [*(size.name for size in sizes), *self.changing]
        kept: dict[Any, LaidOut] = {}

        def at(point: Any) -> list[Step]:
            changes = dict(zip(self.changing, point[len(sizes) :], strict=True))
            drawn, taken = changes.get("drawn", 0), changes.get("taken", 0)
            kept[point] = lay_out(point[: len(sizes)], drawn, taken)
            return settled(kept[point])

        if sizes or self.changing:
            self.variants = variants_of(sizes, self.changing, at)
        else:
            kept[()] = self.laid
            steps = settled(self.laid)
            numbers: list[list[Number]] = [list(step.numbers) for step in steps]
            offsets: list[list[Number]] = [
                [0 if r is None else r.offset for r in step.refs] for step in steps
            ]
            self.variants = [Variant("", steps, numbers, offsets, place(steps))]
        self.all = [kept[point] for point in self.points]
        self.draws = fitted(self.names, self.points, [x.drawn for x in self.all], self.every)

    def shapes(self, shapes: list[list[Any]]) -> list[list[Any]]:
        """Return shapes whose sizes may depend on sizes that vary, given those at all points."""
        made = []
        for k in range(len(shapes[0])):
            dims = [[int(s[k][d]) for s in shapes] for d in range(len(shapes[0][k]))]
            made.append([fitted(self.names, self.points, dim, self.every) for dim in dims])
        return made


def eager(program: Any, leaves: list[Any]) -> list[Any]:
    """Return what the program gives for its example, the results that are tensors."""
    args, kwargs = program.example_inputs
    held = {id(t): t for t in (*program.buffers(), *program.constants.values())}
    before = [(t, t.detach().clone()) for t in held.values()]
    with tangrad.no_grad(), tangrad.random.fork_rng(devices=[]):
        copies = _pytree.tree_map(
            lambda x: x.detach().clone() if isinstance(x, Tensor) else x, (args, kwargs)
        )
        try:
            result = program.module(check_guards=False)(*copies[0], **copies[1])
            result = _pytree.tree_map(
                lambda r: r.detach().clone() if isinstance(r, Tensor) else r, result
            )
        finally:
            for t, value in before:  # which the program may have written
                t.detach().copy_(value)
    found = [r for r in _pytree.tree_leaves(result) if isinstance(r, Tensor)]
    return [_whole(r) for r in found]


def _whole(t: Any) -> Any:
    if t.layout is not tangrad.strided:
        return t
    return t.resolve_conj().resolve_neg().detach()
