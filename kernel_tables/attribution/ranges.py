"""Range instances as arrays, and their names as small integers.

A range's number is its position in opening order, so a range with a smaller number was opened earlier.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kernel_tables.attribution.arrays import compact, factorize
from kernel_tables.global_ids import process_of

NONE = -1  # no range, no node, no name
UNNAMED = "(unnamed)"
# emit_nvtx and nsys --pytorch= number every call: "aten::add, seq = 12, op_id = 34, input_op_ids = [(3,0)]"
CALL_NUMBERS = r"(?:, (?:seq|op_id) = -?\d+|, input_op_ids = \[.*\])+"


@dataclass(frozen=True)
class Ranges:
    """All range instances in opening order: sorted by start; then longest first, by thread, by row of the table.
    Integer nanoseconds.

    A range is open at a time t if start <= t < end, so a range without a duration is never open.
    """

    start_ns: np.ndarray
    end_ns: np.ndarray
    thread: np.ndarray  # global id
    name: np.ndarray  # code of the name
    row: np.ndarray  # position among the ranges in the order of the table

    def __len__(self) -> int:
        return len(self.start_ns)

    @property
    def process(self) -> np.ndarray:
        """The global id of the process of each range."""
        return process_of(self.thread)

    def encloses(self, outer: np.ndarray, inner: np.ndarray) -> np.ndarray:
        """Whether each range `outer` encloses its `inner` in time without having the same start and end."""
        starts, ends = self.start_ns, self.end_ns
        covers = (starts[outer] <= starts[inner]) & (ends[inner] <= ends[outer])
        return covers & ((starts[outer] != starts[inner]) | (ends[inner] != ends[outer]))


def in_opening_order(start_ns: np.ndarray, end_ns: np.ndarray, thread: np.ndarray, name: np.ndarray) -> Ranges:
    """The ranges, sorted; an end before the start counts as the start."""
    end_ns = np.maximum(start_ns, end_ns)
    order = np.argsort(start_ns, kind="stable")
    sorted_ns = start_ns[order]
    is_tied = np.append(False, sorted_ns[1:] == sorted_ns[:-1])  # starts with the range before
    if is_tied.any():  # only these few need more than the sort by start
        tied = np.flatnonzero(is_tied | np.append(is_tied[1:], False))
        rows = order[tied]
        order[tied] = rows[np.lexsort((thread[rows], -end_ns[rows], sorted_ns[tied]))]
    return Ranges(sorted_ns, end_ns[order], compact(thread[order]), name[order], compact(order))


def without_call_numbers(text: pa.StringArray) -> pa.DictionaryArray:
    """Each name without the CALL_NUMBERS at its end, encoded as a dictionary of the few distinct names.

    To search only the end takes a third of the time; coded_names removes other CALL_NUMBERS from the distinct names.
    """
    return pc.replace_substring_regex(text, f"{CALL_NUMBERS}$", "").dictionary_encode()


class CodedNames(NamedTuple):
    """The code of the name of each range, in the order of the table; and the names by code, each of which occurs."""

    codes: np.ndarray
    names: list[str]


def coded_names(text: pa.ChunkedArray, text_id: np.ndarray, registered: Mapping[int, str]) -> CodedNames:
    """The names of ranges: their inline `text` (from without_call_numbers), or if that is empty, the registered string
    with their `text_id`."""
    inline = pa.concat_arrays([without_call_numbers(pa.array([], pa.string())), *text.chunks])  # text may have no chunk
    inline_code = _codes(inline)
    ids, id_code = factorize(text_id)
    registered_names = pa.array([registered.get(number, "") for number in ids.tolist()], pa.string())
    is_empty = pc.equal(pc.binary_length(inline.dictionary), 0).to_numpy(zero_copy_only=False).astype(bool)
    value_code = np.where(is_empty[inline_code], len(is_empty) + id_code, inline_code)  # index of each name in `values`
    values = _without_layers(pa.concat_arrays([inline.dictionary, registered_names]))
    names = pc.replace_substring_regex(values, CALL_NUMBERS, "").dictionary_encode()
    used, codes = factorize(_codes(names)[value_code])
    return CodedNames(codes, [name or UNNAMED for name in names.dictionary.take(pa.array(used)).to_pylist()])


def _without_layers(names: pa.StringArray) -> pa.StringArray:
    """The names without the numbers of layers in those that FSDP2 gives to its units:
    "FSDP::pre_backward (layers.mlp)" for "FSDP::pre_backward (layers.5.mlp)"."""
    is_unit = pc.starts_with(names, "FSDP::")
    if not pc.any(is_unit).as_py():
        return names
    units = [_without_layer(name) for name in names.filter(is_unit).to_pylist()]
    return pc.replace_with_mask(names, is_unit, pa.array(units, pa.string()))


def _without_layer(name: str) -> str:
    method, opening, module = name.partition(" (")
    parts = [part for part in module.removesuffix(")").split(".") if not part.isdecimal()]
    return f"{method} ({'.'.join(parts)})" if opening and any(parts) else method


def _codes(encoded: pa.DictionaryArray) -> np.ndarray:
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
