"""The devices that come with the core: `reference` (NumPy), `meta`, and `cpu` until a backend serves it."""
