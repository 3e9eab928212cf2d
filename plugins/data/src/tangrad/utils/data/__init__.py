"""Data sets, and loading them in batches."""

from tangrad.utils.data import _utils as _utils
from tangrad.utils.data.collate import default_collate as default_collate
from tangrad.utils.data.collate import default_convert as default_convert
from tangrad.utils.data.dataloader import DataLoader as DataLoader
from tangrad.utils.data.datapipes import DataChunk as DataChunk
from tangrad.utils.data.datapipes import DFIterDataPipe as DFIterDataPipe
from tangrad.utils.data.datapipes import IterDataPipe as IterDataPipe
from tangrad.utils.data.datapipes import MapDataPipe as MapDataPipe
from tangrad.utils.data.datapipes import argument_validation as argument_validation
from tangrad.utils.data.datapipes import functional_datapipe as functional_datapipe
from tangrad.utils.data.datapipes import (
    guaranteed_datapipes_determinism as guaranteed_datapipes_determinism,
)
from tangrad.utils.data.datapipes import non_deterministic as non_deterministic
from tangrad.utils.data.datapipes import runtime_validation as runtime_validation
from tangrad.utils.data.datapipes import runtime_validation_disabled as runtime_validation_disabled
from tangrad.utils.data.dataset import ChainDataset as ChainDataset
from tangrad.utils.data.dataset import ConcatDataset as ConcatDataset
from tangrad.utils.data.dataset import Dataset as Dataset
from tangrad.utils.data.dataset import IterableDataset as IterableDataset
from tangrad.utils.data.dataset import StackDataset as StackDataset
from tangrad.utils.data.dataset import Subset as Subset
from tangrad.utils.data.dataset import TensorDataset as TensorDataset
from tangrad.utils.data.dataset import random_split as random_split
from tangrad.utils.data.distributed import DistributedSampler as DistributedSampler
from tangrad.utils.data.sampler import BatchSampler as BatchSampler
from tangrad.utils.data.sampler import RandomSampler as RandomSampler
from tangrad.utils.data.sampler import Sampler as Sampler
from tangrad.utils.data.sampler import SequentialSampler as SequentialSampler
from tangrad.utils.data.sampler import SubsetRandomSampler as SubsetRandomSampler
from tangrad.utils.data.sampler import WeightedRandomSampler as WeightedRandomSampler
from tangrad.utils.data.worker import get_worker_info as get_worker_info
