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
    ids, id_code = np.unique(text_id, return_inverse=True)
    registered_names = pa.array([registered.get(number, "") for number in ids.tolist()], pa.string())
    value_code = np.where(_is_empty(inline)[inline_code], len(inline) + id_code.reshape(-1), inline_code)
    plain = pc.replace_substring_regex(pa.concat_arrays([inline, registered_names]), CALL_NUMBERS, "")
    code_of_value, names = _encoded(pa.chunked_array([plain]))
    used, code = np.unique(code_of_value[value_code], return_inverse=True)
    return code.reshape(-1), [name or UNNAMED for name in names.take(pa.array(used)).to_pylist()]


def _encoded(text: pa.ChunkedArray) -> tuple[np.ndarray, pa.StringArray]:
    """The code of each string, and the distinct strings by code."""
    array = pa.concat_arrays([pa.array([], pa.string()), *text.chunks]).dictionary_encode()
    return array.indices.to_numpy(zero_copy_only=False).astype(np.int64), array.dictionary


def _is_empty(strings: pa.StringArray) -> np.ndarray:
    return pc.equal(pc.binary_length(strings), 0).to_numpy(zero_copy_only=False).astype(bool)
