"""The command line helps itself, and a run has an overview in which the user's text is only text."""

import base64
import io
import os
import re
import subprocess
import sys
import threading
from dataclasses import replace
from html.parser import HTMLParser
from unittest.mock import Mock

import jax
import numpy as np
import pytest
from typer.testing import CliRunner

import fedjax_sel as fs
from fedjax_sel import config
from fedjax_sel.cli import main
from fedjax_sel.data.picture import plot_labels
from fedjax_sel.engine.history import History
from fedjax_sel.report import doctor
from fedjax_sel.report.doctor import examine_folder, list_caches
from fedjax_sel.report.explain import tell_cost
from fedjax_sel.report.figures import plot_clients
from fedjax_sel.report.page import Page, draw_selections
from fedjax_sel.report.quantities import format_about
from fedjax_sel.runs import layout
from fedjax_sel.runs.prepare import keep_compiled_programs

EVIL = "<script>alert('x')</script>"


def call(*arguments):
    return CliRunner().invoke(main, [str(a) for a in arguments])


def refused(*arguments):
    done = call(*arguments)
    assert done.exit_code == 2, done.output
    return done.stderr


def a_history():
    rng = np.random.default_rng(0)
    costs = ("bytes_down", "bytes_up", "client_flops", "selection_bytes_down", "selection_bytes_up", "selection_flops")
    metrics = {name: rng.random((2, 6)) for name in ("accuracy", "loss", "seconds", "joules", *costs)}
    labels = rng.integers(0, 9, (7, 3))
    about = {"device": EVIL, "seconds": 90.0, "strategies": {"client_selection": EVIL}}
    return History((0, 1), metrics, rng.integers(-1, 7, (2, 6, 2)), 7, about, labels=labels)


class Reader(HTMLParser):
    """Collects tags with their attributes, and text."""

    def __init__(self):
        super().__init__()
        self.tags, self.words = [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.words.append(data)


def test_the_page_needs_no_other_file_and_runs_nothing_of_the_users():
    page = Page(a_history(), f"digits, {EVIL}, m = 2", f"client_selection: {{name: {EVIL}}}", (f"folder: {EVIL}",))
    reader = Reader()
    reader.feed(page.to_html())
    tags = [tag for tag, _ in reader.tags]
    assert "script" not in tags
    assert not any(name.startswith("on") for _, attributes in reader.tags for name in attributes)
    sources = [value for _, attributes in reader.tags for name, value in attributes.items() if name in ("src", "href")]
    assert all(value.startswith("data:image/svg+xml;base64,") for value in sources)
    assert len(sources) == tags.count("img") == 7  # accuracy, four costs, coverage, selections
    assert "".join(reader.words).count(EVIL) == 6  # title twice, configuration, folder, device, strategy
    for source in sources:
        assert b"<script" not in base64.b64decode(source.partition(",")[2])
    assert "1.5 min" in page.to_html()


def test_a_notebook_shows_the_same():
    history = a_history()
    shown = history.report()._repr_html_()
    assert shown.startswith('<div class="fedjax">')
    assert shown.count("<img ") == 7
    assert "<!DOCTYPE" not in shown


@pytest.mark.parametrize("of", ["accuracy", "loss"])
def test_a_page_shows_every_client_where_they_were_evaluated_and_loss_where_targets_are_no_classes(of):
    history, rng = a_history(), np.random.default_rng(1)
    named = [f"client_{of}_{what}" for what in ("mean", "worst_decile", "spread")]
    values = {name: np.where(np.arange(6) % 2, rng.random((2, 6)), np.nan) for name in named}
    metrics = {**history.metrics, **values}
    if of == "loss":
        del metrics["accuracy"]
    asked = {"client_metrics": {of: rng.random((2, 3, 7))}, "client_rounds": (2, 4, 6)}
    shown = Page(replace(history, metrics=metrics, **asked)).to_html()
    assert (
        f"{of.capitalize()} of each client&#x27;s model (the global one, or one of its own) on its own examples"
        in shown
    )
    assert f'alt="{of} of clients"' in shown
    assert f"client {of}, worst tenth of the clients" in shown
    assert f"{values[named[1]][:, -1].mean():.4f}" in shown
    assert shown.count("<img ") == 8
    assert ("final accuracy" in shown) == (of == "accuracy")


def test_clients_that_were_evaluated_once_are_a_point():
    history = a_history()
    named = [f"client_accuracy_{what}" for what in ("mean", "worst_decile")]
    values = {name: np.where(np.arange(6) == 5, 0.5, np.nan) * np.ones((2, 1)) for name in named}
    asked = {"client_metrics": {"accuracy": np.full((2, 1, 7), 0.5)}, "client_rounds": (6,)}
    left = plot_clients(replace(history, metrics={**history.metrics, **values}, **asked)).axes[0]
    assert [line.get_marker() for line in left.lines] == ["o", "o"]
    assert all(tick == round(tick) for tick in left.get_xticks()), left.get_xticks()


def test_the_raster_is_the_share_of_seeds_and_beside_it_stand_the_label_counts():
    history = a_history()
    figure = draw_selections(history)
    raster, labels = (ax.images[0].get_array() for ax in figure.axes[:2])
    for client, round in np.ndindex(7, 6):
        chosen = [client in history.selections[run, round] for run in range(2)]
        assert raster[client, round] == np.mean(chosen)
    np.testing.assert_array_equal(labels, history.labels)


def test_a_folder_keeps_the_labels_and_its_overview(tmp_path, monkeypatch):
    history, asked = a_history(), config.resolve({"data": "iris", "rounds": 6, "cohort_size": 2, "seeds": 2})
    layout.save(tmp_path / "run", history, asked)
    np.testing.assert_array_equal(layout.read(tmp_path / "run")[0].labels, history.labels)
    (tmp_path / "run" / "report.html").unlink()  # as of an earlier version
    opened = []
    monkeypatch.setattr("typer.launch", opened.append)
    done = call("show", tmp_path / "run", "--open")
    assert done.exit_code == 0, done.output
    assert opened == [(tmp_path / "run" / "report.html").as_uri()]
    assert "iris, uniform, m = 2, 6 rounds" in (tmp_path / "run" / "report.html").read_text()


def test_a_partition_is_pictured_before_a_run(tmp_path):
    given = ("show", "iris", "partition.clients=6", "--figure", tmp_path / "labels.png")
    done = call(*given)
    assert done.exit_code == 0, done.output
    assert "clients: 6, classes: 3" in done.stdout
    assert (tmp_path / "labels.png").stat().st_size > 1000
    rng = np.random.default_rng(0)
    data = fs.dataset("d", rng.normal(size=(60, 2)).astype(np.float32), np.arange(60) % 3, test=0.2)
    federation = fs.Federation(data, fs.partition.Iid(clients=4))
    drawn, shown = federation.draw(3), federation.plot(3).images[0].get_array()
    for client in range(4):
        first, count = int(drawn.offset[client]), int(drawn.num_examples[client])
        mine = np.asarray(drawn.y)[np.asarray(drawn.order)[first : first + count]]
        assert shown[client].tolist() == [int((mine == k).sum()) for k in range(3)]


def test_of_targets_that_are_no_classes_the_sizes_are_shown(tmp_path):
    given = ("show", "digits", "selector=uniform", "data=diabetes", "partition=iid", "partition.clients=10")
    done = call(*given)
    assert done.exit_code == 0, done.output
    assert "clients: 10, targets: continuous, training examples: " in done.stdout
    done = call(*given, "--figure", tmp_path / "sizes.png")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "sizes.png").stat().st_size > 1000
    federation = fs.Federation(fs.load("diabetes"), fs.partition.Unequal(10))
    heights = [bar.get_height() for bar in federation.plot(2).patches]
    np.testing.assert_array_equal(heights, federation.draw(2).num_examples)


def test_skewed_sizes_are_drawn_by_their_logarithms():
    """Of a client with 900 examples and nine with 3, the small ones are seen, and white is none."""
    from matplotlib.colors import LogNorm, Normalize

    counts = np.full((10, 2), 3)
    counts[0], counts[4, 1] = 900, 0
    image = plot_labels(counts).images[0]
    assert isinstance(image.norm, LogNorm)
    assert image.get_array().mask.sum() == 1
    assert 0.05 < image.norm(3) < 0.5
    even = plot_labels(np.array([[3, 0], [20, 4]])).images[0]
    assert type(even.norm) is Normalize
    assert plot_labels(np.zeros((2, 2), int)).images[0].norm.vmax == 1


def test_a_component_is_explained_by_what_its_class_declares():
    said = call("explain", "power_of_choice").stdout
    assert "task: {loss: {name: focal}}" in call("explain", "focal").stdout
    assert "task: {metrics: [f1]}" in call("explain", "f1").stdout
    for part in ("d: int = 10, a whole number, at least 1", "before: loss = Loss(). A client pays", "2010.01243"):
        assert part in said
    assert "schedule: str = 'constant', one of constant, inc" in call("explain", "e3cs").stdout
    said = call("explain", "sgd").stdout
    assert (
        "schedule = constant, one of constant, cosine, exponential, steps\naugment = null, one of crop_flip, null"
        in said
    )
    said = call("explain", "steps").stdout
    assert said.startswith("local_training.schedule: steps")
    assert "local_training: {schedule: {name: steps}}" in said
    said = call("explain", "synthetic").stdout
    assert "alpha = 1.0\n" in said
    assert "seed" not in said.split("fields")[1].split("source")[0]
    assert "did you mean 'entropy'" in refused("explain", "entropi")
    said = call("explain", "mlp").stdout
    fields, of_every = said.split("fields of every model\n")
    assert "classes" not in fields, "which a configuration cannot set"
    assert of_every.startswith("normalise = True\npretrained = None\n")
    assert "fields of every" not in call("explain", "iid").stdout
    assert "phase" not in call("explain", "diurnal").stdout.split("fields\n")[1].split("source")[0]
    said = call("explain", "iris").stdout
    assert said.startswith("data: iris")
    assert "validation = 0.0\n" in said


def test_what_depends_on_a_value_that_must_be_given_is_not_made_up(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import fedjax_sel as fs\n\nclass Mine(fs.ClientSelector):\n    d: int = fs.static(low=1)\n\n"
        "    def signals(self):\n        return fs.Signals(before=[fs.signals.MinibatchLoss(self.d)])\n\n"
        "    def select(self, key, state, ctx, *, minibatch_loss):\n        return None\n"
    )
    done = call("explain", f"{tmp_path / 'mine.py'}:Mine")
    assert done.exit_code == 0, done.output
    assert "they depend on d, which has no default" in done.stdout


def test_seven_numbers_are_not_one_for_each_class():
    class Seven(fs.signals.Loss):
        @property
        def cost(self):
            return fs.Cost(up=7.0)

    assert tell_cost(Seven(), sends=True) == "A client sends 7 numbers."
    assert "a number for each class" in tell_cost(fs.signals.LabelCounts(), sends=True)


@pytest.mark.parametrize(
    ("word", "there", "absent"),
    [
        ("selectors", "power_of_choice", "dirichlet"),
        ("partition", "dirichlet", "power_of_choice"),
        *((word, "focal", "fed_entropy") for word in ("loss", "losses", "task.loss")),
        *((word, "f1", "stopwatch") for word in ("metric", "metrics")),
        *((word, "early_stopping", "power_of_choice") for word in ("callback", "callbacks")),
        *((word, "bernoulli", "power_of_choice") for word in ("availability", "availabilities")),
    ],
)
def test_one_kind_is_listed(word, there, absent):
    said = call("list", word).stdout
    assert there in said
    assert absent not in said


def test_a_word_is_looked_for():
    said = call("list", "entropy").stdout
    assert "client_selection" in said
    assert "data_selection" in said
    assert "round_robin" not in said
    assert "did you mean" in refused("list", "entropi")
    assert "'Nothing_Here'" in refused("list", "Nothing_Here")
    said = call("list", "fedft_eds").stdout
    assert "reproduce PAPER" in said
    assert "gpfl" not in said


def test_citations_as_bibtex_have_balanced_braces_and_a_key_each():
    said = call("cite", "power_of_choice", "--bibtex").stdout
    assert re.search(r"@misc\{client_selection_power_of_choice,\n  author = \{Cho and others\},", said)
    assert "year = {2020}" in said
    everything = call("cite", "--bibtex").stdout
    assert everything.count("{") == everything.count("}")
    keys = re.findall(r"@misc\{(\w+),", everything)
    assert len(keys) == len(set(keys)) > 40
    authors = re.findall(r"author = \{(.*)\}", everything)
    assert len(authors) > 70
    assert not [one for one in authors if re.match(r"The\b|As\b|[^\W\d_A-Z]", one) or set(":;()") & set(one)]
    assert re.search(r"@misc\{partition_iid,\n  note = ", everything)


def test_the_doctor_runs_something_and_says_what_is_there(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDJAX_SEL_CACHE", str(tmp_path))
    done = call("doctor")
    assert "a run of 2 rounds: accuracy" in done.stdout
    assert f"compiled programs: {jax.config.jax_compilation_cache_dir}" in done.stdout.replace("\n", "")
    assert done.exit_code == 0, done.output
    kept = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", None)
    try:
        assert dict(list_caches()) == {
            "compiled programs": tmp_path / "xla",
            "decoded datasets": tmp_path / "datasets",
        }
    finally:
        jax.config.update("jax_compilation_cache_dir", kept)


def test_the_doctor_says_what_is_wrong_with_a_folder_or_a_device(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FEDJAX_SEL_CACHE", str(tmp_path / "file" / "cache"))
    found = {name: (said, fine) for name, said, fine in (examine_folder(*one) for one in list_caches())}
    said, fine = found["decoded datasets"]
    assert not fine
    assert said.endswith("cannot be written: Not a directory; set FEDJAX_SEL_CACHE to a folder elsewhere")
    monkeypatch.setattr(doctor, "environment", Mock(side_effect=AssertionError))  # as JAX does without its plugin
    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    ((name, said, fine),) = doctor.examine()
    assert (name, fine) == ("devices", False)
    assert said.startswith("JAX finds no device of JAX_PLATFORMS=cuda (AssertionError)")


def test_a_cache_that_cannot_be_written_is_told(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FEDJAX_SEL_CACHE", str(tmp_path / "file" / "cache"))
    kept = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", None)
    try:
        with pytest.warns(UserWarning, match=r"not kept: .*/xla cannot be written \(Not a directory\)"):
            keep_compiled_programs()
        assert jax.config.jax_compilation_cache_dir is None
    finally:
        jax.config.update("jax_compilation_cache_dir", kept)


def test_drawing_keeps_the_users_backend():
    drawing = ("report.figures", "report.sweep_figures", "leaderboard.figures")
    imports = ", ".join(f"fedjax_sel.{name}" for name in drawing)
    program = f"import matplotlib; matplotlib.use('svg'); import {imports}; print(matplotlib.get_backend())"
    environment = {name: value for name, value in os.environ.items() if name != "MPLBACKEND"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == "svg"


def test_the_command_line_needs_no_other_backend_than_that_of_files(monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "module://not_here")
    assert call("list", "models").exit_code == 0
    assert os.environ["MPLBACKEND"] == "Agg"


def test_a_page_of_one_seed_is_in_the_singular():
    several = a_history()
    metrics = {name: values[:1] for name, values in several.metrics.items()}
    shown = Page(History((0,), metrics, several.selections[:1], 7)).to_html()
    assert "1 seed, 6 rounds, 7 clients" in shown
    assert "mean of 1 seed<" in shown


def test_quantities_are_written_for_a_person():
    written = dict(format_about({"memory": 3 * 2**30, "seconds": 7200.0, "parameters": 12345, "layout": "vmap"}))
    assert written == {"memory": "3 GiB", "seconds": "2 h", "parameters": "12,345", "layout": "vmap"}


def test_the_bar_says_how_long_it_compiles_and_what_is_left(monkeypatch):
    from types import SimpleNamespace

    from fedjax_sel.report import progress

    news = progress.News()
    task = SimpleNamespace(fields={"news": "compiling", "since": progress.time.monotonic() - 12.2})
    assert str(news.render(task)) == "compiling (12 s)"
    shown = []
    terminal = SimpleNamespace(is_terminal=True, is_jupyter=False, print=lambda *_, **__: None)
    bars = SimpleNamespace(update=lambda task, completed, news, since: shown.append(news), console=terminal)
    bar = progress.Bar(bars, 0, announce=False, rounds=100)

    def history(rounds):
        return History((0,), {"accuracy": np.ones((1, rounds))}, np.zeros((1, rounds, 1), int), 3)

    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    for seconds, tell, rounds in (
        (0, bar.on_train_begin, 0),
        (50, bar.on_compiled, 0),
        (60, bar.after_central_iteration, 10),
        (80, bar.after_central_iteration, 30),
    ):
        now[0] = float(seconds)
        tell(history(rounds))
    assert shown[:2] == ["compiling", "first rounds"]
    assert shown[2] == "accuracy 1.0000 · 1 rounds/s · 1.5 min left"  # the compiler's 50 s are not counted
    assert shown[3] == "accuracy 1.0000 · 1 rounds/s · 1.17 min left"
    for tell in (bar.on_train_begin, bar.after_central_iteration):  # as where a run goes on
        tell(history(40))
    assert shown[-1] == "accuracy 1.0000"


@pytest.mark.parametrize(("silence", "terminal", "expected"), [(1e-9, False, 1), (60.0, False, 0), (1e-9, True, 0)])
def test_a_log_hears_of_a_long_run_between_its_chunks(silence, terminal, expected, monkeypatch):
    from rich.console import Console

    from fedjax_sel.report import progress

    monkeypatch.setattr(progress, "SILENCE", silence)
    console = Console(file=io.StringIO(), force_terminal=terminal, width=80)

    def history(rounds):
        return History((0,), {"accuracy": np.ones((1, rounds))}, np.zeros((1, rounds, 1), int), 3)

    with progress.show_progress(console, "2/9 my [cell]", 100, announce=False) as bar:
        for tell, rounds in ((bar.on_train_begin, 0), (bar.after_central_iteration, 10)):
            tell(history(rounds))
        said = console.file.getvalue()
        bar.after_central_iteration(history(100))  # the bar's last state says it
        assert console.file.getvalue().count("round 100") == 0
    assert said.count("2/9 my [cell]: round 10 of 100 · accuracy 1.0000 · ") == expected


@pytest.mark.parametrize("terminal", [False, True])
def test_a_log_hears_what_a_run_waits_for(terminal, monkeypatch):
    from rich.console import Console

    from fedjax_sel.report import progress

    monkeypatch.setattr(progress, "SILENCE", 0.05)
    console = Console(file=io.StringIO(), force_terminal=terminal, width=80)

    def wait_for(line, seconds=20.0):
        end = progress.time.monotonic() + seconds
        while line not in console.file.getvalue() and progress.time.monotonic() < end:
            progress.time.sleep(0.01)
        return line in console.file.getvalue()

    with progress.show_progress(console, "my [cell]", 100, announce=False) as bar:
        assert wait_for("my [cell]: before round 0 (", 20.0 if not terminal else 0.5) != terminal
        bar.on_train_begin(History((0,), {}, np.zeros((1, 0, 1), int), 3))
        assert wait_for("my [cell]: compiling (", 20.0 if not terminal else 0.5) != terminal
    names = [thread.name for thread in threading.enumerate()]
    assert "progress" not in names


def test_a_bar_of_nothing_to_run_says_nothing():
    from rich.console import Console

    from fedjax_sel.report import progress

    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    with progress.show_progress(console, "mine", 3) as bar:
        bar.move_to(3)
    assert "3/3" in console.file.getvalue()
    assert progress.BEFORE not in console.file.getvalue().splitlines()[-1]
