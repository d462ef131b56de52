"""The names of ranges as small integers: inline text or registered strings, without what numbers each call."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

UNNAMED = "(unnamed)"
# emit_nvtx and nsys --pytorch= number every call: "aten::add, seq = 12, op_id = 34, input_op_ids = [(3,0)]"
CALL_NUMBERS = r", (?:seq|op_id) = -?\d+|, input_op_ids = \[.*\]"


def coded_names(text: pa.ChunkedArray, text_id: np.ndarray, registered: Mapping[int, str]) -> tuple[np.ndarray, list]:
    """The code of each range's name, and the names by code (a list of str; all of them are some range's).

    A range is named by its inline TEXT or, where that is empty, by the registered string of its TEXT_ID.
    """
    inline_code, inline = _encoded(text)
    id_code, ids = np.unique(text_id, return_inverse=True)[1].reshape(-1), np.unique(text_id).tolist()
    values = [*inline, *(registered.get(number, "") for number in ids)]
    plain = pc.replace_substring_regex(pa.array(values, pa.string()), CALL_NUMBERS, "")
    use_registered = (
        np.array([not name for name in inline], bool)[inline_code] if len(inline_code) else np.empty(0, bool)
    )
    value_code = np.where(use_registered, len(inline) + id_code, inline_code)
    code_of_value, names = _encoded(pa.chunked_array([plain]))
    used, code = np.unique(code_of_value[value_code], return_inverse=True)
    return code.reshape(-1), [names[number] or UNNAMED for number in used.tolist()]


def _encoded(text: pa.ChunkedArray) -> tuple[np.ndarray, list[str]]:
    """The code of each string, and the distinct strings by code."""
    if not len(text):
        return np.empty(0, np.int64), []
    array = pa.concat_arrays(text.chunks).dictionary_encode()
    return array.indices.to_numpy(zero_copy_only=False).astype(np.int64), array.dictionary.to_pylist()
