"""The prompt is one exact string; its variants are built from it."""

from types import SimpleNamespace

import pytest

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.problems import (
    PLACEHOLDER,
    PROMPT_FILE,
    Problem,
    PromptFormat,
    add_few_shot_examples,
    few_shot_prefix,
    problem_prompt,
    prompt_format_of,
    read_prompt_file,
    render_prompt,
    store_prompt_format,
)

EXACT = (
    "You are a helpful math assistant.\nAnswer the question and write the final result on a "
    "new line as:\n\\boxed{ANSWER}\n\nQuestion:\nWhat is 2+2?\n\nAnswer:"
)


def test_the_string_the_published_checkpoints_know():
    assert render_prompt("What is 2+2?") == EXACT
    assert render_prompt(prompt="{x}\n\\n").count("Question:\n{x}\n\\n\n\nAnswer:") == 1


def test_examples_come_first_and_end_with_a_box():
    examples = [
        Problem("a", "1+1?", "2", solution="One and one is 2."),
        Problem("b", "1+2?", "3", solution="It is \\boxed{3}."),
        Problem("c", "1+3?", "4"),
    ]
    text = few_shot_prefix(examples)
    answers = [part.split("\n\n\n")[0] for part in text.split("Answer:")[1:4]]
    assert answers == ["\nOne and one is 2.\n\\boxed{2}", "\nIt is \\boxed{3}.", "\n\\boxed{4}"]
    assert few_shot_prefix([]) == ""


def test_examples_of_a_run_are_shown_and_not_trained_on():
    problems = [Problem(str(i), f"{i}+1?", str(i + 1)) for i in range(4)]
    train, test = add_few_shot_examples(2, problems, [Problem("t", "5+5?", "10")])
    assert [p.id for p in train] == ["2", "3"] and [p.id for p in test] == ["t"]
    assert problem_prompt(test[0]) == few_shot_prefix(problems[:2]) + render_prompt("5+5?")
    assert problem_prompt(problems[0]) == render_prompt("0+1?")
    with pytest.raises(UserError, match="--few-shot 4"):
        add_few_shot_examples(4, problems, [])


def test_examples_do_not_go_before_a_prompt_of_its_own():
    problems = [Problem(str(n), f"{n} + {n}?", str(2 * n)) for n in range(4)]
    own = Problem("own", "5 + 5?", "10", prompt="Compute 5 + 5:")
    for train, test in (([*problems, own], []), (problems, [own])):
        with pytest.raises(UserError, match="omit --few-shot"):
            add_few_shot_examples(2, train, test)


def test_a_prompt_file_of_windows(tmp_path):
    path = tmp_path / "p.txt"
    path.write_bytes(b"\xef\xbb\xbfQ: {problem}\nA:\n")
    assert read_prompt_file(str(path)) == PromptFormat("Q: {problem}\nA:")


def own(question, prompt):
    return Problem(f"own/{question}", question, "4", prompt=prompt)


@pytest.mark.parametrize(
    "problems, prompt",
    [
        ([Problem("1", "2 + 2", "4")], render_prompt(PLACEHOLDER)),
        ([own("2 + 2", "2 + 2 =\n"), own("1 + 3", "1 + 3 =\n")], f"{PLACEHOLDER} =\n"),
        ([own("2 + 2", "2 + 2 ="), own("1 + 3", "Add: 1 + 3")], None),
        ([own("2 + 2", "2 + 2 ="), Problem("1", "1 + 3", "4")], None),
        ([own("2 + 2", "What is two and two?")], None),
    ],
    ids=["book", "own", "several", "some", "another question"],
)
def test_the_prompt_that_goes_with_a_model_is_the_one_it_was_asked_with(problems, prompt):
    before = PromptFormat("of the model it began with: {problem}").to_json()
    tokenizer = SimpleNamespace(files={PROMPT_FILE: before}, apply_chat_template=False)
    store_prompt_format(tokenizer, None, problems)
    asked = prompt_format_of(tokenizer)
    assert (asked and asked.prompt) == prompt
