"""Tasks of reasoning-gym: names, sides, rules, and what does not get through to them."""

import ast
import os
import pickle
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from reasoning_from_scratch.errors import UserError
from rfs.tasks import gym_tasks
from rfs.tasks.gym_tasks import (
    NOT_REPRODUCIBLE,
    REFUSED_TASKS,
    RUNS_ANSWERS,
    SAFE_ANSWERS,
    judged_text,
    score,
    task_table,
)
from rfs.tasks.judge import verifier_of
from rfs.tasks.problem_sets import held_out, load_problems, source_of, training_problems

SOME = (
    'gym:composite?datasets=[{"name":"chain_sum","weight":2},{"name":"spell_backward"},'
    '{"name":"letter_counting","config":{"min_words":3,"max_words":5}}]'
)


@pytest.fixture
def gym(monkeypatch):
    """Puts a task of one's own beside those of reasoning-gym."""

    def install(item, pay=lambda self, answer, entry: 1.0):
        old, config = task_table()["gcd"]
        parts = {"__getitem__": lambda self, index: item(index), "score_answer": pay}
        monkeypatch.setitem(task_table(), "odd", (type("Odd", (old,), parts), config))
        gym_tasks.dataset_of.cache_clear()
        gym_tasks.entry_of.cache_clear()

    return install


def entry(index, answer="1"):
    return {"question": f"How many? {index}", "answer": answer, "metadata": {}}


# ---- which problems


def test_a_set_is_a_function_of_its_name_and_limit():
    first = load_problems(SOME, limit=60)
    assert load_problems(SOME, limit=80)[:60] == first
    tasks = [p.type for p in first]
    assert set(tasks) == {"chain_sum", "letter_counting", "spell_backward"}
    assert 20 <= tasks.count("chain_sum") <= 40  # of weights 2, 1, 1
    lengths = [len(p.problem.split(": ")[1].split()) for p in first if p.type == "letter_counting"]
    assert set(lengths) == {3, 4, 5}


@pytest.mark.parametrize("name", ["gym:chain_sum", "gym:coin_flip", SOME])
def test_no_text_is_on_both_sides(name):
    assert held_out(name) == f"{name}@held-out"
    train, test = (load_problems(n) for n in (name, f"{name}@held-out"))
    texts = [{p.problem for p in some} for some in (train, test)]
    assert not texts[0] & texts[1]
    assert [len(some) for some in texts] == [len(train), len(test)]  # and none is there twice
    assert training_problems(name) == train
    small = name == "gym:coin_flip"  # has some 260 problems in all
    assert (len(train), len(test)) == (2000, 200) if not small else len(train) + len(test) < 300


def test_the_rules_of_a_task_judge():
    (problem,) = load_problems("gym:spell_backward", limit=1)
    right = problem.answer
    paid = {right: 1.0, f"Thus\n{right}\n": 1.0, f"\\boxed{{{right}}}, no: x": 1.0, "": 0.0}
    paid |= {f"<answer> {right} </answer> or so": 1.0, "\\boxed{}": 0.0, right[:-1] + "#": None}
    for text, value in paid.items():
        found = score(text, problem)
        assert found == value if value is not None else 0 < found < 1, text  # paid in part


@pytest.mark.parametrize(
    "text, truth, read",
    [
        ("a\nb \n\n", "b", "b"),
        ("The answer is:\n**1 + 5 = 6.**", "7", "6"),
        ("15 - 43 = -28", "28", "-28"),
        ("That is 43-28.", "15", "28"),
        ("It costs 1,234.50 dollars", "7", "1,234.50"),
        ("none", "7", ""),
        ("He is her *father-in-law*.", "son", "father-in-law"),
        ("It is 3/4!", "1/2", "3/4"),
        ("It is a, b.", "b, a", "It is a, b."),
        ("a\nb", "1\n2", "a\nb"),
        ("a\nb", None, "a\nb"),
        ("a\n\\boxed{x} b", "b", "x"),
        ("<answer>1</answer> <answer>\n2\n</answer> 3", "2", "2"),
        ("\\boxed{1} <answer>2</answer>", "1", "1"),
        (" \n ", "1", ""),
    ],
)
def test_what_is_read_of_an_answer(text, truth, read):
    assert judged_text(text, truth) == read


def test_a_problem_can_be_sent_away_and_judged_there():
    (problem,) = load_problems("gym:group_anagrams", limit=1)  # its facts are no JSON
    code = "import pickle, sys; from rfs.tasks.gym_tasks import score; "
    code += "p = pickle.load(sys.stdin.buffer); print(score(p.answer, p), score('no', p))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=pickle.dumps(problem),
        env=os.environ | {"PYTHONHASHSEED": "7"},
        capture_output=True,
        check=True,
    )
    assert done.stdout.split() == [b"1.0", b"0.0"]


# ---- what goes wrong


@pytest.mark.parametrize(
    "name, says",
    [
        ("gym", "names no task: write one after gym:"),
        ("gym:", "names no task: write one after gym:"),
        ("gym:chain_sums", "unknown task of reasoning-gym 'chain_sums': did you mean 'chain_sum'"),
        ("gym:chain_sum@heldout", "did you mean 'chain_sum'"),
        ("gym:chain_sum?min_term=2", "unknown parameter of gym:chain_sum 'min_term': did you mean"),
        ("gym:chain_sum?seed=2", "unknown parameter of gym:chain_sum 'seed'"),
        ("gym:chain_sum?min_terms", "write NAME=VALUE, separated by &"),
        ("gym:chain_sum?min_terms=two", "min_terms is 'two', which is not a whole number"),
        ("gym:chain_sum?min_terms=2.5", "min_terms is '2.5', which is not a whole number"),
        ("gym:chain_sum?min_terms=true", "min_terms is 'true', which is not a whole number"),
        ("gym:chain_sum?allow_negation=1", "allow_negation is '1', which is not true or false"),
        ("gym:basic_arithmetic?operators=3", "operators is '3', which is not a list, as in [1,2]"),
        ("gym:chain_sum?min_terms=9", "gym:chain_sum?min_terms=9: max_terms must be >= min_terms"),
        ("gym:chain_sum?min_terms=2*3", "min_terms is '2*3', which is not a whole number"),
        ("gym:gcd*2+chain_sum", "several tasks are written as gym:composite?datasets="),
        ("gym:composite", "several tasks are written as gym:composite?datasets="),
        ('gym:composite?datasets=[{"name":"gcd"}', "several tasks are written as"),
        ('gym:composite?datasets=[{"name":"gdc"}]', "did you mean 'gcd'"),
        ('gym:composite?datasets=[{"name":"word_ladder"}]', NOT_REPRODUCIBLE),
        ('gym:composite?datasets=[{"name":"composite"}]', "Must specify at least one"),
        ('gym:composite?datasets=[{"name":"gcd"},7]', "several tasks are written as"),
        ('gym:composite?datasets=[{"weight":1}]', "unknown task of reasoning-gym"),
        ('gym:composite?datasets=[{"name":"gcd"},{"name":"gcd"}]', "Duplicate dataset names"),
        ('gym:composite?datasets=[{"name":"gcd","weight":0}]', "Weight must be positive"),
        ('gym:composite?datasets=[{"name":"gcd","config":{"max":1}}]', "argument 'max'"),
        ('gym:composite?datasets=[{"name":"gcd","often":1}]', "often"),
        ("gym:simple_integration", RUNS_ANSWERS),
        ("gym:word_ladder", NOT_REPRODUCIBLE),
        ("gym:game_of_life_halting", "its rules reward any answer"),
    ],
)
def test_a_mistake_is_told_in_one_line(name, says):
    for ask in (load_problems, lambda name: source_of(name).check()):  # also before a model loads
        with pytest.raises(UserError) as error:
            ask(name)
        assert says in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    "pay, says",
    [
        (lambda self, answer, entry: int("x"), "raised ValueError: invalid literal"),
        (lambda self, answer, entry: float("nan"), "returned no finite number"),
    ],
)
def test_rules_that_raise_are_a_failure_of_that_answer(gym, pay, says):
    gym(entry, pay)
    paid, failure = verifier_of(problem := load_problems("gym:odd", limit=1)[0])("1", problem)
    assert paid == 0.0 and says in failure


def test_rules_cannot_change_a_problem(gym):
    def spoil(self, answer, entry):
        entry["metadata"]["seen"] = entry["metadata"].get("seen", 0) + 1
        return entry["metadata"]["seen"]

    gym(entry, spoil)
    (problem,) = load_problems("gym:odd", limit=1)
    assert [score("1", problem), score("1", problem)] == [1.0, 1.0]


def test_without_reasoning_gym_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "reasoning_gym.factory", None)
    task_table.cache_clear()
    with pytest.raises(UserError, match="uv run --extra gym"):
        load_problems("gym:chain_sum")


# ---- what a model writes is never run


def asks_python(path):
    """Whether a file calls eval, exec or sympy's parser in a function that judges answers."""
    found = False
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef) and node.name == "score_answer":
            called = [n.func for n in ast.walk(node) if isinstance(n, ast.Call)]
            names = {getattr(f, "id", "") or getattr(f, "attr", "") for f in called}
            found = found or bool(names & {"eval", "exec", "parse_expr", "sympify", "S"})
    return found


def test_every_task_whose_rules_ask_python_is_known():
    folder = Path(find_spec("reasoning_gym").origin).parent
    guilty = set()
    for name, (kind, _) in task_table().items():
        path = folder.joinpath(*kind.__module__.split(".")[1:]).with_suffix(".py")
        if asks_python(path):
            guilty.add(name)
    known = set(SAFE_ANSWERS) | {name for name, why in REFUSED_TASKS.items() if why == RUNS_ANSWERS}
    # The last one asks eval for the right answer only.
    assert guilty - known == {"number_sorting"} and known <= guilty


@pytest.mark.parametrize("task", sorted(SAFE_ANSWERS))
def test_what_the_model_wrote_is_not_run(task, tmp_path):
    (problem,) = load_problems(f"gym:{task}", limit=1)
    trap = tmp_path / "trap"
    attacks = [f"open({str(trap)!r}, 'w')", f"[open({str(trap)!r}, 'w')]"]
    attacks += [f"__import__('pathlib').Path({str(trap)!r}).touch()", "().__class__", "exit()"]
    attacks += ["9**9**9**9", "9 ** 9**9"]
    for text in attacks:
        assert verifier_of(problem)(text, problem) == (0.0, ""), text
    assert not trap.exists()
    if problem.answer:
        assert score(problem.answer, problem) == 1.0
    (mixed,) = load_problems(f'gym:composite?datasets=[{{"name":"{task}"}}]', limit=1)
    for text in attacks:
        assert verifier_of(mixed)(text, mixed) == (0.0, ""), text
    assert not trap.exists()
