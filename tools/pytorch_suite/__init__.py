"""PyTorch's own tests, run on PyTorch and on tangrad: parts of tools/pytorch_tests.py.

`runner` starts a process for each test file and goes on after one that died, `worker` is what
runs in it, `stubs` answers for PyTorch's private names there, with the values of `answers`,
`causes` tells why a test fails, and `page` writes what came out.
"""
