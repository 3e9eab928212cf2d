"""Random programs whose ranks have different numbers of batches; run as those of `ddp_programs`."""

import random

from ddp_programs import numbers


def drawn(number):
    """Return the program with that number."""
    r = random.Random(number)
    return {
        "batches": [r.randint(0, 4) for _ in range(2)],
        "divide_by_all": r.random() < 0.5,
        "optimizer": r.choice(["SGD", "momentum", "Adam"]),
        "frozen": r.random() < 0.3,
        "batch_norm": r.random() < 0.5,
        "forgets_first": r.random() < 0.7,
        "skips_means": r.random() < 0.3,
        "options": {
            "find_unused_parameters": r.random() < 0.4,
            "gradient_as_bucket_view": r.random() < 0.4,
            "forward_sync_buffers": r.random() < 0.6,
        },
    }


def optimizer_of(t, name, parameters):
    if name == "Adam":
        # A bias before batch normalization has no gradient but rounding errors.
        return t.optim.Adam(parameters, lr=0.1, eps=0.1)
    return t.optim.SGD(parameters, lr=0.1, momentum=0.5 if name == "momentum" else 0.0)


def run_program(t, wrap, program, rank):
    """Return a rank's parameters after each batch, and all of its state at the end."""
    nn = t.nn
    norm = nn.BatchNorm1d(3) if program["batch_norm"] else nn.Tanh()
    inner = nn.Sequential(nn.Linear(3, 3), norm, nn.Linear(3, 2)).double()
    with t.no_grad():
        for at, parameter in enumerate(inner.parameters()):
            parameter.copy_(numbers(t, tuple(parameter.shape), rank, at))
    inner[0].requires_grad_(not program["frozen"])
    model = wrap(inner, **program["options"])
    optimizer = optimizer_of(t, program["optimizer"], list(inner.parameters()))
    seen = []
    with model.join(divide_by_initial_world_size=program["divide_by_all"]):
        for step in range(program["batches"][rank]):
            if program["forgets_first"]:
                optimizer.zero_grad()
            x = numbers(t, (4, 3), rank, step)
            if program["skips_means"] and step % 2 == 0:
                with model.no_sync():
                    model(x).square().sum().backward()
            else:
                model(x).square().sum().backward()
                optimizer.step()
            if not program["forgets_first"]:
                optimizer.zero_grad()
            seen.append([parameter.tolist() for parameter in inner.parameters()])
    return [*seen, [value.tolist() for value in inner.state_dict().values()]]
