"""A folder opened again: its models are the ones that were evaluated, and go to other formats and back bit for bit."""

import shutil
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from typer.testing import CliRunner

import fedjax_sel as fs
from fedjax_sel import config as configuration
from fedjax_sel.cli import main
from fedjax_sel.config.build import build_problem
from fedjax_sel.data.convert import convert_new
from fedjax_sel.runs import layout, pretrained
from fedjax_sel.runs.execute import execute
from fedjax_sel.runs.layout import FolderError
from fedjax_sel.runs.sweep.execute import execute_sweep
from fedjax_sel.runs.sweep.grid import combinations
from fedjax_sel.task.freezing import FrozenParams, fit_variables

GIVEN = {
    "data": "iris",
    "partition": {"clients": 10},
    "model": {"name": "mlp", "hidden": [8]},
    "cohort_size": 4,
    "local_training": {"name": "sgd", "learning_rate": 0.5},
    "rounds": 3,
    "chunk": 3,
    "seeds": [3, 5],
}
QUIET = Console(quiet=True)


def assert_same(mine, other):
    """The same nested dictionaries, bit for bit."""
    assert jax.tree.structure(mine) == jax.tree.structure(other)
    jax.tree.map(np.testing.assert_array_equal, mine, other)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    place = tmp_path_factory.mktemp("saved") / "run"
    return place, execute("iris", configuration.resolve(GIVEN), place, figures=False, console=QUIET)


@pytest.fixture(scope="module")
def run(done):
    opened = fs.open(done[0])
    assert isinstance(opened, fs.runs.saved.SavedRun)
    return opened


def test_a_run_has_its_history_configuration_and_final_models(done, run):
    _, history = done
    np.testing.assert_array_equal(run.history["accuracy"], history["accuracy"])
    assert run.config == configuration.resolve(GIVEN)
    assert run.seeds == (3, 5)
    assert_same(run.variables, history.variables)
    assert_same(run.params(5), jax.tree.map(lambda a: a[1], history.variables["params"]))
    with pytest.raises(ValueError, match=r"seed is 4, but the run in .* has the seeds \[3, 5\]"):
        run.predict(np.zeros((1, 4)), seed=4)


@pytest.mark.parametrize(
    ("x", "says"),
    [
        (np.full((3, 4), np.nan), "new: 3 of 3 examples hold NaN or infinity"),
        (np.zeros(4), r"new examples have the shape \(\), and those of the run \(4,\); give a single one as x\[None\]"),
        (np.zeros((3, 5)), r"new examples have the shape \(5,\), and those of the run \(4,\)"),
        (np.zeros((0, 4)), "there are no examples"),
        (np.array([["a"] * 4]), "new examples are <U1; they must be numbers"),
    ],
)
def test_what_cannot_be_predicted_is_refused_in_one_line(run, x, says):
    with pytest.raises(ValueError, match=says):
        run.predict(x)


@pytest.mark.parametrize(
    ("stored", "given", "says"),
    [
        (
            np.uint8([0, 255]),
            np.float32([0, 0.5]),
            "are float32 up to 0.5, and those of the run uint8 up to 255",
        ),
        (
            np.uint8([0, 255]),
            np.array([False, True]),
            "are bool up to 1, and those of the run uint8 up to 255",
        ),
        (
            np.float32([0, 1]),
            np.uint8([0, 200]),
            "are uint8 up to 200, and those of the run float32 up to 1",
        ),
        (np.uint8([0, 255]), np.uint8([0, 1]), None),
        (np.uint8([0, 255]), np.float32([0, 200]), None),
        (np.uint8([0, 255]), np.int32([0, 1]), None),
        (np.uint8([0, 1]), np.array([False, True]), None),
        (np.float32([-1, 3]), np.uint8([0, 200]), None),
        (np.float32([3, 4]), np.uint8([1, 1]), None),
        (np.uint8([0, 8]), np.array([True, False]), None),
        (np.float32([-1, 3]), np.float32([0, 0.2]), None),
    ],
)
def test_images_in_another_unit_are_not_predicted(stored, given, says):
    if says is None:
        np.testing.assert_array_equal(convert_new(given[:, None], stored[:, None]), given[:, None])
    else:
        with pytest.raises(ValueError, match=says):
            convert_new(given[:, None], stored[:, None])


def test_columns_of_a_table_are_found_by_their_names(tmp_path, run):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"age": rng.normal(size=60), "size": rng.normal(size=60), "who": np.arange(60) % 6})
    table["ill"] = (table["age"] > table["size"]).astype(int)
    table.to_csv(tmp_path / "table.csv", index=False)
    (tmp_path / "wards.py").write_text(
        "import pandas as pd\nimport fedjax_sel as fs\n\n\n"
        "def ward():\n"
        f"    table = pd.read_csv({str(tmp_path / 'table.csv')!r})\n"
        "    return fs.Federation.from_frame(table, label='ill', client='who').source\n"
    )
    asked = {"data": f"{tmp_path / 'wards.py'}:ward", "partition": "natural", "cohort_size": 6, "rounds": 9, "seeds": 1}
    execute("mine", configuration.resolve(asked), tmp_path / "run", figures=False, console=QUIET)
    opened, x = fs.open(tmp_path / "run"), table[["age", "size"]].to_numpy()
    known = opened.logits(x)
    assert abs(known - opened.logits(x[:, ::-1])).max() > 0.1
    np.testing.assert_array_equal(opened.logits(table[["size", "who", "age"]]), known)
    flags = table.assign(age=table["age"] > 0, size=table["size"].astype("Float64"))
    np.testing.assert_allclose(opened.logits(flags), opened.logits(flags[["age", "size"]].to_numpy(float)), rtol=1e-6)
    with pytest.raises(ValueError, match="lack the column 1; those of the run have 0, 1"):
        convert_new(pd.DataFrame({0: [1.0]}), np.ones((2, 2)), (0, 1))
    with pytest.raises(ValueError, match="new examples lack the column 'size'; those of the run have age, size"):
        opened.predict(table[["age", "who"]])
    with pytest.raises(ValueError, match=r"those of the run have no names of columns; give an array .*to_numpy"):
        run.predict(pd.DataFrame(np.zeros((2, 4))))


def test_a_run_that_was_opened_by_a_relative_path_keeps_its_models_elsewhere(run, tmp_path, monkeypatch):
    monkeypatch.chdir(run.folder.parent)
    opened = fs.open(run.folder.name)
    monkeypatch.chdir(tmp_path)
    assert jax.tree.structure(opened.model()) == jax.tree.structure(run.model())


def test_predictions_are_those_of_the_last_evaluation(done, run):
    """Accuracy and mean cross-entropy of each seed, computed here from logits, are those in the history."""
    _, history = done
    data = run.build().data
    for i, seed in enumerate((3, 5)):
        drawn = data.draw(seed)
        x, y = np.asarray(drawn.test_x), np.asarray(drawn.test_y)
        predicted = run.predict(x, seed)
        assert (predicted == y).mean() == pytest.approx(history["accuracy"][i, -1], abs=1e-6)
        logits = run.logits(x, seed).astype(np.float64)
        loss = np.log(np.exp(logits).sum(1)) - logits[np.arange(len(y)), y]
        assert loss.mean() == pytest.approx(history["loss"][i, -1], rel=1e-5)
    np.testing.assert_array_equal(run.predict(x), run.predict(x, 3))
    assert not np.array_equal(run.logits(x, 3), run.logits(x, 5))


@pytest.mark.parametrize("format", ["npz", "safetensors", "orbax"])
def test_a_model_goes_to_a_format_and_back_bit_for_bit(run, tmp_path, format):
    if format == "safetensors":
        pytest.importorskip("safetensors")
    path = run.export(tmp_path / f"model.{format}", seed=5)
    assert_same(fs.load_variables(path), run.model(5))
    assert_same(pretrained.load(path), run.model(5))
    assert [found.name for found in tmp_path.iterdir()] == [path.name]


def test_others_read_what_was_exported(run, tmp_path):
    """By safetensors' and Orbax's own functions."""
    ocp = pytest.importorskip("orbax.checkpoint")
    own = pytest.importorskip("safetensors.numpy")
    read = own.load_file(run.export(tmp_path / "model.safetensors"))
    first = run.params()
    np.testing.assert_array_equal(read["params/Dense_0/kernel"], first["Dense_0"]["kernel"])
    with ocp.StandardCheckpointer() as checkpointer:
        back = checkpointer.restore(run.export(tmp_path / "folder", "orbax"))
    assert_same(back, run.model())


def test_the_command_exports_beside_the_run_and_another_run_begins_with_it(done, run, tmp_path):
    place, _ = done
    result = CliRunner().invoke(main, ["export", str(place), "--seed", "5"])
    assert result.exit_code == 0, result.output
    file = place / "model-seed-5.npz"
    assert str(file) in result.output.replace("\n", "")
    more = configuration.build(
        configuration.resolve({**GIVEN, "model": {**GIVEN["model"], "pretrained": str(file)}, "rounds": 1})
    )
    assert_same(more.experiment.task.frozen.start, run.model(5))
    again = CliRunner().invoke(main, ["export", str(place), "--format", "onnx"])
    assert again.exit_code == 2
    assert "unknown format 'onnx'" in again.output


def test_what_cannot_be_exported_or_loaded_is_one_line(run, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"model.pt ends in none of .npz, .safetensors, .orbax"):
        fs.save_variables(tmp_path / "model.pt", run.model())
    with pytest.raises(FileNotFoundError, match="`fedjax-sel export RUN` writes the model of a run"):
        fs.load_variables(tmp_path / "nothing.npz")
    with pytest.raises(ValueError, match="is a folder that Orbax has not written"):
        fs.load_variables(tmp_path)
    fs.save_variables(tmp_path / "there.orbax", {"params": {"a": np.ones(2)}})
    with pytest.raises(FileExistsError, match=r"there.orbax exists; give another folder"):
        fs.save_variables(tmp_path / "there.orbax", run.model())
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(ValueError, match=r"pip install 'fedjax-sel\[safetensors\]'"):
        fs.save_variables(tmp_path / "model.safetensors", run.model())


def test_a_run_without_models_says_so(tmp_path):
    place = tmp_path / "run"
    execute("iris", configuration.resolve(GIVEN), place, figures=False, keep_checkpoints=False, console=QUIET)
    opened = fs.open(place)
    assert opened.history.rounds == 3
    with pytest.raises(FolderError, match="keeps no models"):
        opened.predict(np.zeros((1, 4)))


def test_a_sweep_has_its_runs_by_name_with_their_models(tmp_path):
    grid = combinations(GIVEN, ["lr=0.1,0.5"], {})
    execute_sweep("iris", grid, tmp_path / "sweep", keep_models=True, console=QUIET)
    sweep = fs.open(tmp_path / "sweep")
    assert len(sweep) == 2
    assert sweep.description["axes"] == {"local_training.learning_rate": [0.1, 0.5]}
    assert set(sweep.table["seed"]) == {3, 5}
    best = sweep["local_training.learning_rate=0.5"]
    assert best.config["local_training"]["learning_rate"] == 0.5
    data = best.build().data.draw(5)
    share = (best.predict(np.asarray(data.test_x), 5) == np.asarray(data.test_y)).mean()
    assert share == pytest.approx(best.history["accuracy"][1, -1], abs=1e-6)
    with pytest.raises(ValueError, match="unknown combination"):
        sweep["lr=7"]


STAGED = '''
from typing import ClassVar

import flax.linen as nn


class Staged(nn.Module):
    """A network of two stages."""

    classes: int = 3
    stages: ClassVar = ("body", "head")

    @nn.compact
    def __call__(self, x, *, train=False, mask=None, begin=0, end=None):
        stages = (lambda x: nn.relu(nn.Dense(8, name="body")(x)), nn.Dense(self.classes, name="head"))
        for stage in stages[begin:end]:
            x = stage(x)
        return x
'''


def test_the_features_of_a_frozen_backbone_are_computed_again_for_predictions(tmp_path):
    """Such a run trains a head on stored features; it predicts from examples as they are stored."""
    (tmp_path / "staged.py").write_text(STAGED)
    model = {"name": f"{tmp_path / 'staged.py'}:Staged", "frozen": ["body"]}
    config = configuration.resolve({**GIVEN, "model": model})
    history = execute("iris", config, tmp_path / "run", figures=False, console=QUIET)
    opened = fs.open(tmp_path / "run")
    data = configuration.build(configuration.resolve(GIVEN)).data.draw(5)
    assert opened.build().data.draw(5).x.shape != data.x.shape
    share = (opened.predict(np.asarray(data.test_x), 5) == np.asarray(data.test_y)).mean()
    assert share == pytest.approx(history["accuracy"][1, -1], abs=1e-6)


def test_frozen_parts_are_exported_too_and_another_run_begins_with_the_file(done, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frozen = {**GIVEN["model"], "pretrained": str(done[0]), "frozen": ["Dense_0"]}
    place = tmp_path / "tuned"
    execute("iris", configuration.resolve({**GIVEN, "model": frozen}), place, figures=False, console=QUIET)
    tuned = fs.open(place)
    assert set(tuned.params()) == {"Dense_1"}
    whole = fs.load_variables(tuned.export(tmp_path / "whole.npz"))
    assert_same(whole["params"]["Dense_0"], run.params(3)["Dense_0"])
    assert_same(whole["params"]["Dense_1"], tuned.params(3)["Dense_1"])
    task = build_problem(configuration.resolve({**GIVEN, "model": {**GIVEN["model"], "pretrained": "whole.npz"}})).task
    x = np.linspace(0, 5, 12, dtype=np.float32).reshape(3, 4)
    np.testing.assert_allclose(task.logits(whole, x), tuned.logits(x, 3), rtol=1e-5)


@pytest.mark.parametrize("targets", ["continuous", "multilabel"])
def test_predictions_are_of_the_kind_of_the_targets(tmp_path, targets):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 3)).astype(np.float32)
    y = x.sum(1) if targets == "continuous" else (x > 0).astype(np.int32)
    np.savez(tmp_path / "mine.npz", x=x, y=y)
    data = {"name": f"npz:{tmp_path / 'mine.npz'}", "targets": targets}
    asked = {"data": data, "partition": {"clients": 6}, "cohort_size": 3, "rounds": 2, "seeds": 1}
    execute("mine", configuration.resolve(asked), tmp_path / "run", figures=False, console=QUIET)
    opened = fs.open(tmp_path / "run")
    logits, said = opened.logits(x[:5]), opened.predict(x[:5])
    np.testing.assert_array_equal(said, logits[:, 0] if targets == "continuous" else logits > 0)
    assert said.shape == y[:5].shape


def test_predictions_are_of_the_kind_of_the_targets_of_data_that_every_seed_draws_anew(tmp_path):
    data = {"name": "diabetes", "seed": None}
    asked = {"data": data, "partition": {"clients": 6}, "cohort_size": 3, "rounds": 1, "seeds": 1}
    execute("mine", configuration.resolve(asked), tmp_path / "run", figures=False, console=QUIET)
    opened = fs.open(tmp_path / "run")
    x = np.linspace(-0.1, 0.1, 30, dtype=np.float32).reshape(3, 10)
    np.testing.assert_array_equal(opened.predict(x), opened.logits(x)[:, 0])


def test_the_task_of_a_run_has_the_loss_and_the_metrics_that_it_was_run_with(tmp_path):
    asked = configuration.resolve({**GIVEN, "rounds": 1, "task": {"loss": "focal", "metrics": ["f1"]}})
    execute("iris", asked, tmp_path / "run", figures=False, console=QUIET)
    task, built = fs.open(tmp_path / "run").task, configuration.build(asked).experiment.task
    assert (task.loss, task.metrics) == (built.loss, built.metrics)
    assert list(task.metrics) == ["f1"]


def test_the_ending_of_a_file_says_its_format_on_the_command_line_too(done, run, tmp_path):
    place = tmp_path / "model.safetensors"
    made = CliRunner().invoke(main, ["export", str(done[0]), "--out", str(place)])
    assert made.exit_code == 0, made.output
    assert_same(fs.load_variables(place), run.model())
    for out, format, says in (
        (place, "npz", "ends as format safetensors"),
        (tmp_path / "m.foo", None, "ends in none of"),
    ):
        refused = CliRunner().invoke(
            main, ["export", str(done[0]), "--out", str(out), *(["--format", format] if format else [])]
        )
        assert refused.exit_code == 2
        assert says in refused.output + refused.stderr


def test_what_ended_early_says_of_how_many_rounds(run):
    assert layout.title(run.config, 3).endswith("m = 4, 3 rounds")
    assert layout.title(run.config, 2).endswith("m = 4, 2 of 3 rounds")


def test_a_damaged_result_says_how_it_is_restored_where_a_checkpoint_has_it(done, tmp_path):
    for place, kept in ((tmp_path / "kept", True), (tmp_path / "alone", False)):
        shutil.copytree(done[0], place)
        (place / "metrics.parquet").write_text("damaged")
        if not kept:
            shutil.rmtree(place / "checkpoints")
        cure = "summary.json and give the run's command again, which goes on" if kept else "alone and run it again"
        with pytest.raises(FolderError, match=f"cannot be read .*; remove .*{cure}"):
            fs.open(place)
    (tmp_path / "kept" / "summary.json").unlink()
    execute("iris", configuration.resolve(GIVEN), tmp_path / "kept", figures=False, console=QUIET)
    np.testing.assert_array_equal(fs.open(tmp_path / "kept").history["loss"], fs.open(done[0]).history["loss"])


def test_numbers_that_numpy_does_not_know_are_kept_and_others_are_refused_by_name(tmp_path):
    kernel = jnp.array([1.5, -2.25], jnp.bfloat16)
    path = fs.save_variables(tmp_path / "model.npz", {"params": {"kernel": kernel}})
    found = fs.load_variables(path)["params"]["kernel"]
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, [1.5, -2.25])
    like = {"params": {"kernel": jax.ShapeDtypeStruct((2,), jnp.bfloat16)}}
    fitted = fit_variables({"params": {"kernel": found}}, like, FrozenParams(), None)["params"]["kernel"]
    assert fitted.dtype == jnp.bfloat16, "a model that begins with them trains in its own types"
    np.savez(path, **{"params/kernel": np.asarray(kernel)})  # as earlier versions did
    with pytest.raises(ValueError, match=r"model.npz cannot be read \(the numbers of params/kernel are of a type that"):
        fs.load_variables(path)
