"""Heuristic device selection: a reproduction in small, its solvers and its studies."""

import dataclasses
import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel import cli, config, papers
from fedjax_sel.client_selection._device_heuristic import Weights, cohort_size
from fedjax_sel.client_selection._device_solvers import exhaustive, greedy
from fedjax_sel.devices.profile import features
from fedjax_sel.papers.device_heuristic import changing
from fedjax_sel.papers.device_heuristic import studies as solvers
from fedjax_sel.papers.device_heuristic.cells import (
    ALL,
    DEVICES,
    ONLY,
    PARTITIONS,
    PROPOSED,
    RANDOM,
    SET,
    name_experiment,
)
from fedjax_sel.papers.device_heuristic.changing import AGAIN, CHANCE, ONCE
from fedjax_sel.papers.device_heuristic.enumeration import enumerate_halves
from fedjax_sel.papers.device_heuristic.numbers import PUBLISHED, measure
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
        assert f"#### {claim['id']}\n\n{claim['text']}: **{claim['verdict']}**" in text
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

    from fedjax_sel.papers.running import run_studies

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
    assert found["accuracy-apart-at-all"].verdict == NO
    settled = {claim["id"]: claim["verdict"] for claim in summary["claims"]}
    fixed = {name for name, claim in found.items() if claim.fixed}
    assert fixed == {name for name, verdict in settled.items() if verdict == BY_CONSTRUCTION}


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


def test_where_devices_change_the_exchange_of_properties_is_on_the_bill(out, summary):
    found = json.loads((out / "studies" / "changing.json").read_text())["found"]["partitions"]
    for ways in found.values():
        told = {way: np.array(row["bytes_told"]) / 16 for way, row in ways.items()}
        members = np.array(ways[AGAIN]["members"])
        assert ((members <= told[AGAIN]) & (told[AGAIN] <= DEVICES)).all()
        assert (told[AGAIN][:, -1] < told[AGAIN][:, 0]).all(), "who cannot pay a round tells nothing"
        np.testing.assert_array_equal(told[ONCE][:, 0], told[AGAIN][:, 0])
        assert not told[ONCE][:, 1:].any()
        assert not told[CHANCE].any()


def test_telling_takes_time_and_energy_by_the_devices_network():
    (cell,) = (c for c in PAPER.cells("smoke") if c.key == (name_experiment("IID", 0.5), PROPOSED))
    run = config.build(config.resolve({**cell.config, "seeds": [0]}))
    (data,) = run.data.draws((0,))
    quality = np.random.default_rng((changing.NETWORKS, 0)).random((run.experiment.rounds, DEVICES), np.float32)
    now = changing.change_network(data.devices, jnp.asarray(1 - quality[0]))
    turn = np.asarray(changing.time_telling(now).total)
    np.testing.assert_allclose(turn, 16 / np.asarray(now.up), rtol=1e-6)
    price = changing.price_round(run.experiment, dataclasses.replace(data, devices=now), jax.random.key(0), 0)
    chosen = np.asarray(greedy(features(now, "max"), Weights(), 15).mask)  # batteries are full
    ends = {way: changing.follow_seeds(run, way, 1e9) for way in (AGAIN, ONCE)}
    for found in ends.values():
        np.testing.assert_allclose(found["joules"][0, 0], price[chosen].sum() + 0.1 * turn.sum(), rtol=1e-5)
    assert ends[ONCE]["seconds"][0, 0] == ends[AGAIN]["seconds"][0, 0]
