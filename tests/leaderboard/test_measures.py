import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fedjax_sel.engine.history import History
from fedjax_sel.leaderboard import statistics
from fedjax_sel.leaderboard.cells import FAILED, FINISHED, LEFT_OUT, Cell
from fedjax_sel.leaderboard.figures import list_figures
from fedjax_sel.leaderboard.findings import FEWEST_SEEDS, JUDGES, NotJudged, judge_predictions, read_predictions
from fedjax_sel.leaderboard.known import join_known
from fedjax_sel.leaderboard.measures import (
    CHOICE,
    ROUNDS_TO,
    build_tidy,
    find_limit,
    find_target,
    measure,
    measure_under,
)
from fedjax_sel.leaderboard.page import list_tables, render_html, render_markdown
from fedjax_sel.leaderboard.scales import PRIMARY, Budget
from fedjax_sel.leaderboard.scores import list_gains, select, take_block
from fedjax_sel.leaderboard.statistics import interquartile_means
from fedjax_sel.leaderboard.tables import (
    show_estimate,
    tabulate_budgets,
    tabulate_counts,
    tabulate_gains,
    tabulate_groups,
    tabulate_mean_gains,
    tabulate_ranking,
    tabulate_unfinished,
    tabulate_variants,
)
from fedjax_sel.metrics import last_mean
from fedjax_sel.papers.measures import settle, settle_history

ROUNDS, CLIENTS = 10, 4
NASTY = "<script>alert(1)</script>|x"


def make_labels(seeds):
    """Two classes for four clients: 10 and 30 examples of one, 20 and 40 of the other."""
    return np.tile(np.array([[10, 0], [0, 20], [30, 0], [0, 40]]), (seeds, 1, 1))


LABELS = make_labels(3)


def make_history(final, bytes_a_round=10.0, seeds=3):
    """A run whose accuracy rises to `final` in a line, and whose cohort is clients 0 and 1 in every round."""
    curve = np.linspace(0.1, 1.0, ROUNDS)[None] * (final + 0.01 * np.arange(seeds)[:, None])
    flat = np.ones((seeds, ROUNDS))
    metrics = {
        "accuracy": curve,
        "bytes_down": flat * bytes_a_round / 2,
        "bytes_up": flat * bytes_a_round / 2,
        "selection_bytes_down": flat * 0,
        "selection_bytes_up": flat * 0,
        "client_flops": flat,
        "selection_flops": flat * 0,
    }
    selections = np.tile(np.array([0, 1], np.int32), (seeds, ROUNDS, 1))
    return History(tuple(range(seeds)), metrics, selections, CLIENTS, {"classes": 4})


def make_cells(finals, federations=("one", "two"), seeds=3):
    return [
        Cell(federation, selector, FINISHED, history=make_history(final + shift, seeds=seeds))
        for shift, federation in zip((0.0, 0.1), federations, strict=True)
        for selector, final in finals.items()
    ]


@pytest.fixture(autouse=True)
def _few_draws(monkeypatch):
    """Intervals of fewer resamples, so that tables are quick."""
    monkeypatch.setattr(statistics.bootstrap, "__defaults__", (100, 0))


@pytest.fixture(scope="module")
def tidy():
    cells = make_cells({"uniform": 0.5, "better": 0.6, "equal": 0.5, NASTY: 0.4})
    return build_tidy(cells, {"one": LABELS, "two": LABELS})


@pytest.fixture(scope="module")
def of_ten():
    """The same with as many seeds as it takes to name a winner."""
    cells = make_cells({"uniform": 0.5, "better": 0.6, "equal": 0.5, NASTY: 0.4}, seeds=FEWEST_SEEDS)
    return build_tidy(cells, dict.fromkeys(("one", "two"), make_labels(FEWEST_SEEDS)))


def test_a_budget_is_what_the_baseline_spends_and_dear_rounds_are_cut_off():
    baseline, dear = make_history(0.5), make_history(0.5, bytes_a_round=25.0)
    accuracy, ended = measure_under(dear, baseline, Budget("bytes", 0.5))  # 50 bytes: two rounds of 25
    np.testing.assert_allclose(accuracy, dear["accuracy"][:, 1])
    assert not ended.any()


def test_a_seed_that_diverged_counts_as_guessing_from_then_on():
    """It costs nothing after round 4, which must not look like a run that ended before it spent its budget."""
    baseline, wild = make_history(0.5), make_history(0.9)
    alive, charged = np.ones((2, 3, ROUNDS), bool)
    alive[1, 3:] = charged[1, 4:] = False  # the round in which it diverges is charged
    metrics = {name: np.where(charged, value, 0) for name, value in wild.metrics.items()}
    metrics["accuracy"] = np.where(alive, wild["accuracy"], np.nan)
    wild = replace(wild, metrics={**metrics, "alive": alive})
    accuracy, ended = measure_under(wild, baseline, Budget("bytes", 0.5))
    expected = make_history(0.9)["accuracy"][:, 4]
    np.testing.assert_allclose(accuracy, [expected[0], 0.25, expected[2]])
    assert not ended.any()
    np.testing.assert_allclose(settle(wild)[1], [*wild["accuracy"][1, :3], *[0.25] * 7])
    areas = {name: value for name, _, value, _ in measure(wild, baseline, LABELS)}["area under the curve"]
    np.testing.assert_allclose(areas[1], settle(wild)[1].mean())
    told = {"client_accuracy_mean": wild["accuracy"], "client_accuracy_spread": wild["accuracy"]}
    wild = replace(wild, metrics={**wild.metrics, **told, "selection_bytes_up": np.where(charged, 1.0, 0.0)})
    found = {name: value for name, budget, value, _ in measure(wild, baseline, LABELS) if not budget}
    np.testing.assert_allclose(found["bytes of the run"], [110] * 3)
    np.testing.assert_allclose(found["selection bytes"], [10] * 3)
    assert (found["mean over clients"][1], found["spread over clients"][1]) == (0.25, 0.0)


def test_papers_count_a_seed_that_diverged_as_guessing_and_change_no_other():
    wild = make_history(0.5)
    alive = np.ones((3, ROUNDS))
    alive[1, 3:] = 0
    accuracy = np.where(alive > 0, wild["accuracy"], np.nan)
    settled = settle_history(replace(wild, metrics={**wild.metrics, "alive": alive, "accuracy": accuracy}))
    np.testing.assert_allclose(
        last_mean(settled["accuracy"], 2),
        [*last_mean(wild["accuracy"][:1], 2), 0.25, *last_mean(wild["accuracy"][2:], 2)],
    )
    assert settle_history(wild) is wild


def test_where_the_baseline_diverged_others_have_the_budget_that_it_would_have_spent():
    """Its seed 1 is gone from round 3 on, after three rounds of ten bytes; at half of its rounds it would have 50."""
    whole, alive = make_history(0.5), np.ones((3, ROUNDS), bool)
    alive[1, 2:] = False
    spends = np.array([[True] * 10, [True] * 3 + [False] * 7, [True] * 10])
    metrics = {name: np.where(spends, value, 0) for name, value in whole.metrics.items()}
    baseline = replace(
        whole, metrics={**metrics, "accuracy": np.where(alive, whole["accuracy"], np.nan), "alive": alive}
    )
    for share in (0.2, 0.5, 1.0):
        np.testing.assert_allclose(find_limit(baseline, Budget("bytes", share)), 100 * share)
    accuracy, ended = measure_under(make_history(0.9), baseline, Budget("bytes", 0.5))
    np.testing.assert_allclose(accuracy, make_history(0.9)["accuracy"][:, 4])
    assert not ended.any()
    assert find_target(baseline) == np.median([whole["accuracy"][0, 4], 0.25, whole["accuracy"][2, 4]])


def test_intervals_of_accuracy_over_uniforms_are_of_both(of_ten):
    """The baseline's own ratio has an interval from the curvature of the mean alone, as it is resampled with itself."""
    block = take_block(of_ten, PRIMARY)
    place = block.selectors.index("uniform")
    found = statistics.bootstrap(lambda values: block.over_baseline(values).mean(axis=(1, 2)), block.values)
    np.testing.assert_allclose([found.low[place], found.high[place]], 1, atol=1e-12)
    np.testing.assert_allclose(found.point, block.relative.mean(axis=(1, 2)))
    middle = statistics.bootstrap(lambda values: interquartile_means(block.over_baseline(values)), block.values)
    (row,) = [row for row in tabulate_ranking(of_ten).rows if row[0] == "uniform"]
    assert row[2] == show_estimate(middle, place, 3)
    known = statistics.bootstrap(interquartile_means, block.relative)
    assert row[2] != show_estimate(known, place, 3), "as if uniform's mean were known"


def test_of_an_earlier_leaderboard_only_cells_that_ran_here_are_replaced(tidy):
    """What is left out or failed here, and times that the folder keeps of cells that did not run."""
    names = [(one, name) for one in ("one", "two") for name in ("uniform", "better")]
    earlier = [Cell(*name, FINISHED, seconds=1.0) for name in names]
    numbers = tidy[tidy["selector"].isin(["uniform", "better"])]
    cells = [
        Cell("one", "better", FINISHED, seconds=2.0),
        Cell("two", "uniform", LEFT_OUT, "no data"),
        Cell("two", "better", FAILED, "why"),
        Cell("three", "new", LEFT_OUT, "no data"),
    ]
    mine = numbers[(numbers["federation"] == "one") & (numbers["selector"] == "better")].assign(value=7.0)
    stored = mine.iloc[:1].assign(selector="uniform", measure="microseconds a choice")
    joined, found = join_known(cells, pd.concat([mine, stored]), (earlier, numbers))
    assert [(one.federation, one.selector, one.status, one.seconds) for one in joined] == [
        ("one", "uniform", FINISHED, 1.0),
        ("one", "better", FINISHED, 2.0),
        ("two", "uniform", FINISHED, 1.0),
        ("two", "better", FAILED, 0.0),
        ("three", "new", LEFT_OUT, 0.0),
    ]
    parts = {name: frame["value"].to_numpy() for name, frame in found.groupby(["federation", "selector"])}
    assert set(parts) == {("one", "uniform"), ("one", "better"), ("two", "uniform")}
    assert (parts["one", "better"] == 7).all()
    for one in ("one", "two"):
        before = numbers[(numbers["federation"] == one) & (numbers["selector"] == "uniform")]["value"]
        np.testing.assert_array_equal(parts[one, "uniform"], before)


def test_times_of_choices_in_a_table_are_of_one_machine_and_federation(tidy):
    def of(name, federation, value):
        return tidy.iloc[:1].assign(selector=name, federation=federation, measure=CHOICE, value=value)

    earlier = [Cell("one", name, FINISHED) for name in ("uniform", "better")]
    numbers = pd.concat([tidy[tidy["selector"].isin(["uniform", "better"])], of("uniform", "one", 1.0)])
    cells = [Cell(one, name, FINISHED) for one in ("one", "two") for name in ("uniform", "new")]
    mine = [of(cell.selector, cell.federation, 7.0) for cell in cells]
    _, found = join_known(cells, pd.concat(mine), (earlier, numbers))
    times = found[found["measure"] == CHOICE].set_index(["federation", "selector"])["value"].to_dict()
    assert times == {("one", "uniform"): 1, ("one", "new"): 7}


def test_a_first_round_that_nobody_can_afford_counts_as_guessing():
    accuracy, _ = measure_under(make_history(0.9, bytes_a_round=1e9), make_history(0.5), Budget("bytes", 0.5))
    np.testing.assert_allclose(accuracy, 0.25)


def test_a_run_that_ends_with_budget_left_is_a_lower_bound():
    accuracy, ended = measure_under(make_history(0.5, bytes_a_round=4.0), make_history(0.5), Budget("bytes", 0.5))
    assert ended.all()
    np.testing.assert_allclose(accuracy, [0.5, 0.51, 0.52])


def test_a_target_that_is_never_reached_is_censored(tidy):
    found = tidy[(tidy["measure"] == "rounds to target") & (tidy["federation"] == "one")].set_index("selector")
    assert find_target(make_history(0.5)) == pytest.approx(0.255)
    assert found.loc["better", "value"].tolist() == [5, 5, 5]
    assert not found.loc["better", "censored"].any()
    never = build_tidy(
        [
            Cell("one", "uniform", FINISHED, history=make_history(0.5)),
            Cell("one", "worst", FINISHED, history=make_history(0.1)),
        ],
        {"one": LABELS},
    )
    worst = never[(never["measure"] == "rounds to target") & (never["selector"] == "worst")]
    assert (worst["value"] == ROUNDS).all()
    assert worst["censored"].all()


def test_participation_is_that_of_the_cohorts(tidy):
    mine = tidy[(tidy["federation"] == "one") & (tidy["selector"] == "uniform") & (tidy["seed"] == 0)]
    value = mine.set_index("measure")["value"]
    assert value["coverage"] == 0.5
    assert value["Jain's index"] == pytest.approx(0.5)
    assert value["relative size"] == pytest.approx(15 / 25)
    p = np.array([10, 20]) / 30
    assert value["label divergence"] == pytest.approx((p * np.log(p / np.array([0.4, 0.6]))).sum())


def test_gains_are_paired_and_a_cell_without_its_baseline_has_none(tidy):
    gain = list_gains(tidy, PRIMARY)["better", "one"]
    assert gain.mean == pytest.approx(0.1 * 0.5)
    assert gain.high - gain.low == pytest.approx(0, abs=1e-9)
    alone = build_tidy([Cell("one", "better", FINISHED, history=make_history(0.5))], {"one": LABELS})
    assert alone.empty


def test_the_mean_gain_is_scipys_paired_test_with_holms_correction(tidy):
    rng = np.random.default_rng(5)
    noisy = tidy[tidy["selector"] != NASTY].copy()
    noisy["value"] += rng.normal(0, 0.02, len(noisy))
    wide = select(noisy, "accuracy", PRIMARY.name)
    uniform, *others = (wide.loc[name].mean(axis=0) for name in ("uniform", "better", "equal"))
    found = [stats.ttest_rel(other, uniform) for other in others]
    gap, interval = 100 * (others[0] - uniform).mean(), found[0].confidence_interval()
    small, large = sorted(one.pvalue for one in found)
    table = tabulate_mean_gains(noisy)
    column = table.columns.index(PRIMARY.name)
    half = 50 * (interval.high - interval.low)
    assert table.rows[0][:1] + table.rows[0][column : column + 1] == ("better", f"{gap:+.1f} ± {half:.1f} *")
    assert [row[-1] for row in table.rows] == [f"{2 * small:.2g}", f"{max(2 * small, large):.2g}"]


def test_a_selector_that_lacks_a_federation_is_not_ranked_and_the_page_says_so(tidy):
    part = tidy[~((tidy["selector"] == "better") & (tidy["federation"] == "two"))]
    assert take_block(part, PRIMARY).missing == ("better",)
    assert "a federation lacks them: better" in tabulate_ranking(part).note


def test_equal_selectors_have_no_winner(of_ten):
    both = of_ten[of_ten["selector"].isin(["uniform", "equal"])]
    assert tabulate_ranking(both).note.startswith("No winner: the mean ranks of 2 selectors are indistinguishable")
    assert tabulate_ranking(of_ten).note.startswith("better has the best mean rank")


def test_few_seeds_or_one_selector_have_no_winner_and_no_bootstrap_interval(tidy, of_ten):
    table = tabulate_ranking(tidy)
    assert table.note.startswith("Seeds: 3; with fewer than 10, no winner is named")
    assert not any("[" in cell for row in table.rows for cell in row)
    alone = of_ten[of_ten["selector"] == "uniform"]
    assert tabulate_ranking(alone).note.startswith("Only uniform is ranked.")


def test_selectors_ahead_are_counted_with_and_without_holms_correction():
    """Of twenty gains with the same small p, some 0.01, none remains; one that is certain does."""
    rng, seeds, names = np.random.default_rng(0), 10, [f"some{i}" for i in range(19)]
    apart = rng.normal(size=seeds)
    apart = 0.01 * (apart - apart.mean()) / apart.std(ddof=1) + 0.0104  # t = 3.3 with 9 degrees of freedom
    rows = [("uniform", np.zeros(seeds)), ("sure", np.linspace(0.5, 0.51, seeds)), *((name, apart) for name in names)]
    tidy = pd.DataFrame(
        [
            ("one", name, seed, "accuracy", PRIMARY.name, 0.4 + value, False)
            for name, values in rows
            for seed, value in enumerate(values)
        ],
        columns=["federation", "selector", "seed", "measure", "budget", "value", "censored"],
    )
    (row,) = tabulate_counts(tidy).rows
    p = 2 * stats.ttest_1samp(apart, 0, alternative="greater").pvalue
    assert 0.05 / 20 < p < 0.05
    assert row == (PRIMARY.name, "20", "1", "sure", "0", "0", "0")
    found = {row[0]: row[1] for row in tabulate_mean_gains(tidy).rows}
    assert found["sure"].endswith(" **")
    assert found["some0"].endswith(" *")


def test_gains_by_groups_are_shown_at_equal_bytes_and_after_all_rounds(tidy):
    titles = [table.title for table in list_tables(tidy, [], [])]
    for budget in ("bytes, 50 %", "rounds, 100 %"):
        assert f"Mean gain over uniform at equal {budget}, by groups of federations" in titles


def test_a_gain_that_hangs_on_one_federation_is_shown_without_it():
    values = {("digits", "good"): 0.2, ("fashion-skew-80", "good"): 0.0, ("fashion-one-shard", "good"): -0.1}
    tidy = pd.DataFrame(
        [
            (federation, name, seed, "accuracy", PRIMARY.name, 0.5 + values.get((federation, name), 0.0), False)
            for federation in ("digits", "fashion-skew-80", "fashion-one-shard")
            for name in ("uniform", "good")
            for seed in range(3)
        ],
        columns=["federation", "selector", "seed", "measure", "budget", "value", "censored"],
    )
    table = tabulate_groups(tidy, PRIMARY)
    assert table.columns[1:] == ("all (3)", "digits (1)", "fashion (2)", "without one", "which")
    (row,) = table.rows
    assert [cell.split(" ")[0] for cell in row[1:5]] == ["+3.3", "+20.0", "-5.0", "-5.0"]
    assert row[5] == "digits"


def test_a_run_that_ends_before_its_budget_is_marked_in_the_tables():
    cells = [
        Cell("one", "uniform", FINISHED, history=make_history(0.5)),
        Cell("one", "frugal", FINISHED, history=make_history(0.5, bytes_a_round=1.0)),
    ]
    table = tabulate_budgets(build_tidy(cells, {"one": LABELS}))
    column = table.columns.index("bytes, 50 %")
    assert [row[column].endswith("†") for row in table.rows] == [False, True]
    gains = tabulate_gains(build_tidy(cells, {"one": LABELS}), Budget("bytes", 0.5))
    assert [row[1].endswith("†") for row in gains.rows] == [True]


def test_runs_with_more_rounds_are_compared_where_the_selectors_own_end_before_the_budget():
    """In points over uniform's 50 at half of its spending: 10 for the selector, 20 with more rounds."""
    finals = {"uniform": 0.5, "oort": 0.6, "oort_longer": 0.7, "hics_fl": 0.4, "hics_fl_half": 0.5}
    tidy = pd.DataFrame(
        [
            ("digits", name, seed, "accuracy", budget, final, name == "oort" and not budget.startswith("bytes"))
            for name, final in finals.items()
            for budget in ("bytes, 50 %", "bytes, 20 %", "seconds, 50 %", "joules, 50 %")
            for seed in range(3)
        ],
        columns=["federation", "selector", "seed", "measure", "budget", "value", "censored"],
    )
    rows = [[row[0], row[2], *(cell.split(" ")[0] for cell in row[4:])] for row in tabulate_variants(tidy).rows]
    assert rows == [
        ["hics_fl_half", "bytes, 50 %", "+0.0", "-10.0", "+10.0"],
        ["hics_fl_half", "bytes, 20 %", "+0.0", "-10.0", "+10.0"],
        ["oort_longer", "seconds, 50 %", "+20.0", "+10.0", "+10.0"],
        ["oort_longer", "joules, 50 %", "+20.0", "+10.0", "+10.0"],
    ]


def test_users_text_is_escaped_in_both_pages(tidy):
    cells = [Cell("one", NASTY, FAILED, f"RuntimeError: {NASTY}")]
    findings = judge_predictions(tidy, STUDIES)
    tables = list_tables(tidy, cells, findings)
    text = render_markdown("head", tables, [], {"commit": NASTY})
    assert "<script>" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;\\|x" in text
    pytest.importorskip("great_tables", reason="HTML is made by great-tables")
    page = render_html(f"head {NASTY}", tables, [], {"commit": NASTY})
    assert "<script>" not in page
    assert page.count("&lt;script&gt;") > 5
    assert page == render_html(f"head {NASTY}", tables, [], {"commit": NASTY})
    ids = re.findall(r'<div id="([^"]+)"', page)
    assert len(set(ids)) == len(ids) == len(tables)


def test_every_figure_is_drawn(tidy):
    names = []
    for figure in list_figures(tidy):
        drawn = figure.draw()
        drawn.canvas.draw()
        names.append(figure.name)
        drawn.clear()
    assert names == ["gains", "front", "profiles", "critical"]


@pytest.mark.parametrize(("seeds", "drawn"), [(9, False), (10, True)])
def test_intervals_of_the_front_need_enough_seeds(seeds, drawn):
    cells = [
        Cell("one", name, FINISHED, history=make_history(accuracy, seeds=seeds))
        for name, accuracy in (("uniform", 0.5), ("other", 0.6))
    ]
    (front,) = [one for one in list_figures(build_tidy(cells, {"one": make_labels(seeds)})) if one.name == "front"]
    assert ("Grey bars" in front.caption) == drawn
    bars = [c for c in front.draw().axes[0].collections if type(c).__name__ == "LineCollection"]
    assert bool(bars) == drawn


def test_an_empty_leaderboard_says_what_is_missing():
    cells = [Cell("one", name, FAILED, "no data") for name in ("uniform", "oort")]
    tables = list_tables(build_tidy(cells, {}), cells, judge_predictions(pd.DataFrame(build_tidy([], {})), STUDIES))
    assert tables[0].rows == (("one", "all", "failed", "no data"),)
    assert tabulate_unfinished(cells).rows == tables[0].rows


STUDIES = {
    "volatile": {
        "rounds": 2500,
        "turns": 50_000,
        "methods": {"uniform": {"successes": [23_740, 23_760]}, "oracle": {"successes": [45_000, 45_010]}},
    }
}


def test_every_prediction_has_its_judge_and_a_small_leaderboard_judges_none(tidy):
    assert set(JUDGES) == set(read_predictions())
    found = {one.id: one for one in judge_predictions(tidy, STUDIES)}
    assert found["volatile-expectations"].verdict == "held"
    assert {found[name].verdict for name in found if name != "volatile-expectations"} == {"not judged"}
    assert "4 selectors on 2 federations with 3 seeds" in found["controls"].reason


@pytest.mark.parametrize(
    ("successes", "verdict"),
    [([23_750, 23_750], "held"), ([23_700, 23_800], "undecided"), ([23_000, 23_001], "did not hold")],
)
def test_an_expectation_holds_within_a_hundredth(tidy, successes, verdict):
    """An interval that is wide enough to hold everything shows nothing."""
    uniform = {"volatile": STUDIES["volatile"] | {"methods": {"uniform": {"successes": successes}}}}
    uniform["volatile"]["methods"]["oracle"] = STUDIES["volatile"]["methods"]["oracle"]
    (found,) = [one for one in judge_predictions(tidy, uniform) if one.id == "volatile-expectations"]
    assert found.verdict == verdict


def test_predictions_are_judged_by_the_numbers():
    names = [f"f{i}" for i in range(6)]
    cells = []
    for f, name in enumerate(names):
        for selector, final in {"uniform": 0.5, "round_robin": 0.5, "oort": 0.6, "a": 0.4, "b": 0.3}.items():
            cells.append(Cell(name, selector, FINISHED, history=make_history(final + 0.01 * f, seeds=10)))
    found = {
        one.id: one for one in judge_predictions(build_tidy(cells, dict.fromkeys(names, make_labels(10))), STUDIES)
    }
    assert found["controls"].statistic == {"of": 4, "beat it": 1, "undecided": 1, "which": ["oort"]}
    assert found["controls"].verdict == "undecided"  # the one that is undecided could make it half
    assert found["stable-budgets"].statistic["Kendall's tau with equal rounds"]["bytes"] == pytest.approx(1)
    assert found["stable-federations"].verdict == "did not hold"
    assert found["oort-coverage"].statistic["coverage"]["f0"] == pytest.approx(0.5)
    assert found["tuned-random"].reason == "no selector was tuned"


@pytest.mark.parametrize(
    ("gains", "verdict", "wins", "possible"),
    [
        ([0.1, 0.1, 0.1, 0.1, -0.1, -0.1], "did not hold", 4, 4),
        ([0.1, 0.1, 0.1, -0.1, -0.1, -0.1], "held", 3, 3),
        ([0.1, 0.1, 0.1, 0.0, -0.1, -0.1], "undecided", 3, 4),
    ],
)
def test_the_prediction_on_tuned_selectors_is_undecided_where_intervals_could_tip_it(gains, verdict, wins, possible):
    rng = np.random.default_rng(3)
    noise = rng.normal(size=10)
    rows = []
    for f, gain in enumerate(gains):
        for name in ("uniform", "a", "b", "c", "d"):
            shift = gain if name == "a" else -0.2 if name != "uniform" else 0.0
            spread = noise - noise.mean() if name == "a" else np.zeros(10)
            values = 0.5 + shift + 0.01 * spread
            rows += [(f"f{f}", f"{name} (tuned)", seed, "accuracy", "flops, 50 %", values[seed]) for seed in range(10)]
    tidy = pd.DataFrame(rows, columns=pd.Index(["federation", "selector", "seed", "measure", "budget", "value"]))
    found, statistic = JUDGES["tuned-random"](tidy.assign(censored=False), {})
    assert (found, statistic["most wins"], statistic["most not excluded"]) == (verdict, wins, possible)
    assert statistic["by"] == ["a (tuned)"]


@pytest.mark.parametrize(("noise", "verdict"), [(0.0, "did not hold"), (0.5, "undecided"), (None, "held")])
def test_the_prediction_on_federations_is_undecided_where_the_interval_contains_its_bound(noise, verdict):
    rng = np.random.default_rng(0)
    rows = []
    for f in range(6):
        order = np.arange(6) if noise is not None else rng.permutation(6)
        for k in range(6):
            values = 0.1 * order[k] + (noise or 0.0) * rng.normal(size=10)
            rows += [(f"f{f}", f"s{k}", seed, "accuracy", "bytes, 50 %", values[seed]) for seed in range(10)]
    tidy = pd.DataFrame(rows, columns=pd.Index(["federation", "selector", "seed", "measure", "budget", "value"]))
    found, _ = JUDGES["stable-federations"](tidy.assign(censored=False), {})
    assert found == verdict


def test_the_prediction_on_budgets_is_not_judged_without_the_same_selectors_under_both():
    rows = [
        (f"f{f}", f"s{k}", seed, "accuracy", f"{kind}, 50 %", 0.1 * k + 0.01 * seed)
        for kind, count in (("rounds", 6), ("bytes", 5), ("flops", 6))
        for f in range(5)
        for k in range(count)
        for seed in range(10)
    ]
    tidy = pd.DataFrame(rows, columns=pd.Index(["federation", "selector", "seed", "measure", "budget", "value"]))
    with pytest.raises(NotJudged, match="other selectors or federations are finished"):
        JUDGES["stable-budgets"](tidy.assign(censored=False), {})


def test_a_target_that_the_baseline_was_not_evaluated_for_is_reached_by_nobody():
    baseline = make_history(0.5)
    baseline.metrics["accuracy"][:, : ROUNDS // 2] = np.nan
    assert np.isnan(find_target(baseline))
    ((value, open_end),) = [row[2:] for row in measure(make_history(0.9), baseline, LABELS) if row[0] == ROUNDS_TO]
    np.testing.assert_array_equal(value, ROUNDS)
    assert np.all(open_end)
