"""Control flow as functions of functions, run at once: `torch._higher_order_ops`."""

from __future__ import annotations

from tangrad_fx.higher_order.associative_scan import associative_scan
from tangrad_fx.higher_order.cond import cond
from tangrad_fx.higher_order.map import map
from tangrad_fx.higher_order.scan import scan
from tangrad_fx.higher_order.while_loop import while_loop

__all__ = ["associative_scan", "cond", "map", "scan", "while_loop"]
