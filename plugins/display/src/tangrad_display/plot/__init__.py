"""Pictures by matplotlib: curves, confusion matrices, filters, attention, computation graphs.

Each function draws into the axes or the figure that it is given, or makes one, and returns what it
has drawn into, so that everything of matplotlib can follow.
"""

from __future__ import annotations

from tangrad_display.plot.charts import attention, confusion_matrix, curves, filters
from tangrad_display.plot.graphs import graph

__all__ = ["attention", "confusion_matrix", "curves", "filters", "graph"]
