"""The stage that measures energy, in windows of seconds."""

from profile_grid.study.stage import PROCESSES, Setting, Stage, steps

ENERGY = Stage(
    name="energy",
    meaning="the process whose energy is counted",
    table_names=("energy", "energy_windows"),
    sources=PROCESSES,
    lasts_s=lambda settings: (settings["windows"] + 2) * settings["window_s"],  # one idle window before and after them
    settings={
        **steps(warmup=5, measured=3),
        "windows": Setting(
            {"description": "Windows in which the model steps.", "type": "integer", "minimum": 3, "maximum": 1000},
            default=3,
        ),
        "window_s": Setting(
            {
                "description": "Minimum seconds of a window. NVML's counter ticks every 0.1 s: windows of 1 s vary by"
                " 5 %, windows of 5 s by 1 %.",
                "type": "number",
                "minimum": 5,
                "maximum": 600,
            },
            default=5,
        ),
    },
    of_every_run=False,
)
