"""Problem sets: the official files load, and a bad file is told in one line."""

import json
import re
from types import SimpleNamespace

import pytest
from command_world import SHORT, commands, make_world

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.problem_sets import PROBLEM_SETS
from reasoning_from_scratch.problems import CHAT_TOKENS, Problem, problem_prompt, with_prompt
from reasoning_from_scratch.text import read_lines
from rfs.tasks import problem_sets
from rfs.tasks.gym_tasks import GymTask
from rfs.tasks.hub_sets import HubSet
from rfs.tasks.instructions import Instructions
from rfs.tasks.problem_function import ProblemFunction
from rfs.tasks.problem_sets import (
    SOURCES,
    ChapterSet,
    HeldOutPart,
    ProblemFile,
    load_problems,
    source_of,
)
from rfs.tasks.source import Source

GSM8K_ROW = {
    "question": "A shop sells 3 boxes at $1,500 each. How much is that?",
    "answer": "It is 3*1500 = $<<3*1500=4500>>4,500.\n#### 4,500",
}
MATH_ROW = {
    "problem": "What is $1+1$?",
    "solution": "It is $\\boxed{2}$.",
    "answer": "2",
    "subject": "Prealgebra",
    "level": 2,
    "unique_id": "test/prealgebra/1.json",
}


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_gsm8k_rows(tmp_path):
    (problem,) = load_problems(str(write_lines(tmp_path / "some.jsonl", [GSM8K_ROW])))
    told = {"type": "GSM8K", "solution": "It is 3*1500 = $4,500."}
    assert problem == Problem("some/0", GSM8K_ROW["question"], "4500", **told)


@pytest.mark.parametrize(
    "text, answer",
    [
        ("#### 1,234,567", "1234567"), ("a #### 3\n#### -5", "-5"), ("#### $18", "18"),
        ("#### 0.5 ", "0.5"), ("x\n####7", "7"), ("1,620", "1620"), (1620, "1620"), (0.5, "0.5"),
        ("#### 1/2", "1/2"),
    ],
)  # fmt: skip
def test_gsm8k_answers(tmp_path, text, answer):
    path = write_lines(tmp_path / "a.jsonl", [{"question": "?", "answer": text}])
    assert load_problems(str(path))[0].answer == answer


@pytest.mark.parametrize("suffix", ["json", "jsonl"])
def test_math_rows_as_list_and_as_lines(tmp_path, suffix):
    path = tmp_path / f"math.{suffix}"
    rows = [MATH_ROW, {"problem": "p", "answer": 5}]
    if suffix == "json":
        path.write_text("\n " + json.dumps(rows, indent=2))
    else:
        write_lines(path, rows)
    first, second = load_problems(path.as_posix())
    told = ("Level 2", "Prealgebra", "It is $\\boxed{2}$.")
    assert first == Problem("test/prealgebra/1.json", "What is $1+1$?", "2", *told)
    assert second == Problem("math/1", "p", "5")
    assert (first.where, second.where) == {
        "json": (f"test/prealgebra/1.json ({path}, entry 1)", f"math/1 ({path}, entry 2)"),
        "jsonl": (f"test/prealgebra/1.json ({path}, line 1)", f"math/1 ({path}, line 2)"),
    }[suffix]


def test_an_original_math_row_has_its_answer_in_the_solution(tmp_path):
    """As in the files of MATH, one problem each: no answer, laid out over several lines."""
    row = {
        "problem": "What is $1+1$?",
        "level": "Level 1",
        "type": "Prealgebra",
        "solution": "Not $\\boxed{3}$. It is $\\boxed{\\frac{4}{2}}$.",
    }
    path = tmp_path / "1.json"
    path.write_text(json.dumps(row, indent=4))
    (problem,) = load_problems(str(path))
    assert (problem.id, problem.answer) == ("1/0", "\\frac{4}{2}")
    assert load_problems(str(write_lines(path, [row | {"answer": "2"}])))[0].answer == "2"


def test_a_named_set_is_the_file_here_unless_another_is_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_lines(tmp_path / "gsm8k_train.jsonl", [GSM8K_ROW, GSM8K_ROW])
    assert len(load_problems("gsm8k")) == 2
    here = write_lines(tmp_path / "here.jsonl", [MATH_ROW])
    assert load_problems("math-500", data_path=here)[0].answer == "2"
    assert load_problems("tiny", data_path=here)[0].answer == "2"
    assert len(list(tmp_path.iterdir())) == 2  # nothing was downloaded


def test_two_problems_of_math_have_no_answer(tmp_path, monkeypatch):
    """Its rows 7115 and 7117 of number theory: the set can be used, without them."""
    monkeypatch.chdir(tmp_path)
    path = write_lines(tmp_path / "math_train.json", [MATH_ROW, MATH_ROW | {"answer": ""}] * 2)
    for data_path in (None, path):
        problems = load_problems("math-train", data_path=data_path)
        assert [problem.answer for problem in problems] == ["2", "2"]
        source_of("math-train", data_path).check()
    assert load_problems("math-train", limit=2)[1].where.endswith("line 3)")
    with pytest.raises(UserError, match="line 2: the field 'answer'"):
        load_problems(str(path))


@pytest.mark.parametrize("name, nearest", [("gsm8", "gsm8k"), ("Tiny", "tiny")])
def test_an_unknown_name_is_answered_with_the_nearest(name, nearest):
    with pytest.raises(UserError, match=f"did you mean '{nearest}'"):
        load_problems(name)
    with pytest.raises(UserError, match="unknown problem set 'zzz'") as error:
        load_problems("zzz")
    assert all(known in str(error.value) for known in PROBLEM_SETS)


def test_a_table_from_a_spreadsheet(tmp_path):
    """Also with semicolons, as spreadsheets write it where a comma is part of a number."""
    for comma in ",;\t":
        path = tmp_path / "mine.csv"
        rows = [
            ["problem", "answer", "level"],
            ['"How many, in all?"', "42", ""],
            ["p", "1/2", "3"],
        ]
        path.write_text("\ufeff" + "\r\n".join(comma.join(row) for row in rows), encoding="utf-8")
        first, second = load_problems(str(path))
        assert first == Problem("mine/0", "How many, in all?", "42")
        assert second == Problem("mine/1", "p", "1/2", level="Level 3")
        assert second.where == f"mine/1 ({path}, line 3)"


@pytest.mark.parametrize(
    "text, line",
    [
        ("problem,answer\n,\np,42\n , ,,\n", 3),
        ("\n  \nproblem,answer\np,42\n", 4),
        ("sep=;\nproblem;answer\np;42\n", 3),
        ('\r\n"sep=|"\r\nproblem|answer\r\n|\r\np|42\r\n', 5),
        ("SEP=\t\nproblem\tanswer\np\t42", 3),
    ],
)
def test_a_table_with_lines_that_hold_no_problem(tmp_path, text, line):
    path = tmp_path / "mine.csv"
    path.write_bytes(text.encode())
    (problem,) = load_problems(str(path))
    assert problem == Problem("mine/0", "p", "42")
    assert problem.where == f"mine/0 ({path}, line {line})"


@pytest.mark.parametrize(
    "text, message",
    [
        ("problem,answer\nHow many, in all?,42\n", "line 2: more cells .* in quotes"),
        ("\n\nproblem,answer\nHow many, in all?,42\n", "line 4: more cells .* in quotes"),
        ("\n \n", "holds no problems"),
        ("task,answer\np,42\n", "line 2: the field 'problem' .*there is task, answer"),
        ("problem,answer\np,\n", "line 2: the field 'answer'"),
        ("problem,answer\n", "holds no problems"),
    ],
)
def test_a_bad_table_is_told_in_one_line(tmp_path, text, message):
    (tmp_path / "bad.csv").write_text(text)
    with pytest.raises(UserError, match=message):
        load_problems(str(tmp_path / "bad.csv"))


GOOD = json.dumps(MATH_ROW).encode() + b"\n"
BAD_FILES = {
    "missing problem": (GOOD + b'{"answer": "2"}', "line 2: .*'problem'.* missing .*answer"),
    "blank answer": (GOOD + b'{"problem": "p", "answer": " "}', "line 2: .*'answer'"),
    "truth value": (b'{"problem": "p", "answer": true}', "line 1: .*'answer'.* true"),
    "not a number": (b'{"problem": "p", "answer": NaN}', "line 1: .*'answer'.* it is NaN"),
    "no box either": (b'{"problem": "p", "solution": "2"}', "line 1: .*'answer'.* missing"),
    "lines, broken": (b'{\n"problem": "p",\n"answer" 5}', "line 3: not valid JSON"),
    "lines, then more": (b'{\n"problem": "p",\n"answer": 5},\n{', "line 3: not valid JSON"),
    "lines, deep": (b'{\n"problem": ' + b"[" * 200_000, "line 1: JSON that is too deep"),
    "no object": (GOOD + GOOD + b"5", "line 3: expected an object"),
    "not json": (b"problem,answer\n1,2\n", "line 1: not valid JSON"),
    "not utf-8": (GOOD + GOOD + b'{"problem": "\xff"}', "line 3: not UTF-8"),
    "half a surrogate": (b'{"problem": "\\ud800", "answer": "1"}', "line 1: .*surrogate"),
    "deep": (b'{"problem": ' + b"[" * 200_000, "line 1: JSON that is too deep"),
    "list, broken": (b'[\n{"problem": "p",\n"answer" 5}]', "line 3: not valid JSON"),
    "list, bad entry": (b'[{"problem": "p", "answer": "1"}, {}]', "entry 2: .*'problem'"),
    "list, empty": (b"[]", "holds no problems"),
    "empty": (b"", "holds no problems"),
    "no ####": (b'{"question": "q", "answer": "a dozen"}', "line 1: as the answer.*'a dozen'"),
}


@pytest.mark.parametrize("content, message", BAD_FILES.values(), ids=BAD_FILES.keys())
def test_a_bad_file_is_told_in_one_line(tmp_path, content, message):
    path = tmp_path / "bad.jsonl"
    path.write_bytes(content)
    with pytest.raises(UserError, match=message) as error:
        load_problems(str(path))
    text = str(error.value)
    assert "bad.jsonl" in text and "\n" not in text and len(text) < 300


def knowing(tokens):
    """A stand-in for a tokenizer whose only single tokens are these."""
    return SimpleNamespace(encode=lambda text: [0] if text in tokens else [0, 1])


def test_a_problem_may_be_put_in_another_way():
    problems = [Problem("x", "How {many}?", "3")]
    tokenizer = knowing(("<|bos|>", "<|user_start|>", "<|user_end|>"))
    assert with_prompt(problems, "book", tokenizer) is problems
    (question,) = with_prompt(problems, "question", tokenizer)
    assert problem_prompt(question) == "How {many}?"
    with pytest.raises(UserError, match="--prompt question"):
        with_prompt(problems, "nanochat", tokenizer)
    tokenizer = knowing(CHAT_TOKENS)
    (chat,) = with_prompt(problems, "nanochat", tokenizer)
    wanted = "<|bos|><|user_start|>How {many}?<|user_end|><|assistant_start|>"
    assert problem_prompt(chat) == wanted


# --- one list of sources


@pytest.mark.parametrize(
    "name, kind, short_name, held_out",
    [
        ("tiny", ChapterSet, "tiny", "tiny-test"),
        ("guess", ChapterSet, "guess", "guess"),
        ("math-500", ChapterSet, "math-500", "math-500@held-out"),
        ("tiny@held-out", HeldOutPart, "tiny@held-out", None),
        ("some/mine.jsonl", ProblemFile, "mine.jsonl", "some/mine.jsonl@held-out"),
        ("some/mine.jsonl@held-out", HeldOutPart, "mine.jsonl@held-out", None),
        ("some/m.py:rows", ProblemFunction, "m.py:rows", "some/m.py:rows@held-out"),
        ("some/m.py:rows@held-out", HeldOutPart, "m.py:rows@held-out", None),
        (
            "hf:a/b:c@test?question=d/e",
            HubSet,
            "b-c@test",
            None,
        ),  # the hub is not asked
        ("hf:a/b@held-out", HeldOutPart, "b@held-out", None),
        ("gym:gcd", GymTask, "gym:gcd", "gym:gcd@held-out"),
        ("gym:gcd@held-out", GymTask, "gym:gcd@held-out", None),
        ("instructions", Instructions, "instructions", "instructions@held-out"),
        ("instructions@held-out", Instructions, "instructions@held-out", None),
    ],
)
def test_a_name_says_which_source(name, kind, short_name, held_out, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # none of the files is there
    source = source_of(name)
    assert (type(source), source.short_name) == (kind, short_name)
    assert held_out is None or source.held_out_name() == held_out
    in_file = kind in (ProblemFile, ProblemFunction) or "some/" in name
    assert source.absolute_name() == (f"{tmp_path}/{name}" if in_file else name)
    assert source.shown_name == (short_name if in_file else name)


class Letters(Source):
    """letters:N, the first N pairs of letters."""

    NAME_PATTERN = re.compile(r"letters:\d+")
    LISTED_NAMES = ("letters:N",)

    def problems(self, limit=None):
        pairs = [a + b for a in "abcdefgh" for b in "abcdefghij"]
        count = min(int(self.name.partition(":")[2]), limit or len(pairs))
        return [Problem(f"letters/{pair}", pair, "3") for pair in pairs[:count]]


def test_a_new_source_is_a_class_and_a_row(tmp_path, monkeypatch, capsys):
    """Every command then knows it, its held-out share, and how to name it."""
    monkeypatch.setattr(problem_sets, "SOURCES", [Letters, *SOURCES])
    with pytest.raises(UserError, match="letters:N"):
        source_of("zzz").check()
    make_world(tmp_path)
    monkeypatch.chdir(tmp_path)
    words = ["train", "--model", "tiny-toy", "--problems", "letters:80", *SHORT, "--out", "run"]
    assert commands([*words, "--data-path", "x.jsonl"]) == 2
    assert "letters:80 has its own problems: drop one" in capsys.readouterr().err
    assert commands(words) == 0, capsys.readouterr().err
    assert "under the name letters:80@held-out" in capsys.readouterr().err
    assert "letters:80@held-out/env/all/correct" in read_lines(tmp_path / "run/metrics.jsonl")[-1]
    assert "on problems of `letters:80`" in next(tmp_path.glob("run/**/README.md")).read_text()
    assert commands(["evaluate", "--model", "run", "--max-new-tokens", "4"]) == 0
    assert "letters:80@held-out, " in capsys.readouterr().out
