"""Traced programs called with sizes and dtypes that their example does not have."""

import copy
import io

import pytest

import tangrad
from tangrad import jit, nn
from tangrad_jit.tracing.archive_writing import write


class Resized(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 3, 3)

    def forward(self, x):
        x = self.conv(x)
        x = nn.functional.interpolate(x, size=(x.shape[2] * 2, 11), mode="bilinear")
        return x.view(x.size(0), -1).mean(1) * x.shape[3] ** 0.5


def test_a_module_is_recorded_anew_for_other_sizes():
    net = Resized().eval()
    traced = jit.trace(net, tangrad.randn(2, 1, 6, 6))
    for shape in [(2, 1, 9, 7), (3, 1, 5, 6), (2, 1, 9, 7)]:
        x = tangrad.randn(shape)
        tangrad.testing.assert_close(traced(x), net(x))
    x = tangrad.randn(1, 1, 8, 8, requires_grad=True)
    (found,) = tangrad.autograd.grad(traced(x).sum(), x)
    (wanted,) = tangrad.autograd.grad(net(x).sum(), x)
    tangrad.testing.assert_close(found, wanted)


def test_what_is_copied_has_the_copy_s_parameters():
    traced = jit.trace(Resized().eval(), tangrad.randn(2, 1, 6, 6))
    other = copy.deepcopy(traced)
    with tangrad.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    assert not other(tangrad.randn(2, 1, 7, 8)).any()
    assert traced(tangrad.randn(2, 1, 7, 8)).any()


def test_numbers_that_come_from_sizes_are_those_of_the_call():
    traced = jit.trace(lambda x: (x * x.shape[0] ** 2, x.numel()), tangrad.ones(4, 3))
    found, count = traced(tangrad.ones(5, 2))
    assert found.equal(tangrad.full((5, 2), 25.0))
    assert count == 10


def test_other_dtypes_are_recorded_anew():
    traced = jit.trace(lambda x: x[-2] * 2, tangrad.zeros(10))
    assert traced(tangrad.arange(8)).equal(tangrad.tensor(12))


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x + 1 if x.shape[1] == 3 else x - 1,
        lambda x: x + 1 if x.dim() == 2 else x - 1,
    ],
)
def test_a_program_that_takes_another_way_is_refused(program):
    traced = jit.trace(program, tangrad.ones(4, 3))
    for shape in [(4, 5), (4, 3, 1)]:
        if program(tangrad.ones(shape)).equal(tangrad.ones(shape) + 1):
            assert traced(tangrad.ones(shape)).equal(tangrad.ones(shape) + 1)
        else:
            with pytest.raises(RuntimeError, match="holds for the sizes of its example"):
                traced(tangrad.ones(shape))


def test_a_program_that_has_changed_since_is_as_it_was_traced():
    factor = [2.0]
    traced = jit.trace(lambda x: x * factor[0], tangrad.ones(4, 3))
    factor[0] = 3.0
    assert traced(tangrad.ones(4, 5)).equal(tangrad.full((4, 5), 2.0))


def test_what_has_looked_at_values_keeps_them_and_has_said_so():
    with pytest.warns(jit.TracerWarning, match="keeps it as a constant"):
        traced = jit.trace(lambda x: x * float(x.sum()), tangrad.ones(4, 3))
    for sizes in (4, 3), (4, 5):
        assert traced(tangrad.ones(sizes)).equal(tangrad.full(sizes, 12.0))


def test_what_was_saved_follows_sizes():
    file = io.BytesIO()
    program = jit.trace(lambda x: (x * 2).reshape(x.shape[1], x.size(0) * 1), tangrad.ones(4, 3))
    jit.save(program, file)
    file.seek(0)
    assert jit.load(file)(tangrad.ones(4, 5)).equal(tangrad.full((5, 4), 2.0))


def test_what_was_saved_in_the_form_of_before_has_no_program_to_record():
    file = io.BytesIO()
    traced = jit.trace(lambda x: x * 2, tangrad.ones(4, 3))
    write(file, None, {"forward": traced._traced}, function="f")
    file.seek(0)
    with pytest.raises(RuntimeError, match="holds for the sizes of its example"):
        jit.load(file)(tangrad.ones(4, 5))


def test_tensors_that_the_program_holds_are_told_from_the_example():
    class Added(nn.Module):
        def __init__(self):
            super().__init__()
            self.x = nn.Parameter(tangrad.ones(3))

        def forward(self, y):
            return self.x + y

    net = Added()
    traced = jit.trace(net, net.x)
    assert traced(tangrad.ones(3) * 4).tolist() == [5.0] * 3
    x = tangrad.ones(2)
    traced = jit.trace(lambda a, b: a.mul_(2) + b, (x, x))
    assert x.tolist() == [2.0, 2.0]
    assert traced(x, x).tolist() == [8.0, 8.0]


def test_dicts_are_read_by_key():
    traced = jit.trace(lambda d: d["x"] - d["y"], ({"x": tangrad.ones(1), "y": tangrad.zeros(1)},))
    given = {"z": tangrad.ones(7), "y": tangrad.ones(1), "x": tangrad.full((1,), 3.0)}
    assert traced(given).tolist() == [2.0]
    with pytest.raises(RuntimeError, match="keys"):
        traced({"x": tangrad.ones(1)})


@pytest.mark.parametrize(("program", "kind"), [(lambda x: [x], "list"), (lambda x: {1: x}, "dict")])
def test_lists_and_dicts_are_results_where_it_is_asked_for(program, kind):
    x = tangrad.ones(2)
    told = f"Encountering a {kind} at the output"
    with (
        pytest.raises(RuntimeError, match=told)
        if kind == "dict"
        else pytest.warns(jit.TracerWarning, match=told)
    ):
        jit.trace(program, x)
    traced = jit.trace(program, x, strict=False)
    assert type(traced(x)).__name__ == kind
    with pytest.raises(RuntimeError, match="can be output from traced functions"):
        jit.trace(lambda x: [1, 5], x)


def test_modules_with_hooks_of_the_backward_are_refused():
    net = nn.Sequential(nn.Linear(2, 2))
    net[0].register_full_backward_hook(lambda module, given, made: None)
    with pytest.raises(ValueError, match="backward hooks assigned"):
        jit.trace(net, tangrad.ones(1, 2))
