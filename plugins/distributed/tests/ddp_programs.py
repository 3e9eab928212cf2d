"""Random programs with data parallelism, which PyTorch and tangrad run alike.

`python ddp_programs.py FIRST COUNT [MODULE]` prints what PyTorch's two ranks see of the programs
with those numbers, as JSON; of those of another module that has `drawn` and `run_program`.

A program is plain data: a model, options, and a list of things to do. Everything that ranks could
differ in (first values, batches, gradients set by hand, which outputs are used) is drawn for each
rank. After each thing, all parameters, gradients and buffers are noted.
"""

import importlib
import json
import math
import random
import sys
import tempfile

RANKS = 2
WIDTH = 3
ERRORS = (
    "Expected to have finished reduction",
    "Expected to mark a variable ready only once",
    "training graph has changed",
)


# Drawing --------------------------------------------------------------------------------------


def drawn(number):
    """Return the program with that number."""
    r = random.Random(number)
    mode = r.choice(["plain", "plain", "looks", "looks", "static"])
    layers = [drawn_layer(r, at, mode) for at in range(r.randint(2, 6))]
    heads = [[0, *r.sample(range(1, len(layers)), r.randint(1, len(layers) - 1))] for _ in range(3)]
    # Every layer is somewhere: the last head takes those that no other has.
    heads[2] += [at for at in range(len(layers)) if not any(at in head for head in heads)]
    program = {
        "number": number,
        "layers": layers,
        "heads": heads,
        "ignored": [f"layers.{at}.weight" for at in range(1, len(layers)) if r.random() < 0.1],
        "options": {
            "find_unused_parameters": mode == "looks",
            "static_graph": mode == "static",
            "gradient_as_bucket_view": r.random() < 0.5,
            "bucket_cap_mb": r.choice([25, 0.00003]),
            "forward_sync_buffers": r.random() < 0.7,
        },
    }
    usual = drawn_pass(r, mode, range(3))
    todo = [drawn_deed(r, mode, usual, len(layers)) for _ in range(r.randint(3, 9))]
    restrict(todo, mode, any(layer["kind"] == "reentrant" for layer in layers))
    program["todo"] = todo
    return program


def restrict(todo, mode, reentrant):
    """Take out what PyTorch has internal errors of, or refuses outside of data parallelism."""
    passes = [deed for deed in todo if deed["do"] == "pass"]
    for deed in passes:
        if reentrant and deed["how"] == "inputs":
            deed["how"] = "once"
    if mode == "static" and passes:
        # The first pass has to synchronize.
        passes[0]["syncs"] = True
    if mode == "looks" and not all(deed["syncs"] and deed["how"] == "once" for deed in passes):
        # What a pass without means has used counts for the next one, also if it was forgotten.
        for deed in todo:
            deed["to_none"] = False


def drawn_layer(r, at, mode):
    kinds = ["plain"] * 5 + ["stopped", "checkpoint"]
    # Where ranks may differ, an error of one would leave the other waiting.
    kinds += [] if mode == "looks" else ["reentrant"]
    return {
        "frozen": at > 0 and r.random() < 0.2,
        "tied": r.randrange(at) if at > 1 and r.random() < 0.15 else None,
        "kind": r.choice(kinds),
    }


def drawn_pass(r, mode, heads):
    """Return which heads are computed and which are in the loss, for each rank."""

    def one():
        computed = sorted(r.sample(list(heads), r.randint(1, 3)))
        if r.random() < 0.6:
            computed = list(heads)
        if mode == "static":
            # PyTorch's first pass counts outputs without a gradient, its others do not.
            return computed, computed
        return computed, [head for head in computed if r.random() < 0.8] or computed

    same = one()
    return [one() if mode == "looks" else same for _ in range(RANKS)]


def drawn_deed(r, mode, usual, layers):
    what = r.choice(["pass"] * 8 + ["zero", "step", "step", "set", "freeze", "thaw", "evaluate"])
    if what == "pass":
        alike = (mode == "static" and r.random() < 0.9) or r.random() < 0.3
        return {
            "do": "pass",
            "heads": usual if alike else drawn_pass(r, mode, range(3)),
            "syncs": r.random() < 0.8,
            "how": r.choice(["once"] * 5 + ["jointly", "one by one", "in parts", "inputs"])
            if mode != "static"
            else "once",
        }
    return {"do": what, "layer": r.randrange(1, layers), "to_none": r.random() < 0.5}


# Running --------------------------------------------------------------------------------------


def numbers(t, shape, *seeds):
    """Return numbers that are the same in both frameworks."""
    count = math.prod(shape)
    seed = sum((7.3 + at) * one for at, one in enumerate(seeds))
    values = [math.sin(seed + 1.7 * at) * 0.5 for at in range(count)]
    return t.tensor(values, dtype=t.float64).reshape(shape)


def model_of(t, program, rank):
    """Return a rank's model; each rank begins with other numbers."""
    nn = t.nn

    class Stopped(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            return None

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in program["layers"])
            self.whole = nn.Parameter(t.tensor([rank + 1, 5]), requires_grad=False)
            self.register_buffer("count", t.tensor(rank * 10))
            self.register_buffer("mean", numbers(t, (WIDTH,), rank))
            for at, (layer, said) in enumerate(zip(self.layers, program["layers"], strict=True)):
                layer.weight = nn.Parameter(numbers(t, (WIDTH, WIDTH), rank, at))
                layer.bias = nn.Parameter(numbers(t, (WIDTH,), rank, at, 3))
                layer.requires_grad_(not said["frozen"])
            for layer, said in zip(self.layers, program["layers"], strict=True):
                if said["tied"] is not None:
                    layer.weight = self.layers[said["tied"]].weight

        def forward(self, x, heads):
            self.count += 1
            self.mean.mul_(0.5).add_(x.detach().mean(0))
            return {head: self.head(x, program["heads"][head]) for head in heads}

        def head(self, x, layers):
            x = x * self.whole.sum()
            for at in layers:
                x = self.run(at, x)
            return x

        def run(self, at, x):
            layer, kind = self.layers[at], program["layers"][at]["kind"]
            if kind == "stopped" and at > 0:
                return x + Stopped.apply(layer(x))
            if kind in ("checkpoint", "reentrant") and at > 0:
                again = t.utils.checkpoint.checkpoint
                return again(layer, x, use_reentrant=kind == "reentrant").tanh()
            return layer(x).tanh()

    return Net()


def loss_of(t, outputs, chosen, rank, step):
    return sum((outputs[head] * numbers(t, (2, WIDTH), rank, step, head)).sum() for head in chosen)


def seen_of(wrapped, found):
    """Return all that a rank can see of its model, unless gradients are half averaged."""
    model = wrapped.module
    try:
        wrapped._check_reducer_finalized()
    except RuntimeError as error:
        return [told_of(error)]
    said = [] if found is None else [found]
    for name, one in [*model.named_parameters(), *model.named_buffers()]:
        gradient = getattr(one, "grad", None)
        said.append([name, one.tolist(), None if gradient is None else gradient.tolist()])
    return said


def told_of(error):
    """Return an error's class, and what programs recognize it by."""
    told = [known for known in ERRORS if known in str(error)]
    return [type(error).__name__, *(told or [str(error)])]


def run_program(t, wrap, program, rank):
    """Return what one rank sees after each thing that is done; an error ends the program."""
    inner = model_of(t, program, rank)
    wrap._set_params_and_buffers_to_ignore_for_model(inner, program["ignored"])
    model = wrap(inner, **program["options"])
    trained = [parameter for parameter in inner.parameters() if parameter.is_floating_point()]
    optimizer = t.optim.SGD(trained, lr=0.1)
    seen = [seen_of(model, None)]
    for step, deed in enumerate(program["todo"]):
        try:
            found = perform(t, model, inner, optimizer, deed, rank, step)
        except RuntimeError as error:
            seen.append(told_of(error))
            break
        seen.append(seen_of(model, found))
    return seen


def perform(t, model, inner, optimizer, deed, rank, step):
    what, layer = deed["do"], inner.layers[deed.get("layer", 0)]
    if what == "zero":
        optimizer.zero_grad(set_to_none=deed["to_none"])
    elif what == "step":
        optimizer.step()
    elif what == "set":
        layer.weight.grad = numbers(t, (WIDTH, WIDTH), rank, step, 9)
    elif what in ("freeze", "thaw"):
        layer.requires_grad_(what == "thaw")
    elif what == "evaluate":
        with t.no_grad():
            return model(numbers(t, (2, WIDTH), rank, step), [0])[0].tolist()
    elif deed["syncs"]:
        run_pass(t, model, trainable(inner), deed, rank, step)
    else:
        with model.no_sync():
            run_pass(t, model, trainable(inner), deed, rank, step)
    return None


def trainable(inner):
    return [parameter for parameter in inner.parameters() if parameter.requires_grad]


def run_pass(t, model, parameters, deed, rank, step):
    computed, chosen = deed["heads"][rank]
    x = numbers(t, (2, WIDTH), rank, step).requires_grad_()
    outputs = model(x, computed)
    loss = loss_of(t, outputs, chosen, rank, step)
    if deed["how"] in ("jointly", "one by one"):
        other = loss_of(t, model(x * 2, computed), chosen, rank, step + 1)
        if deed["how"] == "jointly":
            loss = loss + other
        else:
            other.backward()
    if deed["how"] == "in parts":
        for head in chosen:
            loss_of(t, outputs, [head], rank, step).backward(retain_graph=True)
    elif deed["how"] == "inputs":
        loss.backward(inputs=parameters)
    else:
        loss.backward()


# PyTorch's ranks ------------------------------------------------------------------------------


def torch_rank(rank, module, first, count, store, results):
    import warnings
    from datetime import timedelta

    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{store}",
        rank=rank,
        world_size=RANKS,
        timeout=timedelta(seconds=60),
    )
    programs = importlib.import_module(module)
    seen = [
        programs.run_program(torch, DistributedDataParallel, programs.drawn(number), rank)
        for number in range(first, first + count)
    ]
    with open(f"{results}.{rank}", "w") as target:
        json.dump(seen, target)
    dist.destroy_process_group()


def main(first, count, module="ddp_programs"):
    import torch

    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(
            torch_rank,
            (module, int(first), int(count), f"{folder}/store", f"{folder}/seen"),
            nprocs=RANKS,
        )
        ranks = []
        for rank in range(RANKS):
            with open(f"{folder}/seen.{rank}") as source:
                ranks.append(json.load(source))
    print(json.dumps(ranks))


if __name__ == "__main__":
    main(*sys.argv[1:])
