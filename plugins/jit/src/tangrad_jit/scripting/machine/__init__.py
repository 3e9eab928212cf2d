"""The machine that runs scripts: typed registers, walked in C."""
