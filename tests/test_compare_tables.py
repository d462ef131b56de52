"""The command that compares the example's tables by value finds every change, and nothing else."""

import pandas as pd
import pytest

from docs.compare_tables import NewNames, differences
from docs.examples import write_committed

TABLE = pd.DataFrame({"run": ["a", "b", "c"], "ns": [1, 2, 3], "share": [0.5, None, 0.25]})


def compared(tmp_path, old, new, renamed=None, old_as="parquet", name="tables/cost"):
    """The differences between one table as it was and as it is; None where there is none now."""
    for side in ("old", "new"):
        (tmp_path / side / "tables").mkdir(parents=True)
    if old_as == "csv":
        old.to_csv(tmp_path / "old" / "tables" / "cost.csv", index=False)
    else:
        old.to_parquet(tmp_path / "old" / "tables" / "cost.parquet", index=False)
    if new is not None:
        write_committed(tmp_path / "new" / f"{name}.parquet", new)
    return list(differences(tmp_path / "old", tmp_path / "new", renamed or NewNames()))


@pytest.mark.parametrize("old_as", ["parquet", "csv"])
@pytest.mark.parametrize(
    "new",
    [
        TABLE,
        TABLE.astype({"run": "category", "ns": "float64"}),
        TABLE.iloc[::-1],
        TABLE.assign(more="text"),
    ],
    ids=["the same", "other types", "another order", "a further column"],
)
def test_tables_of_the_same_values_do_not_differ(tmp_path, old_as, new):
    assert compared(tmp_path, TABLE, new, old_as=old_as) == []


@pytest.mark.parametrize("old_as", ["parquet", "csv"])
@pytest.mark.parametrize(
    ("new", "problem"),
    [
        (TABLE.assign(ns=[1, 2, 4]), "other values in ns"),
        (TABLE.assign(share=[0.5, 0.0, 0.25]), "other values in share"),
        (TABLE.assign(share=[None, 0.5, 0.25]), "other values in share"),
        (TABLE.assign(ns=[2, 1, 3]), "other values in ns"),
        (TABLE.iloc[:2], "2 rows instead of 3"),
        (TABLE.drop(columns="ns"), "no column(s) ns"),
        (None, "there is no tables/cost"),
    ],
)
def test_every_change_of_a_table_is_found(tmp_path, old_as, new, problem):
    assert compared(tmp_path, TABLE, new, old_as=old_as) == [f"tables/cost: {problem}"]


def test_a_table_without_rows_may_be_absent(tmp_path):
    assert compared(tmp_path, TABLE.iloc[:0], None) == []


def test_renamed_tables_and_columns_are_compared_with_what_they_were(tmp_path):
    renamed = NewNames({"tables/cost": "tables/costs"}, {"tables/cost": {"ns": "time_ns"}, "*": {"run": ""}})
    new = TABLE.drop(columns="run").rename(columns={"ns": "time_ns"})
    assert compared(tmp_path, TABLE, new, renamed, name="tables/costs") == []


def test_a_renamed_column_with_other_values_is_found(tmp_path):
    renamed = NewNames(columns={"*": {"ns": "time_ns"}})
    new = TABLE.rename(columns={"ns": "time_ns"}).assign(time_ns=7)
    assert compared(tmp_path, TABLE, new, renamed) == ["tables/cost: other values in time_ns"]


def test_large_integers_are_compared_to_the_last_digit(tmp_path):
    starts = pd.DataFrame({"start_ns": [2**60, 2**60 + 1]})
    assert compared(tmp_path, starts, starts + 1) == ["tables/cost: other values in start_ns"]
