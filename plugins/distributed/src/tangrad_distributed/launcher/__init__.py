"""Start a function in several ranks, by PyTorch's path."""

from tangrad_distributed.launcher.api import LaunchConfig as LaunchConfig
from tangrad_distributed.launcher.api import elastic_launch as elastic_launch
from tangrad_distributed.launcher.api import launch_agent as launch_agent
