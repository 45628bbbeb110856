"""The table of a run while it goes on."""

import pandas as pd
import pytest

from fedjax_sel.callbacks.table import Table


@pytest.mark.parametrize(("format", "read"), [("csv", pd.read_csv), ("parquet", pd.read_parquet)])
def test_the_table_is_the_long_table_of_the_history_after_every_chunk(format, read, small, tmp_path):
    seen = []

    class Reader:
        def after_central_iteration(self, history):
            seen.append(history.rounds)
            pd.testing.assert_frame_equal(read(tmp_path / f"table.{format}"), history.to_pandas(), check_exact=True)

    from fedjax_sel import config

    built = config.build(
        config.resolve(
            {
                "data": "iris",
                "partition": {"clients": 10},
                "model": "logistic",
                "cohort_size": 4,
                "rounds": 5,
                "seeds": 2,
                "chunk": 2,
                "callbacks": {"table": {"format": format}},
            }
        )
    )
    built.simulate(callbacks=[*built.callbacks(tmp_path), Reader()])
    assert seen == [2, 4, 5]
    assert [path.name for path in tmp_path.iterdir()] == [f"table.{format}"]


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_a_run_that_was_killed_and_went_on_leaves_the_same_bytes(format, small, tmp_path):
    small.run(tmp_path / "whole", {"table": {"format": format}})
    small.killed_and_gone_on_with(tmp_path / "twice", {"table": {"format": format}})
    name = f"table.{format}"
    assert (tmp_path / "twice" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_table_that_a_killed_process_did_not_write_is_written_when_the_run_goes_on(small, tmp_path):
    small.run(tmp_path / "run", "table")
    before = (tmp_path / "run" / "table.csv").read_bytes()
    (tmp_path / "run" / "table.csv").unlink()
    assert small.run(tmp_path / "run", "table").about["resumed_at"] == 6
    assert (tmp_path / "run" / "table.csv").read_bytes() == before


def test_an_unknown_format_is_refused():
    with pytest.raises(ValueError, match="unknown format of table: 'cvs'; did you mean 'csv'"):
        Table(format="cvs")  # type: ignore[arg-type]
