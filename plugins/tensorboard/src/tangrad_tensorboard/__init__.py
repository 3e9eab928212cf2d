"""Event files for TensorBoard, written without it: scalars, images, histograms and the rest."""

from __future__ import annotations

from tangrad_tensorboard.events import FileWriter
from tangrad_tensorboard.writer import SummaryWriter

__all__ = ["FileWriter", "SummaryWriter"]

API = 1

# Where PyTorch has them.
FileWriter.__module__ = SummaryWriter.__module__ = "tangrad.utils.tensorboard"
