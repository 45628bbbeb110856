"""The command line, as a user meets it."""

import errno
import os
import re
import shutil
import signal
import subprocess
import sys
import warnings

import jax
import numpy as np
import pytest
from typer.testing import CliRunner

from fedjax_sel import config
from fedjax_sel.cli import main
from fedjax_sel.cli.app import explain_damaged_program, is_users
from fedjax_sel.engine.history import History
from fedjax_sel.runs import layout

SMALL = ("digits", "partition.clients=20", "cohort_size=3", "rounds=4", "--seeds", "2")


@pytest.fixture(autouse=True)
def somewhere_else(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")


def small(*items):
    """The small run with some items in the place of those of the same keys."""
    keys = {item.partition("=")[0] for item in items}
    return [*(item for item in SMALL if item.partition("=")[0] not in keys), *items]


def call(*arguments):
    return CliRunner().invoke(main, [str(a) for a in arguments])


def refused(*arguments):
    """The one line of a command that was refused."""
    done = call(*arguments)
    assert done.exit_code == 2, done.output
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("error: ")
    assert "Traceback" not in done.output
    return line


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Two finished runs that differ in selector and rounds, made once."""
    here = tmp_path_factory.mktemp("runs")
    for name, more in (("entropy", ()), ("uniform", ("client_selection=uniform", "rounds=3"))):
        done = call("run", *small(*more), "--out", here / name)
        assert done.exit_code == 0, done.output
    return here


def test_a_run_prints_device_mapping_table_and_folder(tmp_path):
    done = call("run", *SMALL)
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0].startswith("device: ")
    assert "GiB" in lines[0]
    assert lines[1].startswith("layout: seeds by")
    assert "4/4" in done.stdout
    assert "mean of 2 seeds" in done.stdout
    (place,) = (tmp_path / "runs").iterdir()
    assert place.name.startswith("digits-")
    assert f"The run is in runs/{place.name}" in done.stdout
    assert layout.state(place) == "finished"
    history, _ = layout.read(place)
    assert (history.rounds, history.seeds) == (4, (0, 1))


def test_a_finished_run_is_shown_and_not_run_again(finished):
    before = {path: path.stat().st_mtime_ns for path in finished.rglob("*")}
    done = call("run", *SMALL, "--out", finished / "entropy")
    assert done.exit_code == 0
    assert "Nothing was run" in done.stdout
    assert "final accuracy" in done.stdout
    assert {path: path.stat().st_mtime_ns for path in finished.rglob("*")} == before


def test_the_configuration_in_a_folder_reruns_the_run(finished, tmp_path):
    done = call("run", finished / "entropy" / "config.yaml", "--out", tmp_path / "again")
    assert done.exit_code == 0, done.output
    one, other = layout.read(finished / "entropy")[0], layout.read(tmp_path / "again")[0]
    for name in one.metrics:
        np.testing.assert_array_equal(one[name], other[name])
    np.testing.assert_array_equal(one.selections, other.selections)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_says_what_is_kept_and_goes_on_to_the_same_end(finished, tmp_path, monkeypatch, number):
    from fedjax_sel.report.progress import Bar

    shown = Bar.after_central_iteration

    def interrupt(self, history):
        shown(self, history)
        if history.rounds == 2:
            os.kill(os.getpid(), number)

    monkeypatch.setattr(Bar, "after_central_iteration", interrupt)
    stopped = call("run", *SMALL, "--out", tmp_path / "run")
    assert stopped.exit_code == 128 + number
    assert "stopped after 2 of 4 rounds; kept in" in stopped.stderr
    assert "goes on from there" in stopped.stderr
    assert layout.state(tmp_path / "run") == "interrupted"
    monkeypatch.undo()
    monkeypatch.setenv("COLUMNS", "160")
    resumed = call("run", *SMALL, "--out", tmp_path / "run")
    assert resumed.exit_code == 0, resumed.output
    assert "continuing after round 2" in resumed.stdout
    one, other = layout.read(finished / "entropy")[0], layout.read(tmp_path / "run")[0]
    for name in one.metrics:
        np.testing.assert_array_equal(one[name], other[name])


def test_a_second_interrupt_stops_at_once(tmp_path, monkeypatch):
    from fedjax_sel.report.progress import Bar

    def twice(self, history):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Bar, "after_central_iteration", twice)
    before = signal.getsignal(signal.SIGINT)
    assert call("run", *SMALL, "--out", tmp_path / "run").exit_code == 130
    assert signal.getsignal(signal.SIGINT) is before


def test_another_name_of_the_field_is_said(tmp_path):
    done = call("run", "iris", "rounds=1", "lr=0.2", "--seeds", 1)
    assert done.exit_code == 0, done.output
    assert "lr is local_training.learning_rate here" in done.stdout


def test_debugging_runs_without_compilation_and_keeps_no_checkpoints(tmp_path, monkeypatch):
    asked = {}
    simulate = config.Run.simulate

    def quick(run, **how):
        asked.update(how)
        return simulate(run, **{**how, "debug": False})

    monkeypatch.setattr(config.Run, "simulate", quick)
    done = call("run", "iris", "rounds=1", "--seeds", 1, "--debug")
    assert done.exit_code == 0, done.output
    assert asked["debug"] is True
    (place,) = (tmp_path / "runs").iterdir()
    assert place.name.endswith("-debug")
    assert not (place / "checkpoints").exists()


def test_with_debug_an_error_keeps_its_traceback():
    done = call("run", "iris", "cohort_size=300", "--debug")
    assert isinstance(done.exception, ValueError)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("digit",), "unknown preset 'digit'; did you mean 'digits'"),
        (("nowhere.yaml",), "no file nowhere.yaml"),
        (("iris", "client_selection=entrop"), "did you mean 'entropy'"),
        (("iris", "cohort_size=300"), "N = 10 clients"),
        (("iris", "client_selection=power_of_choice", "client_selection.d=2"), "d is 2 candidates"),
        (("iris", "--seeds", "0"), "seeds are 0"),
        (("iris", "--layout", "vmp"), "did you mean 'vmap'"),
        (("iris", "--out", "taken"), "not a run's folder"),
        (("iris", "data=npz:nowhere.npz"), "nowhere.npz"),
    ],
)
def test_a_bad_request_is_one_line_and_leaves_nothing_behind(tmp_path, arguments, says):
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "thesis.tex").write_text("precious")
    assert says in refused("run", *arguments)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["taken", "thesis.tex"]


def test_another_configuration_in_the_folder_is_refused(finished):
    line = refused("run", *small("cohort_size=4"), "--out", finished / "entropy")
    assert "cohort_size: 3 there, 4 here" in line


def test_runs_of_different_lengths_are_compared(finished, tmp_path):
    done = call(
        "compare", finished / "entropy", finished / "uniform", "--target", 0.99, "--figure", tmp_path / "both.png"
    )
    assert done.exit_code == 0, done.output
    assert "target accuracy 0.99" in done.stdout
    assert ">4" in done.stdout
    assert ">3" in done.stdout
    assert (tmp_path / "both.png").read_bytes().startswith(b"\x89PNG")
    assert call("compare", finished / "entropy").exit_code == 0


def test_numbers_of_a_comparison_are_not_broken_where_lines_are_short(finished, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    done = call("compare", finished / "entropy", finished / "uniform", "--target", 0.99)
    rows = [line for line in done.stdout.splitlines() if line.startswith("│")]
    assert len(rows) in (2, 3)  # a row for each run, and perhaps one for their difference
    assert all(re.search(r"\d\.\d{4} ± \d\.\d{4} ", row) for row in rows[:2])


def test_what_cannot_be_compared_is_said(finished, tmp_path):
    assert "no such folder" in refused("compare", finished / "entropy", tmp_path / "nowhere")
    assert "target is 3" in refused("compare", finished / "entropy", "--target", 3)
    by_loss = ("compare", finished / "entropy", "--metric", "loss")
    assert "final loss" in call(*by_loss).stdout
    assert "by loss; leave it out" in refused(*by_loss, "--target", 0.9)
    assert "did you mean 'loss'?" in refused("compare", finished / "entropy", "--metric", "los")
    assert "must end in" in refused("compare", finished / "entropy", "--figure", "a.doc")
    layout.create(tmp_path / "begun", config.resolve({"data": "iris"}))
    assert "not finished" in refused("compare", tmp_path / "begun")


def test_a_warning_is_one_line_without_the_place_in_the_code(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        done = call(
            "run", "iris", "rounds=2", "seeds=1", "volatility=bernoulli", "volatility.p=0", "--out", tmp_path / "a"
        )
    assert done.exit_code == 0, done.output
    (line,) = [line for line in done.stderr.splitlines() if "no update came back" in line]
    assert line.startswith("warning: no update came back in any round of all seeds")
    assert "UserWarning" not in done.stderr


def test_the_list_names_everything():
    done = call("list")
    assert done.exit_code == 0, done.output
    for kind in config.KINDS.values():
        for name in kind.available():
            assert f" {name} " in done.stdout
    for name in (*config.list_presets(), "uacs", "tfds:NAME"):
        assert name in done.stdout


def test_a_list_of_one_kind_loads_no_paper(monkeypatch):
    from fedjax_sel import papers

    monkeypatch.setattr(papers, "load", lambda name: pytest.fail(f"{name} is loaded, with its figures"))
    done = call("list", "selectors")
    assert done.exit_code == 0, done.output
    assert " gpfl " in done.stdout
    assert "reproduce PAPER" not in done.stdout


def test_every_strategy_can_be_cited():
    done = call("cite")
    assert done.exit_code == 0, done.output
    for key in ("client_selection", "data_selection", "local_training", "aggregation", "partition"):
        for name in config.KINDS[key].available():
            assert f"{key} {name}: " in done.stdout
    assert "no source" not in done.stdout


def test_one_strategy_and_one_paper_are_cited():
    assert "2010.01243" in call("cite", "power_of_choice").stdout
    paper = call("cite", "uacs").stdout
    assert "Active Client Selection for Federated Learning" in paper
    assert "this software: fedjax_sel" in paper
    assert "did you mean 'entropy'" in refused("cite", "entropi")


def test_an_unknown_paper_or_scale_is_refused():
    assert "unknown paper 'uasc'; did you mean 'uacs'" in refused("reproduce", "uasc")
    assert "did you mean 'smoke'" in refused("reproduce", "uacs", "--scale", "smok")


def test_version_and_help():
    assert call("--version").stdout.startswith("fedjax-sel ")
    done = call("--help")
    assert all(name in done.stdout for name in ("run", "compare", "reproduce", "list", "cite"))


def test_the_command_line_itself_needs_nothing_heavy():
    code = "import sys; bare = sys.modules['fedjax_sel'] = type(sys)('fedjax_sel'); bare.__path__ = [sys.argv[1]]\n"
    code += "import fedjax_sel.cli; print([m for m in ('jax', 'pandas', 'matplotlib', 'sklearn') if m in sys.modules])"
    package = os.path.dirname(config.__path__[0])
    done = subprocess.run([sys.executable, "-c", code, package], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_histories_of_one_seed_show_no_deviation():
    from fedjax_sel.report.compare import format_costs_to
    from fedjax_sel.report.summary import format_rows, summarize

    names = ("bytes_down", "bytes_up", "client_flops", "selection_bytes_down", "selection_bytes_up", "selection_flops")
    metrics = {name: np.ones((1, 3)) for name in names} | {
        "accuracy": np.array([[np.nan, 0.5, 0.75]]),
        "loss": np.array([[np.nan, 2.0, 1.0]]),
    }
    history = History((0,), metrics, np.zeros((1, 3, 1), np.int32), 2)
    assert ("final accuracy", "0.7500", "–") in format_rows(summarize(history))
    assert format_costs_to(history, 0.5) == ("2", "8 B")
    assert format_costs_to(history, 0.9) == (">3", "never")
    accuracy = np.array([[np.nan, 0.5, 0.75], [np.nan, 0.5, 0.5]])
    both = History((0, 1), {name: np.ones((2, 3)) for name in names} | {"accuracy": accuracy}, np.zeros((2, 3, 1)), 2)
    assert format_costs_to(both, 0.7) == (">3 (1 of 2 never)", "never"), "no mean of a round and none"


def test_a_run_of_a_strategy_that_is_not_installed_is_compared_all_the_same(finished, tmp_path):
    moved = tmp_path / "elsewhere"
    shutil.copytree(finished / "uniform", moved)
    config_file = moved / "config.yaml"
    config_file.write_text(config_file.read_text().replace("name: uniform", "name: mine_alone"))
    done = call("compare", finished / "entropy", moved)
    assert done.exit_code == 0, done.output
    assert "mine_alone" in done.stdout


@pytest.mark.parametrize("arguments", [("run", *SMALL), ("run", "iris", "rounds=1", "--seeds", "1", "--debug")])
def test_a_configuration_on_the_command_line_is_resolved_once(tmp_path, monkeypatch, arguments):
    made, make = [], config.Config.__post_init__

    def counted(self):
        made.append(self)
        make(self)

    monkeypatch.setattr(config.Config, "__post_init__", counted)
    done = call(*arguments, "--out", tmp_path / "run")
    assert done.exit_code == 0, done.output
    assert len(made) == 1
    again = call(*arguments, "--out", tmp_path / "run")
    assert "Nothing was run" in again.stdout
    assert len(made) == 2


def test_a_value_given_twice_is_refused_in_one_line():
    assert "m=5 and cohort_size=6 both give cohort_size; give it once" in refused("run", "iris", "m=5", "cohort_size=6")
    assert "--seeds 3 and seeds=2 both give seeds; give it once" in refused("run", "iris", "seeds=2", "--seeds", "3")


def as_before(text):
    """A configuration in the words of the first edition."""
    names = {"client_selection": "selector", "data_selection": "samples", "local_training": "trainer"}
    names |= {"aggregation": "aggregator", "cohort_size": "m", "signal_split": "signals_on", "layout": "mapping"}
    for now, before in names.items():
        text = re.sub(rf"^{now}:", f"{before}:", text, flags=re.MULTILINE)
    return text.replace("weighting:", "by:").replace("num_examples:", "rows:").replace("num_test_rows:", "test_rows:")


def test_a_folder_of_the_first_edition_is_the_same_run(finished, tmp_path):
    old = tmp_path / "old"
    shutil.copytree(finished / "entropy", old)
    (old / "config.yaml").write_text(as_before((old / "config.yaml").read_text()))
    assert "selector:" in (old / "config.yaml").read_text()
    assert "Nothing was run" in call("run", *SMALL, "--out", old).stdout
    assert call("compare", finished / "uniform", old).exit_code == 0
    assert layout.read(old)[1]["client_selection"]["name"] == "entropy"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["pretrain", "mlp", "--epochs", "2", "rounds=1"], "--epochs 2 and rounds=1 both give rounds"),
        (["pretrain", "mlp", "model=logistic"], "--model mlp and model=logistic both give model; give it once"),
        (["show", "iris", "--open"], "--open is not used"),
        (["run", "iris", "--memory", "inf"], "memory is inf GiB; it must be a number above 0"),
        (["run", "iris", "fine_tuning=sgd"], "fine_tuning trains clients' models before they are evaluated"),
    ],
)
def test_what_would_be_ignored_is_refused(arguments, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 2, done.output
    assert says in done.stderr
    assert not (tmp_path / "runs").exists()


def test_a_path_that_cannot_be_is_one_line():
    assert refused("run", "iris", "--out", "x" * 300).startswith(f"error: {'x' * 300}: File name too long")
    assert refused("show", "iris", "--figure", "none/a.png") == (
        "error: figure is none/a.png, but none is not a folder; name a file in one that exists; "
        "see `fedjax-sel show --help`"
    )


def test_a_program_on_disk_that_is_incomplete_is_told_with_what_to_remove():
    said = "Error reading persistent compilation cache entry for 'jit_run_chunk': ZstdError: truncated"
    place = jax.config.jax_compilation_cache_dir
    assert explain_damaged_program(said).startswith(
        f"{said}; it is compiled in every run until you remove {place}/jit_run"
    )
    assert explain_damaged_program("something else") == "something else"


def test_a_bug_in_the_users_code_that_is_an_error_of_the_system_keeps_its_traceback():
    assert is_users(OSError(errno.ENAMETOOLONG, "File name too long", "x"))
    assert is_users(OSError(errno.ENOSPC, "No space left on device"))
    for error in (OSError("a bug"), BrokenPipeError(errno.EPIPE, "Broken pipe"), ConnectionRefusedError(1, "refused")):
        assert not is_users(error)


def test_a_terminal_that_lacks_a_character_shows_a_question_mark_and_ends_nothing():
    code = "from fedjax_sel.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "list"],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert b"uniform" in done.stdout
    assert b"(1 - p_y)^?" in done.stdout


def test_a_folder_at_home_is_found_though_the_shell_left_the_tilde(tmp_path, monkeypatch):
    """As in `--out=~/mine`."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    given = ["run", *small("rounds=2"), "--out=~/mine"]
    done = call(*given)
    assert done.exit_code == 0, done.output
    assert (tmp_path / "home" / "mine" / "summary.json").is_file()
    assert not (tmp_path / "~").exists()
    assert call("compare", "~/mine", "~/mine").exit_code == 0


def test_strategies_are_those_of_all_their_kinds():
    from fedjax_sel.report.explain import find_kinds

    kinds = ["client_selection", "data_selection", "local_training", "correction", "aggregation"]
    assert sorted(key for key, _ in find_kinds("strategies")) == sorted(kinds)
    assert [key for key, _ in find_kinds("strategy")] == ["client_selection"]  # as Flower calls it
