"""Schedules of the learning rate."""

from tangrad.optim.lr_scheduler.combined import ChainedScheduler as ChainedScheduler
from tangrad.optim.lr_scheduler.combined import SequentialLR as SequentialLR
from tangrad.optim.lr_scheduler.cycles import (
    CosineAnnealingWarmRestarts as CosineAnnealingWarmRestarts,
)
from tangrad.optim.lr_scheduler.cycles import CyclicLR as CyclicLR
from tangrad.optim.lr_scheduler.cycles import OneCycleLR as OneCycleLR
from tangrad.optim.lr_scheduler.formulas import ConstantLR as ConstantLR
from tangrad.optim.lr_scheduler.formulas import CosineAnnealingLR as CosineAnnealingLR
from tangrad.optim.lr_scheduler.formulas import ExponentialLR as ExponentialLR
from tangrad.optim.lr_scheduler.formulas import LambdaLR as LambdaLR
from tangrad.optim.lr_scheduler.formulas import LinearLR as LinearLR
from tangrad.optim.lr_scheduler.formulas import MultiplicativeLR as MultiplicativeLR
from tangrad.optim.lr_scheduler.formulas import MultiStepLR as MultiStepLR
from tangrad.optim.lr_scheduler.formulas import PolynomialLR as PolynomialLR
from tangrad.optim.lr_scheduler.formulas import StepLR as StepLR
from tangrad.optim.lr_scheduler.plateau import ReduceLROnPlateau as ReduceLROnPlateau
from tangrad.optim.lr_scheduler.scheduler import (
    EPOCH_DEPRECATION_WARNING as EPOCH_DEPRECATION_WARNING,
)
from tangrad.optim.lr_scheduler.scheduler import LRScheduler as LRScheduler

_LRScheduler = LRScheduler  # its name before PyTorch 2.0

__all__ = [
    "ChainedScheduler",
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "CyclicLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "OneCycleLR",
    "PolynomialLR",
    "ReduceLROnPlateau",
    "SequentialLR",
    "StepLR",
]
