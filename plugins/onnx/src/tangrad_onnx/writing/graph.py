"""The ONNX graph that is being written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from onnx import NodeProto, TensorProto, defs, helper, numpy_helper

import tangrad
from tangrad import Tensor
from tangrad_onnx.errors import OnnxExporterError, UnsupportedOperatorError
from tangrad_onnx.values import NUMPY_TYPES, TYPE_OF_TENSOR, to_array

__all__ = ["Result", "Size", "Value", "Writer", "type_of"]


class ValueType(NamedTuple):
    """The type of a value as forms for PyTorch's exporter ask for it; None is unknown.

    Attributes:
        shape: its sizes; None for one that varies.
        dtype: of tangrad.
    """

    shape: tuple[int | None, ...] | None = None
    dtype: Any = None

    def dim(self) -> int | None:
        """Return the number of dimensions."""
        return None if self.shape is None else len(self.shape)

    def sizes(self) -> list[int | None] | None:
        """Return the sizes; None stands for one that varies."""
        return None if self.shape is None else list(self.shape)

    def scalarType(self) -> str | None:
        """Return the name of the tensor type of the dtype, such as "Float"."""
        if self.dtype is None:
            return None
        named: str = tangrad.empty(0, dtype=self.dtype).type()
        return named.rpartition(".")[2].removesuffix("Tensor")


class Value(NamedTuple):
    """A tensor of the graph.

    Attributes:
        name: in the graph.
        dtype: of tangrad.
        rank: number of its dimensions.
        shape: its sizes; a `Size` for one that varies.
    """

    name: str
    dtype: Any
    rank: int
    shape: tuple[Any, ...]

    def type(self) -> ValueType:
        """Return its type, as forms for PyTorch's exporter ask for it."""
        return ValueType(tuple(None if isinstance(n, Size) else n for n in self.shape), self.dtype)


class Result(NamedTuple):
    """What is known of a result before it is written.

    Attributes:
        dtype: of tangrad.
        ndim: number of its dimensions.
        shape: its sizes; a `Size` without a name for one that varies.
    """

    dtype: Any
    ndim: int
    shape: tuple[Any, ...]


class Size:
    """An integer that the graph computes.

    Sums, differences, products and whole quotients of it are computed by the graph, too. Whatever
    else needs the number itself is refused: the example's is not that of other inputs.

    Args:
        w: writes the graph.
        make: gives the name of a scalar of int64 in the graph; it is called once, when the name
            is asked for. None: nothing in the graph has the size.
    """

    __array_ufunc__ = None  # arrays leave arithmetic to this class
    __hash__ = object.__hash__

    def __init__(self, w: Writer, make: Callable[[], str] | None) -> None:
        self._w, self._make = w, make
        self._name: str | None = None

    @property
    def name(self) -> str:
        """Name of a scalar of int64 in the graph."""
        if self._name is None:
            if self._make is None:
                self._refuse()
            self._name = self._make()  # type: ignore[misc]
        return self._name

    def _by(self, operator: str, a: Any, b: Any) -> Size:
        if not all(isinstance(n, (int, Size)) for n in (a, b)):
            self._refuse()
        name = str(self._w.op(operator, self._w.size(a), self._w.size(b)))
        return Size(self._w, lambda: name)

    def __add__(self, other: Any) -> Size:
        return self._by("Add", self, other)

    def __radd__(self, other: Any) -> Size:
        return self._by("Add", other, self)

    def __sub__(self, other: Any) -> Size:
        return self._by("Sub", self, other)

    def __rsub__(self, other: Any) -> Size:
        return self._by("Sub", other, self)

    def __mul__(self, other: Any) -> Size:
        return self._by("Mul", self, other)

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> Size:
        """Divide sizes, which are not negative: the operator truncates."""
        return self._by("Div", self, other)

    def _refuse(self, *_: Any) -> Any:
        raise UnsupportedOperatorError("the operator's form needs a size that varies as a number")

    __int__ = __index__ = __float__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __mod__ = __rmod__ = __truediv__ = __rtruediv__ = __rfloordiv__ = __neg__ = _refuse


def type_of(dtype: Any) -> int:
    """Return ONNX's number of a dtype.

    Raises:
        OnnxExporterError: ONNX has none.
    """
    number = TYPE_OF_TENSOR.get(dtype)
    if number is None:
        raise OnnxExporterError(f"ONNX has no dtype like {dtype}")
    return number


class Writer:
    """Collect nodes and initializers under names that are unique.

    Args:
        opset: version of ai.onnx that is written.
        reserved: names that only inputs and outputs have.

    Attributes:
        nodes, initializers: as they are written.
        module: path of the module whose call is written.
        origin: name of the call that is written.
    """

    def __init__(self, opset: int, reserved: Iterable[str] = ()) -> None:
        self.opset = opset
        self.nodes: list[NodeProto] = []
        self.initializers: list[TensorProto] = []
        self.module = self.origin = ""
        self.domains: dict[str, int] = {}
        self._names = set(reserved)
        self._counts: dict[str, int] = {}
        self._constants: dict[Any, str] = {}
        self._node_names: set[str] = set()

    def unique(self, wanted: str) -> str:
        """Return a name that no value has yet."""
        name = wanted
        while name in self._names:
            self._counts[wanted] = self._counts.get(wanted, 0) + 1
            name = f"{wanted}_{self._counts[wanted]}"
        self._names.add(name)
        return name

    def rename(self, names: Mapping[str, str]) -> None:
        """Give values of the graph other names, in the graphs inside of its nodes, too."""
        for node in _all_nodes(self.nodes):
            for values in (node.input, node.output):
                for place, value in enumerate(values):
                    if value in names:
                        values[place] = names[value]

    def constant(self, value: Any, dtype: Any = None, name: str = "constant") -> str:
        """Return the name of a constant; equal ones of few elements are one.

        Args:
            value: a number, numbers or an array.
            dtype: of tangrad; int64 for integers and float32 for others by default.
            name: what it is called like.
        """
        array = np.asarray(value)
        if dtype is None and not isinstance(value, np.ndarray):
            array = array.astype(np.int64 if array.dtype.kind in "iu" else np.float32)
            array = np.asarray(value, bool) if isinstance(value, bool) else array
        elif dtype is not None:
            array = _converted(array, dtype)
        key = (array.dtype.str, array.dtype.name, array.shape, array.tobytes())
        if array.size <= 64 and key in self._constants:
            return self._constants[key]
        made = self.unique(name)
        self.initializers.append(_stored(array, made))
        if array.size <= 64:
            self._constants[key] = made
        return made

    def tensor(self, value: Tensor, name: str) -> str:
        """Return the name of a tensor that the file holds."""
        return self.tensor_of(to_array(value), name)

    def tensor_of(self, array: Any, name: str) -> str:
        """Return the name of an array that the file holds."""
        made = self.unique(name)
        self.initializers.append(_stored(array, made))
        return made

    def held(self, name: str) -> Any:
        """Return the array that a name of the file stands for, None if it is computed."""
        found = next((proto for proto in self.initializers if proto.name == name), None)
        return None if found is None else numpy_helper.to_array(found)

    def used_initializers(self) -> list[TensorProto]:
        """Return those that a node reads, in the graph or in one inside of it."""
        used = set(_read_by(self.nodes))
        return [proto for proto in self.initializers if proto.name in used]

    def accepts(self, operator: str, dtype: Any) -> bool:
        """Return whether the standard's operator is of the file's opset and takes a dtype first."""
        try:
            schema = defs.get_schema(operator, self.opset)
        except defs.SchemaError:
            return False
        return f"tensor({TensorProto.DataType.Name(type_of(dtype)).lower()})" in (
            schema.inputs[0].types
        )

    def op(
        self,
        operator: str,
        *operands: str | None,
        outputs: int = 1,
        domain: str = "",
        **attributes: Any,
    ) -> Any:
        """Add a node and return the name of its result, or a tuple of names of several.

        Args:
            operator: of the standard, or of `domain`.
            operands: names; None for one that is left out.
            outputs: how many results there are.
            domain: of the operator.
            attributes: without those that are None.
        """
        stem = self.origin or operator.lower()
        names = [self.unique(stem) for _ in range(outputs)]
        place = f"{self.module.replace('.', '/')}/" if self.module else ""
        wanted = title = f"{place}{operator}"
        count = 0
        while title in self._node_names:
            count += 1
            title = f"{wanted}_{count}"
        self._node_names.add(title)
        given = [operand or "" for operand in operands]
        while given and not given[-1]:
            given.pop()
        kept = {key: value for key, value in attributes.items() if value is not None}
        node = helper.make_node(operator, given, names, name=title, domain=domain, **kept)
        self.nodes.append(node)
        if domain:
            self.domains.setdefault(domain, 1)
        return names[0] if outputs == 1 else tuple(names)

    def cast(self, name: str, have: Any, want: Any) -> str:
        """Return a value in a dtype."""
        if have == want:
            return name
        if want is tangrad.bool and have.is_floating_point:
            # Whether a NaN is true is not what all that run a Cast agree on.
            return str(self.op("Not", self.op("Equal", name, self.constant(0, have))))
        return str(self.op("Cast", name, to=type_of(want)))

    def sizes(self, numbers: Sequence[int | Size]) -> str:
        """Return the name of a vector of integers, some of which the graph computes."""
        if not any(isinstance(number, Size) for number in numbers):
            return self.constant(np.array(numbers, np.int64).reshape(-1))
        zero = self.constant(np.array([0], np.int64))
        parts = [
            self.op("Unsqueeze", number.name, zero)
            if isinstance(number, Size)
            else self.constant(np.array([number], np.int64))
            for number in numbers
        ]
        return parts[0] if len(parts) == 1 else str(self.op("Concat", *parts, axis=0))

    def size(self, number: int | Size) -> str:
        """Return the name of a scalar of int64."""
        return (
            number.name if isinstance(number, Size) else self.constant(np.array(number, np.int64))
        )

    def shape(self, name: str) -> str:
        """Return the name of the shape of a value."""
        return str(self.op("Shape", name))

    def sizes_of(self, name: str | None, meta: Any, varying: Iterable[int]) -> tuple[Any, ...]:
        """Return the sizes of a value; those that vary are read from it.

        Args:
            name: of the value; None if it is not written yet.
            meta: tensor of the example.
            varying: the dimensions whose sizes vary.
        """

        def read(dim: int) -> Size:
            def make() -> str:
                return str(self.op("Gather", self.shape(str(name)), self.size(dim)))

            return Size(self, None if name is None else make)

        vary = frozenset(varying)
        return tuple(read(dim) if dim in vary else n for dim, n in enumerate(meta.shape))

    def counted(self, end: int | Size, step: int = 1) -> str:
        """Return the name of the integers from 0 up to an end, in steps."""
        if isinstance(end, Size):
            return str(self.op("Range", self.size(0), end.name, self.size(step)))
        return self.constant(np.arange(0, end, step, dtype=np.int64))

    def reduce(self, operator: str, name: str, dims: Sequence[int], keep: bool) -> str:
        """Reduce along axes."""
        if not dims:
            return name
        if self.opset >= 18 or operator == "ReduceSum":
            axes = self.constant(np.array(dims, np.int64))
            return str(self.op(operator, name, axes, keepdims=int(keep)))
        return str(self.op(operator, name, axes=list(dims), keepdims=int(keep)))

    def reshape(self, name: str, numbers: Sequence[int | Size], copies: bool = False) -> str:
        """Give a value another shape.

        Args:
            name: of the value.
            numbers: the sizes; one may be -1.
            copies: a 0 stands for the size that the value has there.
        """
        empty = not copies and any(number == 0 for number in numbers)
        zero = 1 if self.opset >= 14 and empty else None
        return str(self.op("Reshape", name, self.sizes(numbers), allowzero=zero))

    def unsqueeze(self, name: str, axes: Sequence[int]) -> str:
        """Add axes of size 1."""
        return str(self.op("Unsqueeze", name, self.constant(np.array(axes, np.int64))))

    def squeeze(self, name: str, axes: Sequence[int]) -> str:
        """Drop axes of size 1."""
        return str(self.op("Squeeze", name, self.constant(np.array(axes, np.int64))))

    def slice(self, name: str, axis: int, start: Any, end: Any, step: Any = 1) -> str:
        """Take a part of an axis."""
        vectors = [self.sizes([number]) for number in (start, end, axis, step)]
        return str(self.op("Slice", name, *vectors))


def _all_nodes(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    for node in nodes:
        yield node
        for attribute in node.attribute:
            yield from _all_nodes(attribute.g.node)


def _read_by(nodes: Iterable[NodeProto]) -> Iterator[str]:
    for node in _all_nodes(nodes):
        yield from node.input
        for attribute in node.attribute:
            yield from (output.name for output in attribute.g.output)


def _stored(array: Any, name: str) -> TensorProto:
    whole = np.ascontiguousarray(array).reshape(array.shape)  # it makes a vector of a scalar
    return numpy_helper.from_array(whole, name)


def _converted(array: Any, dtype: Any) -> Any:
    if dtype is tangrad.bfloat16:
        return array.astype(np.float32).astype(NUMPY_TYPES[16])
    kind = NUMPY_TYPES[type_of(dtype)]
    with np.errstate(all="ignore"):
        return array.astype(kind)
