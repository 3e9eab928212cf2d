"""The typed program: what runs on arrays, on scalars of any precision, or becomes C."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tangrad.expr.steps import Steps

TYPE_CHECKING = False  # only type checkers need the name; render is loaded when it is asked for
if TYPE_CHECKING:
    from tangrad.expr.render import Dialect


class Program(Steps):
    """Hold typed SSA that can be run; :meth:`Expression.typed` makes one."""

    __slots__ = ()

    def numpy(self) -> Callable[..., tuple]:
        """Return a function of NumPy arrays, in the order of ``inputs``, and keyword parameters.

        It returns a tuple of arrays of ``result_types``; an output that is just an input may be
        the same array. bfloat16 arrays, which NumPy lacks, come
        and go as uint16 bits. Programs that are ``indexed`` take the keyword ``index``: the
        array of the elements' linear indices.

        Raises:
            ZeroDivisionError: from the function, if an integer is divided by zero.
        """
        from tangrad.expr.numpy_eval import build

        return build(self)

    def render_c(
        self,
        name: str,
        storage_types: Mapping[str, str] | None = None,
        out_types: Sequence[str] | None = None,
        dialect: str | Dialect = "c",
    ) -> str:
        """Return the source of a scalar function called ``name``; see ``render.py``.

        Of an op's name ``package::op`` the colons become underscores.
        """
        from tangrad.expr.render import render

        return render(self, name.replace("::", "__"), storage_types or {}, out_types, dialect)
