"""States of optimizers over sharded tensors, by PyTorch's path: absent."""

from tangrad_distributed.absent import absent

load_sharded_optimizer_state_dict = absent(
    "checkpoint.optimizer",
    "load_sharded_optimizer_state_dict",
    "there is no ShardedTensor; use load with get_optimizer_state_dict, which loads parts",
)
