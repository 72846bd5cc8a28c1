"""A file is replaced whole or not at all."""

import pytest

from reasoning_from_scratch.files.disk import replacing


def test_replacing_keeps_the_old_file_if_the_block_fails(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), replacing(path) as temporary:
        temporary.write_text("half")
        raise ZeroDivisionError
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]
    with replacing(path) as temporary:
        temporary.write_text("new")
    assert path.read_text() == "new" and list(tmp_path.iterdir()) == [path]
