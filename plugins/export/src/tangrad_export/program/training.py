"""A step of training as a program: forward, backward and the optimizer's update."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tangrad
from tangrad import Tensor
from tangrad.nn import Module as Model
from tangrad_export.entries import (
    Entries,
    example_leaves,
    leaves_at,
    names_of,
    ordered_sizes,
    program_of,
    sizes_of,
)
from tangrad_export.errors import ExportError
from tangrad_export.plan.entry import Entry, Parameter, refuse_written_inputs
from tangrad_export.program.differentiated import differentiated
from tangrad_export.program.recording import Origin, Recording
from tangrad_export.program.running import (
    Kept,
    LaidOut,
    Runner,
    counters_of,
    on_device,
    origin_of,
    place_output,
    random_stream,
)
from tangrad_export.steps.reports import guard

__all__ = ["train_entry"]

# How a step goes over its parameters, which its results do not depend on.
_AT_ONCE = {"foreach": None, "fused": None, "differentiable": False}
_OPTIMIZERS = ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad")


class _Loss(Model):
    """A model with its loss, as one module.

    Args:
        model: the model.
        loss: called as `loss(model(*inputs), targets)`.
        inputs: how many inputs there are.
        several: whether the targets are a tuple.
    """

    def __init__(self, model: Any, loss: Any, inputs: int, several: bool) -> None:
        super().__init__()
        self.model, self.loss, self.inputs, self.several = model, loss, inputs, several

    def forward(self, *args: Any) -> Any:
        """Return the loss."""
        given, targets = args[: self.inputs], args[self.inputs :]
        return self.loss(self.model(*given), tuple(targets) if self.several else targets[0])


def train_entry(
    model: Any,
    args: tuple[Any, ...],
    dynamic_shapes: Any,
    loss: Any,
    targets: Any,
    optimizer: Any,
    run: Entry,
) -> Entry:
    """Return the function that takes a step of training.

    Its inputs are called as those of `run`.

    Raises:
        ExportError: the optimizer, the loss or an op cannot be written.
    """
    _check(model, optimizer)
    several = isinstance(targets, (tuple, list))
    wanted = tuple(targets) if several else (targets,)
    step = _Loss(model, loss, len(args), several)
    step.training = model.training
    shapes = _shapes(dynamic_shapes, args, wanted)
    with tangrad.enable_grad():
        program = program_of(step, (*args, *wanted), shapes)
    leaves, sizes = example_leaves(program), sizes_of(program)
    names = names_of(program, leaves, sizes)
    names[: len(run.inputs)] = [p.name for p in run.inputs]
    for k in range(len(wanted)):
        names[len(names) - len(wanted) + k] = f"target_{k}" if several else "target"
    first = _eager_loss(step, (*args, *wanted))
    state = _started(optimizer)

    def at(point: Any, drawn: int, taken: int) -> LaidOut:
        given = leaves_at(program, leaves, point) if sizes else leaves
        return _lay_out(program, given, names, optimizer, state, drawn, taken)

    made = Entries(at, sizes, counts=_counts(optimizer))
    given = [x for x in leaves if isinstance(x, Tensor)]
    shapes_in = made.shapes(
        [
            [x.shape for x in leaves_at(program, leaves, p[: len(sizes)]) if isinstance(x, Tensor)]
            for p in made.points
        ]
    )
    inputs = [
        Parameter(name, x.dtype.name, tuple(shape), x)
        for name, x, shape in zip(names, given, shapes_in, strict=True)
    ]
    reports = any(
        ref is not None and ref.buffer.kind == "error"
        for v in made.variants
        for s in v.steps
        for ref in s.refs
    )
    entry = Entry("train_step", sizes, inputs, [], made.variants, reports)
    entry.changing, entry.draws = made.changing, made.draws
    entry.example_sizes = [int(size.example) for size in ordered_sizes(program)]
    entry.example_loss, entry.loss_dtype = float(first), first.dtype.name
    refuse_written_inputs(entry)
    return entry


def _check(model: Any, optimizer: Any) -> None:
    kind = type(optimizer).__name__
    if not isinstance(model, Model):
        raise ExportError("training=True needs a module with parameters")
    if kind not in _OPTIMIZERS or not type(optimizer).__module__.startswith("tangrad.optim"):
        known = ", ".join(_OPTIMIZERS)
        raise ExportError(f"the optimizer {kind} cannot be written; these can: {known}")
    own = {id(p) for p in model.parameters()}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if id(parameter) not in own:
                raise ExportError("the optimizer has a parameter that is not the model's")


def _counts(optimizer: Any) -> bool:
    """Return whether an optimizer's numbers depend on how many steps it has taken."""
    return type(optimizer).__name__ == "Adagrad" and any(
        group["lr_decay"] for group in optimizer.param_groups
    )


def _shapes(declared: Any, args: tuple[Any, ...], targets: tuple[Any, ...]) -> Any:
    """Return which sizes vary, of targets those that are the inputs' first dimension."""
    if declared is None:
        return None
    shapes = list(declared.values()) if isinstance(declared, dict) else list(declared)
    if len(shapes) == len(args):
        first: Any = None
        for value, shape in zip(args, shapes, strict=True):
            if isinstance(value, Tensor) and shape:
                found = shape.get(0) if isinstance(shape, dict) else shape[0]
                first = first or (found and (found, value.shape[0]))
        for target in targets:
            same = first and target.dim() and target.shape[0] == first[1]
            shapes.append({0: first[0]} if same else None)
    return tuple(shapes)


def _eager_loss(step: Any, args: tuple[Any, ...]) -> Tensor:
    buffers = {path: b.detach().clone() for path, b in step.named_buffers()}
    with tangrad.no_grad(), tangrad.random.fork_rng(devices=[]):
        found = step(*args)
        for path, b in step.named_buffers():
            b.copy_(buffers[path])
    if not isinstance(found, Tensor) or found.numel() != 1:
        raise ExportError("the loss is no tensor of one element")
    if found.dtype.name not in ("float32", "float64"):
        raise ExportError(f"the loss is of {found.dtype}", dtype=found.dtype.name)
    return found.detach()


def _started(optimizer: Any) -> dict[Any, dict[str, Any]]:
    """Return the optimizer's state; what it has not begun with is what it begins with.

    A copy takes a step without gradients, which leaves all but the number of steps as it starts.
    """
    parameters = [p for g in optimizer.param_groups for p in g["params"]]
    own, twin = copy.deepcopy((parameters, optimizer))
    twin.param_groups = [
        {**g, "weight_decay": 0.0, "lr": 0.0, "nesterov": False} for g in twin.param_groups
    ]
    fresh = [not optimizer.state.get(p) for p in parameters]
    damped = {p: g.get("dampening") for g in optimizer.param_groups for p in g["params"]}
    for p, new in zip(own, fresh, strict=True):
        p.grad = tangrad.zeros_like(p) if new and p.requires_grad else None
    hooks = {n: dict(v) for n, v in vars(twin).items() if n.endswith("_hooks")}
    for name in hooks:
        getattr(twin, name).clear()
    twin.step()
    found: dict[Any, dict[str, Any]] = {}
    for p, q, new in zip(parameters, own, fresh, strict=True):
        held = dict((twin.state if new else optimizer.state).get(q if new else p, {}))
        if new and "step" in held:
            held["step"] = held["step"] - 1
        if new and "momentum_buffer" in held and damped.get(p):
            held["begun"] = tangrad.zeros(1)  # 1 behind its first step, which is not dampened
        if any(v is not None for v in held.values()):
            found[p] = held
    return found


class _Numbered(Kept):
    """A tracer that also answers for the number of steps that an optimizer has taken."""

    def __init__(self, recording: Recording, taken: int) -> None:
        super().__init__(recording)
        self.taken = taken

    def number(self, t: Any) -> float:
        """Return the number of steps, this one included; other numbers as they are."""
        if t.device.type != "c99":
            return float(t.item())
        buffer = self.recording.ref(t).buffer
        if not buffer.name.endswith(".step"):
            raise self.recording.refusal("the optimizer looks at a value")
        return float(buffer.value.item()) + self.taken + 1


@contextmanager
def _moved(
    recording: Recording, parameters: dict[str, Any], optimizer: Any, state: Any
) -> Iterator[None]:
    """Have parameters and the optimizer's state on the device for a while."""
    kept = [(p, p.data, p.grad) for p in parameters.values()]
    before, called = optimizer.state, vars(optimizer).get("_opt_called")
    titles = {id(p): path for path, p in parameters.items()}
    hows = [{n: g[n] for n in _AT_ONCE if n in g} for g in optimizer.param_groups]
    try:
        with tangrad.no_grad():
            for path, p in parameters.items():
                p.data = recording.bind(p.detach(), "weight", path)
                p.grad = None
            moved: Any = type(before)(dict)
            for p, held in state.items():
                path = titles[id(p)]
                moved[p] = {
                    name: recording.bind(value.detach(), "weight", f"optimizer.{path}.{name}")
                    if isinstance(value, Tensor)
                    else value
                    for name, value in held.items()
                }
                begun = moved[p].pop("begun", None)
                if begun is not None:
                    momentum = recording.keep(moved[p]["momentum_buffer"])
                    recording.begun[momentum] = recording.ref(begun)
            optimizer.state = moved
            # One op for all parameters: it takes the number of steps from the state.
            for group in optimizer.param_groups:
                group.update((name, value) for name, value in _AT_ONCE.items() if name in group)
        yield
    finally:
        optimizer.state = before
        for group, values in zip(optimizer.param_groups, hows, strict=True):
            group.update(values)
        if called is None:
            vars(optimizer).pop("_opt_called", None)
        for p, data, grad in kept:
            p.data, p.grad = data, grad


def _lay_out(
    program: Any,
    leaves: list[Any],
    names: list[str],
    optimizer: Any,
    state: Any,
    drawn: int,
    taken: int,
) -> LaidOut:
    """Return the steps of a step of training."""
    recording = Recording()
    recording.weights_stay = False
    parameters: dict[str, Any] = {}
    seen: set[int] = set()
    for path in program.graph_signature.parameters:
        p = program._tensor(path)
        if id(p) not in seen:
            seen.add(id(p))
            parameters[path.removeprefix("model.")] = p
    bound: dict[str, Tensor] = {}

    def bind(path: str) -> Tensor:
        if path not in bound:
            held = program._tensor(path)
            if id(held) in seen:
                bound[path] = held
            else:
                name = path.removeprefix("model.")
                bound[path] = recording.bind(held.detach(), "weight", name)
        return bound[path]

    tracer = _Numbered(recording, taken)
    with (
        on_device(recording, True, tracer),
        random_stream(drawn) as generator,
        _moved(recording, parameters, optimizer, state),
    ):
        runner = _Training(program, recording, bind)
        (result,) = runner.run(leaves, names)
        recording.origin = Origin("", "", True)
        if not result.requires_grad:
            raise ExportError("the loss depends on no parameter that requires a gradient")
        result.backward()
        recording.origin = Origin("optimizer")
        # A copy, as the step may write what the loss was computed from.
        output = place_output(recording, result.detach().clone(), 0)
        guard(recording)
        optimizer.step()
    output[0].name = "loss"
    inputs = [recording.keep(t) for _, t in runner.inputs]
    made = LaidOut(recording, inputs, [output])
    made.drawn = counters_of(generator, drawn)
    return made


class _Training(Runner):
    """Runs a graph so that its derivative knows which call each step is of."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._known: set[int] = set()
        self._held: list[Any] = []

    def _branch_or_loop(self, node: Any) -> None:
        self.values[node] = differentiated(self, node)

    def _call(self, node: Any) -> None:
        super()._call(node)
        if node not in self.values:
            return
        origin = origin_of(node)._replace(backward=True)
        found = self.values[node]
        for value in found if isinstance(found, (list, tuple)) else [found]:
            if isinstance(value, Tensor):
                self._mark(value.grad_fn, origin)

    def _mark(self, node: Any, origin: Origin) -> None:
        waiting = [node]
        while waiting:
            node = waiting.pop()
            if node is None or id(node) in self._known or not hasattr(node, "register_prehook"):
                continue
            self._known.add(id(node))
            self._held.append(node)

            def enter(*grads: Any, origin: Origin = origin) -> None:
                self.recording.origin = origin

            node.register_prehook(enter)
            waiting += [other for other, _ in node.next_functions]
