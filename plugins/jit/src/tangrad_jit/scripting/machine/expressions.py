"""From the typed tree to steps of the machine: expressions and conditions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tangrad_jit.scripting.machine.assembler import Assembler, Label
from tangrad_jit.scripting.machine.foreign import (
    Part,
    Parts,
    check_foreign,
    children,
    with_children,
)
from tangrad_jit.scripting.machine.kinds_of import Unsupported, has_containers, is_plain
from tangrad_jit.scripting.machine.steps import step_of
from tangrad_jit.scripting.machine.variables import types_of_variables
from tangrad_jit.scripting.tree import nodes as tree
from tangrad_jit.scripting.types import kinds
from tangrad_jit.scripting.types.kinds import DictType, ListType, OptionalType, TupleType, Type

__all__ = ["Expressions"]

_NATIVE = (
    *(tree.Const, tree.Local, tree.And, tree.Or, tree.Not, tree.IfElse, tree.MakeList),
    *(tree.MakeTuple, tree.MakeDict, tree.TupleItem, tree.Comprehension),
)
# What stands in a part as it is, where a part has it inside.
_INLINE = (tree.MakeList, tree.MakeTuple, tree.SliceOf)
_JUMPS = {
    "EQ": ("JUMP_EQ", "JUMP_NE", False),
    "NE": ("JUMP_NE", "JUMP_EQ", False),
    "LT": ("JUMP_LT", "JUMP_LE", True),
    "LE": ("JUMP_LE", "JUMP_LT", True),
    "FEQ": ("JUMP_FEQ", "JUMP_FNE", False),
    "FNE": ("JUMP_FNE", "JUMP_FEQ", False),
    "FLT": ("JUMP_FLT", "JUMP_NOT_FLT", False),
    "FLE": ("JUMP_FLE", "JUMP_NOT_FLE", False),
}


class Expressions(Assembler):
    """Write expressions."""

    def __init__(self, unit: Any) -> None:
        super().__init__(unit)
        self.parts = Parts(unit)
        self._types = types_of_variables(unit)
        self._variables: dict[tuple[str, str], int] = {}
        self._parameters: dict[str, int] = {}
        self._scopes: list[dict[str, tuple[int, Type]]] = []
        self._hidden = 0

    # --- variables

    def declare(self, parameters: Any) -> None:
        """Give each parameter the register that it comes in."""
        for parameter in parameters:
            register = self.register(parameter.type)
            self._parameters[parameter.name] = register
            whole = self._types[parameter.name][str(parameter.type)]
            if whole == parameter.type:
                self._variables[parameter.name, str(whole)] = register

    def parameter(self, name: str) -> int:
        """Return the register that a parameter comes in."""
        return self._parameters[name]

    def variable(self, name: str, kind: Type) -> tuple[int, Type]:
        """Return the register of a variable where it is used as a type, and the register's type."""
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        whole = self._types[name][str(kind)]
        key = name, str(whole)
        if key not in self._variables:
            self._variables[key] = self.register(whole)
        return self._variables[key], whole

    def enter(self, names: dict[str, tuple[int, Type]]) -> None:
        """Give names a meaning of their own, until `leave`."""
        self._scopes.append(names)

    def leave(self) -> None:
        """End the meanings of `enter`."""
        self._scopes.pop()

    # --- values of a type

    def store(self, target: int | None, register: int) -> None:
        """Copy a register; one of a temporary value is emptied."""
        if target is None or target == register:
            return
        letter = self.keeping(target)
        if letter and self.is_temporary(register):
            self.emit(f"TAKE_{letter}", target, register)
        else:
            self.emit(f"MOVE_{letter or 'W'}", target, register)

    def coerce(self, register: int, have: Type, target: int) -> None:
        """Store a value of a type in a register of another, which holds it.

        Raises:
            Unsupported: there are no steps for it.
        """
        want = self.types[target]
        if have == want:
            self.store(target, register)
        elif have == kinds.NONE:
            self._store_none(target)
        elif isinstance(want, OptionalType) and have == want.element:
            if is_plain(have):
                self.emit("BOX", target, register, d=self.kind(want))
            else:
                self.store(target, register)
        elif isinstance(have, OptionalType) and have.element == want:
            if is_plain(want):
                self.emit("UNBOX", target, register)
            else:
                if self.keeping(register) == "O":
                    self.emit("CHECK", register)
                self.store(target, register)
        elif isinstance(have, TupleType) and isinstance(want, TupleType):
            self._coerce_tuple(register, have, want, target)
        elif has_containers(have) or has_containers(want):
            raise Unsupported(f"a {have} as a {want}")
        elif self.keeping(target) == "P":
            if self.keeping(register) == "P":
                self.store(target, register)
            else:
                self.emit("TO_PYTHON", target, register, d=self.kind(have))
        elif self.keeping(register) == "P":
            self.emit("FROM_PYTHON", target, register, d=self.kind(want))
        else:
            raise Unsupported(f"a {have} as a {want}")

    def _store_none(self, target: int) -> None:
        letter = self.keeping(target)
        if letter == "P":
            self.emit("MOVE_P", target, self.constant(kinds.ANY, None))
        elif letter == "O":
            self.emit("CLEAR_O", target)

    def _store_uninitialized(self, target: int) -> None:
        """Store what stands in archives for a value that nobody reads; that it may be read."""
        kind = self.types[target]
        letter = self.keeping(target)
        if isinstance(kind, (ListType, DictType)):
            self.emit_many(f"{type(kind).__name__[:4].upper()}_NEW", target, [], self.kind(kind))
        elif isinstance(kind, TupleType):
            found = [self.temporary(element) for element in kind.elements]
            for register in found:
                self._store_uninitialized(register)
            self.emit_many("TUPLE_NEW", target, found, self.kind(kind))
            self.drop(*found)
        elif letter:
            self._store_none(target)
        else:
            self.emit("MOVE_W", target, self.constant(kinds.INT, 0))

    def _coerce_tuple(self, register: int, have: TupleType, want: TupleType, target: int) -> None:
        found = []
        for k, (one, other) in enumerate(zip(have.elements, want.elements, strict=True)):
            member, made = self.temporary(one), self.temporary(other)
            self.member(member, register, k)
            self.coerce(member, one, made)
            self.drop(member)
            found.append(made)
        self.emit_many("TUPLE_NEW", target, found, self.kind(want))
        self.drop(*found)

    def as_type(self, node: tree.Expr, kind: Type) -> int:
        """Return the register of an expression, as a value of a type."""
        found = self.value(node)
        if node.type == kind:
            return found
        made = self.temporary(kind)
        self.coerce(found, node.type, made)
        self.drop(found)
        return made

    def held(self, node: tree.Expr) -> int:
        """Return a temporary register of an expression, which no assignment changes."""
        target = self.temporary(node.type)
        self.value(node, target)
        return target

    def member(self, target: int, register: int, index: int) -> None:
        """Store a tuple's member."""
        self.emit(f"TUPLE_GET_{self.keeping(target) or 'W'}", target, register, d=index)

    # --- expressions

    def value(self, node: tree.Expr, target: int | None = None) -> int:
        """Write an expression; returns the register of its value, which is `target` where given.

        Raises:
            Unsupported: the machine cannot compute it.
        """
        around, self.place = self.place, node.place
        made = self._written(node, target)
        self.place = around
        return made

    def _written(self, node: tree.Expr, target: int | None) -> int:
        if isinstance(node, tree.Const) and node.value is None and node.type != kinds.NONE:
            made = self.temporary(node.type) if target is None else target
            self._store_uninitialized(made)
            return made
        if isinstance(node, tree.Const) and type(node.value) not in (list, dict, tuple):
            found = self.constant(node.type, node.value)
            return self._moved(found, target)
        if isinstance(node, tree.Local):
            return self._local(node, target)
        plain = isinstance(node, tree.Convert) and node.kind in ("refine", "cast")
        if plain and node.value.type == node.type:  # type: ignore[attr-defined]
            return self.value(node.value, target)  # type: ignore[attr-defined]
        made = self.temporary(node.type) if target is None else target
        if self.is_foreign(node):
            self._run(node, made)
        else:
            getattr(self, f"_on_{type(node).__name__}")(node, made)
        return made

    def _moved(self, found: int, target: int | None) -> int:
        if target is None:
            return found
        self.store(target, found)
        return target

    def _local(self, node: tree.Local, target: int | None) -> int:
        register, kind = self.variable(node.name, node.type)
        if kind == node.type:
            return self._moved(register, target)
        made = self.temporary(node.type) if target is None else target
        self.coerce(register, kind, made)
        return made

    def effect(self, node: tree.Expr) -> None:
        """Write an expression for what it does."""
        self.place = node.place
        if isinstance(node, tree.Apply) and node.builtin.writes:
            compute = step_of(node)
            unused = node.builtin.name in ("append", "add_") or node.type == kinds.NONE
            if compute is not None and unused:
                compute(self, None)
                return
        self.drop(self.value(node))

    def _on_Const(self, node: tree.Const, target: int) -> None:
        held = self.constant(kinds.ANY, node.value)
        self.emit("FROM_PYTHON", target, held, d=self.kind(node.type))

    def _on_Apply(self, node: tree.Apply, target: int) -> None:
        compute = step_of(node)
        assert compute is not None
        compute(self, target)

    def _given(self, arg: Any) -> int:
        if isinstance(arg, tuple):
            return self.as_type(*arg)
        return self.value(arg)

    def apply(
        self, op: str, target: int, *args: Any, d: int = 0, e: int = 0, last: Any = None
    ) -> None:
        """Write an instruction on expressions, or on pairs of them and the types to have."""
        given = [self._given(arg) for arg in args]
        if last is not None:
            d = self._given(last)
        self.emit_on(op, [target, *given], d, e)
        self.drop(*given, *([d] if last is not None else []))

    def apply_floats(self, op: str, target: int, *args: tree.Expr, d: int = 0) -> None:
        """Write an instruction on floats; other numbers are converted."""
        given = [self._as_float(arg) for arg in args]
        self.emit_on(op, [target, *given], d)
        self.drop(*given)

    def _as_float(self, node: tree.Expr) -> int:
        if isinstance(node, tree.Const) and node.type != kinds.FLOAT:
            return self.constant(kinds.FLOAT, float(node.value))
        found = self.value(node)
        if node.type == kinds.FLOAT:
            return found
        made = self.temporary(kinds.FLOAT)
        self.emit("TO_FLOAT", made, found)
        self.drop(found)
        return made

    def change(self, op: str, *args: Any, keeps: int | None = None) -> int:
        """Write an instruction that changes its first register; returns that, if it is kept."""
        given = [self._given(arg) for arg in args]
        self.emit_on(op, [*given])
        kept = given[0]
        self.drop(*[register for k, register in enumerate(given) if k != keeps])
        return kept

    def sliced(self, target: int, owner: tree.Expr, bounds: list[tree.Expr]) -> None:
        """Write a slice of a list."""
        given = [self.value(owner), *[self.value(bound) for bound in bounds]]
        self.emit("SLICE", target, given[0], given[1], d=given[2], e=given[3])
        self.drop(*given)

    def is_none(self, node: tree.Expr, target: int, negated: bool) -> None:
        """Write the question whether a value is None."""
        found = self.value(node)
        letter = self.keeping(found)
        if not letter:
            known = (node.type == kinds.NONE) is not negated
            self.store(target, self.constant(kinds.BOOL, known))
        else:
            self.emit("IS_NONE" if letter == "O" else "IS_NONE_P", target, found)
            if negated:
                self.emit("NOT", target, target)
        self.drop(found)

    def _on_Convert(self, node: tree.Convert, target: int) -> None:
        found = self.value(node.value)
        have = node.value.type
        if node.kind == "list":
            if isinstance(have, TupleType):
                given = []
                for k, element in enumerate(have.elements):
                    given.append(self.temporary(element))
                    self.member(given[-1], found, k)
                self.emit_many("LIST_NEW", target, given, self.kind(node.type))
                self.drop(*given)
            else:
                ends = [self.constant(kinds.INT, k) for k in (0, (1 << 63) - 1, 1)]
                self.emit("SLICE", target, found, ends[0], d=ends[1], e=ends[2])
        elif node.kind == "float" and have != kinds.FLOAT:
            self.emit("TO_FLOAT", target, found)
        elif node.kind == "int" and have == kinds.FLOAT:
            self.emit("TO_INT", target, found)
        elif is_plain(have) and is_plain(node.type):
            self.store(target, found)
        else:
            self.coerce(found, have, target)
        self.drop(found)

    def _on_MakeList(self, node: tree.MakeList, target: int) -> None:
        assert isinstance(node.type, ListType)
        given = [self.as_type(element, node.type.element) for element in node.elements]
        self.emit_many("LIST_NEW", target, given, self.kind(node.type))
        self.drop(*given)

    def _on_MakeTuple(self, node: tree.MakeTuple, target: int) -> None:
        assert isinstance(node.type, TupleType)
        given = [
            self.as_type(*pair) for pair in zip(node.elements, node.type.elements, strict=True)
        ]
        self.emit_many("TUPLE_NEW", target, given, self.kind(node.type))
        self.drop(*given)

    def _on_MakeDict(self, node: tree.MakeDict, target: int) -> None:
        kind: Any = node.type
        given = []
        for key, item in zip(node.keys, node.values, strict=True):
            given += [self.as_type(key, kind.key), self.as_type(item, kind.value)]
        self.emit_many("DICT_NEW", target, given, self.kind(node.type))
        self.drop(*given)

    def _on_TupleItem(self, node: tree.TupleItem, target: int) -> None:
        found = self.value(node.value)
        self.member(target, found, node.index)
        self.drop(found)

    def _on_Comprehension(self, node: tree.Comprehension, target: int) -> None:
        self.comprehended(node, target)

    def comprehended(self, node: tree.Comprehension, target: int) -> None:
        """Write a comprehension; `lower` has the loops."""
        raise NotImplementedError

    def _on_Call(self, node: tree.Call, target: int) -> None:
        self._call(node.unit, node.args, node, target)

    def _on_Invoke(self, node: tree.Invoke, target: int) -> None:
        self._call(node.unit, [node.owner, *node.args], node, target)

    def _call(self, unit: Any, args: list[tree.Expr], node: tree.Expr, target: int) -> None:
        called = self.machine_of(unit)
        given = [
            self.as_type(arg, parameter.type)
            for arg, parameter in zip(args, unit.parameters, strict=True)
        ]
        if unit.returned == node.type:
            self.call(called, given, target)
        else:
            made = self.temporary(unit.returned)
            self.call(called, given, made)
            self.coerce(made, unit.returned, target)
            self.drop(made)
        self.drop(*given)

    def machine_of(self, unit: Any) -> Any:
        """Return the program of the machine for a function, or None; `lower` makes them."""
        raise NotImplementedError

    # --- conditions

    def _on_And(self, node: tree.And, target: int) -> None:
        self._condition(node, target)

    def _on_Or(self, node: tree.Or, target: int) -> None:
        self._condition(node, target)

    def _condition(self, node: tree.Expr, target: int) -> None:
        other, end = Label(), Label()
        self.branch(node, other, False)
        self.store(target, self.constant(kinds.BOOL, True))
        self.emit("JUMP", d=end)
        self.mark(other)
        self.store(target, self.constant(kinds.BOOL, False))
        self.mark(end)

    def _on_Not(self, node: tree.Not, target: int) -> None:
        found = self.value(node.value)
        self.emit("NOT", target, found)
        self.drop(found)

    def _on_IfElse(self, node: tree.IfElse, target: int) -> None:
        other, end = Label(), Label()
        made = self.temporary(node.type)
        self.branch(node.condition, other, False)
        for part, label in ((node.body, end), (node.orelse, None)):
            found = self.as_type(part, node.type)
            self.store(made, found)
            self.drop(found)
            if label is not None:
                self.emit("JUMP", d=label)
                self.mark(other)
        self.mark(end)
        self.store(target, made)
        self.drop(made)

    def branch(self, node: tree.Expr, to: Label, when: bool) -> None:
        """Write a jump that is taken where a condition is true, or where it is false."""
        if isinstance(node, tree.Not):
            self.branch(node.value, to, not when)
        elif isinstance(node, (tree.And, tree.Or)):
            if isinstance(node, tree.Or) is when:
                self.branch(node.left, to, when)
                self.branch(node.right, to, when)
            else:
                past = Label()
                self.branch(node.left, past, not when)
                self.branch(node.right, to, when)
                self.mark(past)
        elif not self._compared(node, to, when):
            found = self.value(node)
            self.emit("JUMP_IF" if when else "JUMP_UNLESS", found, d=to)
            # Both ways give back what is no bool; a bool needs no giving back.
            self.drop(found)

    def _compared(self, node: tree.Expr, to: Label, when: bool) -> bool:
        if not isinstance(node, tree.Apply) or len(node.args) != 2:
            return False
        numbers = (kinds.INT, kinds.BOOL, kinds.FLOAT)
        name = node.builtin.name
        if name not in ("eq", "ne", "lt", "le", "gt", "ge"):
            return False
        if any(arg.type not in numbers for arg in node.args):
            return False
        args = list(reversed(node.args)) if name in ("gt", "ge") else node.args
        floats = any(arg.type == kinds.FLOAT for arg in args)
        key = {"gt": "LT", "ge": "LE"}.get(name, name.upper())
        read: Callable[[tree.Expr], int] = self._as_float if floats else self.value
        # The operands are computed in the order of the text.
        first = [read(arg) for arg in node.args]
        given = list(reversed(first)) if args is not node.args else first
        yes, no, swapped = _JUMPS["F" + key if floats else key]
        if when:
            self.emit(yes, given[0], given[1], d=to)
        else:
            one, other = reversed(given) if swapped else given
            self.emit(no, one, other, d=to)
        self.drop(*given)
        return True

    # --- parts that Python runs

    def is_foreign(self, node: tree.Expr) -> bool:
        """Return whether Python computes an expression.

        Raises:
            Unsupported: it must not.
        """
        native = isinstance(node, _NATIVE)
        if isinstance(node, tree.Apply):
            fresh = any(has_containers(a.type) and self.is_foreign(a) for a in node.args)
            native = step_of(node) is not None and (node.builtin.writes or not fresh)
        elif isinstance(node, tree.Convert):
            native = self._converts(node)
        elif isinstance(node, tree.Call):
            native = self.machine_of(node.unit) is not None
        elif isinstance(node, tree.Invoke) and node.unit is not None:
            called = self.machine_of(node.unit)
            native = called is not None and len(node.args) + 1 == len(node.unit.parameters)
        if not native:
            check_foreign(node)
        return not native

    def _converts(self, node: tree.Convert) -> bool:
        have = node.value.type
        if node.kind in ("refine", "cast", "unwrap"):
            return True
        if node.kind == "list":
            if isinstance(have, TupleType):
                wanted = getattr(node.type, "element", None)
                return all(element == wanted for element in have.elements)
            return have == node.type and not self.is_foreign(node.value)
        numbers = (kinds.INT, kinds.BOOL, kinds.FLOAT)
        return (
            node.kind in ("int", "float", "bool")
            and have in numbers
            and (node.kind != "bool" or have != kinds.FLOAT)
        )

    def _run(self, node: tree.Expr, target: int) -> None:
        part = Part()
        part.result = self.prepared(node, part)
        self.run_part(part, [], [target])

    def prepared(self, node: Any, part: Part) -> Any:
        """Return a node for a part: what the machine computes in it, it computes before."""

        def change(inner: tree.Expr) -> tree.Expr:
            if isinstance(inner, tree.Local):
                part.read(inner)
                return inner
            if isinstance(inner, tree.Const):
                return inner
            if isinstance(inner, _INLINE) or self.is_foreign(inner):
                made: tree.Expr = with_children(inner, change)
                return made
            self._hidden += 1
            name = f"_h{self._hidden}"
            part.hoisted[name] = inner
            return tree.Local(inner.place, inner.type, name)

        if isinstance(node, tree.Expr):
            return change(node)
        return with_children(node, change)

    def may_join(self, node: Any, part: Part) -> bool:
        """Return whether a statement may follow those of a part.

        What the machine computes for it must neither read what the part assigns, nor be seen by
        Python: no list is changed, and no function called.
        """

        def apart(inner: tree.Expr) -> bool:
            if isinstance(inner, (tree.Local, tree.Const)):
                return True
            if isinstance(inner, _INLINE) or self.is_foreign(inner):
                return all(map(apart, children(inner)))
            for found in tree.every(inner):
                if isinstance(found, (tree.Call, tree.Invoke)) or self._writes(found):
                    return False
                if isinstance(found, tree.Local) and found.name in part.assigned:
                    return False
                if isinstance(found, tree.Expr) and self.is_foreign(found):
                    return False
            return True

        return all(map(apart, children(node)))

    def _writes(self, node: Any) -> bool:
        return isinstance(node, tree.Apply) and node.builtin.writes

    def run_part(self, part: Part, outs: list[str], targets: list[int]) -> None:
        """Write the call of a part, and before what the machine computes for it."""
        given = [self.variable(node.name, node.type)[0] for node in part.variables.values()]
        hoisted = [self.value(node) for node in part.hoisted.values()]
        self.call_python(self.parts.define(part, outs), [*given, *hoisted], targets)
        self.drop(*hoisted)

    def resolve(self, functions: dict[str, Any]) -> None:
        """Put functions in the place of their names in calls of Python."""
        self._sites = [
            (functions.get(site[0], site[0]) if isinstance(site[0], str) else site[0], *site[1:])
            for site in self._sites
        ]
