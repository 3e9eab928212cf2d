"""Signatures of custom ops: "(Tensor x, Tensor(a!) out, *, float eps=1e-5) -> (Tensor, Tensor)"."""

from __future__ import annotations

import collections.abc
import enum
import inspect
import re
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import GenericAlias
from typing import Any, NamedTuple, NoReturn

import tangrad
from tangrad.plugin import dtype_by_name, split_schema

__all__ = ["Argument", "FunctionSchema", "Tag", "infer_schema", "parse", "tags_of"]


class Tag(enum.Enum):
    """What can be said of an op beside its signature; only `inplace` and `out` change anything."""

    core = 0
    cudagraph_unsafe = 1
    data_dependent_output = 2
    dynamic_output_shape = 3
    flexible_layout = 4
    generated = 5
    inplace = 6
    inplace_view = 7
    maybe_aliasing_or_mutating = 8
    needs_contiguous_strides = 9
    needs_exact_strides = 10
    needs_fixed_stride_order = 11
    nondeterministic_bitwise = 12
    nondeterministic_seeded = 13
    out = 14
    out_variant = 15
    pointwise = 16
    pt2_compliant_tag = 17
    reduction = 18
    view_copy = 19


def tags_of(tags: Tag | Sequence[Tag] | None) -> tuple[Tag, ...]:
    """Return tags, given as one, several or None, without repetition."""
    if tags is None:
        return ()
    return (tags,) if isinstance(tags, Tag) else tuple(dict.fromkeys(tags))


REQUIRED = object()

# {type: what values of it are called in messages}
_TYPES = {
    "Tensor": "Tensor",
    "SymInt": "int",
    "int": "int",
    "float": "float",
    "bool": "bool",
    "str": "str",
    "Scalar": "number",
    "complex": "complex",
    "ScalarType": "int",
    "Device": "Device",
    "Layout": "int",
    "MemoryFormat": "int",
    "Generator": "Generator",
}
_ARGUMENT = re.compile(
    r"(?P<base>__torch__(?:\.\w+)+|[A-Za-z]\w*)(?:\((?P<alias>[^)]*)\))?(?P<suffix>(?:\[\d*\]|\?)*)"
    r"(?:\s+(?P<name>\w+))?\s*(?:=\s*(?P<default>.+))?"
)


class Argument(NamedTuple):
    """One argument or result.

    Attributes:
        name: empty for a result without name.
        base: type without its suffix, such as "Tensor".
        suffix: "", "?", "[]", "[3]", "[]?" or "?[]".
        alias: alias set, such as "a", or "".
        is_write: whether it is written to.
        default: default value, or REQUIRED.
        kwarg_only: whether it is given by keyword only.
    """

    name: str
    base: str
    suffix: str
    alias: str
    is_write: bool
    default: Any
    kwarg_only: bool

    @property
    def has_default(self) -> bool:
        """Whether it may be left out."""
        return self.default is not REQUIRED

    @property
    def is_list(self) -> bool:
        """Whether values are lists."""
        return "[" in self.suffix

    @property
    def is_optional(self) -> bool:
        """Whether the value may be None (of a list: the list itself)."""
        return self.suffix.endswith("?")

    @property
    def is_tensor(self) -> bool:
        """Whether values are tensors or lists of them."""
        return self.base == "Tensor"

    @property
    def kind(self) -> str:
        """The type as messages name it."""
        name = _TYPES.get(self.base, self.base)
        if self.is_list:
            inner = f"Optional[{name}]" if self.suffix.startswith("?") else name
            name = f"List[{inner}]"
        return f"Optional[{name}]" if self.is_optional else name

    def __str__(self) -> str:
        alias = f"({self.alias}{'!' if self.is_write else ''})" if self.alias else ""
        text = f"{self.base}{alias}{self.suffix}" + (f" {self.name}" if self.name else "")
        return f"{text}={_default_text(self)}" if self.has_default else text


def _default_text(argument: Argument) -> str:
    value = argument.default
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, float):
        return f"{value:g}" + ("." if value.is_integer() and abs(value) < 1e6 else "")
    if isinstance(value, list):
        if any(c.isdigit() for c in argument.suffix) and len(set(value)) == 1:
            return str(value[0])
        return "[" + ", ".join(map(str, value)) + "]"
    return str(value).rpartition(".")[2]  # a dtype, a layout or a format of memory


class FunctionSchema(NamedTuple):
    """The signature of an op.

    Attributes:
        name: "namespace::name".
        overload_name: what follows the dot of the name, or "".
        arguments, returns: in order.
    """

    name: str
    overload_name: str
    arguments: tuple[Argument, ...]
    returns: tuple[Argument, ...]

    @property
    def is_mutable(self) -> bool:
        """Whether an argument is written to."""
        return any(a.is_write for a in self.arguments)

    @property
    def is_view(self) -> bool:
        """Whether a result shares the memory of an argument that is not written to."""
        return any(r.alias and not r.is_write for r in self.returns)

    def __str__(self) -> str:
        parts, starred = [], False
        for a in self.arguments:
            if a.kwarg_only and not starred:
                parts.append("*")
                starred = True
            parts.append(str(a))
        results = ", ".join(map(str, self.returns))
        overload = f".{self.overload_name}" if self.overload_name else ""
        tail = results if len(self.returns) == 1 else f"({results})"
        return f"{self.name}{overload}({', '.join(parts)}) -> {tail}"


def parse(qualname: str, text: str) -> FunctionSchema:
    """Parse the signature of an op.

    Args:
        qualname: "namespace::name" or "namespace::name.overload".
        text: "(Tensor x) -> Tensor".

    Raises:
        RuntimeError: the text is no signature.
    """
    name, _, overload = qualname.partition(".")
    head, arrow, tail = text.rpartition("->")
    head, tail = head.strip(), tail.strip()
    if not arrow or not head.startswith("(") or not head.endswith(")"):
        raise _malformed(qualname, text, 'expected something like "(Tensor x) -> Tensor"')
    while tail.startswith("((") and tail.endswith("))"):  # ((Tensor)): a tuple of one
        tail = tail[1:-1]
    inner = tail[1:-1] if tail.startswith("(") and tail.endswith(")") else tail
    arguments: list[Argument] = []
    kwarg_only = False
    for part in split_schema(head[1:-1]):
        if part == "*":
            kwarg_only = True
            continue
        argument = _argument(part, kwarg_only, qualname, text)
        if not argument.name:
            raise _malformed(qualname, text, f"'{part}' has no name")
        if any(a.name == argument.name for a in arguments):
            raise _malformed(qualname, text, f"two arguments are called '{argument.name}'")
        arguments.append(argument)
    returns = tuple(_argument(part, False, qualname, text) for part in split_schema(inner))
    return FunctionSchema(name, overload, tuple(arguments), returns)


def _malformed(qualname: str, text: str, why: str) -> RuntimeError:
    return RuntimeError(f"{qualname}: the schema '{text}' cannot be read: {why}")


def _argument(part: str, kwarg_only: bool, qualname: str, text: str) -> Argument:
    found = _ARGUMENT.fullmatch(part)
    if found is None:
        raise _malformed(qualname, text, f"'{part}' is no argument")
    base, alias = found["base"], found["alias"] or ""
    if base not in _TYPES and not base.startswith("__torch__."):
        raise _malformed(
            qualname, text, f"unknown type specifier: '{base}' (known: {', '.join(_TYPES)})"
        )
    default = found["default"]
    try:
        value = REQUIRED if default is None else _literal(default.strip(), base)
    except (ValueError, TypeError):
        raise _malformed(qualname, text, f"'{default}' is no default of a {base}") from None
    suffix = found["suffix"]
    if isinstance(value, int) and re.fullmatch(r"\[\d+\]\??", suffix):
        value = [value] * int(re.findall(r"\d+", suffix)[0])
    return Argument(
        found["name"] or "",
        base,
        suffix,
        alias.split("->")[0].strip().removesuffix("!"),
        "!" in alias,
        value,
        kwarg_only,
    )


def _literal(text: str, base: str) -> Any:
    if text in ("None", "True", "False"):
        return {"None": None, "True": True, "False": False}[text]
    if text[0] in "'\"":
        return text[1:-1]
    if text[0] == "[":
        return [_literal(part, base) for part in split_schema(text[1:-1])]
    if base == "ScalarType":
        return dtype_by_name(text)
    if base in ("Layout", "MemoryFormat"):
        import tangrad

        return getattr(tangrad, text)
    try:
        return float(text) if base == "float" else int(text)
    except ValueError:
        return float(text)


# --- from annotations
# ---------------------------------------------------------------------------


def _annotations() -> Iterator[tuple[Any, str]]:
    """Yield every annotation that an argument may have, with its type in a schema."""
    number = typing.Union[int, float, bool]  # noqa: UP007
    kinds: list[tuple[Any, str, bool, bool, bool]] = [
        (tangrad.Tensor, "Tensor", True, True, False),
        (int, "SymInt", True, False, True),
        (float, "float", True, False, True),
        (bool, "bool", True, False, True),
        (str, "str", False, False, False),
        (number, "Scalar", True, False, False),
        (tangrad.dtype, "ScalarType", False, False, False),
        (tangrad.device, "Device", False, False, False),
    ]

    def sequences(kind: Any) -> tuple[Any, ...]:
        return (
            typing.Sequence[kind],
            typing.List[kind],  # noqa: UP006
            GenericAlias(collections.abc.Sequence, (kind,)),
            GenericAlias(list, (kind,)),
        )

    for kind, name, lists, lists_of_optional, optional_lists in kinds:
        yield kind, name
        yield typing.Optional[kind], f"{name}?"  # noqa: UP045
        if lists:
            yield from ((k, f"{name}[]") for k in sequences(kind))
        if lists_of_optional:
            yield from ((k, f"{name}?[]") for k in sequences(typing.Optional[kind]))  # noqa: UP045
        if optional_lists:
            yield from ((typing.Optional[k], f"{name}[]?") for k in sequences(kind))  # noqa: UP045


def _result_annotations() -> dict[Any, str]:
    tensor: Any = tangrad.Tensor
    return {
        tensor: "Tensor",
        typing.List[tensor]: "Tensor[]",  # noqa: UP006
        list[tensor]: "Tensor[]",
        int: "SymInt",
        float: "float",
        bool: "bool",
        typing.Union[int, float, bool]: "Scalar",  # noqa: UP007
    }


def infer_schema(
    prototype_function: Callable[..., Any],
    /,
    *,
    mutates_args: str | Iterable[str],
    op_name: str | None = None,
    tags: Tag | Sequence[Tag] | None = (),
) -> str:
    """Return the schema that follows from a function's annotations.

    Args:
        prototype_function: function whose parameters and result are annotated.
        mutates_args: names of the arguments it writes to, or "unknown" for all tensors.
        op_name: name to begin the schema with.
        tags: `Tag.inplace` or `Tag.out` say that the result is what was written to.

    Raises:
        ValueError: an annotation is missing or of no type that ops take.
    """
    signature = inspect.signature(prototype_function)

    def refuse(what: str) -> NoReturn:
        raise ValueError(f"infer_schema(func): {what} Got func with signature {signature})")

    if isinstance(mutates_args, str):
        if mutates_args != "unknown":
            raise ValueError(
                "mutates_args must be a sequence of argument names or the string 'unknown', got "
                f"'{mutates_args}'"
            )
        written = None
    else:
        written = set(mutates_args)
    known = dict(_annotations())
    parts: list[str] = []
    aliases: dict[str, str] = {}
    starred = False
    for k, (name, parameter) in enumerate(signature.parameters.items()):
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            refuse("We do not support positional-only args, varargs, or varkwargs.")
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            starred = True
            parts.append("*")
        if parameter.annotation is parameter.empty:
            refuse(f"Parameter {name} must have a type annotation.")
        annotation = _evaluated(parameter.annotation, prototype_function, refuse)
        kind = _schema_type(annotation, known)
        if kind is None:
            hint = " Take a List instead of a Tuple." if "uple" in str(annotation) else ""
            refuse(f"Parameter {name} has unsupported type {parameter.annotation}.{hint}")
        mutated = kind.startswith("Tensor") if written is None else name in written
        if mutated and not kind.startswith("Tensor"):
            refuse(
                f"Parameter {name} is in mutable_args but only Tensors or collections of Tensors "
                "can be mutated"
            )
        if mutated:
            aliases[name] = f"a{k}"
            kind = f"Tensor(a{k}!){kind.removeprefix('Tensor')}"
        parts.append(f"{kind} {name}{_default_of(parameter, refuse)}")
    unseen = (written or set()) - set(signature.parameters)
    if unseen:
        refuse(f"{unseen} in mutates_args were not found in the custom op's signature.")
    given = tags_of(tags)
    result = _result_of(signature, prototype_function, refuse)
    if Tag.inplace in given or Tag.out in given:
        result = _written_result(signature, aliases, Tag.inplace in given, result, refuse)
    return f"{op_name or ''}({', '.join(parts)}) -> {result}"


def _schema_type(annotation: Any, known: dict[Any, str]) -> str | None:
    try:
        return known.get(annotation)
    except TypeError:  # an annotation that cannot be hashed
        return None


def _evaluated(annotation: Any, function: Callable[..., Any], refuse: Any) -> Any:
    """Return an annotation with the names in its strings looked up where the function stands."""
    if isinstance(annotation, str):
        try:
            return eval(annotation, function.__globals__)
        except Exception as error:
            refuse(
                f"Unsupported type annotation {annotation}. It is not a type. ({error}). Names "
                "in it must be importable at the top of the module."
            )
    origin = typing.get_origin(annotation)
    inner = typing.get_args(annotation)
    if origin is not None and any(isinstance(i, str | typing.ForwardRef) for i in inner):
        names = [i.__forward_arg__ if isinstance(i, typing.ForwardRef) else i for i in inner]
        return GenericAlias(origin, tuple(_evaluated(i, function, refuse) for i in names))
    return annotation


def _default_of(parameter: inspect.Parameter, refuse: Callable[[str], NoReturn]) -> str:
    value = parameter.default
    if value is parameter.empty:
        return ""
    if value is None or isinstance(value, (int, float, bool)):
        return f"={value}"
    if isinstance(value, (str, tangrad.device)):
        return f'="{value}"'
    if isinstance(value, tangrad.dtype):
        return f"={str(value).rpartition('.')[2]}"
    return refuse(
        f"Parameter {parameter.name} has an unsupported default value type {type(value)}."
    )


def _result_of(signature: inspect.Signature, function: Callable[..., Any], refuse: Any) -> str:
    if signature.return_annotation is signature.empty:
        refuse("No return type annotation was provided. Please add one.")
    annotation = _evaluated(signature.return_annotation, function, refuse)
    if annotation is None:
        return "()"
    known = _result_annotations()
    several = typing.get_origin(annotation) is tuple
    members = typing.get_args(annotation) if several else (annotation,)
    kinds = [_schema_type(member, known) for member in members]
    if any(kind is None for kind in kinds):
        refuse(
            f"Return has unsupported type {annotation}. The valid types are: "
            f"{', '.join(dict.fromkeys(known.values()))}."
        )
    text = ", ".join(str(kind) for kind in kinds)
    if not several:
        return text
    return f"(({text}))" if len(kinds) == 1 else f"({text})"


def _written_result(
    signature: inspect.Signature,
    aliases: dict[str, str],
    inplace: bool,
    result: str,
    refuse: Callable[[str], NoReturn],
) -> str:
    """Return the results of an op that returns what it wrote to."""
    parameters = signature.parameters
    if inplace:
        first = next(iter(parameters), None)
        if first is None or set(aliases) != {first} or result != "Tensor":
            refuse(
                "torch.Tag.inplace requires mutates_args to contain exactly the first positional "
                "argument, a Tensor, and the op to return it."
            )
        return f"Tensor({aliases[first]}!)"
    keywords = all(parameters[n].kind is inspect.Parameter.KEYWORD_ONLY for n in aliases)
    expected = ", ".join(["Tensor"] * len(aliases))
    if (
        not aliases
        or not keywords
        or result != (expected if len(aliases) == 1 else f"({expected})")
    ):
        refuse(
            "torch.Tag.out requires mutable keyword-only Tensor arguments, and the op to return "
            "them."
        )
    texts = ", ".join(f"Tensor({alias}!)" for alias in aliases.values())
    return texts if len(aliases) == 1 else f"({texts})"
