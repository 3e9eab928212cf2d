"""Calls that a checker must refuse: each line that says so, and no other."""

import tangrad
import tangrad.nn.functional as F
from tangrad import Tensor, nn

x = tangrad.randn(2, 3)

tangrad.no_such_function(x)  # refused
x.no_such_method()  # refused
tangrad.linalg.no_such_function(x)  # refused
F.no_such_function(x)  # refused
tangrad.exp()  # refused
tangrad.exp("x")  # refused
tangrad.exp(x, 1)  # refused
tangrad.exp(x, out="y")  # refused
tangrad.add(x, "1")  # refused
tangrad.add(x, x, alpha="2")  # refused
x.transpose(0)  # refused
x.transpose(0, "1")  # refused
x.sum(axes=1)  # refused
x.reshape("2")  # refused
x.view(0.5)  # refused
tangrad.cat(x, x, x)  # refused
tangrad.zeros("2")  # refused
tangrad.zeros(2, dtype="float32")  # refused
x.max(1).no_such_field  # refused
x.shape + "a"  # refused
x + "1"  # refused
x.dim(1)  # refused
x.requires_grad = "yes"  # refused
n: int = x.sum()  # refused
s: str = x.shape[0]  # refused
F.softmax(x, dimension=1)  # refused
F.relu(3)  # refused
nn.Linear("3", 4)  # refused
nn.NoSuchLayer()  # refused
t: Tensor = x.split(1)  # refused
tangrad.arange()  # refused
x.topk()  # refused
tangrad.fft.fft(x, n="8")  # refused
