"""Pruning: masks, hooks, containers, and the way back."""

import copy

import pytest

import tangrad
from tangrad import nn
from tangrad.nn.utils import prune


def numbers(framework, *shape):
    count = 1
    for size in shape:
        count *= size
    values = framework.arange(count, dtype=framework.float64)
    return (values**2 * 0.7 + 0.3).sin().reshape(shape).to(framework.float32)


def convolution(framework):
    module = framework.nn.Conv1d(3, 4, 2)
    with framework.no_grad():
        module.weight.copy_(numbers(framework, 4, 3, 2))
        module.bias.copy_(numbers(framework, 4))
    return module


def described(module):
    hooks = [type(hook).__name__ for hook in module._forward_pre_hooks.values()]
    gradients = {n: p.grad for n, p in module.named_parameters() if p.grad is not None}
    return [repr(module), module.state_dict(), gradients, hooks, module.weight]


STEPS = {
    "identity": lambda p, m, f: p.identity(m, "weight"),
    "l1": lambda p, m, f: p.l1_unstructured(m, "weight", 0.3),
    "l1 count": lambda p, m, f: p.l1_unstructured(m, name="weight", amount=5),
    "l1 scores": lambda p, m, f: p.l1_unstructured(
        m, "weight", 5, importance_scores=numbers(f, 24).flip(0).view(4, 3, 2)
    ),
    "l1 none": lambda p, m, f: p.l1_unstructured(m, "weight", 0),
    "l1 all": lambda p, m, f: p.l1_unstructured(m, "weight", 1.0),
    "l2 rows": lambda p, m, f: p.ln_structured(m, "weight", 0.5, 2, 0),
    "linf slices": lambda p, m, f: p.ln_structured(m, "weight", 1, float("inf"), dim=-1),
    "l1 scores of slices": lambda p, m, f: p.ln_structured(
        m, "weight", 1, 1, 1, importance_scores=numbers(f, 24).flip(0).view(4, 3, 2)
    ),
    "mask": lambda p, m, f: p.custom_from_mask(m, "weight", numbers(f, 4, 3, 2) > 0),
    "bias": lambda p, m, f: p.l1_unstructured(m, "bias", 2),
    "remove": lambda p, m, f: p.remove(m, "weight"),
}

SEQUENCES = [
    ["identity"],
    ["l1"],
    ["l1 count"],
    ["l1 scores"],
    ["l1 none"],
    ["l1 all"],
    ["l2 rows"],
    ["linf slices"],
    ["l1 scores of slices"],
    ["mask"],
    ["l1", "bias"],
    ["l1", "l1", "l1 count"],
    ["l2 rows", "l1"],
    ["l1", "l2 rows", "mask"],
    ["mask", "linf slices", "l1 scores"],
    ["l1", "remove"],
    ["l1", "l2 rows", "remove"],
    ["l1", "remove", "mask"],
]


@pytest.mark.parametrize("sequence", SEQUENCES, ids=", ".join)
def test_masks_values_gradients_and_hooks_agree(agree, sequence):
    def program(framework):
        import importlib

        tools = importlib.import_module(f"{framework.__name__}.nn.utils.prune")
        module = convolution(framework)
        for step in sequence:
            assert STEPS[step](tools, module, framework) is module
        result = module(numbers(framework, 2, 3, 5))
        result.pow(2).sum().backward()
        return [result, tools.is_pruned(module), *described(module)]

    agree(program, tolerance=1e-4)


def test_global_pruning_agrees(agree):
    def program(framework):
        import importlib

        tools = importlib.import_module(f"{framework.__name__}.nn.utils.prune")
        one, other = convolution(framework), convolution(framework)
        with framework.no_grad():
            other.weight.mul_(0.7)
        tools.l1_unstructured(one, "weight", 2)
        pairs = [(one, "weight"), (other, "weight"), (other, "bias")]
        scores = {(other, "bias"): numbers(framework, 4) * 9}
        tools.global_unstructured(pairs, tools.L1Unstructured, scores, amount=0.4)
        return [described(one), described(other)]

    agree(program)


@pytest.mark.parametrize("amount", [0, 5, 0.25, 1.0])
def test_random_pruning_takes_the_promised_number(amount):
    module = prune.random_unstructured(nn.Linear(5, 4), "weight", amount)
    wanted = amount if isinstance(amount, int) else round(20 * amount)
    assert int((module.weight_mask == 0).sum()) == wanted
    module = prune.random_structured(nn.Linear(5, 4), "weight", 2, 1)
    gone = (module.weight_mask == 0).all(0)
    assert int(gone.sum()) == 2
    assert int((module.weight_mask == 0).sum()) == 2 * 4


def test_random_pruning_of_what_is_left():
    module = prune.random_unstructured(nn.Linear(10, 10), "weight", 0.5)
    prune.random_unstructured(module, "weight", 0.5)
    assert int(module.weight_mask.sum()) == 25


def test_a_pruned_module_can_be_copied_and_its_copy_recomputes_the_weight():
    module = prune.l1_unstructured(nn.Linear(3, 2), "weight", 3)
    # Only then is the product of weight and mask no part of a graph, which cannot be copied.
    module.requires_grad_(False)(tangrad.ones(1, 3))
    copied = copy.deepcopy(module)
    assert copied.weight_orig is not module.weight_orig
    copied.weight_orig.data.fill_(1.0)
    copied(tangrad.ones(1, 3))
    assert float(copied.weight.sum()) == 3.0


def test_a_method_can_be_written_and_applied_to_a_tensor(agree):
    def program(framework):
        import importlib

        tools = importlib.import_module(f"{framework.__name__}.nn.utils.prune")

        class EveryOther(tools.BasePruningMethod):
            PRUNING_TYPE = "unstructured"

            def compute_mask(self, t, default_mask):
                mask = default_mask.clone()
                mask.view(-1)[::2] = 0
                return mask

        module = convolution(framework)
        EveryOther.apply(module, "weight")
        EveryOther.apply(module, "weight")
        container = next(iter(module._forward_pre_hooks.values()))
        return [
            EveryOther().prune(numbers(framework, 5)),
            tools.L1Unstructured(2).prune(numbers(framework, 5), framework.ones(5)),
            len(container),
            type(container[0]).__name__,
            [type(method).__name__ for method in container],
            *described(module),
        ]

    agree(program)


REFUSED = {
    "too many": lambda p, m, f: p.l1_unstructured(m, "weight", 25),
    "negative": lambda p, m, f: p.l1_unstructured(m, "weight", -1),
    "part above 1": lambda p, m, f: p.random_unstructured(m, "weight", 1.1),
    "no number": lambda p, m, f: p.random_structured(m, "weight", "half", 0),
    "structured vector": lambda p, m, f: p.ln_structured(m, "bias", 1, 2, 0),
    "no such dimension": lambda p, m, f: p.random_structured(m, "weight", 1, 3),
    "no such tensor": lambda p, m, f: p.identity(m, "weights"),
    "not pruned": lambda p, m, f: p.remove(m, "weight"),
    "mask of another shape": lambda p, m, f: p.custom_from_mask(m, "weight", f.ones(3)),
    "scores of another shape": lambda p, m, f: p.l1_unstructured(m, "weight", 1, f.ones(3)),
    "global, no pairs": lambda p, m, f: p.global_unstructured(1, p.L1Unstructured, amount=1),
    "global, structured": lambda p, m, f: p.global_unstructured(
        [(m, "weight")], p.LnStructured, amount=1, n=2
    ),
    "global, scores": lambda p, m, f: p.global_unstructured(
        [(m, "weight")], p.L1Unstructured, 1, amount=1
    ),
    "no method": lambda p, m, f: p.PruningContainer().add_pruning_method("magic"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_agree_and_leave_the_module_as_it_was(agree, case):
    def program(framework):
        import importlib

        tools = importlib.import_module(f"{framework.__name__}.nn.utils.prune")
        module = convolution(framework)
        try:
            REFUSED[case](tools, module, framework)
        except Exception as error:
            return [type(error).__name__, list(module.state_dict())]
        return "nothing was refused"

    agree(program)
