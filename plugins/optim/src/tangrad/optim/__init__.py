"""Optimizers and learning-rate schedules."""

from tangrad.optim import holdings as _holdings  # noqa: F401
from tangrad.optim import lr_scheduler as lr_scheduler
from tangrad.optim import swa_utils as swa_utils
from tangrad.optim.adadelta import Adadelta as Adadelta
from tangrad.optim.adafactor import Adafactor as Adafactor
from tangrad.optim.adagrad import Adagrad as Adagrad
from tangrad.optim.adam import Adam as Adam
from tangrad.optim.adamax import Adamax as Adamax
from tangrad.optim.adamw import AdamW as AdamW
from tangrad.optim.asgd import ASGD as ASGD
from tangrad.optim.lbfgs import LBFGS as LBFGS
from tangrad.optim.muon import Muon as Muon
from tangrad.optim.nadam import NAdam as NAdam
from tangrad.optim.optimizer import Optimizer as Optimizer
from tangrad.optim.optimizer import (
    swap_in_optimizer_params_and_state as swap_in_optimizer_params_and_state,
)
from tangrad.optim.radam import RAdam as RAdam
from tangrad.optim.rmsprop import RMSprop as RMSprop
from tangrad.optim.rprop import Rprop as Rprop
from tangrad.optim.sgd import SGD as SGD
from tangrad.optim.sparse_adam import SparseAdam as SparseAdam
