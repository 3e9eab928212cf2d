"""From the typed tree to what runs: Python code and the functions that it calls."""
