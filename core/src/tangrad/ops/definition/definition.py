"""What is true of an op: the objects behind `tangrad.ops.definition.define`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from tangrad import _C
from tangrad.dispatch.binding import call_by_name
from tangrad.dispatch.tracing import at_all_sizes
from tangrad.ops.definition.fields import (
    Computing,
    Derivatives,
    Examples,
    Forms,
    Results,
    States,
    names_in,
    refuse_unknown,
)
from tangrad.ops.definition.folds import FOLDS
from tangrad.ops.definition.geometry import Geometry
from tangrad.ops.definition.schema import KEYWORD_ALIASES, Schema
from tangrad.random.generator import Generator, get_default_generator


class Definition(Results, Computing, Derivatives, Forms, Examples):
    """Hold everything that is true of one op.

    Args:
        schema: the parsed signature.
        said: fields of the groups above.

    Raises:
        TypeError: something said is no field.
    """

    kind = "kernel"
    fields = names_in(Results, Computing, Derivatives, Forms, Examples)
    is_scan = False
    needs_elements = False
    keeps_without_dims = False
    accepts_missing_grads = False
    members: Sequence[Any] = ()
    parent: str | None = None  # of a derived op: the name of that from which it follows
    variants: Mapping[str, Any] = {}
    public_name: str | None = None
    op: Any = None

    def __init__(self, schema: Schema, **said: Any) -> None:
        import sys

        refuse_unknown(schema.name, said, self.fields)
        self.__dict__.update(said)
        self.schema, self.name = schema, schema.name
        # What names the op among all, derived ones included: kernels made ahead of time go by it.
        self.key = schema.name
        self.module = _defining_module(sys._getframe(2))
        self.keyword_aliases = {**KEYWORD_ALIASES, **(self.names or {})}
        self.parameter_names = schema.names
        self._generator_position = (
            schema.names.index("generator") if "generator" in schema.names else -1
        )
        self._picks: dict[Any, Callable[[Sequence[Any]], Sequence[Any]]] = {}

    # --- what the compiled core asks

    @property
    def differentiable(self) -> bool:
        """Whether calls are recorded: unless a reason against a derivative is stated.

        Where none is stated either, backward raises; a call that is not recorded would cut the
        graph without a word.
        """
        by_ops = self.function_body is not None or self.members or self.schema.written_lists
        return isinstance(self.vjp, dict) or (self.vjp is None and not by_ops)

    @property
    def no_derivative_reason(self) -> str | None:
        """The mathematical reason for the missing derivative, if that is stated."""
        return self.vjp.partition(":")[2].strip() if isinstance(self.vjp, str) else None

    @property
    def is_method(self) -> bool:
        """Whether `Tensor.<name>` exists."""
        if not (self.namespace is None if self.method is None else self.method):
            return False
        if self.members:
            return any(o.definition.takes_self for o in self.members)
        return self.takes_self

    @property
    def takes_self(self) -> bool:
        """Whether the first parameter is a tensor."""
        return bool(self.schema.params) and self.schema.params[0].type in (
            "Tensor",
            "Operand",
            "Tensor?",
        )

    @property
    def title(self) -> str:
        """What users call the op, for messages: `'nn.functional.gelu'`."""
        name = self.public_name or self.name
        if self.parent is not None:
            return f"'{self.name}', a derivative of '{self.parent}',"
        package, _, last = name.rpartition("::")
        if package:
            return f"'tangrad.ops.{package}.{last}'"
        if self.namespace == "nn":
            return f"'nn.functional.{name}'"
        if self.namespace is not None:
            return f"'{self.namespace}.{name.removeprefix(self.namespace + '_')}'"
        return f"'{name}'"

    def signature_text(self) -> str:
        """Return the parameters as text for messages."""
        return self.schema.signature_text()

    @property
    def fingerprint(self) -> int:
        """What a kernel compiled ahead of time relies on, as a number of 32 bits.

        Two definitions with the same key and fingerprint take the same arguments in the same
        order, give the same results, and mean the same where the definition says it in formulas.
        """
        from zlib import crc32

        promoted = (self.promote, self.dtypes, len(self.schema.returns))
        return crc32(repr((self.key, self.signature_text(), promoted, self._formulas())).encode())

    def _formulas(self) -> tuple[Any, ...]:
        """Return what the definition says of the results' elements."""
        return ()

    def documentation(self) -> str:
        """Return the docstring: what the definition says, and the signature."""
        name = self.public_name or self.name
        if self.members:
            forms = "\n".join(f"{name}({o.definition.signature_text()})" for o in self.members)
            return f"{self.doc or (self.members[0].definition.doc or '')}\n\nForms:\n{forms}"
        return f"{self.doc or ''}\n\n{name}({self.signature_text()})"

    def inspect_signature(self) -> Any:
        """Return the inspect.Signature of the op (of its first form, for overloads)."""
        import inspect

        if self.members:
            return self.members[0].definition.inspect_signature()
        kinds = inspect.Parameter
        parameters = []
        for p in self.schema.params:
            default = kinds.empty if p.required else p.default
            kind = kinds.KEYWORD_ONLY if p.keyword_only else kinds.POSITIONAL_OR_KEYWORD
            parameters.append(kinds(p.name, kind, default=default))
        if self.op is not None and self.op.takes_out:
            parameters.append(kinds("out", kinds.KEYWORD_ONLY, default=None))
        try:
            return inspect.Signature(parameters)
        except ValueError:
            return inspect.Signature([p.replace(default=kinds.empty) for p in parameters])

    def rejection(self, dtype: Any) -> Exception | None:
        """Return the op's own error for a promoted dtype it refuses; None: the usual."""
        return None

    def check_arguments(self, args: Sequence[Any]) -> None:
        """Run the definition's check."""
        if self.check is not None:
            self._apply(self.check, args)

    def decomposed(self, args: Sequence[Any]) -> Any:
        """Return what the definition's tensor code makes of bound arguments."""
        return self._apply(self.decompose, args)

    def _apply(self, function: Any, args: Sequence[Any]) -> Any:
        """Call a function with those of the bound arguments that its parameters name."""
        picks = self._picks.get(function)
        if picks is None:
            code = function.__code__
            if code.co_flags & 0x04 or code.co_kwonlyargcount:
                return call_by_name(function, self._named(args))
            names = code.co_varnames[: code.co_argcount]
            picks = self._picks[function] = _picking([*map(self.parameter_names.index, names)])
        return function(*picks(args))

    def _named(self, args: Sequence[Any]) -> dict[str, Any]:
        return dict(zip(self.parameter_names, args, strict=True))

    @at_all_sizes
    def output_metas(self, args: Sequence[Any]) -> list[tuple[tuple[Any, ...], Any]]:
        """Return [(shape, dtype)] of the results of bound arguments (sizes may be symbolic)."""
        if self.shape is None:
            shapes: Any = first_tensor(args).shape
        else:
            shapes = self._apply(self.shape, args)
        n = len(self.schema.returns)
        dtypes = self._dtypes(args, n)
        if n == 1:
            return [(tuple(shapes), dtypes[0])]
        return list(zip([tuple(s) for s in shapes], dtypes, strict=True))

    def _dtypes(self, args: Sequence[Any], n: int) -> list[Any]:
        if self.dtype is None:
            first = first_tensor(args)
            return [first.dtype if first is not None else _C.get_default_dtype()] * n
        found = self._apply(self.dtype, args) if callable(self.dtype) else self.dtype
        found = list(found) if isinstance(found, (list, tuple)) else [found] * n
        return [_C.dtype_by_name(d) if isinstance(d, str) else d for d in found]

    def result_format(self, args: Sequence[Any]) -> Any:
        """Return the memory format of the results of bound arguments; None: contiguous."""
        return None if self.memory_format is None else self._apply(self.memory_format, args)

    def view_geometry(self, args: Sequence[Any]) -> Any:
        """Return the geometry of a view of bound arguments."""
        args = [Geometry(x) if isinstance(x, _C.Tensor) else x for x in args]
        result = self._apply(self.geometry, args)
        if self.dtype is None:
            return list(result) if isinstance(result, list) else tuple(result)
        dtype = self._apply(self.dtype, args)
        dtype = _C.dtype_by_name(dtype) if isinstance(dtype, str) else dtype
        if isinstance(result, list):
            return [(*g[:3], dtype) for g in result]
        return (*result[:3], dtype, *result[4:])

    def generator_of(self, args: Sequence[Any]) -> Any:
        """Return the generator that a call draws from.

        Raises:
            RuntimeError: it is for another type of device than the call's; meta takes any.
            TypeError: it is none.
        """
        generator = args[self._generator_position]
        first = first_tensor(args)
        device = first.device if first is not None else _C.get_default_device()
        if generator is None:
            return get_default_generator(device)
        if not isinstance(generator, Generator):
            raise TypeError(
                f"{self.name}(): argument 'generator' must be Generator, "
                f"not {type(generator).__name__}"
            )
        if device.type not in (generator.device_type, "meta"):
            raise RuntimeError(
                f"{self.name}(): Expected a '{device.type}' device type for generator but found "
                f"'{generator.device_type}'; make it by Generator(device='{device.type}')"
            )
        return generator

    def draw_or_answer(self, args: Sequence[Any]) -> Any:
        """Return (seed, offset) for a call, or its result where the engine is sequential.

        Raises:
            NotImplementedError: the op cannot be drawn one number after the other.
        """
        generator = self.generator_of(args)
        engine = generator.sequential
        if engine is None:
            return self._reserve(generator, args)
        if self.sequential is None:
            raise NotImplementedError(
                f"{self.name}: not defined for engine mt19937; use random.set_engine('philox')"
            )
        values = list(args)
        values[self._generator_position] = engine
        if self.check is not None:
            self._apply(self.check, values)
        return self._apply(self.sequential, values)

    def draw(self, args: Sequence[Any]) -> tuple[int, int]:
        """Take random state for a call from its generator: (seed, offset)."""
        return self._reserve(self.generator_of(args), args)

    def _reserve(self, generator: Generator, args: Sequence[Any]) -> tuple[int, int]:
        return self.take(generator, self.counters(args))

    def take(self, generator: Generator, counters: int) -> tuple[int, int]:
        """Take so many counters of a generator: (seed, offset), as the op's integers."""
        seed, offset = generator.advance(counters)
        # An op's integer has a sign: a seed of 64 bits is given as the one with the same bits.
        return (seed - 2**64 if seed >= 2**63 else seed), offset

    @at_all_sizes
    def counters(self, args: Sequence[Any]) -> int:
        """Return how many counters of a stream a call takes."""
        return (int(self._apply(self.words, args)) + 3) // 4

    def backward_rule(self, needs: int) -> Any:
        """Return the compiled rule for the set of inputs that need gradients (a bit mask)."""
        wanted = [i for k, i in enumerate(self.schema.tensors) if needs >> k & 1]
        return rule_of_functions(self, {self.parameter_names[i] for i in wanted})

    def rule_without(self, needs: int, present: tuple[bool, ...]) -> Any:
        """Return a rule that reads less where some results have no gradient; None: there is none.

        Args:
            needs: the inputs that need gradients (a bit mask).
            present: per result, whether it has a gradient; the others' count as zeros.
        """
        return None


class ReductionDefinition(States, Definition):
    """A fold of elements by (map, combine, identity, finalize)."""

    kind = "reduction"
    fields = Definition.fields | names_in(States)
    batch: Any = "dims"

    def __init__(
        self,
        schema: Schema,
        map_: str,
        combination: tuple[str | None, str, Any],
        finalize: str | None,
        **said: Any,
    ) -> None:
        super().__init__(schema, **said)
        self.fold, self.combine_text, self.identity = combination
        self.map_text, self.finalize_text = map_, finalize
        self.results = tuple(self.results)
        self.needs_elements = self.identity is None
        self._steps: dict[str, Any] = {}
        self.inputs = tuple(schema.params[i].name for i in schema.tensors)
        self.params = tuple(
            p.name
            for p in schema.params
            if p.type in ("Scalar", "Scalar?", "float", "int", "float?", "int?", "bool")
        )

    @property
    def wide(self) -> bool:
        """Whether states pass through a type of twice the width."""
        return self.fold is not None and FOLDS[self.fold].wide

    @property
    def state_size(self) -> int:
        """How many values a state has."""
        return self.map.outputs

    @property
    def map(self) -> Any:
        """The parsed map over the element and its index."""
        return self._parsed("map", self.map_text, lambda: (*self.inputs, "index"), self.params)

    @property
    def combine(self) -> Any:
        """The parsed combination of two states."""
        return self._parsed(
            "combine",
            self.combine_text,
            lambda: self.state_names("a") + self.state_names("b"),
            self.params,
        )

    @property
    def finalize(self) -> Any:
        """The parsed last step, or None where the state is the result."""
        if self.finalize_text is None:
            return None
        return self._parsed(
            "finalize", self.finalize_text, lambda: self.state_names("a"), ("n", *self.params)
        )

    def _formulas(self) -> tuple[Any, ...]:
        steps = (self.map_text, self.combine_text, self.finalize_text)
        return (*steps, str(self.identity), self.results)

    def _parsed(
        self, step: str, text: str, inputs: Callable[[], tuple[str, ...]], params: tuple[str, ...]
    ) -> Any:
        found = self._steps.get(step)
        if found is None:
            from tangrad.expr import parse

            found = self._steps[step] = parse(text, inputs(), params)
        return found

    def state_names(self, letter: str) -> tuple[str, ...]:
        """Return the names of a state's values: a, or a0, a1, ..."""
        n = self.state_size
        return (letter,) if n == 1 else tuple(f"{letter}{k}" for k in range(n))


def _defining_module(frame: Any) -> str:
    """Return the name of the module whose code called the definition language."""
    while (
        frame.f_globals.get("__name__") in (__name__, "tangrad.ops.definition.define")
        and frame.f_back is not None
    ):
        frame = frame.f_back
    return frame.f_globals.get("__name__", "?")


def names_of(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the parameter names of a Python function (how definitions say what they need)."""
    code = function.__code__
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def _picking(places: list[int]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """Return what takes the arguments at some places, in C."""
    if len(places) > 1:
        return itemgetter(*places)
    first = places[0] if places else 0
    return itemgetter(slice(first, first + len(places)))


def first_tensor(args: Sequence[Any]) -> Any:
    """Return the first tensor among bound arguments, looking into lists."""
    for a in args:
        if isinstance(a, _C.Tensor) or (hasattr(a, "shape") and hasattr(a, "dtype")):
            return a
        if isinstance(a, list):
            inner = first_tensor(a)
            if inner is not None:
                return inner
    return None


def rule_of_functions(definition: Definition, wanted: set[str]) -> Any:
    """Build the rule of a definition whose vjp is tensor code, for the wanted inputs."""
    names = definition.parameter_names
    tensors = [names[i] for i in definition.schema.tensors]
    saves: list[tuple[str, int]] = []
    formulas: list[tuple[Any, ...]] = []
    served: set[str] = set()
    rules = {} if definition.vjp is None else definition.vjp
    for key, function in rules.items():
        targets = key if isinstance(key, tuple) else (key,)
        # What serves several inputs that also have functions of their own serves all or none.
        apart = len(targets) > 1 and all(t in rules for t in targets)
        if apart and not wanted.issuperset(targets):
            continue
        if not (wanted - served).intersection(targets):
            continue
        if isinstance(function, str):
            continue  # "none: reason"
        served.update(targets)
        arguments = [_argument(definition, name, saves) for name in names_of(function)]
        positions = tuple(tensors.index(t) for t in targets)
        formulas.append(
            (positions, None, function, -1, arguments, tuple(t in wanted for t in targets))
        )
    for name in tensors:
        if name in wanted - served:
            refuse = refusal(definition, name, rules.get(name))
            formulas.append(((tensors.index(name),), None, refuse, -1, [], (True,)))
    return _C.make_rule(saves, formulas)


def refusal(definition: Definition, name: str, stated: str | None = None) -> Callable[[], Any]:
    """Return the backward formula that raises, as late as in PyTorch: when it is asked for.

    Args:
        definition: the op's.
        name: the input that the derivative would be by.
        stated: "none: reason", or None where the definition gives no reason.
    """
    where = f"the derivative of {definition.title.rstrip(',')} for '{name}' is not implemented"
    if stated is None:
        where += f": its definition ({definition.module}) gives none"
        remedy = 'give it vjp={...}, or vjp="none: reason" if no gradient is to flow; '
    else:
        where += f": {stated.removeprefix('none:').strip()}"
        remedy = ""

    def refuse() -> Any:
        raise NotImplementedError(f"{where}; {remedy}detach() '{name}' if it is a constant")

    return refuse


def _argument(definition: Definition, name: str, saves: list[tuple[str, int]]) -> tuple[str, int]:
    names = definition.parameter_names
    if name in ("needs", "grads"):
        return (name, 0)
    if name == "g" or (name.startswith("g") and name[1:].isdigit()):
        return ("grad", int(name[1:] or 0))
    if name == "result" or (name.startswith("result") and name[6:].isdigit()):
        item = ("result", int(name[6:] or 0))
    elif name in names:
        item = ("input", names.index(name))
    elif name.endswith("_meta") and name[:-5] in names:
        item = ("meta", names.index(name[:-5]))
    else:
        raise TypeError(
            f"the backward formula of '{definition.name}' asks for '{name}', which is neither a "
            f"parameter, NAME_meta, result nor g (parameters: {', '.join(names)})"
        )
    if item not in saves:
        saves.append(item)
    return ("saved", saves.index(item))


def result_type_of(schema: Schema) -> Any:
    """Return the named tuple type of several results, or None."""
    if len(schema.returns) < 2 or not all(schema.returns):
        return None
    from tangrad.ops.definition.return_types import structseq

    return structseq(schema.name, schema.returns)
