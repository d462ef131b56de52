"""The names of ranges as small integers: inline text or registered strings, without what numbers each call."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kernel_tables.attribution.keys import compact

UNNAMED = "(unnamed)"
# emit_nvtx and nsys --pytorch= number every call: "aten::add, seq = 12, op_id = 34, input_op_ids = [(3,0)]"
CALL_NUMBERS = r"(?:, (?:seq|op_id) = -?\d+|, input_op_ids = \[.*\])+"


def without_last_numbers(text: pa.StringArray) -> pa.DictionaryArray:
    """Each name without the call's numbers that end it, which leaves few distinct ones; encoded.

    Of a million names these alone are taken off, in a third of the time: what ends a text is matched from there.
    """
    return pc.replace_substring_regex(text, f"{CALL_NUMBERS}$", "").dictionary_encode()


def coded_names(text: pa.ChunkedArray, text_id: np.ndarray, registered: Mapping[int, str]) -> tuple[np.ndarray, list]:
    """The code of each range's name, and the names by code (a list of str; all of them are some range's).

    A range is named by its inline TEXT (from without_last_numbers) or, where that is empty, by the registered string of
    its TEXT_ID.
    """
    inline = pa.concat_arrays([without_last_numbers(pa.array([], pa.string())), *text.chunks])
    inline_code = _codes(inline)
    ids, id_code = compact(text_id)
    registered_names = pa.array([registered.get(number, "") for number in ids.tolist()], pa.string())
    is_empty = pc.equal(pc.binary_length(inline.dictionary), 0).to_numpy(zero_copy_only=False).astype(bool)
    value_code = np.where(is_empty[inline_code], len(is_empty) + id_code, inline_code)
    values = pa.concat_arrays([inline.dictionary, registered_names])
    plain = pc.replace_substring_regex(values, CALL_NUMBERS, "").dictionary_encode()
    used, code = compact(_codes(plain)[value_code])
    return code, [name or UNNAMED for name in plain.dictionary.take(pa.array(used)).to_pylist()]


def _codes(encoded: pa.DictionaryArray) -> np.ndarray:
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
