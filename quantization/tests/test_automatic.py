"""One call: layers that lose much or run slower stay float, and the report says why."""

import json

import pytest

import tangrad
from tangrad import nn
from tangrad.ao import quantization as q
from tangrad_quantization.automatic import QuantizationRefused
from tangrad_quantization.layers.islands import Island


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(2, 8, 3), nn.BatchNorm2d(8)
        self.first, self.last = nn.Linear(8 * 36, 32), nn.Linear(32, 4)

    def forward(self, x):
        x = self.bn(self.conv(x)).relu().flatten(1)
        return self.last(self.first(x).relu())


def fast(module, x):
    """Time every quantized layer at half of the float one's."""
    return 0.5 if isinstance(module, Island) else 1.0


@pytest.fixture
def net():
    tangrad.manual_seed(0)
    model = Net()
    for seed in range(3):
        tangrad.manual_seed(seed)
        model(tangrad.randn(16, 2, 8, 8))
    return model.eval()


@pytest.fixture
def batches():
    tangrad.manual_seed(9)
    return [tangrad.randn(16, 2, 8, 8) for _ in range(3)]


def test_islands_pack_their_weights_once(net, batches, monkeypatch):
    model, _ = q.auto(net, batches, timer=fast)
    model(batches[0])
    for island in (model.conv, model.first):
        monkeypatch.setattr(type(island), "_pack", lambda self: pytest.fail("packed again"))
    model(batches[0])
    model.first.load_state_dict(model.first.state_dict())
    monkeypatch.undo()
    assert model(batches[0]).isfinite().all()


def test_all_layers_are_quantized_where_that_is_fast_and_loses_little(net, batches):
    model, report = q.auto(net, batches, timer=fast)
    assert [(row.name, row.quantized) for row in report.layers] == [
        ("conv", True),
        ("first", True),
        ("last", True),
    ]
    assert report.folded == ["bn"]
    assert report.float_score - report.score <= 0.005
    assert report.bytes < 0.35 * report.float_bytes
    difference = (model(batches[0]) - net(batches[0])).abs().max()
    assert difference < 0.1 * net(batches[0]).abs().max()
    assert isinstance(net.bn, nn.BatchNorm2d)


def test_a_slow_layer_stays_float_with_the_reason(net, batches):
    def slow_in_the_middle(module, x):
        middle = isinstance(module, Island) and x.shape[-1] == 288
        return 3.0 if middle else fast(module, x)

    model, report = q.auto(net, batches, timer=slow_in_the_middle)
    row = next(row for row in report.layers if row.name == "first")
    assert not row.quantized
    assert "3.00 times the time" in row.reason
    assert type(model.first) is nn.Linear


def test_a_lossy_layer_stays_float_with_the_reason(net, batches):
    def evaluate(model):
        return 0.5 if isinstance(model.last, Island) else 0.9

    model, report = q.auto(net, batches, evaluate, timer=fast)
    row = next(row for row in report.layers if row.name == "last")
    assert (row.quantized, type(model.last)) == (False, nn.Linear)
    assert "loses 0.4000" in row.reason
    assert report.scored_by == "evaluate"


def test_layers_that_lose_too_much_together_are_given_up(net, batches):
    def evaluate(model):
        found = [isinstance(m, Island) for m in (model.conv, model.first, model.last)]
        return 1.0 - (0.004 if sum(found) == 1 else 0.003 * sum(found))

    _, report = q.auto(net, batches, evaluate, timer=fast)
    assert sum(row.quantized for row in report.layers) == 1
    assert sum("given up" in row.reason for row in report.layers) == 2


def test_a_collapsed_model_is_refused_with_the_report(net, batches):
    def evaluate(model):
        return 0.1 if any(isinstance(m, Island) for m in model.modules()) else 0.9

    with pytest.raises(QuantizationRefused, match=r"conv: loses 0\.8") as caught:
        q.auto(net, batches, evaluate, timer=fast)
    assert not any(row.quantized for row in caught.value.report.layers)


def test_synthetic_inputs_are_marked(net, batches):
    _, report = q.auto(net, example=batches[0], timer=fast)
    assert report.synthetic
    assert "SYNTHETIC" in str(report)
    with pytest.raises(ValueError, match="give calibration data"):
        q.auto(net)
    with pytest.raises(ValueError, match="empty"):
        q.auto(net, [])


def test_a_norm_whose_layer_is_used_elsewhere_too_is_not_folded(batches):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.bn = nn.Conv2d(2, 8, 3), nn.BatchNorm2d(8)

        def forward(self, x):
            x = self.conv(x)
            return self.bn(x) * 3 + x

    model = Twice()
    model.bn.running_mean += 3
    _, report = q.auto(model.eval(), batches, timer=fast)
    assert report.folded == []


def test_the_report_is_text_json_and_a_page(net, batches, tmp_path):
    _, report = q.auto(net, batches, timer=fast)
    for name in ("r.txt", "r.json", "r.html"):
        report.save(tmp_path / name)
    assert json.loads((tmp_path / "r.json").read_text())["layers"][0]["name"] == "conv"
    page = (tmp_path / "r.html").read_text()
    assert page.count("<svg") == 1 + 2 * 3
    assert "conv" in (tmp_path / "r.txt").read_text()


def test_what_auto_returns_is_shown_in_a_few_lines(net, batches):
    made = q.auto(net, batches, timer=fast)
    assert "3 of 3 layers quantized" in repr(made.report)
    assert len(repr(made)) < 1500
    assert "channel_ranges" not in repr(made.report.layers[0])


def test_data_that_are_not_finite_name_the_layer(net):
    with pytest.raises(ValueError, match="'conv'.*NaN"):
        q.auto(net, [tangrad.full((1, 2, 8, 8), float("nan"))], lambda model: 1.0, timer=fast)
