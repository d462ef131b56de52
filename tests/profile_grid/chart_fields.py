"""The fields that the marks of a chart name, and the columns of their data."""


def fields_and_columns(chart: dict) -> list[tuple[set[str], set[str]]]:
    """(fields of its channels, columns of its data) of each part of a chart that has an encoding."""
    return [(_fields(part), set(chart["datasets"][part["data"]["name"]][0])) for part in _encoded_parts(chart)]


def _encoded_parts(chart: dict):
    """The parts of a chart that have an encoding, each with the name of its data."""
    for inner in (*chart.get("layer", ()), *chart.get("hconcat", ()), *chart.get("vconcat", ())):
        yield from _encoded_parts({"data": chart.get("data")} | inner)
    if "encoding" in chart:
        yield chart


def _fields(part: dict) -> set[str]:
    channels = []
    for value in part["encoding"].values():
        channels += value if isinstance(value, list) else [value]
    return {channel["field"] for channel in channels if "field" in channel}
