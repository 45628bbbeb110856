"""Datasets of TensorFlow Datasets (tfds), read without TensorFlow and decoded once.

Nothing is downloaded: a dataset that is not on this machine raises an error that says how to get it.
"""

from __future__ import annotations

import difflib
import hashlib
import importlib.util
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from fedjax_sel.data import cache, speech
from fedjax_sel.data.dataset import Dataset, dataset
from fedjax_sel.data.files import find_data_folder

BATCH = 1000  # images decoded at a time


def tfds_dataset(
    name: str,
    *,
    seed: int = 0,
    validation: float = 0.0,
    test: float = 0.2,
    own_test: bool = True,
    data_dir: str | Path | None = None,
    cache_dir: str | Path | None = None,
    features: tuple[str, str] | None = None,
) -> Dataset:
    """Returns the splits `train` and `test` of a prepared tfds dataset, memory-mapped from a cache of decoded arrays.

    Recordings (a feature of kind `Audio`, as in `speech_commands`) become log-mel spectrograms `[n, 32, 32, 3]`, see
    `speech`. Other splits, such as that dataset's `validation`, are not read.

    Args:
      name: name in tfds: `mnist`, `emnist/byclass`, `cifar10:3.0.2`.
      seed: decides which examples become test and validation examples if shares are drawn.
      validation: share of the training examples that the server keeps for validation.
      test: share of the examples that becomes test examples if there is no split `test` or `own_test` is false.
      own_test: whether the split `test`, if there is one, gives the test examples.
      data_dir: the folder of tfds datasets; None: `$TFDS_DATA_DIR`, else `~/tensorflow_datasets`.
      cache_dir: the folder of decoded arrays; None: `datasets` in `$FEDJAX_SEL_CACHE`, else in `~/.cache/fedjax_sel`.
      features: the features that hold the examples and the labels; None: `image` or else `audio`, and `label`.

    Raises:
      ValueError: tfds has no such dataset, or it lacks a split or a feature.
      FileNotFoundError: the dataset is not prepared in `data_dir` in a format that can be read without TensorFlow.
    """
    place = find_data_folder(data_dir)
    with _quiet(), _without_tensorflow():
        builder = _prepare(name, place)
        info = builder.info
        if features is None:
            heard = "audio" in info.features and "image" not in info.features
            features = ("audio" if heard else "image", "label")
        if "train" not in info.splits:
            raise ValueError(f"tfds:{name} has no split 'train'; it has {', '.join(info.splits) or 'none'}")
        for feature in features:
            if feature not in info.features:
                raise ValueError(f"tfds:{name} has no feature {feature!r}; it has {', '.join(info.features)}")
        check_label(name, features[1], info.features[features[1]])
        splits = [split for split in ("train", "test") if split in info.splits]
        folder = cache.find_folder(cache_dir) / f"{info.full_name.replace('/', '-')}-{_fingerprint(builder, features)}"
        arrays = cache.load_arrays(folder, lambda new: _decode(name, builder, splits, features, new))
    return dataset(
        name,
        arrays["x_train"],
        arrays["y_train"],
        test=(arrays["x_test"], arrays["y_test"]) if own_test and "test" in splits else test,
        validation=validation,
        aside=None if own_test or "test" in splits else test,
        classes=getattr(info.features[features[1]], "num_classes", None),
        seed=seed,
    )


def check_label(name: str, key: str, feature: Any) -> None:
    """Raises `ValueError` if a feature is not a label, which is one whole number."""
    dtype, shape = np.dtype(feature.np_dtype), feature.shape
    if dtype.kind not in "iub" or shape:
        raise ValueError(
            f"tfds:{name}: feature {key!r} is {dtype} of shape {shape}; a label is one whole number; load other "
            "targets with npz:PATH"
        )


def _prepare(name: str, place: Path) -> Any:
    """Returns the tfds builder of a dataset that is on this machine in a format with random access."""
    import tensorflow_datasets as tfds  # imported here so that nothing else waits for it, or needs it

    missing = FileNotFoundError(
        f"tfds:{name} is not prepared in {place} (data_dir=, else $TFDS_DATA_DIR, else ~/tensorflow_datasets); "
        "nothing is downloaded unasked. To download and prepare it (most datasets need `pip install tensorflow` for"
        " that step, none to be read afterwards):\n"
        f'  python -c "import tensorflow_datasets as tfds; tfds.builder({name!r}, data_dir={str(place)!r},'
        " file_format='array_record').download_and_prepare()\""
    )
    try:
        builder = tfds.builder(name, data_dir=str(place))
    except tfds.core.DatasetNotFoundError:
        names = tfds.list_builders(with_community_datasets=False)
        near = difflib.get_close_matches(name.split("/")[0].split(":")[0], names, n=3)
        hint = f"did you mean {' or '.join(f'tfds:{n}' for n in near)}?" if near else "tfds.list_builders() lists all"
        raise ValueError(f"tensorflow_datasets has no dataset {name!r}, and none is in {place}; {hint}") from None
    except ImportError:  # if a dataset is not prepared, some builders need TensorFlow even to say so
        raise missing from None
    except (ValueError, AssertionError) as error:
        configs = sorted(tfds.builder_cls(name.split("/")[0].split(":")[0]).builder_configs)
        known = f" (its configurations: {', '.join(configs)})" if configs else ""
        raise ValueError(f"tfds:{name} cannot be opened{known}: {error}") from error
    if not builder.is_prepared():
        raise missing
    formats = {file_format.value for file_format in builder.info.available_file_formats()}
    if not formats & {"array_record", "parquet"}:
        raise FileNotFoundError(
            f"tfds:{name} is prepared in {builder.data_dir} as {', '.join(sorted(formats))}, which needs TensorFlow "
            f"to be read; remove that folder, or use another data_dir. {missing}"
        )
    return builder


def _fingerprint(builder: Any, features: tuple[str, str]) -> str:
    """Returns a digest that changes with the prepared files; two copies of one version have different digests."""
    where = Path(str(builder.data_dir)).resolve()
    sizes = {split: info.num_examples for split, info in sorted(builder.info.splits.items())}
    written = (where / "dataset_info.json").stat().st_mtime_ns
    form = [speech.FORM] if _is_audio(builder.info.features[features[0]]) else []
    return hashlib.sha256(json.dumps([str(where), sizes, written, features, *form]).encode()).hexdigest()[:12]


def _decode(name: str, builder: Any, splits: list[str], features: tuple[str, str], folder: Path) -> None:
    """Writes every split's examples and labels, with a progress bar."""
    from rich.console import Console
    from rich.progress import Progress

    feature = builder.info.features[features[0]]

    def example_of(value: Any, where: str) -> np.ndarray:
        if _is_audio(feature):
            return speech.make_picture(np.asarray(value), feature.sample_rate or None, what=f"tfds:{name}: {where}")
        return np.asarray(value)

    sources = {split: builder.as_data_source(split=split) for split in splits}
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(f"decoding tfds:{name} (once)", total=sum(map(len, sources.values())))
        for split, source in sources.items():
            first = example_of(source[0][features[0]], f"example 0 of split {split}")
            if first.dtype.kind not in "iubf":
                raise ValueError(f"tfds:{name}: feature {features[0]!r} is {first.dtype}, not numbers")
            x = cache.create(folder, f"x_{split}", first.dtype, (len(source), *first.shape))
            y = cache.create(folder, f"y_{split}", np.dtype(np.int64), (len(source),))
            for start in range(0, len(source), BATCH):
                places = range(start, min(start + BATCH, len(source)))
                for place, example in zip(places, source.__getitems__(list(places)), strict=True):
                    value = example_of(example[features[0]], f"example {place} of split {split}")
                    if value.shape != first.shape:
                        raise ValueError(
                            f"tfds:{name}: examples of split {split} differ in shape (example 0 is {first.shape}, "
                            f"example {place} is {value.shape}); examples must be alike: resize or "
                            "pad them and load them with npz:PATH"
                        )
                    x[place], y[place] = value, example[features[1]]
                progress.advance(task, len(places))
            x.flush()
            y.flush()


def _is_audio(feature: Any) -> bool:
    import tensorflow_datasets as tfds

    return isinstance(feature, tfds.features.Audio)


@contextmanager
def _without_tensorflow() -> Iterator[None]:
    """Lets audio features be made if TensorFlow is not installed, as all other features can.

    To make one, tfds 4.9.10 asks TensorFlow for the name of a type that reading never uses
    (https://github.com/tensorflow/datasets/issues/11233); here NumPy gives it instead.
    """
    from tensorflow_datasets.core.features import audio_feature

    module: Any = audio_feature
    if importlib.util.find_spec("tensorflow") is not None or not hasattr(module, "tf"):
        yield
        return
    before = module.tf
    module.tf = SimpleNamespace(dtypes=SimpleNamespace(as_dtype=np.dtype))
    try:
        yield
    finally:
        module.tf = before


@contextmanager
def _quiet() -> Iterator[None]:
    """Silences tfds's messages about OpenCV and missing folders; our own errors cover what matters."""
    logger = logging.getLogger("absl")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)
