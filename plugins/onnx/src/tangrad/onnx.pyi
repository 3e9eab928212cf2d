# What the package shows, all of it.
from tangrad_onnx import *  # noqa: F403
