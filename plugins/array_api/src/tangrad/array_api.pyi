# What the package shows, all of it.
from tangrad_array_api import *  # noqa: F403
from tangrad_array_api import __array_api_version__ as __array_api_version__
from tangrad_array_api import __array_namespace_info__ as __array_namespace_info__
