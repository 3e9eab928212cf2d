"""Hooks that average gradients, plainly or in half the bits, by PyTorch's path."""

from tangrad_distributed.training.communication_hooks import allreduce_hook as allreduce_hook
from tangrad_distributed.training.communication_hooks import (
    bf16_compress_hook as bf16_compress_hook,
)
from tangrad_distributed.training.communication_hooks import (
    bf16_compress_wrapper as bf16_compress_wrapper,
)
from tangrad_distributed.training.communication_hooks import (
    fp16_compress_hook as fp16_compress_hook,
)
from tangrad_distributed.training.communication_hooks import (
    fp16_compress_wrapper as fp16_compress_wrapper,
)
