"""A table of a model's layers: what each gives, holds and costs."""

from __future__ import annotations

from typing import Any, NamedTuple

import tangrad
from tangrad.nn.modules.module import Module, register_module_forward_hook
from tangrad.nn.notebooks import shown
from tangrad.plugin.observe import tensors_in
from tangrad.utils.flop_counter import FlopCounterMode

__all__ = ["Row", "Summary", "summary"]

_HEADINGS = ("Layer", "Output shape", "Parameters", "FLOPs", "Output memory", "Dead")
_LEFT = 2  # columns of text; the others are numbers
_MOST_NAMES = 6  # of parameters in a line
# By chance, one place in 256 behind a ReLU is zero for so many samples.
_FEWEST_SAMPLES = 8


class Row(NamedTuple):
    """One module of a `Summary`.

    Attributes:
        name: its path in the model; "" is the model.
        kind: its class.
        depth: how many modules are around it.
        output: shapes of the tensors that it gave in its last call, as text.
        calls: how often it was called.
        parameters: number of elements of its parameters and those below it.
        flops: floating-point operations of products and convolutions, a multiply-add as two.
        output_bytes: size of what it gave in all its calls, unless it called modules below it.
        dead: share of the places of a sample, all dimensions but the first, that were zero for
            every sample of each call; 0.0 where it called modules below it, for fewer than eight
            samples, and where sizes stood in place of an input.
    """

    name: str
    kind: str
    depth: int
    output: str
    calls: int
    parameters: int
    flops: int
    output_bytes: int
    dead: float = 0.0


class Summary(NamedTuple):
    """What `summary` found; its text is the table.

    Attributes:
        rows: one for each module, the model first.
        parameters: number of elements of all parameters.
        trainable: of those that require a gradient.
        flops: floating-point operations of one forward pass.
        state_bytes: size of parameters and buffers.
        output_bytes: size of what the innermost modules gave; training keeps about so much for
            backward, and the gradients of the parameters besides.
        zero_gradients: names of parameters whose gradient, as the last backward left it, is zero.
        missing_gradients: names of those that require one and have none, if others have.
    """

    rows: list[Row]
    parameters: int
    trainable: int
    flops: int
    state_bytes: int
    output_bytes: int
    zero_gradients: tuple[str, ...] = ()
    missing_gradients: tuple[str, ...] = ()

    def __str__(self) -> str:
        table = [_HEADINGS, *map(_cells, self.rows)]
        if not any(row.dead for row in self.rows):
            table = [cells[:-1] for cells in table]
        widths = [max(len(cells[i]) for cells in table) for i in range(len(table[0]))]
        lines = [
            "  ".join(
                cell.ljust(width) if i < _LEFT else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
            ).rstrip()
            for cells in table
        ]
        rule = "-" * len(lines[0])
        held = f"{_count(self.parameters)} parameters"
        if self.trainable != self.parameters:
            held += f", {_count(self.trainable)} trainable"
        return "\n".join(
            [
                lines[0],
                rule,
                *lines[1:],
                rule,
                f"{held}; {_size(self.state_bytes)} with the buffers",
                f"{_scaled(self.flops)} FLOPs in a forward pass, "
                f"{_size(self.output_bytes)} of outputs of layers",
                *self._of_gradients(),
            ]
        )

    def _of_gradients(self) -> list[str]:
        """Return a line on gradients that are zero or missing, if there are such."""
        told = []
        if self.zero_gradients:
            told.append(f"zero for {_listed(self.zero_gradients)}")
        if self.missing_gradients:
            told.append(f"none for {_listed(self.missing_gradients)}")
        return [f"gradients: {'; '.join(told)} (why_no_grad tells why)"] if told else []

    def _repr_html_(self) -> str | None:
        return shown("nn.Summary._repr_html_", self)

    def __repr__(self) -> str:
        return f"<Summary: {_count(self.parameters)} parameters, {_scaled(self.flops)} FLOPs>"


def summary(
    model: Any, *input: Any, depth: int | None = None, show: bool = True, **kwargs: Any
) -> Summary:
    """Call a model once and tell what its modules gave, hold and cost.

    The call is in evaluation mode without gradients, so it leaves the model as it was. Of
    gradients it tells what the last backward left.

    Args:
        model: the module.
        *input: what it is called with: tensors, or tuples of sizes in place of float tensors.
        depth: how many levels of modules the table shows; all by default.
        show: print the table.
        **kwargs: keyword arguments of the call.

    Returns:
        The figures; `str()` of it is the table.
    """
    args = [tangrad.zeros(x) if _is_size(x) else x for x in input]
    modes = {module: module.training for module in model.modules()}
    outputs: dict[Any, list[Any]] = {module: [] for module in modes}
    silent_places: dict[Any, Any] = {}
    are_real = not any(map(_is_size, input))

    def keep(module: Any, args: Any, output: Any) -> None:
        if module in outputs:
            outputs[module].append([(tuple(x.shape), x.nbytes) for x in tensors_in(output)])
            if are_real and isinstance(output, tangrad.Tensor):
                _note_silence(silent_places, module, output)

    kind = type(model).__name__
    paths = {id(m): f"{kind}.{name}" if name else kind for name, m in model.named_modules()}
    hook = register_module_forward_hook(keep)
    try:
        model.eval()
        with tangrad.no_grad(), FlopCounterMode(display=False) as counter:
            # By path from the first: also below a ModuleList, which is not called itself.
            counter.modules.names.update(paths)
            model(*args, **kwargs)
    finally:
        hook.remove()
        for module, training in modes.items():
            module.training = training
    counts = counter.get_flop_counts()
    rows = []
    for name, module in model.named_modules():
        calls = outputs[module]
        silent = "" if type(module).forward is Module.forward else "not called"
        leaf = not any(outputs[child] for child in module.children())
        rows.append(
            Row(
                name,
                type(module).__name__,
                name.count(".") + 1 if name else 0,
                ", ".join(str(list(shape)) for shape, _ in calls[-1]) if calls else silent,
                len(calls),
                sum(p.numel() for p in module.parameters()),
                sum(counts.get(paths[id(module)], {}).values()),
                sum(nbytes for call in calls for _, nbytes in call) if leaf else 0,
                _share(silent_places.get(module)) if leaf else 0.0,
            )
        )
    parameters = list(model.parameters())
    result = Summary(
        rows if depth is None else [row for row in rows if row.depth <= depth],
        rows[0].parameters,
        sum(p.numel() for p in parameters if p.requires_grad),
        rows[0].flops,
        sum(x.nbytes for x in (*parameters, *model.buffers())),
        sum(row.output_bytes for row in rows),
        *_gradients(model),
    )
    if show:
        print(result)
    return result


def _note_silence(silent_places: dict[Any, Any], module: Any, output: Any) -> None:
    """Keep where a module has given zero for every sample so far."""
    if output.dim() < 2 or not output.is_floating_point() or output.device.type == "meta":
        return
    if output.layout != tangrad.strided or output.shape[0] < _FEWEST_SAMPLES or not output.numel():
        return
    silent = (output == 0).all(0)
    before = silent_places.get(module)
    if before is not None and before.shape == silent.shape:
        silent = silent & before
    silent_places[module] = silent


def _share(silent: Any) -> float:
    return 0.0 if silent is None else float(silent.sum().item()) / silent.numel()


def _gradients(model: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of parameters whose gradients are zero, and of those that have none."""
    asked = {name: p for name, p in model.named_parameters() if p.requires_grad}
    came = {name: p.grad for name, p in asked.items() if p.grad is not None}
    readable = {n: g for n, g in came.items() if g.layout == tangrad.strided and not g.is_meta}
    zero = tuple(name for name, grad in readable.items() if not bool((grad != 0).any()))
    return zero, tuple(name for name in asked if name not in came) if came else ()


def _listed(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:_MOST_NAMES])
    left = len(names) - _MOST_NAMES
    return f"{shown} and {left} more" if left > 0 else shown


def _is_size(value: Any) -> bool:
    return isinstance(value, tuple) and bool(value) and all(type(n) is int for n in value)


def _cells(row: Row) -> tuple[str, ...]:
    last = row.name.rpartition(".")[2]
    label = "  " * row.depth + (f"{last}: {row.kind}" if last else row.kind)
    if row.calls > 1:
        label += f" (called {row.calls} times)"
    return (
        label,
        row.output,
        _count(row.parameters) if row.parameters else "",
        _scaled(row.flops) if row.flops else "",
        _size(row.output_bytes) if row.output_bytes else "",
        f"{row.dead:.0%}" if row.dead else "",
    )


def _count(number: int) -> str:
    return f"{number:,}"


def _scaled(number: float) -> str:
    return _with_unit(number, 1000, ("", " K", " M", " G", " T", " P"))


def _size(nbytes: float) -> str:
    return _with_unit(nbytes, 1024, (" B", " KiB", " MiB", " GiB", " TiB"))


def _with_unit(number: float, step: int, units: tuple[str, ...]) -> str:
    for unit in units:
        if number < step or unit == units[-1]:
            break
        number /= step
    return f"{number:.3g}{unit}" if number < step - 0.5 else f"{number:.0f}{unit}"
