"""The names of ranges as small integers: inline text or registered strings, without what numbers each call."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

UNNAMED = "(unnamed)"
# emit_nvtx and nsys --pytorch= number every call: "aten::add, seq = 12, op_id = 34, input_op_ids = [(3,0)]"
CALL_NUMBERS = r", (?:seq|op_id) = -?\d+|, input_op_ids = \[.*\]"


def coded_names(text: pa.Array, text_id: np.ndarray, registered: Mapping[int, str]) -> tuple[np.ndarray, list[str]]:
    """The code of each range's name, and the names by code.

    A range is named by its inline TEXT or, where that is empty, by the registered string of its TEXT_ID.
    """
    inline = pc.dictionary_encode(text)
    inline = inline.combine_chunks() if isinstance(inline, pa.ChunkedArray) else inline
    if isinstance(inline, pa.ChunkedArray):  # no chunk at all
        inline = pa.array([], pa.string()).dictionary_encode()
    values = [*registered.values(), ""]
    plain = pa.concat_arrays([inline.dictionary, pa.array(values, pa.string())])
    plain = pc.replace_substring_regex(plain, CALL_NUMBERS, "").dictionary_encode()
    code_of_value = plain.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    inline_count = len(inline.dictionary)
    code = (
        code_of_value[:inline_count][inline.indices.to_numpy(zero_copy_only=False)] if len(text) else np.empty(0, int)
    )
    names = [name or UNNAMED for name in plain.dictionary.to_pylist()]
    empty = np.array([not name for name in plain.dictionary.to_pylist()])
    nameless = empty[code] if len(code) else np.empty(0, bool)
    ids = np.fromiter(registered, np.int64, len(registered))
    order = np.argsort(ids)
    where = np.searchsorted(ids, text_id[nameless], sorter=order)
    slot = np.append(order, len(values) - 1)[where]
    found = np.append(ids, -1)[slot] == text_id[nameless]
    code[nameless] = code_of_value[inline_count:][np.where(found, slot, len(values) - 1)]
    return code, names
