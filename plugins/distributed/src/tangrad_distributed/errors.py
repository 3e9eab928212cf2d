"""What goes wrong between ranks, by PyTorch's names."""

from __future__ import annotations


class DistError(RuntimeError):
    """Tell that something between ranks went wrong."""


class CollectiveArgumentError(ValueError, RuntimeError):
    """Tell that a rank, a size, a dtype or a reduction does not fit a collective.

    PyTorch raises a `ValueError` for some and a `RuntimeError` for others.
    """


class DistBackendError(DistError):
    """Tell that an engine failed: a rank was lost, ranks disagree, or time ran out."""


class DistNetworkError(DistError):
    """Tell that a connection could not be made or was lost."""


class DistStoreError(DistError):
    """Tell that a store failed, or that a key did not come in time."""


class QueueEmptyError(DistStoreError):
    """Tell that a queue of a store holds nothing."""


class CollectiveMismatchError(DistBackendError):
    """Tell that two ranks met in different collectives, or in one with different arguments."""


class RankLostError(DistBackendError):
    """Tell that a rank ended or left while others wait for it.

    Args:
        message: what is told.
        rank: which, in the world.
    """

    def __init__(self, message: str, rank: int = -1) -> None:
        super().__init__(message)
        self.rank = rank


class CollectiveTimeoutError(DistBackendError):
    """Tell that a rank did not come before the group's time was over."""


class WaitCycleError(DistBackendError):
    """Tell that ranks wait for each other in a cycle."""
