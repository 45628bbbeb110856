"""Converts recordings to images: log-mel spectrograms for networks that take 32x32 RGB images.

A recording becomes `[32, 32, 3]` `uint8`: 32 mel bands, the lowest first, by 32 frames that cover one second in all.
The single channel is repeated three times, because experiments across domains give such images to a network that was
pretrained on colour images (FedFT-EDS, Shi, Radu, Yang, 2024, https://arxiv.org/abs/2501.00170: from ImageNet to Speech
Commands; the paper does not say how it makes images of sound, nor how large they are).

Every recording is processed as follows:

1. It is cut after one second. More than 16,000 samples per second are resampled to 16,000; a lower rate is kept, since
   bands above half of it would be empty. A shorter recording is padded with silence.
2. Its power is taken in 32 overlapping Hann windows, each two frames long and centred on its frame.
3. The power is summed in triangular bands with peak 1, equally wide in mel, from 20 Hz to half the rate, as in Davis
   and Mermelstein (1980, https://doi.org/10.1109/TASSP.1980.1163420). The scale is that of Stevens, Volkmann and Newman
   (1937, https://doi.org/10.1121/1.1915893) in the HTK book's formula, `2595 log10(1 + f / 700)`.
4. It is converted to decibels below the recording's loudest cell, down to -80, so that the gain of a microphone does
   not matter; -80 is stored as 0 and the loudest as 255, in steps of 0.31 decibels.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped, UInt8

BANDS = FRAMES = 32
SECONDS = 1.0
FASTEST = 16_000
"""Samples per second to which faster recordings are resampled."""

LOWEST = 20.0
"""Lower edge of the lowest band in hertz, above the lobe of a constant offset, which therefore leaves no trace."""

FLOOR = 80.0
"""Decibels below the loudest cell at which a cell counts as silent."""

FORM = f"log-mel {BANDS}x{FRAMES} of {SECONDS} s, {LOWEST} Hz, {FLOOR} dB, {FASTEST}, 1"
"""The settings that cached pictures depend on; its last number increases when the pictures change."""

MOST = 384_000  # samples per second; a higher rate is a mistake, and would need a resampling filter of that length

RECORDED = {"audio", "offset", "label"}
ARRAYS = RECORDED | {"sample_rate", "rate", "speaker"}


def hertz_to_mel(hertz: Any) -> Any:
    """Returns frequencies in hertz converted to mel.

    >>> round(float(hertz_to_mel(1000)), 2)
    999.99
    """
    return 2595 * np.log10(1 + np.asarray(hertz) / 700)


@functools.cache
def make_filterbank(bands: int, length: int, rate: int) -> Float[np.ndarray, "bands bins"]:
    """Returns each band's weights for the `length // 2 + 1` frequencies of a spectrum of `length` samples.

    The weight of band `k` is 1 at its centre and falls linearly in mel to 0 at the centres of its neighbours; the
    centres divide the range from 20 Hz to half the rate into `bands + 1` equal parts.

    Raises:
      ValueError: a band would contain no frequency.
    """
    centres = np.linspace(hertz_to_mel(LOWEST), hertz_to_mel(rate / 2), bands + 2)
    pitch = hertz_to_mel(np.arange(length // 2 + 1) * (rate / length))
    distance, width = np.abs(pitch - centres[1:-1, None]), centres[1] - centres[0]
    if (distance.min(axis=1) >= width).any():
        raise ValueError(
            f"rate is {rate} samples a second, too few for {bands} mel bands from {LOWEST:g} Hz in windows of {length} "
            "samples: a band would hold no frequency; speech is recorded with 8000 and more"
        )
    weights = np.maximum(0, 1 - distance / width)
    weights.setflags(write=False)  # all callers share the array
    return weights


def measure_mel_power(
    audio: Shaped[np.ndarray, "samples"],
    rate: int | None,
    *,
    at: int | None = None,
    bands: int = BANDS,
    frames: int = FRAMES,
    seconds: float = SECONDS,
    what: str = "audio",
) -> Float[np.ndarray, "bands frames"]:
    """Returns the power of one recording in every band and frame; twice the amplitude has four times the power.

    Args:
      audio: signed integers or floats, one channel.
      rate: its samples per second; None, for a file that does not say, raises an error.
      at: samples per second that it is resampled to; None: its own rate, at most 16,000.
      bands: number of bands, from 20 Hz to half of `at`.
      frames: number of frames, whatever the recording's length; they cover `seconds`, rounded up to equal frames of
        whole samples.
      seconds: duration to which a longer recording is cut and a shorter one padded with silence.
      what: name of the recording in errors.

    Raises:
      ValueError: the recording is empty, not numeric, not finite or has more than one channel, or the rate is invalid.
    """
    from scipy import signal  # imported here because only recordings need it

    rate = check_rate(what, rate)
    at = min(rate, FASTEST) if at is None else check_rate(what, at)
    sound = check_audio(what, audio)[: math.ceil(seconds * rate)]
    if at != rate:
        sound = signal.resample_poly(sound, at, rate)
    hop = math.ceil(seconds * at / frames)
    sound = sound[: frames * hop]
    padded = np.zeros((frames + 1) * hop)
    padded[hop // 2 : hop // 2 + len(sound)] = sound
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * hop)[::hop]
    spectra = np.abs(np.fft.rfft(windows * np.asarray(signal.get_window("hann", 2 * hop), float))) ** 2
    return make_filterbank(bands, 2 * hop, at) @ spectra.T


def measure_log_mel(
    audio: Shaped[np.ndarray, "samples"], rate: int | None, *, what: str = "audio", **form: Any
) -> Float[np.ndarray, "bands frames"]:
    """Returns decibels below the loudest band and frame, `float32` in [-80, 0]; -80 everywhere for silence.

    The arguments and errors are those of `measure_mel_power`.
    """
    sound = check_audio(what, audio)
    peak = np.abs(sound).max()  # divided out first, so that no square can overflow or vanish
    power = measure_mel_power(sound / (peak or 1), rate, what=what, **form)
    relative = power / (power.max() or 1)
    return (10 * np.log10(np.maximum(relative, 10 ** (-FLOOR / 10)))).astype(np.float32)


def make_picture(
    audio: Shaped[np.ndarray, "samples"], rate: int | None, *, what: str = "audio"
) -> UInt8[np.ndarray, "{BANDS} {FRAMES} 3"]:
    """Returns one recording as an image: `round(255 (1 + decibels / 80))` in three equal channels.

    Raises:
      ValueError: as for `measure_mel_power`.

    >>> make_picture(np.sin(np.arange(16000)), rate=16000).shape
    (32, 32, 3)
    """
    grey = np.rint(255 * (1 + measure_log_mel(audio, rate, what=what) / FLOOR)).astype(np.uint8)
    return np.repeat(grey[..., None], 3, axis=-1)


def has_audio(names: Iterable[str]) -> bool:
    """Returns whether a file's arrays are recordings: `audio`, `offset` and `label`, and neither `y` nor `y_train`."""
    return set(names) >= RECORDED and not {"y", "y_train"} & set(names)


def read_recordings(
    what: str, arrays: Mapping[str, np.ndarray]
) -> tuple[UInt8[np.ndarray, "n {BANDS} {FRAMES} 3"], Shaped[np.ndarray, "n"], np.ndarray | None]:
    """Returns pictures, labels and speakers of the recordings in a file's arrays.

    Args:
      what: name of the recordings in errors.
      arrays: `audio`, all recordings end to end; `offset` `[n + 1]`, where each begins and the last ends; `label`
        `[n]`; `sample_rate` or `rate`, one for all; optionally `speaker` `[n]`, which becomes the natural owner.

    Raises:
      ValueError: the arrays do not fit each other, or a recording cannot be used; the message says which.
    """
    audio, offset, label = (np.asarray(arrays[name]) for name in ("audio", "offset", "label"))
    named = [name for name in ("sample_rate", "rate") if name in arrays]
    rate, *others = [check_rate(what, arrays.get(name)) for name in named or ["sample_rate"]]
    if others not in ([], [rate]):
        raise ValueError(f"{what}: sample_rate is {rate} and rate {others[0]}; leave the wrong one out")
    check_channels(what, audio)
    if label.ndim != 1 or len(label) == 0:
        raise ValueError(f"{what}: label has shape {label.shape}; one label a recording is needed, and one recording")
    if offset.dtype.kind not in "iu" or offset.shape != (len(label) + 1,):
        raise ValueError(
            f"{what}: offset is {offset.dtype} of shape {offset.shape}; {len(label)} recordings need "
            f"{len(label) + 1} integers: where each begins, and where the last ends"
        )
    bounds = offset.astype(np.int64)
    if bounds[0] != 0 or bounds[-1] != len(audio) or (np.diff(bounds) < 0).any():
        raise ValueError(
            f"{what}: offset runs from {bounds[0]} to {bounds[-1]}"
            + (", not always upwards" if (np.diff(bounds) < 0).any() else "")
            + f", but audio has {len(audio)} samples; it must rise from 0 to {len(audio)}"
        )
    x = np.empty((len(label), BANDS, FRAMES, 3), np.uint8)
    for place, (start, end) in enumerate(itertools.pairwise(bounds)):
        x[place] = make_picture(audio[start:end], rate, what=f"{what}: recording {place}")
    return x, label, arrays.get("speaker")


def check_rate(what: str, rate: Any) -> int:
    """Returns the rate as an integer; raises `ValueError` if it is missing or impossible."""
    needed = f"a whole number of samples per second is needed, in 1..{MOST}, such as 16000"
    if rate is None:
        raise ValueError(f"{what}: there is no rate (sample_rate); {needed}")
    given = np.asarray(rate)
    if given.size != 1 or given.dtype.kind not in "iuf" or not 1 <= given.item() <= MOST or given.item() % 1:
        raise ValueError(f"{what}: rate is {given.tolist()!r}; {needed}")
    return int(given.item())


def check_audio(what: str, audio: Any) -> Float[np.ndarray, "samples"]:
    """Returns the recording in `float64`; raises `ValueError` if it cannot be used."""
    audio = np.asarray(audio)
    check_channels(what, audio)
    if len(audio) == 0:
        raise ValueError(f"{what} is empty; at least one sample is needed")
    sound = audio.astype(np.float64)
    bad = ~np.isfinite(sound)
    if bad.any():
        raise ValueError(
            f"{what}: {bad.sum()} of {len(sound)} samples are NaN or infinite (the first is sample {bad.argmax()}); "
            "mend or drop it first"
        )
    return sound


def check_channels(what: str, audio: np.ndarray) -> None:
    """Raises `ValueError` unless the samples have one channel."""
    if audio.dtype.kind not in "if":
        raise ValueError(f"{what} is {audio.dtype}; samples must be signed integers or floats")
    if audio.ndim != 1:
        hint = "; the mean of the channels is one, audio.mean(1)" if audio.ndim == 2 else ""
        raise ValueError(f"{what} has shape {audio.shape}; one channel is needed, shape [samples]{hint}")
