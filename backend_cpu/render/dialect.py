"""The dialect of C that kernels are rendered in."""

from tangrad.expr.render import DIALECTS

DIALECT = DIALECTS["c"]
