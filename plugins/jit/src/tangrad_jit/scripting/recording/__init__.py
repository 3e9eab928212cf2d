"""Runs of Python programs recorded as programs of the script language, for `jit.trace`."""
