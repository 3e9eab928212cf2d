"""Build the wheels, install combinations of them, and run their tests: `python -m ci`.

`packages` reads what each package says of its tests, `__main__` is the command, and `shares` tells
what each package's tests took.
"""
