"""Sweeps: one program for what differs only in floats, and each combination as if it had been run alone."""

import functools
import json
import os
import re
import shutil
import signal

import numpy as np
import pandas as pd
import pytest
import yaml
from typer.testing import CliRunner

from fedjax_sel import config
from fedjax_sel.cli import main
from fedjax_sel.data import sources
from fedjax_sel.engine.history import TOTALS, History, concat_seeds
from fedjax_sel.engine.memory import DoesNotFit
from fedjax_sel.engine.program import plan_program
from fedjax_sel.engine.scan import run_chunk
from fedjax_sel.report import sweeps
from fedjax_sel.report.progress import Bar
from fedjax_sel.report.sweep_figures import plot_sweep
from fedjax_sel.report.sweeps import build_tidy
from fedjax_sel.runs import layout
from fedjax_sel.runs.lock import lock_folder
from fedjax_sel.runs.sweep.execute import plan
from fedjax_sel.runs.sweep.grid import axes_in, combinations, name_combination
from fedjax_sel.runs.sweep.programs import build_all, draw_seeds, group_by_program, split_group

SMALL = ("digits", "partition.clients=20", "cohort_size=3", "rounds=3", "chunk=1", "--seeds", "2")
GRID = ("client_selection.epsilon=0,0.05,0.1,0.2", "lr=0.01,0.1")
MEASURED = ["final_accuracy", "best_accuracy", "final_loss", "bytes", "flops", "diverged"]


@pytest.fixture(autouse=True)
def somewhere_else(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")


def call(*arguments):
    return CliRunner().invoke(main, [str(a) for a in arguments])


def swept(out, *arguments):
    done = call("sweep", *SMALL, *arguments, "--out", out)
    assert done.exit_code == 0, done.output
    return done


def refused(*arguments):
    """The one line of a sweep that was refused, before anything was written or compiled."""
    before = run_chunk.programs
    done = call("sweep", *arguments)
    assert done.exit_code == 2, done.output
    assert run_chunk.programs == before
    (line,) = done.stderr.strip().splitlines()
    return line


def grid_of(*items, **options):
    _, given = config.load("digits")
    return combinations(given, ["partition.clients=20", "cohort_size=3", "rounds=2", *items], {"seeds": 2, **options})


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished sweep over two axes of floats, and what it printed."""
    place = tmp_path_factory.mktemp("sweeps") / "floats"
    run_chunk.clear_cache()
    return place, swept(place, *GRID).stdout


def test_axes_of_floats_run_in_one_program_compiled_once(finished):
    place, said = finished
    assert "programs run: 1, compiled: 1" in said
    assert "8 combinations, 2 seeds each" in said
    assert "8/8" in said
    assert said.count("device: ") == 1
    assert len(list((place / "runs").iterdir())) == 8
    assert not (place / "programs").exists()


def test_a_combination_is_drawn_when_it_is_shown_or_where_it_is_asked_for(finished, tmp_path):
    place, _ = finished
    drawn = ("report.md", "report.html", "figures/accuracy.png", "figures/accuracy_by_bytes.png")
    one = shutil.copytree(next((place / "runs").iterdir()), tmp_path / "one")
    assert not any((one / name).exists() for name in drawn)
    done = call("show", one)
    assert done.exit_code == 0, done.output
    assert all((one / name).is_file() for name in drawn)
    swept(tmp_path / "sweep", "lr=0.1,0.2", "--figures")
    assert all((run / name).is_file() for run in (tmp_path / "sweep" / "runs").iterdir() for name in drawn)


def test_what_finished_runs_did_not_keep_is_drawn_where_it_can_be_and_otherwise_refused(finished, tmp_path):
    shutil.copytree(finished[0], tmp_path / "kept")
    before = run_chunk.programs
    assert refused(*SMALL, *GRID, "--out", "kept", "--keep-models").endswith(
        "and others), which --keep-models cannot add; give another folder"
    )
    assert "without checkpoints, which --keep-checkpoints cannot add" in refused(
        *SMALL, *GRID, "--out", "kept", "--keep-checkpoints"
    )
    runs = sorted((tmp_path / "kept" / "runs").iterdir())
    assert not any((run / layout.HTML).exists() for run in runs)
    for run in runs[2:]:
        shutil.rmtree(run / "figures", ignore_errors=True)
        (run / layout.HTML).write_text("drawn before")
    swept("kept", *GRID, "--figures")
    assert run_chunk.programs == before
    assert all((run / layout.HTML).stat().st_size > 1000 and list((run / "figures").glob("*.png")) for run in runs[:2])
    assert all((run / layout.HTML).read_text() == "drawn before" for run in runs[2:])


def test_an_interrupted_sweep_also_draws_the_runs_that_were_finished(finished, tmp_path):
    shutil.copytree(finished[0], tmp_path / "left")
    (tmp_path / "left" / "summary.json").unlink()
    swept("left", *GRID, "--figures")
    assert all((run / layout.HTML).is_file() for run in (tmp_path / "left" / "runs").iterdir())


def test_a_combination_is_the_same_configuration_run_alone(finished, tmp_path):
    place, _ = finished
    one = place / "runs" / "client_selection.epsilon=0.05,local_training.learning_rate=0.1"
    done = call("run", one / "config.yaml", "--out", tmp_path / "alone")
    assert done.exit_code == 0, done.output
    (mine, mine_config), (alone, alone_config) = layout.read(one), layout.read(tmp_path / "alone")
    assert mine_config == alone_config
    assert mine_config["local_training"]["learning_rate"] == 0.1
    np.testing.assert_array_equal(mine.selections, alone.selections)
    assert set(mine.metrics) == set(alone.metrics)
    for name in mine.metrics:
        np.testing.assert_allclose(mine[name], alone[name], rtol=1e-4, atol=1e-5)


def test_the_table_has_a_row_for_each_combination_and_seed(finished):
    place, _ = finished
    table = pd.read_parquet(place / "table.parquet")
    pd.testing.assert_frame_equal(table, pd.read_csv(place / "table.csv"), rtol=1e-12)
    assert len(table) == 8 * 2
    assert set(
        zip(table["client_selection.epsilon"], table["local_training.learning_rate"], table["seed"], strict=True)
    ) == {(e, lr, s) for e in (0, 0.05, 0.1, 0.2) for lr in (0.01, 0.1) for s in (0, 1)}
    for row in table.to_dict("records"):
        history, _ = layout.read(place / "runs" / row["combination"])
        i = history.seeds.index(row["seed"])
        assert row["final_accuracy"] == history["accuracy"][i, -1]
        assert row["best_accuracy"] == history["accuracy"][i].max()
        assert row["bytes"] == history["bytes"][i].sum()
        assert (row["rounds"], row["diverged"]) == (3, 0)


def test_the_summary_puts_the_best_combination_first(finished):
    place, _ = finished
    summary = json.loads((place / "summary.json").read_text())
    means = pd.read_csv(place / "table.csv").groupby("combination")["final_accuracy"].mean()
    assert summary["best_first"][0]["final_accuracy"] == means.max()
    assert [row["final_accuracy"] for row in summary["best_first"]] == sorted(means, reverse=True)
    assert summary["axes"]["client_selection.epsilon"] == [0, 0.05, 0.1, 0.2]
    report = (place / "report.md").read_text()
    for name in ("accuracy", "map"):
        assert f"figures/{name}.png" in report
        assert (place / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_a_finished_sweep_is_shown_and_not_run_again(finished):
    place, _ = finished
    before = {path: path.stat().st_mtime_ns for path in place.rglob("*")}
    assert "Nothing was run" in swept(place, *GRID).stdout
    assert {path: path.stat().st_mtime_ns for path in place.rglob("*")} == before


def test_compare_reads_the_folders_of_combinations(finished):
    place, _ = finished
    done = call("compare", *sorted((place / "runs").iterdir()))
    assert done.exit_code == 0, done.output


def test_a_folder_of_another_sweep_is_refused_with_what_differs(finished):
    place, _ = finished
    line = refused(*SMALL, "client_selection.epsilon=0,0.3", "lr=0.01,0.1", "--out", place)
    assert "another sweep (client_selection.epsilon: [0.0, 0.05, 0.1, 0.2] there, [0.0, 0.3] here)" in line
    line = refused(*SMALL, *GRID, "partition.alpha=0.5", "--out", place)
    assert "another sweep (partition.alpha: 0.3 there, 0.5 here)" in line
    line = refused(
        *SMALL, *GRID, "--out", place / "runs" / "client_selection.epsilon=0.0,local_training.learning_rate=0.1"
    )
    assert "not a sweep's folder" in line


def test_a_sweep_of_an_earlier_version_is_refused_in_one_line_that_says_so(finished, tmp_path):
    place, _ = finished
    old = tmp_path / "old"
    old.mkdir()
    text = (place / "sweep.yaml").read_text()
    assert "client_selection.epsilon" in text
    (old / "sweep.yaml").write_text(text.replace("client_selection.", "selector."))
    line = refused(*SMALL, *GRID, "--out", old)
    assert f"{old} holds a sweep of an earlier version (selector.epsilon is client_selection.epsilon here)" in line
    assert [path.name for path in old.iterdir()] == ["sweep.yaml"]


def test_another_selector_is_another_program_compiled_once(tmp_path):
    run_chunk.clear_cache()
    said = swept(tmp_path / "out", "client_selection=entropy,uniform", "lr=0.02,0.2").stdout
    assert "programs run: 2, compiled: 2" in said
    table = pd.read_csv(tmp_path / "out" / "table.csv")
    assert set(table["client_selection"]) == {"entropy", "uniform"}
    assert len(table) == 2 * 2 * 2


def interrupted(at, monkeypatch):
    """Ask for the end of the program after so many rounds."""
    shown = Bar.after_central_iteration

    def interrupt(self, history):
        shown(self, history)
        if history.rounds == at:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(Bar, "after_central_iteration", interrupt)


def test_an_interrupted_sweep_goes_on_to_the_same_bytes(finished, tmp_path, monkeypatch):
    place, _ = finished
    with monkeypatch.context() as patched:
        interrupted(2, patched)
        stopped = call("sweep", *SMALL, *GRID, "--out", tmp_path / "out")
    assert stopped.exit_code == 128 + signal.SIGTERM, stopped.output
    assert "stopped with 0 of 8 combinations finished" in stopped.stderr
    assert "continuing after round 2" in swept(tmp_path / "out", *GRID).stdout
    for name in (
        "table.csv",
        "table.parquet",
        "runs/client_selection.epsilon=0.1,local_training.learning_rate=0.01/metrics.parquet",
    ):
        assert (place / name).read_bytes() == (tmp_path / "out" / name).read_bytes()


def test_finished_combinations_are_not_run_again(tmp_path, monkeypatch):
    axis = ("client_selection=entropy,uniform",)
    with monkeypatch.context() as patched:
        interrupted(3, patched)  # in the last round of the first program, which is finished by that
        stopped = call("sweep", *SMALL, *axis, "--out", tmp_path / "out")
    assert stopped.exit_code == 128 + signal.SIGTERM, stopped.output
    assert "stopped with 1 of 2 combinations finished" in stopped.stderr
    first = tmp_path / "out" / "runs" / "client_selection=entropy"
    before = {path: path.stat().st_mtime_ns for path in first.rglob("*")}
    swept(tmp_path / "out", *axis)
    assert {path: path.stat().st_mtime_ns for path in first.rglob("*")} == before
    assert layout.state(tmp_path / "out" / "runs" / "client_selection=uniform") == "finished"


def in_blocks(monkeypatch, most):
    """So many runs fit a device."""

    def check(runs, *_):
        if runs.count > most:
            raise DoesNotFit("too many")

    monkeypatch.setattr("fedjax_sel.engine.program.Program.check_fits", check)


def test_a_sweep_is_compared_run_by_run_and_a_run_named_first_is_the_reference(finished, tmp_path):
    place, names = finished[0], sorted(path.name for path in (finished[0] / "runs").iterdir())
    compared = call("compare", place)
    assert compared.exit_code == 0, compared.output
    assert [line.partition(",")[0] for line in compared.stdout.splitlines()[:8]] == [
        f"{number}: {name}".partition(",")[0] for number, name in enumerate(names, start=1)
    ]
    assert all(f"{number}: {name}, digits" in compared.stdout for number, name in enumerate(names, start=1))
    other = call("compare", place / "runs" / names[3], place).stdout
    order = [names[3], *names[:3], *names[4:]]
    assert all(f"{number}: {name}, digits" in other for number, name in enumerate(order, start=1))
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "sweep.yaml").write_text((place / "sweep.yaml").read_text())
    refused = call("compare", tmp_path / "begun")
    assert refused.exit_code != 0
    assert "the sweep in" in refused.stderr
    assert "is not finished" in refused.stderr


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A sweep of three combinations and two seeds, all of which fit together."""
    place = tmp_path_factory.mktemp("sweeps") / "whole"
    swept(place, "lr=0.01,0.1,0.2")
    return place


@pytest.mark.parametrize(("most", "programs"), [(4, 2), (1, 3)])
def test_what_does_not_fit_runs_in_blocks_by_the_same_program(whole, tmp_path, monkeypatch, most, programs):
    in_blocks(monkeypatch, most)
    run_chunk.clear_cache()
    said = swept(tmp_path / "out", "lr=0.01,0.1,0.2").stdout
    assert f"programs run: {programs}, compiled: 1" in said
    one, other = (pd.read_csv(place / "table.csv") for place in (whole, tmp_path / "out"))
    pd.testing.assert_frame_equal(one, other, rtol=1e-4)


def test_faults_that_some_turns_of_seeds_have_are_kept_and_the_others_have_none():
    def turn(seed, faults):
        metrics = {"accuracy": np.full((1, 3), 0.5), **faults}
        return History((seed,), metrics, np.zeros((1, 3, 2), int), 4, {"seconds": 1.0}, (), {}, (), (), ())

    fault = {"fault_unavailable": np.array([[0, 2, 1]])}
    for parts in ((turn(0, {}), turn(1, fault)), (turn(0, fault), turn(1, {}))):
        whole = concat_seeds(parts, (0, 1))
        expected = [np.ravel(part.metrics.get("fault_unavailable", np.zeros(3))) for part in parts]
        np.testing.assert_array_equal(whole["fault_unavailable"], expected)


def test_an_interrupted_turn_of_seeds_goes_on_to_the_same_bytes(tmp_path, monkeypatch):
    in_blocks(monkeypatch, 2)
    axis = ("lr=0.01,0.1", "--seeds", "3")  # two turns of two seeds, one of them in both
    swept(tmp_path / "whole", *axis)
    with monkeypatch.context() as patched:
        interrupted(2, patched)
        assert call("sweep", *SMALL, *axis, "--out", tmp_path / "out").exit_code == 128 + signal.SIGTERM
    swept(tmp_path / "out", *axis)
    assert (tmp_path / "whole" / "table.csv").read_bytes() == (tmp_path / "out" / "table.csv").read_bytes()


def test_blocks_are_of_one_size_and_filled_up_with_the_last(monkeypatch):
    in_blocks(monkeypatch, 6)
    grid = grid_of("lr=0.1,0.2,0.3,0.4,0.5")
    (group,) = group_by_program(grid, build_all(grid))
    found = split_group(group, draw_seeds(group.runs[0]), None)
    assert [[one.values["local_training.learning_rate"] for one in block.members] for block in found] == [
        [0.1, 0.2, 0.3],
        [0.4, 0.5],
    ]
    rates = [[run.experiment.local_training.learning_rate for run in block.runs] for block in found]
    assert rates == [[0.1, 0.2, 0.3], [0.4, 0.5, 0.5]]


def test_turns_of_seeds_share_a_layout_whatever_the_sizes_of_their_clients(monkeypatch):
    in_blocks(monkeypatch, 1)
    items = ("lr=0.1,0.2", "partition.alpha=0.1", "local_training.batch_size=10")
    grid = grid_of(*items, seeds=8)
    (group,) = group_by_program(grid, build_all(grid))
    data = draw_seeds(group.runs[0])
    blocks = split_group(group, data, None)
    assert [block.seeds for block in blocks] == [tuple((seed,) for seed in range(8))] * 2
    (layout,) = {run.execution.layout for block in blocks for run in block.runs}
    one = group.runs[0].experiment

    def plan(seed, **how):
        return plan_program([one], data.draws([seed]), [seed], mesh="auto", **how).layout

    assert len({plan(seed, layout=layout) for seed in range(8)}) == 1
    assert len({plan(seed) for seed in range(8)}) > 1, "each turn would have its own"


def test_smaller_blocks_come_before_examples_on_the_host(monkeypatch):
    asked = []

    def check(runs, _, place):
        asked.append((runs.count, place))
        if place == "device":
            raise DoesNotFit("too many")

    monkeypatch.setattr("fedjax_sel.engine.program.Program.check_fits", check)
    grid = grid_of("lr=0.1,0.2")
    (group,) = group_by_program(grid, build_all(grid))
    (block,) = split_group(group, draw_seeds(group.runs[0]), None)
    assert len(block.runs) == 2
    assert asked == [(4, "device"), (2, "device"), (1, "device"), (4, "host")]


def test_how_many_fit_follows_from_the_estimate_of_memory():
    grid = grid_of("lr=0.1,0.2,0.3,0.4", "model.hidden=[512]")
    (group,) = group_by_program(grid, build_all(grid))
    data = draw_seeds(group.runs[0])
    (all_of_them,) = split_group(group, data, 2**33)
    assert (len(all_of_them.runs), all_of_them.seeds) == (4, ((0, 1),))
    sizes = [(len(b[0].runs), len(b[0].seeds[0])) for b in (split_group(group, data, k * 2**20) for k in (8, 5, 4))]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < (4, 2)
    with pytest.raises(ValueError, match="but a device has"):
        split_group(group, data, 2**16)


def test_a_sweep_that_cannot_fit_is_refused_before_anything_is_made(tmp_path):
    line = refused(*SMALL, *GRID, "--memory", "0.0001", "--out", tmp_path / "out")
    assert "but a device has" in line
    assert not (tmp_path / "out").exists()


def test_rows_that_combinations_share_are_loaded_once(monkeypatch):
    grid = grid_of("lr=0.1,0.2,0.3", "model.hidden=[8],[16]", "partition.alpha=0.3,0.5")
    loaded, load = [], sources.load

    @functools.wraps(load)
    def counted(name, **given):
        loaded.append(name)
        return load(name, **given)

    monkeypatch.setattr(sources, "load", counted)
    assert len(build_all(grid)) == 12
    assert loaded == ["digits"]


def test_combinations_are_grouped_by_what_is_no_float():
    grid = grid_of(
        "lr=0.1,0.2", "local_training.momentum=null,0.9", "local_training.epochs=1,2", "partition.alpha=0.3,0.5"
    )
    groups = group_by_program(grid, build_all(grid))
    assert [len(group.members) for group in groups] == [2] * 8
    for group in groups:
        assert {one.values["local_training.learning_rate"] for one in group.members} == {0.1, 0.2}


def test_values_are_read_as_the_elements_of_a_yaml_list():
    shared, axes = axes_in(
        ["model.hidden=[32],[64, 64]", "cohort_size=5", "client_selection={name: entropy, epsilon: 0.1},uniform"]
    )
    assert shared == ["cohort_size=5"]
    assert axes == {
        "model.hidden": ["[32]", "[64, 64]"],
        "client_selection": ["{name: entropy, epsilon: 0.1}", "uniform"],
    }
    grid = grid_of("model.hidden=[32],[64, 64]", "client_selection={name: entropy, epsilon: 0.1},uniform")
    assert [one.config["model"]["hidden"] for one in grid] == [[32], [32], [64, 64], [64, 64]]
    assert [one.config["client_selection"]["name"] for one in grid] == ["entropy", "uniform"] * 2
    assert len({one.name for one in grid}) == 4
    assert all(set(one.name) <= set("abcdefghijklmnopqrstuvwxyz0123456789_.=,+-") for one in grid)


def test_each_combination_is_what_run_would_make_of_the_same_overrides():
    _, given = config.load("digits")
    for one in combinations(given, ["lr=1e-2,1", "client_selection=uniform"], {}):
        rate = one.values["local_training.learning_rate"]
        assert one.config == config.resolve(config.override(given, [f"lr={rate}", "client_selection=uniform"]))


@pytest.mark.parametrize(
    ("axes", "said"),
    [
        (("client_selection.epsilonn=0,0.1",), "did you mean 'epsilon'"),
        (("selektor=entropy,uniform",), "did you mean 'client_selection'"),
        (("client_selection=entropy,unifrom",), "did you mean 'uniform'"),
        (("lr=0.1,-1",), "sgd: learning_rate is -1"),
        (("local_training.epochs=1,0",), "sgd: epochs is 0"),
        (("lr=0.1,0.1",), "local_training.learning_rate=0.1 are the same configuration"),
        (("lr=0.1,1e-1",), "are the same configuration"),
        (
            ("lr=0.1,0.2", "local_training.learning_rate=0.3"),
            "lr=0.1,0.2 and local_training.learning_rate=0.3 both give local_training.learning_rate",
        ),
        (("lr=0.1",), "needs a key with several values"),
        ((), "needs a key with several values"),
        (("seeds=0,1,2", "lr=0.1,0.2"), "seeds=[0,1,2]"),
        (("seeds=[0,1],[2,3]", "lr=0.1,0.2"), "give seeds=[0,1,2,3], or --seeds"),
        (("lr=[0.1,0.2",), "cannot be read as YAML"),
        (("lr",), "not of the form key=value"),
        (("lr=0.1,0.2", "callbacks=early_stopping"), "early_stopping cannot be used in a sweep"),
    ],
)
def test_what_cannot_be_swept_is_refused_in_one_line_before_anything_is_made(tmp_path, axes, said):
    assert said in refused(*SMALL, *axes, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_second_sweep_in_the_same_folder_is_refused_while_the_first_runs(tmp_path):
    with lock_folder(tmp_path / "out"):
        done = call("sweep", *SMALL, "lr=0.1,0.2", "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert "is used by another process" in done.stderr


def test_the_callbacks_of_a_combination_see_its_own_history_alone(tmp_path):
    swept(tmp_path / "out", "lr=0.01,0.1", "callbacks=table")
    for run in (tmp_path / "out" / "runs").iterdir():
        history, _ = layout.read(run)
        pd.testing.assert_frame_equal(pd.read_csv(run / "table.csv"), history.to_pandas(), check_exact=False)


def test_a_seed_that_diverges_is_counted_and_kept_out_of_the_means(tmp_path):
    said = swept(tmp_path / "out", "lr=0.1,1e30", "client_selection=uniform").stdout
    table = pd.read_csv(tmp_path / "out" / "table.csv")
    gone = table["local_training.learning_rate"] == 1e30
    assert (table["diverged"] > 0).tolist() == gone.tolist()
    assert table["final_accuracy"][~gone].notna().all()
    assert "2 of 2" in said


def test_the_sweep_is_written_down(finished):
    place, _ = finished
    asked = yaml.safe_load((place / "sweep.yaml").read_text())
    assert asked["axes"] == {
        "client_selection.epsilon": [0, 0.05, 0.1, 0.2],
        "local_training.learning_rate": [0.01, 0.1],
    }
    assert asked["common"]["cohort_size"] == 3
    assert "local_training.learning_rate" not in asked["common"]


def test_planning_a_sweep_trains_nobody_for_the_state_of_a_selector(monkeypatch):
    from fedjax_sel.client_selection.lefl import LEFL

    def trained(*_, **__):
        raise AssertionError("the pre-phase was run")

    monkeypatch.setattr(LEFL, "init", trained)
    given = ("client_selection=lefl", "public={name: digits, num_examples: 20}", "lr=0.1,0.2")
    (block,) = plan(grid_of(*given), None)
    assert len(block.members) == 2


def test_seeds_in_turns_keep_the_personal_parts_of_every_seed():
    def turn(*seeds):
        own = np.array([[[10 * seed + client] for client in range(3)] for seed in seeds])
        shown = {"accuracy": np.array(seeds, float)[:, None]}
        cohorts = np.zeros((len(seeds), 1, 2), np.int32)
        return History(seeds, shown, cohorts, 3, {"seconds": 1.0}, {"w": own[:, 0]}, personal={"head": own})

    together = concat_seeds([turn(0, 1), turn(1, 2)], (0, 1, 2))
    np.testing.assert_array_equal(together.personal["head"][:, 2, 0], [2, 12, 22])


def test_a_value_and_its_negative_have_folders_of_their_own():
    folders = [
        name_combination({"a": value}, one.config)
        for value, one in zip([-1, 1, "1-", "(1)"], grid_of("lr=1,2,3,4"), strict=True)
    ]
    assert folders[:3] == ["a=-1", "a=1", "a=1-"]
    assert folders[3].startswith("a=1-")
    assert len(set(folders)) == 4


def test_an_axis_with_none_among_its_numbers_is_text(finished):
    place, _ = finished
    history, _ = layout.read(next((place / "runs").iterdir()))
    table = build_tidy([("a", {"momentum": None, "lr": 1}, history), ("b", {"momentum": 0.5, "lr": 2}, history)])
    assert set(table["momentum"]) == {"null", "0.5"}
    assert set(table["lr"]) == {1, 2}


@pytest.mark.filterwarnings("default:Twice")
def test_a_table_marks_what_strategies_did_wrong(tmp_path):
    """In each of two seeds, `Twice` selects the first client in both slots of three rounds."""
    own = tmp_path / "twice.py"
    own.write_text(
        "import jax.numpy as jnp\nimport fedjax_sel as fs\n\n\n"
        "class Twice(fs.ClientSelector):\n"
        "    def select(self, key, state, ctx):\n"
        "        return fs.Cohort(jnp.zeros(ctx.m, int), jnp.ones(ctx.m, bool), jnp.ones(ctx.m))\n"
    )
    asked = ["sweep", "iris", "rounds=3", "m=2", "partition.clients=10", "seeds=2", f"selector={own}:Twice,uniform"]
    done = call(*asked, "--out", tmp_path / "sweep")
    assert done.exit_code == 0, done.output
    assert "Twice: 6 clients selected twice in a round" in done.stderr
    table = pd.read_csv(tmp_path / "sweep" / "table.csv")
    assert sorted(table.groupby("client_selection")["faults"].sum()) == [0, 6]
    page = (tmp_path / "sweep" / "report.md").read_text()
    assert sweeps.FAULTS in page
    assert "| 6 |" in page
    assert sweeps.FAULTS[:40] in done.output
    compared = call("compare", *sorted((tmp_path / "sweep" / "runs").iterdir()))
    assert re.findall(r"\d has a fault: Twice: 6 clients selected twice", compared.output)


def test_the_last_value_is_that_of_the_last_evaluation():
    """As early stopping leaves it; of a seed that diverged, what it ended with."""
    nan = np.nan
    accuracy = np.array([[0.1, nan, 0.5, nan], [0.1, nan, nan, nan], [0.1, nan, nan, 0.7], [nan] * 4])
    alive = np.ones((4, 4))
    alive[1, 1:] = 0
    history = History((0, 1, 2, 3), {"accuracy": accuracy, "alive": alive}, np.zeros((4, 4, 1), int), 2)
    np.testing.assert_array_equal(history.last("accuracy"), [0.5, nan, 0.7, nan])


def test_a_callback_that_would_end_a_run_is_refused_where_all_run_to_the_end(tmp_path):
    (tmp_path / "stops.py").write_text(
        "class Stop:\n    def after_central_iteration(self, history):\n        return history.rounds >= 1\n"
    )
    done = call("sweep", *SMALL, "lr=0.1,0.2", "callbacks=stops.py:Stop", "--out", tmp_path / "sweep")
    assert done.exit_code == 2
    assert "a callback answered True, to end a run before its last round, but a sweep" in done.stderr


def test_one_client_and_all_clients_are_told_apart_in_a_table():
    names = ("accuracy", "loss", *(part for parts in TOTALS.values() for part in parts))
    history = History((0,), {name: np.ones((1, 1)) for name in names}, np.zeros((1, 1, 1), int), 5)
    table = build_tidy((str(m), {"cohort_size": m, "lr": float(m)}, history) for m in (0.5, 1, 1.0))
    assert table["cohort_size"].tolist() == ["0.5", "1", "1.0"]
    assert table["lr"].tolist() == [0.5, 1.0, 1.0]


def test_of_one_seed_that_is_left_no_deviation_is_shown():
    runs = {"combination": "a", "lr": 0.1, "bytes": 1.0, "flops": 1.0}
    left, gone = {"diverged": 0, "final_loss": 0.8}, {"diverged": 2, "final_loss": np.nan}
    table = pd.DataFrame([{**runs, "seed": i, **of} for i, of in enumerate((left, gone, gone))])
    heads, rows = sweeps.format_rows(table, ["lr"])
    assert dict(zip(heads, rows[0], strict=True))["final loss"] == "0.8000"
    assert list(plot_sweep(table, ["lr"])) == ["loss"]
    page = sweeps.render_page(table, ["lr"], "", ["loss", "map"])
    assert "Mean final loss over seeds." in page
    assert "accuracy" not in page


def test_combinations_of_which_seeds_diverged_come_after_the_others():
    of = [("fast", 0, 0.95), ("fast", 1, np.nan), ("slow", 0, 0.9), ("slow", 1, 0.9), ("gone", 0, np.nan)]
    rows = [
        {"combination": name, "lr": name, "seed": seed, "final_accuracy": value, "best_accuracy": value, "bytes": 1.0}
        | {"flops": 1.0, "diverged": 2 * np.isnan(value)}
        for name, seed, value in of
    ]
    assert sweeps.rank_combinations(pd.DataFrame(rows), ["lr"])["lr"].tolist() == ["slow", "fast", "gone"]


def test_a_mean_of_combinations_is_of_those_that_diverged_nowhere():
    """Ten values of b; at a = 2 half of them, the hard ones, diverge, and at a = 3 all."""
    rows = [
        {"combination": f"{a}-{b}", "a": a, "b": b, "seed": seed, "bytes": 1.0, "flops": 1.0}
        | {"diverged": int(gone), "final_loss": np.nan if gone else 1.0 + b}
        for a in (1, 2, 3)
        for b in range(10)
        for seed in (0, 1)
        for gone in [a == 3 or (a == 2 and b >= 5)]
    ]
    figure = plot_sweep(pd.DataFrame(rows), ["a", "b"])["loss"]
    (line,) = figure.axes[0].lines[:1]
    np.testing.assert_array_equal(np.asarray(line.get_ydata(), float), [3, 3, np.nan])
    assert figure.axes[0].get_legend().get_texts()[0].get_text() == "mean of 5 of 10; others diverged"


def test_the_stopwatch_of_a_sweep_whose_seeds_run_in_turns_has_a_line(tmp_path, monkeypatch):
    in_blocks(monkeypatch, 1)
    swept(tmp_path / "out", "lr=0.01,0.1", "callbacks=[stopwatch]")
    for run in (tmp_path / "out" / "runs").iterdir():
        history, _ = layout.read(run)
        assert pd.read_csv(run / "stopwatch.csv")["round"].tolist() == [history.rounds]


def test_an_axis_of_flowers_fractions_has_shares_alone():
    found = combinations({"data": "iris"}, ["fraction_fit=0.5,1"], {})
    assert [one.config["cohort_size"] for one in found] == [0.5, 1.0]
    assert all(type(one.config["cohort_size"]) is float for one in found)


def test_an_infinite_value_is_written_as_configurations_have_it(tmp_path):
    items = ["rounds=1", "devices=lognormal", "deadline.seconds=1,inf", "partition.clients=5", "cohort_size=2"]
    done = CliRunner().invoke(main, ["sweep", "iris", *items, "--seeds", "1", "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    found = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert found["axes"] == {"deadline.seconds": [1.0, ".inf"]}
    assert {row["deadline.seconds"] for row in found["best_first"]} == {1.0, ".inf"}
    assert sorted(one.name for one in (tmp_path / "out" / "runs").iterdir()) == [
        "deadline.seconds=.inf",
        "deadline.seconds=1.0",
    ]


def test_the_table_of_a_sweep_with_devices_has_their_seconds_and_joules(tmp_path):
    items = ["rounds=2", "devices=lognormal", "lr=0.1,0.2", "partition.clients=5", "cohort_size=2"]
    done = CliRunner().invoke(main, ["sweep", "iris", *items, "--seeds", "1", "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    found = pd.read_csv(tmp_path / "out" / "table.csv")
    heads, rows = sweeps.format_rows(found, ["local_training.learning_rate"])
    assert heads[-2:] == ["seconds", "joules"]
    assert sweeps.combine_seeds(found, [])["joules"].tolist() == found["joules"].tolist()
    assert all(row[-1].endswith("J") for row in rows)
    assert "joules" in (tmp_path / "out" / "report.md").read_text()
