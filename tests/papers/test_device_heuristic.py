"""Heuristic device selection: a reproduction in small, and its claims in planted worlds where the answer is known."""

import dataclasses
import json
import re

import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel import History, cli, config, papers
from fedjax_sel.client_selection._device_heuristic import Weights, cohort_size
from fedjax_sel.client_selection._device_solvers import exhaustive
from fedjax_sel.papers.device_heuristic import studies as solvers
from fedjax_sel.papers.device_heuristic.beyond import judge_weights
from fedjax_sel.papers.device_heuristic.cells import (
    ALL,
    DEVICES,
    LONGER,
    ONLY,
    PARTITIONS,
    PROPOSED,
    RANDOM,
    SET,
    name_experiment,
)
from fedjax_sel.papers.device_heuristic.changing import AGAIN, ONCE
from fedjax_sel.papers.device_heuristic.enumeration import enumerate_halves
from fedjax_sel.papers.device_heuristic.numbers import PUBLISHED, compare_at_equal_cost, compare_costs, measure
from fedjax_sel.papers.device_heuristic.weights import EQUAL
from fedjax_sel.papers.judging import BY_CONSTRUCTION, NOT_JUDGED
from fedjax_sel.papers.paper import Evidence, locate_cell
from fedjax_sel.runs import layout
from tests.papers.forms import SUMMARY_KEYS

PAPER = papers.load("device_heuristic")
T, R = 20, 5
YES, NO, OPEN = "reproduced", "not reproduced", "undecided"


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    return tmp_path_factory.mktemp("reproduction") / "device_heuristic"


@pytest.fixture(scope="module")
def summary(out):
    papers.reproduce("device_heuristic", scale="smoke", out=out)
    return json.loads((out / "summary.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def histories(out, summary):
    return {cell.key: layout.read(locate_cell(out, cell))[0] for cell in PAPER.cells("smoke")}


# The reproduction


def test_the_summary_has_the_form_that_all_papers_share(summary):
    assert list(summary) == SUMMARY_KEYS
    assert (summary["paper"], summary["scale"], summary["seeds"]) == ("device_heuristic", "smoke", [0, 1])
    for result in summary["results"]:
        assert list(result) == ["experiment", "method", "metric", "round", "mean", "std", "per_seed", "published"]
        assert len(result["per_seed"]) == 2
    for claim in summary["claims"]:
        assert claim["verdict"] in (BY_CONSTRUCTION, NOT_JUDGED), "ten rounds and two seeds are below the fair regime"
        assert claim["reason"]
        assert claim["statistic"]
    assert len({claim["id"] for claim in summary["claims"]}) == len(summary["claims"])
    keys = [(r["experiment"], r["method"], r["metric"], r["round"]) for r in summary["results"]]
    assert len(set(keys)) == len(keys)


def test_the_published_numbers_stand_beside_the_cells_they_are_of(summary):
    found = {(r["experiment"], r["method"], r["metric"]): r["published"] for r in summary["results"] if r["published"]}
    assert found == {
        (name_experiment("IID", e), method, metric): value for (e, method, metric), value in PUBLISHED.items()
    }
    assert PUBLISHED[1.0, PROPOSED, "final_accuracy"] == 0.9233


def test_the_report_shows_every_figure_and_every_claim(out, summary):
    text = (out / "report.md").read_text(encoding="utf-8")
    shown = re.findall(r"!\[.*?\]\((.+?)\)", text)
    assert sorted(shown) == sorted(f"figures/{path.name}" for path in (out / "figures").iterdir())
    assert len(shown) == 9
    for claim in summary["claims"]:
        assert f"- `{claim['id']}`: {claim['verdict']}" in text
    assert "nan" not in text.lower().split()


def test_a_finished_study_is_read_and_not_done_again(out, summary, monkeypatch):
    def refused(*_):
        raise AssertionError("the study was done")

    again = dataclasses.replace(PAPER, studies=dict.fromkeys(PAPER.studies, refused))
    monkeypatch.setattr(papers, "load", lambda name: again)
    before = (out / "studies" / "solvers.json").read_bytes()
    repeated = papers.reproduce("device_heuristic", scale="smoke", out=out)
    assert (out / "studies" / "solvers.json").read_bytes() == before
    assert [claim["verdict"] for claim in repeated["claims"]] == [claim["verdict"] for claim in summary["claims"]]


@pytest.mark.parametrize("kept", ['{"scale": "full", "seeds": [0, 1], "found": {}}', '{"scale": "smoke"', "[]"])
def test_a_study_of_another_scale_or_half_written_is_done_again(kept, tmp_path):
    from rich.console import Console

    from fedjax_sel.papers.reproduction import run_studies

    paper = dataclasses.replace(
        PAPER, studies={"x": lambda scale, seeds, out: {scale: np.arange(2), "seeds": tuple(seeds), "out": out.name}}
    )
    (tmp_path / "studies").mkdir()
    (tmp_path / "studies" / "x.json").write_text(kept)
    found = run_studies(tmp_path, paper, "smoke", (0, 1), Console(quiet=True))
    assert found == {"x": {"smoke": [0, 1], "seeds": [0, 1], "out": tmp_path.name}}
    assert json.loads((tmp_path / "studies" / "x.json").read_text())["scale"] == "smoke"


def test_with_everybody_selected_all_methods_are_one(out, histories, summary):
    for partition in PARTITIONS:
        runs = [histories[name_experiment(partition, 1.0), method] for method in (PROPOSED, SET, ALL)]
        for run in runs:
            assert (np.sort(run.selections, -1) == np.arange(DEVICES)).all()
            np.testing.assert_allclose(run["loss"], runs[0]["loss"], atol=1e-5)
        np.testing.assert_array_equal(runs[0]["accuracy"], runs[1]["accuracy"])
        np.testing.assert_array_equal(runs[0]["loss"], runs[1]["loss"])
    kept = json.loads((out / "studies" / "solvers.json").read_text())["found"]
    found = {claim.id: claim for claim in PAPER.claims("smoke", Evidence(histories, {"solvers": kept}))}
    assert found["one-method-at-all"].verdict == YES
    assert found["better-at-all"].verdict == NO
    settled = {claim["id"]: claim["verdict"] for claim in summary["claims"]}
    fixed = {"one-method-at-all", "better-at-all", "more-devices-more-cost"}
    assert fixed <= {name for name, verdict in settled.items() if verdict == BY_CONSTRUCTION}
    assert {name for name, claim in found.items() if claim.fixed} - fixed <= {"better-at-half", "greedy-as-accurate"}


def test_the_heuristic_selects_the_same_half_in_every_round_and_random_does_not(histories):
    for partition in PARTITIONS:
        for method in (PROPOSED, SET, *ONLY):
            chosen = histories[name_experiment(partition, 0.5), method].selections
            assert (chosen == chosen[:, :1]).all()
            assert chosen.shape[-1] == 15
        assert measure(histories[name_experiment(partition, 0.5), RANDOM])["coverage"].min() > 0.9


def test_every_seed_has_its_own_test_examples_and_devices_of_four_examples():
    for partition in PARTITIONS:
        (cell,) = (c for c in PAPER.cells("small") if c.key == (name_experiment(partition, 0.5), PROPOSED))
        built = config.build(config.resolve({**cell.config, "seeds": 2}))
        one, other = built.data.draws((0, 1))
        assert one.test_x.shape == (30, 4)
        assert not np.array_equal(one.test_x, other.test_x)
        assert (one.num_examples == 4).all()
        assert (other.num_examples == 4).all()
        assert not np.array_equal(one.devices.compute, other.devices.compute)


def test_every_scale_has_cells_with_names_of_their_own():
    for scale in PAPER.seeds:
        cells = PAPER.cells(scale)
        assert len({cell.key for cell in cells}) == len({cell.slug for cell in cells}) == len(cells)
        assert all(re.fullmatch(r"[a-z0-9.=-]+", cell.slug) for cell in cells)
        for cell in cells:
            epsilon = float(re.search(r"epsilon=([\d.]+)", cell.experiment)[1])
            assert cell.config["cohort_size"] == cohort_size(epsilon, DEVICES)


def test_hyphens_do_for_the_underscores_of_a_papers_name(monkeypatch, tmp_path):
    from typer.testing import CliRunner

    asked = []
    monkeypatch.setattr(papers, "reproduce", lambda name, **options: asked.append(name))
    done = CliRunner().invoke(cli.main, ["reproduce", "device-heuristic", "--no-cache", "--out", str(tmp_path / "x")])
    assert (done.exit_code, asked) == (0, ["device_heuristic"])


# The solver study


def test_all_solvers_are_optimal_where_everybody_is_selected_and_none_is_better_than_the_exact_one():
    f = np.stack([solvers.draw_properties(seed, 20, 12) for seed in (0, 1)])
    for epsilon in (1.0, 0.75, 0.5):
        value = solvers.solve_all(f, 9, epsilon)
        for name in (solvers.EVERY, solvers.BEST, solvers.LETTER):
            assert (value[name] <= value[solvers.EXACT] + 1e-6).all()
            if epsilon == 1:
                np.testing.assert_allclose(value[name], value[solvers.EXACT], atol=1e-6)
        row = solvers.compare_with_enumeration(f[:, :3], 9, epsilon, value[solvers.EXACT][:, :3])
        assert row["largest_difference"] < 1e-6
        assert row["instances"] == 6


def test_shares_and_losses_are_relative_to_the_optimum():
    best = np.array([[0.5, 0.5, 0.5, 0.5]])
    value = {solvers.EXACT: best, solvers.EVERY: best, solvers.BEST: best - [[0.1, 0, 0, 0]], solvers.LETTER: best / 2}
    rows = {row["solver"]: row for row in solvers.measure_optimality(8, 0.5, value)}
    assert rows[solvers.EVERY]["share_optimal"] == [1]
    assert rows[solvers.BEST]["share_optimal"] == [0.75]
    np.testing.assert_allclose(rows[solvers.BEST]["worst_gap"], [0.2])
    np.testing.assert_allclose(rows[solvers.BEST]["mean_gap"], [0.05])
    assert rows[solvers.LETTER]["share_optimal"] == [0]


def test_halves_enumerate_what_looking_at_every_set_finds():
    for n, s in ((9, 4), (10, 1), (10, 10), (11, 8)):
        for f in jnp.asarray(solvers.draw_properties(n, 3, n)):
            every, halves = exhaustive(f, Weights(), s), enumerate_halves(f, Weights(), s)
            np.testing.assert_allclose(halves.value, every.value, rtol=1e-6)
            np.testing.assert_array_equal(halves.mask, every.mask)
    with pytest.raises(ValueError, match="11 of N = 10"):
        enumerate_halves(jnp.ones((4, 10)), Weights(), 11)


def test_the_enumeration_of_the_thesis_looks_at_all_sets(out, summary):
    found = json.loads((out / "studies" / "enumeration.json").read_text())["found"]
    assert [(row["epsilon"], row["sets"]) for row in found["rows"]] == [(0.75, 2_035_800), (0.5, 155_117_520)]
    for row in found["rows"]:
        assert row["largest_difference"] < 1e-6
        assert row["seconds"][solvers.EXHAUSTIVE] > row["seconds"][solvers.EXACT]


def test_batteries_drain_and_who_selects_again_keeps_more_members(out, summary):
    found = json.loads((out / "studies" / "changing.json").read_text())["found"]["partitions"]
    for ways in found.values():
        members = {way: np.array(row["members"]) for way, row in ways.items()}
        for way, count in members.items():
            assert (count[:, 0] == 15).all(), way
        # A battery lasts half of ten rounds at a device's own network; another network makes it a few more or fewer.
        assert (members[ONCE][:, -1] < 10).all()
        assert (members[AGAIN].sum(1) > members[ONCE].sum(1)).all()
        assert all((np.array(row["joules"]) >= 0).all() for row in ways.values())


def test_the_exchange_of_properties_is_on_the_first_rounds_bill(histories):
    sent = histories[name_experiment(PARTITIONS[0], 0.5), PROPOSED]["selection_bytes_up"]
    assert (sent[:, 0] == 4 * 4 * DEVICES).all()
    assert not sent[:, 1:].any()
    assert not histories[name_experiment(PARTITIONS[0], 0.5), RANDOM]["selection_bytes_up"].any()


def test_weights_are_judged_by_time_and_energy_together():
    def grid(**others):
        equal = {p: {"final_accuracy": [0.9] * R, "seconds": [1.0] * R, "joules": [1.0] * R} for p in PARTITIONS}
        changed = {p: {**equal[p], **{k: [v, 0.99 * v] * 2 + [v] for k, v in others.items()}} for p in PARTITIONS}
        return {"grid": {EQUAL: equal, "0.5, 0.5, 0, 0": changed}, "weights": ["alpha", "beta", "gamma", "delta"]}

    assert judge_weights(grid(seconds=0.5, joules=0.5)).verdict == NO
    assert judge_weights(grid(seconds=0.5, joules=2.0)).verdict == YES
    assert judge_weights(grid(seconds=2.0, joules=2.0)).verdict == YES


# Planted worlds


@dataclasses.dataclass
class Method:
    """A method's runs: the round of each seed's jump from 0.8 to `high`, its costs a round, and its cohorts."""

    jump: tuple[int, ...] = (6, 6, 7, 6, 7)
    high: float | tuple[float, ...] = 0.95
    seconds: float = 1.0
    joules: float = 1.0
    shift: int = 0

    def history(self, m, rounds=T):
        after = np.arange(1, rounds + 1) >= np.array(self.jump)[:, None]
        accuracy = np.where(after, np.broadcast_to(self.high, R)[:, None], 0.8)
        chosen = (np.arange(m) + self.shift) % DEVICES * np.ones((R, rounds, 1), int)
        costs = {"seconds": np.full((R, rounds), self.seconds), "joules": np.full((R, rounds), self.joules)}
        return History(tuple(range(R)), {"accuracy": accuracy, "loss": 1 - accuracy, **costs}, chosen, DEVICES)


SPREAD = (0.98, 0.90, 0.99, 0.91, 0.97)
LATE = Method(jump=(15, 14, 15, 16, 15))


def study(share=None, gap=0.0, seconds=None, apart=0.0):
    """What the solver study would find."""
    share = {solvers.EVERY: 1.0, solvers.BEST: 0.6, solvers.LETTER: 0.5, **(share or {})}
    wobble = np.array([0.0, 0.001, -0.001, 0.0, 0.0])
    optimality = [
        {
            "N": n,
            "epsilon": epsilon,
            "solver": name,
            "share_optimal": list(value + wobble * (value < 1)),
            "mean_gap": [gap] * R,
            "worst_gap": [gap] * R,
        }
        for n in solvers.SIZES["small"].devices
        for epsilon in (1.0, 0.75, 0.5)
        for name, value in share.items()
    ]
    seconds = {solvers.EVERY: 1e-3, solvers.EXACT: 1e-4, solvers.EXHAUSTIVE: 1.0, **(seconds or {})}
    times = [
        {"solver": name, "wanted": wanted, "s": 4, "N": n, "seconds": value, "gap": 0.0}
        for name, value in seconds.items()
        for wanted in ("half", "few")
        for n in (8, 16)
    ]
    enumeration = [{"N": 8, "epsilon": 0.5, "instances": 5, "largest_difference": apart}]
    return {"optimality": optimality, "times": times, "enumeration": enumeration, "instances a seed": 100}


def judged(found=None, only_in=PARTITIONS, at=(1.0, 0.75, 0.5, 0.1), **methods):
    """Claims in a world where all methods are alike but those given."""
    histories = {}
    for partition in PARTITIONS:
        for epsilon in (1.0, 0.75, 0.5, 0.1):
            for method in (PROPOSED, SET, ALL if epsilon == 1 else RANDOM, *ONLY):
                own = methods.get(method) if partition in only_in and epsilon in at else None
                histories[name_experiment(partition, epsilon), method] = (own or Method()).history(
                    cohort_size(epsilon, DEVICES)
                )
            longer = methods.get(f"{PROPOSED}, longer") or methods.get(PROPOSED) or Method()
            histories[name_experiment(partition, epsilon, LONGER), PROPOSED] = longer.history(
                cohort_size(epsilon, DEVICES), rounds=10 * T
            )
    claims = PAPER.claims("small", Evidence(histories, {"solvers": found or study()}))
    return {claim.id: claim for claim in claims}


def verdict(claim, *arguments, **named_arguments):
    return judged(*arguments, **named_arguments)[claim].verdict


def test_alike_methods_are_one_method_and_none_is_better():
    found = {name: claim.verdict for name, claim in judged().items()}
    assert found["one-method-at-all"] == found["greedy-as-accurate"] == found["same-devices-cost-nothing"] == YES
    for name in ("better-at-all", "better-at-half", "half-better-than-all", "better-than-random", "one-property-worse"):
        assert found[name] == NO
    assert found["more-devices-more-cost"] == NO
    assert {name for name in found if name.startswith("ahead-of")} == {
        f"ahead-of-{who}-at-{whose}-{cost}"
        for who in ("random", "all")
        for whose in ("its", "their")
        for cost in ("joules", "seconds")
    }
    assert all(found[name] == NO for name in found if name.startswith("ahead-of"))


@pytest.mark.parametrize("other", [Method(shift=1, high=0.96), Method(high=0.96)], ids=["other cohort", "same cohort"])
def test_runs_that_differ_are_not_one_method(other):
    same, apart = judged(), judged(**{SET: other})
    assert same["better-at-half"].fixed
    assert bool(apart["better-at-half"].fixed) == (other.shift == 0), "by the cohorts, not by what they reach"
    assert verdict("one-method-at-all", **{SET: other}) == NO
    assert verdict("one-method-at-all", **{ALL: other}) == NO
    assert verdict("one-method-at-all", only_in=PARTITIONS[:1], **{SET: other}) == NO


@pytest.mark.parametrize(("high", "expected"), [(0.95, YES), (0.9233, YES), (0.91, NO), (SPREAD, OPEN)], ids=str)
def test_the_accuracy_with_all_devices_is_compared_with_the_published_one(high, expected):
    assert verdict("accuracy-at-all", **{PROPOSED: Method(high=high)}) == expected


def test_the_accuracy_with_half_of_them_is_judged_by_itself():
    low = {PROPOSED: Method(high=0.85)}
    assert verdict("accuracy-at-half", at=(0.5,), **low) == NO
    assert verdict("accuracy-at-all", at=(0.5,), **low) == YES
    assert verdict("accuracy-at-half", at=(1.0,), **low) == YES


@pytest.mark.parametrize(
    ("claim", "other"),
    [
        ("better-at-all", SET),
        ("better-at-half", SET),
        ("half-better-than-all", ALL),
        ("better-than-random", RANDOM),
    ],
)
def test_better_means_better_in_every_experiment(claim, other):
    assert verdict(claim, **{other: Method(high=0.9)}) == YES
    assert verdict(claim, only_in=PARTITIONS[:1], **{other: Method(high=0.9)}) == NO
    assert verdict(claim, **{other: Method(high=SPREAD)}) == OPEN


def test_one_property_is_worse_where_each_of_the_four_is():
    worse = {method: Method(high=0.9) for method in ONLY}
    assert verdict("one-property-worse", **worse) == YES
    assert verdict("one-property-worse", **{**worse, "Network Only": Method()}) == NO


@pytest.mark.parametrize(
    ("high", "expected"), [(0.95, YES), (0.945, YES), (0.92, NO), (0.99, YES), (SPREAD, OPEN)], ids=str
)
def test_training_the_same_devices_costs_nothing_down_to_a_hundredth(high, expected):
    assert verdict("same-devices-cost-nothing", **{PROPOSED: Method(high=high)}) == expected
    assert verdict("same-few-devices-cost-nothing", at=(0.75, 0.5), **{PROPOSED: Method(high=high)}) == YES
    assert verdict("same-few-devices-cost-nothing", at=(0.1,), **{PROPOSED: Method(high=high)}) == expected


@pytest.mark.parametrize("unit", ["joule", "second"])
@pytest.mark.parametrize(("who", "other"), [("random", RANDOM), ("all", ALL)])
def test_ahead_at_equal_cost_where_the_other_cannot_pay_the_rounds_it_needs(unit, who, other):
    claim, cost = f"ahead-of-{who}-at-its-{unit}s", f"{unit}s"
    assert verdict(claim, **{other: Method(**{cost: 4.0})}) == YES  # five rounds, and the jump comes in the sixth
    assert verdict(claim, **{other: Method(**{cost: 2.0})}) == NO  # ten rounds are enough
    assert verdict(claim, only_in=PARTITIONS[:1], **{other: Method(**{cost: 4.0})}) == NO
    assert verdict(claim, **{other: Method(**{cost: 100.0})}) == YES  # not even one round
    unpaid = judged(**{other: Method(**{cost: 100.0})})[claim].statistic[
        "seeds in which one of them cannot pay a round"
    ]
    assert set(unpaid.values()) == {R}


@pytest.mark.parametrize("unit", ["joule", "second"])
@pytest.mark.parametrize(("who", "other"), [("random", RANDOM), ("all", ALL)])
def test_at_the_others_budget_the_heuristic_trains_on(unit, who, other):
    claim, cost = f"ahead-of-{who}-at-their-{unit}s", f"{unit}s"
    dear = Method(**{cost: 4.0})
    assert verdict(claim, **{other: dear}) == NO, "it had arrived before, and so had the other in its own rounds"
    assert verdict(claim, **{other: dear, PROPOSED: Method(high=0.99)}) == YES
    assert verdict(claim, **{other: dear, f"{PROPOSED}, longer": Method(high=0.99)}) == YES, "by the longer run"


def test_more_devices_cost_more_where_a_round_does():
    assert verdict("more-devices-more-cost", **{ALL: Method(seconds=2.0, joules=2.0)}) == YES
    assert verdict("more-devices-more-cost", **{ALL: Method(seconds=2.0)}) == NO


def test_costs_are_counted_by_hand():
    cheap, dear, late = Method().history(3), Method(joules=4.0).history(3), dataclasses.replace(LATE, joules=2.0)
    budget = cheap.cumulative("joules")[:, -1]
    ahead, unpaid = compare_at_equal_cost(cheap, dear, "joules", budget)
    assert (ahead.mean, unpaid) == (pytest.approx(0.95 - 0.8), 0)
    ahead, unpaid = compare_at_equal_cost(cheap, Method(joules=30.0).history(3), "joules", budget)
    assert (ahead.mean, unpaid) == (pytest.approx(0.95 - 1 / 3), R)
    ahead, _ = compare_at_equal_cost(cheap, dear, "joules", np.full(R, 3.0))
    assert ahead.mean == pytest.approx(0.8 - 1 / 3), "three rounds of one, not even one of the other"
    assert compare_costs(cheap, dear, "joules", to_target=False)["factor"] == pytest.approx(4)
    assert compare_costs(cheap, dear, "joules", to_target=True)["factor"] == pytest.approx(4)
    jumps = np.array(LATE.jump) * 2 / np.array(Method().jump)
    spent = compare_costs(cheap, late.history(3), "joules", to_target=True)
    assert spent["factor"] == pytest.approx(np.exp(np.log(jumps).mean()))
    assert spent["low"] < spent["factor"] < spent["high"]
    never = compare_costs(cheap, Method(high=0.85).history(3), "joules", to_target=True)
    assert never["factor"] == pytest.approx(np.exp(np.log(21 / np.array(Method().jump)).mean()))


def test_the_solvers_claims_follow_the_study():
    found = {name: claim.verdict for name, claim in judged().items()}
    for name in ("every-start-better", "greedy-as-good", "no-heuristic-needed"):
        assert found[name] == YES
    assert found["rates-as-first-computed"] == YES
    assert verdict("every-start-better", study({solvers.EVERY: 0.6})) == NO
    assert verdict("greedy-as-good", study(gap=0.01)) == NO
    assert verdict("no-heuristic-needed", study(seconds={solvers.EXACT: 2e-3})) == NO
    assert verdict("no-heuristic-needed", study(apart=0.01)) == NO
    assert verdict("rates-as-first-computed", study({solvers.LETTER: 0.03})) == NO
    assert verdict("rates-as-first-computed", study(gap=0.03)) == NO


def test_every_claim_has_a_sentence_a_source_and_numbers():
    for claim in judged().values():
        assert claim.text
        assert claim.source
        assert claim.statistic
