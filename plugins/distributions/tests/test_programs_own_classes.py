"""Distributions and transforms that programs define on the library's."""

import pytest

import tangrad


def module_of_a_transform(t):
    class Scaled(t.distributions.Transform, t.nn.Module):
        bijective = True
        domain = codomain = t.distributions.constraints.real

        def __init__(self):
            super().__init__(cache_size=1)
            self.scale = t.nn.Parameter(t.tensor([2.0, 3.0]))
            self.layer = t.nn.Linear(1, 1)

        def _call(self, x):
            return x * self.scale

        def _inverse(self, y):
            return y / self.scale

        def log_abs_det_jacobian(self, x, y):
            return self.scale.abs().log()

    made = Scaled()
    base = t.distributions.Normal(t.zeros(2), t.ones(2))
    found = t.distributions.TransformedDistribution(base, [made]).log_prob(t.tensor([1.0, 2.0]))
    found.sum().backward()
    return found, made.scale.grad, [name for name, _ in made.named_parameters()]


def module_of_a_distribution(t):
    class Learned(t.distributions.Normal, t.nn.Module):
        def __init__(self):
            super().__init__(t.zeros(2), t.ones(2))
            self.shift = t.nn.Parameter(t.ones(2))

    made = Learned()
    return made.log_prob(t.ones(2)), [name for name, _ in made.named_parameters()]


def parameters_of_another_name(t):
    class Ordered(t.distributions.Categorical):
        arg_constraints = {"predictor": t.distributions.constraints.real}  # noqa: RUF012

        def __init__(self, predictor):
            self.predictor = predictor
            super().__init__(t.stack([predictor.sigmoid(), 1 - predictor.sigmoid()], -1))

        def expand(self, batch_shape, _instance=None):
            new = self._get_checked_instance(Ordered, _instance)
            new.predictor = self.predictor.expand(batch_shape)
            return super().expand(batch_shape, new)

    wide = Ordered(t.tensor([0.5, -1.0])).expand((3, 2))
    return (
        wide.probs,
        wide.logits,
        wide.predictor,
        wide.batch_shape,
        wide.log_prob(t.tensor([0, 1])),
    )


PROGRAMS = [module_of_a_transform, module_of_a_distribution, parameters_of_another_name]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_class_of_a_program(agree, program):
    agree(program)


def test_lists_of_modules_and_tensors_answer_by_inner_names():
    layers = tangrad.nn.ModuleList([tangrad.nn.ReLU(), tangrad.nn.Tanh()])
    assert layers._get_abs_string_index(-1) == "1"
    x = tangrad.ones(2)
    assert x._cdata == x._cdata != x.detach()._cdata
