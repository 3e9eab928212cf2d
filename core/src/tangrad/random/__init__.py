"""Random numbers: generators and the engines behind them."""

from __future__ import annotations

from tangrad.random.generator import (
    Generator,
    default_generator,
    fork_rng,
    get_default_generator,
    get_engine,
    get_rng_state,
    initial_seed,
    manual_seed,
    seed,
    set_engine,
    set_rng_state,
    thread_safe_generator,
)

__all__ = [
    "Generator",
    "default_generator",
    "fork_rng",
    "get_default_generator",
    "get_engine",
    "get_rng_state",
    "initial_seed",
    "manual_seed",
    "seed",
    "set_engine",
    "set_rng_state",
    "thread_safe_generator",
]
