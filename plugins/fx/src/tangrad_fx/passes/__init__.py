"""What is done with graphs: shapes noted, patterns matched, graphs split."""

from tangrad.plugin import submodules_on_demand

__getattr__ = submodules_on_demand(__name__)
