"""Processes of a launcher, by PyTorch's paths."""

from tangrad_distributed.elastic.multiprocessing import errors as errors
from tangrad_distributed.elastic.multiprocessing.errors import ProcessFailure as ProcessFailure
