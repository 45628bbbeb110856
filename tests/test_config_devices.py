"""Devices, availability and deadline in a configuration."""

import math

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from fedjax_sel import config
from fedjax_sel.cli import main
from fedjax_sel.devices.availability import Always, Bernoulli, Diurnal, Trace
from fedjax_sel.devices.clock import Deadline
from fedjax_sel.devices.laws import LogNormal, Tiers, Uniform

IRIS = {"data": "iris", "partition": {"clients": 10}, "model": "logistic", "cohort_size": 4, "rounds": 3, "seeds": 2}


def test_by_default_there_are_no_devices_and_everybody_is_there_in_time():
    resolved = config.resolve(IRIS)
    assert resolved["devices"] is None
    assert resolved["availability"] == {"name": "always"}
    assert resolved["deadline"] == {"seconds": math.inf, "late": "drop"}
    run = config.build(resolved)
    assert run.data.devices is None
    assert (run.experiment.availability, run.experiment.deadline) == (Always(), Deadline())


@pytest.mark.parametrize(
    ("given", "law"),
    [
        ("uniform", Uniform()),
        ({"name": "uniform", "low": 0.5, "radio": 2}, Uniform(low=0.5, radio=2.0)),
        ("lognormal", LogNormal()),
        ({"name": "lognormal", "spread": "1e-1"}, LogNormal(spread=0.1)),
        ({"name": "tiers", "compute_factor": [2, 1], "share": [1, 3]}, Tiers((2.0, 1.0), share=(1.0, 3.0))),
    ],
)
def test_a_law_of_devices_is_built_and_resolving_again_changes_nothing(given, law):
    resolved = config.resolve({**IRIS, "devices": given})
    assert config.resolve(resolved.to_dict()) == resolved
    assert yaml.safe_load(resolved.dump()) == resolved
    assert config.build(resolved).data.devices == law


def test_devices_are_read_from_a_table(tmp_path):
    table = tmp_path / "devices.csv"
    table.write_text("compute,efficiency,memory,up,down\n" + "\n".join(f"{i}e9,1e9,1e9,1e6,2e6" for i in range(1, 11)))
    run = config.build(config.resolve({**IRIS, "devices": {"name": "csv", "path": str(table)}}))
    np.testing.assert_allclose(run.data.draw(3).devices.compute, np.arange(1, 11) * 1e9)
    assert (run.simulate()["seconds"] > 0).all()
    with pytest.raises(ValueError, match="there are N = 9 clients"):
        config.build(
            config.resolve({**IRIS, "partition": {"clients": 9}, "devices": {"name": "csv", "path": str(table)}})
        )


def test_availability_is_built(tmp_path):
    def built(given):
        return config.build(config.resolve({**IRIS, "availability": given})).experiment.availability

    assert built({"name": "bernoulli", "p": 1}) == Bernoulli(1.0)
    assert built({"name": "diurnal", "period": 12}) == Diurnal(period=12.0)
    trace = tmp_path / "trace.csv"
    trace.write_text("1,1,1,1,1,0,0,0,0,0\n\n0,0,0,0,0,1,1,1,1,1\n")
    present = built({"name": "trace", "path": str(trace)})
    assert isinstance(present, Trace)
    np.testing.assert_array_equal(present.present, np.arange(10) // 5 == np.array([[0], [1]]))
    history = config.build(config.resolve({**IRIS, "availability": {"name": "trace", "path": str(trace)}})).simulate()
    assert (history.selections[:, 0] < 5).all()
    assert (history.selections[:, 1] >= 5).all()


def test_volatility_is_built_as_availability_is():
    resolved = config.resolve({**IRIS, "volatility": {"name": "bernoulli", "p": 0.25}})
    assert config.build(resolved).experiment.volatility == Bernoulli(0.25)
    assert config.resolve(IRIS)["volatility"] is None
    assert config.build(config.resolve(IRIS)).experiment.volatility == Always()


def test_overrides_reach_devices_availability_and_deadline():
    items = ["devices.spread=0.1", "devices=lognormal", "availability.p=0.7", "availability=bernoulli"]
    given = config.override(IRIS, [*items, "deadline.seconds=2", "deadline.late=partial"])
    run = config.build(config.resolve(given))
    assert run.data.devices == LogNormal(spread=0.1)
    assert run.experiment.availability == Bernoulli(0.7)
    assert run.experiment.deadline == Deadline(2.0, "partial")
    assert config.resolve(config.override(given, ["devices=null", "deadline.seconds=.inf"]))["devices"] is None
    assert config.resolve(config.override(given, ["deadline.seconds=inf"]))["deadline"]["seconds"] == math.inf


def test_a_deadline_of_a_selector_may_be_infinite_as_well():
    resolved = config.resolve({**IRIS, "client_selection": "fedcs"})
    assert resolved["client_selection"] == {"name": "fedcs", "deadline": math.inf, "fraction": 1.0}
    assert yaml.safe_load(resolved.dump()) == resolved
    assert (
        config.resolve({**IRIS, "client_selection": {"name": "fedcs", "deadline": 3}})["client_selection"]["deadline"]
        == 3.0
    )


WRONG = {
    "law": ({"devices": "unifrom"}, "unknown law of devices 'unifrom'; did you mean 'uniform'"),
    "no law": ({"devices": {"low": 0.1}}, "devices has low, but no name that says which one it is"),
    "law parameter": ({"devices": {"name": "lognormal", "spred": 1}}, "did you mean 'spread'"),
    "law number": ({"devices": {"name": "uniform", "compute": -1.0}}, "law Uniform: compute is -1.0 FLOP/s"),
    "infinite": ({"devices": {"name": "uniform", "compute": math.inf}}, "devices.compute is inf; it must be a finite"),
    "no path": ({"devices": "csv"}, "devices.path is missing"),
    "availability": ({"availability": "bernouli"}, "unknown availability 'bernouli'; did you mean 'bernoulli'"),
    "chance": ({"availability": {"name": "bernoulli", "p": 1.5}}, "p is 1.5"),
    "phase": ({"availability": {"name": "diurnal", "phase": 0.1}}, "unknown parameter of availability diurnal"),
    "no time": ({"devices": "uniform", "deadline": {"seconds": 0}}, "seconds is 0.0; it must be above 0"),
    "not a number": ({"deadline": {"seconds": math.nan}}, "deadline.seconds is nan"),
    "late": ({"deadline": {"late": "dorp"}}, "did you mean 'drop'"),
    "deadline": ({"deadline": 5}, "deadline is 5; it must be a mapping"),
    "deadline field": ({"deadline": {"second": 5}}, "did you mean 'seconds'"),
    "late alone": ({"devices": "uniform", "deadline": {"late": "partial"}}, "but deadline.seconds is not given"),
    "deadline alone": ({"deadline": {"seconds": 5}}, "the clients have no devices, so nobody is late"),
    "selector alone": ({"client_selection": "oort"}, "oort selects by what devices can do, but the clients have none"),
}


@pytest.mark.parametrize(("wrong", "says"), WRONG.values(), ids=WRONG)
def test_what_cannot_run_is_refused_with_a_reason(wrong, says):
    with pytest.raises(ValueError, match=says):
        config.build(config.resolve({**IRIS, **wrong})).simulate()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty; one line a round"),
        ("1,0\n1,2\n", "line 2: a cell is '2'"),
        ("1,0\n1\n", "line 2: 1 cells, but 2"),
        ("1,0\n0,1\n", "N = 10 clients"),
    ],
)
def test_a_trace_that_cannot_be_used_is_refused(tmp_path, text, says):
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=says):
        config.build(config.resolve({**IRIS, "availability": {"name": "trace", "path": str(path)}}))


@pytest.mark.parametrize(("key", "name"), [("devices", "csv"), ("availability", "trace")])
def test_a_table_that_is_not_there_is_named(tmp_path, key, name):
    with pytest.raises(FileNotFoundError, match=r"nowhere\.csv"):
        config.build(config.resolve({**IRIS, key: {"name": name, "path": str(tmp_path / "nowhere.csv")}}))
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe\x00a")
    with pytest.raises(ValueError, match=r"bytes\.csv is not a table"):
        config.build(config.resolve({**IRIS, key: {"name": name, "path": str(tmp_path / "bytes.csv")}}))


def test_the_preset_with_devices_selects_the_same_half_in_every_round():
    given = config.load("iris_devices")[1]
    history = config.build(config.resolve({**given, "rounds": 3, "seeds": 2})).simulate()
    assert history.selections.shape == (2, 3, 15)
    for cohorts in np.sort(history.selections, 2):
        np.testing.assert_array_equal(cohorts, cohorts[:1].repeat(3, 0))
    assert (history["joules"] > 0).all()


def test_what_devices_cost_is_shown_where_there_are_devices(tmp_path):
    runner = CliRunner()

    def call(*arguments):
        done = runner.invoke(main, [str(a) for a in arguments], env={"COLUMNS": "300"})
        assert done.exit_code == 0, done.output
        return done.stdout

    short = ["rounds=3", "seeds=1", "--no-cache"]
    with_devices = call("run", "iris", "devices=lognormal", *short, "--out", tmp_path / "devices")
    without = call("run", "iris", *short, "--out", tmp_path / "none")
    assert "simulated time" in with_devices
    assert "simulated energy" in with_devices
    assert "simulated" not in without
    assert "simulated" in (tmp_path / "devices" / "report.md").read_text()
    assert (tmp_path / "devices" / "figures" / "accuracy_by_seconds.png").is_file()
    assert not (tmp_path / "none" / "figures" / "accuracy_by_seconds.png").exists()
    beside = call("compare", tmp_path / "devices", tmp_path / "none")
    for head in ("seconds", "joules", "seconds to target"):
        assert head in beside
    assert "joules" not in call("compare", tmp_path / "none")
