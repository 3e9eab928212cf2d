"""Optimizers and learning-rate schedules."""

from tangrad.optim import lr_scheduler as lr_scheduler
from tangrad.optim.adam import Adam as Adam
from tangrad.optim.adamw import AdamW as AdamW
from tangrad.optim.optimizer import Optimizer as Optimizer
from tangrad.optim.sgd import SGD as SGD
