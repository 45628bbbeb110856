"""What cannot run is refused with one error that says what was given and what is allowed, before anything compiles."""

import numpy as np
import pytest

from fedjax_sel import ClientSelector, Experiment, Federation, Layout, Task, dataset, partition, simulate
from fedjax_sel.client_selection.entropy import Entropy
from fedjax_sel.client_selection.power_of_choice import PowerOfChoice
from fedjax_sel.engine.driver import run_chunk
from fedjax_sel.local_training.sgd import SGD
from fedjax_sel.models.logistic import LogisticRegression

N = 8
M = r"it must be a whole number from 1 to N, or a fraction in \(0, 1\]"
SEEDS = "at least one, all different whole numbers from 0 to 2\\^32 - 1"


@pytest.fixture(scope="module")
def federation(blobs):
    return Federation(blobs, partition.Iid(clients=N))


@pytest.fixture(autouse=True)
def nothing_compiles():
    before = run_chunk.programs
    yield
    assert run_chunk.programs == before


def experiment(classes=3, **answers):
    return Experiment(Task(LogisticRegression(classes)), **{"cohort_size": 3, "rounds": 2, **answers})


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("epsilon", 1.5, r"epsilon is 1.5; it must be in \[0, 1\]"),
        ("epsilon", -0.1, r"epsilon is -0.1; it must be in \[0, 1\]"),
        ("temperature", 0.0, "temperature is 0.0; it must be above 0"),
    ],
)
def test_a_number_out_of_range_is_refused_when_the_selector_is_made(field, value, says):
    with pytest.raises(ValueError, match=says):
        Entropy(**{field: value})


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ({"cohort_size": 9}, f"cohort_size is 9, but there are N = 8 clients; {M}"),
        ({"cohort_size": 0}, f"cohort_size is 0, .*{M}"),
        ({"cohort_size": -1}, f"cohort_size is -1, .*{M}"),
        ({"cohort_size": 1.5}, f"cohort_size is 1.5, .*{M}"),
        ({"cohort_size": 0.0}, f"cohort_size is 0.0, .*{M}"),
        ({"cohort_size": -0.5}, f"cohort_size is -0.5, .*{M}"),
        ({"cohort_size": float("nan")}, f"cohort_size is nan, .*{M}"),
        ({"cohort_size": "3"}, f"cohort_size is '3', .*{M}"),
        ({"cohort_size": None}, f"cohort_size is None, .*{M}"),
        ({"rounds": 0}, "rounds is 0; it must be a whole number, at least 1"),
        ({"rounds": -3}, "rounds is -3"),
        ({"rounds": 2.0}, "rounds is 2.0"),
        ({"evaluate_every": 0}, "evaluate_every is 0; it must be a whole number, at least 1"),
        ({"classes": 2}, "2 logits an example, but the data has 3 classes; .*classes=3"),
        ({"classes": 10}, "10 logits an example, but the data has 3 classes; .*classes=3"),
        ({"signal_split": "test"}, "signal_split is 'test'; it must be 'training' or 'holdout'"),
        (
            {"signal_split": "holdout", "client_selection": Entropy()},
            "some client has no hold-out examples; give the federation a holdout",
        ),
        ({"client_selection": PowerOfChoice(d=2)}, "d is 2 candidates; .*m = 3.*N = 8"),
        ({"client_selection": PowerOfChoice(d=9)}, "d is 9 candidates; .*m = 3.*N = 8"),
    ],
    ids=str,
)
def test_an_experiment_that_cannot_run_is_refused(federation, answers, words):
    with pytest.raises(ValueError, match=words):
        simulate(experiment(**answers), federation)


@pytest.mark.parametrize(
    ("seeds", "given"),
    [
        (0, "0"),
        (-2, "-2"),
        ([], r"\[\]"),
        ([-1, 2], r"\[-1, 2\]"),
        ([3, 4, 3], r"\[3, 4, 3\]"),
        ([2**32], r"\[4294967296\]"),
        ([0.5], r"\[0.5\]"),
        (1.5, "1.5"),
        ("ab", "'ab'"),
        (None, "None"),
    ],
    ids=str,
)
def test_seeds_that_name_no_runs_are_refused(federation, seeds, given):
    with pytest.raises(ValueError, match=f"seeds are {given}; there must be {SEEDS}"):
        simulate(experiment(), federation, seeds)


@pytest.mark.parametrize(
    ("layout", "words"),
    [
        ({"layout": "pmap"}, "layout is 'pmap'; it must be 'auto', 'vmap', 'scan' or a Layout"),
        ({"chunk": -1}, "chunk is -1; it must be at least 1 round"),
    ],
    ids=str,
)
def test_a_layout_there_is_not_is_refused(federation, layout, words):
    with pytest.raises(ValueError, match=words):
        simulate(experiment(), federation, **layout)


@pytest.mark.parametrize(
    ("layout", "words"),
    [
        ({"seeds": "pmap"}, "seeds is 'pmap'; it must be 'vmap' or 'scan'"),
        ({"clients": 0}, "clients is 0; it must be a whole number, at least 1"),
        ({"examples": 0}, "examples is 0; it must be a whole number, at least 1"),
    ],
    ids=str,
)
def test_a_layout_that_is_none_cannot_be_made(layout, words):
    with pytest.raises(ValueError, match=words):
        Layout(**layout)


@pytest.mark.parametrize("name", ["batch_size", "epochs", "steps"])
def test_training_without_a_step_cannot_be_made(name):
    with pytest.raises(ValueError, match=f"{name} is 0; it must be a whole number, at least 1"):
        SGD(**{name: 0})


def test_data_without_test_examples_is_refused(blobs):
    bare = dataset("bare", blobs.x, blobs.y)
    with pytest.raises(ValueError, match=r"no test examples to evaluate on; .*test share"):
        simulate(experiment(), Federation(bare, partition.Iid(clients=N)))


def test_more_clients_than_examples_are_refused_with_the_seed_that_was_drawn(blobs):
    with pytest.raises(ValueError, match=r"clients is 999, but there are only 216 examples.*\(data seed 4\)"):
        simulate(experiment(), Federation(blobs, partition.Iid(clients=999)), seeds=[4])


@pytest.mark.parametrize(("share", "m"), [(0.5, 4), (1.0, 8), (0.01, 1), (0.3, 2), (1, 1)])
def test_a_share_is_of_all_clients_and_at_least_one_of_them(share, m):
    assert experiment(cohort_size=share).count_cohort(N) == m


def test_numpy_integers_count_as_whole_numbers(federation):
    whole = experiment(cohort_size=np.int64(3), rounds=np.int32(2), evaluate_every=np.int64(1))
    whole.check(federation.draw(0))
    assert whole.count_cohort(N) == 3


def test_a_selector_without_a_rule_to_select_cannot_be_made():
    class Half(ClientSelector):
        def observe(self, key, state, ctx, cohort, **signals):
            return state

    with pytest.raises(TypeError, match=r"abstract.* select"):
        Half()


@pytest.mark.parametrize("name", ["learning_rate", "momentum", "weight_decay"])
@pytest.mark.parametrize("value", [-0.1, float("nan"), float("inf")])
def test_a_rate_that_cannot_train_is_refused(name, value):
    with pytest.raises(ValueError, match=rf"sgd: {name} is {value}; it must be in \[0, "):
        SGD(**{name: value})
