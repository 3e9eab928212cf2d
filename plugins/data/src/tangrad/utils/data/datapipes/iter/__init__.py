"""Pipes over a stream."""

from tangrad.utils.data.datapipes.iter.combinatorics import SamplerIterDataPipe as Sampler
from tangrad.utils.data.datapipes.iter.combinatorics import ShufflerIterDataPipe as Shuffler

__all__ = ["Sampler", "Shuffler"]
