"""Functions on the parameters of a network."""

from tangrad.nn.utils import rnn as rnn
from tangrad.nn.utils.clip_grad import clip_grad_norm as clip_grad_norm
from tangrad.nn.utils.clip_grad import clip_grad_norm_ as clip_grad_norm_
from tangrad.nn.utils.clip_grad import clip_grad_value_ as clip_grad_value_
from tangrad.nn.utils.clip_grad import clip_grads_with_norm_ as clip_grads_with_norm_
from tangrad.nn.utils.clip_grad import get_total_norm as get_total_norm
from tangrad.nn.utils.convert_parameters import parameters_to_vector as parameters_to_vector
from tangrad.nn.utils.convert_parameters import vector_to_parameters as vector_to_parameters
