"""Between groups of channels."""

from __future__ import annotations

from tangrad import Tensor
from tangrad.nn import functional as F
from tangrad.nn.modules.module import Module

__all__ = ["ChannelShuffle"]


class ChannelShuffle(Module):
    """Interleave groups of channels (Zhang et al. 2017, https://arxiv.org/abs/1707.01083).

    Args:
        groups: number of groups.
    """

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, input: Tensor) -> Tensor:
        """Return (N, C, *) with its channels in another order."""
        return F.channel_shuffle(input, self.groups)

    def extra_repr(self) -> str:
        """Show the number of groups."""
        return f"groups={self.groups}"
