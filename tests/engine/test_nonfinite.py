"""Numbers that are not finite: whose update is left out, which seed ends, and what the others are told."""

import warnings
from dataclasses import replace

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel import Experiment, Federation, History, Layout, Task, dataset, partition, simulate
from fedjax_sel.aggregation.fedavgm import FedAvgM
from fedjax_sel.aggregation.fednova import FedNova
from fedjax_sel.aggregation.fedopt import FedOpt
from fedjax_sel.aggregation.mean import Mean
from fedjax_sel.client_selection.power_of_choice import PowerOfChoice
from fedjax_sel.client_selection.round_robin import RoundRobin
from fedjax_sel.client_selection.uniform import Uniform
from fedjax_sel.correction.scaffold import Scaffold
from fedjax_sel.engine.checkpoint import Checkpoints
from fedjax_sel.engine.checkpoint import read as to_host
from fedjax_sel.engine.driver import sweep
from fedjax_sel.engine.faults import say_diverged
from fedjax_sel.engine.nonfinite import SMALL, all_finite
from fedjax_sel.local_training.sgd import SGD
from fedjax_sel.metrics import difference
from fedjax_sel.metrics.curves import at_cost, cost_to, rounds_to
from fedjax_sel.models.logistic import LogisticRegression
from fedjax_sel.models.mlp import MLP
from fedjax_sel.pytree import Pytree
from fedjax_sel.report.compare import compare_runs, find_reachable_accuracy, list_runs
from fedjax_sel.report.page import draw_all, draw_coverage, draw_selections
from fedjax_sel.report.summary import build_table, format_rows, render_page, summarize
from fedjax_sel.runs.layout import read, save
from fedjax_sel.types import PAD_CLIENT, Cohort

pytestmark = pytest.mark.filterwarnings("ignore:.* diverged:UserWarning")

CLOSE = {"rtol": 2e-4, "atol": 2e-5}
OWNERS = np.repeat(np.arange(5), [4, 6, 8, 5, 7])
BAD = 4
TASK = Task(LogisticRegression(classes=2))


def rows(scale=1.0, seed=0):
    """Five clients of 4 to 8 rows; those of the last, whose labels are the wrong ones, are multiplied by `scale`."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(len(OWNERS), 2)).astype(np.float32)
    y = ((x.sum(1) > 0) ^ (OWNERS == BAD)).astype(np.int32)
    test = x[:6], y[:6]
    return dataset("rows", np.where(OWNERS[:, None] == BAD, scale * x, x), y, test=test, owner=OWNERS)


def experiment(**changes):
    given = {
        "client_selection": RoundRobin(),
        "local_training": SGD(0.1, batch_size=4, epochs=2),
        "cohort_size": 5,
        "rounds": 3,
    }
    return Experiment(TASK, **(given | changes))


def trainer(rate):
    """At least three steps, with a decay that squares a rate that is too large."""
    return SGD(rate, batch_size=4, epochs=3, weight_decay=1.0)


TOO_LARGE = 1e20


class AllButTheLast(Uniform, Pytree):
    """Everyone, with an empty slot where the last client would be."""

    def select(self, key, state, ctx):
        client = jax.numpy.arange(BAD + 1)
        mask = client != BAD
        return Cohort(jax.numpy.where(mask, client, PAD_CLIENT), mask, 1.0 * mask)


AGGREGATORS = [
    Mean(),
    Mean(weighting="size"),
    FedNova(),
    FedAvgM(0.9),
    FedOpt(0.1, optimizer="adam"),
    FedAvgM(0.5, weighting="size"),
]


@pytest.mark.parametrize("aggregator", AGGREGATORS, ids=lambda a: f"{type(a).__name__}-{getattr(a, 'by', '')}")
def test_an_update_that_is_not_finite_is_left_out_as_if_the_client_had_not_been_in_the_cohort(aggregator):
    """Without normalisation, rows of 1e30 give gradients, and squares of losses, that are not finite."""
    bad, good = Federation(rows(1e30), partition.Natural()), Federation(rows(), partition.Natural())
    left = simulate(experiment(aggregation=aggregator), bad, seeds=1)
    without = simulate(experiment(aggregation=aggregator, client_selection=AllButTheLast()), good, seeds=1)
    np.testing.assert_array_equal(left["left_out"], [[1, 1, 1]])
    np.testing.assert_array_equal(without["left_out"], 0)
    np.testing.assert_array_equal(left.diverged, [0])
    for metric in ("accuracy", "loss", "training_loss"):
        np.testing.assert_allclose(left[metric], without[metric], **CLOSE, err_msg=metric)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **CLOSE), left.variables, without.variables)
    assert ("updates left out, not finite", "3", "–") in format_rows(summarize(left))
    assert "left_out" not in summarize(without)


@pytest.mark.parametrize("layout", [Layout(), Layout(clients=1, seeds="scan"), Layout(clients=2)], ids=str)
def test_a_seed_that_diverges_ends_and_the_others_go_on_with_the_same_numbers(layout):
    """In seed 1 four clients of five have rows that nothing can be learnt from; its cohorts soon have nobody else."""

    def drawn(bad):
        def source(seed):
            one = rows(seed=seed)
            scale = np.where(OWNERS[:, None] > 0, 1e30, 1.0).astype(np.float32)
            return replace(one, x=scale[: len(one.x)] * one.x) if seed == bad else one

        return Federation(source, partition.Natural())

    one = experiment(cohort_size=2, rounds=8, client_selection=Uniform(), correction=Scaffold())
    with pytest.warns(UserWarning, match="1 of 3 seeds diverged: seed 1 in round .; their numbers are NaN from there"):
        history = simulate(one, drawn(bad=1), seeds=[0, 1, 2], layout=layout, chunk=3)
    healthy = simulate(one, drawn(bad=None), seeds=[0, 1, 2], layout=layout, chunk=3)
    first, ended, last = history.diverged
    assert first == last == 0
    assert 1 < ended < 8
    for i in (0, 2):
        np.testing.assert_array_equal(history.selections[i], healthy.selections[i])
        for metric in history.metrics:
            np.testing.assert_allclose(history[metric][i], healthy[metric][i], **CLOSE, err_msg=metric)
    quality = ("accuracy", "loss", "training_loss")
    for metric in quality:
        assert np.isfinite(history[metric][1, : ended - 1]).all()
        assert np.isnan(history[metric][1, ended - 1 :]).all(), metric
    for metric in set(history.metrics) - {*quality, "alive"}:
        np.testing.assert_array_equal(history[metric][1, ended:], 0, err_msg=metric)
    assert history["bytes"][1, ended - 1] > 0, "the round it ended in was paid for"
    assert (history.selections[1, :ended] >= 0).all()
    assert (history.selections[1, ended:] == -1).all()
    np.testing.assert_array_equal(history["alive"][1], np.arange(1, 9) < ended)
    shorter = simulate(one.replace(rounds=int(ended) - 1), drawn(bad=1), seeds=[0, 1, 2], layout=layout, chunk=3)
    # The state is the one before the round it ended in.
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a[1], b[1]), history.variables, shorter.variables)


def test_a_test_loss_that_is_not_finite_ends_a_seed_in_the_round_that_measured_it():
    data = rows()
    data = replace(data, test_x=np.full_like(data.test_x, np.inf))
    history = simulate(experiment(rounds=5, evaluate_every=2), Federation(data, partition.Natural()), seeds=2)
    assert history.diverged.tolist() == [2, 2]
    np.testing.assert_array_equal(history["left_out"], 0)


def test_a_rate_that_diverges_leaves_the_others_of_its_sweep_as_they_are_alone():
    federation = Federation(rows(), partition.Natural())
    each = [
        experiment(cohort_size=3, rounds=5, local_training=trainer(rate), client_selection=Uniform())
        for rate in (0.1, TOO_LARGE, 0.01)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # some of a sweep are expected to diverge
        together = sweep(each, federation, seeds=2)
    assert [history.diverged.tolist() for history in together] == [[0, 0], [1, 1], [0, 0]]
    for i in (0, 2):
        alone = simulate(each[i], federation, seeds=2)
        np.testing.assert_array_equal(together[i].selections, alone.selections)
        for metric in alone.metrics:
            np.testing.assert_allclose(together[i][metric], alone[metric], **CLOSE, err_msg=metric)
    start = simulate(each[1].replace(local_training=trainer(0.0), rounds=1), federation, seeds=2)
    jax.tree.map(np.testing.assert_array_equal, together[1].variables, start.variables)


def test_scaffolds_variates_stay_finite(tmp_path):
    """A client that is left out keeps its variate, and the server's moves by those of the others."""

    def states(folder, scale, **changes):
        points = Checkpoints(folder, pause=0)
        one = experiment(correction=Scaffold(), **changes)
        history = simulate(one, Federation(rows(scale), partition.Natural()), seeds=1, checkpoints=points, chunk=1)
        arrays = to_host(points.folder / f"round-{points.rounds()[-1]:06d}")
        return history, {name: a for name, a in arrays.items() if name.startswith("state.correction")}

    left, variates = states(tmp_path / "left", 1e30)
    _, without = states(tmp_path / "without", 1.0, client_selection=AllButTheLast())
    ended, frozen = states(tmp_path / "ended", 1.0, local_training=trainer(TOO_LARGE))
    assert left["left_out"].sum() == 3
    assert ended.diverged.tolist() == [1]
    assert variates
    assert variates.keys() == without.keys() == frozen.keys()
    for name, value in variates.items():
        np.testing.assert_allclose(value, without[name], **CLOSE)
        assert not frozen[name].any()


def test_without_compilation_the_error_names_client_and_round():
    with pytest.raises(FloatingPointError) as caught:
        simulate(experiment(), Federation(rows(1e30), partition.Natural()), seeds=1, debug=True)
    notes = " ".join(caught.value.__notes__)
    assert f"client {BAD}" in notes
    assert "round 0" in notes


def made(diverged, seeds=(0, 3, 8), rounds=4):
    """A history in which seeds ended in these rounds."""
    alive = np.array([[not end or t < end for t in range(1, rounds + 1)] for end in diverged])
    accuracy = np.where(alive, np.linspace(0.5, 0.8, rounds) + 0.01 * np.arange(len(seeds))[:, None], np.nan)
    costs = dict.fromkeys(("bytes_down", "bytes_up", "client_flops"), 10.0 * alive)
    costs |= dict.fromkeys(("selection_bytes_down", "selection_bytes_up", "selection_flops"), 0.0 * alive)
    metrics = {"accuracy": accuracy, "loss": 1 - accuracy, **costs, "alive": alive}
    return History(seeds, metrics, np.zeros((len(seeds), rounds, 1), np.int32), 2)


def test_the_summary_is_over_the_seeds_that_did_not_diverge_and_names_the_others():
    history = made([0, 3, 0])
    found = summarize(history)
    assert history.diverged.tolist() == [0, 3, 0]
    np.testing.assert_allclose(found["final_accuracy"]["mean"], (0.80 + 0.82) / 2)
    np.testing.assert_allclose(found["final_accuracy"]["std"], 0.02 / np.sqrt(2))
    np.testing.assert_allclose(found["best_accuracy"]["per_seed"][1], 0.61)
    assert found["bytes"]["mean"] == 80
    assert found["bytes"]["per_seed"] == [80, 40, 80]
    assert say_diverged(**found["diverged"]) == "1 of 3 seeds diverged: seed 3 in round 3"
    table = build_table("a run", found)
    assert table.caption == say_diverged(**found["diverged"])
    assert table.columns[1].header == "mean of 2 seeds"
    page = render_page("a run", found, "m: 1", {})
    assert f"{say_diverged(**found['diverged'])}; they are not in the means and figures." in page
    gone = summarize(made([1, 2, 2]))
    page = render_page("a run", gone, "m: 1", {})
    assert f"{say_diverged(**gone['diverged'])}; the figures show them." in page
    assert "diverged" not in summarize(made([0, 0, 0]))


def test_a_seed_without_a_value_is_in_no_mean():
    history = made([0, 0, 0])
    own = np.array([[0.25], [np.nan], [0.75]]) * np.ones(4)
    found = summarize(replace(history, metrics={**history.metrics, "class_accuracy_0": own}))
    assert found["final_class_accuracy_0"]["mean"] == 0.5
    np.testing.assert_allclose(found["final_class_accuracy_0"]["std"], 0.5 / np.sqrt(2))
    assert np.isnan(found["final_class_accuracy_0"]["per_seed"][1])


def test_the_page_shows_whom_the_seeds_selected_that_did_not_diverge():
    history = made([0, 3, 0])
    chosen = np.array([[0, 0, 1, 1], [0, 0, -1, -1], [0, 0, 1, 1]])[..., None]
    whole = replace(history, selections=chosen)
    (line,) = draw_coverage(whole).axes[0].lines
    np.testing.assert_array_equal(line.get_ydata(), [0.5, 0.5, 1, 1])
    raster = draw_selections(whole).axes[0].images[0].get_array()
    np.testing.assert_array_equal(raster, [[1, 1, 0, 0], [0, 0, 1, 1]])
    captions = [caption for _, caption, _, _ in draw_all(whole)]
    assert (
        sum("seeds without those that diverged" in caption or "round without those" in caption for caption in captions)
        == 2
    )


@pytest.mark.parametrize("ends", [[1, 3, 0], [1, 1, 2], [1, 1, 1]], ids=str)
def test_reports_and_figures_stand_seeds_that_diverged(ends, tmp_path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from fedjax_sel.config import resolve

    history, other = made(ends), made([0, 0, 0])
    found = summarize(history)
    if all(ends):
        assert format_rows(found)[0] == ("final accuracy", "–", "–")
    config = resolve({"data": "iris", "rounds": 4, "seeds": [0, 3, 8], "cohort_size": 1})
    runs = {"one": (history, config), "other": (other, config)}
    assert find_reachable_accuracy(runs) == 0.8
    assert find_reachable_accuracy({"one": (history, config)}) == (None if all(ends) else 0.82)
    assert "of 3 seeds diverged" in next(list_runs(runs))
    compare_runs(runs, target=0.5)
    for x in ("round", "bytes"):
        line = history.plot(x=x, ax=plt.figure().subplots()).lines[0]
        assert len(line.get_xdata()) == {(1, 3, 0): 4, (1, 1, 2): 1, (1, 1, 1): 0}[tuple(ends)]
    plt.close("all")
    save(tmp_path / "run", history, config)
    back, _ = read(tmp_path / "run")
    np.testing.assert_array_equal(back.diverged, ends)
    accuracy, cost = history["accuracy"], history.cumulative("bytes")
    assert rounds_to(accuracy, 0.99).tolist() == [5, 5, 5]
    assert np.isinf(cost_to(accuracy, cost, 0.99)).all()
    at_cost(accuracy, cost, np.full(3, 30.0))
    assert difference(accuracy[:, -1], other["accuracy"][:, -1] - 1).larger() == "undecided"


def test_a_history_of_before_seeds_were_ended_has_none_that_diverged():
    history = made([0, 0, 0])
    assert replace(history, metrics={"accuracy": history["accuracy"]}).diverged.tolist() == [0, 0, 0]


def test_a_selector_that_asks_goes_on_beside_a_seed_that_ended():
    """Its candidates, and what it is told of them, cost nothing any more."""
    each = [
        experiment(client_selection=PowerOfChoice(d=3), cohort_size=2, local_training=trainer(rate))
        for rate in (TOO_LARGE, 0.1)
    ]
    ended, fine = sweep(each, Federation(rows(), partition.Natural()), seeds=1)
    assert ended.diverged.tolist() == [1]
    assert fine.diverged.tolist() == [0]
    assert ended["bytes"][0, 0] > 0
    assert not ended["bytes"][0, 1:].any()
    assert not ended["flops"][0, 1:].any()
    assert np.isfinite(fine["loss"]).all()
    assert fine["bytes"].all()


def test_a_number_that_is_not_finite_is_found_in_arrays_of_any_size_and_none_that_is_large_is_copied():
    tree = {"large": np.zeros(64 * SMALL, np.float32), "small": np.zeros(3, np.float32), "counts": np.arange(4)}
    check = jax.jit(all_finite)
    assert check(tree)
    for name in ("large", "small"):
        for wrong in (np.nan, np.inf):
            assert not check({**tree, name: np.append(tree[name][1:], np.float32(wrong))}), (name, wrong)
    assert all_finite({"counts": jnp.arange(4)})
    many = {i: jax.ShapeDtypeStruct((4, 64 * SMALL), jnp.float32) for i in range(20)}
    taken = jax.jit(jax.vmap(all_finite)).lower(many).compile().memory_analysis()
    assert taken.temp_size_in_bytes < taken.argument_size_in_bytes / 2


def test_a_loss_whose_square_overflows_is_a_finite_update():
    """Targets of 1e10 have losses of 1e20; nothing that is sent overflows."""
    y = (1e10 * np.arange(1, 41)).astype(np.float32)
    data = dataset("revenue", np.ones((40, 1), np.float32), y, test=0.1, targets="continuous")
    task = Task.on(MLP(classes=1, hidden=()), data)
    one = Experiment(task, local_training=SGD(1e-3), cohort_size=2, rounds=2)
    history = simulate(one, Federation(data, partition.Iid(clients=4)))
    np.testing.assert_array_equal(history["left_out"], 0)
    assert (history["training_loss"] > 1e19).all()


class Unit(nn.Module):
    """Brings each example to length 1, whose gradient at an example of zeros is not finite."""

    @nn.compact
    def __call__(self, x):
        x = nn.Dense(2)(x)
        return nn.Dense(2)(x / jnp.sqrt((x**2).sum(-1, keepdims=True)))


def test_examples_of_others_do_not_reach_a_client_s_update_as_padding():
    """Clients of 4, 6 and 8 rows in batches of 8: the second one's are zeros, next to the padding of the first."""
    owner = np.repeat(np.arange(3), [4, 6, 8])
    x = np.random.default_rng(0).normal(size=(18, 2)).astype(np.float32)
    x[owner == 1] = 0.0
    y = np.arange(18) % 2
    data = Federation(dataset("rows", x, y, test=(x[:4], y[:4]), owner=owner), partition.Natural())
    training = SGD(0.1, batch_size=8, epochs=1)
    alone = Experiment(Task(Unit()), local_training=training, cohort_size=3, rounds=1)
    np.testing.assert_array_equal(simulate(alone, data, seeds=1)["left_out"], 1)
