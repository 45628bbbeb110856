"""Files that a configuration names: their digests, and what happens where they are other files by now."""

import hashlib

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from fedjax_sel.cli import main
from fedjax_sel.config import build, override, resolve
from fedjax_sel.config.marks import digest_files, drop_marks, mark_files
from fedjax_sel.engine.scan import run_chunk
from fedjax_sel.papers.running import fingerprint_settings

TRACE = "0,1,1\n1,1,1\n"
GIVEN = {
    "data": "npz:points.npz",
    "partition": {"clients": 3},
    "availability": {"name": "trace", "path": "trace.csv"},
    "cohort_size": 1,
    "rounds": 2,
    "seeds": 1,
}
DIGESTS = {"data": "points.npz", "availability": "trace.csv"}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    write_points(0)
    (tmp_path / "trace.csv").write_text(TRACE)
    return tmp_path


def write_points(seed):
    np.savez("points.npz", x=np.random.default_rng(seed).normal(size=(60, 3)).astype(np.float32), y=np.arange(60) % 3)


def call(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def test_a_configuration_keeps_the_digest_of_every_file_that_it_names(here):
    config = resolve(GIVEN)
    for key, name in DIGESTS.items():
        assert config[key]["digest"] == hashlib.sha256((here / name).read_bytes()).hexdigest()[:8]
    assert "digest" not in config["model"]
    assert resolve(config.to_dict()) == config
    assert resolve(drop_marks(config)) == config
    build(config)


def test_data_in_the_folder_of_the_data_has_the_digest_of_the_file_there(here, monkeypatch):
    before = resolve(GIVEN)["data"]["digest"]
    (here / "data").mkdir()
    (here / "points.npz").rename(here / "data" / "points.npz")
    monkeypatch.setenv("TFDS_DATA_DIR", str(here / "data"))
    assert resolve(GIVEN)["data"]["digest"] == before


@pytest.mark.parametrize("key", DIGESTS)
def test_a_configuration_for_another_state_of_a_file_is_refused(here, key):
    config = resolve(GIVEN)
    write_points(1)
    (here / "trace.csv").write_text("1,1,0\n1,1,1\n")
    other = drop_marks(config) | {key: config[key]}
    with pytest.raises(ValueError, match=rf"{key}.digest is '\w+', but {DIGESTS[key]} is '\w+': the file has changed"):
        resolve(other)


def test_without_the_file_a_configuration_can_still_be_read_but_not_run(here):
    config = resolve(GIVEN)
    (here / "trace.csv").unlink()
    assert resolve(config.to_dict()) == config
    assert "digest" not in resolve(GIVEN)["availability"]
    with pytest.raises(FileNotFoundError, match=r"trace\.csv"):
        build(config)


def test_several_files_have_one_digest_that_each_of_them_changes(here):
    paths = [here / "points.npz", here / "trace.csv"]
    one = mark_files("mine", digest_files(paths), {})
    (here / "trace.csv").write_text(TRACE + "1,1,1\n")
    two = mark_files("mine", digest_files(paths), {})
    write_points(1)
    three = mark_files("mine", digest_files(paths), {})
    assert len({digest for mark in (one, two, three) for digest in mark.values()}) == 3


def test_settings_are_the_same_with_and_without_the_data(here):
    config = resolve(GIVEN)
    (here / "points.npz").unlink()
    without = resolve(GIVEN)
    assert config.fingerprint != without.fingerprint
    assert fingerprint_settings(config) == fingerprint_settings(without)


def test_a_run_does_not_go_on_with_a_changed_file(here):
    (here / "mine.yaml").write_text(yaml.safe_dump(GIVEN))
    done = call("run", "mine.yaml", "--out", "out")
    assert done.exit_code == 0, done.output
    assert call("run", "mine.yaml", "--out", "out").exit_code == 0
    write_points(1)
    refused = call("run", "mine.yaml", "rounds=3", "--out", "out")
    assert refused.exit_code != 0
    assert "another configuration (data.digest: " in " ".join(refused.stderr.split())
    assert "; npz:points.npz has changed since" in " ".join(refused.stderr.split())
    again = call("run", "out/config.yaml", "--out", "other")
    assert again.exit_code == 2
    assert "the file has changed since this configuration was written" in again.stderr


def test_a_folder_of_an_earlier_version_has_no_digests_and_goes_on(here):
    (here / "mine.yaml").write_text(yaml.safe_dump(GIVEN))
    assert call("run", "mine.yaml", "--out", "out").exit_code == 0
    written = here / "out" / "config.yaml"
    written.write_text(yaml.safe_dump(drop_marks(yaml.safe_load(written.read_text()))))
    done = call("run", "mine.yaml", "rounds=3", "--out", "out")
    assert done.exit_code == 0, done.output


def test_a_sweep_does_not_mix_two_states_of_a_file(here):
    (here / "mine.yaml").write_text(yaml.safe_dump(GIVEN))
    axis = "lr=0.01,0.1"
    assert call("sweep", "mine.yaml", axis, "--out", "out").exit_code == 0
    (here / "out" / "summary.json").unlink(missing_ok=True)
    programs = run_chunk.programs
    (here / "trace.csv").write_text("1,1,0\n1,1,1\n")
    refused = call("sweep", "mine.yaml", axis, "--out", "out")
    assert refused.exit_code == 2
    assert "availability.digest" in " ".join(refused.stderr.split())
    assert run_chunk.programs == programs


def test_variables_that_a_model_begins_with_have_a_digest_and_those_of_the_library_need_none(here):
    place = here / "begin" / "pretrained.npz"
    place.parent.mkdir()
    np.savez(place, kernel=np.ones(3))
    expected = hashlib.sha256(place.read_bytes()).hexdigest()[:8]
    for begin in ("begin", "begin/pretrained.npz"):
        assert resolve(GIVEN | {"model": {"pretrained": begin}})["model"]["digest"] == expected
    assert "digest" not in resolve(GIVEN | {"model": {"pretrained": "tiny_imagenet"}})["model"]


def test_another_file_is_given_to_a_configuration_that_has_a_mark(here):
    """Its mark is then that of the other file; another parameter keeps the mark and what it protects from."""
    (here / "other.csv").write_text("1,1,0\n1,1,1\n")
    whole = resolve(GIVEN).to_dict()
    found = resolve(override(whole, ["availability.path=other.csv"]))["availability"]
    assert found["digest"] == hashlib.sha256((here / "other.csv").read_bytes()).hexdigest()[:8]
    assert resolve(override(whole, ["availability.digest=null"])) == resolve(GIVEN)
    (here / "trace.csv").write_text("1,1,0\n1,1,1\n")
    with pytest.raises(ValueError, match="the file has changed"):
        resolve(override(whole, ["availability.interval=5"]))
