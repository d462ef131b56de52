"""What the rules share: the files that the grid asks for, and functions of wildcards."""

import json
import math
import shlex

from workflow.freshness import PLAN as PLAN_FILE
from workflow.freshness import find_gpus, list_sources, write_digest
from workflow.grid import STUDIES, SUMMARIES, choose_shown

# --- measurements

SOURCES = list_sources(CONFIG)
TIME_LIMIT_S = math.ceil(CONFIG.time_limit_s)
cores = len(os.sched_getaffinity(0))
at_once = 2 if cores < 8 else min(24, 3 + 3 * len(find_gpus()[0]))  # one measures on a GPU, others import or export
MEASURING = 24 // at_once  # what a job asks of the resource `measuring`, of which profiles/default has 24


def wanted_key(path):
    """A function of wildcards: the wanted key of a result, as text."""

    def find_key(wildcards):
        result = path.format(**wildcards)
        if result not in PLAN:
            raise WorkflowError(f"{result} is no result of the grid {CONFIG.grid} in config.yaml")
        return PLAN[result]

    return find_key


def count_gpus(wildcards):
    """The GPUs that a job asks of a scheduler."""
    return 0 if CONFIG.device == "cpu" else RUNS[wildcards.run].gpus


# --- tables


def table_files(tables, folder="results/tables", suffixes=("parquet", "csv")):
    return [f"{folder}/{table}.{suffix}" for table in tables for suffix in suffixes]


def parquet(*tables):
    """The files of merged tables that scripts read."""
    return table_files(tables, suffixes=["parquet"])


def figure_files(figures, suffixes=("svg", "png")):
    return [f"results/figures/{figure}.{suffix}" for figure in figures for suffix in suffixes]


HAS_STEPS = "time_lost" in QUESTIONS  # else attention is measured alone
CLASSES = json.dumps(CONFIG.kernel_classes, sort_keys=True)
OWN_RULES = shlex.join([CLASSES, json.dumps(CONFIG.diagnosis_rules, sort_keys=True)])
CAPTURE_TABLES = ["kernels", "phases", "ranges", "findings", "communication_steps"]
MEMORY_TABLES = ["memory_phases", "memory_activations", "memory_timeline", "memory_totals"]
MERGED = ["runs", "timings", "steps", "warmup_steps", *CAPTURE_TABLES, *MEMORY_TABLES, "energy_windows", "counters"]
MERGED += ["attention_cells"]
STAGE_TABLES = {"capture": CAPTURE_TABLES, "memory": MEMORY_TABLES, "counters": ["counters"]}  # of a run
CAPTURED = [name for name, run in RUNS.items() if "capture" in run.stages]
CAPTURE_FILES = expand("results/runs/{run}/{file}", run=CAPTURED, file=["capture.sqlite", "status.json"])
RUN_TABLES = expand("results/runs/{run}/status.json", run=CAPTURED)
for name, run in RUNS.items():
    made = [table for stage in run.stages for table in STAGE_TABLES.get(stage, [])]
    RUN_TABLES += table_files(made, f"results/runs/{name}", ["parquet"])

# --- studies, documents, figures

ASKED = [made for question, made in STUDIES.items() if question in QUESTIONS]
STUDY_TABLES = list(dict.fromkeys(table for _, tables, _, _ in ASKED for table in tables))
STUDY_FIGURES = [figure for _, _, figures, _ in ASKED for figure in figures]
SPEED_UPS = [figure for figure in STUDY_FIGURES if figure.startswith("speed_ups_")]
KEPT_TABLES = [*(SUMMARIES if HAS_STEPS else []), *STUDY_TABLES]
SHOWN = choose_shown(RUNS)  # the run whose step the page shows
DOCUMENTS = ["answers", *QUESTIONS]
FIGURES = ["phase_times", "class_shares", "top_kernels", "attention", "roofline", "scaling"] if HAS_STEPS else []
SHOWN_TABLES = [table for *_, shown in ASKED for table in shown]
ANSWERED = list(dict.fromkeys(["runs", *["timings"] * HAS_STEPS, *KEPT_TABLES, *SHOWN_TABLES]))
SUFFIXES = {"markdown": "md", "latex": "tex", "typst": "typ"}
MADE_FILES = table_files(STUDY_TABLES) + figure_files([*FIGURES, *STUDY_FIGURES])
MADE_FILES += [f"results/answers/{name}.{SUFFIXES[kind]}" for kind in CONFIG.formats for name in DOCUMENTS]
MADE_FILES += ["results/report.html", "results/tables/README.md"]
