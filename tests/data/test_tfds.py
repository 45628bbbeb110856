"""Real tfds files, made here without a network.

They are made by the command that our error message gives, on a builder whose generators are replaced by a few images.
"""

import io
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from fedjax_sel.data import speech
from fedjax_sel.data import tfds as module
from fedjax_sel.data.sources import load

SIZES = {"train": 40, "test": 15}


def png(image):
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "PNG")
    buffer.seek(0)
    return buffer


def prepare(name, data_dir, splits=("train", "test"), classes=10, file_format="array_record"):
    """The images of each split, as tfds will find them: image i of label i % classes is filled with that label."""
    import tensorflow_datasets as tfds

    def examples(split):
        for i in range(SIZES[split]):
            yield i, {"image": png(np.full((28, 28), i % classes, np.uint8)), "label": i % classes}

    builder = tfds.builder(name, data_dir=str(data_dir), file_format=file_format)
    builder._split_generators = lambda _: {split: examples(split) for split in splits}
    builder.download_and_prepare()


def heard(label, seconds=1.0, amplitude=9000, rate=16000):
    """A tone of its own pitch for every label."""
    return np.rint(amplitude * np.sin(600 * (label + 1) * np.arange(seconds * rate) / rate)).astype(np.int16)


def prepare_speech(data_dir, audio=heard):
    """Recordings of unequal lengths in the three splits that the dataset has."""
    import tensorflow_datasets as tfds
    from tensorflow_datasets.core.features import audio_feature

    def examples(split):
        for i in range({"train": 24, "validation": 6, "test": 12}[split]):
            yield f"{split}{i}", {"audio": audio(i % 12, 0.3 + i / 20), "label": i % 12}

    with module._without_tensorflow(), pytest.MonkeyPatch.context() as patch:
        # To write, unlike to read, a type's name is needed; TensorFlow's is the same.
        patch.setattr(audio_feature.Audio, "dtype", property(lambda self: self.np_dtype))
        builder = tfds.builder("speech_commands", data_dir=str(data_dir), file_format="array_record")
        builder._split_generators = lambda _: {split: examples(split) for split in ("train", "validation", "test")}
        builder.download_and_prepare()


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    data_dir = tmp_path_factory.mktemp("tfds")
    prepare("mnist", data_dir)
    prepare("emnist/byclass", data_dir, classes=62)
    prepare("fashion_mnist", data_dir, splits=("train",))
    prepare("kmnist", data_dir, splits=("test",))
    return data_dir


@pytest.mark.parametrize(("name", "classes"), [("mnist", 10), ("emnist/byclass", 62), ("mnist:3.*.*", 10)])
def test_a_prepared_dataset_is_read_into_memory_mapped_rows(prepared, tmp_path, monkeypatch, name, classes):
    monkeypatch.setattr(module, "BATCH", 7)  # several batches, the last one shorter
    data = load(f"tfds:{name}", data_dir=prepared, cache_dir=tmp_path)
    assert (data.x.shape, data.x.dtype, data.classes) == ((40, 28, 28, 1), np.uint8, classes)
    assert (data.test_x.shape, data.test_y.shape) == ((15, 28, 28, 1), (15,))
    assert isinstance(data.x, np.memmap)
    assert sorted(data.y) == sorted(i % classes for i in range(40))  # tfds shuffles the rows
    assert (data.x[:, 0, 0, 0] == data.y).all()
    assert (data.test_x[:, 5, 9, 0] == data.test_y).all()


def test_images_are_decoded_once(prepared, tmp_path, monkeypatch):
    first = load("tfds:mnist", data_dir=prepared, cache_dir=tmp_path)
    monkeypatch.setattr(module, "_decode", None)
    again = load("tfds:mnist", data_dir=prepared, cache_dir=tmp_path)
    np.testing.assert_array_equal(first.x, again.x)


def test_decoding_that_is_cut_short_leaves_no_cache(prepared, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "BATCH", 7)
    create, made = module.cache.create, []

    def fail_at_the_second_split(folder, name, *args):
        made.append(name)
        if name == "x_test":
            raise KeyboardInterrupt
        return create(folder, name, *args)

    monkeypatch.setattr(module.cache, "create", fail_at_the_second_split)
    with pytest.raises(KeyboardInterrupt):
        load("tfds:mnist", data_dir=prepared, cache_dir=tmp_path)
    assert "x_train" in made
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    assert len(load("tfds:mnist", data_dir=prepared, cache_dir=tmp_path).test_y) == 15


def test_the_same_dataset_prepared_elsewhere_is_another_cache(prepared, tmp_path):
    prepare("mnist", tmp_path / "other", classes=3)
    cache = tmp_path / "cache"
    load("tfds:mnist", data_dir=prepared, cache_dir=cache)
    assert load("tfds:mnist", data_dir=tmp_path / "other", cache_dir=cache).y.max() == 2
    assert len(list(cache.iterdir())) == 2


def test_validation_rows_are_a_share_of_the_training_rows(prepared, tmp_path):
    data = load("tfds:mnist", data_dir=prepared, cache_dir=tmp_path, validation=0.25)
    assert (len(data.y), len(data.validation_y), len(data.test_y)) == (30, 10, 15)


def test_without_a_test_split_a_share_of_the_training_rows_is_taken(prepared, tmp_path):
    data = load("tfds:fashion_mnist", data_dir=prepared, cache_dir=tmp_path, test=0.25)
    assert (len(data.y), len(data.test_y)) == (30, 10)


@pytest.mark.parametrize("first", ["training", None])
def test_a_share_of_the_training_rows_is_taken_beside_a_test_split_too(prepared, tmp_path, first):
    """In either order: the cache of decoded arrays holds both splits."""
    for test_from in (first, None if first else "training"):
        data = load("tfds:mnist", data_dir=prepared, cache_dir=tmp_path, test=0.25, test_from=test_from)
        assert (len(data.y), len(data.test_y)) == ((30, 10) if test_from else (40, 15))


def test_without_a_training_split_the_splits_are_listed(prepared, tmp_path):
    with pytest.raises(ValueError, match="tfds:kmnist has no split 'train'; it has test"):
        load("tfds:kmnist", data_dir=prepared, cache_dir=tmp_path)


def test_recordings_become_pictures_of_one_shape(tmp_path, monkeypatch):
    prepare_speech(tmp_path / "data")
    monkeypatch.setattr(module, "BATCH", 7)
    data = load("tfds:speech_commands", data_dir=tmp_path / "data", cache_dir=tmp_path / "cache")
    assert (data.x.shape, data.x.dtype, data.classes) == ((24, 32, 32, 3), np.uint8, 12)
    assert (data.test_x.shape, len(data.validation_y)) == ((12, 32, 32, 3), 0)
    assert isinstance(data.x, np.memmap)
    assert sorted(data.y) == sorted(i % 12 for i in range(24))
    for x, y in [(data.x, data.y), (data.test_x, data.test_y)]:
        whole = [speech.make_picture(heard(label), 16000) for label in y]  # a second; the rows are as it until they end
        np.testing.assert_array_equal(x[:, :, :9], np.stack(whole)[:, :, :9])
    monkeypatch.setattr(module, "_decode", None)
    again = load("tfds:speech_commands", data_dir=tmp_path / "data", cache_dir=tmp_path / "cache")
    np.testing.assert_array_equal(again.x, data.x)
    monkeypatch.setattr(speech, "FORM", "another")  # pictures of another form are made anew
    with pytest.raises(TypeError):
        load("tfds:speech_commands", data_dir=tmp_path / "data", cache_dir=tmp_path / "cache")


def test_a_recording_that_cannot_be_used_is_named(tmp_path):
    prepare_speech(tmp_path / "data", audio=lambda label, seconds: heard(label, seconds if label else 0))
    with pytest.raises(ValueError, match=r"tfds:speech_commands: example \d+ of split train is empty"):
        load("tfds:speech_commands", data_dir=tmp_path / "data", cache_dir=tmp_path / "cache")


def test_recordings_without_a_rate_are_refused(tmp_path, monkeypatch):
    from tensorflow_datasets.core.features import audio_feature

    prepare_speech(tmp_path / "data")
    monkeypatch.setattr(audio_feature.Audio, "sample_rate", 0)  # as tfds reads a rate that was not written
    with pytest.raises(ValueError, match=r"example 0 of split train: there is no rate"):
        load("tfds:speech_commands", data_dir=tmp_path / "data", cache_dir=tmp_path / "cache")


def test_tensorflow_is_replaced_only_while_a_dataset_is_read(prepared, tmp_path):
    from tensorflow_datasets.core.features import audio_feature

    before = audio_feature.tf
    load("tfds:mnist", data_dir=prepared, cache_dir=tmp_path)
    with pytest.raises(ValueError, match="no split 'train'"):
        load("tfds:kmnist", data_dir=prepared, cache_dir=tmp_path)
    assert audio_feature.tf is before


def test_a_missing_feature_gets_the_list_of_features(prepared, tmp_path):
    with pytest.raises(ValueError, match="tfds:mnist has no feature 'audio'; it has image, label"):
        module.tfds_dataset("mnist", data_dir=prepared, cache_dir=tmp_path, features=("audio", "label"))


@pytest.mark.parametrize("name", ["cifar10", "emnist/balanced", "speech_commands"])
def test_a_dataset_that_is_not_prepared_is_not_downloaded_but_explained(prepared, tmp_path, name):
    with pytest.raises(FileNotFoundError) as error:
        load(f"tfds:{name}", data_dir=tmp_path / "none", cache_dir=tmp_path)
    said = str(error.value)
    assert f"tfds:{name} is not prepared in {tmp_path / 'none'}" in said
    assert "nothing is downloaded unasked. To download and prepare it" in said
    assert f"tfds.builder('{name}', data_dir='{tmp_path / 'none'}', file_format='array_record')" in said
    assert not (tmp_path / "none").exists()


def test_the_data_folder_is_the_argument_else_the_environment_else_the_home_folder(prepared, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("TFDS_DATA_DIR", raising=False)
    with pytest.raises(FileNotFoundError, match=f"not prepared in {tmp_path / 'tensorflow_datasets'} "):
        load("tfds:mnist", cache_dir=tmp_path)
    monkeypatch.setenv("TFDS_DATA_DIR", str(prepared))
    assert len(load("tfds:mnist", cache_dir=tmp_path).y) == 40


def test_a_misspelt_name_gets_the_nearest_valid_ones(tmp_path):
    with pytest.raises(ValueError, match=r"no dataset 'fashion_mnst'.* did you mean .*tfds:fashion_mnist"):
        load("tfds:fashion_mnst", data_dir=tmp_path)


def test_an_unknown_configuration_gets_the_list_of_configurations(tmp_path):
    with pytest.raises(ValueError, match=r"tfds:emnist/all cannot be opened \(its configurations: .*byclass"):
        load("tfds:emnist/all", data_dir=tmp_path)


def test_neither_tensorflow_nor_tfds_is_imported_before_it_is_needed():
    code = "import sys, fedjax_sel.data.sources; print([m for m in sys.modules if m.startswith('tensorflow')])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == "[]"


@pytest.mark.parametrize("shape", [(), (2,)], ids=["numbers", "vectors"])
def test_a_feature_that_is_no_label_is_refused_before_anything_is_decoded(shape, tmp_path):
    import tensorflow_datasets as tfds

    class Told(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version("1.0.0")
        name = f"told{len(shape)}"

        def _info(self):
            parts = {"image": (2,), "label": shape}
            features = {name: tfds.features.Tensor(shape=size, dtype=np.float32) for name, size in parts.items()}
            return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

        def _split_generators(self, _):
            return {"train": self._generate_examples()}

        def _generate_examples(self):
            for i in range(9):
                yield i, {"image": np.ones(2, np.float32), "label": np.full(shape, i / 10, np.float32)}

    Told(data_dir=str(tmp_path), file_format="array_record").download_and_prepare()
    with pytest.raises(ValueError, match=r"tfds:told.: feature 'label' is float32 of shape .*; a label is one whole"):
        load(f"tfds:told{len(shape)}", data_dir=tmp_path, cache_dir=tmp_path / "cache")
    assert not list((tmp_path / "cache").glob("*"))
