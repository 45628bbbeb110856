import io
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from fedjax_sel import catalog
from fedjax_sel.config.components import KINDS
from fedjax_sel.engine.experiment import Experiment, stack_experiments
from fedjax_sel.engine.history import FAULT, TOTALS, History
from fedjax_sel.engine.scan import run_chunk
from fedjax_sel.leaderboard import FEDERATIONS, SELECTORS, run_leaderboard, timing
from fedjax_sel.leaderboard.cells import FAILED, LEFT_OUT, Cell, Workbench, configure, finish, run_cell, tell_failure
from fedjax_sel.leaderboard.federations import DIGITS, Entry
from fedjax_sel.leaderboard.scales import SCALES, choose
from fedjax_sel.leaderboard.selectors import VARIANTS, Competitor
from fedjax_sel.leaderboard.tables import tabulate_remarks
from fedjax_sel.leaderboard.tuning import TRIALS, find_best, list_trials
from fedjax_sel.mistakes import OwnCodeError, name_own_code
from fedjax_sel.models.logistic import LogisticRegression
from fedjax_sel.task import Task

OWN = """
import fedjax_sel as fs
from fedjax_sel.client_selection._ops import top_m


class Largest(fs.ClientSelector):
    '''The clients with most examples.'''

    def select(self, key, state, ctx):
        return top_m(key, ctx.num_examples.astype(float), ctx.available, ctx.m)


class Broken(fs.ClientSelector):
    '''Raises an error.'''

    def select(self, key, state, ctx):
        raise RuntimeError("<b>not today</b>")
"""


@pytest.fixture(scope="module")
def board(tmp_path_factory):
    """A leaderboard of the baseline and two selectors of a user's, one of which is broken, and how it was run again."""
    folder = tmp_path_factory.mktemp("board")
    (folder / "board_parts.py").write_text(OWN)
    out = folder / "out"
    (out / "studies").mkdir(parents=True)
    methods = {"uniform": {"successes": [23_750] * 2}, "oracle": {"successes": [45_000] * 2}}
    (out / "studies" / "volatile.json").write_text(json.dumps({"rounds": 2500, "turns": 50_000, "methods": methods}))
    add = [f"{folder / 'board_parts.py'}:{name}" for name in ("Largest", "Broken")]
    only = ["uniform", "digits", "digits-unequal"]

    def run():
        told = io.StringIO()
        summary = run_leaderboard("smoke", only=only, add=add, out=out, console=Console(file=told, width=200))
        compiled = int(re.search(r"6 of 6 cells, (\d+) programs", told.getvalue())[1])
        return summary, compiled, told.getvalue(), pd.read_parquet(out / "leaderboard.parquet")

    return out, add, run(), run()


def test_federations_of_one_shape_share_programs(board):
    _, _, (_, compiled, _, _), _ = board
    assert compiled == 2  # two selectors that work, on two federations each


def test_other_seeds_in_the_same_folder_are_refused(board):
    out, _, _, _ = board
    with pytest.raises(ValueError, match=r"holds a run of another configuration \(seeds: 2 there, 3 here\)"):
        run_leaderboard("smoke", only=["uniform", "digits"], out=out, seeds=3)


def test_numbers_of_an_earlier_leaderboard_count_for_what_is_not_run_here(board, tmp_path):
    """One selector and the baseline are run, on one of two federations."""
    out, _, (whole, _, _, tidy), _ = board
    shutil.copytree(out / "studies", tmp_path / "studies")
    told = io.StringIO()
    summary = run_leaderboard(
        "smoke",
        only=["digits", "round_robin"],
        out=tmp_path,
        known=out,
        console=Console(file=told, width=200),
    )
    assert "2 of 2 cells" in told.getvalue()
    assert "from the earlier leaderboard's" not in told.getvalue()  # both have the same baseline
    joined = pd.read_parquet(tmp_path / "leaderboard.parquet")
    wanted = {(one["federation"], one["selector"]): one["status"] for one in whole["cells"]}
    got = {(one["federation"], one["selector"]): one["status"] for one in summary["cells"]}
    assert got == wanted | {("digits", "round_robin"): "finished"}
    accuracy = [frame[frame["measure"] == "accuracy"].reset_index(drop=True) for frame in (joined, tidy)]
    old = accuracy[0][accuracy[0]["selector"] != "round_robin"].reset_index(drop=True)
    pd.testing.assert_frame_equal(old, accuracy[1], rtol=1e-6)
    assert set(accuracy[0][accuracy[0]["selector"] == "round_robin"]["federation"]) == {"digits"}
    assert "To run it again: `fedjax-sel leaderboard --scale smoke`." in (tmp_path / "leaderboard.md").read_text()


def test_a_baseline_other_than_the_earlier_one_is_remarked(board, tmp_path):
    """Of the earlier accuracies after all rounds, on `digits` one is 15 points lower, on `digits-unequal` half a point.

    The board has these two federations, and only the second is out of the tolerance.
    """
    out, _, (_, _, _, tidy), _ = board
    earlier, new = tmp_path / "earlier", tmp_path / "new"
    first, second = tidy["federation"].unique()
    baseline = (tidy["selector"] == "uniform") & (tidy["measure"] == "accuracy") & (tidy["budget"] == "rounds, 100 %")
    lower = baseline & (tidy["seed"] == 1)
    tidy = tidy.copy()
    tidy.loc[lower & (tidy["federation"] == first), "value"] -= 0.15
    tidy.loc[lower & (tidy["federation"] == second), "value"] -= 0.005
    earlier.mkdir()
    shutil.copy(out / "leaderboard.json", earlier)
    tidy.to_parquet(earlier / "leaderboard.parquet")
    shutil.copytree(out / "cells", new / "cells")
    shutil.copytree(out / "studies", new / "studies")
    told = io.StringIO()
    summary = run_leaderboard("smoke", only=["uniform"], out=new, known=earlier, console=Console(file=told, width=200))
    remarks = {(one["federation"], one["selector"]): one["remarks"] for one in summary["cells"] if one["remarks"]}
    says = "a seed's accuracy differs by up to 15.0 points from the earlier leaderboard's"
    assert list(remarks) == [(first, "uniform")]
    assert remarks[first, "uniform"].startswith(says)
    assert f"uniform on {first}: {says}" in told.getvalue()
    assert says in (new / "leaderboard.md").read_text()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"seeds": 3}, r"whose seeds is \[0, 1\]; it must be \[0, 1, 2\], as here"),
        ({"scale": "small"}, "whose scale is smoke; it must be small, as here"),
        ({"known": "nowhere"}, "which has no leaderboard.json and no leaderboard.parquet; give the folder of a"),
    ],
)
def test_an_earlier_leaderboard_that_does_not_fit_is_refused(board, tmp_path, changes, says):
    out, _, _, _ = board
    given = {"scale": "smoke", "known": out, **changes}
    given["known"] = Path(given["known"])
    with pytest.raises(ValueError, match=says):
        run_leaderboard(**given, only=["uniform", "digits"], out=tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_what_is_finished_is_read_and_not_run_again(board):
    _, _, (first, _, _, before), (second, compiled, _, after) = board
    assert compiled == 0
    assert first["cells"] == second["cells"]
    pd.testing.assert_frame_equal(before, after)


def test_in_debug_mode_the_error_of_a_selector_is_raised(board, tmp_path):
    _, add, _, _ = board
    with pytest.raises(Exception, match="not today"):
        run_leaderboard("smoke", only=["digits"], add=[add[1]], out=tmp_path, seeds=1, debug=True)


def test_a_broken_selector_stands_in_the_table_and_the_others_go_on(board):
    out, add, (summary, _, told, tidy), _ = board
    status = {(cell["federation"], cell["selector"]): (cell["status"], cell["reason"]) for cell in summary["cells"]}
    assert status["digits", add[0]] == ("finished", "")
    assert status["digits-unequal", add[1]][0] == "failed"
    assert "RuntimeError: <b>not today</b>" in status["digits", add[1]][1]
    ran = {cell["commit"] for cell in summary["cells"] if cell["status"] == "finished"}
    assert ran == {summary["environment"]["commit"]}
    assert "They ran for 0.0 hours." in (out / "leaderboard.md").read_text()
    assert "failed: RuntimeError" in told
    assert "&lt;b&gt;not today" in (out / "leaderboard.md").read_text()
    assert set(tidy["selector"]) == {"uniform", add[0]}


def test_a_users_selector_did_what_it_says(board):
    _, add, (_, _, _, tidy), _ = board
    size = tidy[tidy["measure"] == "relative size"].groupby("selector")["value"].mean()
    cover = tidy[tidy["measure"] == "coverage"].groupby("selector")["value"].mean()
    assert size[add[0]] > 1.5 * size["uniform"]
    assert cover[add[0]] == pytest.approx(0.1, abs=0.02)  # ties are drawn


def test_the_folder_has_table_json_page_and_figures(board):
    out, _, (summary, _, _, _), _ = board
    assert json.loads((out / "leaderboard.json").read_text())["findings"][0]["verdict"] == "not judged"
    assert {path.stem for path in (out / "figures").glob("*.png")} == {"gains", "front", "profiles"}
    assert summary["tables"][0]["title"] == "Ranking at equal bytes, 50 %"


def test_padding_to_the_shape_of_a_family_changes_no_number(board):
    from fedjax_sel.config import build

    out, _, _, _ = board
    config = configure(FEDERATIONS["digits"], SELECTORS["uniform"], SCALES["smoke"])
    alone = build(config).simulate()
    from fedjax_sel.runs.layout import read

    np.testing.assert_array_equal(alone.selections, read(out / "cells" / "digits--uniform")[0].selections)
    np.testing.assert_allclose(alone["accuracy"], read(out / "cells" / "digits--uniform")[0]["accuracy"], atol=1e-6)


def test_a_selector_without_the_devices_it_needs_is_left_out_and_so_are_data_that_are_not_here(tmp_path):
    bare = Entry("bare", "no devices", "bare", {**DIGITS, "devices": None})
    absent = Entry("absent", "no file", "bare", {**DIGITS, "data": {"name": "npz:nowhere.npz"}})
    future = Entry("future", "a key to come", "bare", {**DIGITS, "weather": "rain"})
    bench = Workbench([bare, absent, future], SCALES["smoke"], 1)
    assert "no file" in bench.left_out["absent"]
    assert bench.left_out["future"] == "this version has no weather in configurations"
    console = Console(quiet=True)
    cell = run_cell(bare, SELECTORS["oort"], bench, tmp_path, console)
    assert (cell.status, "devices" in cell.reason) == (LEFT_OUT, True)
    needs = run_cell(bare, SELECTORS["lefl"], bench, tmp_path, console)
    assert needs.reason == "lefl needs public examples, and bare has none"


def test_a_selector_that_refuses_a_federation_is_left_out_and_one_with_a_mistake_has_failed():
    def raise_in_own_code(error):
        raise error

    for raised, status in ((ValueError("needs devices"), LEFT_OUT), (TypeError("no such sum"), FAILED)):
        with pytest.raises(OwnCodeError) as caught, name_own_code():
            raise_in_own_code(raised)
        assert tell_failure("digits", "mine.py:Mine", caught.value).status == status


def test_every_selector_of_the_library_has_its_place():
    assert {one.name for one in SELECTORS.values()} == set(catalog.available("fedjax_sel.client_selection"))


def test_every_selector_resolves_on_every_federation():
    for entry in FEDERATIONS.values():
        if entry.find_missing_keys():
            continue
        for selector in SELECTORS.values():
            if not selector.public or entry.public:
                config = configure(entry, selector, SCALES["small"])
                assert config["client_selection"]["name"] == selector.name
                assert config["rounds"] == 100


def test_every_selector_is_tuned_by_as_many_configurations_that_share_a_program():
    task = Task(LogisticRegression(classes=10))
    for selector in SELECTORS.values():
        trials = list_trials(selector)
        assert len(trials) == TRIALS
        assert len({one.label for one in trials}) == 1
        experiments = []
        for one in trials:
            config = configure(FEDERATIONS["digits"], one, SCALES["smoke"])
            parts = {key: KINDS[key].build(config[key]) for key in ("client_selection", "local_training")}
            experiments.append(Experiment(task, **parts))
        stack_experiments(experiments)
        distinct = {(str(one.client_selection), str(one.local_training)) for one in experiments}
        assert len(distinct) == TRIALS


def test_tuning_runs_all_configurations_in_one_program_and_keeps_the_best(tmp_path):
    digits, place = FEDERATIONS["digits"], tmp_path / "tuning" / "one.json"
    bench = Workbench([digits], replace(SCALES["smoke"], rounds=4), [1000])
    trials, compiled = list_trials(SELECTORS["uniform"]), run_chunk.programs
    best = find_best(digits, trials, bench, place)
    kept = json.loads(place.read_text())
    assert run_chunk.programs == compiled + 1
    assert best == np.argmax(kept["areas"]) > 0  # the smallest learning rate is not the best in four rounds
    assert len(set(kept["areas"])) == TRIALS
    place.write_text(json.dumps({**kept, "best": 3}))
    assert find_best(digits, trials, bench, place) == 3  # read, not run again
    assert find_best(digits, trials, Workbench([digits], bench.scale, [1000], tuning=True), place) != 3


def test_tuning_measures_accuracy_on_examples_that_are_no_test_examples():
    digits = FEDERATIONS["digits"]
    config = configure(digits, SELECTORS["uniform"], SCALES["smoke"], [1000], rounds=2)
    compared, tried = (
        Workbench([digits], SCALES["smoke"], [1000], tuning=tuning).build(digits, config).data.draws([1000])[0]
        for tuning in (False, True)
    )
    np.testing.assert_array_equal(tried.test_x, compared.validation_x)
    np.testing.assert_array_equal(tried.test_y, compared.validation_y)
    assert len(tried.test_y) < len(compared.test_y)
    rows = {np.asarray(row).tobytes() for row in compared.test_x}
    assert not rows & {np.asarray(row).tobytes() for row in tried.test_x}


def test_only_limits_the_kinds_it_names_and_keeps_the_baseline():
    federations, selectors = choose(SCALES["smoke"], ["fashion-*", "oort"], [])
    assert {one.family for one in federations} == {"fashion"}
    assert [one.name for one in selectors] == ["uniform", "oort"]
    federations, selectors = choose(SCALES["small"], ["digits"], [])
    assert [one.name for one in federations] == ["digits"]
    assert [one.label for one in selectors] == [*SELECTORS, *VARIANTS]
    _, selectors = choose(SCALES["small"], ["hics*"], [])
    assert [one.label for one in selectors] == ["uniform", "hics_fl", "hics_fl_warmer", "hics_fl_half"]
    with pytest.raises(ValueError, match="did you mean 'oort'"):
        choose(SCALES["small"], ["oortt"], [])


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"scale": "huge"}, "unknown scale 'huge'"),
        ({"add": ["oort"]}, "oort is a selector of the leaderboard already"),
        ({"add": ["Mine"]}, "must be of the form module:Name"),
        ({"add": ["nowhere.py:Mine"]}, "there is no file"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_anything_runs(given, told, tmp_path):
    with pytest.raises(ValueError, match=told):
        run_leaderboard(**{"scale": "smoke", "out": tmp_path / "out", **given})
    assert not (tmp_path / "out").exists()


def test_choices_are_timed_once_on_one_federation(board):
    out, add, (_, _, _, tidy), _ = board
    timed = tidy[tidy["measure"] == "microseconds a choice"]
    assert set(timed["selector"]) == {"uniform", add[0]}
    assert set(timed["federation"]) == {"digits"}
    assert timed["value"].between(0.1, 1e6).all()
    kept = json.loads((out / "studies" / "choices.json").read_text())
    assert {1e6 * one["seconds"] for one in kept["digits"].values()} == set(timed["value"])


def test_accuracy_of_clients_is_of_the_last_model(board):
    out, _, (_, _, _, tidy), _ = board
    found = tidy[(tidy["selector"] == "uniform") & (tidy["federation"] == "digits")].set_index("measure")["value"]
    from fedjax_sel.runs.layout import read

    last = read(out / "cells" / "digits--uniform")[0].client_metrics["accuracy"][:, -1]
    np.testing.assert_allclose(found["mean over clients"], np.nanmean(last, axis=1), rtol=1e-6)
    lowest = np.sort(last, axis=1)[:, : int(np.ceil(np.isfinite(last[0]).sum() / 10))]
    np.testing.assert_allclose(found["worst decile of clients"].iloc[0], lowest[0].mean(), rtol=1e-5)
    np.testing.assert_allclose(found["spread over clients"], np.nanstd(last, axis=1), rtol=1e-5)


def test_a_choice_is_timed_where_the_first_federation_has_no_data_and_again_when_its_source_is_another(
    board, tmp_path, monkeypatch
):
    out, _, _, _ = board
    counted = iter((1.0, 2.0, 3.0))
    monkeypatch.setattr(timing, "time_choice", lambda *_: np.array([next(counted), 9.0]))
    times, bench = (
        timing.ChoiceTimes(tmp_path, Console(quiet=True)),
        Workbench([FEDERATIONS["digits"]], SCALES["smoke"], 2),
    )
    (out.parent / "again.py").write_text(OWN)
    own = Competitor(f"{out.parent / 'again.py'}:Largest")
    done = Cell("digits", own.label, "finished")
    times.measure(Cell("absent", own.label, LEFT_OUT), FEDERATIONS["fashion-one-shard"], own, bench)
    for _ in range(2):  # the second time it is known
        times.measure(done, FEDERATIONS["digits"], own, bench)
    assert {one["seconds"] for one in times.times["digits"].values()} == {1.0}
    monkeypatch.setitem(times.times["digits"][own.label], "code", "another")
    times.measure(done, FEDERATIONS["digits"], own, bench)
    assert times.times["digits"][own.label]["seconds"] == 2.0


def test_cells_in_which_something_went_wrong_are_in_a_table_of_their_own(tmp_path):
    alive = np.array([[1.0, 1.0], [1.0, 0.0]])
    spent = {name: np.zeros((2, 2)) for name in (*TOTALS["bytes"], *TOTALS["flops"])}
    quality = {name: np.where(alive, 0.5, np.nan) for name in ("accuracy", "loss")}
    metrics = {**spent, **quality, "alive": alive, f"{FAULT}twice": np.array([[2.0, 0], [1, 0]])}
    history = History((3, 5), metrics, np.zeros((2, 2, 1), int), 4, about={"seconds": 1.0, "strategies": {}})
    (tmp_path / "summary.json").write_text(json.dumps({"environment": {"commit": "abc"}}))
    cell = finish("digits", "mine", history, tmp_path)
    assert "1 of 2 seeds diverged: seed 5 in round 2; " in cell.remarks
    assert "clients selected twice" in cell.remarks
    table = tabulate_remarks([cell, Cell("digits", "uniform", "finished")])
    assert table.rows == (("digits", "mine", cell.remarks),)
