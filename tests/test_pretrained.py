"""Variables in a file: written and read bit for bit, refused in one clear line, begun with from the command line."""

import re
import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import traverse_util
from typer.testing import CliRunner

import fedjax_sel as fs
from fedjax_sel import config
from fedjax_sel.cli import main
from fedjax_sel.config.build import build_problem
from fedjax_sel.engine.checkpoint import Checkpoints
from fedjax_sel.runs import formats, layout, pretrained


def flat(variables) -> dict[str, Any]:
    """Arrays by their way, as in `params/head/kernel`."""
    return dict(traverse_util.flatten_dict(variables, sep="/"))


def assert_same(mine, other):
    """The same nested dictionaries, bit for bit."""
    mine, other = flat(mine), flat(other)
    assert mine.keys() == other.keys()
    for name, leaf in mine.items():
        one, two = np.asarray(leaf), np.asarray(other[name])
        assert (one.dtype, one.shape, one.tobytes()) == (two.dtype, two.shape, two.tobytes()), name


VARIABLES = {
    "params": {
        "group1": {"block1": {"conv1": {"kernel": np.arange(12, dtype=np.float32).reshape(3, 4) / 7}}},
        "head": {"bias": np.array([-0.0, np.nan, np.inf, 1e-42], np.float32), "scale": np.float32(0.1)},
    },
    "batch_stats": {"norm": {"mean": np.zeros((0, 2), np.float32), "count": np.array([3], np.int32)}},
}


def test_what_is_saved_is_loaded_bit_for_bit(tmp_path):
    pretrained.save(tmp_path / "any.npz", VARIABLES)
    assert_same(pretrained.load(tmp_path / "any.npz"), VARIABLES)
    on_device = {"params": {"head": {"kernel": jnp.array([[0.1, -0.0]])}}}
    pretrained.save(tmp_path / "any.npz", on_device)
    assert_same(pretrained.load(str(tmp_path / "any.npz")), on_device)
    assert [path.name for path in tmp_path.iterdir()] == ["any.npz"], "written beside, then renamed"


def test_the_folder_of_a_pretraining_stands_for_its_file(tmp_path, monkeypatch):
    pretrained.save(tmp_path / pretrained.FILE, VARIABLES)
    assert_same(pretrained.load(tmp_path), VARIABLES)
    monkeypatch.setenv("HOME", str(tmp_path.parent))
    assert_same(pretrained.load(f"~/{tmp_path.name}"), VARIABLES)


def test_the_folder_of_a_run_gives_its_first_seeds_newest_model(tmp_path):
    run = config.build(config.resolve({"data": "iris", "rounds": 2, "seeds": [4, 1], "chunk": 1}))
    kept = Checkpoints(tmp_path / pretrained.CHECKPOINTS, pause=0)
    history = run.simulate(checkpoints=kept)
    assert kept.rounds() == [1, 2]
    first = jax.tree.map(lambda leaf: leaf[0], history.variables)
    assert_same(pretrained.load(tmp_path), first)
    assert pretrained.CHECKPOINTS == layout.CHECKPOINTS
    formats.save_variables(tmp_path / "alone" / layout.MODELS, history.variables)  # as of a sweep, or joined runs
    assert_same(pretrained.load(tmp_path / "alone"), first)
    assert list(pretrained.digest_folder(tmp_path / "alone")) == [str(tmp_path / "alone" / layout.MODELS)]
    pretrained.save(tmp_path / pretrained.FILE, VARIABLES)
    assert_same(pretrained.load(tmp_path), VARIABLES)


def written(path, *, text="", arrays=None, damaged=False, alone=False, cut=False):
    """A file of text, or of arrays, perhaps with other numbers than it was written with, or without its end."""
    path.write_text(text)
    if alone:
        with path.open("wb") as stream:
            np.save(stream, arrays)
    elif arrays is not None:
        with path.open("wb") as stream:
            np.savez(stream, **arrays)
    if damaged:
        path.write_bytes(path.read_bytes().replace(np.float64(1).tobytes(), np.float64(2).tobytes(), 1))
    if cut:
        path.write_bytes(path.read_bytes()[:-40])


KERNEL = {"params/head/kernel": np.ones(3)}


@pytest.mark.parametrize(
    ("content", "error", "says"),
    [
        (None, FileNotFoundError, r"nor the folder of a run that kept some .*, nor a model of the library: "),
        ({"text": "no arrays"}, ValueError, r"model.npz cannot be read \(.+\)$"),
        ({"text": ""}, ValueError, r"model.npz cannot be read \(.+\)$"),
        ({"arrays": KERNEL, "damaged": True}, ValueError, r"model.npz cannot be read \(Bad CRC"),
        ({"arrays": KERNEL, "cut": True}, ValueError, r"model.npz cannot be read \(File is not a zip file"),
        ({"arrays": np.ones(3), "alone": True}, ValueError, r"cannot be read \(it holds one array without a name\)$"),
        ({"arrays": {"params/head": np.array([{}])}}, ValueError, r"model.npz cannot be read \(Object arrays"),
        ({"arrays": {"x": np.ones(2), "a": np.ones(1)}}, ValueError, r"model.npz holds a, x, no parameters$"),
        ({"arrays": {}}, ValueError, r"model.npz holds nothing, no parameters$"),
    ],
    ids=["missing", "text", "empty", "damaged", "cut", "alone", "objects", "other arrays", "no arrays"],
)
def test_what_cannot_be_loaded_is_said(tmp_path, content, error, says):
    if content is not None:
        written(tmp_path / "model.npz", **content)
    with pytest.raises(error, match=rf"(?m)^model.pretrained: .*{says}") as raised:
        pretrained.load(tmp_path / "model.npz")
    assert "\n" not in str(raised.value)


def test_an_empty_folder_is_no_pretraining(tmp_path):
    (tmp_path / pretrained.CHECKPOINTS).mkdir()
    with pytest.raises(FileNotFoundError, match="is neither a file of variables nor the folder of a run"):
        pretrained.load(tmp_path)


def call(*arguments):
    return CliRunner().invoke(main, [str(a) for a in arguments])


def state_of(place):
    return {path.relative_to(place): path.stat().st_mtime_ns for path in place.rglob("*") if path.is_file()}


def test_the_command_line_refuses_what_is_not_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = call("run", "iris", "model.pretrained=nowhere")
    assert done.exit_code == 2
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("error: model.pretrained: nowhere is neither")
    assert not list(tmp_path.iterdir())


FEDERATION = """
data: {name: digit_images, rows: 100, num_test_examples: 50, seed: 0}
partition: {name: iid, clients: 2}
model: {name: wide_resnet, depth: 10}
trainer: {name: sgd, learning_rate: 0.0, batch_size: 25}
m: 2
rounds: 1
seeds: 1
"""
"""At learning rate 0 what gradients change stays what it was."""


def test_a_run_begins_with_a_pretraining_of_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    source = tmp_path / "source"
    asked = ("pretrain", "wide_resnet", "model.depth=10", "data.num_examples=100", "data.num_test_examples=50")
    asked = (*asked, "--data", "digit_images", "--epochs", 1, "--out", source)
    done = call(*asked)
    assert done.exit_code == 0, done.output
    assert "The run is in" in done.stdout
    assert f"model=wide_resnet model.depth=10 model.pretrained={source}" in done.stdout
    assert (source / pretrained.FILE).is_file()
    variables = pretrained.load(source)
    assert set(variables["params"]) == {"stem", "group1", "group2", "group3", "norm", "head"}
    kept = Checkpoints(source / pretrained.CHECKPOINTS).variables()
    assert kept is not None
    assert_same(variables, pretrained.take_first_seed(kept))

    before = state_of(source)
    again = call(*asked)
    assert again.exit_code == 0, again.output
    assert "Nothing was run" in again.stdout
    assert "model.pretrained=" in again.stdout
    assert state_of(source) == before

    (tmp_path / "federation.yaml").write_text(FEDERATION)
    target = tmp_path / "target"
    begun = ("federation.yaml", f"model.pretrained={source}", "model.frozen=[stem,group1]", "--out", target)
    done = call("run", *begun)
    assert done.exit_code == 0, done.output
    after = pretrained.load(target)
    assert set(after["params"]) == {"group2", "group3", "norm", "head"}, "fixed parts do not go round"
    assert set(after["batch_stats"]) == {"group2", "group3", "norm"}
    assert_same(after["params"], {name: variables["params"][name] for name in after["params"]})
    moved = [not np.array_equal(leaf, flat(variables)[name]) for name, leaf in flat(after).items() if "stats" in name]
    assert all(moved), "the statistics of what is trained move"
    assert state_of(source) == before
    history, whole = layout.read(target)
    assert whole["model"]["frozen"] == ["stem", "group1"]
    trained = sum(leaf.size for leaf in jax.tree.leaves(after["params"]))
    numbers = sum(leaf.size for leaf in jax.tree.leaves(variables)) - sum(leaf.size for leaf in jax.tree.leaves(after))
    moving = sum(leaf.size for leaf in jax.tree.leaves(after))
    assert trained < moving
    np.testing.assert_array_equal(history["bytes_down"], [[2 * 4 * (moving + numbers)]])
    np.testing.assert_array_equal(history["bytes_up"], [[2 * 4 * moving]])


SHIPPED = pretrained.list_shipped()


def read_made_by(name: str) -> dict[str, Any]:
    """The configuration that a model of the library was trained by."""
    return config.parse_yaml((pretrained.find_folder() / f"{name}.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", SHIPPED)
def test_a_model_of_the_library_fits_the_model_that_its_configuration_names(name):
    made_by = config.resolve(read_made_by(name))
    variables = pretrained.load(name)
    assert all(np.isfinite(leaf).all() for leaf in flat(variables).values())
    given = {**made_by["model"], "pretrained": name, "normalise": False}
    x, y = np.zeros((4, 32, 32, 3), np.float32), np.arange(4)
    classes = variables["params"]["head"]["kernel"].shape[1]
    for count, carried in ((classes, True), (4, False)):
        images = fs.dataset("images", x, y, test=(x, y), classes=count)
        task = build_problem(config.resolve({"data": "iris", "model": given}), source=images).task
        begun = flat(task.init(jax.random.key(0), x))
        for leaf, value in flat(variables).items():
            if carried or not leaf.startswith("params/head"):
                np.testing.assert_array_equal(begun[leaf], value, leaf)


@pytest.mark.parametrize("name", SHIPPED)
def test_a_model_of_the_library_is_as_often_right_as_it_says(name):
    given = read_made_by(name)
    given["model"]["pretrained"] = name
    try:
        problem = build_problem(config.resolve(given))
    except FileNotFoundError as error:
        pytest.skip(f"{name} needs the data that it was trained on: {error}")
    predict = jax.jit(lambda x: problem.task.logits(problem.task.init(jax.random.key(0), x[:1]), x).argmax(-1))
    x, y = problem.source.test_x, problem.source.test_y
    right = np.mean([np.asarray(predict(x[i : i + 500])) == y[i : i + 500] for i in range(0, len(y), 500)])
    (said,) = re.findall(r"([\d.]+) % of its", pretrained.describe(name))
    assert abs(100 * right - float(said)) < 0.1


def test_the_test_images_of_tiny_imagenet_are_as_much_sharper_as_the_page_says():
    try:
        data = fs.load("npz:tiny_imagenet_32.npz")
    except FileNotFoundError as error:
        pytest.skip(f"needs the data: {error}")
    page = (Path(__file__).parents[1] / "docs/results/fedft-eds.md").read_text(encoding="utf-8")
    ((test, train),) = re.findall(r"difference of horizontal neighbours ([\d.]+) against ([\d.]+)", page)
    for images, said in ((data.test_x, test), (data.x[::10], train)):
        assert abs(np.abs(np.diff(images.astype(np.int16), axis=2)).mean() - float(said)) < 0.1


@pytest.mark.parametrize("name", SHIPPED)
def test_a_name_that_is_also_a_place_is_refused(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    pretrained.save(tmp_path / name, VARIABLES)
    with pytest.raises(ValueError, match=rf"^model.pretrained: {name} is a model of the library and a place here"):
        pretrained.load(name)
    assert_same(pretrained.load(f"./{name}"), VARIABLES)


@pytest.mark.parametrize(
    ("x", "given", "says"),
    [
        (fs.load("iris").x, {"pretrained": "model.npz"}, r"pretrained is 'model.npz'; .* load_variables\(PATH\)"),
        (
            fs.load("iris").x,
            {"frozen": "Dense_0"},
            r"frozen is 'Dense_0'; it must be a list of parts, as \['Dense_0'\]",
        ),
    ],
)
def test_what_fine_tuning_cannot_begin_with_is_one_clear_error(x, given, says):
    with pytest.raises(ValueError, match=says):
        fs.Task(fs.models.LogisticRegression(classes=3)).fine_tune(x, **given)


def test_another_model_of_a_run_is_another_configuration_and_the_same_one_again_is_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small = ("run", "iris", "model=logistic", "partition.clients=5", "m=2", "--seeds", "1")
    assert call(*small, "rounds=2", "--out", "begun").exit_code == 0
    given = {"data": "iris", "cohort_size": 2, "model": {"name": "logistic", "pretrained": "begun"}}
    before = config.resolve(given)
    assert len(before["model"]["digest"]) == 8
    shutil.rmtree(tmp_path / "begun")
    assert config.resolve(before.to_dict()) == before, "a finished run is read without what it began with"
    assert call(*small, "rounds=2", "--out", "begun").exit_code == 0
    assert config.resolve(given) == before
    assert call(*small, "rounds=4", "--out", "begun").exit_code == 0
    assert config.resolve(given).differences(before) == ["model.digest"]
    with pytest.raises(ValueError, match="has changed since this configuration was written"):
        config.resolve(before.to_dict())
