"""Tags of GGUF files, for any name that a file may have."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from roofcast.modelspec.gguf_tags import has_tag, tag_of

PARTS = st.sampled_from(["m", "Q4_K_M", "q8_0", "UD-IQ1_S", "BF16", "-", ".", "_", "/", "7b", "-00001-of-00002", "Q4_"])
NAMES = st.lists(PARTS, min_size=1, max_size=8).map("".join) | st.text(st.characters(codec="utf-8"), min_size=1)


@given(NAMES)
def test_every_file_has_its_tag(name: str) -> None:
    """What is listed as the tag of a file finds that file, in letters of either case."""
    file = f"{name}.gguf"

    assert has_tag(file, tag_of(file))
    assert has_tag(file, tag_of(file).upper()) or not tag_of(file).isascii()
