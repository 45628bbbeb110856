"""What MLflow keeps is what the history says."""

import numpy as np
import pytest

from fedjax_sel import config

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")


def kept(place, history):
    """By the name of the run: its parameters, and the values of its metrics by step."""
    mlflow = pytest.importorskip("mlflow")
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{place / 'mlflow.db'}")
    runs = client.search_runs([client.get_experiment_by_name("mine").experiment_id])
    out = {}
    for run in runs:
        read = {name: client.get_metric_history(run.info.run_id, name) for name in run.data.metrics}
        steps = {name: [(one.step, one.value) for one in values] for name, values in read.items()}
        out[run.info.run_name] = run.data.params, {name: sorted(values) for name, values in steps.items()}
    return out


def test_a_run_a_seed_with_every_round_once_also_after_a_kill(small, tmp_path):
    pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    history = small.killed_and_gone_on_with(
        tmp_path / "run", {"mlflow": {"experiment": "mine"}}, seeds=[3, 5], evaluate_every=2
    )
    read = kept(tmp_path / "run", history)
    assert sorted(read) == ["run seed 3", "run seed 5"]
    for i, seed in enumerate((3, 5)):
        given, metrics = read[f"run seed {seed}"]
        assert given["seed"] == str(seed)
        assert given["client_selection.name"] == "uniform"
        assert metrics.pop("round") == [(t, t) for t in range(1, 7)]
        for name, values in metrics.items():
            there = ~np.isnan(history[name][i].astype(float))
            assert values == [(t + 1, float(history[name][i, t])) for t in np.flatnonzero(there)], name
        assert metrics.keys() == {n for n, v in history.metrics.items() if not np.isnan(v[i].astype(float)).all()}


@pytest.mark.parametrize("name", ["mlflow", "trackio"])
def test_without_the_package_the_extra_is_named_before_anything_runs(monkeypatch, name):
    import sys

    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ValueError, match=rf"{name}, which is not installed: pip install 'fedjax-sel\[{name}\]'"):
        config.build(config.resolve({"data": "iris", "cohort_size": 2, "callbacks": name}))
