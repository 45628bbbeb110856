"""Optuna asks, a sweep runs, Optuna is told; callbacks that ask for the models get them."""

import jax
import numpy as np
import pytest

import fedjax_sel as fs
from fedjax_sel.engine.checkpoint import Checkpoints
from fedjax_sel.engine.execution import Execution
from fedjax_sel.engine.scan import run_chunk
from fedjax_sel.engine.tuning import check_direction, mean_final_quality
from fedjax_sel.local_training.sgd import SGD
from fedjax_sel.models.logistic import LogisticRegression

optuna = pytest.importorskip("optuna")
pytestmark = pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")


def experiment(rate):
    task = fs.Task(LogisticRegression(classes=3))
    return fs.Experiment(task, local_training=SGD(rate), cohort_size=3, rounds=4)


@pytest.fixture(scope="module")
def data():
    return fs.Federation(fs.load("iris"), fs.partition.Iid(clients=10))


def make(trial):
    return experiment(trial.suggest_float("rate", 1e-3, 1.0, log=True))


def test_trials_run_in_batches_by_one_program_and_are_told_what_they_are_worth_alone(data):
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler(seed=1))
    before = run_chunk.programs
    assert fs.tune(study, make, data, trials=6, at_once=3, seeds=2) is study
    assert run_chunk.programs - before == 1
    done = study.trials
    assert [trial.state.name for trial in done] == ["COMPLETE"] * 6
    assert len({trial.params["rate"] for trial in done}) == 6
    one = done[4]
    alone = fs.simulate(experiment(one.params["rate"]), data, seeds=2)
    assert one.value == pytest.approx(alone["accuracy"][:, -1].mean(), abs=1e-6)
    assert study.best_value == max(trial.value for trial in done)


def test_a_trial_without_a_value_fails_and_so_do_those_of_a_batch_that_cannot_run(data):
    study = optuna.create_study(direction="maximize")
    fs.tune(study, make, data, trials=2, at_once=2, objective=lambda history: float("nan"))
    with pytest.raises(ValueError, match="differ in floats alone, but two of these differ in") as refused:
        fs.tune(study, lambda trial: experiment(0.1).replace(cohort_size=trial.number), data, trials=2)
    assert refused.value.__notes__[-1] == "fs.tune(..., at_once=1) runs the trials one after the other"
    assert [trial.state.name for trial in study.trials] == ["FAIL"] * 4
    with pytest.raises(ValueError, match="trials is 0; it must be a whole number, at least 1"):
        fs.tune(study, make, data, trials=0)


def test_a_study_in_the_wrong_direction_is_refused_and_numbers_are_tuned_by_their_loss(data):
    with pytest.raises(ValueError, match=r"to minimize, .* final accuracy; give create_study\(direction='maximize'\)"):
        fs.tune(optuna.create_study(), make, data, trials=1)
    own = experiment(0.1)  # accuracy is added to metrics without it
    own = own.replace(task=own.task.replace(metrics={"certain": lambda logits, y: logits.max(-1)}))
    with pytest.raises(ValueError, match=r"to minimize, .* final accuracy; give create_study"):
        fs.tune(optuna.create_study(direction="minimize"), lambda trial: own, data, trials=1)
    diabetes = fs.load("diabetes")
    task, clients = (
        fs.Task.on(fs.models.MLP(classes=1, hidden=(3,)), diabetes),
        fs.Federation(diabetes, fs.partition.Iid(5)),
    )

    def learn(trial):
        rate = trial.suggest_float("rate", 1e-6, 1e-5)
        return fs.Experiment(task, local_training=SGD(rate), cohort_size=2, rounds=2)

    with pytest.raises(ValueError, match=r"to maximize, .* final loss; give create_study\(direction='minimize'\)"):
        fs.tune(optuna.create_study(direction="maximize"), learn, clients, trials=1)
    study = fs.tune(optuna.create_study(), learn, clients, trials=2)
    rate = study.trials[0].params["rate"]
    alone = fs.simulate(fs.Experiment(task, local_training=SGD(rate), cohort_size=2, rounds=2), clients)
    assert study.trials[0].value == pytest.approx(alone["loss"][0, -1], rel=1e-5)


def test_an_objective_that_raises_fails_its_trials(data):
    study = optuna.create_study(direction="maximize")
    worth = iter([0.5, None, 0.7])
    with pytest.raises(ValueError, match="objective returned None; it must be a function of a trial's history that"):
        fs.tune(study, make, data, trials=3, objective=lambda history: next(worth))
    assert [trial.state.name for trial in study.trials] == ["FAIL"] * 3
    study = optuna.create_study(direction="maximize")
    with pytest.raises(KeyError, match="no metric 'f1'"):
        fs.tune(study, make, data, trials=2, objective=lambda history: history["f1"][0, -1])
    assert [trial.state.name for trial in study.trials] == ["FAIL"] * 2


class Watch:
    """Keeps what it is shown."""

    def __init__(self, needs_variables):
        self.needs_variables, self.shown = needs_variables, []

    def after_central_iteration(self, history):
        self.shown.append(history.variables)


def test_a_callback_that_declares_it_is_shown_the_models_after_every_chunk(data, tmp_path):
    asks, asks_not = Watch(True), Watch(False)
    points = Checkpoints(tmp_path, keep=4, pause=0)
    history = fs.simulate(experiment(0.3), data, 2, chunk=2, callbacks=[asks], checkpoints=points)
    fs.simulate(experiment(0.3), data, 2, chunk=2, callbacks=[asks_not])
    assert asks_not.shown == [None, None]
    for number, shown in zip((2, 4), asks.shown, strict=True):
        jax.tree.map(np.testing.assert_array_equal, shown, points.variables_after(number))
    jax.tree.map(np.testing.assert_array_equal, asks.shown[-1], history.variables)


def test_examples_that_are_drawn_from_the_seed_are_tuned_too(data):
    drawn = fs.Federation(lambda seed: fs.load("iris", seed=seed), fs.partition.Iid(clients=5))
    with pytest.raises(ValueError, match="the study is to minimize, but its objective is the final accuracy"):
        check_direction(optuna.create_study(direction="minimize"), experiment(0.1), drawn)


@pytest.mark.parametrize("sampler", ["GridSampler", "BruteForceSampler"])
def test_a_sampler_that_has_tried_everything_ends_the_study(data, sampler):
    rates = [0.01, 0.1, 0.5]
    of = optuna.samplers
    study = optuna.create_study(
        direction="maximize",
        sampler=of.GridSampler({"rate": rates}, seed=0) if sampler == "GridSampler" else of.BruteForceSampler(seed=0),
    )
    made = fs.tune(study, lambda trial: experiment(trial.suggest_categorical("rate", rates)), data, 8, at_once=2)
    assert made is study
    assert {trial.params["rate"] for trial in study.trials} == set(rates)
    assert {trial.state.name for trial in study.trials} == {"COMPLETE"}
    assert len(study.trials) <= 4


def test_a_run_that_ends_between_evaluations_is_worth_its_last_one_and_one_that_diverges_nothing():
    def history(accuracy, alive=None):
        metrics = {"accuracy": np.array(accuracy)} | ({} if alive is None else {"alive": np.array(alive)})
        return fs.History((0, 1), metrics, np.zeros((2, 2, 1), int), 3)

    assert mean_final_quality(history([[0.5, np.nan], [0.7, 0.9]])) == pytest.approx(0.7)
    assert np.isnan(mean_final_quality(history([[0.5, 0.5], [0.7, 0.9]], [[True, False], [True, True]])))


def test_what_the_users_code_prunes_is_pruned_and_the_others_of_its_batch_are_not(data):
    def make_some(trial):
        if trial.number == 1:
            raise optuna.TrialPruned
        return make(trial)

    def judge(history):
        if history["accuracy"][0, -1] < 2:
            raise optuna.TrialPruned
        return 1.0

    study = optuna.create_study(direction="maximize")
    fs.tune(study, make_some, data, trials=3, at_once=3)
    fs.tune(study, make, data, trials=1, objective=judge)
    assert [trial.state.name for trial in study.trials] == ["COMPLETE", "PRUNED", "COMPLETE", "PRUNED"]


def test_what_no_batch_could_run_with_is_refused_before_a_trial_is_asked_for(data, tmp_path):
    study = optuna.create_study(directions=["maximize", "minimize"])
    with pytest.raises(ValueError, match="the study has 2 objectives; tune runs studies with one"):
        fs.tune(study, make, data, trials=1)
    one = optuna.create_study(direction="maximize")
    with pytest.raises(ValueError, match="tune takes no checkpoints"):
        fs.tune(one, make, data, trials=1, execution=Execution(checkpoints=Checkpoints(tmp_path)))
    fs.tune(one, make, data, trials=2, at_once=1, seeds=iter([3, 4]))
    assert [trial.state.name for trial in study.trials + one.trials] == ["COMPLETE"] * 2
