"""Write an exported program as an ONNX model."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from onnx import ModelProto, TensorProto, helper

import tangrad
from tangrad import Tensor
from tangrad_onnx.errors import OnnxExporterError, UnsupportedOperatorError
from tangrad_onnx.writing.bodies import Body
from tangrad_onnx.writing.decompositions import refuse_by_values, table
from tangrad_onnx.writing.forms import FORMS, WHOLE
from tangrad_onnx.writing.forms.indexing import put_slice
from tangrad_onnx.writing.forms.shapes import put_diagonal
from tangrad_onnx.writing.functions import is_written, write_function
from tangrad_onnx.writing.graph import Result, Size, Value, Writer, type_of
from tangrad_onnx.writing.pairs import Pair, is_complex, real_dtype, write_pairs
from tangrad_onnx.writing.pointwise import write_pointwise
from tangrad_onnx.writing.symbolic import Graph, SymbolicFunction, names_of

__all__ = ["Written", "write_model"]

# IR version that each opset came with; readers refuse a file of a newer one than they know.
_IR = ((25, 13), (24, 12), (23, 11), (21, 10), (19, 9), (15, 8), (0, 7))
_ARITHMETIC = {
    operator.add: "Add",
    operator.sub: "Sub",
    operator.mul: "Mul",
    operator.floordiv: "Div",
    operator.mod: "Mod",
    max: "Max",
    min: "Min",
}
_VIEWS = frozenset(
    "view_size _unsafe_view reshape permute transpose swapaxes swapdims t expand unsqueeze squeeze "
    "select slice alias detach diagonal".split()
)

Custom = Callable[..., Any]


class Written(NamedTuple):
    """A model and where it came from.

    Attributes:
        model: the message.
        program: the exported program, taken apart into calls that have forms.
        values: for each call of the program the name of its value in the graph; None for one that
            is no tensor of the graph.
    """

    model: ModelProto
    program: Any
    values: list[str | None]


def write_model(
    program: Any,
    *,
    opset: int,
    input_names: Sequence[str] = (),
    output_names: Sequence[str] = (),
    custom: Mapping[str, Custom] | None = None,
    custom_opsets: Mapping[str, int] | None = None,
) -> Written:
    """Return an exported program as an ONNX model.

    Args:
        program: what `tangrad.export.export` gives.
        opset: version of ai.onnx to write.
        input_names, output_names: for the first inputs and outputs; the others have the program's.
        custom: {name of an op: its form}, in the place of those of this package.
        custom_opsets: {domain: version} of operators that forms of users add.

    Raises:
        UnsupportedOperatorError: an op has no form; names the op and the module that calls it.
    """
    custom = dict(custom or {})
    taken_apart: set[str] = set()
    while True:

        def keep(node: Any) -> bool:
            name = getattr(node.target, "name", None)
            refuse_by_values(name, node)
            whole = name in WHOLE or name in custom or is_written(node.target, opset)
            whole = whole or isinstance(node.target, SymbolicFunction)
            return whole and node.name not in taken_apart and not node.meta.get("writes")

        lowered = program.run_decompositions(table(custom), keep=keep)
        made = _Model(lowered, opset, input_names, output_names, custom, custom_opsets or {})
        try:
            return Written(made.model(), lowered, made.shown)
        except UnsupportedOperatorError as error:
            # What cannot be written whole is written by what it is made of.
            origin = made.origin_of_failure
            if origin is None or origin in taken_apart:
                error.module = error.module or made.w.module or None
                raise
            taken_apart.add(origin)


class _Model:
    def __init__(
        self,
        program: Any,
        opset: int,
        input_names: Sequence[str],
        output_names: Sequence[str],
        custom: Mapping[str, Custom],
        custom_opsets: Mapping[str, int],
    ) -> None:
        self.program, self.opset, self.custom = program, opset, custom
        self.input_names, self.output_names = list(input_names), list(output_names)
        self.custom_opsets = custom_opsets
        named = [*self.input_names, *self.output_names]
        if len(set(named)) < len(named):
            raise OnnxExporterError(f"names of inputs and outputs are not unique: {named}")
        self.w = Writer(opset, named)
        self.values: dict[Any, Any] = {}
        self.lazy: dict[Any, tuple[str, Any]] = {}
        self.held: dict[int, str] = {}
        self.version: dict[Any, int] = {}
        self.seen: dict[Any, tuple[Any, int]] = {}  # of a view: its base and the base's version
        self.same: dict[Any, Any] = {}  # results of writes: what was written into
        self.origin_of_failure: str | None = None
        self.inputs: list[Any] = []
        self.shown: list[str | None] = []

    def model(self) -> ModelProto:
        specs = iter(self.program.graph_signature.input_specs)
        outputs: list[Any] = []
        leaf = 0
        for node in self.program.graph.nodes:
            if node.op == "placeholder":
                leaf += self._placeholder(node, next(specs), leaf)
            elif node.op == "output":
                outputs = list(node.args[0])
            else:
                self._node(node)
                value = self.values.get(self._root(node))
                self.shown.append(value if isinstance(value, str) else None)
        results = self._outputs(outputs)
        graph = helper.make_graph(
            self.w.nodes, "main_graph", self.inputs, results, initializer=self.w.used_initializers()
        )
        imports = [helper.make_opsetid("", self.opset)]
        domains = {**self.w.domains, **self.custom_opsets}
        imports += [helper.make_opsetid(name, domains[name]) for name in sorted(domains)]
        ir = next(version for least, version in _IR if self.opset >= least)
        model = helper.make_model(
            graph, opset_imports=imports, ir_version=ir, producer_name="tangrad"
        )
        model.producer_version = str(tangrad.__version__)
        return model

    # Inputs and outputs

    def _placeholder(self, node: Any, spec: Any, leaf: int) -> int:
        """Note an input; return 1 if it is one of the user's."""
        value = node.meta.get("val")
        if spec.kind.name != "USER_INPUT":
            self.lazy[node] = (str(spec.target), value)
            return 0
        if not isinstance(value, Tensor):
            self.values[node] = spec.arg.value
            return 1
        number = len(self.inputs)
        given = number < len(self.input_names)
        name = self.input_names[number] if given else self.w.unique(node.name)
        sizes: list[int | str] = list(value.shape)
        for dimension, size in self.program.range_constraints.items():
            for place in size.places:
                if place.input == leaf:
                    plain = place.times == 1 and place.plus == 0
                    sizes[place.dim] = dimension if plain else f"{name}_{place.dim}"
        self.inputs.append(helper.make_tensor_value_info(name, type_of(value.dtype), sizes))
        self.values[node] = name
        return 1

    def _outputs(self, outputs: list[Any]) -> list[Any]:
        if len(self.output_names) > sum(hasattr(x, "op") for x in outputs):
            raise OnnxExporterError(f"the program has fewer outputs than {self.output_names}")
        taken = {info.name for info in self.inputs}
        results: list[Any] = []
        computed = {made for node in self.w.nodes for made in node.output}
        renamed: dict[str, str] = {}
        for node in outputs:
            if not hasattr(node, "op"):
                continue
            self.w.module, self.w.origin = "", "output"
            meta = node.meta["val"]
            if meta.dtype.is_complex:
                raise UnsupportedOperatorError(
                    "complex numbers are no results of a file: return tangrad.view_as_real of them"
                )
            number = len(results)
            given = number < len(self.output_names)
            name = self.output_names[number] if given else self.w.unique(f"output_{number}")
            if name in taken:
                raise OnnxExporterError(f"{name!r} names two inputs or outputs")
            taken.add(name)
            value = self._name(node)
            if value in computed and value not in renamed:
                renamed[value] = name
            else:  # an input, a tensor of the file, or an output for the second time
                self.w.nodes.append(
                    helper.make_node("Identity", [value], [name], name=f"output/{number}")
                )
            varies = bool(self.program.range_constraints)
            sizes = [None] * meta.ndim if varies else list(meta.shape)
            results.append(helper.make_tensor_value_info(name, type_of(meta.dtype), sizes))
        self.w.rename(renamed)
        self.shown = [renamed.get(value, value) if value else None for value in self.shown]
        return results

    # Values

    def _root(self, node: Any) -> Any:
        while node in self.same:
            node = self.same[node]
        return node

    def _name(self, node: Any) -> str:
        """Return the name of a node's tensor, written anew if what it shows was written into."""
        node = self._root(node)
        if node in self.lazy:
            target, _ = self.lazy.pop(node)
            tensor = self.program._tensor(target)
            known = self.held.get(id(tensor))
            if known is None:
                known = self.held[id(tensor)] = self.w.tensor(tensor, target)
            self.values[node] = known
        if node in self.seen:
            base, version = self.seen[node]
            if self._version(base) != version:
                self.values[node] = self._written(node)
                self.seen[node] = (base, self._version(base))
        found = self.values.get(node)
        if not isinstance(found, str):
            raise UnsupportedOperatorError(f"a value of {node.name!r} is not known in ONNX")
        return found

    def _version(self, node: Any) -> int:
        node = self._root(node)
        own = self.version.get(node, 0)
        if node in self.seen:
            return own + self._version(self.seen[node][0])
        return own

    def _value(self, node: Any) -> Any:
        """Return what a node stands for, as forms take it."""
        meta = node.meta.get("val")
        if isinstance(meta, Tensor) and meta.dtype.is_complex:
            return self._pair(node, meta)
        if isinstance(meta, Tensor):
            name = self._name(node)
            return Value(name, meta.dtype, meta.ndim, self._sizes_of(node, name))
        if node in self.values:
            return self.values[node]
        raise UnsupportedOperatorError(f"the value {node.name!r} has no form in ONNX")

    def _pair(self, node: Any, meta: Any) -> Pair:
        """Return what a complex tensor stands for, its parts."""
        node = self._root(node)
        if node in self.lazy:
            target, _ = self.lazy.pop(node)
            parts = tangrad.view_as_real(self.program._tensor(target).resolve_conj())
            names = (f"{target}.{part}" for part in ("real", "imag"))
            self.values[node] = tuple(
                self.w.tensor(parts[..., k].contiguous(), name) for k, name in enumerate(names)
            )
        found = self.values.get(node)
        if not (isinstance(found, tuple) and len(found) == 2):
            raise UnsupportedOperatorError("complex numbers are no inputs of a file")
        dtype = real_dtype(meta.dtype)
        both = tuple(map(str, found))
        return Pair(*(Value(n, dtype, meta.ndim, self._sizes_of(node, n)) for n in both))

    def _sizes_of(self, node: Any, name: str | None) -> tuple[Any, ...]:
        return self.w.sizes_of(name, node.meta["val"], node.meta.get("varying", ()))

    def _given(self, value: Any) -> Any:
        if hasattr(value, "op") and hasattr(value, "meta"):
            return self._value(value)
        if isinstance(value, (list, tuple)):
            return [self._given(part) for part in value]
        return value

    # Nodes

    def _node(self, node: Any) -> None:
        stack = list(node.meta.get("nn_module_stack", {}).values())
        self.w.module, self.w.origin = (stack[-1][0] if stack else ""), node.name
        try:
            self._dispatch(node)
        except UnsupportedOperatorError as error:
            name = getattr(node.target, "name", str(node.target))
            error.operator = error.operator or name
            error.module = error.module or self.w.module or None
            if getattr(node.target, "name", None) in WHOLE:
                self.origin_of_failure = node.meta.get("origin", node.name)
            raise

    def _dispatch(self, node: Any) -> None:
        target = node.target
        if target is operator.getitem:
            self._item(node)
        elif node.op == "call_method" and target == "size":
            self._size(node)
        elif target in _ARITHMETIC:
            names = [self.w.size(self._given(arg)) for arg in node.args]
            made = str(self.w.op(_ARITHMETIC[target], *names))
            self.values[node] = Size(self.w, lambda: made)
        elif hasattr(target, "definition"):
            self._call(node)
        elif is_written(target, self.opset):
            self.values[node] = write_function(self.w, node, self._given)
        elif isinstance(target, SymbolicFunction):
            several = isinstance(node.meta.get("val"), (tuple, list)) or any(
                user.target is operator.getitem for user in node.users
            )
            given = self._given(list(node.args))
            self.values[node] = target.write(self.w, given, several)
        elif target is tangrad.set_grad_enabled or node.op == "get_attr":
            return
        elif target is tangrad.cond:
            self._cond(node)
        elif getattr(target, "__name__", "") == "while_loop_op":
            self._loop(node)
        else:
            shown = getattr(target, "__name__", str(target))
            raise UnsupportedOperatorError(f"{shown!r} has no form in ONNX", operator=shown)

    def _item(self, node: Any) -> None:
        whole, at = node.args
        parts = self.values[whole]
        self.values[node] = parts[at]

    # Branches and loops

    def _cond(self, node: Any) -> None:
        pred, true, false, operands = node.args
        given = [self._given(x) for x in operands]
        condition = self.w.reshape(self._name(pred), [])
        branches = []
        for part in (true, false):
            with self._nested(part, given) as body:
                body.outputs = self._placed(body.results)
            branches.append(body.graph())
        count = len(body.outputs)
        names = self.w.op(
            "If", condition, outputs=count, then_branch=branches[0], else_branch=branches[1]
        )
        self.values[node] = (names,) if count == 1 else names

    def _loop(self, node: Any) -> None:
        condition, body_part, carried, additional = node.args
        given = [self._given(x) for x in (*carried, *additional)]
        count, rest = len(carried), given[len(carried) :]
        first = self._holds(condition, given)
        names = [self.w.unique("carried") for _ in carried]
        entering = [
            value._replace(name=name) for name, value in zip(names, given[:count], strict=True)
        ]
        with self._nested(body_part, [*entering, *rest]) as body:
            results = self._placed(body.results)
            after = [v._replace(name=n) for v, n in zip(entering, results, strict=True)]
            holds = self.w.op("Identity", self._holds(condition, [*after, *rest]))
            body.outputs = [holds, *results]
        body.inputs = [
            helper.make_tensor_value_info(self.w.unique("round"), TensorProto.INT64, []),
            helper.make_tensor_value_info(self.w.unique("going_on"), TensorProto.BOOL, []),
            *(
                helper.make_tensor_value_info(v.name, type_of(v.dtype), [None] * v.rank)
                for v in entering
            ),
        ]
        types = [TensorProto.BOOL, *(type_of(v.dtype) for v in entering)]
        values = [v.name for v in given[:count]]
        made = self.w.op("Loop", None, first, *values, outputs=count, body=body.graph(types))
        self.values[node] = (made,) if count == 1 else made

    def _holds(self, part: Any, given: list[Any]) -> str:
        """Write a loop's condition and return the name of its truth value."""
        self._inputs_of(part, given)
        result = self._inner(part.meta["graph"])
        return self.w.reshape(self._name(result), [])

    def _inputs_of(self, part: Any, given: list[Any]) -> None:
        """Have the inputs of a function stand for values of the graph around it."""
        inputs = [n for n in part.meta["graph"].nodes if n.op == "placeholder"]
        for node, value in zip(inputs, given, strict=True):
            self.values[node] = value.name if isinstance(value, Value) else value

    def _inner(self, graph: Any) -> Any:
        """Write the calls of a function and return what its output is given."""
        for node in graph.nodes:
            if node.op == "output":
                return node.args[0]
            if node.op != "placeholder":
                self._node(node)
        raise OnnxExporterError("a function without results")

    @contextmanager
    def _nested(self, part: Any, given: list[Any]) -> Iterator[Body]:
        """Write a function as a graph of its own, whose nodes see the values around it."""
        body = Body(str(part.target))
        outer, self.w.nodes = self.w.nodes, body.nodes
        try:
            self._inputs_of(part, given)
            body.results = list(self._inner(part.meta["graph"]))
            yield body
        finally:
            self.w.nodes = outer

    def _placed(self, results: list[Any]) -> list[str]:
        """Return results under names of their own, which the graph itself must compute."""
        return [str(self.w.op("Identity", self._name(node))) for node in results]

    def _size(self, node: Any) -> None:
        x, *dims = node.args
        shape = self.w.shape(self._name(x))
        if not dims:
            raise UnsupportedOperatorError("a whole shape as a value")
        at = self.w.op("Gather", shape, self.w.size(dims[0]))
        self.values[node] = Size(self.w, lambda: str(at))

    def _call(self, node: Any) -> None:
        name = node.target.name
        written = self._written(node)
        if node.meta.get("writes") or name.endswith("_"):
            target = node.args[0]
            self._assign(target, str(written))
            self.same[node] = target
            return
        self.values[node] = written
        if name in _VIEWS and node.args and hasattr(node.args[0], "op"):
            self.seen[node] = (node.args[0], self._version(node.args[0]))

    def _written(self, node: Any) -> Any:
        """Write a call and return the names of its results."""
        op = node.target
        # An in-place op is written as the op that gives a tensor of its own.
        plain = op.definition.name
        form = self.custom.get(op.name) or self.custom.get(plain)
        if form is not None:
            return self._by_form(form, node)
        arguments = self._arguments(node)
        out = self._results(node)
        outs = out if isinstance(out, list) else [out]
        if is_complex(list(arguments.values())) or any(
            o is not None and o.dtype.is_complex for o in outs
        ):
            if node.meta.get("writes") or op.name.endswith("_"):
                raise UnsupportedOperatorError("a write into complex numbers", operator=op.name)
            return write_pairs(self.w, op, arguments, out)
        found = FORMS.get(op.name) or FORMS.get(plain)
        if found is not None:
            made = found(self.w, SimpleNamespace(**arguments), out)
            if made is not None:
                return made
        if op.kind == "pointwise":
            return self._pointwise(op, arguments, out)
        raise UnsupportedOperatorError(f"op {op.name!r} has no form in ONNX", operator=op.name)

    def _by_form(self, form: Callable[..., Any], node: Any) -> Any:
        """Write a call by the form of a user and return the names of its results."""
        graph, given, named = Graph(self.w), self._given(list(node.args)), self._named(node)
        try:
            inspect.signature(form).bind(graph, *given, **named)
        except TypeError:
            # Forms for PyTorch's older exporter take all arguments, by position.
            found = self._arguments(node)
            given = [found[param.name] for param in node.target.definition.schema.params]
            named = {}
        except ValueError:
            pass  # a form without a signature
        return names_of(form(graph, *given, **named))

    def _pointwise(self, op: Any, arguments: dict[str, Any], out: Any) -> Any:
        if isinstance(out, list):
            first = next(v for v in arguments.values() if isinstance(v, Value))
            count = len(op.definition.results)
            given = [part.dtype if part is not None else first.dtype for part in out]
            given += [first.dtype] * (count - len(given))
            return write_pointwise(self.w, op, arguments, given[:count])
        return write_pointwise(self.w, op, arguments, out.dtype)

    def _named(self, node: Any) -> dict[str, Any]:
        return {key: self._given(value) for key, value in node.kwargs.items()}

    def _arguments(self, node: Any) -> dict[str, Any]:
        """Return a call's arguments by the names of its op's parameters."""
        params = node.target.definition.schema.params
        found: dict[str, Any] = {param.name: getattr(param, "default", None) for param in params}
        args, last = list(node.args), sum(not param.keyword_only for param in params) - 1
        if len(args) > max(last, 0) and params[last].type in ("int[]", "dim[]"):
            rest = args[last:]  # integers one by one in the place of a list
            if len(rest) > 1 or not isinstance(rest[0], (list, tuple)):
                args[last:] = [rest]
        for param, value in zip(params, args, strict=False):
            found[param.name] = self._given(value)
        found.update(self._named(node))
        if params:
            found.setdefault("first", found[params[0].name])
        if node.target.name == "_recurrent_layer":
            found["linear"] = self._entering(node.args[0])
        return found

    def _results(self, node: Any) -> Any:
        """Return what the results are; of several those that are used, None for others."""
        if isinstance(node.meta.get("val"), Tensor):
            return self._result(node)
        if node.meta.get("writes") or node.target.name.endswith("_"):
            return self._result(node.args[0])
        parts: list[Any] = []
        for user in node.users:
            if user.target is operator.getitem and isinstance(user.args[1], int):
                parts += [None] * (user.args[1] + 1 - len(parts))
                parts[user.args[1]] = self._result(user)
        return parts

    def _result(self, node: Any) -> Result | None:
        meta = node.meta.get("val")
        return meta if meta is None else Result(meta.dtype, meta.ndim, self._sizes_of(node, None))

    def _entering(self, node: Any) -> Any:
        """Return input, weight and bias of the product that enters a recurrent layer, if it is."""
        transposed = _is(node, "transpose")
        product = node.args[0] if transposed else node
        if not _is(product, "linear") or len(product.args) < 2:
            return None
        x, weight, *bias = product.args
        if x.meta["val"].ndim != 3:
            return None
        name = self._name(x)
        if transposed:
            name = str(self.w.op("Transpose", name, perm=[1, 0, 2]))
        shift = self._name(bias[0]) if bias and bias[0] is not None else None
        return name, self._name(weight), shift

    # Writes

    def _assign(self, node: Any, name: str) -> None:
        """Give a tensor other values, and the tensor that it shows a part of."""
        node = self._root(node)
        if node in self.seen:
            base = self.seen[node][0]
            self._assign(base, self._behind(node, base, name))
            self.values[node] = name
            self.seen[node] = (base, self._version(base))
            return
        self._name(node)
        self.values[node] = name
        self.version[node] = self.version.get(node, 0) + 1

    def _behind(self, node: Any, base: Any, name: str) -> str:
        """Return a view's base with other values in the place of those that the view shows."""
        whole, kind = self._value(base), node.target.name
        a = SimpleNamespace(**self._arguments(node))
        if kind in {"alias", "detach"}:
            return name
        if kind in {"view_size", "_unsafe_view", "reshape", "squeeze", "unsqueeze"}:
            return str(self.w.op("Reshape", name, self.w.shape(whole.name)))
        if kind in {"transpose", "swapaxes", "swapdims", "t"}:
            meta = node.meta["val"]
            a.self = Value(name, meta.dtype, meta.ndim, self._sizes_of(node, name))
            return str(FORMS[kind](self.w, a, None))
        if kind == "permute":
            order = [dim % whole.rank for dim in a.dims]
            return str(self.w.op("Transpose", name, perm=np.argsort(order).tolist()))
        if kind == "select":
            axis = a.dim % whole.rank
            return put_slice(self.w, whole, self.w.unsqueeze(name, [axis]), axis, a.index, 1, 1)
        if kind == "slice":
            axis = a.dim % whole.rank
            return put_slice(self.w, whole, name, axis, a.start or 0, a.step, None)
        if kind == "diagonal":
            return put_diagonal(self.w, whole, name, a)
        raise UnsupportedOperatorError(f"a write through the view {kind!r}")


def _is(node: Any, name: str) -> bool:
    return getattr(getattr(node, "target", None), "name", None) == name
