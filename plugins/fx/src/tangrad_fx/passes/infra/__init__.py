"""Passes in order."""

from tangrad.plugin import submodules_on_demand

__getattr__ = submodules_on_demand(__name__)
