"""Runs are compared seed by seed; what is no pair is said."""

import io
import itertools
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console
from scipy import stats

from fedjax_sel import config
from fedjax_sel.engine.history import TOTALS, History
from fedjax_sel.report.budgets import extrapolate_cost, keep_common_rounds, limit_runs, read_budget
from fedjax_sel.report.compare import (
    choose_metric,
    compare_pairs,
    compare_runs,
    find_reachable_accuracy,
    format_spread,
    list_intervals,
    list_runs,
)
from fedjax_sel.report.figures import COLOURS, plot_comparison, plot_curves

CONFIG = config.resolve({"data": "iris", "rounds": 3, "cohort_size": 2}).to_dict()


def history(seeds, final, clients=10):
    accuracy = np.tile(np.asarray(final)[:, None], (1, 3))
    alive = np.isfinite(accuracy).astype(float)
    return History(tuple(seeds), {"accuracy": accuracy, "alive": alive}, np.zeros((len(seeds), 3, 2), int), clients)


def text(table):
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(table)
    return console.export_text()


def test_differences_are_those_of_common_seeds_with_scipys_interval_and_test():
    rng = np.random.default_rng(0)
    a, b, c = rng.normal(0.8, 0.02, (3, 5))
    runs = {
        "a": (history([0, 1, 2, 3, 4], a), CONFIG),
        "b": (history([4, 3, 2, 1, 7], b), {**CONFIG, "cohort_size": 3}),
        "c": (history([0, 1, 2, 3, 4], c), CONFIG),
    }
    table, said = compare_pairs(runs)
    tests = [stats.ttest_rel(b[:4][::-1], a[1:]), stats.ttest_rel(c, a)]
    p = [one.pvalue for one in tests]
    holm = [min(1, 2 * value) if value == min(p) else max(value, min(1, 2 * min(p))) for value in p]
    shown = text(table)
    for one, value, number, seeds in zip(tests, holm, (2, 3), (4, 5), strict=True):
        low, high = one.confidence_interval(0.95)
        mean = (low + high) / 2
        rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in shown.splitlines()]
        (cells,) = [row for row in rows if row[:1] == [str(number)]]
        assert cells == [str(number), str(seeds), f"{mean:+.4f}", f"[{low:+.4f}, {high:+.4f}]", f"{value:.3g}"]
    assert "Holm" in shown
    assert said == ["seeds that 1 has and 2 has not: 0", "seeds that 2 has and 1 has not: 7"]


def test_a_single_seed_has_no_interval_and_a_diverged_one_is_no_pair_and_named():
    one = {"a": (history([0, 1], [0.5, 0.6]), CONFIG), "b": (history([0, 1], [0.7, np.nan]), CONFIG)}
    table, said = compare_pairs(one)
    assert said == ["seeds that diverged in 1 or 2, left out of the difference: 1"]
    shown = text(table)
    assert "+0.2000" in shown
    assert "–" in shown
    assert "Holm" not in shown


@pytest.mark.parametrize(
    ("config", "seeds", "says"),
    [
        (
            {**CONFIG, "partition": {"name": "dirichlet"}},
            [0],
            "with 1 seed by seed: they differ in partition",
        ),
        (CONFIG, [5], "with 1 seed by seed: they have no seeds in common that are finite"),
    ],
)
def test_what_is_no_pair_is_said(config, seeds, says):
    table, said = compare_pairs({"a": (history([0], [0.5]), CONFIG), "b": (history(seeds, [0.5]), config)})
    assert table is None
    assert any(line.startswith("2 is not compared") and line.endswith(says) for line in said)


def test_rounds_on_a_logarithmic_axis_are_plain_numbers():
    """Of a narrow range, matplotlib writes powers of ten, one over the other."""
    one = history([0, 1], [0.5, 0.6])
    figure = plot_curves({"digits, 100 @ 10 %, and a title that is far longer": {"uniform": one}}, log=True)
    (ax,) = figure.axes
    ax.set_xlim(2, 60)
    figure.canvas.draw()
    shown = [tick.get_text() for tick in ax.get_xticklabels() if 2 <= tick.get_position()[0] <= 60]
    assert shown == ["2", "5", "10", "20", "50"]
    assert not any(tick.get_text() for tick in ax.get_xticklabels(minor=True))
    assert "10\N{NO-BREAK SPACE}%" in ax.get_title()


@pytest.mark.parametrize("highest", [0.1, 1.0, 7.0])
def test_numbers_of_a_logarithmic_axis_do_not_run_into_each_other(highest):
    joules = np.geomspace(0.002, highest, 3)[None]
    spent = np.diff(joules, prepend=0)
    one = History((0,), {"accuracy": np.full((1, 3), 0.5), "joules": spent}, np.zeros((1, 3, 2), int), 10)
    figure = plot_curves({f"panel {i}": {"uniform": one} for i in range(3)}, x="joules", log=True)
    figure.canvas.draw()
    low, high = figure.axes[2].get_xlim()
    shown = [t for t in figure.axes[2].get_xticklabels() if t.get_text() and low <= t.get_position()[0] <= high]
    boxes = [tick.get_window_extent() for tick in shown]
    assert len(boxes) >= 3
    assert all(one.x1 < other.x0 for one, other in itertools.pairwise(boxes)), [tick.get_text() for tick in shown]


@pytest.mark.parametrize("count", [3, 10])
def test_every_line_is_told_apart_and_named_inside_the_picture(count):
    import matplotlib.pyplot as plt

    long = "a_selector_with_a_name(fraction=0.123, temperature=1.5, window=10, interval=2), 300 rounds, 5 seeds"
    runs = {f"{i}: runs/some-folder-{i}, digits, {long}": history([0, 1], [0.5 + i / 40, 0.6]) for i in range(count)}
    figure = plot_comparison(runs)
    lines = figure.axes[0].lines
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == count
    assert {line.get_color() for line in lines[:8]} <= set(COLOURS)
    panel = plot_curves({"digits": runs}).axes[0].lines
    assert len({(line.get_color(), line.get_linestyle()) for line in panel}) == count
    figure.canvas.draw()
    legend = figure.axes[0].get_legend() or figure.legends[0]
    box, whole = legend.get_window_extent(), figure.bbox
    assert box.x0 >= 0
    assert box.y0 >= 0
    assert box.x1 <= whole.x1
    assert box.y1 <= whole.y1
    plt.close(figure)


def test_runs_are_listed_with_all_that_differs():
    other = {"cohort_size": 0.5, "devices": "uniform", "deadline": {"seconds": 3.0}, "volatility": "always"}
    asked = [
        config.resolve({"data": "iris", "cohort_size": 5, "seeds": 1, "rounds": 1, **more}) for more in ({}, other)
    ]
    first, second = list_runs({name: (history([0], [0.5]), one) for name, one in zip("ab", asked, strict=True)})
    for there, both in (("no devices", "uniform"), ("cohort_size=5", "cohort_size=0.5"), ("no volatility", "always")):
        assert there in first
        assert both in second
    assert "'seconds': 3.0" in second


def test_a_run_that_a_callback_ended_is_not_compared_seed_by_seed_with_one_that_it_did_not():
    whole = history([0, 1], [0.5, 0.6])
    short = History(whole.seeds, {k: v[:, :2] for k, v in whole.metrics.items()}, whole.selections[:, :2], 10)
    table, said = compare_pairs({"a": (whole, CONFIG), "b": (short, CONFIG)})
    assert table is None
    assert said == ["2 is not compared with 1 seed by seed: it ran 2 rounds, 1 3"]


def with_costs(final, loss, sent):
    one = history([0, 1], final)
    costs = {name: np.zeros((2, 3)) for name in ("bytes_down", "selection_bytes_down", "selection_bytes_up")}
    more = {"loss": np.full((2, 3), loss), "bytes_up": np.full((2, 3), sent), "client_flops": np.ones((2, 3))}
    metrics = {**one.metrics, **costs, **more, "selection_flops": np.zeros((2, 3))}
    return History(one.seeds, metrics, one.selections, 10)


def rows_of(table):
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in text(table).splitlines() if "│" in line]


def test_runs_are_compared_by_the_last_value_of_any_metric_and_by_the_total_of_a_cost():
    runs = {"a": (with_costs([0.5, 0.7], 2.0, 1e3), CONFIG), "b": (with_costs([0.5, 0.8], 1.5, 4e3), CONFIG)}
    assert choose_metric(runs) == "accuracy"
    assert rows_of(compare_runs(runs, "loss"))[0][:2] == ["1", "2 ± 0"]
    assert rows_of(compare_runs(runs, "bytes"))[1][:2] == ["2", "1.2e+04 ± 0"]
    assert "target" not in text(compare_runs(runs, "loss"))
    table, _ = compare_pairs(runs, "bytes")
    assert rows_of(table)[0][:4] == ["2", "2", "+9000", "[+9000, +9000]"]
    assert "total bytes, difference from run 1" in text(table)
    assert rows_of(compare_pairs(runs, "loss")[0])[0][2] == "-0.5"
    (low, high) = stats.ttest_rel([0.5, 0.8], [0.5, 0.7]).confidence_interval(0.95)
    assert rows_of(compare_pairs(runs)[0])[0][2:4] == ["+0.0500", f"[{low:+.4f}, {high:+.4f}]"]


def test_runs_without_accuracy_are_compared_by_loss_and_an_unknown_metric_is_refused():
    one = with_costs([0.5, 0.7], 2.0, 1e3)
    values = {name: value for name, value in one.metrics.items() if name != "accuracy"}
    runs = {"a": (one, CONFIG), "b": (History(one.seeds, values, one.selections, 10), CONFIG)}
    assert choose_metric(runs) == "loss"
    with pytest.raises(ValueError, match=r"unknown metric of b: 'accuracy'.* There are: alive, .*loss"):
        choose_metric(runs, "accuracy")
    with pytest.raises(ValueError, match=r"unknown metric of a: 'byte'; did you mean 'bytes'\? There are: "):
        choose_metric(runs, "byte")


def spend(seeds, accuracy, bytes_a_round):
    """Each seed's accuracies, and bytes and FLOPs in each round, all bytes downwards."""
    accuracy = np.asarray(accuracy, float)
    down = np.broadcast_to(np.asarray(bytes_a_round, float), accuracy.shape)
    nothing = {name: np.zeros_like(down) for name in TOTALS["bytes"]}
    metrics = {**nothing, TOTALS["bytes"][0]: down, "accuracy": accuracy, "alive": np.ones_like(accuracy)}
    metrics |= {"loss": 1 - accuracy, "client_flops": down, "selection_flops": np.zeros_like(down)}
    return History(tuple(seeds), metrics, np.zeros((*accuracy.shape, 2), int), 10)


def test_runs_are_compared_when_each_seed_has_spent_what_the_first_run_spends():
    """Half of the first run's rounds cost 20 bytes in seed 0 and 30 in seed 1, which the second spends in 2 and 1."""
    first = spend([0, 1], [[0.1, 0.2, 0.3, 0.4], [0.2, 0.3, 0.4, 0.5]], [[10] * 4, [15] * 4])
    accuracy = [[0.6, 0.7, 0.8, 0.9], [np.nan, 0.55, np.nan, 0.9], [0.9] * 4]
    other = spend([1, 0, 7], accuracy, [[20] * 4, [9] * 4, [1] * 4])
    runs, said = limit_runs({"a": (first, CONFIG), "b": (other, CONFIG)}, read_budget("bytes=0.5"))
    assert not said
    np.testing.assert_array_equal(runs["a"][0].last("accuracy"), [0.2, 0.3])
    assert runs["b"][0].seeds == (1, 0)
    np.testing.assert_array_equal(runs["b"][0].last("accuracy"), [0.6, 0.55])
    np.testing.assert_array_equal(runs["b"][0].cumulative("bytes")[:, -1], [20, 18])
    table, _ = compare_pairs(runs)
    assert rows_of(table)[0][:3] == ["2", "2", "+0.3250"]
    by_rounds, _ = limit_runs({"a": (first, CONFIG), "b": (other, CONFIG)}, read_budget("rounds=0.75"))
    np.testing.assert_array_equal(by_rounds["b"][0].last("accuracy"), [0.8, 0.55])


def test_a_seed_that_diverged_before_it_was_evaluated_counts_as_diverged_within_a_budget_too():
    """It was left out before, so that the run looked finite; and no budget was large enough if all seeds had."""
    first = spend([0, 1], [[np.nan, 0.2, np.nan, 0.4]] * 2, 10)
    other = spend([0, 1], [[np.nan, 0.3, np.nan, 0.5], [np.nan] * 4], 10)
    other.metrics["alive"][1] = 0
    runs, said = limit_runs({"a": (first, CONFIG), "b": (other, CONFIG)}, read_budget("rounds=1"))
    assert not said
    assert runs["b"][0].seeds == (0, 1)
    assert runs["b"][0].diverged.tolist() == [0, 1]
    table, said = compare_pairs(runs, at_budget=True)
    assert (rows_of(table)[0][:3], said) == (
        ["2", "1", "+0.1000"],
        ["seeds that diverged in 1 or 2, left out of the difference: 1"],
    )
    other.metrics["alive"][0] = 0
    other.metrics["accuracy"][0] = np.nan
    runs, said = limit_runs({"b": (other, CONFIG), "a": (first, CONFIG)}, read_budget("bytes=1"))
    assert (runs["b"][0].diverged > 0).all()
    late = spend([0, 1], [[np.nan, np.nan, np.nan, 0.5]] * 2, 10)
    late.metrics["alive"][1, 3] = 0
    with pytest.raises(ValueError, match="c has no accuracy within rounds, 50 % of run 1"):
        limit_runs({"a": (first, CONFIG), "c": (late, CONFIG)}, read_budget("rounds=0.5"))


def test_what_a_budget_leaves_open_is_said():
    first = spend([0, 1], [[0.1, 0.2, 0.3]] * 2, 10)
    cheap, dear = spend([0, 1], [[0.4, 0.5, 0.6]] * 2, 1), spend([0, 1], [[0.4, 0.5, 0.6]] * 2, [[10] * 3, [40] * 3])
    runs, said = limit_runs({"a": (first, CONFIG), "b": (cheap, CONFIG), "c": (dear, CONFIG)}, read_budget("bytes=1"))
    assert said == [
        "2 spent less than the budget in 2 seeds; what it would have reached is not known, and it counts with what it "
        "reached",
        "3 has no accuracy within the budget in 1 seed, left out here; its mean is over the others, in which it may "
        "have spent less a round",
    ]
    assert runs["c"][0].seeds == (0,)
    beyond = spend([0, 1], [[0.4, 0.5, 0.6]] * 2, 99)
    with pytest.raises(ValueError, match="b has no accuracy within bytes, 100 % of run 1 in any seed that both have"):
        limit_runs({"a": (first, CONFIG), "b": (beyond, CONFIG)}, read_budget("bytes=1"))
    with pytest.raises(ValueError, match="a has no seconds, as its clients have no devices"):
        limit_runs({"a": (first, CONFIG)}, read_budget("seconds=1"))
    apart = spend([2, 3], [[0.4, 0.5, 0.6]] * 2, 10)
    with pytest.raises(ValueError, match="b has no seed of run 1, whose seeds have the budget"):
        limit_runs({"a": (first, CONFIG), "b": (apart, CONFIG)}, read_budget("bytes=1"))
    runs, _ = limit_runs({"a": (first, CONFIG), "c": (dear, CONFIG)}, read_budget("bytes=1"))
    _, said = compare_pairs(runs, at_budget=True)
    assert said == ["seeds that 1 has within its budget and 2 has not: 1"]


def test_a_target_that_lies_beyond_the_budget_is_not_never_reached():
    first, other = (spend([0, 1, 2], [[0.1, 0.2, best]] * 2 + [[0.1, 0.5, 0.6]], 10) for best in (0.6, 0.4))
    runs = {"a": (first, CONFIG), "b": (other, CONFIG)}
    assert [row[2] for row in rows_of(compare_runs(runs, target=0.5))] == ["3", ">3 (2 of 3 never)"]
    limited, _ = limit_runs(runs, read_budget("rounds=0.6"))
    shown = rows_of(compare_runs(limited, target=0.5, at_budget=True))
    assert [row[2:4] for row in shown] == [["beyond the budget (2 of 3 beyond the budget)", "beyond the budget"]] * 2


def test_a_budget_asks_for_the_metric_that_is_compared():
    """The clients were evaluated in round 3 alone, which one seed of the second run cannot afford."""
    first, dear = (spend([0, 1], [[0.1, 0.2, 0.3, 0.4]] * 2, cost) for cost in (10, [[10] * 4, [25] * 4]))
    clients = {"client_accuracy_mean": np.array([[np.nan, np.nan, 0.5, np.nan]] * 2)}
    runs = {
        name: (History(one.seeds, {**one.metrics, **clients}, one.selections, 10), CONFIG)
        for name, one in (("a", first), ("b", dear))
    }
    limited, said = limit_runs(runs, read_budget("bytes=1"), "client_accuracy_mean")
    assert limited["b"][0].seeds == (0,)
    assert said[0].startswith("1 was last evaluated 1 round before its budget was spent")
    assert said[1].startswith("2 has no client_accuracy_mean within the budget in 1 seed, left out here")
    assert len(limit_runs(runs, read_budget("bytes=1"), "bytes")[0]["b"][0].seeds) == 2


def test_a_seed_without_a_value_is_left_out_of_a_pair_and_named():
    """As of the accuracy on a class that a seed's test examples lack."""

    def run(*values):
        one = history([0, 1, 2], [0.5] * 3)
        own = np.tile(np.array(values)[:, None], (1, 3))
        return History(one.seeds, {**one.metrics, "class_accuracy_0": own}, one.selections, 10), CONFIG

    runs = {"a": run(np.nan, 0.25, 0.5), "b": run(np.nan, 0.5, 1.0), "c": run(np.nan, np.nan, np.nan)}
    table, said = compare_pairs(runs, "class_accuracy_0")
    assert [row[:3] for row in rows_of(table)] == [["2", "2", "+0.3750"]]
    assert said == [
        "seeds without a value of class_accuracy_0 in 1 or 2, left out of the difference: 0",
        "seeds without a value of class_accuracy_0 in 1 or 3, left out of the difference: 0, 1, 2",
        "3 is not compared with 1 seed by seed: no seed has a value of class_accuracy_0 in both",
    ]


def test_an_evaluation_that_lags_behind_the_budget_is_said():
    """The first run spends 40 bytes; the second, evaluated in every third round, was last so 1 and 0 rounds before."""
    first = spend([0, 1], [[0.1, 0.2, 0.3, 0.4]] * 2, 10)
    third = spend([0, 1], [[0.4, np.nan, np.nan, 0.7]] * 2, [[20, 20, 20, 20], [10] * 4])
    runs, said = limit_runs({"a": (first, CONFIG), "b": (third, CONFIG)}, read_budget("bytes=1"))
    assert said == [
        "2 was last evaluated 0 to 1 round before its budget was spent: what it had reached is of then, what it cost "
        "is of the whole budget; evaluate_every=1 is exact"
    ]
    np.testing.assert_array_equal(runs["b"][0].last("accuracy"), [0.4, 0.7])
    assert not list(list_intervals({"a": (first, CONFIG), "b": (first, CONFIG)}))
    (line,) = list_intervals({"a": (first, CONFIG), "b": (third, {**CONFIG, "evaluate_every": 3})})
    assert line.startswith("evaluated at different intervals of rounds (1 every 1, 2 every 3)")


def test_at_one_budget_runs_may_have_different_numbers_of_rounds():
    first, longer = spend([0, 1], [[0.1, 0.2]] * 2, 10), spend([0, 1], [[0.3, 0.4, 0.5, 0.6]] * 2, 6)
    runs = {"a": (first, CONFIG), "b": (longer, {**CONFIG, "rounds": 4})}
    table, said = compare_pairs(runs)
    assert (table, said) == (None, ["2 is not compared with 1 seed by seed: they differ in rounds"])
    limited, told = limit_runs(runs, read_budget("bytes=1"))
    table, said = compare_pairs(limited, at_budget=True)
    assert not told
    assert not said
    assert rows_of(table)[0][:3] == ["2", "2", "+0.3000"]


def test_losses_of_different_tasks_are_no_pair():
    focal = {**CONFIG, "task": {"loss": {"name": "focal"}}}
    runs = {name: (with_costs([0.5, 0.6], 0.3, 10.0), config) for name, config in (("a", CONFIG), ("b", focal))}
    assert compare_pairs(runs, "accuracy")[0] is not None
    assert compare_pairs(runs, "bytes")[0] is not None
    assert compare_pairs(runs, "loss") == (None, ["2 is not compared with 1 seed by seed: they differ in task"])


def test_a_picture_at_a_budget_has_the_rounds_that_all_seeds_can_afford():
    first = spend([0, 1], [[0.1, 0.2, 0.3, 0.4]] * 2, 10)
    dear = spend([0, 1], [[0.5, 0.6, 0.7, 0.8]] * 2, [[10] * 4, [15] * 4])
    runs, _ = limit_runs({"a": (first, CONFIG), "b": (dear, CONFIG)}, read_budget("bytes=1"))
    drawn = keep_common_rounds(runs["b"][0], "accuracy")["accuracy"]
    np.testing.assert_array_equal(drawn, [[0.5, 0.6, np.nan, np.nan]] * 2)
    spent = keep_common_rounds(runs["b"][0], "bytes")["bytes"]
    np.testing.assert_array_equal(spent, [[10, 10, np.nan, np.nan], [15, 15, np.nan, np.nan]])


def test_what_a_seed_that_diverged_would_have_spent_has_its_first_round_once():
    """Of 110 bytes in the first round, 100 come before it and do not come back."""
    spent = np.cumsum([[110.0] + [10.0] * 9] * 4 + [[10.0] * 10], axis=1)
    diverged = np.array([0, 2, 5, 1, 4])
    for row, end in zip(spent, diverged, strict=True):
        row[end or 10 :] = row[(end or 10) - 1]
    np.testing.assert_allclose(extrapolate_cost(spent, diverged), [200, 200, 200, 1100, 100])


def test_where_all_seeds_diverged_there_is_no_target():
    runs = {"a": (with_costs([np.nan, np.nan], 1.0, 1.0), CONFIG)}
    assert find_reachable_accuracy(runs) is None
    assert find_reachable_accuracy({**runs, "b": (with_costs([0.587, 0.7], 1.0, 1.0), CONFIG)}) == 0.58


def test_a_run_without_an_evaluation_sets_no_target():
    ended = with_costs([np.nan, np.nan], 1.0, 1.0)
    ended = replace(ended, metrics={**ended.metrics, "alive": np.ones((2, 3))})  # a callback ended it early
    assert find_reachable_accuracy({"a": (ended, CONFIG)}) is None
    whole = with_costs([0.587, 0.7], 1.0, 1.0)
    assert find_reachable_accuracy({"a": (ended, CONFIG), "b": (whole, CONFIG)}) == 0.58


def test_a_seed_that_diverges_after_the_budget_counts_with_what_it_had():
    one = spend([0, 1], [[0.1, 0.2, 0.3, np.nan], [0.2, 0.3, 0.4, 0.5]], 10)
    alive = np.array([[1.0, 1, 1, 0], [1, 1, 1, 1]])
    one = History(one.seeds, {**one.metrics, "alive": alive}, one.selections, 10)
    runs, said = limit_runs({"a": (one, CONFIG)}, read_budget("rounds=0.5"))
    np.testing.assert_array_equal(runs["a"][0].last("accuracy"), [0.2, 0.3])
    assert not runs["a"][0].diverged.any()
    assert not said
    assert not limit_runs({"a": (one, CONFIG)}, read_budget("rounds=1"))[1], "a seed that ended lacks no evaluation"


def test_the_first_run_spends_all_of_its_own_budget():
    cost = np.random.default_rng(0).random((200, 50))
    nothing = {name: np.zeros_like(cost) for name in TOTALS["bytes"]}
    metrics = {**nothing, TOTALS["bytes"][0]: cost, "alive": np.ones_like(cost)}
    metrics["accuracy"] = np.tile(np.arange(50.0), (200, 1))
    one = History(tuple(range(200)), metrics, np.zeros((200, 50, 2), int), 10)
    for share in (0.3, 0.5, 1.0):
        runs, said = limit_runs({"a": (one, CONFIG)}, read_budget(f"bytes={share}"))
        np.testing.assert_array_equal(runs["a"][0].last("accuracy"), round(50 * share) - 1)
        assert len(said) == 0


def test_a_run_whose_equal_cost_is_rounded_otherwise_spends_the_budget_exactly():
    """Joules are sums of float32, in the order of a cohort: one round more or less would be due to that alone."""
    first = spend([0, 1], [[0.1, 0.2, 0.3]] * 2, 10)
    for factor in (1 - 5e-8, 1 + 5e-8):
        other = spend([0, 1], [[0.4, 0.5, 0.6]] * 2, 10 * factor)
        runs, said = limit_runs({"a": (first, CONFIG), "b": (other, CONFIG)}, read_budget("bytes=1"))
        np.testing.assert_array_equal(runs["b"][0].last("accuracy"), 0.6)
        assert len(said) == 0


@pytest.mark.parametrize("text", ["byte=0.5", "bytes", "bytes=0", "bytes=1.5", "bytes=half", "bytes=nan"])
def test_a_budget_that_is_none_is_refused(text):
    with pytest.raises(ValueError, match=r"did you mean 'bytes'|give a share above 0 and at most 1, as in bytes=0\.5"):
        read_budget(text)


def test_accuracy_is_compared_only_with_accuracy():
    usual = {**CONFIG, "task": {"loss": None, "metrics": None}}
    named = {**CONFIG, "task": {"loss": None, "metrics": {"accuracy": {"name": "accuracy"}}}}
    other = {**CONFIG, "task": {"loss": None, "metrics": {"accuracy": {"name": "f1", "average": "macro"}}}}
    one, two = history([0, 1], [0.5, 0.6]), history([0, 1], [0.6, 0.8])
    assert compare_pairs({"a": (one, usual), "b": (two, named)})[0] is not None
    table, said = compare_pairs({"a": (one, usual), "b": (two, other)})
    assert table is None
    assert said == ["2 is not compared with 1 seed by seed: they differ in task"]


def test_runs_are_listed_with_other_models_partitions_and_parameters_of_data():
    more = {"model": "mlp", "partition": {"name": "dirichlet", "clients": 7}, "data": {"name": "iris", "test": 0.5}}
    asked = [config.resolve({"data": "iris", "model": "logistic", "seeds": 1, **one}) for one in ({}, more)]
    first, second = list_runs({name: (history([0], [0.5]), one) for name, one in zip("ab", asked, strict=True)})
    for there, both in (("logistic", "mlp"), ("iid", "dirichlet(clients=7)"), ("test=0.2", "test=0.5")):
        assert there in first
        assert both in second


def test_seeds_that_diverged_are_not_beyond_a_budget():
    one = spend([0, 1, 2], [[0.1, 0.2, 0.3]] * 2 + [[0.1, 0.5, 0.6]], 10)
    alive = np.array([[1, 0, 0]] * 2 + [[1, 1, 1]])
    one = History(one.seeds, {**one.metrics, "alive": alive}, one.selections, one.num_clients)
    shown = rows_of(compare_runs({"a": (one, CONFIG)}, target=0.5, at_budget=True))
    assert [row[2:4] for row in shown] == [[">3 (2 of 3 never)", "never"]]


def test_the_spread_of_losses_beyond_the_squares_of_float32_is_a_number():
    assert format_spread(np.array([1e28, 3e28, np.nan], np.float32), "loss") == "2e+28 ± 1.414e+28"
