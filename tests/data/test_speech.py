import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import signal

from fedjax_sel.data.sources import load
from fedjax_sel.data.speech import make_filterbank, make_picture, measure_log_mel, measure_mel_power, read_recordings

RATE = 8000


def tone(hertz, rate=RATE, seconds=1.0, amplitude=1.0):
    return amplitude * np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate)


def noise(samples=RATE, seed=0):
    return np.random.default_rng(seed).normal(size=samples)


def centres(rate, bands=32):
    """Hertz, by the formula and its inverse."""
    lowest, highest = (2595 * np.log10(1 + hertz / 700) for hertz in (20, rate / 2))
    steps = np.arange(1, bands + 1) / (bands + 1)
    return 700 * (10 ** ((lowest + steps * (highest - lowest)) / 2595) - 1)


def nearest(hertz, rate):
    mels = [2595 * np.log10(1 + f / 700) for f in [hertz, *centres(rate)]]
    return np.abs(np.array(mels[1:]) - mels[0]).argmin()


@pytest.mark.parametrize("rate", [8000, 16000])
@pytest.mark.parametrize("hertz", [100, 440, 1000, 1733, 2900, 3800])
def test_a_pure_tone_is_loudest_in_the_band_whose_centre_is_nearest(hertz, rate):
    loudest = measure_log_mel(tone(hertz, rate), rate).argmax(axis=0)
    assert set(loudest[1:-1]) == {nearest(hertz, rate)}  # the first and the last window are cut at an edge


def test_a_filter_is_a_triangle_from_the_centre_before_to_the_centre_after():
    # 2 bands over 20..2000 Hz: 31.748..1521.360 mel, of which a third is 496.537; the centres are 528.285 and 1024.823
    # mel. A spectrum of 8 samples at 4000 Hz has 0, 500, 1000, 1500, 2000 Hz: 0, 607.446, 999.986, 1290.557 and
    # 1521.360 mel.
    expected = [
        [0.0, 1 - (607.446 - 528.285) / 496.537, 1 - (999.986 - 528.285) / 496.537, 0.0, 0.0],
        [
            0.0,
            1 - (1024.823 - 607.446) / 496.537,
            1 - (1024.823 - 999.986) / 496.537,
            1 - (1290.557 - 1024.823) / 496.537,
            0.0,
        ],
    ]
    np.testing.assert_allclose(make_filterbank(2, 8, 4000), expected, atol=2e-5)


def test_neighbouring_filters_share_every_frequency_between_the_outermost_centres():
    weights, frequencies = make_filterbank(32, 500, RATE), np.arange(251) * 16
    within = (frequencies > centres(RATE)[0]) & (frequencies < centres(RATE)[-1])
    np.testing.assert_allclose(weights.sum(axis=0)[within], 1)
    assert weights.max() <= 1


@pytest.mark.parametrize("rate", [8000, 11025, 16000])
def test_power_is_that_of_scipys_transform_under_the_bands(rate):
    audio = noise(rate)
    hop = -(-rate // 32)
    padded = np.concatenate([np.zeros(hop // 2), audio, np.zeros(33 * hop - hop // 2 - rate)])
    transform: Any = signal.stft  # SciPy's stubs know no None
    frequencies, _, spectra = transform(padded, rate, "hann", 2 * hop, hop, boundary=None, padded=False)
    power = np.abs(spectra * np.sum(signal.get_window("hann", 2 * hop))) ** 2
    pitch = np.array([2595 * np.log10(1 + f / 700) for f in [20.0, *centres(rate), rate / 2]])
    weights = [np.interp(2595 * np.log10(1 + frequencies / 700), pitch[k : k + 3], [0, 1, 0]) for k in range(32)]
    wanted = np.einsum("kf,ft->kt", np.stack(weights), power)
    np.testing.assert_allclose(measure_mel_power(audio, rate), wanted, rtol=1e-9)


def test_twice_the_amplitude_is_six_decibels_more_and_the_same_picture():
    audio = np.rint(noise() * 1000).astype(np.int16)
    more = 10 * np.log10(measure_mel_power(2 * audio, RATE) / measure_mel_power(audio, RATE))
    np.testing.assert_allclose(more, 20 * np.log10(2), rtol=1e-9)
    np.testing.assert_array_equal(make_picture(2 * audio, RATE), make_picture(audio, RATE))


@pytest.mark.parametrize("amplitude", [1e-200, 1e200])
def test_no_loudness_is_too_small_or_too_great(amplitude):
    np.testing.assert_allclose(measure_log_mel(noise() * amplitude, RATE), measure_log_mel(noise(), RATE), atol=1e-4)


def test_decibels_are_below_the_loudest_cell_down_to_the_floor():
    audio = noise()
    audio[4000:] = 0
    power = measure_mel_power(audio, RATE)
    assert power[:, 17:].max() == 0
    wanted = np.full((32, 32), -80.0)
    wanted[:, :17] = np.maximum(10 * np.log10(power[:, :17] / power.max()), -80)
    shown = measure_log_mel(audio, RATE)
    assert (shown.dtype, shown.max()) == (np.float32, 0)
    np.testing.assert_allclose(shown, wanted, atol=1e-4)


def test_a_picture_is_the_decibels_in_256_steps_in_three_equal_channels():
    audio = noise()
    audio[5000:] = 0
    image = make_picture(audio, RATE)
    assert (image.shape, image.dtype, image.min(), image.max()) == ((32, 32, 3), np.uint8, 0, 255)
    np.testing.assert_allclose(image[..., 0] / 255 * 80 - 80, measure_log_mel(audio, RATE), atol=80 / 255 / 2 + 1e-4)
    assert (image == image[..., :1]).all()


def test_a_shorter_recording_is_silent_to_the_end_and_a_longer_one_is_cut():
    audio = noise(3 * RATE)
    short = make_picture(audio[: RATE // 2], RATE)
    assert short[:, :16].min() > 0
    assert short[:, 17:].max() == 0
    np.testing.assert_array_equal(short[:, :15], make_picture(np.pad(audio[: RATE // 2], (0, 9000)), RATE)[:, :15])
    np.testing.assert_array_equal(make_picture(audio, RATE), make_picture(audio[:RATE], RATE))


def test_a_silent_recording_is_black():
    assert make_picture(np.zeros(100, np.int16), RATE).max() == 0


def test_a_constant_offset_leaves_no_trace_between_the_ends():
    np.testing.assert_allclose(
        measure_mel_power(noise() + 5, RATE)[:, 1:-1], measure_mel_power(noise(), RATE)[:, 1:-1], rtol=1e-9
    )


@pytest.mark.parametrize("hertz", [300, 1000, 2500])
def test_a_resampled_tone_stays_in_its_band(hertz):
    fast, slow = (measure_log_mel(tone(hertz, rate), rate, at=8000) for rate in (16000, 8000))
    assert set(fast.argmax(axis=0)[1:-1]) == {nearest(hertz, 8000)}
    np.testing.assert_allclose(fast[:, 1:-1].max(axis=0), slow[:, 1:-1].max(axis=0), atol=0.1)


def test_only_recordings_of_more_than_16000_samples_a_second_are_resampled():
    for rate, at in [(8000, 8000), (16000, 16000), (44100, 16000)]:
        np.testing.assert_array_equal(
            measure_log_mel(tone(1000, rate), rate), measure_log_mel(tone(1000, rate), rate, at=at)
        )
    assert set(measure_log_mel(tone(6000, 44100), 44100).argmax(axis=0)[1:-1]) == {nearest(6000, 16000)}


def test_bands_frames_and_seconds_can_be_others():
    assert measure_log_mel(noise(), RATE, bands=20, frames=50, seconds=0.5).shape == (20, 50)


def test_the_same_recording_is_the_same_picture():
    audio = np.rint(noise() * 1000).astype(np.int16)
    np.testing.assert_array_equal(make_picture(audio, RATE), make_picture(audio.astype(np.int64), RATE))


@pytest.mark.parametrize("rate", [None, 0, -8000, 8000.5, np.nan, np.inf, "fast", True, 10**9, [8000, 8000]])
def test_a_rate_must_be_a_possible_number_of_samples_a_second(rate):
    given = "there is no rate" if rate is None else "rate is "
    with pytest.raises(ValueError, match=rf"audio: {given}.*a whole number of samples per second is needed, in 1\.\."):
        measure_log_mel(noise(), rate)


@pytest.mark.parametrize("rate", [1, 30, 40, 300])
def test_a_rate_too_low_for_the_bands_is_refused(rate):
    with pytest.raises(ValueError, match=f"rate is {rate} samples a second, too few for 32 mel bands from 20 Hz"):
        make_picture(noise(10), rate)


@pytest.mark.parametrize(
    ("audio", "said"),
    [
        (np.zeros(0), "it is empty; at least one sample is needed"),
        (np.zeros((100, 2)), r"it has shape \(100, 2\); one channel is needed.*audio.mean\(1\)"),
        (np.float32(1), r"it has shape \(\); one channel is needed"),
        (np.array([0, 1, np.nan, np.inf]), r"it: 2 of 4 samples are NaN or infinite \(the first is sample 2\)"),
        (np.zeros(10, np.uint8), "it is uint8; samples must be signed integers or floats"),
        (np.array(["a"]), "it is <U1; samples must be"),
    ],
)
def test_audio_that_cannot_be_used_is_one_clear_error(audio, said):
    for function in (measure_mel_power, measure_log_mel, make_picture):
        with pytest.raises(ValueError, match=said):
            function(audio, RATE, what="it")


def spoken(n=20, seed=0):
    """Recordings of unequal lengths: label `k` is a tone of `400 (k + 1)` Hz."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1000, 10000, n)
    label = np.arange(n) % 2
    sounds = [tone(400 * (k + 1), seconds=s / RATE, amplitude=9000) for k, s in zip(label, lengths, strict=True)]
    return {
        "audio": np.concatenate(sounds).astype(np.int16),
        "offset": np.concatenate([[0], np.cumsum(lengths)]),
        "label": label,
        "speaker": np.array(["ada", "bob"])[np.arange(n) // 10],
        "sample_rate": np.array(RATE),
    }


def saved(folder, **arrays):
    path = folder / "spoken.npz"
    np.savez(path, **arrays)
    return path


def test_a_file_of_recordings_becomes_pictures_that_their_speakers_own(tmp_path):
    arrays = spoken()
    path = saved(tmp_path, **arrays, take=np.array([{}], object))  # other arrays are not looked at
    data = load(f"npz:{path}", test=0.2, validation=0.25)
    assert (len(data.y), len(data.test_y), len(data.validation_y), data.classes) == (12, 4, 4, 2)
    assert (data.x.shape, data.x.dtype) == ((12, 32, 32, 3), np.uint8)
    assert np.bincount(data.test_y).tolist() == [2, 2]
    for x, y in [(data.x, data.y), (data.test_x, data.test_y), (data.validation_x, data.validation_y)]:
        loudest = x[:, :, 1, 0].argmax(axis=1)
        assert loudest.tolist() == [nearest(400 * (k + 1), RATE) for k in y]
    whole = load(f"npz:{path}", test=0.0)
    assert whole.owner is not None
    assert whole.owner.tolist() == [0] * 10 + [1] * 10
    start, end = arrays["offset"][7:9]
    np.testing.assert_array_equal(whole.x[7], make_picture(arrays["audio"][start:end], RATE))


def test_recordings_may_have_other_targets_and_a_number_of_classes(tmp_path):
    arrays = spoken()
    assert load(f"npz:{saved(tmp_path, **arrays, num_classes=np.array(5))}").classes == 5
    numbers = saved(tmp_path, **{**arrays, "label": arrays["label"] + 0.5})
    data = load(f"npz:{numbers}", targets="continuous", test=0.0)
    np.testing.assert_array_equal(data.y, arrays["label"] + np.float32(0.5))


def test_speakers_may_be_unknown_and_the_rate_be_called_rate(tmp_path):
    arrays = spoken()
    del arrays["speaker"]
    arrays["rate"] = arrays.pop("sample_rate")
    data = load(f"npz:{saved(tmp_path, **arrays)}")
    assert data.owner is None


def test_rows_go_before_recordings(tmp_path):
    data = load(f"npz:{saved(tmp_path, **spoken(), x=np.eye(10), y=np.arange(10) % 2)}")
    assert data.x.shape == (8, 10)


def changed(**arrays):
    return {name: value for name, value in (spoken() | arrays).items() if value is not None}


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        (changed(sample_rate=None), r"there is no rate \(sample_rate\)"),
        (changed(sample_rate=np.array(-1)), "rate is -1; a whole number"),
        (changed(rate=np.array(RATE + 1)), f"sample_rate is {RATE} and rate {RATE + 1}; leave the wrong one out"),
        (changed(x_test=np.zeros(3)), "holds recordings and x_test; test recordings are drawn from all"),
        (changed(offset=np.arange(5)), r"offset is int64 of shape \(5,\); 20 recordings need 21 integers"),
        (changed(offset=np.linspace(0, 9, 21)), "offset is float64 of shape"),
        (changed(audio=np.zeros(500, np.int16)), r"offset runs from 0 to \d+, but audio has 500 samples"),
        (changed(offset=spoken()["offset"] + 1), r"offset runs from 1 to \d+, but .* it must rise from 0 to"),
        (changed(offset=spoken()["offset"][[0, 2, 1, *range(3, 21)]]), "not always upwards, but audio has"),
        (changed(offset=spoken()["offset"][[0, 1, 1, *range(3, 21)]]), "recording 1 is empty"),
        (changed(audio=np.stack([spoken()["audio"]] * 2, 1)), "has shape .* one channel is needed"),
        (changed(audio=np.where(spoken()["offset"][3] == np.arange(len(spoken()["audio"])), np.nan, 1)), "recording 3"),
        (changed(label=np.arange(20)[:, None]), r"label has shape \(20, 1\); one label a recording is needed"),
        (changed(label=np.arange(0), offset=np.arange(1), audio=np.zeros(0)), "one recording"),
        (changed(speaker=np.arange(3)), r"owner has shape \(3,\)"),
        (changed(label=None), "holds the arrays audio, offset, .*or audio, offset, label, sample_rate"),
    ],
)
def test_arrays_that_do_not_fit_are_one_clear_error(tmp_path, arrays, said):
    with pytest.raises(ValueError, match=f"spoken.*{said}"):
        load(f"npz:{saved(tmp_path, **arrays)}")


def test_an_offset_in_unsigned_integers_is_compared_as_it_is():
    arrays = spoken() | {"offset": spoken()["offset"].astype(np.uint32)[::-1]}
    with pytest.raises(ValueError, match="not always upwards"):
        read_recordings("mine", arrays)


def test_the_free_spoken_digits_are_told_apart():
    path = Path(os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets").expanduser() / "free_spoken_digits.npz"
    if not path.is_file():
        pytest.skip("free_spoken_digits.npz is not in the folder of the data ($TFDS_DATA_DIR)")
    data = load("npz:free_spoken_digits.npz")
    assert (len(data.y), len(data.test_y), data.classes) == (2400, 600, 10)
    assert data.owner is not None
    assert data.owner.max() == 5
    # By the label of the nearest training picture: 0.1 by chance, measured 0.93.
    rows, tests = (x[..., 0].reshape(len(x), -1).astype(np.float64) for x in (data.x, data.test_x))
    distance = (rows**2).sum(axis=1) - 2 * tests @ rows.T
    assert (data.y[distance.argmin(axis=1)] == data.test_y).mean() > 0.85
