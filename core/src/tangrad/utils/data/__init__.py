"""Data sets, and loading them in batches."""

from tangrad.utils.data.collate import default_collate as default_collate
from tangrad.utils.data.collate import default_convert as default_convert
from tangrad.utils.data.dataloader import DataLoader as DataLoader
from tangrad.utils.data.dataset import ChainDataset as ChainDataset
from tangrad.utils.data.dataset import ConcatDataset as ConcatDataset
from tangrad.utils.data.dataset import Dataset as Dataset
from tangrad.utils.data.dataset import IterableDataset as IterableDataset
from tangrad.utils.data.dataset import StackDataset as StackDataset
from tangrad.utils.data.dataset import Subset as Subset
from tangrad.utils.data.dataset import TensorDataset as TensorDataset
from tangrad.utils.data.dataset import random_split as random_split
from tangrad.utils.data.sampler import BatchSampler as BatchSampler
from tangrad.utils.data.sampler import RandomSampler as RandomSampler
from tangrad.utils.data.sampler import Sampler as Sampler
from tangrad.utils.data.sampler import SequentialSampler as SequentialSampler
from tangrad.utils.data.sampler import SubsetRandomSampler as SubsetRandomSampler
from tangrad.utils.data.sampler import WeightedRandomSampler as WeightedRandomSampler
from tangrad.utils.data.worker import get_worker_info as get_worker_info
