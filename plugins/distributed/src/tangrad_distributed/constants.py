"""How long collectives may take, by PyTorch's path."""

from datetime import timedelta

default_pg_timeout = timedelta(minutes=30)
default_pg_nccl_timeout: timedelta | None = None
