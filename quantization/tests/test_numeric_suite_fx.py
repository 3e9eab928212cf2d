"""The numeric suite of graphs beside PyTorch's: the same places, and there the same numbers."""

import copy
import warnings

import numpy as np
import pytest
import torch
from graph_programs import batches, converted, dynamic, maker, prepared, static, trained
from quantized_pairs import data, models, ours, quiet, theirs

import tangrad

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import torch.ao.ns._numeric_suite_fx as their_suite
    import torch.ao.ns.fx.qconfig_multi_mapping as their_mapping
    import torch.ao.ns.fx.utils as their_utils
    import torch.ao.quantization.backend_config as their_config

import tangrad.ao.ns._numeric_suite_fx as our_suite
import tangrad.ao.ns.fx.qconfig_multi_mapping as our_mapping
import tangrad.ao.ns.fx.utils as our_utils
import tangrad.ao.quantization.backend_config as our_config

SIDES = (their_suite, our_suite)
SHAPE = (2, 3, 8, 8)

network = maker(
    {
        "conv": lambda nn: nn.Conv2d(3, 4, 3, padding=1),
        "bn": lambda nn: nn.BatchNorm2d(4),
        "relu": lambda nn: nn.ReLU(),
        "second": lambda nn: nn.Conv2d(4, 4, 3, padding=1),
        "pool": lambda nn: nn.MaxPool2d(4),
        "out": lambda nn: nn.Linear(16, 5),
    },
    lambda m, nn, f, x: m.out(
        f.flatten(m.pool(nn.functional.relu(m.second(m.relu(m.bn(m.conv(x)))))), 1)
    ),
)


def pairs(make=network, mapping=static, shape=SHAPE, qat=False):
    """Return (suite, prepared model, quantized model, batch) of each side, by the same data."""
    inputs = batches(shape)
    ready = prepared(make, mapping, inputs, qat=qat)
    # Sums of floats differ in their last bits, and so would the scales.
    state = {key: value.numpy().copy() for key, value in ready[0].state_dict().items()}
    ready[1].load_state_dict({key: tangrad.from_numpy(value) for key, value in state.items()})
    done = converted([copy.deepcopy(model) for model in ready])
    tensors = (torch.from_numpy(inputs[0][0]), tangrad.from_numpy(inputs[0][0]))
    return list(zip(SIDES, ready, done, tensors, strict=True))


def numbers(value):
    value = value[0] if isinstance(value, tuple) else value
    value = value.detach()
    return (value.dequantize() if value.is_quantized else value).numpy()


def flat(value):
    return [part for one in value for part in flat(one)] if isinstance(value, list) else [value]


KEYS = ("type", "index_within_arg", "index_of_arg", "fqn")


def assert_alike(expected, found, room=1e-5, keys=KEYS):
    """Assert that the same was kept at the same places, under the same names of nodes."""
    assert list(found) == list(expected)
    for place, by_type in expected.items():
        assert list(found[place]) == list(by_type)
        for kind, by_model in by_type.items():
            assert list(found[place][kind]) == list(by_model)
            for model, kept in by_model.items():
                for a, b in zip(kept, found[place][kind][model], strict=True):
                    for key in keys:
                        assert a[key] == b[key], (place, kind, model, key)
                    for x, y in zip(flat(a["values"]), flat(b["values"]), strict=True):
                        assert np.allclose(numbers(x), numbers(y), atol=room), (place, model)


@pytest.mark.parametrize("qat", [False, True])
def test_weights_are_compared_at_the_same_places(qat):
    results = []
    for suite, ready, done, _ in pairs(mapping=trained if qat else static, qat=qat):
        results.append(quiet(suite.extract_weights, "a", ready, "b", done))
    assert len(results[1]) == 3
    assert_alike(*results, room=1e-6)


def test_weights_of_float_models_are_found_behind_functions_too():
    functional = maker(
        {"out": lambda nn: nn.Linear(6, 5)},
        lambda m, nn, f, x: f.relu(nn.functional.linear(x, m.out.weight, m.out.bias)),
    )
    (_, ready, done, _) = pairs(functional, shape=(2, 6))[1]
    [found] = our_suite.extract_weights("a", ready, "b", done).values()
    a, b = (found["weight"][name][0]["values"][0] for name in "ab")
    assert b.is_quantized
    assert np.allclose(numbers(a), numbers(b), atol=0.01)


def test_weights_of_recurrent_layers_are_lists():
    lstm = maker({"lstm": lambda nn: nn.LSTM(6, 4, 2)}, lambda m, nn, f, x: m.lstm(x)[0])
    results = [
        quiet(suite.extract_weights, "a", ready, "b", done)
        for suite, ready, done, _ in pairs(lstm, dynamic, (5, 2, 6))
    ]
    assert_alike(*results, room=1e-6)
    [found] = results[1].values()
    assert len(found["weight"]["b"][0]["values"][0]) == 4


@pytest.mark.parametrize("inputs", [False, True])
def test_outputs_are_compared_at_the_same_places(inputs):
    results = []
    for suite, ready, done, x in pairs():
        both = quiet(
            suite.add_loggers, "a", ready, "b", done, suite.OutputLogger, should_log_inputs=inputs
        )
        for model in both:
            quiet(model, x)
        results.append(suite.extract_logger_info(*both, suite.OutputLogger, "b"))
    assert set(results[1]["out"]) == {"node_output", *(["node_input"] if inputs else [])}
    assert_alike(*results)


@pytest.mark.parametrize("inputs", [False, True])
def test_float_nodes_get_the_inputs_of_quantized_ones(inputs):
    results = []
    for suite, ready, done, x in pairs():
        model = quiet(
            suite.add_shadow_loggers, "a", ready, "b", done, suite.OutputLogger,
            should_log_inputs=inputs,
        )  # fmt: skip
        quiet(model, x)
        results.append(suite.extract_shadow_logger_info(model, suite.OutputLogger, "b"))
    assert len(results[1]) >= 3
    assert_alike(*results)


def test_quantized_nodes_get_the_inputs_of_float_ones():
    results = []
    for suite, ready, done, x in pairs():
        model = quiet(suite.add_shadow_loggers, "a", done, "b", ready, suite.OutputLogger)
        quiet(model, x)
        results.append(suite.extract_shadow_logger_info(model, suite.OutputLogger, "b"))
    # PyTorch gives all places the path of the last one.
    assert_alike(*results, keys=KEYS[:-1])
    paths = [by_type["node_output"]["b"][0]["fqn"] for by_type in results[1].values()]
    assert paths[:2] == ["conv", "second"]


def test_comparisons_are_added_to_what_the_second_model_kept():
    results = []
    for suite, ready, done, _ in pairs():
        found = quiet(suite.extract_weights, "a", ready, "b", done)
        utils = their_utils if suite is their_suite else our_utils
        for name in ("sqnr", "cosine_similarity", "normalized_l2_error"):
            suite.extend_logger_results_with_comparison(
                found, "a", "b", getattr(utils, f"compute_{name}"), name
            )
        results.append([found[key]["weight"]["b"][0] for key in found])
    for a, b in zip(*results, strict=True):
        for name in ("sqnr", "cosine_similarity", "normalized_l2_error"):
            assert np.allclose(a[name][0].numpy(), b[name][0].numpy(), rtol=1e-3, atol=1e-4)


def test_comparing_what_a_model_did_not_keep_is_refused():
    kept = {"conv": {"weight": {"a": []}}}
    with pytest.raises(AssertionError, match="b not found in results of 'conv'"):
        our_suite.extend_logger_results_with_comparison(kept, "a", "b", None, "sqnr")


def test_graphs_of_different_models_are_refused():
    nn = tangrad.nn
    one, other = nn.Sequential(nn.Linear(2, 2)), nn.Sequential(nn.Conv1d(1, 1, 1))
    with pytest.raises(Exception, match="'_0' .*Linear.* of one graph and '_0' .*Conv1d"):
        our_suite.extract_weights("a", one.eval(), "b", other.eval())


def several(q, mapping):
    sevenbit = q.get_default_qconfig("fbgemm")
    return mapping.QConfigMultiMapping().set_global([sevenbit, q.get_default_qconfig("onednn")])


@pytest.fixture(scope="module")
def shadows():
    """Return what several quantized forms of each part gave on each side."""
    results = []
    inputs = batches(SHAPE)
    kinds = ((theirs, their_mapping, their_config, torch), (ours, our_mapping, our_config, tangrad))
    for suite, model, (q, mapping, config, root) in zip(SIDES, models(network), kinds, strict=True):
        x = [root.from_numpy(batch[0]) for batch in inputs]
        made = quiet(
            suite.prepare_n_shadows_model,
            *(model.eval(), (x[0],), quiet(several, q, mapping)),
            config.get_native_backend_config(),
        )
        for one in x:
            quiet(made, one)
        made = quiet(suite.convert_n_shadows_model, made)
        suite.loggers_set_enabled(made, True)
        quiet(made, x[0])
        results.append(suite.extract_results_n_shadows_model(made))
    return results


def test_forms_by_several_configurations_are_compared_at_once(shadows):
    expected, found = (result["model"]["node_output"] for result in shadows)
    assert {name.rpartition("_")[0] for name in found} == {
        name.rpartition("_")[0] for name in expected
    }
    kept = {kept[0]["fqn"]: kept for kept in found.values()}
    assert {"conv", "second", "out"} <= set(kept)
    for name, one in expected.items():
        if name.endswith("_0"):
            assert np.allclose(
                numbers(one[0]["values"][0]), numbers(found[name][0]["values"][0]), atol=1e-5
            )
    assert all(float(one[0]["comparisons"][0]) > 20 for n, one in found.items() if n[-1] != "0")


def test_the_comparison_is_printed_as_a_table(shadows, capsys):
    our_suite.print_comparisons_n_shadows_model(shadows[1])
    head, line, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["node_name", "node_type", "fqn", "0", "1"]
    assert set(line) == {"-", " "}
    assert rows[0].split()[0] == "conv"
    assert float(rows[0].split()[-1]) > 20


def test_loggers_keep_nothing_where_they_are_told_so():
    (suite, ready, done, x) = pairs()[1]
    model, _ = suite.add_loggers("a", ready, "b", done, suite.OutputLogger)
    suite.loggers_set_enabled(model, False)
    model(x)
    suite.loggers_set_enabled(model, True)
    suite.loggers_set_save_activations(model, False)
    model(x)
    loggers = [part for part in model.modules() if isinstance(part, suite.OutputLogger)]
    assert loggers
    assert not any(logger.stats for logger in loggers)


def test_distances_take_quantized_tensors_and_lists():
    x, y = tangrad.from_numpy(data(4, 5)), tangrad.from_numpy(data(4, 5, seed=1))
    q = tangrad.quantize_per_tensor(x, 0.05, 0, tangrad.qint8)
    assert float(our_utils.compute_sqnr(x, q)) > 30
    assert [float(v) for v in our_utils.compute_cosine_similarity([x, x], (x, x))] == [1.0, 1.0]
    expected = their_utils.compute_normalized_l2_error(
        *map(torch.from_numpy, (x.numpy(), y.numpy()))
    )
    assert float(our_utils.compute_normalized_l2_error(x, y)) == pytest.approx(float(expected))
    assert our_utils.compute_sqnr(x, x.double()) is None


def test_mappings_of_several_configurations_are_pytorchs():
    made = []
    for q, module in ((theirs, their_mapping), (ours, our_mapping)):
        nn = (torch if q is theirs else tangrad).nn
        first, second = q.default_qconfig, q.default_dynamic_qconfig
        multi = module.QConfigMultiMapping().set_object_type(nn.Linear, [first])
        multi.set_global([second, first]).set_module_name("a", [None])
        multi.set_module_name_regex("b.*", [first, first]).set_module_name_object_type_order(
            "c", nn.Linear, 0, [first, second]
        )
        again = module.QConfigMultiMapping.from_list_qconfig_mapping(multi.qconfig_mappings_list)
        for one in (multi, again):
            for mapping in one.qconfig_mappings_list:
                styles = mapping.to_dict()
                made.append((q, styles.pop(""), [len(v) for v in styles.values()]))
                made[-1] = (made[-1][1] == first, made[-1][1] is None, made[-1][2])
    half = len(made) // 2
    assert made[:half] == made[half:]


def test_every_public_name_exists():
    names = {
        name
        for name, value in vars(their_suite).items()
        if getattr(value, "__module__", "") == their_suite.__name__ and not name.startswith("_")
    }
    assert names - set(vars(our_suite)) == set()
    utils = {name for name in vars(their_utils) if name.startswith("compute_")}
    assert utils - set(vars(our_utils)) == set()
