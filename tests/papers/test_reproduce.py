"""A reproduction leaves the same form for every paper, and does nothing twice."""

import io
import json
import math
import re
import shutil

import matplotlib.image
import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from fedjax_sel import config, papers
from fedjax_sel.engine import driver
from fedjax_sel.papers.paper import Cell, locate_cell
from fedjax_sel.papers.report import make_anchor
from fedjax_sel.papers.running import run_cells
from fedjax_sel.runs import execute, layout, pretrained
from tests.papers.forms import SUMMARY_KEYS

CELLS = 3 * 5  # settings, methods
SEEDS = 2


def refuse(constant):
    raise ValueError(f"{constant} is no JSON")


def state_of(folder):
    """Every file, and when it was written."""
    return {path.relative_to(folder): path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def out(reproduced, tmp_path_factory):
    return shutil.copytree(reproduced[0], tmp_path_factory.mktemp("copy") / "uacs")


@pytest.fixture(scope="module")
def returned(reproduced):
    return reproduced[1]


@pytest.fixture(scope="module")
def summary(out):
    """As it was written, by strict rules."""
    return json.loads((out / "summary.json").read_text(encoding="utf-8"), parse_constant=refuse)


@pytest.fixture
def nothing_runs(monkeypatch):
    def refused(*_, **__):
        raise AssertionError("a round was run")

    monkeypatch.setattr(driver, "run_chunk", refused)


def test_the_summary_has_the_form_that_all_papers_share(summary):
    assert list(summary) == SUMMARY_KEYS
    assert (summary["paper"], summary["scale"], summary["seeds"]) == ("uacs", "smoke", [0, 1])
    assert {"jax", "python", "device", "fedjax_sel"} <= summary["environment"].keys()
    for result in summary["results"]:
        assert list(result) == ["experiment", "method", "metric", "round", "mean", "std", "per_seed", "published"]
        assert isinstance(result["metric"], str)
        assert result["round"] is None or 1 <= result["round"] <= 15
        assert len(result["per_seed"]) == SEEDS
    for claim in summary["claims"]:
        assert list(claim) == [
            *("id", "text", "source", "verdict", "statistic", "effect", "rests_on", "fixed", "lacks", "reason", "asked")
        ]
        assert claim["verdict"] == "not judged at this scale", "15 rounds and two seeds are below the fair regime"
        assert "15 of at least 100 rounds" in claim["reason"]
        assert "2 of at least 5 seeds" in claim["reason"]
        assert claim["effect"]["comparisons"] == (6 if claim["id"] == "superior-to-each" else 3), (
            "of two rivals, or one"
        )
        assert claim["rests_on"] == ["Experiment 1", "Experiment 2", "Experiment 3"]
        assert isinstance(claim["statistic"], dict)
        assert claim["statistic"]
    assert len({claim["id"] for claim in summary["claims"]}) == len(summary["claims"]) > 0
    assert [(cell["experiment"], cell["method"]) for cell in summary["cells"]] == [
        cell.key for cell in papers.load("uacs").cells("smoke")
    ]
    assert {cell["commit"] for cell in summary["cells"]} == {summary["environment"]["commit"]}
    commit = summary["environment"]["commit"]
    assert summary["environment"]["dirty"] == (None if commit is None else commit.endswith("+changes"))
    assert bool(summary["notes"]) == (summary["environment"]["dirty"] is not False)
    for had in summary["conditions"].values():
        assert (had["examples_per_client"], had["local_epochs"], had["rounds"], had["seeds"]) == (50, 5, 15, 2)
        assert 0 < had["above_chance"] < 1
        assert had["pretrained_accuracy"] is None
    keys = [(r["experiment"], r["method"], r["metric"], r["round"]) for r in summary["results"]]
    assert len(set(keys)) == len(keys)
    assert len({key[:2] for key in keys}) == CELLS


def test_what_is_returned_is_what_is_written(returned, summary):
    assert returned.keys() == summary.keys()
    for mine, written in zip(returned["results"], summary["results"], strict=True):
        for one, other in zip(mine["per_seed"], written["per_seed"], strict=True):
            assert other == one or (other is None and not math.isfinite(one))
    assert [c["verdict"] for c in returned["claims"]] == [c["verdict"] for c in summary["claims"]]


def test_means_and_deviations_are_those_of_the_seeds(summary):
    for result in summary["results"]:
        if None in result["per_seed"]:  # never reached: infinite
            assert result["mean"] is None
            assert result["std"] is None
        else:
            assert result["mean"] == pytest.approx(np.mean(result["per_seed"]))
            assert result["std"] == pytest.approx(np.std(result["per_seed"], ddof=1), abs=1e-12)


def test_accuracies_are_those_of_the_cells(out, summary):
    for cell in papers.load("uacs").cells("smoke"):
        long = pd.read_parquet(locate_cell(out, cell) / "metrics.parquet")
        table = long.set_index(["metric", "round", "seed"])["value"]
        found = {
            (r["metric"], r["round"]): r["per_seed"]
            for r in summary["results"]
            if (r["experiment"], r["method"]) == cell.key
        }
        assert {t for metric, t in found if metric == "accuracy"} == {2, 3, 8, 15}
        for t in (2, 3, 8, 15):
            assert found["accuracy", t] == [table["accuracy", t, seed] for seed in (0, 1)]
        assert found["final_accuracy", None] == found["accuracy", 15]
        spent = [table[["client_flops", "selection_flops"]].xs(seed, level="seed").sum() for seed in (0, 1)]
        assert found["flops", None] == pytest.approx(spent)


def test_the_report_shows_every_figure_and_verdict(out, summary):
    text = (out / "report.md").read_text(encoding="utf-8")
    shown = re.findall(r"!\[.*?\]\((.+?)\)", text)
    assert sorted(shown) == sorted(f"figures/{path.name}" for path in (out / "figures").iterdir())
    assert len(shown) == 7
    for name in shown:
        assert (out / name).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
        pixels = matplotlib.image.imread(out / name)
        assert min(pixels.shape[:2]) > 200
        assert len(np.unique(pixels[:, :, 0])) > 20, f"{name} is blank"
    for claim in summary["claims"]:
        linked = f"[**{claim['verdict']}**](#{make_anchor(claim['id'])})"
        assert f"| {claim['text']} | {claim['source']} | {linked} |" in text
        assert f"#### {claim['id']}\n\n{claim['text']}: **{claim['verdict']}**" in text
    assert "nan" not in text.lower().split()


def test_a_second_time_nothing_is_run_and_the_same_comes_out(out, summary, nothing_runs):
    before = state_of(out / "cells")
    again = papers.reproduce("uacs", scale="smoke", out=out)
    assert state_of(out / "cells") == before
    assert [r["per_seed"] for r in json.loads((out / "summary.json").read_text())["results"]] == [
        r["per_seed"] for r in summary["results"]
    ]
    assert [c["verdict"] for c in again["claims"]] == [c["verdict"] for c in summary["claims"]]


def test_a_study_that_another_commit_made_is_read_and_the_reader_is_told(out, summary, tmp_path, nothing_runs):
    commit = summary["environment"]["commit"]
    assert summary["studies"] == [{"name": "generator", "commit": commit}, {"name": "distances", "commit": commit}]
    shutil.copytree(out, tmp_path / "copy")
    older, unknown = (tmp_path / "copy" / "studies" / f"{name}.json" for name in ("generator", "distances"))
    found = json.loads(older.read_text(encoding="utf-8"))
    older.write_text(json.dumps({**found, "commit": "f" * 40}), encoding="utf-8")
    found = json.loads(unknown.read_text(encoding="utf-8"))
    unknown.write_text(json.dumps({name: found[name] for name in found if name != "commit"}), encoding="utf-8")
    before = older.read_text(encoding="utf-8"), unknown.read_text(encoding="utf-8")

    console = Console(record=True, width=500, file=io.StringIO())
    again = papers.reproduce("uacs", scale="smoke", out=tmp_path / "copy", console=console)
    said = console.export_text()
    assert f"study generator is read from {older}; it was made at {'f' * 40}" in said
    assert (f"study distances is read from {unknown}; it was made at an unknown commit" in said) == (commit is not None)
    assert (older.read_text(encoding="utf-8"), unknown.read_text(encoding="utf-8")) == before
    assert [study["commit"] for study in again["studies"]] == ["f" * 40, None]
    (note,) = [note for note in again["notes"] if "studies" in note]
    assert f"generator at {'f' * 40}" in note
    assert ("distances at a commit that was not recorded" in note) == (commit is not None)
    assert note in (tmp_path / "copy" / "report.md").read_text(encoding="utf-8")

    console = Console(record=True, width=500, file=io.StringIO())
    papers.reproduce("uacs", scale="smoke", out=out, console=console)
    assert "it was made at" not in console.export_text(), "today's own are read without a word"


def test_a_folder_of_another_configuration_is_refused_and_left_alone(out, nothing_runs):
    before = state_of(out)
    with pytest.raises(ValueError, match=r"run of another configuration \(.*seeds"):
        papers.reproduce("uacs", scale="smoke", out=out, seeds=3)
    with pytest.raises(ValueError, match=r"run of another configuration \(.*rounds: 15 there, 150 here"):
        papers.reproduce("uacs", scale="small", out=out, seeds=2)
    assert state_of(out) == before


def test_a_folder_of_something_else_is_refused_and_left_alone(tmp_path, nothing_runs):
    cell = papers.load("uacs").cells("smoke")[-1]
    strange = locate_cell(tmp_path, cell)
    strange.mkdir(parents=True)
    (strange / "thesis.txt").write_text("mine")
    with pytest.raises(ValueError, match="not a run's folder"):
        papers.reproduce("uacs", scale="smoke", out=tmp_path)
    assert list(state_of(tmp_path)) == [(strange / "thesis.txt").relative_to(tmp_path)]


def test_unknown_names_are_answered_with_the_nearest(tmp_path, nothing_runs):
    with pytest.raises(ValueError, match=r"unknown scale 'smok'; did you mean 'smoke'.*small, full"):
        papers.reproduce("uacs", scale="smok", out=tmp_path / "new")
    with pytest.raises(ValueError, match="unknown paper 'uasc'; did you mean 'uacs'"):
        papers.reproduce("uasc", scale="smoke", out=tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_two_cells_of_one_configuration_are_run_once(tmp_path, monkeypatch):
    plain = {"data": "iris", "partition": {"name": "iid", "clients": 5}, "cohort_size": 2, "rounds": 2}
    cells = [
        Cell("one", "A", plain),
        Cell("two", "A", {**plain, "cohort_size": 3}),
        Cell("three", "A", {**plain, "cohort_size": 2}),
    ]
    configs = [config.resolve({**cell.config, "seeds": 2}) for cell in cells]
    runs, build = [], execute.build
    monkeypatch.setattr(execute, "build", lambda one, begin=None: runs.append(one["cohort_size"]) or build(one))

    def histories():
        return run_cells(tmp_path, cells, configs, Console(quiet=True))

    ran = histories()
    assert list(ran) == [("one", "A"), ("two", "A"), ("three", "A")]
    assert runs == [2, 3]
    assert ran["one", "A"] is ran["three", "A"]
    assert ran["one", "A"].selections.shape == (2, 2, 2)
    assert [layout.state(locate_cell(tmp_path, cell)) for cell in cells] == ["finished", "finished", "new"]
    read = histories()
    assert runs == [2, 3], "nothing is run again"
    assert read["one", "A"] is read["three", "A"]
    for key, history in ran.items():
        np.testing.assert_array_equal(read[key].selections, history.selections)
        np.testing.assert_array_equal(read[key]["accuracy"], history["accuracy"])


STEP = {"data": "iris", "partition": {"name": "iid", "clients": 5}, "model": "logistic", "cohort_size": 2, "rounds": 1}


def run_all(out, *cells):
    """The histories of cells, of one seed."""
    configs = [config.resolve({"seeds": 1, **cell.config}) for cell in cells]
    return run_cells(out, cells, configs, Console(quiet=True))


def test_two_cells_of_one_configuration_that_begin_with_different_models_are_two_runs(tmp_path):
    slow, fast = ({**STEP, "local_training": {"learning_rate": rate}} for rate in (0.001, 0.5))
    cells = (
        Cell("before", "slow", slow),
        Cell("before", "fast", fast),
        Cell("after", "slow", STEP, begins=("before", "slow")),
        Cell("after", "fast", STEP, begins=("before", "fast")),
        Cell("after", "slow again", STEP, begins=("before", "slow")),
        Cell("after", "neither", STEP),
    )
    found = run_all(tmp_path, *cells)
    losses = {method: float(found["after", method]["loss"][0, -1]) for method in ("slow", "fast", "neither")}
    assert len(set(losses.values())) == 3
    assert losses["fast"] < losses["slow"]
    assert found["after", "slow again"] is found["after", "slow"]
    again = run_all(tmp_path, *cells)
    assert {key: float(history["loss"][0, -1]) for key, history in again.items()} == {
        key: float(history["loss"][0, -1]) for key, history in found.items()
    }


def test_a_cell_begins_with_the_model_of_one_that_stands_for_another(tmp_path):
    one, same = Cell("before", "one", STEP), Cell("before", "same", STEP)
    found = run_all(tmp_path, one, same, Cell("after", "same", STEP, begins=same.key))
    assert found[one.key] is found[same.key]
    begun = run_all(tmp_path / "other", one, Cell("after", "one", STEP, begins=one.key))
    np.testing.assert_array_equal(found["after", "same"]["loss"], begun["after", "one"]["loss"])


def test_a_finished_cell_is_read_where_the_model_that_it_began_with_is_gone(tmp_path):
    cells = Cell("before", "one", STEP), Cell("after", "one", STEP, begins=("before", "one"))
    found = run_all(tmp_path, *cells)
    (locate_cell(tmp_path, cells[0]) / pretrained.FILE).unlink()
    again = run_all(tmp_path, *cells)
    np.testing.assert_array_equal(found["after", "one"]["loss"], again["after", "one"]["loss"])


def test_a_cell_that_begins_with_one_behind_it_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"\('after', 'one'\) begins with the model of \('before', 'one'\)"):
        run_all(tmp_path, Cell("after", "one", STEP, begins=("before", "one")), Cell("before", "one", STEP))
    assert not list(tmp_path.iterdir())


def test_every_scale_has_cells_with_names_of_their_own():
    paper = papers.load("uacs")
    assert list(paper.seeds) == ["smoke", "small", "full"]
    for scale in paper.seeds:
        cells = paper.cells(scale)
        assert len({cell.key for cell in cells}) == len({cell.slug for cell in cells}) == len(cells)
        assert all(re.fullmatch(r"[a-z0-9.=-]+", cell.slug) for cell in cells)


OWN = """
import jax.numpy as jnp

import fedjax_sel as fs


class Last(fs.ClientSelector):
    '''The clients of the highest numbers, which are far from the boundary.'''

    def select(self, key, state, ctx):
        return fs.client_selection.top_m(key, jnp.arange(ctx.num_clients, dtype=float), ctx.available, ctx.m)
"""


def test_a_users_selector_runs_beside_random_selection_and_touches_no_claim(out, summary, tmp_path):
    (tmp_path / "reproduced.py").write_text(OWN)
    copied = shutil.copytree(out, tmp_path / "uacs")
    name = f"{tmp_path / 'reproduced.py'}:Last"
    papers.reproduce("uacs", scale="smoke", out=copied, add=[name])
    again = json.loads((copied / "summary.json").read_text())
    assert {**again, "environment": 0, "own": 0} == {**summary, "environment": 0, "own": 0}
    (table,) = again["own"]
    assert [row[0] for row in table["rows"]] == ["Experiment 1", "Experiment 2", "Experiment 3"]
    assert {row[3] for row in table["rows"]} == {"Random Selection"}
    from fedjax_sel.runs.layout import read

    (mine,) = copied.glob("cells/experiment-1--*last*")
    theirs = read(copied / "cells" / "experiment-1--random-selection")[0]["accuracy"][:, -1]
    gap = read(mine)[0]["accuracy"][:, -1] - theirs
    assert abs(gap.mean()) > 0.001
    assert table["rows"][0][5].startswith(f"{gap.mean():+.4f} [")
    assert "Your own" in (copied / "report.md").read_text()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("entropy", "must be of the form module:Name"),
        ("reproduced.py:OWN", "it must be a subclass of fedjax_sel.Strategy"),
    ],
)
def test_what_is_no_strategy_of_the_users_is_refused_before_anything_runs(name, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reproduced.py").write_text(OWN + "\nOWN = 3\n")
    with pytest.raises(ValueError, match=said):
        papers.reproduce("uacs", scale="smoke", out=tmp_path / "out", add=[name])
    assert not (tmp_path / "out").exists()
