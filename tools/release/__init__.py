"""Make a release: wheels for several interpreters, source distributions, a bill, an index."""
