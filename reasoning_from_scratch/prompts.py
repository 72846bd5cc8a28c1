"""What the model is shown: one fixed string around each problem, and its variants."""

from collections.abc import Callable, Iterable

from reasoning_from_scratch.problems import Problem


def render_prompt(prompt):
    # The published checkpoints were trained on exactly this string.
    return (
        "You are a helpful math assistant.\n"
        "Answer the question and write the final result on a new line as:\n"
        "\\boxed{ANSWER}\n\n"
        f"Question:\n{prompt}\n\n"
        "Answer:"
    )


def render_chat_prompt(problem: str) -> str:
    """A user's turn, for models that were trained on chats; the tokenizer wraps it in the
    chat template."""
    return f"{problem}\n\nReason step by step and write the final result as \\boxed{{ANSWER}}."


def few_shot_prompt(
    examples: Iterable[Problem], render: Callable[[str], str] = render_prompt
) -> Callable[[str], str]:
    """A prompt function that shows solved problems before the one that is asked."""
    solved = [f"{render(example.problem)}\n{solution_text(example)}" for example in examples]

    def render_with_examples(problem: str) -> str:
        return "\n\n\n".join([*solved, render(problem)])

    return render_with_examples


def solution_text(problem: Problem) -> str:
    """The solution as a model should write it: it ends with the answer in a box."""
    if "\\boxed{" in problem.solution:
        return problem.solution
    return f"{problem.solution}\n\\boxed{{{problem.answer}}}".lstrip()
