"""The stage that measures energy, in windows of seconds."""

from profile_grid.study.stage import PROCESS_SOURCES, Setting, Stage, step_settings

ENERGY = Stage(
    name="energy",
    meaning="the process whose energy is counted",
    table_names=("energy", "energy_windows"),
    sources=PROCESS_SOURCES,
    extra_seconds=lambda settings: (settings["windows"] + 2) * settings["window_s"],  # 2: idle, before and after
    settings={
        **step_settings(warmup=5, measured=3),
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
