"""The classes of pipes, by the module that PyTorch has them in."""

from tangrad.utils.data.datapipes import DataChunk as DataChunk
from tangrad.utils.data.datapipes import DFIterDataPipe as DFIterDataPipe
from tangrad.utils.data.datapipes import IterDataPipe as IterDataPipe
from tangrad.utils.data.datapipes import MapDataPipe as MapDataPipe
