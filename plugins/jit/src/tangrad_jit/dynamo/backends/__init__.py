"""`tangrad._dynamo.backends`: where programs find what registers and makes back ends."""

from tangrad.plugin import submodules_on_demand

__getattr__ = submodules_on_demand(__name__)
