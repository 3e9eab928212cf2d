"""From an exported program to the steps of device "c99"."""
