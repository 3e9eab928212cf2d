"""Assign registers to a straight run of values while their instructions are written.

Linear scan: values leave their register after the last use; where none is free, the one goes whose
next use is farthest (Belady, "A study of replacement algorithms", IBM Systems Journal 5, 1966).
Constants and slots are at home in memory and leave without a store.
"""

from __future__ import annotations

from collections.abc import Callable

from tangrad_jit.codegen.assembler import Memory


class Registers:
    """The registers during one run.

    Args:
        free: the registers that may be used.
        uses: {value: the places where it is used, the last one first}.
        home: returns where in memory a value is, None where it is nowhere yet.
        load: writes the load of a value from its home.
        spill: writes the store of a value and returns its new home.
        pinned: {value: register} of values that stay where they are.
    """

    def __init__(
        self,
        free: list[int],
        uses: dict[int, list[int]],
        home: Callable[[int], Memory | None],
        load: Callable[[int, int, Memory], None],
        spill: Callable[[int, int], None],
        pinned: dict[int, int],
    ) -> None:
        self.free, self.uses = free, uses
        self.home, self._load, self._spill = home, load, spill
        self.pinned = pinned
        self.where: dict[int, int] = dict(pinned)
        self.locked: set[int] = set()

    def take(self) -> int:
        """Return a register that may be written."""
        if self.free:
            return self.free.pop()
        uses, pinned, locked = self.uses, self.pinned, self.locked
        far, victim = -1, -1
        for value, register in self.where.items():
            if value in pinned or register in locked:
                continue
            next_use = uses[value][-1] if uses.get(value) else 1 << 30
            if next_use > far:
                far, victim = next_use, value
        register = self.where.pop(victim)
        if self.home(victim) is None and far < 1 << 30:
            self._spill(victim, register)
        return register

    def get(self, value: int) -> int:
        """Return the register of a value, which is loaded if need be, and lock it."""
        register = self.where.get(value)
        if register is None:
            at = self.home(value)
            assert at is not None
            register = self.take()
            self._load(value, register, at)
            self.where[value] = register
        self.locked.add(register)
        return register

    def either(self, value: int) -> int | Memory:
        """Return a value's register, or its place in memory."""
        register = self.where.get(value)
        if register is not None:
            self.locked.add(register)
            return register
        at = self.home(value)
        assert at is not None
        return at

    def dies(self, value: int, times: int) -> bool:
        """Tell whether an instruction that uses a value some times is the last that does."""
        return len(self.uses[value]) <= times and value in self.where and value not in self.pinned

    def used(self, values: tuple[int, ...]) -> None:
        """Note one use of each operand, and free the registers of those that had their last."""
        uses, where = self.uses, self.where
        for value in values:
            rest = uses[value]
            rest.pop()
            if not rest and value not in self.pinned:
                register = where.pop(value, None)
                if register is not None:
                    self.free.append(register)
        self.locked.clear()

    def put(self, value: int, register: int) -> None:
        """Note that a register holds a value; if nobody uses it, it is free again."""
        if self.uses.get(value):
            self.where[value] = register
        else:
            self.free.append(register)
