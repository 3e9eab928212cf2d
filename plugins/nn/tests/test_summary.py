"""The table of a model: shapes, parameters and costs, and a model left as it was."""

import textwrap

import pytest

import tangrad
from tangrad import nn


class Twice(nn.Module):
    """Call one layer twice and another never."""

    def __init__(self):
        super().__init__()
        self.shared = nn.Linear(4, 4)
        self.unused = nn.Linear(4, 4)
        self.drop = nn.Sequential(nn.Dropout(), nn.BatchNorm1d(4))

    def forward(self, x, scale=1):
        return {"out": self.drop(self.shared(self.shared(x))) * scale, "n": 3}


def test_the_table_reads_as_a_tree(capsys):
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 10))
    model[0].requires_grad_(False)
    found = tangrad.summary(model, (2, 1, 8, 8))
    shown = capsys.readouterr().out
    assert shown == f"{found}\n"
    expected = """
        Layer         Output shape  Parameters   FLOPs  Output memory
        -------------------------------------------------------------
        Sequential    [2, 10]            2,970  21.9 K
          0: Conv2d   [2, 8, 6, 6]          80  10.4 K        2.25 KiB
    """
    lines = [line.split() for line in textwrap.dedent(expected).strip().splitlines()]
    assert lines[0] == shown.splitlines()[0].split()
    assert lines[2:] == [line.split() for line in shown.splitlines()[2:4]]
    assert "2,970 parameters, 2,890 trainable; 11.6 KiB with the buffers" in shown
    assert repr(found) == "<Summary: 2,970 parameters, 21.9 K FLOPs>"


def test_the_figures_are_those_of_the_counter_and_the_tensors():
    found = tangrad.summary(Twice(), tangrad.ones(2, 4), show=False, scale=2)
    by_name = {row.name: row for row in found.rows}
    assert [by_name[name].calls for name in ("", "shared", "unused", "drop.0")] == [1, 2, 0, 1]
    assert by_name["shared"].flops == found.flops == 2 * (2 * 2 * 4 * 4)
    assert by_name["shared"].output_bytes == 2 * 2 * 4 * 4
    assert by_name["unused"].output == "not called"
    assert by_name[""].output == "[2, 4]"
    assert found.parameters == sum(p.numel() for p in Twice().parameters())
    assert found.state_bytes == 4 * found.parameters + 4 * 8 + 8
    assert "shared: Linear (called 2 times)" in str(found)


def test_a_call_leaves_the_model_as_it_was():
    model, x = Twice(), tangrad.ones(2, 4)
    model.unused.eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = tangrad.get_rng_state()
    tangrad.summary(model, x, show=False)
    assert model.training
    assert not model.unused.training
    assert tangrad.equal(tangrad.get_rng_state(), state)
    assert all(tangrad.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())


def test_what_is_below_a_list_is_counted():
    layer = nn.TransformerEncoderLayer(8, 2, 16)
    found = tangrad.summary(nn.TransformerEncoder(layer, 2), (3, 2, 8), show=False)
    by_name = {row.name: row for row in found.rows}
    assert by_name["layers"].output == ""
    assert by_name["layers.1.linear1"].flops == 2 * 6 * 8 * 16
    assert 2 * by_name["layers.0"].flops == found.flops


def test_depth_hides_rows_and_keeps_totals():
    whole = tangrad.summary(Twice(), (2, 4), show=False)
    top = tangrad.summary(Twice(), (2, 4), show=False, depth=1)
    assert {row.name for row in whole.rows} - {row.name for row in top.rows} == {"drop.0", "drop.1"}
    assert whole[1:] == top[1:]


def test_a_model_that_fails_is_in_the_mode_that_it_was_in():
    model = nn.Sequential(nn.Linear(2, 2))
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        tangrad.summary(model, (1, 3))
    assert model.training


def dead_network() -> nn.Module:
    """Half of the units of the first layer are negative whatever comes in."""
    model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
    with tangrad.no_grad():
        model[0].bias[:4] = -100.0
        model[0].bias[4:] = 100.0
    return model


def test_units_that_are_zero_for_every_sample_are_dead():
    found = tangrad.summary(dead_network(), tangrad.randn(16, 3), show=False)
    assert [row.dead for row in found.rows] == [0.0, 0.0, 0.5, 0.0]
    assert str(found).splitlines()[0].endswith("Dead")
    assert str(found).splitlines()[4].endswith("50%")


@pytest.mark.parametrize("input", [(16, 3), tangrad.randn(7, 3), tangrad.randn(0, 3)])
def test_nothing_is_said_of_dead_units_where_the_input_does_not_tell(input):
    found = tangrad.summary(dead_network(), input, show=False)
    assert not any(row.dead for row in found.rows)
    assert "Dead" not in str(found)


def test_a_unit_that_gives_something_in_one_of_several_calls_is_alive():
    class BothSides(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.act = nn.ReLU()

        def forward(self, x):
            return self.act(x), self.act(-x)

    found = tangrad.summary(BothSides(), tangrad.ones(8, 4), show=False)
    assert found.rows[1].dead == 0.0
    found = tangrad.summary(BothSides(), tangrad.zeros(8, 4), show=False)
    assert found.rows[1].dead == 1.0


def test_gradients_that_are_zero_or_missing_are_named():
    model = dead_network()
    x = tangrad.randn(16, 3)
    assert tangrad.summary(model, x, show=False).missing_gradients == ()
    model[2].bias.requires_grad_(False)
    model[0].bias[:4].sum().backward()
    found = tangrad.summary(model, x, show=False)
    assert (found.zero_gradients, found.missing_gradients) == ((), ("0.weight", "2.weight"))
    model.zero_grad()
    with tangrad.no_grad():
        model[0].bias[:] = -100.0
    model(x).sum().backward()
    found = tangrad.summary(model, x, show=False)
    assert found.zero_gradients == ("0.weight", "0.bias", "2.weight")
    told = "gradients: zero for 0.weight, 0.bias, 2.weight (why_no_grad tells why)"
    assert str(found).splitlines()[-1] == told


def test_many_names_are_cut_short():
    model = nn.Sequential(*(nn.Linear(2, 2) for _ in range(5)))
    (model(tangrad.ones(1, 2)) * 0).sum().backward()
    line = str(tangrad.summary(model, (1, 2), show=False)).splitlines()[-1]
    assert "0.weight, 0.bias, 1.weight, 1.bias, 2.weight, 2.bias and 4 more" in line
