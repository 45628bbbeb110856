"""Parts that a user wrote, named on the command line and in files as `module:name`."""

import importlib
import json
import subprocess
import sys
import warnings

import jax
import numpy as np
import pytest
from flax import nnx
from typer.testing import CliRunner

import fedjax_sel as fs
from fedjax_sel.cli import main
from fedjax_sel.config import build, override, resolve
from fedjax_sel.config import files as config_files
from fedjax_sel.config.own import load_own
from fedjax_sel.engine import driver
from fedjax_sel.report.explain import explain
from fedjax_sel.runs.layout import FolderError
from fedjax_sel.runs.sweep import layout as sweeps
from fedjax_sel.runs.sweep.grid import combinations

MODULE = '''
import flax.linen as nn
import jax.numpy as jnp
import numpy as np
from flax import nnx

import fedjax_sel as fs


class Last(fs.ClientSelector):
    """The clients of the highest numbers."""

    back: int = fs.static(default=0, low=0)
    share: float = fs.param(default=1.0, low=0, high=1)

    def select(self, key, state, ctx):
        client = ctx.num_clients - 1 - self.back - jnp.arange(ctx.m)
        return fs.Cohort(client, jnp.ones(ctx.m, bool), jnp.ones(ctx.m))


class Half(fs.DataSelector):
    """Every second example."""

    def select(self, key, state, valid):
        return valid & (jnp.arange(valid.shape[0]) % 2 == 0)


class Linear(nn.Module):
    """Logits."""

    classes: int
    bias: bool = True

    @nn.compact
    def __call__(self, x, *, train=False):
        return nn.Dense(self.classes, use_bias=self.bias)(x.reshape(len(x), -1))


class Alternate:
    """Examples dealt out in turn."""

    def __init__(self, clients: int = 5):
        self.clients = clients

    def assign(self, y, rng, owner):
        return np.arange(len(y)) % self.clients


class Log:
    """Counts the chunks."""

    def __init__(self, name: str = "log"):
        self.name, self.calls = name, 0

    def after_central_iteration(self, history):
        self.calls += 1


class Fixed(nn.Module):
    """Logits of a problem that it knows."""

    @nn.compact
    def __call__(self, x):
        return nn.Dense(3)(x)


class Net(nnx.Module):
    """A network of NNX."""

    def __init__(self, classes: int, shape: tuple, width: int = 5, *, rngs: nnx.Rngs):
        self.inner = nnx.Linear(shape[0], width, rngs=rngs)
        self.outer = nnx.Linear(width, classes, rngs=rngs)

    def __call__(self, x):
        return self.outer(nnx.relu(self.inner(x)))


def make_net(classes, shape, width: int, rngs):
    return Net(classes, shape, width, rngs=rngs)


def make_linear(classes, bias: bool = True):
    return Linear(classes, bias)


def make_pair(classes, scale: float = 0.1, **more):
    def init(key, x):
        return {"w": scale * jnp.ones((x.shape[-1], classes))}

    def apply(variables, x):
        return x @ variables["w"]

    return init, apply


class Unfinished(fs.ClientSelector):
    """Selects nobody."""


class Fails(Alternate):
    """Cannot be made."""

    def __init__(self, clients: int = 5):
        raise KeyError("nothing")


def fails():
    return 1 / 0


def make_nothing(classes):
    return classes


def ring(radius: float = 1.0, seed: int | None = 0):
    """Points within a radius or beyond."""
    x = np.random.default_rng(seed).normal(size=(200, 2)).astype(np.float32)
    return fs.dataset("ring", x, (np.linalg.norm(x, axis=1) > radius).astype(int), test=0.2)


NUMBER = 3
'''


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with `mine.py`, from which commands are given."""
    (tmp_path / "mine.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


SMALL = ("iris", "rounds=2", "cohort_size=2", "partition.clients=5", "--seeds", "1")


def call(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.mark.parametrize("name", ["mine:Last", "mine.py:Last", "./mine.py:Last"])
def test_a_selector_of_ones_own_runs_by_its_name_and_its_folder_keeps_the_digest_of_its_source(here, name):
    done = call("run", *SMALL, f"selector={name}", "selector.back=1", "--out", "out")
    assert done.exit_code == 0, done.output
    with np.load("out/selections.npz") as kept:
        np.testing.assert_array_equal(kept["selections"][0], [[3, 2], [3, 2]])
    text = (here / "out" / "config.yaml").read_text()
    assert f"client_selection: {{name: {name!r}," in text.replace(f"name: '{name}'", f"name: {name!r}")
    again = call("run", "out/config.yaml", "--out", "out")
    assert again.exit_code == 0
    assert "Nothing was run" in again.stdout


def test_a_changed_source_is_another_configuration_and_never_an_old_result(here):
    assert call("run", *SMALL, "selector=mine:Last", "--out", "out").exit_code == 0
    (here / "mine.py").write_text(MODULE + "\n# changed\n")
    del sys.modules["mine"]
    done = call("run", *SMALL, "selector=mine:Last", "--out", "out")
    assert done.exit_code != 0
    assert "another configuration (client_selection.code: " in " ".join(done.stderr.split())
    assert "; mine:Last has changed since); " in " ".join(done.stderr.split())
    done = call("run", "out/config.yaml", "--out", "new")
    assert "the file has changed since this configuration was written; leave code out" in " ".join(done.stderr.split())


def test_a_finished_run_is_read_with_a_warning_after_its_source_has_changed(here):
    assert call("run", *SMALL, "selector=mine:Last", "--out", "out").exit_code == 0
    (here / "mine.py").write_text(MODULE + "\n# changed\n")
    del sys.modules["mine"]
    with pytest.warns(UserWarning, match="client_selection.code is .* has changed since .*uses it as it is now"):
        assert fs.open("out").config["client_selection"]["name"] == "mine:Last"
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        shown = call("show", "out")
    assert shown.exit_code == 0
    assert "has changed since" in " ".join(shown.stderr.split())


def test_the_model_of_a_finished_run_is_used_without_the_code_of_its_strategies(here, monkeypatch, tmp_path):
    assert call("run", *SMALL, "selector=mine.py:Last", "--out", "out").exit_code == 0
    x = np.asarray(fs.load("iris").test_x)
    before = fs.open("out").predict(x)
    (here / "mine.py").unlink()
    sys.modules.pop("mine", None)
    monkeypatch.chdir(tmp_path)
    opened = fs.open(here / "out")
    np.testing.assert_array_equal(opened.predict(x), before)
    assert opened.export().is_file()
    with pytest.raises(ValueError, match=r"there is no file .*mine.py \(mine.py, seen from the working directory\)"):
        _ = opened.config


def test_a_callback_of_a_file_gets_its_parameters_by_dotted_keys(here):
    (here / "mine.py").write_text(
        "class Stop:\n    def __init__(self, last: int = 9):\n        self.last = last\n\n"
        "    def __call__(self, history):\n        return history.rounds >= self.last\n"
    )
    for given in (("callbacks=mine.py:Stop", "callbacks.mine.py:Stop.last=4"), ("callbacks.mine.py:Stop.last=4",)):
        assert resolve(override({"data": "iris"}, list(given)))["callbacks"]["mine.py:Stop"]["last"] == 4


def test_a_list_of_a_model_of_ones_own_needs_no_types(here):
    (here / "mine.py").write_text(
        "import flax.linen as nn\n\nclass Bare(nn.Module):\n    classes: int\n    hidden: tuple = (8, 8)\n\n"
        "    @nn.compact\n    def __call__(self, x, *, train=False):\n        for width in self.hidden:\n"
        "            x = nn.relu(nn.Dense(width)(x))\n        return nn.Dense(self.classes)(x)\n"
    )
    given = [{"data": "iris", "model": {"name": "mine:Bare", **hidden}} for hidden in ({}, {"hidden": [5]})]
    parameters = [build(resolve(one)).experiment.task.parameters(np.zeros((1, 4), np.float32)) for one in given]
    assert parameters == [4 * 8 + 8 + 8 * 8 + 8 + 8 * 3 + 3, 4 * 5 + 5 + 5 * 3 + 3]
    with pytest.raises(ValueError, match=r"model.hidden is 3; it must be a list"):
        resolve({"data": "iris", "model": {"name": "mine:Bare", "hidden": 3}})


def test_a_callback_whose_file_has_changed_is_named(here):
    assert call("run", *SMALL, "callbacks=mine.py:Log", "--out", "out").exit_code == 0
    (here / "mine.py").write_text(MODULE + "\n# changed\n")
    del sys.modules["mine"]
    done = call("run", *SMALL, "callbacks=mine.py:Log", "--out", "out")
    assert done.exit_code == 2, done.output
    assert "mine.py:Log has changed since" in " ".join(done.stderr.split())


FAILS_AT_THE_END = """
class Fails:
    def on_train_end(self, history):
        raise KeyError("its own mistake")


class Idle:
    def on_train_end(self, history):
        return
"""


def test_a_run_whose_callback_failed_at_its_end_goes_on_with_the_callback_mended(here, monkeypatch):
    (here / "mine.py").write_text(FAILS_AT_THE_END)
    run = ("run", *SMALL, "--out", "out", "callbacks=mine.py:Fails")
    assert isinstance(call(*run).exception, KeyError)
    before = (here / "out" / "config.yaml").read_text()
    (here / "mine.py").write_text(FAILS_AT_THE_END.replace('raise KeyError("its own mistake")', "return"))
    del sys.modules["mine"]
    for other in (("callbacks=[mine.py:Fails, mine.py:Idle]",), (run[-1], "local_training.learning_rate=0.3")):
        assert "another configuration" in " ".join(call(*run[:-1], *other).stderr.split())
    monkeypatch.setattr(driver, "run_chunk", None)  # its rounds are not run again
    done = call(*run)
    assert done.exit_code == 0, done.output
    assert (here / "out" / "config.yaml").read_text() != before
    assert "Nothing was run" in call(*run).stdout


def test_a_sweep_over_ones_own_selectors_does_not_mix_two_states_of_their_source(here):
    axis = "client_selection=uniform,mine:Last"
    place = here / "out"
    place.mkdir()
    before = combinations({"data": "iris"}, [axis], {})
    sweeps.create(place, before)
    sweeps.check(place, before)
    (here / "mine.py").write_text(MODULE + "\n# changed\n")
    del sys.modules["mine"]
    with pytest.raises(FolderError, match=r"another sweep \(client_selection.code: \['\w+'\] there, \['\w+'\] here\)"):
        sweeps.check(place, combinations({"data": "iris"}, [axis], {}))


def test_every_kind_of_part_may_be_ones_own(here):
    given = {
        "data": {"name": "mine:ring", "radius": 1.2},
        "partition": {"name": "mine:Alternate", "clients": 4},
        "model": {"name": "mine:Linear", "bias": False},
        "client_selection": "mine:Last",
        "data_selection": "mine:Half",
        "callbacks": ["mine:Log"],
        "cohort_size": 2,
        "rounds": 2,
        "seeds": 1,
    }
    config = resolve(given)
    assert resolve(config.to_dict()) == config
    run = build(config)
    assert type(run.experiment.data_selection).__name__ == "Half"
    assert run.experiment.task.model.bias is False
    assert run.data.draw(0).num_clients == 4
    (log,) = run.callbacks(here)
    history = run.simulate(callbacks=[log])
    assert log.calls > 0
    np.testing.assert_array_equal(history.selections[0, 0], [3, 2])
    codes = {config[key]["code"] for key in ("data", "partition", "model", "client_selection", "data_selection")}
    assert len(codes) == 1
    assert json.loads(json.dumps(config.to_dict())) == config.to_dict()


def test_a_sweep_over_a_float_of_ones_own_selector_is_one_program(here):
    done = call("sweep", *SMALL, "selector=mine:Last", "selector.share=0.2,0.4", "--out", "out")
    assert done.exit_code == 0, done.output
    assert "programs run: 1" in done.stdout


@pytest.mark.parametrize(
    ("item", "says"),
    [
        ("selector=nowhere:Last", "client selector: there is no module 'nowhere', in "),
        ("selector=nowhere.py:Last", "client selector: there is no file "),
        ("selector=mine:Lost", "unknown name in mine: 'Lost'; did you mean 'Last'?"),
        ("selector=mine:Half", "it must be a subclass of fedjax_sel.ClientSelector"),
        (
            "selector=mine:NUMBER",
            "mine:NUMBER is 3; it must be a subclass of fedjax_sel.ClientSelector",
        ),
        ("selector=mine:Unfinished", "mine:Unfinished does not define select, which every ClientSelector must"),
        ("partition=mine:Fails", "partition: mine:Fails cannot be made: KeyError: 'nothing' ("),
        ("data=mine:fails", "data: mine:fails cannot be made: ZeroDivisionError: division by zero ("),
        ("model=mine:Half", "it must be a subclass of flax.linen.Module or flax.nnx.Module, or a function that"),
        (
            "model=mine:make_nothing",
            "model mine:make_nothing returned 3; it must return a Linen module, or the functio",
        ),
        ("model={name: 'mine:Net', widht: 3}", "parameter of model mine:Net: 'widht'; did you mean 'width'?"),
        ("model=mine:make_net", "model.width is missing; mine:make_net needs a whole number"),
        ("partition=mine:Half", "it must be a class with the method assign"),
        ("data=mine:NUMBER", "data mine:NUMBER is 3; it must be a function that returns a Dataset"),
        ("data=mine:len_", "unknown name in mine: 'len_'"),
        ("selector=broken:X", "broken cannot be imported: ZeroDivisionError: division by zero ("),
        ("selector=other:X", "there is no module 'not_there', which other imports"),
        (
            "selector={name: 'mine:Last', bac: 1}",
            "parameter of client_selection mine:Last: 'bac'; did you mean",
        ),
    ],
    ids=str,
)
def test_what_cannot_be_used_is_refused_in_one_line(here, item, says):
    (here / "broken.py").write_text("X = 1\nY = 1 / 0\n")
    (here / "other.py").write_text("import not_there\n")
    done = call("run", *SMALL, item, "--out", "out")
    assert done.exit_code == 2, done.output
    assert says in " ".join(done.stderr.split())
    assert "Traceback" not in done.output
    assert not (here / "out").exists()


@pytest.mark.parametrize(
    ("model", "parameters"),
    [
        ("mine:Fixed", 15),
        ("mine:Net", 4 * 5 + 5 + 5 * 3 + 3),
        ({"name": "mine:Net", "width": 2}, 4 * 2 + 2 + 2 * 3 + 3),
        ({"name": "mine:make_net", "width": 2}, 4 * 2 + 2 + 2 * 3 + 3),
        ({"name": "mine:make_linear", "bias": False}, 12),
        ({"name": "mine:make_pair", "scale": 0.5}, 12),
    ],
    ids=str,
)
def test_a_model_of_any_kind_is_named_by_its_class_or_by_a_function_that_makes_it(here, model, parameters):
    config = resolve({"data": "iris", "model": model, "seeds": 1, "cohort_size": 2})
    assert resolve(config.to_dict()) == config
    assert config["model"]["code"]
    one, other = (build(config).experiment.task for _ in range(2))
    x = build(config).data.draw(0).x[:2]
    assert one.parameters(x) == parameters
    assert one.logits(one.init(jax.random.key(0), x), x).shape == (2, 3)
    if "Net" in str(model) or "make_net" in str(model):
        assert one.model == other.model, "built twice, one compiled program"


def test_an_nnx_class_runs_by_its_name_and_a_changed_parameter_is_another_configuration(here):
    done = call("run", *SMALL, "model=mine:Net", "model.width=2", "--out", "out")
    assert done.exit_code == 0, done.output
    done = call("run", *SMALL, "model=mine:Net", "--out", "out")
    assert "another configuration (model.width: 2 there, 5 here)" in " ".join(done.stderr.split())


def test_what_names_an_nnx_model_in_a_checkpoint_is_the_same_in_every_process(here):
    from fedjax_sel.models import from_nnx

    assert "frozenset" not in repr(from_nnx(lambda rngs: nnx.Linear(2, 3, rngs=rngs)))


DRAWS = """
import numpy as np
import fedjax_sel as fs

def make(seed: int = 0):
    rng = np.random.default_rng(seed)
    return fs.dataset("drawn", rng.normal(size=(60, 2)), np.arange(60) % 2, test=0.2, seed=seed)

def unseeded():
    return fs.dataset("drawn", np.random.normal(size=(60, 2)), np.arange(60) % 2)
"""


def test_data_of_ones_own_are_drawn_from_the_seed_that_is_given_or_from_that_of_the_run(here):
    (here / "mine.py").write_text(DRAWS)
    built = build(resolve({"data": {"name": "mine:make", "seed": None}, "partition": {"clients": 3}, "cohort_size": 2}))
    first, second = (built.data.draw(seed).x for seed in (0, 1))
    assert not np.array_equal(np.sort(first, axis=0), np.sort(second, axis=0))
    with pytest.raises(ValueError, match=r"data.seed is 'a'; it must be a whole number"):
        resolve({"data": {"name": "mine:make", "seed": "a"}})
    with pytest.raises(ValueError, match=r"from np.random: the same configuration may have other examples each time"):
        build(resolve({"data": "mine:unseeded", "cohort_size": 2}))


def test_a_function_that_makes_no_dataset_is_refused(here):
    (here / "mine.py").write_text("def nothing():\n    return 3\n")
    config = resolve(override({"data": "mine:nothing"}, []))
    with pytest.raises(ValueError, match="data mine:nothing returned an int; it must return a Dataset"):
        build(config)


def test_a_selector_of_the_users_is_explained_as_a_built_in_one_is(tmp_path):
    (tmp_path / "eager_file.py").write_text(
        "import fedjax_sel as fs\n\n\nclass Eager(fs.ClientSelector):\n    '''The clients of largest loss.'''\n\n"
        "    bonus: float = fs.param(default=0.3, low=0)\n\n    def signals(self):\n"
        "        return fs.Signals(before=[fs.signals.Loss()])\n\n    def select(self, key, state, ctx, *, loss):\n"
        "        return fs.client_selection.top_m(key, loss, ctx.available, ctx.m)\n"
    )
    name = f"{tmp_path / 'eager_file.py'}:Eager"
    told = dict(explain(name))
    assert told[f"client_selection: {name}"] == ["The clients of largest loss."]
    assert told["fields"] == ["bonus: float = 0.3, 0 or above"]
    assert told["signals"][0].startswith("before: loss = Loss(). A client pays")


@pytest.mark.parametrize("name", ["selectors", "optax", "fedjax_sel"])
def test_a_file_named_like_a_module_of_python_is_refused(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / f"{name}.py").write_text("from fedjax_sel.client_selection import Uniform\n")
    for given in (f"{name}.py:Uniform", f"{name}:Uniform"):
        with pytest.raises(ValueError, match=f"{name} is a module of Python or of a library; give the file {name}.py"):
            resolve({"data": "iris", "client_selection": given})


def test_a_file_in_a_folder_of_libraries_is_loaded_again(tmp_path):
    file = tmp_path / "site-packages" / "kept_there.py"
    file.parent.mkdir()
    file.write_text("from fedjax_sel.client_selection import Uniform\n\n\nclass Mine(Uniform):\n    pass\n")
    for _ in range(2):
        config = resolve({"data": "iris", "client_selection": f"{file}:Mine"})
        assert config["client_selection"]["name"] == f"{file}:Mine"


def test_a_finished_run_is_shown_without_the_code_of_its_strategies(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "gone_soon.py"
    file.write_text("from fedjax_sel.client_selection import Uniform\n\n\nclass Mine(Uniform):\n    pass\n")
    given = [
        "run",
        "iris",
        "client_selection=gone_soon.py:Mine",
        "partition.clients=6",
        "m=2",
        "rounds=1",
        "--out",
        "one",
    ]
    done = CliRunner().invoke(main, given)
    assert done.exit_code == 0, done.output
    file.unlink()
    sys.modules.pop("gone_soon")
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        done = CliRunner().invoke(main, ["show", "one"])
    assert done.exit_code == 0, done.output
    assert "iris, gone_soon.py:Mine, m = 2, 1 rounds" in done.stdout
    assert "one is shown, but cannot be run again: " in done.stderr
    assert "there is no file" in done.stderr


def test_a_package_that_is_installed_is_no_file_of_a_bad_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = resolve({"data": "iris", "client_selection": "fedjax_sel.client_selection.uniform:Uniform"})
    assert found["client_selection"]["name"] == "fedjax_sel.client_selection.uniform:Uniform"
    with pytest.raises(ValueError, match="unknown name in optax"):
        resolve({"data": "iris", "client_selection": "optax:Uniform"})


def test_the_code_that_a_configuration_names_is_the_one_that_was_imported(here):
    """The file is edited while a process that has imported it goes on."""
    given = {"data": "iris", "client_selection": "mine.py:Last"}
    before = resolve(given)
    (here / "mine.py").write_text(MODULE + "\n# changed\n")
    assert resolve(given) == before, "the class is the one from before"
    importlib.reload(sys.modules["mine"])
    assert resolve(given)["client_selection"]["code"] != before["client_selection"]["code"]


def test_a_run_of_a_sweep_is_shown_with_the_code_that_made_it_also_where_that_is_gone(here):
    done = call("sweep", *SMALL, "selector=mine.py:Last", "lr=0.1,0.2", "--out", "out")
    assert done.exit_code == 0, done.output
    run = here / "out" / "runs" / "local_training.learning_rate=0.1"
    code = fs.open(run).asked["client_selection"]["code"]
    (here / "mine.py").unlink()
    del sys.modules["mine"]
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        shown = call("show", run)
    assert shown.exit_code == 0, shown.output
    assert f"code: {code}" in (run / "report.md").read_text()


OTHER = """
from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING

import fedjax_sel as fs

if TYPE_CHECKING:
    from fedjax_sel import Dataset


@functools.cache
def cached() -> fs.Dataset:
    return fs.load("iris")


def make(name: str, root=Path("here"), validation: float = 0.0) -> Dataset:
    return fs.load(name, validation=validation)


partial = functools.partial(make, "iris", validation=0.1)


class Maker:
    def __call__(self, validation: float = 0.2) -> Dataset:
        return fs.load("iris", validation=validation)


instance = Maker()
"""


@pytest.mark.parametrize(("name", "validation"), [("cached", None), ("partial", 0.1), ("instance", 0.2)])
def test_any_callable_of_ones_own_makes_examples(here, name, validation):
    (here / "other.py").write_text(OTHER)
    config = resolve({"data": f"other.py:{name}", "cohort_size": 2, "partition": {"clients": 5}})
    assert resolve(config.to_dict()) == config
    assert config["data"].get("validation") == validation
    assert build(config).data.draw(0).classes == 3


@pytest.mark.parametrize("parameter", ["code", "digest", "name"])
def test_a_parameter_with_a_name_that_configurations_use_is_refused(here, parameter):
    lines = [
        "import fedjax_sel as fs",
        "class Odd(fs.client_selection.Uniform):",
        f"    {parameter}: int = fs.static(default=3)",
        f"def toy({parameter}=1):",
        "    return fs.load('iris')",
    ]
    (here / f"odd_{parameter}.py").write_text("\n".join(lines) + "\n")
    for item, key in ((f"selector=odd_{parameter}:Odd", "client_selection"), (f"data=odd_{parameter}:toy", "data")):
        done = call("run", *SMALL, item)
        assert done.exit_code == 2
        assert f"{key} odd_" in " ".join(done.stderr.split())
        assert f"has a parameter '{parameter}'" in " ".join(done.stderr.split())


ORDINARY = """
import functools
from collections.abc import Callable, Sequence
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
import numpy as np

import fedjax_sel as fs


class Network(nn.Module):
    classes: int
    features: Sequence[int] = (8, 3)
    act: Callable = nn.relu
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, x, *, train=False):
        x = x.reshape(len(x), -1)
        for width in self.features:
            x = self.act(nn.Dense(width, dtype=self.dtype)(x))
        return nn.Dense(self.classes)(x)


def make(sizes: list[int] = [100, 100], rate=0.1, count=3, options: dict[str, int] | None = None):
    assert type(rate) is float
    assert options in (None, {"a": 1})
    x = np.random.default_rng(0).normal(size=(sum(sizes), 2)).astype(np.float32)
    return fs.dataset("own", x + rate * count, (x[:, 0] > 0).astype(int), test=0.2)


@functools.cache
def make_once(sizes: tuple[int, ...] = (100, 100)):
    return make(sizes)


def need(act: Callable):
    return make()
"""


@pytest.fixture
def ordinary(here):
    (here / "ordinary.py").write_text(ORDINARY)
    return here


def test_a_model_of_ordinary_annotations_has_those_parameters_that_a_configuration_can_hold(ordinary):
    given = {"data": "iris", "model": {"name": "ordinary.py:Network", "features": [5, 4]}}
    found = resolve(given)["model"]
    assert found["features"] == [5, 4]
    assert not {"act", "dtype"} & found.keys()
    assert resolve({**given, "model": "ordinary.py:Network"})["model"]["features"] == [8, 3]
    done = call("run", *SMALL, "model=ordinary.py:Network", "model.features=[5,4]", "--out", "out")
    assert done.exit_code == 0, done.output
    task = build(resolve(given)).experiment.task
    assert task.model.features == (5, 4)


def test_data_of_ordinary_arguments_are_made(ordinary):
    for name in ("make", "make_once"):
        run = build(
            resolve({"data": {"name": f"ordinary.py:{name}", "sizes": [60, 60]}, "cohort_size": 2, "clients": 5})
        )
        assert len(run.data.source.x) + len(run.data.source.test_x) == 120
    given = override({"data": "ordinary.py:make"}, ["data.rate=1e-3", "data.count=1e1"])
    found = resolve(given)["data"]
    assert (found["rate"], found["count"]) == (0.001, 10.0)
    build(resolve({"data": {"name": "ordinary.py:make", "options": {"a": 1}}, "clients": 5, "cohort_size": 2}))


def test_an_argument_that_a_configuration_cannot_hold_needs_a_default(ordinary):
    with pytest.raises(ValueError, match=r"data.act has no default, and a configuration cannot hold of type Callable"):
        resolve({"data": "ordinary.py:need"})


def test_an_annotation_that_names_what_is_not_there_is_of_any_type(here):
    (here / "typo.py").write_text(
        "from __future__ import annotations\n\nimport fedjax_sel as fs\n\n\n"
        "def make(rate: fs.Number = 0.5, size: int = 100):\n    return fs.dataset('own', [[rate]] * size, [0] * size)\n"
    )
    assert resolve({"data": {"name": "typo.py:make", "rate": 0.25}})["data"]["rate"] == 0.25


def test_files_of_one_name_in_two_folders_stay_loaded(here):
    for folder, value in (("a", 1), ("b", 2)):
        (here / folder).mkdir()
        (here / folder / "twin.py").write_text(f"class Thing:\n    value = {value}\n")
    first = [load_own("thing", f"{folder}/twin.py:Thing") for folder in ("a", "b", "a", "b")]
    assert [one.value for one in first] == [1, 2, 1, 2]
    assert first[0] is first[2]
    assert first[1] is first[3]


def test_a_changed_module_that_the_code_imports_is_another_configuration(here):
    """Directly, or by way of another; a module in which nothing has changed is the same in another process."""
    (here / "deepest.py").write_text("SIGN = 1.0\n")
    (here / "deeper.py").write_text("from deepest import SIGN\nimport deepest\n\n\ndef sign():\n    return SIGN\n")
    (here / "reads.py").write_text(
        "from deeper import sign\nfrom mine import Last\n\n\nclass Mine(Last):\n    sign = sign\n"
    )
    given = {"data": "iris", "client_selection": "reads.py:Mine"}
    script = f"from fedjax_sel.config import resolve; print(resolve({given!r}).dump())"

    def read():
        done = subprocess.run([sys.executable, "-c", script], cwd=here, capture_output=True, text=True, check=True)
        return done.stdout

    first = read()
    assert read() == first
    for name in ("deepest", "mine"):
        before, file = read(), here / f"{name}.py"
        file.write_text(file.read_text() + "\nMORE = 1\n")
        after = read()
        assert after != before
        assert after.count("code:") == 1
    (here / "config.yaml").write_text(first)
    with pytest.raises(ValueError, match=r"reads.py and .*deepest.py.* is '\w+': the file has changed since"):
        resolve(config_files.load_file("config.yaml"))
