"""Random numbers that no seed repeats, in code that is compiled."""

import numpy as np
import pytest

import fedjax_sel as fs
from fedjax_sel.mistakes import OwnCodeError, name_own_code, refuse_global_random_numbers


def draw(text):
    exec(compile(text, "cell 1", "exec"), {"np": np})


@pytest.mark.parametrize(
    "text", ["np.random.default_rng().random(3)", "np.random.default_rng(None)", "np.random.rand()"]
)
def test_numbers_of_numpy_without_a_seed_are_refused(text):
    refusal = r"random numbers were drawn from np\.random.*draw them from the key"
    with pytest.raises(OwnCodeError, match=refusal), refuse_global_random_numbers():
        draw(text)
    draw(text)  # afterwards they are anybody's


def test_a_seed_makes_them_constants_and_libraries_draw_as_they_like():
    with refuse_global_random_numbers():
        draw("assert np.random.default_rng(3).random() == np.random.default_rng(3).random()")
        from sklearn.cluster import KMeans

        KMeans(2, n_init=1, random_state=0).fit(np.arange(8.0).reshape(-1, 1))


def test_a_field_that_is_set_is_told_with_its_line_and_what_to_do_instead():
    class Counting(fs.ClientSelector):
        seen: int = fs.static(default=0)

        def select(self, key, state, ctx):
            self.seen = 1

    said = r"test_mistakes\.py, line \d+, in select: .*its state \(init, observe\)"
    with pytest.raises(OwnCodeError, match=said), name_own_code():
        Counting().select(None, None, None)
