"""The benchmarks run, and count right; what they measure is nobody's test."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_sel as fs
from fedjax_sel.leaderboard.statistics import Estimate
from fedjax_sel.local_training.sgd import SGD
from fedjax_sel.models.mlp import MLP

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def checkout(monkeypatch):
    """The benchmarks are beside the package, not in it."""
    monkeypatch.syspath_prepend(str(ROOT))


def test_a_quick_workload_writes_what_it_measured(tmp_path):
    out = tmp_path / "quick.json"
    command = [sys.executable, "-m", "benchmarks", "--quick", "--only", "flute-lr,gpfl-mlp", "--out", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())
    assert set(found) == {"flute-lr", "gpfl-mlp"}
    for name in found:
        (row,) = found[name]["rows"]
        assert row["seconds_a_round"] > 0
        assert 0 < row["fraction_of_peak"] == pytest.approx(row["flops_a_second"] / found[name]["peak_flops"])
        assert f"| {name} |" in done.stdout


def test_a_workload_that_is_none_is_refused():
    command = [sys.executable, "-m", "benchmarks", "--only", "flute"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert "unknown workload flute; there are: flute-lr, gpfl-mlp" in done.stderr


def test_the_time_of_an_operation_is_without_those_inside():
    from benchmarks.profiles import own_time

    events = [(0, 100, "while"), (10, 30, "dot"), (15, 5, "copy"), (50, 40, "dot"), (200, 7, "sort")]
    assert own_time(events) == {"while": 30, "dot": 65, "copy": 5, "sort": 7}


def test_a_round_moves_at_least_rows_parameters_and_scores(blobs):
    from benchmarks.profiles import moved

    experiment = fs.Experiment(
        fs.Task.on(MLP(classes=3, hidden=(4,)), blobs), cohort_size=3, local_training=SGD(batch_size=8)
    )
    federation = fs.Federation(blobs, fs.partition.Iid(clients=12))
    rows, steps, parameters = 216 // 12, 3, (2 + 1) * 4 + (4 + 1) * 3
    assert moved(experiment, federation) == 3 * (rows * 2 * 4 + steps * 2 * 4 * parameters) + 4 * 12


def test_a_ratio_is_of_one_turn_and_failures_are_left_out():
    from benchmarks.peers.__main__ import ratios

    def turn(ours, theirs):
        return {"fedjax_sel": {"seconds_a_round": ours}, "slow": theirs}

    turns = [turn(1.0, {"seconds_a_round": 3.0}), turn(2.0, {"seconds_a_round": 8.0}), turn(1.0, {"failed": "late"})]
    assert ratios([*turns, {"fedjax_sel": {"seconds_a_round": 5.0}}]) == {"slow": 3.5}


@pytest.mark.parametrize(
    ("seconds", "rounds", "expected"),
    [
        ([9, 1, 1, 3, 3, 5, 5, 4, 2], 10, 3),  # of 1, 3, 5, 3: the first chunk, which is not whole, does not count
        ([9, 9, 1, 1, 3, 3, 5, 5, 4, 2], 10, 3),
        ([7, 1, 2, 3, 4, 9], 6, 3),  # of single rounds but the first
        ([1, 1, 7, 1, 1, 7, 1, 1, 7, 1, 1, 7], 15, 3),  # of means, where the median of rounds is 1
    ],
)
def test_a_peers_time_is_the_median_of_its_chunks_means(seconds, rounds, expected):
    from benchmarks.timing import steady

    assert steady(seconds, rounds) == expected


def test_figures_have_three_digits_and_no_powers_of_ten():
    from benchmarks.tables import figure

    assert [figure(x) for x in (0.5704, 17.83, 2901.4)] == ["0.57", "17.8", "2,901"]


def test_the_tables_of_the_documentation_are_those_of_the_results():
    from benchmarks.tables import documented

    tables = documented()
    page = (ROOT / "docs/results/speed.md").read_text()
    for wanted in tables:
        assert wanted in page, f"python -m benchmarks.tables says otherwise:\n{wanted}"
    assert tables[0] in (ROOT / "README.md").read_text()


def test_the_seconds_of_all_rounds_are_those_of_the_file():
    found = json.loads((ROOT / "benchmarks/results/peers.json").read_text(encoding="utf-8"))
    page = (ROOT / "docs/results/speed.md").read_text(encoding="utf-8")
    for work, rounds in (("flute-lr", 500), ("gpfl-mlp", 60), ("pfl-cifar", 6), ("blazefl-cifar", 5)):
        told = []
        for name in ("fedjax_sel", "torch", "torch_func", "fedjax", "pfl", "flower", "blazefl"):
            turns = [turn[name] for turn in found[work]["turns"] if name in turn]
            whole = np.median([rounds * one["seconds_a_round"] + one.get("seconds_of_compilation", 0) for one in turns])
            told.append(f"{whole:.1f}" if whole < 100 else f"{whole:.0f}")
        assert f"| `{work}`, {rounds} rounds | {' | '.join(told)} |" in page


def test_a_workload_that_fails_keeps_what_it_measured_and_the_others_run(tmp_path, monkeypatch):
    from benchmarks import __main__ as command

    def fake(arguments, **_):
        name = arguments[arguments.index("--one") + 1]
        row = {"seconds_a_round": 0.5, "seconds_a_round_and_seed": 0.5, "seeds": 1, "seconds_of_compilation": 1.0}
        row |= {"flops_a_second": 1e9, "fraction_of_peak": 0.5, "peak_memory": 2**20}
        Path(arguments[arguments.index("--out") + 1]).write_text(json.dumps({"rows": [row], "name": name}))
        return subprocess.CompletedProcess(arguments, returncode=int(name == "flute-lr"))

    monkeypatch.setattr(command.subprocess, "run", fake)
    out = tmp_path / "found.json"
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--only", "flute-lr,sweep", "--out", str(out)])
    with pytest.raises(SystemExit, match="failed: flute-lr"):
        command.main()
    assert set(json.loads(out.read_text())) == {"flute-lr", "sweep"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--only", "flower,fedjack"], "unknown peer fedjack; there are: "),
        (["--works", "flute"], "unknown workload flute; there are: flute-lr, "),
        (["--repeats", "0"], "--repeats is 0; it must be at least 1"),
    ],
)
def test_peers_and_workloads_that_do_not_exist_are_refused_before_any_runs(given, said, monkeypatch, capsys):
    from benchmarks.peers import __main__ as command

    monkeypatch.setattr(command, "call", lambda *_, **__: pytest.fail("something runs"))
    monkeypatch.setattr(sys, "argv", ["peers", *given])
    with pytest.raises(SystemExit):
        command.main()
    assert said in capsys.readouterr().err


def test_a_turn_is_kept_beside_those_before_of_the_same_environment(tmp_path, monkeypatch):
    from benchmarks.peers import __main__ as command

    def keep(name, ours, theirs, machine="a"):
        ours = {"seconds_a_round": ours, "environment": {"device": machine}}
        command.keep(name, {"fedjax_sel": ours, "torch": theirs})
        return json.loads((tmp_path / "peers.json").read_text())

    monkeypatch.setattr(command, "RESULTS", tmp_path / "peers.json")
    keep("w", 1.0, {"seconds_a_round": 3.0})
    keep("w", 2.0, {"seconds_a_round": 10.0})
    found = keep("v", 1.0, {"failed": "late"})
    assert [turn["torch"]["seconds_a_round"] for turn in found["w"]["turns"]] == [3.0, 10.0]
    assert (found["w"]["ratios"], found["v"]["ratios"]) == ({"torch": 4.0}, {})
    elsewhere = keep("w", 1.0, {"seconds_a_round": 9.0}, machine="b")
    assert elsewhere == {
        "v": found["v"],
        "w": {
            "environment": {"device": "b"},
            "turns": [{"fedjax_sel": {"seconds_a_round": 1.0}, "torch": {"seconds_a_round": 9.0}}],
            "ratios": {"torch": 9.0},
        },
    }


def test_a_peers_environment_is_made_anew_for_other_packages(tmp_path, monkeypatch):
    from benchmarks.peers import __main__ as command

    installed = []
    monkeypatch.setattr(command, "CACHE", tmp_path)
    monkeypatch.setattr(command.subprocess, "run", lambda called, **_: installed.append(called[-1]))
    (tmp_path / "torch").mkdir()
    for packages in (("torch==1",), ("torch==1",), ("torch==2",)):
        monkeypatch.setitem(command.PEERS, "torch", ("torch_loop.py", packages))
        command.environment("torch")
    assert [one for one in installed if "==" in str(one)] == ["torch==1", "torch==2"]


def test_a_missing_dataset_is_an_error_and_no_random_rows(tmp_path, monkeypatch):
    from benchmarks.workloads import Scale, flute_lr

    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    with pytest.raises(SystemExit, match=r"mnist.*; --quick runs on random rows, and measures nothing"):
        flute_lr(Scale())


def test_a_workload_that_failed_replaces_no_other_results(tmp_path):
    from benchmarks.tables import written

    out = tmp_path / "out.json"
    for rows, whole in (([1], False), ([1, 2], True), ([3], False)):
        written("w", {"rows": rows}, out, quick=True, whole=whole)
    assert json.loads(out.read_text()) == {"w": {"rows": [1, 2]}}


@pytest.mark.parametrize(
    ("module", "given", "said"),
    [
        ("benchmarks.__main__", ["--out", "missing/out.json"], "--out: there is no folder missing"),
        ("benchmarks.profiles", ["--only", "flute-lr", "--keep", "traces"], "traces already holds a trace"),
    ],
)
def test_folders_that_cannot_take_results_are_refused_before_anything_runs(
    module, given, said, tmp_path, monkeypatch, capsys
):
    (tmp_path / "traces" / "plugins").mkdir(parents=True)
    (tmp_path / "traces" / "plugins" / "of.xplane.pb").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [module, *given])
    with pytest.raises(SystemExit):
        importlib.import_module(module).main()
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "epochs", "shapes"),
    [
        ("flute-lr", 1, [(784, 10)]),
        ("gpfl-mlp", 3, [(784, 64)]),
        ("blazefl-cifar", 5, [(5, 5, 3, 6), (5, 5, 6, 16), (400, 120), (120, 84), (84, 10)]),
    ],
)
def test_peers_are_given_the_rows_owners_cohorts_and_parameters_that_we_train_on(name, epochs, shapes, tmp_path):
    from benchmarks.peers import work

    file = np.load(work.export(name, tmp_path, quick=True))
    told = json.loads(str(file["work"]))
    experiment, data, _ = work.made(name, quick=True)
    assert (told["epochs"], told["rounds"]) == (epochs, experiment.rounds)
    assert [file[f"kernel_{i}"].shape for i in range(len(shapes))] == shapes
    rows = [file["order"][first : first + count] for first, count in zip(file["offset"], file["size"], strict=True)]
    assert len(set(np.concatenate(rows))) == data.num_examples.sum()
    history = fs.simulate(experiment, data)
    assert (file["cohorts"] == history.selections[0]).all()
    for client in file["cohorts"][0]:
        ours = data.y[data.order[data.offset[client] :][: data.num_examples[client]]]
        assert (file["y"][rows[client]] == ours).all()


def test_a_peer_that_no_python_is_new_enough_for_has_failed(monkeypatch, tmp_path):
    from benchmarks.peers import __main__ as command

    monkeypatch.setattr(command, "CACHE", tmp_path)
    monkeypatch.setattr(command.shutil, "which", lambda wanted: {"python3.13t": "/bin/python3.13t"}.get(wanted))
    done = command.peer("blazefl", tmp_path / "work.npz", tmp_path / "out.json", 4)
    assert done == {"failed": "its environment cannot be made (no free-threaded Python 3.14 or newer is on the path)"}


@pytest.mark.parametrize(
    ("there", "name", "expected"),
    [
        (["python3.14t", "python3.15"], "blazefl", "python3.14t"),
        (["python3.13t", "python3.15t", "python3.14t"], "blazefl", "python3.15t"),
        (["python3.14t"], "torch", None),
    ],
)
def test_a_peer_made_for_a_free_threaded_python_gets_the_newest_on_the_path(there, name, expected, monkeypatch):
    from benchmarks.peers import __main__ as command

    monkeypatch.setattr(command.shutil, "which", lambda wanted: wanted if wanted in there else None)
    monkeypatch.setattr(command.subprocess, "run", lambda called, **_: subprocess.CompletedProcess(called, 0))
    assert command.find_python(name) == (expected or sys.executable)


def test_a_peers_line_says_turns_failures_and_what_was_not_run():
    from benchmarks.tables import peers

    def did(seconds, accuracy):
        return {"seconds_a_round": seconds, "accuracy": accuracy, "rounds": 4}

    turns = [
        {"fedjax_sel": did(0.001, 0.91), "torch": did(0.02, 0.94), "fedjax": {"failed": "late"}},
        {"fedjax_sel": did(0.003, 0.91), "torch": did(0.03, 0.9), "flower": did(0.3, 0.5)},
    ]
    found = {"w": {"turns": turns, "ratios": {"torch": 15.0, "flower": 100.0}}}
    line = peers(found).splitlines()[-1]
    told = ["w, 4 rounds", "2 ms (0.910)", "15× (0.920; 2 turns)", "not run", "late", "not run"]
    told += ["100× (0.500; 1 turn)", "not run"]
    assert line == f"| {' | '.join(told)} |"


def test_the_floor_counts_the_products_of_a_gradient_and_of_the_programs_inside():
    from benchmarks.floor import contracted, products

    def loss(w, x):
        return jax.jit(lambda w: jnp.tanh(x @ w[0]) @ w[1])(w).sum()

    x, w = jnp.ones((5, 7)), (jnp.ones((7, 3)), jnp.ones((3, 2)))
    found = products(jax.make_jaxpr(jax.grad(loss))(w, x).jaxpr)
    work = sorted(2 * eqn.outvars[0].aval.size * contracted(eqn) for eqn in found)
    forwards, backwards = [2 * 5 * 7 * 3, 2 * 5 * 3 * 2], [2 * 7 * 5 * 3, 2 * 3 * 5 * 2, 2 * 5 * 2 * 3]
    assert work == sorted(forwards + backwards)


def test_the_floor_of_a_convolutional_step_is_its_products_of_patches_and_kernels():
    from benchmarks.floor import MODELS, contracted, gradient, products_of_step

    found = products_of_step(*gradient(*MODELS["pfl-cifar, 10 rows"]))
    work = sorted(2 * eqn.outvars[0].aval.size * contracted(eqn) for eqn in found)
    first, second = 2 * 10 * 30**2 * 3**2 * 3 * 32, 2 * 10 * 28**2 * 3**2 * 32 * 64
    hidden, last = 2 * 10 * 14**2 * 64 * 128, 2 * 10 * 128 * 10
    assert work == sorted([*[first] * 2, *[second, hidden, last] * 3])  # pixels need no gradient


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_every_form_of_a_convolution_that_is_timed_computes_xlas_own(padding):
    from benchmarks.convolutions import list_ways

    rng = np.random.default_rng(0)
    x, kernel = (jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in ((2, 6, 6, 3), (3, 3, 3, 4)))
    ways = list_ways(padding)

    def both(way):
        return way(x, kernel), jax.grad(lambda x, kernel: (way(x, kernel) ** 3).sum(), (0, 1))(x, kernel)

    wanted = both(ways["XLA's own"])
    for way in ways.values():
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-2), both(way), wanted)


def test_drawn_scores_have_the_means_and_covariances_of_the_given_ones():
    from benchmarks.agreement import draw_scores

    rng = np.random.default_rng(0)
    scores = rng.normal(size=(3, 2, 10))
    drawn = np.concatenate([draw_scores(scores, rng) for _ in range(4000)], axis=2)
    np.testing.assert_allclose(drawn.mean(axis=2), scores.mean(axis=2), atol=0.03)
    for f in range(2):
        np.testing.assert_allclose(np.cov(drawn[:, f]), np.cov(scores[:, f]), atol=0.05)


def test_intervals_above_and_below_the_truth_are_told_apart():
    from benchmarks.agreement import count_misses

    scores, spread = np.random.default_rng(0).normal(size=(2, 1, 4)), np.array([0.0, 10.0])

    def find(drawn):
        mean = drawn.mean((1, 2))
        return Estimate(mean, mean - spread, mean + spread)

    above, below = count_misses(find, scores.mean((1, 2)) - np.array([9.0, 0.0]), scores, 5)
    assert (above.tolist(), below.tolist()) == ([1.0, 0.0], [0.0, 0.0])
    above, below = count_misses(find, scores.mean((1, 2)) + np.array([9.0, 20.0]), scores, 5)
    assert (above.tolist(), below.tolist()) == ([0.0, 0.0], [1.0, 1.0])


def test_a_second_look_refutes_more_and_many_seeds_refute_no_true_advantage():
    from benchmarks.verdicts import DEVIATION, FAILING, FAILING_DEVIATION, SMALL, count_verdicts, measure_refuted

    assert 0.04 < measure_refuted(3, 10, repeats=20_000) < 0.05
    assert abs(measure_refuted(5, 5, repeats=20_000) - 0.025) < 0.005, "one look"
    assert count_verdicts(SMALL, DEVIATION, 400, 0.005, repeats=5) == {"reproduced": 5}
    kept, lenient = (count_verdicts(FAILING, FAILING_DEVIATION, 20, nu, repeats=200) for nu in (0.005, 0.0))
    assert kept["not reproduced"] > 120 > 20 > lenient["not reproduced"], "ν refutes a claim that fails in one of three"


def test_a_round_is_timed_for_each_place_of_the_examples_and_computes_the_same_there(tmp_path):
    from benchmarks.workloads import PLACES, Scale, flute_lr, map_examples, places

    _, federation = flute_lr(Scale(quick=True))
    mapped = map_examples(federation, tmp_path / "x.npy")
    assert isinstance(mapped.source.x, np.memmap)
    np.testing.assert_array_equal(mapped.source.x, federation.source.x)
    rows = list(places(Scale(quick=True), 1e9))
    assert [row["examples"] for row in rows] == list(PLACES)
    assert [row["examples_on"].startswith("on the host") for row in rows] == [False, True, True]
    assert len({row["final_accuracy"] for row in rows}) == 1
