"""Tell what a program computed, for the comparison of two runs: a line of JSON per value."""

import json
import os
from typing import Any

import numpy as np


def tell(name: str, value: Any) -> None:
    """Print a tensor, array, number, text or list under a name."""
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray):
        value = (
            value.astype(np.float64).ravel().tolist() if value.dtype.kind != "U" else value.tolist()
        )
    elif isinstance(value, np.generic):
        value = value.item()
    print("OUTCOME", json.dumps({"name": name, "value": value}), flush=True)


def place(name: str) -> str:
    """Return a path in the folder that this run may write to."""
    return os.path.join(os.environ["OUTCOME_FOLDER"], name)
