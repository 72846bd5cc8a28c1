"""Exercises: stubs that fail, checks that notice a mistake, solutions with the same checks."""

import json
import re

import pytest

from tests.conftest import ROOT

NOTEBOOKS = sorted(ROOT.glob("ch0*/ch0*.ipynb"))
RUN_BY_PYTEST = [path for path in NOTEBOOKS if not path.stem.endswith("_exercises")]

# For each exercise a solution that one could hand in, and that is wrong.
MISTAKES = {
    "6-1": "def sampled_mask(token_ids, prompt_lengths, lengths):\n"
    "    after = torch.arange(token_ids.shape[1]) >= torch.tensor(prompt_lengths)[:, None]\n"
    "    return (after & (token_ids != 0)).int()",
    "6-2": "def success_rates(advantage, runs=30):\n"
    "    return [float(train_ways(advantage) @ SUCCESS)] * runs",
    "6-3": "def adam_moves(gradients, lr=0.1, beta1=0.9, beta2=0.999):\n"
    "    return [-lr * (g > 0) + lr * (g < 0) for g in gradients]",
    "6-4": "def counted_pass_at_k(n, c, k):\n    return 1 - (1 - c / n) ** k",
    "7-1": "def gradient_flows(ratio, advantage, low=0.8, high=1.2):\n"
    "    return low < ratio < high",
    "7-2": "def paired(first, second):\n"
    "    mean = sum(second) / len(second) - sum(first) / len(first)\n"
    "    both = [*first, *second]\n"
    "    middle = sum(both) / len(both)\n"
    "    variance = sum((x - middle) ** 2 for x in both) / (len(both) - 1)\n"
    "    return mean, math.sqrt(variance / len(both))",
    "7-3": 'def hack(text, problem):\n    return float("Let\'s see" in text)',
    "7-4": "def my_changes():\n    return {'advantage': 'mean', 'aggregate': 'constant'}",
    "8-1": "def answer_loss(logits, ids, prompt_len):\n"
    "    return F.cross_entropy(logits[prompt_len:], ids[prompt_len:])",
    "8-2": "def two_averages(losses):\n"
    "    mean = torch.cat(losses).mean().item()\n"
    "    return mean, mean",
    "8-3": "def both_kinds(p, size):\n    return 1 - (1 - p)**size",
    "8-4": "def is_true(a, sign, b, c):\n"
    "    a, b, c = int(a), int(b), int(c)\n"
    "    return {'+': a + b, '-': a - b, '*': a * b, '/': a // b}[sign] == c",
    "8-5": "def kl(p, q):\n    return (q * (q / p).log()).sum()",
    "8-6": "def marks(student, teacher):\n"
    "    gaps = [q - p for p, q in zip(student, teacher, strict=True)]\n"
    "    return [gap - torch.cat(gaps).mean() for gap in gaps]",
    "8-7": "def maxrl(rewards):\n"
    "    mean = sum(rewards) / len(rewards)\n"
    "    spread = math.sqrt(mean * (1 - mean)) or 1.0\n"
    "    return [(reward - mean) / spread for reward in rewards]",
    "8-8": "def three_weights(gaps, cap=2.0):\n"
    "    whole = gaps.mean().exp().item()\n"
    "    return gaps.exp().clamp(max=cap), min(whole, cap), whole if whole <= cap else 0.0",
    "8-9": "def my_family():\n    return word_problems.Family('x', *[['{a}'] * 2] * 7)",
    "8-10": "def choose_and_report(accuracy, rates, held_back, test):\n"
    "    gains = {lr: [accuracy(lr, seed, test) - accuracy(rates[0], seed, test)\n"
    "                  for seed in (0, 1, 2)] for lr in rates}\n"
    "    best = max(gains, key=lambda lr: sum(gains[lr]))\n"
    "    mean = sum(gains[best]) / 3\n"
    "    return best, mean, math.sqrt(sum((g - mean)**2 for g in gains[best]) / 6)",
}
# A mask that ends with the first 0, and so trains on padding where an answer was cut off.
TO_THE_FIRST_ZERO = (
    "def sampled_mask(token_ids, prompt_lengths, lengths):\n"
    "    mask = torch.zeros_like(token_ids)\n"
    "    for row, ids, start in zip(mask, token_ids.tolist(), prompt_lengths):\n"
    "        end = ids.index(0, start) + 1 if 0 in ids[start:] else len(ids)\n"
    "        row[start:end] = 1\n"
    "    return mask"
)


def cells(path):
    """id -> cell, with the source as one string."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    return {cell["id"]: cell | {"source": "".join(cell["source"])} for cell in notebook["cells"]}


def pair(number):
    """The cells of the exercises and of the solutions of a chapter."""
    chapter = f"ch0{number.split('-')[0]}"
    folder = ROOT / chapter
    return [cells(folder / f"{chapter}_{kind}.ipynb") for kind in ("exercises", "solutions")]


def run(*sources):
    """Cells run one after the other in a fresh namespace, without a kernel."""
    names = {}
    for source in sources:
        exec(compile(source, "<cell>", "exec"), names)


@pytest.mark.parametrize("number", MISTAKES)
def test_both_notebooks_ask_and_check_the_same(number):
    exercises, solutions = pair(number)
    same = ("setup-text", "setup", f"exercise-{number}", f"exercise-{number}-check")
    for name in same:
        assert exercises[name]["source"] == solutions[name]["source"]
    assert f"exercise-{number}-why" in solutions
    title = exercises[f"exercise-{number}"]["source"].split(":")[0]
    assert title == f"## Exercise {number.replace('-', '.')}"


@pytest.mark.parametrize("number", MISTAKES)
def test_the_stub_fails(number):
    exercises, _ = pair(number)
    stub, check = (exercises[f"exercise-{number}-{kind}"]["source"] for kind in ("stub", "check"))
    with pytest.raises(NotImplementedError):
        run(exercises["setup"]["source"], stub, check)


@pytest.mark.parametrize("number, mistake", [*MISTAKES.items(), ("6-1", TO_THE_FIRST_ZERO)])
def test_a_mistake_is_noticed(number, mistake):
    _, solutions = pair(number)
    right, check = (
        solutions[f"exercise-{number}-{kind}"]["source"] for kind in ("solution", "check")
    )
    with pytest.raises(AssertionError):
        run(solutions["setup"]["source"], right, mistake, check)


def test_each_task_of_the_short_notebook_has_a_solution():
    tasks = cells(ROOT / "ch06/ch06_short.ipynb")["try-it"]["source"]
    numbers = re.findall(r"^(\d)\. ", tasks, re.M)
    solved = cells(ROOT / "ch06/ch06_solutions.ipynb")
    assert numbers == ["1", "2", "3"]
    for number in numbers:
        assert {f"short-{number}{part}" for part in ("", "-solution", "-why")} <= set(solved)


@pytest.mark.parametrize("path", RUN_BY_PYTEST, ids=lambda path: path.stem)
def test_outputs_are_committed(path):
    """nbval compares nothing in a cell that has not been run, and says so nowhere."""
    code = [
        cell
        for name, cell in cells(path).items()
        if cell["cell_type"] == "code" and name != "colab-install"  # which says nothing here
    ]
    counts = [cell["execution_count"] for cell in code]
    assert counts[0] in (1, 2)  # 2: it ran after the cell for Colab, which comes and goes
    assert counts == list(range(counts[0], counts[0] + len(code)))
    outputs = [output for cell in code for output in cell["outputs"]]
    assert not any(output["output_type"] == "error" for output in outputs)
