"""Runs of one configuration with other seeds are joined into the run that had them all, or are refused."""

import json
from dataclasses import replace

import jax
import numpy as np
import pandas as pd
import pytest
from rich.console import Console

import fedjax_sel as fs
from fedjax_sel import config
from fedjax_sel.runs import layout
from fedjax_sel.runs.execute import execute
from fedjax_sel.runs.layout import FolderError

GIVEN = {
    "data": "iris",
    "partition": {"clients": 10},
    "model": "logistic",
    "client_selection": {"name": "entropy", "epsilon": 0.3},
    "cohort_size": 3,
    "rounds": 4,
    "evaluate_every": 2,
    "evaluate_clients_every": 2,
}


def run(place, **changes):
    return execute("iris", config.resolve({**GIVEN, **changes}), place, figures=False, console=Console(quiet=True))


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """The folders of seeds 2 and 10, of seeds 0 and 1, of all four at once, and of those joined."""
    place = tmp_path_factory.mktemp("joined")
    run(place / "late", seeds=[2, 10])
    run(place / "early", seeds=2)
    run(place / "whole", seeds=[0, 1, 2, 10])
    fs.join([place / "late", place / "early"], place / "joined", say=pytest.fail)
    return place


def test_runs_that_only_fill_a_mesh_have_no_models(tmp_path):
    mesh = {"seeds": 2, "clients": 1}
    for name, seeds in (("a", [0, 1, 2]), ("b", [3, 4, 5])):
        run(tmp_path / name, seeds=seeds, mesh=mesh)
    fs.join([tmp_path / "a", tmp_path / "b"], tmp_path / "joined")
    joined, parts = fs.open(tmp_path / "joined"), [fs.open(tmp_path / name) for name in ("a", "b")]
    for part in parts:
        assert {len(leaf) for leaf in jax.tree.leaves(part.variables)} == {3}
        for seed in part.seeds:
            jax.tree.map(np.testing.assert_array_equal, joined.model(seed), part.model(seed))


def test_it_is_the_run_of_all_seeds(places):
    joined, whole = fs.open(places / "joined"), fs.open(places / "whole")
    assert joined.seeds == whole.seeds == (0, 1, 2, 10)
    assert joined.asked == whole.asked
    np.testing.assert_array_equal(joined.history.selections, whole.history.selections)
    np.testing.assert_array_equal(joined.history.labels, whole.history.labels)
    assert joined.history.client_rounds == whole.history.client_rounds == (2, 4)
    for one, other in (
        (joined.history.metrics, whole.history.metrics),
        (joined.history.client_metrics, whole.history.client_metrics),
        (joined.variables, whole.variables),
    ):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), one, other)
    pd.testing.assert_frame_equal(joined.history.to_pandas(), whole.history.to_pandas(), rtol=1e-4)


def test_its_page_says_how_it_was_run(places):
    parts = [json.loads((places / name / layout.SUMMARY).read_text()) for name in ("early", "late")]
    joined = json.loads((places / "joined" / layout.SUMMARY).read_text())
    assert joined["seconds"] == joined["about"]["seconds"] == pytest.approx(sum(part["seconds"] for part in parts))
    assert joined["environment"] == parts[1]["environment"]
    assert (places / "joined" / layout.HTML).is_file()
    assert layout.read_commit(places / "joined") == layout.read_commit(places / "early")


def test_processes_of_all_runs_are_kept(places, tmp_path):
    for name, commit in (("early", "one"), ("late", "two")):
        run(tmp_path / name, seeds=fs.open(places / name).seeds)
        summary = json.loads((tmp_path / name / layout.SUMMARY).read_text())
        summary["environment"]["commit"] = commit
        (tmp_path / name / layout.SUMMARY).write_text(json.dumps(summary))
    fs.join([tmp_path / "late", tmp_path / "early"], tmp_path / "joined")
    assert layout.read_commit(tmp_path / "joined") == "one then two"


def test_runs_may_be_computed_in_another_order(places, tmp_path):
    run(tmp_path / "other", seeds=[7], layout="scan", chunk=1)
    history = fs.join([places / "early", tmp_path / "other"], tmp_path / "joined")
    assert history.seeds == (0, 1, 7)
    assert "; " in history.about["layout"]
    assert fs.open(tmp_path / "joined").config["layout"] == "auto"


def test_models_are_left_out_if_a_run_has_none(places, tmp_path):
    run(tmp_path / "bare", seeds=[7])
    for path in sorted((tmp_path / "bare" / layout.CHECKPOINTS).rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    said = []
    history = fs.join([places / "early", tmp_path / "bare"], tmp_path / "joined", say=said.append)
    assert history.variables is None
    assert len(said) == 1
    assert "keeps no models" in said[0]
    assert not (tmp_path / "joined" / layout.MODELS).exists()


def test_the_command_joins(places, tmp_path, capsys):
    from fedjax_sel.cli import main

    with pytest.raises(SystemExit) as ended:
        main(["join", str(places / "early"), str(places / "late"), "--out", str(tmp_path / "joined")])
    assert ended.value.code in (0, None)
    assert "4 seeds, 4 rounds" in capsys.readouterr().out
    assert fs.open(tmp_path / "joined").seeds == (0, 1, 2, 10)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"seeds": [1, 5]}, "seed 1 is in both"),
        ({"seeds": [5], "rounds": 5}, "rounds: 4 there, 5 here"),
        (
            {"seeds": [5], "client_selection": {"name": "entropy", "epsilon": 0.4}},
            "client_selection.epsilon: 0.3 there, 0.4 here",
        ),
    ],
)
def test_what_does_not_belong_together_is_refused(places, tmp_path, changes, said):
    run(tmp_path / "other", **changes)
    with pytest.raises(ValueError, match=said):
        fs.join([places / "early", tmp_path / "other"], tmp_path / "joined")
    assert not (tmp_path / "joined").exists()


def test_a_part_that_one_run_lacks_is_named(places, tmp_path):
    (tmp_path / "spreads.py").write_text("def spread(outputs, targets):\n    return outputs.std(-1)\n")
    run(tmp_path / "other", seeds=[5], task={"metrics": [f"{tmp_path}/spreads.py:spread"]})
    with pytest.raises(FolderError, match=r"in more than its seeds \(task.metrics") as caught:
        fs.join([places / "early", tmp_path / "other"], tmp_path / "joined")
    assert "has changed since" not in str(caught.value)
    run(tmp_path / "third", seeds=[0])
    with pytest.raises(FolderError, match="in more than its seeds"):
        fs.join([tmp_path / "other", tmp_path / "third"], tmp_path / "joined")


def test_runs_of_an_earlier_version_are_completed(places, tmp_path):
    run(tmp_path / "older", seeds=[7])
    path = tmp_path / "older" / layout.CONFIG
    kept = [line for line in path.read_text().splitlines() if not line.startswith(("fine_tuning", "evaluate_last"))]
    path.write_text("\n".join(kept) + "\n")
    assert fs.join([tmp_path / "older", places / "early", places / "early"], tmp_path / "joined").seeds == (0, 1, 7)


def test_an_interrupted_run_is_not_joined_into(places, tmp_path):
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / layout.CONFIG).write_text((places / "whole" / layout.CONFIG).read_text())
    with pytest.raises(FolderError, match="holds an interrupted run; give a new folder"):
        fs.join([places / "early", places / "late"], tmp_path / "begun")
    with pytest.raises(ValueError, match="it must be a list of folders"):
        fs.join(str(places / "early"), tmp_path / "joined")


def test_a_finished_run_is_not_overwritten(places):
    with pytest.raises(FolderError, match="holds a finished run; give a new folder"):
        fs.join([places / "early", places / "late"], places / "whole")
    with pytest.raises(ValueError, match="at least one is needed"):
        fs.join([], places / "nothing")


def test_more_seeds_are_told_how(places):
    with pytest.raises(FolderError, match=r'run the others alone \("seeds=\[2,3\]"\)'):
        run(places / "early", seeds=4)
    with pytest.raises(FolderError, match=r"give another folder\n"):
        run(places / "early", seeds=1)


def test_histories_are_joined_in_memory():
    def history(seeds, **parts):
        values = np.asarray(seeds, float)[:, None] + np.arange(2)
        about = {"seconds": 2.0, "device": "cpu", "resumed_at": 1}
        given = {"metrics": {"loss": values}, "selections": np.zeros((len(seeds), 2, 1), int), "num_clients": 3}
        return fs.History(seeds=tuple(seeds), **{**given, "about": about, **parts})

    late, early = history([4, 5]), history([9, 1])
    joined = fs.join_seeds([late, early])
    assert joined.seeds == (4, 5, 9, 1)
    np.testing.assert_array_equal(joined["loss"][:, 0], joined.seeds)
    assert joined.about == {"seconds": 4.0, "device": "cpu"}
    assert joined.variables is None
    assert joined.personal == ()
    models = [
        replace(one, variables={"w": np.asarray(one.seeds)}, personal={"h": one["loss"]}) for one in (late, early)
    ]
    both = fs.join_seeds(models)
    np.testing.assert_array_equal(both.variables["w"], both.seeds)
    np.testing.assert_array_equal(both.personal["h"], both["loss"])
    assert fs.join_seeds([models[0], early]).variables is None
    with pytest.raises(ValueError, match=r"history 1 differs from history 0 .*clients: 3 there, 4 here"):
        fs.join_seeds([late, replace(early, num_clients=4)])
    with pytest.raises(ValueError, match="metrics: loss there, accuracy here"):
        fs.join_seeds([late, replace(early, metrics={"accuracy": early["loss"]})])
    with pytest.raises(ValueError, match="seed 4 is in both history 0 and history 1"):
        fs.join_seeds([late, late])


def test_a_fault_that_only_one_run_had_is_counted_and_the_other_has_none():
    def history(seed, **faults):
        metrics = {
            "loss": np.ones((1, 2)),
            **{f"fault_{name}": np.full((1, 2), count) for name, count in faults.items()},
        }
        return fs.History(seeds=(seed,), metrics=metrics, selections=np.zeros((1, 2, 1), int), num_clients=3)

    joined = fs.join_seeds([history(0), history(1, weight=3.0), history(2, update=1.0)])
    np.testing.assert_array_equal(joined["fault_weight"], [[0, 0], [3, 3], [0, 0]])
    np.testing.assert_array_equal(joined["fault_update"], [[0, 0], [0, 0], [1, 1]])
