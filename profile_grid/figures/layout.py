"""Panels next to and below each other, as one Vega-Lite specification.

Altair can do it too, but copies every panel again at each level: seconds for a figure of thirty panels.
"""

import altair as alt

Spec = dict
Panel = alt.Chart | alt.LayerChart | Spec
TOP_LEVEL_KEYS = ("$schema", "config")


def row(*panels: Panel, spacing: int, **properties) -> Spec:
    """The panels next to each other."""
    return _concatenated("hconcat", panels, spacing, properties)


def column(*panels: Panel, spacing: int, **properties) -> Spec:
    """The panels below each other."""
    return _concatenated("vconcat", panels, spacing, properties)


def _concatenated(direction: str, panels: tuple[Panel, ...], spacing: int, properties: dict) -> Spec:
    """One specification with the data of all panels at its top; `properties` of Vega-Lite: title, resolve."""
    specifications = [_specification(panel) for panel in panels]
    datasets: dict[str, list] = {}
    for panel in specifications:
        datasets |= panel.get("datasets", {})
    inner = [{name: value for name, value in panel.items() if name != "datasets"} for panel in specifications]
    plain = {name: _plain(value) for name, value in properties.items()}
    return {direction: inner, "spacing": spacing, "datasets": datasets} | plain


def _specification(panel: Panel) -> Spec:
    """A panel as Vega-Lite reads it, with its data by name; there may be any number of rows."""
    if isinstance(panel, dict):
        return panel
    with alt.data_transformers.enable("default", max_rows=None):
        chart = panel.to_dict(validate=False)  # its parts were checked when they were made
    return {name: value for name, value in chart.items() if name not in TOP_LEVEL_KEYS}


def _plain(value):
    return value.to_dict() if isinstance(value, alt.SchemaBase) else value
