"""Pipes by key."""

from tangrad.utils.data.datapipes.map.pipes import BatcherMapDataPipe as Batcher
from tangrad.utils.data.datapipes.map.pipes import ConcaterMapDataPipe as Concater
from tangrad.utils.data.datapipes.map.pipes import MapperMapDataPipe as Mapper
from tangrad.utils.data.datapipes.map.pipes import SequenceWrapperMapDataPipe as SequenceWrapper
from tangrad.utils.data.datapipes.map.pipes import ShufflerIterDataPipe as Shuffler
from tangrad.utils.data.datapipes.map.pipes import ZipperMapDataPipe as Zipper

__all__ = ["Batcher", "Concater", "Mapper", "SequenceWrapper", "Shuffler", "Zipper"]
