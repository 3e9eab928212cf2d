"""Event files for TensorBoard, written without it: scalars, images, histograms and the rest."""

from __future__ import annotations

from tangrad.utils.tensorboard.events import FileWriter
from tangrad.utils.tensorboard.writer import SummaryWriter

__all__ = ["FileWriter", "SummaryWriter"]
