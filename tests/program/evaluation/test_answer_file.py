"""The file of an evaluation and its card: resumed after any kill, and never mixed."""

from pathlib import Path

import pytest

from reasoning_from_scratch.errors import UserError
from rfs.evaluation.answer_file import (
    AnswerFile,
    card_path,
    complete_groups,
    read_rows,
)


def hash_of_first(count):
    return {"problems": count, "problems_hash": f"hash of {count}"}


def opened(path, problems=3, samples=2, **settings):
    settings = {"seed": 0} | hash_of_first(problems) | settings
    return AnswerFile(path, settings, samples, hash_of_first)


SCORES = {"extracted": "", "correct": False, "parsed": False, "tokens": 2, "stopped": True}


def rows_of(index, text="so"):
    rows = [{"index": index + 1, "sample": n, "generated_text": text} for n in range(2)]
    return [row | SCORES for row in rows]


@pytest.fixture
def path(tmp_path):
    """Problem 2 and then problem 0 are answered; 1 is not yet."""
    path = tmp_path / "answers.jsonl"
    file = opened(path)
    for index in (2, 0):
        file.add(index, rows_of(index))
    return path


def test_names_with_dots_have_cards_of_their_own():
    names = ("a.jsonl", "tuned.1", "tuned.2", "math.t0.6", "math.t0.8")
    assert len({card_path(Path(name)) for name in names}) == len(names)


def test_the_card_is_there_before_the_first_answer(tmp_path):
    file = opened(tmp_path / "deep" / "a.jsonl")
    assert file.path.read_bytes() == b""
    assert card_path(file.path).name == "a.card.json"
    assert file.read_card() == {"settings": file.settings, "result": None}


def test_a_disk_that_refuses_an_answer_is_one_line(path):
    file, before = opened(path), path.read_bytes()
    path.unlink()
    path.mkdir()
    for write in (lambda: file.add(1, rows_of(1)), lambda: file.finish({})):
        with pytest.raises(UserError, match=r"cannot write .*; make room and run the same") as info:
            write()
        assert "\n" not in str(info.value)
    path.rmdir()
    path.write_bytes(before)
    assert set(opened(path).groups) == {0, 2}


def test_lines_are_in_the_order_of_their_end_until_all_are_there(path):
    assert [row["index"] for row in read_rows(path)] == [3, 3, 1, 1]
    file = opened(path)
    file.add(1, rows_of(1))
    file.finish({"result": {"accuracy": 0.5}})
    assert read_rows(path) == file.rows() == [row for i in range(3) for row in rows_of(i)]
    assert file.read_card() == {"settings": file.settings, "result": {"accuracy": 0.5}}


def test_cut_off_anywhere_only_whole_problems_count(path):
    content = path.read_bytes()
    line = len(content) // 4
    edges = {end + near for end in (0, line, 2 * line, 4 * line) for near in (-1, 0, 1)}
    for size in sorted({*range(0, len(content), 11), *edges} & {*range(len(content) + 1)}):
        path.write_bytes(content[:size])
        done = [2, 0][: size // (2 * line)]
        assert sorted(opened(path).groups) == sorted(done), size
        assert read_rows(path) == [row for index in sorted(done) for row in rows_of(index)]


def test_samples_of_a_problem_may_come_in_any_order_and_twice():
    first, second = rows_of(0)
    again = second | {"generated_text": "again"}
    other = rows_of(1)[:1]  # one of two samples
    assert complete_groups([second, *other, first, again], 2) == {0: [first, again]}


def test_other_settings_are_named_and_nothing_is_touched(path):
    before = path.read_bytes(), card_path(path).read_bytes()
    with pytest.raises(UserError, match="seed: 0 -> 1"):
        opened(path, seed=1)
    with pytest.raises(UserError, match="problems: 3 -> 2"):  # fewer
        opened(path, problems=2)
    with pytest.raises(UserError, match="few_shot: None -> 4"):  # of a newer version
        opened(path, few_shot=4)
    assert (path.read_bytes(), card_path(path).read_bytes()) == before


def test_further_problems_are_other_settings_only_if_the_first_differ(path):
    file = opened(path, problems=5)
    assert sorted(file.groups) == [0, 2]
    assert file.read_card()["settings"]["problems"] == 5
    with pytest.raises(UserError, match="problems_hash"):
        AnswerFile(path, {"seed": 0, "problems": 9}, 2, lambda n: {"problems_hash": "of others"})


def test_a_file_that_is_not_ours_is_left_alone(tmp_path):
    path = tmp_path / "notes.jsonl"
    path.write_text("my notes\n")
    with pytest.raises(UserError, match="not ours"):
        opened(path)
    assert path.read_text() == "my notes\n" and not card_path(path).exists()


def test_a_damaged_line_is_named(path):
    content = path.read_bytes().splitlines(keepends=True)
    content[2] = b'{"index": 2, "sam\n'
    path.write_bytes(b"".join(content))
    with pytest.raises(UserError, match="line 3"):
        opened(path)


@pytest.mark.parametrize(
    "line", ["1", "null", '{"index": 1}', '{"index": 1, "sample": 0}', '{"index": "1"}']
)
def test_json_that_is_no_answer_is_named(path, line):
    with open(path, "a") as file:
        file.write(f"{line}\n")
    with pytest.raises(UserError, match="line 5 of .* is not an answer of rfs evaluate; delete"):
        opened(path)


def test_a_sample_that_is_none_of_those_asked_for_is_not_counted():
    assert complete_groups([rows_of(0)[0] | {"sample": 7}, rows_of(0)[0]], 2) == {}


def test_odd_text_survives_the_file(tmp_path):
    text = "line\u2028separator \ud800 lone, \x1b[31m red, NUL \0, 日本"
    file = opened(tmp_path / "a.jsonl")
    file.add(0, rows_of(0, text))
    assert opened(tmp_path / "a.jsonl").rows() == file.rows() == rows_of(0, text)
