"""A reproduction that the tests of several files read."""

import pytest

from fedjax_sel import papers


@pytest.fixture(scope="session")
def reproduced(tmp_path_factory):
    """The folder of UACS-FL at its smallest scale, to which no test writes, and the summary that was returned."""
    out = tmp_path_factory.mktemp("reproduction") / "uacs"
    return out, papers.reproduce("uacs", scale="smoke", out=out)
