"""Tables of experiments: the rows of one run take the place of those that it had."""

from rfs.files.tables import read_table, replace_rows, write_table


def test_a_run_that_is_made_again_replaces_its_rows_and_no_others(tmp_path):
    path = tmp_path / "table.csv"
    for seed in ("0", "1", "0"):
        replace_rows(path, {"seed": seed}, ({"step": str(step)} for step in range(2)))
    told = [(row["seed"], row["step"]) for row in read_table(path)]
    assert told == [("1", "0"), ("1", "1"), ("0", "0"), ("0", "1")]


def test_what_another_process_adds_while_a_run_is_made_stays(tmp_path):
    path = tmp_path / "table.csv"

    def run():
        write_table(path, [{"seed": "1", "step": "0"}])
        yield {"step": "0"}

    replace_rows(path, {"seed": "0"}, run())
    assert [row["seed"] for row in read_table(path)] == ["1", "0"]


def test_a_column_that_earlier_rows_did_not_have_is_empty_in_them(tmp_path):
    path = tmp_path / "table.csv"
    replace_rows(path, {"seed": "0"}, [{"step": "1"}])
    replace_rows(path, {"seed": "1"}, [{"step": "1", "seconds": "9"}])
    assert [row["seconds"] for row in read_table(path)] == ["", "9"]
