"""Building blocks of neural networks."""

from tangrad.nn import functional as functional
from tangrad.nn import init as init
from tangrad.nn import modules as modules
from tangrad.nn import parameter as parameter
from tangrad.nn import utils as utils
from tangrad.nn.modules import *  # noqa: F403
from tangrad.nn.parameter import Buffer as Buffer
from tangrad.nn.parameter import Parameter as Parameter
