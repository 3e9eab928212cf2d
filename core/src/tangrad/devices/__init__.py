"""The core's own devices: `reference` (NumPy), `meta`, and `cpu` until a backend serves it."""
