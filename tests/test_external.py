"""The settings of public tables, against what the tables' authors say and what their code draws."""

import json
import math
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import benchmarks.external.__main__ as main
from benchmarks.external import page, results
from benchmarks.external.partition import PublicDraw, count_labels
from benchmarks.external.settings import DATA, METHODS, PARTITIONS, STAGES, Cell, configure, order_runs, read_published
from fedjax_sel.aggregation.fednova import FedNova
from fedjax_sel.aggregation.mean import Mean
from fedjax_sel.config import build, resolve
from fedjax_sel.config.build import build_parts
from fedjax_sel.correction.none import NoCorrection
from fedjax_sel.correction.proximal import Proximal
from fedjax_sel.correction.scaffold import Scaffold
from fedjax_sel.data import partition
from fedjax_sel.local_training import CropFlip
from fedjax_sel.local_training.sgd import SGD
from fedjax_sel.models.cnn import CNN
from fedjax_sel.runs import layout
from fedjax_sel.task import Task

ROOT = Path(__file__).parents[1]

MNIST = (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949)
"""Training images of each digit."""

FASHION = (6000,) * 10


def labels(sizes):
    """Labels of classes of these sizes, in a random order."""
    return np.random.default_rng(1).permutation(np.repeat(np.arange(len(sizes)), sizes))


# What the functions of niid_bench's dataset_preparation.py return with seed 42, counted by client and class.
DRAWN = {
    ("dirichlet", FASHION): {
        0: [1311, 1134, 31, 2363, 1531, 0, 0, 0, 0, 0],
        6: [66, 402, 46, 21, 629, 902, 201, 71, 469, 1609],
        9: [643, 29, 1385, 3, 40, 374, 1509, 145, 3061, 0],
    },
    ("dirichlet", MNIST): {
        1: [30, 76, 30, 45, 248, 24, 678, 3988, 520, 3836],
        9: [325, 677, 36, 4, 159, 235, 4, 131, 1771, 1078],
    },
    ("labels", MNIST): {
        0: [1975, 0, 0, 0, 0, 0, 0, 2089, 0, 0],
        4: [0, 0, 0, 0, 1947, 0, 0, 0, 2926, 0],
        9: [0, 0, 0, 0, 0, 0, 0, 2088, 0, 5949],
    },
}


@pytest.mark.parametrize(("law", "sizes"), DRAWN, ids=lambda value: value if isinstance(value, str) else "")
def test_the_partition_is_the_one_that_the_benchmark_draws(law, sizes):
    y = labels(sizes)
    found = count_labels(PublicDraw(law).assign(y, np.random.default_rng(7)), y, 10)
    for client, counts in DRAWN[law, sizes].items():
        assert found[client].tolist() == counts
    assert found.sum(0).tolist() == list(sizes)


def test_iid_parts_are_equal_and_random():
    y = np.sort(labels(FASHION))
    found = count_labels(PublicDraw("iid").assign(y, np.random.default_rng(0)), y, 10)
    assert (found.sum(1) == 6000).all()
    expected = 6000 / 10
    assert (
        30 < ((found - expected) ** 2 / expected).sum() < 150
    )  # of 81 degrees of freedom, sampled without replacement


def test_the_laws_are_those_of_the_library():
    y, rng = labels((600,) * 10), np.random.default_rng(0)
    ours = [
        [count_labels(law.assign(y, rng), y, 10) for _ in range(200)]
        for law in (partition.Dirichlet(10, 0.5, min_examples=10, balance=True), partition.LabelCount(10, 2))
    ]
    theirs = [
        [count_labels(PublicDraw(law, seed=seed).assign(y, rng), y, 10) for seed in range(200)]
        for law in ("dirichlet", "labels")
    ]
    for mine, public in zip(ours, theirs, strict=True):
        mine, public = np.stack(mine), np.stack(public)
        assert abs(mine.sum(2).std() / public.sum(2).std() - 1) < 0.1  # sizes of clients
        assert abs((mine == 0).mean() - (public == 0).mean()) < 0.02  # classes that a client lacks
        assert np.abs(mine[:, 0].mean(0) - public[:, 0].mean(0)).max() < 60


def test_a_law_that_there_is_not_is_refused():
    with pytest.raises(ValueError, match="law is 'shards'; it must be one of iid, dirichlet, labels"):
        PublicDraw("shards")


@pytest.mark.parametrize(("side", "channels", "parameters"), [(28, 1, 44_426), (32, 3, 62_006)])
def test_lenet_has_the_parameters_of_the_benchmark(side, channels, parameters):
    # 6 (25 c + 1) + 16 (150 + 1) + 120 (16 s² + 1) + 84 (120 + 1) + 10 (84 + 1), s = 4 or 5 places a side
    places = ((side - 4) // 2 - 4) // 2
    by_hand = 6 * (25 * channels + 1) + 16 * 151 + 120 * (16 * places**2 + 1) + 84 * 121 + 850
    model = build_model(configure(Cell("mnist", "iid", "fedavg"), 0)["model"])
    assert Task(model).parameters(np.zeros((1, side, side, channels), np.uint8)) == by_hand == parameters


def build_model(given):
    """The model that a configuration names, with ten classes."""
    names = ("channels", "hidden", "kernel", "pooled", "initial")
    return CNN(**{name: tuple(value) if isinstance(value := given[name], list) else value for name in names})


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("method", METHODS)
def test_settings_are_the_published_ones(data, method):
    config = configure(Cell(data, "dirichlet", method, 0.01 if method == "fedprox" else None), seed=3)
    parts = build_parts(config)
    augment = CropFlip(padding=4, flip=True, border="reflect") if data == "cifar10" else None
    sgd = SGD(0.01, batch_size=64, epochs=10, momentum=0.9, weight_decay=1e-5, augment=augment)
    assert parts["local_training"] == sgd
    corrections = {"scaffold": Scaffold("after_momentum", "size"), "fedprox": Proximal(0.01)}
    assert parts["correction"] == corrections.get(method, NoCorrection())
    assert parts["aggregation"] == (FedNova() if method == "fednova" else Mean("size"))
    assert (config["cohort_size"], config["rounds"], config["evaluate_every"]) == (10, 50, 1)
    assert (config["partition"]["clients"], config["partition"]["alpha"], config["partition"]["seed"]) == (10, 0.5, 42)
    assert (config["model"]["normalise"], config["model"]["initial"]) == ("unit", "torch")
    assert (config.seeds, config.data_seed, config.holdout) == ((3,), 42, 0)


def test_the_table_has_all_cells_and_all_are_run_once():
    assert set(read_published()) == {(d, p, m) for d in DATA for p in PARTITIONS for m in METHODS}
    cells = [cell for cells in STAGES.values() for cell in cells]
    assert len(set(cells)) == len(cells)
    assert {(c.data, c.partition, c.method) for c in cells} == set(read_published())
    assert {c.mu for c in cells if (c.data, c.partition) == ("mnist", "iid")} == {None, 0.001, 0.01, 0.1, 1.0}
    first = list(order_runs())[:6]
    assert {(c.method, seed) for c, seed in first} == {("fedavg", 0)}


def test_the_published_deviation_is_that_of_a_sample():
    assert np.std([10, 10, 81.4], ddof=1) == pytest.approx(41.22, abs=0.01)


def test_an_interval_of_a_difference_is_welchs():
    ours, theirs = (88.3, 88.9, 88.1, 88.6), (88.0, 88.5, 87.9)
    of = results.Published(float(np.mean(theirs)), float(np.std(theirs, ddof=1)))
    away, low, high = results.compare(results.Measured(ours), of)
    wanted = stats.ttest_ind(ours, theirs, equal_var=False).confidence_interval(0.95)
    assert (low, high) == pytest.approx((wanted.low, wanted.high))
    assert away == pytest.approx(np.mean(ours) - np.mean(theirs))


def test_one_seed_is_compared_with_a_further_run_of_theirs():
    rng = np.random.default_rng(1)
    runs = rng.normal(size=(20_000, 4))
    of = [results.Published(float(np.mean(row)), float(np.std(row, ddof=1))) for row in runs[:, :3]]
    ends = [results.compare(results.Measured((one,)), it)[1:] for one, it in zip(runs[:, 3], of, strict=True)]
    agreeing = [low <= 0 <= high for low, high in ends]
    assert np.mean(agreeing) == pytest.approx(0.95, abs=0.005)


def test_runs_of_several_machines_come_together():
    settings = {"rounds": 50}
    known = {"settings": settings, "runs": [a_run(98.0, 1), a_run(97.0, 0)]}
    new = {"settings": settings, "runs": [a_run(99.0, 1), a_run(90.0, data="fashion_mnist")]}
    joined = results.join_runs(new, known)["runs"]
    assert [(run["data"], run["seed"], run["best"]) for run in joined] == [
        ("fashion_mnist", 0, 90.0),
        ("mnist", 0, 97.0),
        ("mnist", 1, 99.0),
    ]
    assert results.join_runs(new, None) == new
    with pytest.raises(ValueError, match="the 2 known runs have another rounds; keep them elsewhere first"):
        results.join_runs(new, {**known, "settings": {"rounds": 2}})


def test_a_cell_that_no_accuracy_could_decide_is_named_whatever_was_measured():
    key = ("fashion_mnist", "labels", "scaffold")
    published = {key: results.Published(33.8, 41.22), ("mnist", "iid", "fedavg"): results.Published(99.2, 0.1)}
    measured = {one: results.Measured((48.37,)) for one in published}
    differ, decide = page.explain(measured, published)[2], page.explain(measured, published)[4]
    assert "MNIST, IID, FedAvg" in differ
    assert decide.startswith(
        "- Fashion-MNIST, two labels, SCAFFOLD: no accuracy of ours could leave the interval. 33.80"
    )
    assert "\n" not in decide


def a_run(best, seed=0, data="mnist", law="dirichlet", method="fedavg", mu=None, rounds=50):
    """What the JSON keeps of a run."""
    place = {"data": data, "partition": law, "method": method, "mu": mu, "seed": seed, "rounds": rounds}
    found = {"best": best, "best_round": 40, "last": best, "diverged": best is None, "hours": 0.5}
    return place | found | {"commit": "abc", "device": "2 x cpu"}


@pytest.fixture(scope="module")
def small():
    """Two cells with three seeds, one with one, FedProx with two `μ`, and a trial."""
    return {
        "runs": [
            *(a_run(98.89 + 0.05 * i, i) for i in (-1, 0, 1)),
            *(a_run(98.9 + 0.05 * i, i, method="fednova") for i in (-1, 0, 1)),
            a_run(89.0, data="fashion_mnist", law="iid"),
            *(a_run(50.0 + i, i, "fashion_mnist", "labels", "fedprox", 1.0) for i in (0, 1)),
            *(a_run(77.0 + i, i, "fashion_mnist", "labels", "fedprox", 0.01) for i in (0, 1)),
            a_run(None, 0, "fashion_mnist", "labels", "scaffold"),
            a_run(30.0, law="iid", rounds=2),
        ]
    }


def test_the_page_shows_what_was_measured_and_says_what_was_not_run(small):
    text = page.render(small)
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert sum("not run" in line for line in lines) == 36 - 5
    of = {tuple(cell.strip() for cell in line.split("|")[1:4]): line for line in lines}
    assert "98.89 [98.77, 99.01], ± 0.05, 3 seeds" in of["Dirichlet (0.5)", "FedAvg", "98.89 ± 0.07"]
    assert "| agree |" in of["Dirichlet (0.5)", "FedAvg", "98.89 ± 0.07"]
    assert "| ours above |" in of["Dirichlet (0.5)", "FedNova", "98.03 ± 0.06"]
    assert "89.00, one seed | -0.23 [-2.47, +2.01] | undecided |" in of["IID", "FedAvg", "89.23 ± 0.45"]
    assert "77.50 [" in of["two labels", "FedProx, μ = 0.01 (best of 2)", "78.05 ± 0.99"]
    assert "10.00, one seed" in of["two labels", "SCAFFOLD", "33.80 ± 41.22"]
    assert "Of 36 cells 5 were run, 2 of them with one seed: 1 agree, 3 are undecided, " in text
    assert "ours is above in 1 and below in 0.**" in text
    assert "- MNIST, Dirichlet (0.5), FedNova: ours above by 0.87 points" in text
    assert "misprint" in text
    assert "13 runs, 6.5 hours in all, with the time in which some were stopped, on 2 x cpu; commit abc." in text
    assert "1 of them have fewer than 50 rounds, and are in no table." in text


def test_a_run_that_collapsed_with_finite_updates_is_named():
    ends = {"last": 9.8, "best_round": 4}
    low, half, over = a_run(48.37, law="labels", method="scaffold"), a_run(19.6, 1), a_run(48.37, 2)
    text = page.render({"runs": [low | ends, half | ends, over | ends | {"diverged": True}]})
    assert text.count("collapsed") == 1
    assert (
        "MNIST, two labels, SCAFFOLD, seed 0 collapsed: its best accuracy is 48.37 % in round 4, and its last 9.80 %"
        in text
    )


def test_the_best_mu_is_chosen_among_those_with_the_most_seeds():
    runs = [a_run(95.6 + i, i, method="fedprox", mu=0.01) for i in (-1, 0, 1)]
    runs.append(a_run(99.0, 0, method="fedprox", mu=0.001))
    (found,) = results.summarize(runs).values()
    assert (found.mu, found.tried, found.best) == (0.01, 1, (94.6, 95.6, 96.6))


def test_what_explains_a_single_run_is_told_of_no_more():
    one = a_run(90.0, law="dirichlet", method="fedprox", mu=0.01)
    assert "ours of 0.01 alone" in page.render({"runs": [one]})
    for more in (a_run(90.1, 1, law="dirichlet", method="fedprox", mu=0.01), one | {"mu": 1.0, "best": 89.0}):
        text = page.render({"runs": [one, more]})
        assert "ours of 0.01 alone" not in text
        assert "ours below" not in text or "Not explained." in text


def test_a_trial_goes_on_to_all_rounds(tmp_path, monkeypatch):
    of = {"data": "iris", "partition": {"clients": 4}, "cohort_size": 4, "seeds": 1}
    monkeypatch.setattr(main, "configure", lambda cell, seed, rounds: resolve({**of, "rounds": rounds}))
    monkeypatch.setattr("fedjax_sel.runs.prepare.prepare_jax", lambda **_: None)
    monkeypatch.setattr(main, "ROUNDS", 3)
    monkeypatch.setattr(results, "collect", lambda out: {"runs": []})
    monkeypatch.setattr(main, "KEPT", tmp_path / "none.json")
    cell = Cell("mnist", "iid", "fedavg")
    ran = []
    for rounds in (1, 1, 3, 3, 1):
        main.run_all(tmp_path, [(cell, 0)], rounds)
        ran.append(layout.read(results.locate(tmp_path, cell, 0))[0].rounds)
    assert ran == [1, 1, 3, 3, 3]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--stages", "fedavg,other"], "unknown stage other; there are: fedavg, others"),
        (
            ["--cells", "mnist-iid-fedavg,mnist-iid-fedprox"],
            "unknown cell 'mnist-iid-fedprox'; did you mean 'mnist-iid-fedprox-",
        ),
        (["--stages", "fedavg", "--cells", "mnist-iid-fednova"], "unknown cell 'mnist-iid-fednova'; did you mean"),
        (["--seeds", "0"], "--seeds is 0; it must be from 1 to 20"),
        (["--seeds", "21"], "--seeds is 21; it must be from 1 to 20"),
        (["--rounds", "-2"], "--rounds is -2; it must be from 1 to 50"),
        (["--rounds", "60"], "--rounds is 60; it must be from 1 to 50"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_runs(given, said, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(main, "run_all", lambda *_: pytest.fail("something runs"))
    monkeypatch.setattr(sys, "argv", ["external", "--out", str(tmp_path), *given])
    with pytest.raises(SystemExit):
        main.main()
    assert said in capsys.readouterr().err


def test_named_cells_are_run_in_the_order_of_the_stages(tmp_path, monkeypatch):
    monkeypatch.setattr(main, "run_all", lambda out, wanted, rounds: ran.extend((c.name, s) for c, s in wanted))
    names, ran = "mnist-labels-fednova,mnist-iid-fedavg", []
    monkeypatch.setattr(sys, "argv", ["external", "--out", str(tmp_path), "--seeds", "2", "--cells", names])
    main.main()
    assert ran == [(name, seed) for name in ("mnist-iid-fedavg", "mnist-labels-fednova") for seed in (0, 1)]


def test_without_runs_nothing_is_claimed():
    text = page.render({"runs": []})
    assert text.count("| not run |") == 36
    assert "No cell of 36 was run" in text
    assert "Where they differ" not in text


def test_the_figure_has_the_difference_of_every_cell_that_was_run(small):
    import matplotlib.pyplot as plt

    figure = page.draw(small)
    drawn = [float(box.lines[0].get_xdata()[0]) for box in figure.axes[0].containers]
    published = read_published()
    wanted = {key: ours.mean - published[key].mean for key, ours in results.summarize(small["runs"]).items()}
    assert sorted(drawn) == pytest.approx(sorted(wanted.values()))
    assert len(drawn) == 5
    plt.close(figure)


def read_committed():
    """Returns the committed JSON."""
    return json.loads((ROOT / "benchmarks/results/niid-bench.json").read_text(encoding="utf-8"))


def test_a_committed_run_is_what_todays_code_computes():
    """Two rounds of it, in which accuracy rises by 25 points and more; seeds differ by five and more points."""
    run = next(run for run in read_committed()["runs"] if "curve" in run)
    cell = Cell(run["data"], run["partition"], run["method"], run["mu"])
    try:
        history = build(configure(cell, run["seed"], rounds=2)).simulate()
    except FileNotFoundError as error:
        pytest.skip(f"the run needs data: {error}")
    np.testing.assert_allclose(100 * history["accuracy"][0], run["curve"][:2], atol=2)


@pytest.mark.parametrize(
    ("partition", "method", "first", "told"),
    [
        ("dirichlet", "fedavg", 88.4, "below by {away:.2f} ± {reach:.2f}"),
        ("labels", "fednova", 70.5, "above by {away:.1f} ± {reach:.1f}"),
    ],
)
def test_the_page_says_what_the_first_edition_would_change(partition, method, first, told):
    """By SciPy's interval of a new observation: three runs of which mean and deviation are known, and a fourth."""
    cell = {"data": "fashion_mnist", "partition": partition, "method": method}
    (ours,) = [one["best"] for one in read_committed()["runs"] if cell.items() <= one.items()]
    theirs = read_published()[tuple(cell.values())]
    apart = theirs.std * np.array([-1.0, 0.0, 1.0])  # three numbers of this mean and deviation
    four = np.array([*(theirs.mean + apart), first])
    reach = stats.t.ppf(0.975, 3) * four.std(ddof=1) * np.sqrt(1 + 1 / 4)
    away = abs(ours - four.mean())
    assert away > reach
    assert told.format(away=away, reach=reach) in " ".join(page.render(read_committed()).split())


def test_the_committed_page_is_that_of_the_committed_json():
    found = read_committed()
    assert (ROOT / "docs/results/external.md").read_text(encoding="utf-8") == page.render(found)
    told = re.search(r"of (\d+) on average. Here (\d+) did", page.render(found))
    assert told is not None
    cells, out = (int(number) for number in told.groups())
    chance = 1 - sum(math.comb(cells, k) * 0.05**k * 0.95 ** (cells - k) for k in range(out))
    assert f"as many or more do in {100 * chance:.0f} % of such tables" in page.render(found)
    for run in found["runs"]:
        assert run["best"] is None or 0 < run["best"] <= 100
        assert math.isfinite(run["hours"])
