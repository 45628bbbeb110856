"""The committed leaderboard is what today's code computes, and pages say no more than it shows."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedjax_sel.config import build, resolve
from fedjax_sel.leaderboard.cells import configure
from fedjax_sel.leaderboard.federations import FEDERATIONS
from fedjax_sel.leaderboard.findings import judge_predictions
from fedjax_sel.leaderboard.scales import ALL_ROUNDS, BUDGETS, KINDS, SCALES, Budget
from fedjax_sel.leaderboard.scores import (
    correct,
    find_ended,
    group_gains,
    leave_out_variants,
    list_gains,
    mean_gains,
    select,
    take_block,
)
from fedjax_sel.leaderboard.selectors import SELECTORS
from fedjax_sel.metrics import difference
from fedjax_sel.runs.files import to_jsonable

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "benchmarks" / "results" / "leaderboard-small"


@pytest.fixture(scope="module")
def summary():
    return json.loads((FOLDER / "leaderboard.json").read_text())


@pytest.fixture(scope="module")
def every():
    return pd.read_parquet(FOLDER / "leaderboard.parquet")


@pytest.fixture(scope="module")
def tidy(every):
    """What is ranked."""
    return leave_out_variants(every)


def read_page(name):
    return " ".join((ROOT / name).read_text().split())


@pytest.mark.parametrize("selector", ["uniform", "oort"])
def test_a_cell_that_is_run_again_comes_to_the_same_accuracy(tidy, selector):
    """After half of the rounds, within two of the 360 test examples."""
    config = configure(FEDERATIONS["digits"], SELECTORS[selector], SCALES["small"], [3], rounds=50)
    accuracy = build(resolve(config)).simulate()["accuracy"][:, -1]
    mine = tidy[(tidy["federation"] == "digits") & (tidy["selector"] == selector) & (tidy["seed"] == 3)]
    (committed,) = mine[(mine["measure"] == "accuracy") & (mine["budget"] == Budget("rounds", 0.5).name)]["value"]
    np.testing.assert_allclose(accuracy, committed, atol=2.1 / 360)


def test_the_predictions_are_judged_as_they_were(summary, tidy):
    assert to_jsonable([vars(one) for one in judge_predictions(tidy, summary["studies"])]) == summary["findings"]


def test_the_first_page_says_what_the_table_says(summary, tidy):
    page, found = read_page("README.md"), {one["id"]: one for one in summary["findings"]}
    beaten = found["controls"]["statistic"]
    behind = beaten["of"] - beaten["beat it"] - beaten["undecided"]
    assert f"At half of uniform's bytes {beaten['beat it']} of {beaten['of']} rows beat uniform" in page
    assert f"{beaten['undecided']} are indistinguishable from it and {behind} are behind." in page
    assert beaten["which"] == ["by_size", "clustered_sampling", "gpfl", "gpfl_without_rewards", "shuffled_round_robin"]
    gains = {one: d for one, d in mean_gains(tidy, Budget("bytes", 0.5)).items() if one in beaten["which"]}
    order = ("gpfl", "clustered_sampling", "gpfl_without_rewards", "by_size", "shuffled_round_robin")
    assert [f"{100 * gains[one].mean:.1f}" for one in order] == ["1.6", "1.3", "1.2", "0.8", "0.8"]
    told = "GPFL by 1.6 points, clustered sampling by 1.3, GPFL's control without rewards by 1.2, sampling by size and "
    assert f"{told}shuffled round robin by 0.8." in page
    (table,) = [one for one in summary["tables"] if one["title"].startswith("Mean gain over uniform under")]
    left = {row[0] for row in table["rows"] if float(row[-1]) < 0.05 and not row[3].startswith("-")}
    assert left == {row[0] for row in table["rows"] if row[3].endswith("**") and row[3].startswith("+")}
    assert set(order) - left == {"shuffled_round_robin", "gpfl_without_rewards"}
    assert "after Holm's correction the control and shuffled round robin are not ahead, " in page
    most = max(count_wins(tidy, Budget(kind, 0.5))[0] for kind in KINDS)
    assert f"none beats it on more than {most} of the 17 federations" in page
    early, leaders = count_wins(tidy, Budget("bytes", 0.2))
    assert f"of uniform's bytes GPFL beats it on {early} (" in page
    assert leaders == ["gpfl"]
    assert "from the best (gpfl_without_rewards, gpfl)" in summary["tables"][0]["note"]
    assert "GPFL's mean rank, the best, is indistinguishable from that of its control" in page
    tau = found["stable-budgets"]["statistic"]["Kendall's tau with equal rounds"]["bytes"]
    assert f"τ = {tau:.2f}" in page
    level, behind = (mean_gains(tidy, Budget(kind, 0.5))["importance"] for kind in ("rounds", "bytes"))
    assert level.low < 0 < level.high
    assert f"{-100 * behind.mean:.0f} points behind at equal bytes" in page
    cover = select(tidy, "coverage").loc["oort"].mean(axis=1)
    assert cover.min() == 1.0
    assert "Our Oort selected 100 % of the clients" in read_page("docs/results/leaderboard.md")


def test_pages_say_what_gpfl_s_rewards_gain_with_and_without_the_spoken_digits(every):
    page, more = read_page("README.md"), read_page("docs/results/leaderboard.md")
    control, in_turn, small = "gpfl_without_rewards", "shuffled_round_robin", "uniform_small_first"
    bytes_, seconds = Budget("bytes", 0.5), Budget("seconds", 0.5)
    level = lead(every, bytes_, "gpfl", control)
    assert level.low < 0 < level.high
    assert f"indistinguishable from its control without them ({in_points(level, ' points')})" in page
    assert f"GPFL's lead is {in_points(level, ' points')}" in more
    late = [lead(every, seconds, control, "gpfl", without=without) for without in ((), SPEECH)]
    assert late[0].low > 0 > late[1].low
    back = [lead(every, seconds, "gpfl", control, without=without) for without in ((), SPEECH)]
    assert f"({100 * back[0].mean:.1f} [{100 * back[0].low:.1f}, {100 * back[0].high:.2f}]; without" in more
    assert f"without the spoken digits {in_points(back[1])})" in more
    ahead = [lead(every, bytes_, control, other, without=w) for w in ((), SPEECH) for other in (in_turn, small)]
    assert all(one.low < 0 for one in ahead[:2])
    assert all(one.low > 0 for one in ahead[2:])
    told = [" and ".join(in_points(one) for one in two) for two in (ahead[:2], ahead[2:])]
    assert f"{told[0]} with them, {told[1]} without" in more
    itself = [lead(every, bytes_, "gpfl", other, without=w) for w in ((), SPEECH) for other in (in_turn, small)]
    assert all(one.low > 0 for one in itself)
    assert f"GPFL is ahead of shuffled round robin with whole cohorts ({in_points(itself[0])})" in more
    low = f"[{100 * itself[1].low:.2f}, {100 * itself[1].high:.1f}]"
    assert f"and of `uniform_small_first` ({100 * itself[1].mean:.1f} {low})" in more
    gained = [lead(every, bytes_, one, "uniform", without=w) for w in ((), SPEECH) for one in (in_turn, small)]
    told = [" and ".join(in_points(one) for one in two) for two in (gained[:2], gained[2:])]
    assert f"over uniform: {told[0]} with them, {told[1]} without" in more
    early = Budget("rounds", 0.2)
    lost, of_control = (lead(every, early, "uniform", one) for one in (small, control))
    assert (
        f"cost the random ones {in_points(lost, ' points')} against uniform, and the control {in_points(of_control)}"
        in more
    )


def test_the_page_says_who_remains_ahead_without_the_spoken_digits(tidy):
    ahead = {}
    for kind in KINDS:
        budget = Budget(kind, 0.5)
        rest = [one for one in take_block(tidy, budget).federations if one not in SPEECH]
        gains = group_gains(tidy, budget, rest)
        p = correct(gains)
        ahead[kind] = {name for name, d in gains.items() if d.low > 0 and p[name] < 0.05}
    control = "gpfl_without_rewards"
    assert ahead == {
        "rounds": set(),
        "bytes": {"gpfl", "clustered_sampling", control},
        "flops": {"gpfl"},
        "seconds": {control},
        "joules": {"clustered_sampling"},
    }
    told = (
        "at equal rounds none is left, at equal bytes GPFL, clustered sampling and the control are, at equal FLOPs "
        "GPFL, at equal seconds the control, and at equal joules clustered sampling."
    )
    assert told in read_page("docs/results/leaderboard.md")


def test_pages_say_what_remains_after_corrections_and_without_some_federations(tidy):
    page, more = read_page("README.md"), read_page("docs/results/leaderboard.md")
    bytes_ = Budget("bytes", 0.5)
    gains = mean_gains(tidy, bytes_)
    p = correct(gains)
    behind = [name for name, d in gains.items() if d.high < 0]
    kept = sum(p[name] < 0.05 for name in behind)
    assert f"are not ahead, and {kept} of the {len(behind)} are behind." in page
    assert f"{len(behind)} are behind, {kept} of them after the correction." in more
    federations = take_block(tidy, bytes_).federations
    without = group_gains(tidy, bytes_, [one for one in federations if one != "spoken-digits"])
    fashion = group_gains(tidy, bytes_, [one for one in federations if one.startswith("fashion")])
    assert f"GPFL's lead is {100 * without['gpfl'].mean:.1f} points" in page
    assert f"no longer shown ({in_points(without['shuffled_round_robin'])})" in page
    assert f"GPFL's is not shown ({in_points(fashion['gpfl'])})" in page
    assert f"clustered sampling's is {in_points(fashion['clustered_sampling'])}." in page
    early = {key[1]: d for key, d in list_gains(tidy, Budget("bytes", 0.2)).items() if key[0] == "gpfl"}
    still = sum(d.low > 0 and correct(early)[name] < 0.05 for name, d in early.items())
    assert (
        f"GPFL beats it on {sum(d.low > 0 for d in early.values())} ({still} after Holm's correction for 17)." in page
    )
    natural = group_gains(tidy, bytes_, [one for one in federations if not one.startswith("synthetic")])
    for name in ("fed_entropy", "rpow_d", "k_vib", "filfl"):  # behind because of the synthetic ones alone
        assert gains[name].high < 0 < natural[name].high


@pytest.mark.parametrize(
    ("share", "of_gpfl", "in_all", "told"),
    [
        (0.5, 0, 4, "four such leads remain after the correction: GPFL's and clustered sampling's at equal bytes"),
        (0.2, 4, 9, "none of its 9 and 4 of its 14 remain"),
    ],
)
def test_the_page_says_what_remains_after_one_correction_for_a_whole_table(tidy, share, of_gpfl, in_all, told):
    """Of all selectors on all federations at equal bytes, and of all selectors under all five budgets."""
    cells = {" ".join(key): d for key, d in list_gains(tidy, Budget("bytes", share)).items()}
    under = {f"{kind} {name}": d for kind in KINDS for name, d in mean_gains(tidy, Budget(kind, share)).items()}
    left, leads = (
        {key for (key, d), p in zip(of.items(), correct(of).values(), strict=True) if d.low > 0 and p < 0.05}
        for of in (cells, under)
    )
    assert (len(cells), len(under)) == (694, 200)
    assert (sum(key.startswith("gpfl ") for key in left), len(leads)) == (of_gpfl, in_all)
    assert share < 0.5 or leads == {"bytes gpfl", "bytes clustered_sampling", "flops gpfl", "seconds tifl"}
    assert told in read_page("docs/results/leaderboard.md")


@pytest.mark.parametrize(
    ("first", "second", "share", "told"),
    [
        ("uniform_small_first", "uniform", 0.2, "ahead of uniform by {}"),
        ("hics_fl_half", "hics_fl", 0.5, "HiCS-FL is {points} better"),
        ("uniform", "hics_fl_half", 0.5, "and {} behind uniform"),
        ("hics_fl_warmer", "hics_fl", 0.5, "With ten times as much it is {points} better"),
        ("hics_fl_warmer", "uniform", 0.5, "no difference from uniform is shown ({})"),
        ("fedcs_of_a_fifth", "fedcs", 0.5, "it gains {points}"),
        ("uniform", "fedcs_of_a_fifth", 0.5, "is {} behind uniform"),
        ("clustered_oracle", "clustered_sampling", 0.5, "({points})"),
        ("clustered_sampling", "clustered_by_size", 0.5, "clusters by size are {} worse"),
    ],
)
def test_the_page_says_how_variants_differ(every, first, second, share, told):
    """On the federations that both were run on."""
    found = lead(every, Budget("bytes", share), first, second)
    assert told.format(in_points(found), points=in_points(found, " points")) in read_page("docs/results/leaderboard.md")


def test_the_page_says_what_whole_budgets_of_seconds_are_worth(every):
    """Oort's and FedCS's runs of 400 rounds, which spend them; FedCS gains so little that it stays where it is."""
    more, seconds = read_page("docs/results/leaderboard.md"), Budget("seconds", 0.5)
    synthetic = tuple(name for name in FEDERATIONS if name.startswith("synthetic"))
    behind, before = (lead(every, seconds, "uniform", name) for name in ("oort_longer", "oort"))
    ahead, bare = (
        lead(every, seconds, "oort_longer", "uniform", without) for without in (synthetic, synthetic + SPEECH)
    )
    assert behind.low < 0 < behind.high
    assert f"Oort is then {in_points(behind, ' points behind')} instead of {in_points(before)} on the mean" in more
    assert f"ahead by {in_points(ahead)} on the 14 that are not synthetic ({in_points(bare)} without the spoken" in more
    gained, still = lead(every, seconds, "fedcs_longer", "fedcs"), lead(every, seconds, "uniform", "fedcs_longer")
    assert f"FedCS is {in_points(gained)} better, and still {100 * still.mean:.1f} behind" in more


def test_pages_say_who_is_ahead_after_all_rounds(tidy):
    page, more = read_page("README.md"), read_page("docs/results/leaderboard.md")
    gains = mean_gains(tidy, ALL_ROUNDS)
    p = correct(gains)
    order = ("cpow_d", "adapow_d", "clustered_sampling", "ucb_cs", "power_of_choice", "gpfl_without_rewards")
    assert {name for name, d in gains.items() if d.low > 0 and p[name] < 0.05} == set(order)
    assert sum(d.low > 0 for d in gains.values()) == 10
    assert [f"{100 * gains[name].mean:.1f}" for name in order] == ["1.4", "1.3", "1.1", "0.9", "0.9", "0.8"]
    rest = [one for one in take_block(tidy, ALL_ROUNDS).federations if one not in SPEECH]
    fewer = group_gains(tidy, ALL_ROUNDS, rest)
    p = correct(fewer)
    assert {name for name, d in fewer.items() if d.low > 0 and p[name] < 0.05} == set(order[:4])
    told = "cpow-d by 1.4 points, AdaPow-d by 1.3, clustered sampling by 1.1, UCB-CS and power-of-choice by 0.9, GPFL's"
    assert f"10 of 40 are ahead, six of them after the correction: {told} control by 0.8." in page
    for name in order:
        assert f"[{100 * gains[name].low:.1f}, {100 * gains[name].high:.1f}]" in more


def test_the_page_says_how_far_synthetic_federations_decide_after_all_rounds(every):
    page = read_page("docs/results/leaderboard.md")
    synthetic = tuple(name for name in FEDERATIONS if name.startswith("synthetic"))
    others = tuple(name for name in FEDERATIONS if name not in synthetic)
    told = {"haccs": "39", "fed_entropy": "43", "fed_cbs": "13", "fed_ent_opt": "7", "divfl": "30", "oort": "20"}
    for name, points in told.items():
        there = lead(every, ALL_ROUNDS, "uniform", name, others)
        assert f"{100 * there.mean:.0f}" == points
        elsewhere = lead(every, ALL_ROUNDS, name, "uniform", synthetic)
        assert (
            in_points(
                elsewhere if name not in ("haccs", "oort") else lead(every, ALL_ROUNDS, "uniform", name, synthetic)
            )
            in page
        )
    images = tuple(name for name in FEDERATIONS if not name.startswith("fashion"))
    assert (
        f"it is {in_points(lead(every, ALL_ROUNDS, 'fedcor', 'uniform', images), ' points ahead')} on Fashion" in page
    )
    assert f"and {in_points(lead(every, ALL_ROUNDS, 'uniform', 'fedcor', others), ' behind')} on the synthetic" in page


def test_the_page_says_how_much_of_criticalfl_s_flops_are_its_signals(tidy):
    own, whole = (
        select(tidy, measure).loc["critical_fl"].mean(axis=1) for measure in ("selection flops", "flops of the run")
    )
    told = [f"{100 * own[name] / whole[name]:.0f} % " for name in ("digits", "fashion-class-0.5")]
    said = f"{told[0]}of its FLOPs on `digits` and {told[1]}on `fashion-class-0.5`"
    assert said in read_page("docs/results/leaderboard.md")


def test_the_page_says_who_is_ahead_under_every_budget(tidy):
    page = (ROOT / "docs/results/leaderboard.md").read_text(encoding="utf-8")
    for budget in BUDGETS:
        gains = mean_gains(tidy, budget)
        p = correct(gains)
        ahead = {name: 100 * d.mean for name, d in gains.items() if d.low > 0}
        behind = [name for name, d in gains.items() if d.high < 0]
        undecided, sure = len(gains) - len(ahead) - len(behind), sum(p[name] < 0.05 for name in behind)
        ended = {name for name, _ in find_ended(tidy, budget)}
        told = [
            f"`{name}` {points:.1f}{' †' if name in ended else ''}"
            for name, points in sorted(ahead.items(), key=lambda item: -item[1])
        ]
        told = [f"**{one}**" if p[one.split("`")[1]] < 0.05 else one for one in told]
        assert f"| {budget.name} | {', '.join(told)} | {undecided} | {len(behind)} ({sure}) |" in page


SPEECH = ("spoken-digits",)


def lead(every, budget, first, second, without=()):
    """Returns the mean lead of a selector over another on the federations that both were run on, with its interval."""
    wide = select(every, "accuracy", budget.name)
    common = [one for one in wide.loc[first].index if one in wide.loc[second].index and one not in without]
    return difference(
        *(np.mean([wide.loc[(name, where)].to_numpy() for where in common], axis=0) for name in (first, second))
    )


def in_points(found, unit=""):
    return f"{100 * found.mean:.1f}{unit} [{100 * found.low:.1f}, {100 * found.high:.1f}]"


def count_wins(tidy, budget):
    """Returns on how many federations the selector that wins most has an interval above uniform's, and which do."""
    wins = [name for (name, _), d in list_gains(tidy, budget).items() if d.low > 0]
    most = max(wins.count(name) for name in wins)
    return most, sorted({name for name in wins if wins.count(name) == most})


def test_pages_say_what_equal_weights_of_clients_cost(every):
    """By themselves, and what is left of the deficits of selectors that have them."""
    page, more, half = read_page("README.md"), read_page("docs/results/leaderboard.md"), Budget("rounds", 0.5)
    alike, wide = "uniform_client_weights", select(every, "accuracy", half.name)
    there = list(wide.loc[alike].index)
    synthetic = [one for one in there if one.startswith("synthetic")]
    assert set(wide.loc["uniform"].index) - set(there) == set(SPEECH)

    def ahead(first, second, where=there):
        means = (np.mean([wide.loc[(name, one)].to_numpy() for one in where], axis=0) for name in (first, second))
        return difference(*means)

    def behind(name, where=there):
        return in_points(ahead(alike, name, where))

    lost = ahead("uniform", alike)
    assert f"are {in_points(lost, ' points')} behind uniform at equal rounds" in page
    assert f"are {in_points(lost, ' points')} behind uniform at equal rounds" in more
    assert f"power law: {in_points(ahead('uniform', alike, synthetic))} there" in more
    for text, name in (
        ("entropy is", "entropy"),
        ("ε-greedy by loss", "epsilon_greedy"),
        ("gradient norm", "gradient_norm"),
    ):
        found, before = ahead(alike, name), ahead("uniform", name)
        told = f"{100 * found.mean:.1f} behind [{100 * found.low:.1f}, {100 * found.high:.1f}]"
        told = told if name == "entropy" else in_points(found)
        assert f"{text} {told} instead of {100 * before.mean:.1f}" in more.replace("\n  ", " ")
    level = [in_points(ahead(name, alike, synthetic)) for name in ("entropy", "gradient_norm", "epsilon_greedy")]
    assert f"the intervals are wide (+{level[0]}, {level[1]}), and ε-greedy is ahead by {level[2]}" in more
    assert f"({in_points(ahead('rpow_d', alike))}, instead of {100 * ahead('rpow_d', 'uniform').mean:.1f})" in more
    size = select(every, "relative size")
    for name in ("power_of_choice", "adapow_d", "cpow_d", "fedcor", "ucb_cs"):
        assert np.mean([size.loc[(name, one)].to_numpy() for one in synthetic]) > 1.5
        assert lead(every, half, name, "uniform").low > -0.003
    leads = [in_points(lead(every, half, name, "uniform")) for name in ("cpow_d", "ucb_cs")]
    assert f"cpow-d and UCB-CS are ahead ({' and '.join(leads)}; after the correction, only cpow-d is)" in more
