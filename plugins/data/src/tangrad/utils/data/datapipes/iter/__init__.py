"""Pipes over a stream."""

from tangrad.utils.data.datapipes.iter.callable import CollatorIterDataPipe as Collator
from tangrad.utils.data.datapipes.iter.callable import FilterIterDataPipe as Filter
from tangrad.utils.data.datapipes.iter.callable import MapperIterDataPipe as Mapper
from tangrad.utils.data.datapipes.iter.combinatorics import SamplerIterDataPipe as Sampler
from tangrad.utils.data.datapipes.iter.combinatorics import ShufflerIterDataPipe as Shuffler
from tangrad.utils.data.datapipes.iter.combining import ConcaterIterDataPipe as Concater
from tangrad.utils.data.datapipes.iter.combining import DemultiplexerIterDataPipe as Demultiplexer
from tangrad.utils.data.datapipes.iter.combining import ForkerIterDataPipe as Forker
from tangrad.utils.data.datapipes.iter.combining import MultiplexerIterDataPipe as Multiplexer
from tangrad.utils.data.datapipes.iter.combining import ZipperIterDataPipe as Zipper
from tangrad.utils.data.datapipes.iter.files import FileListerIterDataPipe as FileLister
from tangrad.utils.data.datapipes.iter.files import FileOpenerIterDataPipe as FileOpener
from tangrad.utils.data.datapipes.iter.files import RoutedDecoderIterDataPipe as RoutedDecoder
from tangrad.utils.data.datapipes.iter.files import StreamReaderIterDataPipe as StreamReader
from tangrad.utils.data.datapipes.iter.grouping import BatcherIterDataPipe as Batcher
from tangrad.utils.data.datapipes.iter.grouping import GrouperIterDataPipe as Grouper
from tangrad.utils.data.datapipes.iter.grouping import UnBatcherIterDataPipe as UnBatcher
from tangrad.utils.data.datapipes.iter.sharding import ShardingFilterIterDataPipe as ShardingFilter
from tangrad.utils.data.datapipes.iter.utils import IterableWrapperIterDataPipe as IterableWrapper

__all__ = [
    "Batcher",
    "Collator",
    "Concater",
    "Demultiplexer",
    "FileLister",
    "FileOpener",
    "Filter",
    "Forker",
    "Grouper",
    "IterableWrapper",
    "Mapper",
    "Multiplexer",
    "RoutedDecoder",
    "Sampler",
    "ShardingFilter",
    "Shuffler",
    "StreamReader",
    "UnBatcher",
    "Zipper",
]
