"""A finished run that is given more rounds is the run that had them from the start, bit for bit; or is refused."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from rich.console import Console

import fedjax_sel as fs
from fedjax_sel import client_selection, config, local_training
from fedjax_sel.engine import driver
from fedjax_sel.engine.checkpoint import Checkpoints
from fedjax_sel.engine.experiment import check_more_rounds
from fedjax_sel.local_training._schedule import Cosine, Exponential
from fedjax_sel.local_training.sgd import SGD
from fedjax_sel.runs import layout, pretrained
from fedjax_sel.runs.execute import execute
from fedjax_sel.runs.layout import FolderError
from fedjax_sel.runs.sweep import layout as of_sweep
from fedjax_sel.runs.sweep.execute import execute_sweep
from fedjax_sel.runs.sweep.grid import combinations

GIVEN = {
    "data": "iris",
    "partition": {"clients": 10},
    "model": "logistic",
    "client_selection": {"name": "entropy", "epsilon": 0.3},
    "aggregation": "fedavgm",
    "cohort_size": 3,
    "rounds": 7,
    "evaluate_every": 2,
    "chunk": 2,
    "seeds": 2,
}


def run(place, say=None, **changes):
    asked = config.resolve({**GIVEN, **changes})
    return execute("iris", asked, place, figures=False, console=Console(quiet=True), say=say)


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """The folder of 7 rounds and then 12, that of 12 at once, and the history of the first 7."""
    place = tmp_path_factory.mktemp("more")
    seven = run(place / "twice")
    run(place / "twice", rounds=12)
    run(place / "once", rounds=12)
    return place / "twice", place / "once", seven


def test_it_goes_on_as_if_it_had_been_asked_from_the_start(places):
    twice, once, seven = places
    (mine, given), (whole, asked) = layout.read(twice), layout.read(once)
    assert given == asked
    assert mine.about["resumed_at"] == 7
    assert mine.rounds == 12
    assert list(mine.metrics) == list(whole.metrics)
    for name in whole.metrics:
        np.testing.assert_array_equal(mine[name], whole[name], err_msg=name)
    np.testing.assert_array_equal(mine.selections, whole.selections)
    jax.tree.map(
        np.testing.assert_array_equal,
        *(Checkpoints(place / "checkpoints").variables_after(12) for place in (twice, once)),
    )
    assert not np.isnan(seven["accuracy"][:, 6]).any(), "the last round is evaluated"
    assert np.isnan(mine["accuracy"][:, 6]).all(), "and is not the last one any more"


def test_a_run_whose_clients_were_not_evaluated_yet_goes_on(tmp_path):
    given = {"evaluate_clients_every": 9, "holdout": 0.2, "local_training": {"batch_size": 16}}
    run(tmp_path / "run", **given)
    history = run(tmp_path / "run", **given, rounds=12)
    assert history.about["resumed_at"] == 7
    assert history.client_rounds == (9, 12)


def test_fewer_rounds_are_refused_in_a_line_and_nothing_is_touched(places):
    twice, _, _ = places
    before = {path: path.read_bytes() for path in twice.rglob("*") if path.is_file()}
    with pytest.raises(FolderError, match=r"the run has 12 rounds, but rounds is 5; .* only to more"):
        run(twice, rounds=5)
    assert {path: path.read_bytes() for path in twice.rglob("*") if path.is_file()} == before


def test_a_run_that_was_killed_while_it_went_on_goes_on(places, tmp_path):
    """After the new configuration was written, before the first new checkpoint; and through the engine alone."""
    run(tmp_path / "run")
    asked = config.resolve({**GIVEN, "rounds": 12})
    assert layout.check(tmp_path / "run", asked) == "extended"
    assert layout.create(tmp_path / "run", asked) == "extended"
    assert layout.state(tmp_path / "run") == "interrupted"
    history = run(tmp_path / "run", rounds=12)
    np.testing.assert_array_equal(history["accuracy"], layout.read(places[1])[0]["accuracy"])
    built = config.build(config.resolve(GIVEN))
    with pytest.raises(ValueError, match="the run has 12 rounds, but rounds is 7"):
        built.simulate(checkpoints=Checkpoints(tmp_path / "run" / "checkpoints"))


def test_a_run_that_was_killed_as_it_was_about_to_go_on_goes_on(places, tmp_path):
    """After the old summary was removed, before the new configuration was written."""
    run(tmp_path / "run")
    (tmp_path / "run" / layout.SUMMARY).unlink()
    asked = config.resolve({**GIVEN, "rounds": 12})
    assert layout.check(tmp_path / "run", asked) == "extended"
    history = run(tmp_path / "run", rounds=12)
    np.testing.assert_array_equal(history["accuracy"], layout.read(places[1])[0]["accuracy"])


def test_such_a_run_is_refused_too_where_a_strategy_depends_on_the_number_of_rounds(tmp_path):
    given = {**GIVEN, "local_training": {**GIVEN.get("local_training", {}), "schedule": "cosine"}}
    points, folder = tmp_path / "run" / "checkpoints", tmp_path / "run"
    layout.create(folder, config.resolve(given))
    (points / f"round-{config.resolve(given)['rounds']:06d}").mkdir(parents=True)
    before = (folder / layout.CONFIG).read_bytes()
    with pytest.raises(FolderError, match="depends on how many rounds there are"):
        layout.create(folder, config.resolve({**given, "rounds": 12}))
    assert (folder / layout.CONFIG).read_bytes() == before


def test_models_of_the_shorter_run_do_not_stay(tmp_path):
    run(tmp_path / "run")
    exported = ("model-seed-0.npz", "model-seed-1.safetensors")
    for name in (layout.MODELS, pretrained.FILE, *exported):
        (tmp_path / "run" / name).write_bytes(b"of seven rounds")
    (tmp_path / "run" / "model-seed-1.orbax").mkdir()
    (tmp_path / "run" / "model-seed-0.orbax").symlink_to(tmp_path)
    (tmp_path / "run" / "model-seed-notes.npz").touch()  # the user's
    said = []
    run(tmp_path / "run", rounds=12, say=said.append)
    assert [line for line in said if "removed" in line] == [
        "model-seed-0.npz, model-seed-0.orbax, model-seed-1.safetensors, model-seed-1.orbax: of the shorter run, and "
        "removed when it goes on; export the model again"
    ]
    assert not (tmp_path / "run" / layout.MODELS).exists()
    assert not (tmp_path / "run" / pretrained.FILE).exists()
    assert [path.name for path in (tmp_path / "run").glob("model-seed-*")] == ["model-seed-notes.npz"]


SWEPT = ("client_selection.epsilon=0.1,0.3", "model={name: mlp, hidden: [3]},{name: mlp, hidden: [4]}")


def sweep(place, rounds, items=SWEPT, **options):
    grid = combinations(GIVEN, [*items, f"rounds={rounds}"], {})
    return execute_sweep("iris", grid, place, console=Console(quiet=True), **options), grid


@pytest.fixture(scope="module")
def sweeps(tmp_path_factory):
    """A sweep of 7 rounds that kept its checkpoints, and one of 12 at once."""
    place = tmp_path_factory.mktemp("sweeps")
    sweep(place / "twice", 7, keep_checkpoints=True)
    return place / "twice", place / "once", sweep(place / "once", 12)[0]


def test_a_finished_sweep_that_cannot_go_on_stays_finished(sweeps, tmp_path, monkeypatch):
    """As where the data behind it, or the number of devices, is another one: nothing says so but the checkpoints."""
    place = Path(shutil.copytree(sweeps[0], tmp_path / "twice"))
    with monkeypatch.context() as patched:
        patched.setattr(driver, "mark_program", lambda program: lambda rounds: f"{rounds:064x}")
        with pytest.raises(ValueError, match="is a checkpoint of another run"):
            sweep(place, 12)
    before, _ = sweep(sweeps[0], 7, keep_checkpoints=True)
    pd.testing.assert_frame_equal(sweep(place, 7, keep_checkpoints=True)[0], before)
    assert sweep(place, 12)[0] is not None


def test_a_finished_sweep_that_was_divided_otherwise_is_refused_and_stays_finished(sweeps, tmp_path):
    place = Path(shutil.copytree(sweeps[0], tmp_path / "twice"))
    for folder in (place / "programs").iterdir():
        folder.rename(place / "programs" / f"other-{folder.name}")  # as its blocks are called with another --memory
    with pytest.raises(FolderError, match=r"no checkpoint of the end of .* give the --memory with which the sweep ran"):
        sweep(place, 12)
    assert (place / "summary.json").exists()


class Fading(SGD):
    """The rate falls over the run."""

    def plan(self, num_examples, longest, round, rounds, max_steps=None):
        plan = super().plan(num_examples, longest, round, rounds, max_steps)
        return plan if self.momentum is None else replace(plan, rate_factor=jnp.full(1, 1 - round / rounds))


def test_a_trainer_of_ones_own_that_reads_the_number_of_rounds_says_so():
    iris = fs.load("iris")
    clients = fs.Federation(iris, fs.partition.Iid(clients=6))
    task = fs.Task.on(fs.models.LogisticRegression(3), iris)
    run = fs.Experiment(task, local_training=Fading(0.1), cohort_size=2, rounds=1)
    fs.simulate(run, clients)  # it does not read it without momentum
    reads, tunes = Fading(0.1, momentum=0.5), {"evaluate_clients_every": 1}
    held = fs.Federation(iris, fs.partition.Iid(clients=6), holdout=0.3)
    for of, changed in ((clients, {"local_training": reads}), (held, {"fine_tuning": reads, **tunes})):
        with pytest.raises(ValueError, match=r"Fading.plan reads the number of rounds; its class must say so"):
            fs.simulate(replace(run, **changed), of)


class Asks(fs.ClientSelector):
    """Holds a trainer, which has no `candidates`."""

    trainer: SGD = SGD(0.1)

    def select(self, key, state, ctx):
        return fs.client_selection.top_m(key, ctx.num_examples + 0.0, ctx.available, ctx.m)


def test_a_selector_that_holds_a_trainer_is_asked_for_its_own_methods():
    iris = fs.load("iris")
    task = fs.Task.on(fs.models.LogisticRegression(3), iris)
    run = fs.Experiment(task, client_selection=Asks(), cohort_size=2, rounds=1)
    assert fs.simulate(run, fs.Federation(iris, fs.partition.Iid(clients=6))).rounds == 1


def test_a_sweep_with_its_axes_in_another_order_is_another_one(sweeps):
    """The order is in the names of the runs' folders."""
    for rounds in (7, 12):
        with pytest.raises(
            FolderError, match=r"another sweep .*the axes in the order .* there, in which it goes on, .* here"
        ):
            sweep(sweeps[0], rounds, items=SWEPT[::-1], keep_checkpoints=True)


def test_a_finished_sweep_goes_on_as_if_it_had_been_asked_from_the_start(sweeps, tmp_path, monkeypatch):
    seven, once, whole = sweeps
    place = Path(shutil.copytree(seven, tmp_path / "twice"))
    with monkeypatch.context() as patched:  # killed when half of its runs are those of more rounds
        made = layout.create
        left = iter(range(2))
        patched.setattr(layout, "create", lambda *given, **more: made(*given, **more) if next(left) + 1 else None)
        with pytest.raises(StopIteration):
            sweep(place, 12)
    table, grid = sweep(place, 12)
    pd.testing.assert_frame_equal(table, whole)
    assert sorted(path.name for path in (place / "runs").iterdir()) == sorted(one.name for one in grid)
    for one in grid:
        (mine, given), (other, asked) = (layout.read(of / "runs" / one.name) for of in (place, once))
        assert given == asked
        assert mine.about["resumed_at"] == 7
        for name in other.metrics:
            np.testing.assert_array_equal(mine[name], other[name], err_msg=name)
    assert not (place / "programs").exists(), "kept only where it is asked for"
    with pytest.raises(FolderError, match="kept no checkpoint of its end, so it cannot go on to 14"):
        sweep(place, 14)
    with pytest.raises(FolderError, match=r"12 rounds, but rounds is 9"):
        sweep(place, 9)


def test_a_sweep_with_what_depends_on_the_number_of_rounds_is_refused_before_anything_is_touched(tmp_path):
    items = ("client_selection=uniform,adapow_d",)
    grid = combinations(GIVEN, [*items, "rounds=7"], {})
    of_sweep.create(tmp_path, grid)
    for one in grid:
        layout.create(tmp_path / "runs" / one.name, one.config)
        (tmp_path / "runs" / one.name / "summary.json").write_text(json.dumps({"rounds": 7}))
    (tmp_path / "summary.json").write_text("{}")
    (tmp_path / "programs" / "one" / "round-000007").mkdir(parents=True)
    with pytest.raises(FolderError, match=r"client_selection \(AdaPowD\) depends on how many"):
        sweep(tmp_path, 9, items)
    assert (tmp_path / "summary.json").exists()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"local_training": {"schedule": {"name": "cosine"}}}, r"local_training \(SGD\) depends on how many rounds"),
        ({"client_selection": {"name": "adapow_d", "d": 5}}, r"client_selection \(AdaPowD\) depends on how many"),
    ],
)
def test_what_depends_on_the_number_of_rounds_is_named(tmp_path, changes, says):
    place = tmp_path / "run"
    asked = config.resolve({**GIVEN, **changes})
    layout.create(place, asked)
    (place / "summary.json").write_text(json.dumps({"rounds": 7}))
    with pytest.raises(FolderError, match=rf"the run of 7 rounds cannot go on to 9: {says}"):
        run(place, **changes, rounds=9)


def test_without_a_checkpoint_of_its_end_or_after_a_callback_ended_it_a_run_does_not_go_on(tmp_path):
    place = tmp_path / "run"
    layout.create(place, config.resolve(GIVEN))
    for rounds, says in ((7, "kept no checkpoint of its end"), (5, "a callback ended after 5 of 7 rounds")):
        (place / "summary.json").write_text(json.dumps({"rounds": rounds}))
        with pytest.raises(FolderError, match=says):
            run(place, rounds=9)


@pytest.mark.parametrize("name", local_training.available())
def test_a_trainer_says_whether_its_schedule_depends_on_the_number_of_rounds(name):
    trainer = local_training.load(name)
    for schedule in (Exponential(0.5), Cosine()):
        made = trainer(SGD(schedule=schedule)) if name == "alternating" else trainer(schedule=schedule)
        factors = [made.plan(jnp.array([9]), 9, jnp.int32(3), jnp.int32(T)).rate_factor for T in (10, 20)]
        assert made.uses_rounds == (float(factors[0][0]) != float(factors[1][0]))


def test_a_wrapper_depends_on_what_it_wraps():
    wrapped = client_selection.load("critical_fl")(selector=client_selection.load("adapow_d")())
    with pytest.raises(ValueError, match=r"client_selection \(CriticalFL\)"):
        check_more_rounds({"client_selection": wrapped}, 3, 4)
    check_more_rounds({"client_selection": client_selection.load("critical_fl")()}, 3, 4)
