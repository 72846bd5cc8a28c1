"""The one function that the book's cells import from `utils`."""

from file_server import answers, serving

from reasoning_from_scratch.utils import download_file


def test_a_file_keeps_its_name_and_is_asked_for_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with serving(b"[]") as server:
        for _ in range(2):
            path = download_file(f"{server.url}/data/a%20b.json?download=true")
            assert path.read_bytes() == b"[]" and path.resolve() == tmp_path / "a b.json"
        assert download_file(f"{server.url}/c.json", "new") == download_file(
            url=f"{server.url}/c.json", out_dir="new", backup_url=None
        )
    assert len(server.requests) == 2


def test_the_backup_is_asked_where_the_first_address_fails(tmp_path):
    with serving() as server, serving(b"copy") as backup:
        server.behaviors = [answers(404)]
        path = download_file(f"{server.url}/c.bin", tmp_path, f"{backup.url}/elsewhere/d.bin")
    assert path == tmp_path / "c.bin" and path.read_bytes() == b"copy"
