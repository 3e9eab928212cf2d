# ruff: noqa: E501 - the texts of calls and programs break badly
"""Random programs that make one call again and again, and change something in between.

What is kept between two calls (plans of rules, twins, fused steps, prepared modules) must be asked
for anew as soon as something differs that it depends on. A program has one place that calls, a
*site*; before each round one thing of what the call sees is changed: values, numbers and their
types, shapes, strides, dtypes, aliases, what memory a tensor lies in, hooks, training, and what is
switched on around it: grad mode, autocast, transforms, the default dtype, threads. Programs are
text over a library `T`.

Two oracles: a call that writes nothing must give, to the bit, what it gives in a new process that
makes it for the first time (*cold*); programs that write, in place or by an optimizer, are run by
torch.

    python tests/random_repetitions.py [--first SEED] [--count N]
"""

from __future__ import annotations

import argparse
import gc
import importlib
import math
import os
import pickle
import random
import sys
import threading
import warnings
from typing import Any

import numpy as np

DTYPES = ("float32",) * 6 + ("float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool")
DTYPES += ("complex64",)
SHAPES = ((2, 3), (3, 2), (3, 3), (3,), (1, 3), (2, 1), (), (0, 3), (2, 2, 3), (1,), (4, 3))
FORMS = ("plain", "plain", "plain", "turned", "sliced", "expanded", "shifted")
NUMBERS = ("2", "2.0", "True", "-1", "0", "3", "0.5", "-0.0", "1j", "T.tensor(2)", "T.tensor(2.5)",
           "np.float64(2)", "np.int64(3)", "float('inf')", "float('nan')", "1e-3", "300", "-5", "None")  # fmt: skip
AXES = ("0", "1", "-1", "-2", "None", "(0, 1)", "(0,)", "[1]", "2")
FLAGS = ("True", "False")
TEXTS = ("mean", "sum", "none")

# Expressions over tensors a, b, numbers n, m, an axis d, flags f, g and a text s.
CALLS = """a + b|a * n|a - n|n - a|a / b|a ** n|a @ b|a.add(b, alpha=n)|a.mul(n)|a // n|a % n
T.where(a > 0, b, n)|T.where(a > 0, a, b)|a.clamp(n)|a.clamp(max=n)|a.clamp(a, b)|a.lerp(b, n)
T.addcmul(a, a, b, value=n)|T.addmm(b, a, a, beta=n)|F.linear(a, b)|F.linear(a, b, a)
a.sum(d)|a.sum(d, keepdim=f)|a.mean(d)|a.sum(d, dtype=T.float64)|a.amax(d)|a.max(d)|a.argmax(d)
a.prod(d)|a.var(d, correction=n)|a.std(d)|a.norm(n, d)|T.logsumexp(a, d)|a.cumsum(d)|a.softmax(d)
a.log_softmax(d)|a.softmax(d, dtype=T.float64)|a.sort(d, descending=f)|a.topk(1, d)|a.any(d)|a.all()
T.cat([a, b], d)|T.cat([a, b, a], d)|T.stack([a, b], d)|a.unsqueeze(d)|a.squeeze(d)|a.flatten()
a.transpose(d, 0)|a.t()|a.permute(1, 0)|a.view(-1)|a.reshape(3, -1)|a.expand(2, -1, -1)|a.mT
a.expand_as(b)|a.narrow(0, 0, 1)|a.select(0, 0)|a.chunk(2)|a.split(1)|a.unbind()|a.diagonal()
a[0]|a[..., 0]|a[:, None]|a[1:]|a[a > 0]|a[T.tensor([0, 0])]|a[[0, 1]]|a[b > 0]|a[:, T.tensor(0)]
a.clone()|a.contiguous()|a.to(T.float64)|a.to(b.dtype)|a.to(b)|a.float()|a.type(T.int64)|a.half()
F.relu(a)|F.gelu(a)|F.silu(a)|F.leaky_relu(a, n)|F.threshold(a, n, n)|F.softplus(a, n)|F.elu(a, n)
F.dropout(a, 0.0)|F.layer_norm(a, (3,))|F.layer_norm(a, (3,), b)|F.rms_norm(a, (3,))|F.normalize(a)
F.mse_loss(a, b, reduction=s)|F.l1_loss(a, b, reduction=s)|F.cross_entropy(a, T.tensor([0, 1]))
F.cross_entropy(a, b.softmax(-1), reduction=s)|F.nll_loss(a, T.tensor([0, 1]), reduction=s)
F.binary_cross_entropy_with_logits(a, b, reduction=s)|F.pad(a, (1, 1), value=n)|F.one_hot(a)
F.embedding(T.tensor([0, 1]), a)|F.batch_norm(a, None, None, training=True)|F.cosine_similarity(a, b)
F.scaled_dot_product_attention(a, a, a)|F.conv1d(a[None], a[None])|F.avg_pool1d(a[None], 1)
T.zeros_like(a)|T.full_like(a, n)|T.full((2,), n)|T.arange(n)|T.eye(2)|T.ones(2)|T.tensor([n, n])
T.empty_like(a).shape|a.new_full((2,), n)|T.linspace(0, 1, 3)|T.triu(a)|T.tril(a, 1)|a.roll(1, d)
a.flip(0)|a.gather(0, T.tensor([[0, 0]]))|a.index_select(0, T.tensor([0]))|a.masked_fill(a > 0, n)
a.masked_select(a > 0)|a.scatter(0, T.tensor([[0, 0]]), n)|a.index_add(0, T.tensor([0]), a[:1])
a.repeat(2, 1)|a.outer(a)|a.dot(b)|T.einsum('ij,kj', a, b)|T.bmm(a[None], b[None])|a.trace()|a.tolist()
a.eq(b)|a > n|a == n|a.isfinite()|a.sign()|a.round(decimals=1)|a.item()|bool(a)|a.numel()|a.nonzero()
T.equal(a, b)|T.allclose(a, b)|a.abs()|a.exp()|a.sqrt()|a.sigmoid()|a.conj()|a.real|a.neg()|~a|a & b
T.maximum(a, b)|T.fmod(a, n)|a.atan2(b)|a.float_power(n)|T.result_type(a, n)|T.promote_types(a.dtype, b.dtype)
L(a)|C(a[None])|N(a)|S(a)|E(T.tensor([0, 2]))|P(a)|G(a[None])[0]|L(a) + L(b)"""
WRITES = """a.add_(b)|a.mul_(n)|a.sub_(a * n)|a.add_(b, alpha=n)|a.fill_(n)|a.zero_()|a.copy_(b)
a.clamp_(n)|a.clamp_(max=n)|a.div_(n)|a.pow_(n)|a.lerp_(b, n)|a.addcmul_(a, b, value=n)|a.relu_()
a.masked_fill_(a > 0, n)|a.t_()|a.transpose_(0, 1)|a.unsqueeze_(0)|a.squeeze_()|a.exp_()|a.neg_()
a.index_fill_(0, T.tensor([0]), n)|a.scatter_(0, T.tensor([[0, 0]]), n)|a.cumsum_(0)|a.addmm_(b.clone(), b.clone())
a.index_add_(0, T.tensor([0]), b)|a.index_copy_(0, T.tensor([0]), b)|a.fill_diagonal_(n)|a.sigmoid_()
T.add(a, b, out=c)|T.mul(a, n, out=c)|T.sum(a, 0, out=c)|T.matmul(a, b, out=c)|T.cat([a, b], out=c)"""
STATEMENTS = """B(a)|a[0] = n|a[0] = b|a[...] = b|a[:, 0] = n|a[a > 0] = n|a[T.tensor([0])] = b|a += b|a *= n
a -= a * n|a /= n|a[0] += n|a[1:] = b[1:]|a.data = b|O.step()|a.grad = None|a.requires_grad_(f)
L.weight.data.mul_(n)|L.weight.data = a|L.bias = None|L.weight = T.nn.Parameter(a)|N.eps = n"""


def texts(table: str) -> list[str]:
    """Return the entries of a table."""
    return [entry for line in table.splitlines() for entry in line.split("|")]


class Writer:
    """Write one program."""

    def __init__(self, seed: int) -> None:
        self.rng, self.lines = random.Random(f"repetition {seed}"), []
        self.names = {name: self.tensor() for name in "abc"}
        for name, text in self.names.items():
            self.lines.append(f"{name} = {text}")
        self.values = {"n": "2", "m": "3", "d": "0", "f": "True", "g": "False", "s": "'mean'"}
        self.lines += [f"{name} = {text}" for name, text in self.values.items()]

    def tensor(self) -> str:
        """Return the text that makes a tensor."""
        pick = self.rng.choice
        shape = pick(SHAPES[:3]) if self.rng.random() < 0.6 else pick(SHAPES)
        form = pick(FORMS) if self.rng.random() < 0.4 else "plain"
        dtype = pick(DTYPES) if self.rng.random() < 0.4 else "float32"
        grad = dtype in ("float32", "float64") and self.rng.random() < 0.3
        return f"t({self.rng.randint(0, 99)}, {shape}, '{dtype}', '{form}', {grad})"

    def change(self) -> str:
        """Return a line that changes one thing of what the call sees."""
        pick, name = self.rng.choice, self.rng.choice("aaab")
        kind = self.rng.randrange(13)
        if kind <= 2:
            return f"n = {pick(NUMBERS)}"
        if kind == 3:
            return pick([f"d = {pick(AXES)}", f"f = {pick(FLAGS)}", f"s = {pick(TEXTS)!r}"])
        if kind <= 5:
            return f"{name} = {self.tensor()}"
        if kind == 6:
            return pick(["a = b", "b = a", "b = a[:]", "b = a.t()", "c = a", "c = t(3, (), 'float32')",
                         "a = a.clone()", "a = a.detach()", "a = a.contiguous()", "b = a.view(-1)"])  # fmt: skip
        if kind == 7:
            return pick([f"{name}.data = {self.tensor()}", f"{name}.detach().set_(t(5, (2, 3)))",
                         f"{name}.detach().resize_(2, 3).fill_(2)", f"set_storage({name})",
                         f"{name}.detach().mul_(-1)", f"{name}.detach().t_()"])  # fmt: skip
        if kind == 8:
            return pick(["gc_and_reuse()", f"del {name}; {name} = {self.tensor()}"])
        if kind == 9:
            return pick([f"T.set_default_dtype(T.{pick(('float64', 'float32', 'float16'))})",
                         f"T.set_num_threads({pick((1, 2))})"])  # fmt: skip
        if kind == 10:
            return pick(["L.train(f)", "B.eval()", "B.train()", "hook(L)", "hook(S)", "S.append(L)",
                         "unhook()", "L.weight.detach().mul_(2)", "L.requires_grad_(f)", "S[0] = N",
                         "L.weight.data = t(4, (3, 3))", "L.double()", "L.float()", "B.momentum = n",
                         "N.eps = 0.5", "L.forward = lambda x: x * 2", "del L.__dict__['forward']",
                         "E.padding_idx = 2", "E.weight.detach().add_(1)", "C.stride = (1,)",
                         "C.padding = (1,)", "L.bias = None", "swap(L)", "L.weight = N.weight"])  # fmt: skip
        if kind == 11:
            return pick([f"O.param_groups[0]['lr'] = {pick(('0.5', '0.1', 'T.tensor(0.2)'))}", "train()",
                         "O.param_groups[0]['weight_decay'] = 0.1", "O.state.clear()", "train(); O.step()",
                         "O.zero_grad()", "O.load_state_dict(O.state_dict())", "O.step()"])  # fmt: skip
        return f"{name}.requires_grad_(False)"

    def around(self, call: str) -> str:
        """Return the call, sometimes with something switched on around it."""
        if self.rng.random() < 0.7:
            return f"note({call})"
        # Under vmap PyTorch gives the tensor outside another shape, too.
        if call in ("a.t_()", "a.transpose_(0, 1)", "a.unsqueeze_(0)", "a.squeeze_()"):
            return f"note(in_thread(lambda: {call}))"
        return self.rng.choice([
            f"with T.no_grad(): note({call})",
            f"with T.inference_mode(): note({call})",
            f"with T.autocast('cpu', T.bfloat16): note({call})",
            f"note(in_thread(lambda: {call}))",
            f"note(T.func.vmap(lambda a: {call})(a))",
            f"note(T.func.vmap(lambda a, b: {call}, (0, None))(a, b))",
            f"note(T.func.grad(lambda a: total({call}))(a))",
            f"note(T.func.jvp(lambda a: {call}, (a,), (t(8, tuple(a.shape), dtype_of(a)),)))",
            f"note(backward({call}, a, b))",
            f"note(backward({call}, a, b))",
            f"with T.device('meta'): note({call})",
        ])  # fmt: skip


def write(seed: int, rounds: int = 14) -> tuple[list[str], list[str], bool]:
    """Return a program: what it starts with, its other lines, and whether its calls write."""
    writer = Writer(seed)
    rng, start, roll = writer.rng, len(writer.lines), writer.rng.random()
    table = texts(CALLS if roll < 0.7 else WRITES if roll < 0.85 else STATEMENTS)
    sites = rng.sample(table, rng.choice((1, 1, 2)))
    for _ in range(rounds):
        call = rng.choice(sites)
        if rng.random() < 0.65:
            writer.lines.append(writer.change())
        if roll < 0.85:
            writer.lines.append(writer.around(call))
        else:
            writer.lines += [call, "note((a, L.weight))"]
    return writer.lines[:start], writer.lines[start:], roll >= 0.7


def names_for(library: Any) -> dict[str, Any]:
    """Return what programs are made of, for a library."""
    T, nn = library, library.nn
    noted: list[Any] = []
    hooks: list[Any] = []

    def t(seed: int, shape: tuple[int, ...] = (), dtype: str = "float32", form: str = "plain",
          grad: bool = False) -> Any:  # fmt: skip
        whole = (*shape[:-2], *shape[:-3:-1]) if form == "turned" else shape
        whole = (*shape[:-1], 2 * shape[-1]) if form == "sliced" and shape else whole
        whole = (1, *shape[1:]) if form == "expanded" and shape else whole
        values = np.random.default_rng(seed).integers(-3, 4, whole) * 0.75
        if form == "shifted":
            values = np.concatenate([[7.0], values.reshape(-1)])
        made = T.tensor(values.tolist(), dtype=T.float64).reshape(values.shape)
        made = made.to(getattr(T, dtype))
        if form == "turned" and len(shape) >= 2:
            made = made.transpose(-1, -2)
        elif form == "sliced" and shape:
            made = made[..., ::2]
        elif form == "expanded" and shape:
            made = made.expand(shape)
        elif form == "shifted":
            made = made[1:].view(shape)
        return made.requires_grad_() if grad else made

    def layer(made: Any) -> Any:
        for number, parameter in enumerate(made.parameters()):
            parameter.data = t(number, tuple(parameter.shape), "float64").to(parameter.dtype) / 2
        return made

    def dtype_of(x: Any) -> str:
        return str(x.dtype).rpartition(".")[2]

    def in_thread(call: Any) -> Any:
        told: list[Any] = []

        def run() -> None:
            try:
                told.append((call(), None))
            except Exception as error:
                told.append((None, error))

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        if told[0][1] is not None:
            raise told[0][1]
        return told[0][0]

    def tensors(value: Any) -> list[Any]:
        if isinstance(value, T.Tensor):
            return [value]
        return (
            [x for part in value for x in tensors(part)] if isinstance(value, list | tuple) else []
        )

    def total(value: Any) -> Any:
        return sum((x.sum() for x in tensors(value) if x.dtype.is_floating_point), T.zeros(()))

    def backward(value: Any, *given: Any) -> Any:
        asked = [x for x in (*given, *L.parameters()) if x.requires_grad]
        loss = total(value)
        return T.autograd.grad(loss, asked, allow_unused=True) if asked else (value, loss)

    def gc_and_reuse() -> None:
        for _ in range(3):
            T.full((3, 3), 9.0).add(1).sum()

    def set_storage(x: Any) -> None:
        """Let a tensor lie in memory that another has just given back."""
        size = x.untyped_storage().nbytes()
        x.untyped_storage().resize_(0)
        T.full((2, 3), 5.0)
        x.untyped_storage().resize_(size)
        x.detach().fill_(1)

    def hook(module: Any) -> None:
        hooks.append(module.register_forward_hook(lambda m, i, out: out * 2))

    def unhook() -> None:
        while hooks:
            hooks.pop().remove()

    def swap(module: Any) -> None:
        module.weight = nn.Parameter(module.weight.detach().clone() * 3)

    def train() -> None:
        for parameter in O.param_groups[0]["params"]:
            parameter.grad = T.ones_like(parameter)

    L, C, N = layer(nn.Linear(3, 3)), layer(nn.Conv1d(2, 2, 1)), layer(nn.LayerNorm(3))
    S, B = nn.Sequential(nn.Linear(3, 3), nn.ReLU()), nn.BatchNorm1d(3)
    layer(S), layer(B)
    E, P, G = layer(nn.Embedding(3, 3)), nn.PReLU(), layer(nn.GRU(3, 3))
    O = T.optim.AdamW(L.parameters(), lr=0.1)  # noqa: E741
    return {
        "T": T,
        "F": nn.functional,
        "np": np,
        "noted": noted,
        "note": noted.append,
        "t": t,
        "L": L,
        "C": C,
        "N": N,
        "S": S,
        "B": B,
        "E": E,
        "P": P,
        "G": G,
        "O": O,
        "dtype_of": dtype_of,
        "in_thread": in_thread,
        "total": total,
        "backward": backward,
        "hook": hook,
        "gc_and_reuse": gc_and_reuse,
        "set_storage": set_storage,
        "unhook": unhook,
        "swap": swap,
        "train": train,
    }


def run(lines: list[str], library: Any) -> list[Any]:
    """Run a program; return after each line what it noted, or the error that it raised."""
    names, told = names_for(library), []
    threads = library.get_num_threads()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for line in lines:
                try:
                    exec(line, names)
                    noted = [facts(x) for x in names["noted"]]
                    told.append(noted)
                except Exception as error:
                    told.append(error)
                names["noted"].clear()
    finally:
        library.set_default_dtype(library.float32)
        library.set_num_threads(threads)
    return told


def facts(value: Any) -> Any:
    """Return what can be seen of a value, as plain data."""
    if isinstance(value, list | tuple):
        return [facts(part) for part in value]
    if not hasattr(value, "untyped_storage"):
        return value if isinstance(value, int | float | complex | str | None) else str(value)[-12:]
    seen = value.detach().resolve_conj().resolve_neg()
    if not value.dtype.is_complex and not value.is_meta:
        seen = seen.double()
    return {
        "dtype": str(value.dtype).rpartition(".")[2],
        "shape": tuple(value.shape),
        "grad": value.requires_grad,
        "numbers": None if value.is_meta else seen.cpu().numpy().copy(),
    }


def plain(told: list[Any]) -> Any:
    """Return what a line told, errors as texts."""
    return f"{type(told).__name__}: {told}" if isinstance(told, Exception) else told


def same(a: Any, b: Any, bits: bool, dtype: str = "float64") -> bool:
    """Say whether two results of `facts` agree: to the bit, or as their dtype can tell."""
    if isinstance(a, dict) and isinstance(b, dict):
        keys = a if bits else ("dtype", "shape", "numbers")
        return all(same(a[key], b[key], bits, a["dtype"]) for key in keys)
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        if bits:
            return a.shape == b.shape and np.array_equal(a, b, equal_nan=True)
        loose = {"float16": 1e-2, "bfloat16": 5e-2, "float32": 1e-4, "complex64": 1e-4}
        within = loose.get(dtype, 1e-6)
        return a.shape == b.shape and np.allclose(a, b, within, within, equal_nan=True)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(same(x, y, bits) for x, y in zip(a, b, strict=True))
    if isinstance(a, float) and isinstance(b, float):
        return (
            a == b
            or (math.isnan(a) and math.isnan(b))
            or (not bits and math.isclose(a, b, rel_tol=1e-3))
        )
    return bool(a == b)


def in_child(lines: list[str], library: str) -> Any:
    """Return what the lines of a program tell in a child of this process."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        told = list(map(plain, run(lines, sys.modules[library])))
        with os.fdopen(writing, "wb") as pipe:
            pickle.dump(told, pipe)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        sent = pipe.read()
    os.waitpid(child, 0)
    return pickle.loads(sent) if sent else ["it died"] * len(lines)


def difference(seed: int) -> str | None:
    """Run a program; return an account of the first line that tells something else than it should."""
    start, lines, writes = write(seed)
    ours = in_child(start + lines, "tangrad")[len(start) :]
    if not writes:
        calls = [k for k, line in enumerate(lines) if "note(" in line]
        for k in calls[-1:] + random.Random(seed).sample(calls, 2):
            alone = [line for line in lines[:k] if "note(" not in line]
            told = in_child([*start, *alone, lines[k]], "tangrad")[-1]
            if not same(ours[k], told, True):
                return account(seed, start + lines[: k + 1], ours[k], "cold", told)
        return None
    theirs = in_child(start + lines, "torch")[len(start) :]
    for k, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if isinstance(a, str) and isinstance(b, str):
            continue
        if isinstance(a, str) or isinstance(b, str):
            return (
                None  # one refuses what the other takes: what follows differs, and other tests tell
            )
        if not same(a, b, False):
            return account(seed, start + lines[: k + 1], a, "torch", b)
    return None


def prepare() -> None:
    """Load what is loaded late, by calls of shapes that no program has: children begin with it."""
    import tangrad

    writer = Writer(0)
    start = [f"a = b = c = t(0, (5, 7), '{name}')" for name in ("float32", "float64")]
    calls = [writer.around(call) for call in texts(CALLS) * 2] + texts(WRITES)
    values = [f"{name} = {text}" for name, text in writer.values.items()]
    run([*start, *values, *calls], tangrad)
    names_for(importlib.import_module("torch"))
    gc.collect()
    gc.freeze()


def account(seed: int, lines: list[str], ours: Any, oracle: str, theirs: Any) -> str:
    """Tell a difference."""
    text = "\n".join(lines)
    return f"seed {seed}:\n{text}\nhere: {ours!r}\n{oracle}: {theirs!r}"


def main() -> None:
    """Run programs and print what differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000)
    asked = parser.parse_args()
    prepare()
    found = 0
    for seed in range(asked.first, asked.first + asked.count):
        told = difference(seed)
        if told is not None:
            found += 1
            print(told, end="\n\n", flush=True)
        elif (seed + 1) % 20 == 0:
            print(f"# {seed + 1 - asked.first} programs", file=sys.stderr, flush=True)
    print(f"{asked.count} programs, {found} differ")


if __name__ == "__main__":
    main()
