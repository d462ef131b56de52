"""docs/renamed_sweep.toml: by it the tables of the example hold what they held under their old names."""

import json
import tomllib
from pathlib import Path

import pandas as pd
import pytest

from profile_grid.study.catalogue import TABLE_NAMES
from profile_grid.study.schema import config_schema

ROOT = Path(__file__).parents[2]
OLD = pd.read_csv(Path(__file__).with_name("renamed") / "sweep_rows.csv", dtype=object)
EXAMPLE = ROOT / "docs/example-h200/attention-sweep/tables"
MAP = tomllib.loads((ROOT / "docs/renamed_sweep.toml").read_text())


def now(table: str) -> pd.DataFrame:
    path = EXAMPLE / f"{table}.parquet"
    return pd.read_parquet(path) if path.exists() else pd.read_csv(path.with_suffix(".csv"))


@pytest.mark.parametrize("column", OLD.columns)
def test_every_column_of_a_table_that_is_gone_has_its_values_where_the_map_says(column):
    table, _, name = MAP["columns"]["sweep_rows"][column].partition(".")
    assert "sweep_rows" not in TABLE_NAMES and table in TABLE_NAMES
    if column == "cells":
        values = OLD["run"].map(now(table)[name].value_counts())
    else:
        values = OLD["run"].map(now(table).drop_duplicates("run").set_index("run", drop=False)[name])
    before = pd.to_numeric(OLD[column], errors="coerce")
    if before.notna().any():
        assert pd.to_numeric(values).tolist() == before.tolist()
    else:
        assert (
            values.astype(object).where(values.notna(), None).tolist()
            == OLD[column].where(OLD[column].notna(), None).tolist()
        )


def test_the_provenance_has_its_counts_where_the_map_says():
    provenance = json.loads((EXAMPLE / "provenance.json").read_text())
    assert (provenance[MAP["provenance"]["rows"]], "rows" in provenance, "cells" in provenance) == (40, False, False)
    table, _, column = MAP["provenance"]["cells"].partition(".")
    assert now(table)[column].value_counts().to_dict() == {"complete": 160, "unsupported": 40}


def test_keys_of_the_configuration_have_their_new_names_alone():
    known = config_schema()["properties"]
    assert [(old in known, new in known) for old, new in MAP["config"].items()] == [(False, True)]
