"""What the README and the pages of docs/ say, done and compared."""

import gzip
import re
import runpy
import subprocess
from pathlib import Path

import pandas as pd
import torch
import yaml
from snakemake.utils import update_config

from kernel_tables.profile import read
from kernel_tables.steps import Scope, step_time
from kernel_tables.text import tree_lines
from workflow.grid import describe, expand_grid, read_config

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
H200 = ROOT / "docs" / "example-h200"
EXAMPLE = H200 / "tables"
RECORDING = H200 / "recording" / "gpt.sqlite.gz"  # by kernel-tables record, of a GPT


def example_rows():
    """The rows of the README's table, made from the example's own tables."""
    timings = pd.read_parquet(EXAMPLE / "timings.parquet").query("mode == 'train_step'")
    shares = pd.read_parquet(EXAMPLE / "class_shares.parquet")
    matmul = shares[(shares["phase"] == "all phases") & (shares["class"] == "gemm")]
    matmul = matmul.set_index(["model", "context_length", "mode"])["share"]
    for model, context in (("small", 512), ("medium", 512), ("large", 512), ("xl", 512), ("2.7B", 512), ("2.7B", 1024)):
        of_run = timings[(timings["model"] == model) & (timings["context_length"] == context)]
        ms = of_run.set_index("phase")["mean_ms"]
        times = " | ".join(f"{ms[phase]:.1f}" for phase in ("forward", "backward", "optimizer", "step"))
        inference, training = (matmul[model, context, mode] for mode in ("forward", "train_step"))
        yield f"| {model} · {context} | {times} | {inference:.1%} → {training:.1%} |".replace("%", " %")


def test_the_table_of_the_readme_is_that_of_the_example():
    rows = re.search(r"\|:--\|--:.*?\n(.*?)\n\n", README, re.DOTALL).group(1).splitlines()
    assert rows == list(example_rows())


def test_the_recording_of_the_readme_is_that_of_the_example(tmp_path):
    capture = tmp_path / "gpt.sqlite"
    capture.write_bytes(gzip.decompress(RECORDING.read_bytes()))
    with read(capture) as profile:
        tree = tree_lines(profile, 100, 200, None).splitlines()
        time = step_time(Scope(profile, "step"))
        said = [time.sentence]
        said += [finding.sentence(time.percent_base) for finding in profile.diagnose("step") if not finding.abstained][
            :1
        ]
    printed = re.search(r"```\n(range .*?)```", README, re.DOTALL).group(1)
    rows = [line for line in printed.splitlines() if re.search(r"share$|█", line)]
    made = {" ".join(line.split()[: len(row.split())]) for line in tree for row in rows}
    assert len(rows) == 6 and [row for row in rows if " ".join(row.split()) not in made] == []
    assert " ".join(printed.partition("...")[2].split()) == " ".join(" ".join(said).split())


def test_every_file_that_the_readme_links_to_is_there():
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert len(links) >= 5
    assert [link for link in links if not link.startswith("http") and not (ROOT / link).exists()] == []


def test_the_commands_of_the_readme_and_of_the_pages_are_shell():
    texts = [README, *(path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").glob("*.md")))]
    blocks = [block for text in texts for block in re.findall(r"```bash\n(.*?)```", text, re.DOTALL)]
    assert len(blocks) > 20
    subprocess.run(["bash", "-n"], input="\n".join(blocks), text=True, check=True)


def test_the_files_of_the_page_on_models_are_a_model_and_a_grid_of_it(tmp_path):
    models = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    *files, command = re.search(r"```bash\n(.*?)```", models, re.DOTALL).group(1).strip().splitlines()
    assert command == "snakemake --cores 1 all --configfile my_grid.yaml"
    subprocess.run(["bash", "-e"], input="\n".join(files), text=True, cwd=tmp_path, check=True)
    values = yaml.safe_load((ROOT / "config.yaml").read_text())
    update_config(values, yaml.safe_load((tmp_path / "my_grid.yaml").read_text()))
    config = read_config(values)
    spec = describe(config, next(iter(expand_grid(config).values())), "timing")
    model = runpy.run_path(str(tmp_path / "my_model.py"))[spec.constructor.partition(":")[2]]
    assert model(vocab_size=50, **spec.sizes)(torch.zeros(2, 3, dtype=torch.int64)).shape == (2, 3, 50)
