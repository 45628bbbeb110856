"""A configuration says everything about a run, and what is wrong with it."""

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
import yaml

from fedjax_sel import config
from fedjax_sel.client_selection.entropy import Entropy
from fedjax_sel.client_selection.power_of_choice import PowerOfChoice
from fedjax_sel.config.checks import coerce
from fedjax_sel.data.partition import Natural, Shards
from fedjax_sel.engine.experiment import Experiment
from fedjax_sel.engine.layout import Layout
from fedjax_sel.local_training import Steps

IRIS = {"data": "iris", "partition": {"clients": 10}, "model": "logistic", "cohort_size": 4, "rounds": 3, "seeds": 2}


@pytest.mark.parametrize("name", config.list_presets())
def test_a_preset_resolves_completely_and_resolving_again_changes_nothing(name):
    short, given = config.load(name)
    resolved = config.resolve(given)
    assert short == name
    assert config.resolve(resolved.to_dict()) == resolved
    assert yaml.safe_load(resolved.dump()) == resolved
    assert resolved["client_selection"].keys() >= {"name"}
    assert "schedule" in resolved["local_training"]


def test_the_resolved_configuration_reruns_to_the_same_history(tmp_path):
    first = config.build(config.resolve(IRIS)).simulate()
    (tmp_path / "config.yaml").write_text(config.resolve(IRIS).dump())
    again = config.build(config.resolve(config.load_file(tmp_path / "config.yaml"))).simulate()
    np.testing.assert_array_equal(first["accuracy"], again["accuracy"])
    np.testing.assert_array_equal(first.selections, again.selections)


def test_components_are_built_with_their_parameters():
    run = config.build(
        config.resolve(
            {
                **IRIS,
                "client_selection": {"name": "power_of_choice", "d": 6},
                "partition": {"name": "shards", "clients": 12, "shards_per_client": 1},
                "model": {"name": "mlp", "hidden": [5, 4], "normalise": False},
                "local_training": {"momentum": 0.9, "schedule": {"name": "steps", "at": [2], "factor": 0.1}},
                "layout": {"clients": 2},
                "cohort_size": 0.25,
                "seeds": [3, 5],
                "chunk": 2,
            }
        )
    )
    assert run.experiment.client_selection == PowerOfChoice(d=6)
    assert run.data.partition == Shards(clients=12, shards_per_client=1)
    assert run.experiment.task.model.hidden == (5, 4)
    assert run.experiment.task.model.classes == 3
    assert run.experiment.task.scale == 1.0
    assert run.experiment.local_training.schedule == Steps(at=(2,), factor=0.1)
    assert (run.execution.layout, run.seeds, run.execution.chunk) == (Layout(clients=2), (3, 5), 2)
    assert run.experiment.count_cohort(12) == 3


def test_rows_are_normalised_by_the_training_rows():
    run = config.build(config.resolve(IRIS))
    x = run.data.source.x
    z = (x - np.asarray(run.experiment.task.shift)) * np.asarray(run.experiment.task.scale)
    np.testing.assert_allclose(np.mean(z, 0), 0, atol=1e-5)
    np.testing.assert_allclose(np.std(z, 0), 1, atol=1e-5)


def test_synthetic_data_is_drawn_by_each_seed_and_owned_naturally():
    run = config.build(
        config.resolve({"data": {"name": "uacs", "setting": 2, "clients": 20, "num_examples": 5}, "cohort_size": 2})
    )
    assert run.data.partition == Natural()
    one, other = run.data.draw(0), run.data.draw(1)
    assert one.num_clients == 20
    assert not np.array_equal(one.x, other.x)


def test_a_component_may_be_a_bare_name_and_whole_numbers_are_floats_where_floats_are_due():
    resolved = config.resolve(
        {**IRIS, "client_selection": "entropy", "local_training": {"learning_rate": 1, "weight_decay": "1e-4"}}
    )
    assert resolved["client_selection"] == {"name": "entropy", "epsilon": 0.1, "temperature": 1.0, "per_slot": False}
    assert isinstance(resolved["local_training"]["learning_rate"], float)
    assert resolved["local_training"]["weight_decay"] == 1e-4


def test_seeds_are_a_count_or_a_list():
    assert config.resolve({**IRIS, "seeds": [0, 1, 2]})["seeds"] == 3
    assert config.resolve({**IRIS, "seeds": [7]})["seeds"] == [7]


def test_other_names_of_the_field_are_understood():
    given = {"dataset": "iris", "num_clients": 8, "clients_per_round": 3, "num_rounds": 7, "lr": 0.5, "local_epochs": 2}
    resolved = config.resolve(given)
    assert resolved["partition"]["clients"] == 8
    assert (resolved["cohort_size"], resolved["rounds"]) == (3, 7)
    assert (resolved["local_training"]["learning_rate"], resolved["local_training"]["epochs"]) == (0.5, 2)
    assert config.rename(given)[1] == {
        "dataset": "data",
        "num_rounds": "rounds",
        "clients_per_round": "cohort_size",
        "num_clients": "partition.clients",
        "local_epochs": "local_training.epochs",
        "lr": "local_training.learning_rate",
    }
    assert config.translate_key("lr") == "local_training.learning_rate"
    assert config.translate_key("batchsize") == "local_training.batch_size"
    assert config.translate_key("clients") == "partition.clients"


def test_an_override_replaces_a_component_whole_and_a_parameter_alone():
    base = {**IRIS, "client_selection": {"name": "entropy", "epsilon": 0.3}}
    changed = config.override(
        base, ["client_selection.d=6", "client_selection=power_of_choice", "cohort_size=0.5", "lr=1e-2", "seeds=[4, 5]"]
    )
    assert base["client_selection"]["name"] == "entropy"
    resolved = config.resolve(changed)
    assert resolved["client_selection"] == {"name": "power_of_choice", "d": 6}
    assert (resolved["cohort_size"], resolved["local_training"]["learning_rate"], resolved["seeds"]) == (
        0.5,
        0.01,
        [4, 5],
    )
    nested = config.resolve(
        config.override(base, ["local_training.schedule=cosine", "local_training.schedule.end=0.1"])
    )
    assert nested["local_training"]["schedule"] == {"name": "cosine", "end": 0.1}


def test_a_component_that_is_named_again_keeps_its_parameters():
    """A sweep over `partition=iid,dirichlet` would otherwise run another Dirichlet law than the file's."""
    base = {**IRIS, "partition": {"name": "dirichlet", "alpha": 0.1, "clients": 4}}
    kept = config.resolve(config.override(base, ["partition=dirichlet", "partition.clients=5"]))["partition"]
    assert (kept["alpha"], kept["clients"]) == (0.1, 5)
    for item in ("partition={name: dirichlet}", "partition=iid"):
        assert "alpha" not in config.override(base, [item])["partition"], item
    marked = {**IRIS, "client_selection": {"name": "mine.py:Half", "code": "e84839d2", "start": 2.0}}
    changed = config.override(marked, ["client_selection=mine.py:Half"])["client_selection"]
    assert changed == {"name": "mine.py:Half", "start": 2.0}, "of today's code"
    assert marked["client_selection"]["code"] == "e84839d2"
    nested = {**IRIS, "local_training": {"name": "sgd", "schedule": {"name": "cosine", "end": 0.1}}}
    for value, wanted in (("cosine", {"name": "cosine", "end": 0.1}), ("constant", "constant")):
        changed = config.override(nested, [f"local_training.schedule={value}"])
        assert changed["local_training"]["schedule"] == wanted


def test_differences_are_dotted_keys():
    one = config.resolve({**IRIS, "client_selection": "entropy"})
    other = config.resolve({**IRIS, "client_selection": {"name": "entropy", "epsilon": 0.2}, "rounds": 4})
    assert other.differences(one) == ["client_selection.epsilon", "rounds"]
    assert one.differences(one) == []
    assert one.fingerprint != other.fingerprint


WRONG = {
    "no data": ({"data": None}, "data is missing"),
    "data": ({"data": "irsi"}, "unknown data 'irsi'; did you mean 'iris'"),
    "data to fill in": ({"data": "tfds:NAME"}, "put a file or a dataset in its place"),
    "data parameter": ({"data": {"name": "iris", "tets": 0.1}}, "did you mean 'test'"),
    "key": ({"selectr": "entropy"}, "unknown key 'selectr'; did you mean 'client_selection'"),
    "client_selection": ({"client_selection": "entrop"}, "unknown client selector 'entrop'; did you mean 'entropy'"),
    "model": ({"model": "mpl"}, "did you mean 'mlp'"),
    "partition": ({"partition": "dirichlett"}, "did you mean 'dirichlet'"),
    "parameter": ({"client_selection": {"name": "entropy", "epsilom": 0.1}}, "did you mean 'epsilon'"),
    "parameter of none": ({"data_selection": {"name": "everything", "x": 1}}, "everything has no parameters, but 'x'"),
    "number": (
        {"client_selection": {"name": "entropy", "epsilon": "high"}},
        "client_selection.epsilon is 'high'; it must be a finite number",
    ),
    "not a number": ({"local_training": {"learning_rate": float("nan")}}, "must be a finite number"),
    "whole number": ({"rounds": 1.5}, "rounds is 1.5; it must be a whole number"),
    "truth as number": ({"rounds": True}, "rounds is True"),
    "number as truth": ({"client_selection": {"name": "entropy", "per_slot": 1}}, "must be true or false"),
    "list": ({"model": {"name": "mlp", "hidden": 64}}, "model.hidden is 64; it must be a list, each a whole number"),
    "in list": ({"model": {"name": "mlp", "hidden": [64, "x"]}}, r"model.hidden\[1\] is 'x'"),
    "schedule": ({"local_training": {"schedule": "stepz"}}, "did you mean 'steps'"),
    "twice": (
        {"lr": 0.1, "local_training": {"learning_rate": 0.2}},
        "lr and local_training.learning_rate are the same",
    ),
    "component": ({"client_selection": ["entropy"]}, "must be a name, or a mapping"),
    "component name": ({"client_selection": {"name": 3}}, "client_selection.name is 3"),
    "layout": ({"layout": "pmap"}, "unknown layout 'pmap'; did you mean 'vmap'"),
    "layout field": ({"layout": {"client": 3}}, "did you mean 'clients'"),
    "classes": ({"model": {"name": "mlp", "classes": 3}}, "unknown parameter of model mlp: 'classes'"),
    "seeds": ({"seeds": [1, 1]}, "different whole numbers"),
    "cohort_size": ({"cohort_size": 11}, "there are N = 10 clients"),
    "no rounds": ({"rounds": 0}, "rounds is 0; it must be"),
    "chunk": ({"chunk": 0}, "chunk is 0; it must be at least 1"),
    "data seed": ({"data_seed": -1}, "data_seed is -1"),
    "signals": ({"signal_split": "test"}, "signal_split is 'test'"),
    "holdout": ({"holdout": 1.0}, "holdout is 1.0"),
    "own check": (
        {"aggregation": {"by": "volume"}},
        "mean: (by|weighting) is 'volume'; it must be one of client, size",
    ),
    "too many clients": ({"partition": {"clients": 1000}}, "only 120 examples"),
    "no test rows": ({"data": {"name": "iris", "test": 0.0}}, "no test examples"),
    "setting": ({"data": {"name": "uacs", "setting": 4}, "partition": "natural"}, "setting is 4"),
}


@pytest.mark.parametrize(("wrong", "says"), WRONG.values(), ids=WRONG)
def test_what_cannot_run_is_refused_with_a_reason(wrong, says):
    with pytest.raises(ValueError, match=says):
        config.build(config.resolve({**IRIS, **wrong}))


@pytest.mark.parametrize(
    ("item", "says"),
    [
        ("client_selection", "not of the form key=value"),
        ("=3", "not of the form key=value"),
        ("selecter.d=3", "did you mean 'client_selection'"),
        ("cohort_size=[1", "cannot be read as YAML"),
        ("rounds.x=1", "rounds is 3, which has no parameters"),
    ],
)
def test_what_is_no_override_is_refused(item, says):
    with pytest.raises(ValueError, match=says):
        config.override(IRIS, [item])


def test_a_configuration_must_be_a_mapping():
    with pytest.raises(ValueError, match="mapping of keys to values"):
        config.resolve(["iris"])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: [1", "is not valid YAML"),
        ("- 1", "is not a configuration"),
        ("", "it is empty"),
        ("m: 1\nm: 2", "'m' is given twice"),
        ("trainer: {lr: 1, lr: 2}", "'lr' is given twice"),
        ("m: 010", "010 is not read in base ten"),
        ("m: 1:30", "1:30 is not read in base ten"),
        ("lr: 1:30.5", "1:30.5 is not read in base ten"),
    ],
)
def test_a_file_that_is_no_configuration_is_named(tmp_path, text, says):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=f"mine.yaml.*{says}"):
        config.load(str(path))


def test_a_file_that_is_not_there_or_not_readable_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere.yaml"):
        config.load(str(tmp_path / "nowhere.yaml"))
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00a")
    with pytest.raises(ValueError, match=r"bytes.yaml cannot be read"):
        config.load(str(tmp_path / "bytes.yaml"))
    with pytest.raises(ValueError, match="unknown preset 'digit'; did you mean 'digits'"):
        config.load("digit")
    for given in ("lr=1", "data=npz:/tmp/mine.npz", "a=b.yaml"):
        with pytest.raises(ValueError, match=f"no preset or file before '{given}'; name one first, as in `fedjax-sel"):
            config.load(given)


def test_every_component_there_is_can_be_named():
    for key, kind in config.KINDS.items():
        for name in kind.available():
            given = {"name": name, "path": "table.csv"} if name in ("csv", "trace") else name
            assert config.resolve({**IRIS, key: given})[key]["name"] == name
    assert (
        config.build(config.resolve({**IRIS, "client_selection": "entropy"})).experiment.client_selection == Entropy()
    )


def test_callbacks_are_a_name_a_list_or_a_mapping_and_become_a_mapping_with_every_parameter():
    table = {"table": {"format": "csv"}}
    assert config.resolve(IRIS)["callbacks"] == {}
    for given in (None, [], {}):
        assert config.resolve({**IRIS, "callbacks": given})["callbacks"] == {}
    for given in ("table", ["table"], [{"table": {}}], {"table": None}, {"table": {"format": "csv"}}):
        assert config.resolve({**IRIS, "callbacks": given})["callbacks"] == table
    both = config.resolve({**IRIS, "callbacks": ["table", {"early_stopping": {"patience": 5}}]})["callbacks"]
    assert list(both) == ["table", "early_stopping"]
    assert both["early_stopping"] == {"metric": "accuracy", "mode": "auto", "patience": 5, "min_delta": 0.0}


def test_parameters_of_callbacks_are_overridden_by_dotted_keys_however_they_were_written():
    for given in (None, "table", ["table"], {"table": {"format": "csv"}}):
        base = IRIS if given is None else {**IRIS, "callbacks": given}
        changed = config.override(base, ["callbacks.early_stopping.patience=5", "callbacks.table.format=parquet"])
        found = config.resolve(changed)["callbacks"]
        assert found["table"] == {"format": "parquet"}
        assert found["early_stopping"]["patience"] == 5
    changed = config.override(IRIS, ["callbacks.early_stopping.patience=7", "callbacks=[stopwatch, early_stopping]"])
    found = config.resolve(changed)["callbacks"]
    assert list(found) == ["stopwatch", "early_stopping"]
    assert found["early_stopping"]["patience"] == 7
    assert config.override({**IRIS, "callbacks": "table"}, ["callbacks=null"])["callbacks"] == {}


@pytest.mark.parametrize(("given", "expected"), [(1, 1.0), (0.5, 0.5)])
def test_a_fraction_of_flowers_is_a_share_of_the_clients(given, expected):
    found = config.rename({"fraction_fit": given})[0]["cohort_size"]
    assert (found, type(found)) == (expected, float)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"aggregation": "fedavg"}, "mean"),
        ({"aggregation": "fedadam"}, "fedopt"),
        ({"client_selection": "random"}, "uniform"),
        ({"client_selection": "pow_d"}, "power_of_choice"),
        ({"partition": "noniid"}, "dirichlet"),
    ],
)
def test_what_others_call_a_component_is_told_by_its_name_here(given, meant):
    with pytest.raises(ValueError, match=f"did you mean '{meant}'"):
        config.resolve({**IRIS, **given})


def test_a_file_with_the_name_of_a_preset_is_told_apart_from_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits").write_text("data: iris\n")
    with pytest.raises(ValueError, match=r"a preset digits, and a file digits .* name the file \./digits"):
        config.load("digits")
    assert config.load("./digits")[1] == {"data": "iris"}


def test_a_callback_without_parameters_is_a_difference():
    one, other = config.resolve(IRIS), config.resolve({**IRIS, "callbacks": "stopwatch"})
    assert other.differences(one) == ["callbacks", "callbacks.stopwatch"]
    assert one.fingerprint != other.fingerprint


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("tabel", "unknown callback 'tabel'; did you mean 'table'"),
        ({"early_stoping": {"patience": 5}}, "did you mean 'early_stopping'"),
        ({"early_stopping": {"patiense": 5}}, "did you mean 'patience'"),
        ({"early_stopping": {"patience": "long"}}, "callbacks.early_stopping.patience is 'long'; it must be a whole"),
        ({"table": {"format": "xls"}}, "callbacks.table.format is 'xls'; it must be 'csv' or 'parquet'"),
        ({"table": {"folder": "here"}}, "unknown parameter of callbacks.table"),
        ({"table": "csv"}, "callbacks.table is 'csv'; it must be a mapping of its parameters"),
        ({"stopwatch": {"x": 1}}, "stopwatch has no parameters, but 'x' is given"),
        (0, "callbacks is 0; it must be a name, a list of names, or a mapping"),
        (3, "callbacks is 3; it must be a name, a list of names, or a mapping"),
        (["table", 3], "it must be a name, a list of names, or a mapping"),
        (["table", {"table": {}}], "callbacks: table is given twice"),
    ],
)
def test_callbacks_that_are_none_are_named(given, says):
    with pytest.raises(ValueError, match=says):
        config.resolve({**IRIS, "callbacks": given})


def test_callbacks_are_checked_when_a_run_is_built_and_made_for_its_folder(tmp_path):
    with pytest.raises(ValueError, match="patience is 0; it must be a whole number, at least 1"):
        config.build(config.resolve({**IRIS, "callbacks": {"early_stopping": {"patience": 0}}}))
    run = config.build(config.resolve({**IRIS, "callbacks": ["table", "early_stopping", "wandb"]}))
    table, early, curves = run.callbacks(tmp_path)
    assert (table.folder, curves.folder) == (tmp_path, tmp_path)
    assert not hasattr(early, "folder")
    assert curves.config == config.resolve({**IRIS, "callbacks": ["table", "early_stopping", "wandb"]})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("items", "says"),
    [
        (["m=5", "cohort_size=6"], "m=5 and cohort_size=6 both give cohort_size; give it once"),
        (["m=5", "m=6"], "m=5 and m=6 both give cohort_size; give it once"),
        (
            ["lr=1", "trainer.learning_rate=2"],
            "lr=1 and trainer.learning_rate=2 both give local_training.learning_rate",
        ),
        (["selector=entropy", "client_selection.name=uniform"], "both give client_selection; give it once"),
        (
            ["data.rows=90", "data.num_examples=60"],
            "data.rows=90 and data.num_examples=60 both give data.num_examples; give it once",
        ),
    ],
)
def test_a_value_given_twice_on_the_command_line_is_refused_as_in_a_file(items, says):
    with pytest.raises(ValueError, match=says):
        config.override(IRIS, items)


def test_an_option_and_an_item_do_not_give_the_same_value():
    assert config.override(IRIS, ["rounds=4"], {"seeds": 7, "layout": None})["seeds"] == 7
    with pytest.raises(ValueError, match="--seeds 7 and seeds=3 both give seeds; give it once"):
        config.override(IRIS, ["seeds=3"], {"seeds": 7})


def test_values_on_the_command_line_are_read_as_those_in_files():
    with pytest.raises(ValueError, match="the value cannot be read as YAML"):
        config.override(IRIS, ["client_selection={name: entropy, name: uniform}"])


OLD = {
    **{"data": {"name": "iris", "rows": 100, "test_rows": 20}, "partition": {"name": "dirichlet", "min_rows": 2}},
    **{"selector": {"name": "fedcs", "share": 0.5}, "samples": {"name": "entropy", "rho": 0.5}},
    **{"trainer": {"name": "sgd", "lr": 0.2}, "aggregator": {"name": "fedopt", "optimiser": "yogi", "by": "size"}},
    **{"m": 4, "signals_on": "holdout", "mapping": {"clients": 1, "rows": 64}},
}
NEW = {
    **{"data": {"name": "iris", "num_examples": 100, "num_test_examples": 20}},
    **{"partition": {"name": "dirichlet", "min_examples": 2}},
    **{"client_selection": {"name": "fedcs", "fraction": 0.5}},
    **{"data_selection": {"name": "entropy", "temperature": 0.5}},
    **{"local_training": {"name": "sgd", "learning_rate": 0.2}},
    **{"aggregation": {"name": "fedopt", "optimizer": "yogi", "weighting": "size"}},
    **{"cohort_size": 4, "signal_split": "holdout", "layout": {"clients": 1, "examples": 64}},
}


def test_configurations_of_the_first_edition_are_read_and_what_they_are_called_now_is_told():
    assert config.resolve(OLD) == config.resolve(NEW)
    assert list(config.describe_renames(NEW)) == []
    assert set(config.describe_renames(OLD)) == {
        "signals_on is signal_split here",
        "mapping is layout here",
        "local_training.lr is local_training.learning_rate here",
        "data.rows is data.num_examples here",
        "data.test_rows is data.num_test_examples here",
        "partition.min_rows is partition.min_examples here",
        "client_selection.share is client_selection.fraction here",
        "data_selection.rho is data_selection.temperature here",
        "aggregation.optimiser is aggregation.optimizer here",
        "aggregation.by is aggregation.weighting here",
        "layout.rows is layout.examples here",
    }


def test_short_forms_are_names_of_their_own_and_nothing_is_told_of_them():
    items = [
        "selector=entropy",
        "selector.epsilon=0.2",
        "trainer.epochs=2",
        "aggregator=mean",
        "samples=entropy",
        "m=3",
    ]
    assert list(config.describe_renames(IRIS, items)) == []
    found = config.resolve(config.override({**IRIS, "cohort_size": 9}, items))
    assert (found["client_selection"]["epsilon"], found["local_training"]["epochs"], found["cohort_size"]) == (
        0.2,
        2,
        3,
    )


def test_a_parameter_is_renamed_only_where_the_component_has_the_new_name_and_not_the_old_one():
    with pytest.raises(ValueError, match="uniform has no parameters, but 'share' is given"):
        config.resolve({**IRIS, "client_selection": {"name": "uniform", "share": 0.5}})
    tiers = {"name": "tiers", "compute_factor": [2, 1], "share": [1, 3]}
    assert config.resolve({**IRIS, "devices": tiers})["devices"]["share"] == [1.0, 3.0]
    assert list(config.describe_renames(IRIS, ["client_selection=fedcs", "client_selection.share=0.5"])) == []


def test_a_configuration_is_frozen():
    resolved = config.resolve(IRIS)
    resolved["client_selection"]["name"] = "entropy"
    resolved.to_dict()["rounds"] = 9
    assert (resolved["client_selection"]["name"], resolved["rounds"]) == ("uniform", 3)
    assert config.resolve(resolved) is resolved
    assert hash(resolved) == hash(config.resolve(IRIS))
    with pytest.raises(AttributeError):
        resolved.values = {}  # type: ignore[misc]
    with pytest.raises(TypeError, match=r"build takes what resolve returns, not dict: build\(resolve"):
        config.build(IRIS)  # type: ignore[arg-type]


def test_the_fields_of_an_experiment_stand_once():
    fields = {field.name for field in dataclasses.fields(Experiment)} - {"task"}
    assert fields <= set(config.resolve(IRIS))


def test_a_partition_that_mixes_the_clients_of_synthetic_data_is_warned_of():
    given = {"data": {"name": "synthetic", "clients": 12}, "model": "logistic", "rounds": 1, "cohort_size": 2}
    with pytest.warns(UserWarning, match="data synthetic has clients of its own, whose examples the partition iid mix"):
        assert config.build(config.resolve({**given, "partition": "iid"})).data.draw(0).num_clients == 100
    assert config.build(config.resolve({**given, "partition": "natural"})).data.draw(0).num_clients == 12


@pytest.mark.parametrize("asked", [{"clients": 30}, {"name": "natural", "clients": 30}])
def test_clients_of_synthetic_data_own_what_they_draw_however_many_are_asked_for(asked):
    resolved = config.resolve({"data": "synthetic", "partition": asked})
    assert (resolved["partition"]["name"], resolved["partition"]["clients"]) == ("natural", 30)
    sizes = np.asarray(config.build(resolved).data.draw(0).num_examples)
    assert len(sizes) == 30
    assert sizes.max() > 3 * np.median(sizes)


def test_two_metrics_of_one_name_are_refused():
    twice = [{"name": "f1", "average": "macro"}, {"name": "f1", "average": "micro"}]
    with pytest.raises(ValueError, match=r"task.metrics has two called f1; give each a name, as in \{mine: \{name: f1"):
        config.resolve({"data": "iris", "task": {"metrics": twice}})


def test_one_client_is_another_configuration_than_all_clients():
    one, all_of_them = (config.resolve({**IRIS, "cohort_size": size}) for size in (1, 1.0))
    assert one != all_of_them
    assert one.differences(all_of_them) == ["cohort_size"]
    assert one == config.resolve({**IRIS, "cohort_size": 1})


def test_a_trainer_that_has_the_other_name_of_a_parameter_keeps_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_trainer.py").write_text(
        "from fedjax_sel.local_training.sgd import SGD\n\n"
        "class Mine(SGD):\n    lr: float = 0.5\n    local_epochs: int = 3\n"
    )
    given = config.resolve({**IRIS, "local_training": {"name": "own_trainer.py:Mine", "lr": 0.2}})
    found = given["local_training"]
    assert (found["lr"], found["learning_rate"], found["local_epochs"]) == (0.2, 0.1, 3)
    assert config.resolve(given.to_dict()) == given
    usual = config.resolve({**IRIS, "local_training": {"lr": 0.25, "local_epochs": 2}})["local_training"]
    assert (usual["learning_rate"], usual["epochs"]) == (0.25, 2)


def test_a_metric_is_its_own_name_where_nothing_else_is_given():
    given = config.resolve({**IRIS, "task": {"metrics": {"f1": None}}})
    assert given == config.resolve({**IRIS, "task": {"metrics": ["f1"]}})
    assert list(config.build(given).experiment.task.metrics) == ["f1"]
    with pytest.raises(ValueError, match=r"task.metrics has a metric called 1; its name must be text"):
        config.resolve({**IRIS, "task": {"metrics": {1: "accuracy"}}})


def test_components_that_share_an_anchor_are_changed_one_by_one():
    text = "preset: &t {name: sgd, learning_rate: 0.3}"
    shared = config.files.parse_yaml(f"local_{text.replace('preset', 'training')}\nfine_tuning: *t\nm: 3\ndata: iris")
    assert shared["local_training"] is shared["fine_tuning"]
    made = config.resolve(config.override(shared, ["lr=0.5"]))
    assert made["local_training"]["learning_rate"] == 0.5
    assert made["fine_tuning"]["learning_rate"] == 0.3
    assert shared["local_training"]["learning_rate"] == 0.3


def test_a_configuration_that_contains_itself_is_refused():
    with pytest.raises(ValueError, match="a mapping that contains itself"):
        config.resolve(config.files.parse_yaml("data: &x {name: iris, more: *x}"))


def test_the_order_of_overrides_of_one_component_does_not_matter():
    items = ["selector.epsilon=0.5", "selector.name=entropy", "data.test=0.5", "data.name=iris"]
    for order in itertools.permutations(items):
        found = config.resolve(config.override({"data": "digits"}, order))
        assert found["client_selection"]["epsilon"] == 0.5
        assert found["data"]["test"] == 0.5


def test_a_fraction_of_flowers_is_a_share_on_the_command_line_too():
    found = config.resolve(config.override(IRIS, ["fraction_fit=1"]))["cohort_size"]
    assert (found, type(found)) == (1.0, float)
    assert config.resolve(config.override(IRIS, ["clients_per_round=1"]))["cohort_size"] == 1


def test_digits_in_quotes_are_text_and_no_share():
    for given in ("1", "5"):
        with pytest.raises(ValueError, match=rf"cohort_size is '{given}'; it must be"):
            config.resolve({**IRIS, "cohort_size": given})
    assert config.resolve({**IRIS, "lr": "1e-3"})["local_training"]["learning_rate"] == 0.001


def test_a_number_that_no_float_is_near_is_refused():
    with pytest.raises(ValueError, match=r"learning_rate is 1000.*; it must be a finite number"):
        config.resolve({**IRIS, "lr": 10**400})


@pytest.mark.parametrize("given", [{}, {"partition": None}, {"partition": {}}])
def test_a_partition_of_null_is_the_default_of_the_data(given):
    assert config.resolve({"data": "uacs", **given})["partition"]["name"] == "natural"


def test_public_examples_are_not_drawn_by_the_seed_of_a_run():
    with pytest.raises(ValueError, match=r"public.seed is null, which draws other examples for each seed of a run"):
        config.resolve({**IRIS, "public": {"name": "digits", "seed": None}})


def test_a_date_is_no_plain_value():
    with pytest.raises(ValueError, match=r"day is datetime.date\(2020, 1, 2\); it must be a number, text, a list"):
        coerce("day", config.override(IRIS, ["rounds=2020-01-02"])["rounds"], Any)
