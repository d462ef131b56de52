"""A capture in a notebook: the time of a step, the tree of ranges, and the findings."""

from html import escape

from kernel_tables.clean_text import visible_lines
from kernel_tables.diagnosis.diagnose import diagnose
from kernel_tables.diagnosis.scope import Scope
from kernel_tables.diagnosis.step_time import step_time
from kernel_tables.terminal.tables import tree_lines
from kernel_tables.trace import Trace
from kernel_tables.units import CPU_ONLY_NOTE

MOST_ROWS, WIDTH, MOST_FINDINGS = 30, 110, 3
ALL_BY = "trace().range_tree()"


def notebook_html(trace: Trace, step_name: str) -> str:
    """The capture as HTML without scripts."""
    scope = Scope(trace, step_name)
    time = step_time(scope)
    findings = [finding for finding in diagnose(scope) if not finding.abstained][:MOST_FINDINGS]
    notes = [CPU_ONLY_NOTE] if trace.is_cpu_only else []
    tree = f"<pre>{escape(visible_lines(tree_lines(trace, MOST_ROWS, WIDTH, all_by=ALL_BY)))}</pre>"
    texts = [*([time.sentence] if time else []), *notes, *(finding.sentence for finding in findings)]
    return tree + "".join(f"<p>{escape(visible_lines(text[:1].upper() + text[1:]))}.</p>" for text in texts)
