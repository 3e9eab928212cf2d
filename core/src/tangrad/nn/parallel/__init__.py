"""Modules on several devices."""

from tangrad.nn.parallel.data_parallel import DataParallel as DataParallel
from tangrad.nn.parallel.data_parallel import data_parallel as data_parallel
