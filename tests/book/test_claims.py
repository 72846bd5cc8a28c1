"""What the pages say of stored runs is what the stored runs show."""

import csv
import json
from collections.abc import Iterable, Sequence
from math import isnan
from statistics import mean, stdev

import pytest
from first_questions import is_measured, measured
from gsm8k_chapter import rivals

from reasoning_from_scratch.scores import pass_at_k
from tests.conftest import ROOT

CH06, CH07, CH08 = (f"ch0{n}/ch0{n}_main.ipynb" for n in (6, 7, 8))
SMOLLM2 = "ch08/smollm2.md"
MINUS = "\N{MINUS SIGN}"
STAGES = "experiment experiment_24_steps experiment_24_steps_bfloat16 experiment_rates".split()


def text_of(page: str) -> str:
    """The words of a page, in one line; of a notebook only those around its code."""
    text = (ROOT / page).read_text("utf-8")
    if page.endswith(".ipynb"):
        cells = json.loads(text)["cells"]
        words = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
        text = "\n".join(words)
    return " ".join(text.replace("*", "").split())


def rows_of(file: str, **wanted: str) -> list[dict[str, str]]:
    rows = csv.DictReader((ROOT / file).read_text("utf-8").splitlines())
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


def numbers(rows: Iterable[dict[str, str]], column: str) -> list[float]:
    return [float(row[column]) for row in rows]


def percent(rows: Iterable[dict[str, str]], column: str) -> str:
    return f"{100 * mean(numbers(rows, column)):.1f}"


def from_teacher() -> str:
    """What three students cost in steps of GRPO, and where 60 steps of GRPO end."""
    rates, bfloat16 = "studies/experiment_rates.csv", "studies/experiment_24_steps_bfloat16.csv"
    students = rows_of(rates, stage="from-teacher", lr="6e-05")
    students = [row for row in students if row["seed"] in "012"]
    teachers = rows_of(bfloat16, stage="grpo")
    answers = rows_of(bfloat16, stage="teacher-answers")
    costs = [
        (grpo + asked + learned) / (grpo / 24)
        for grpo, asked, learned in zip(
            numbers(teachers, "seconds"),
            numbers(answers, "seconds"),
            numbers(students, "seconds"),
            strict=True,
        )
    ]
    longer = rows_of("studies/experiment.csv", stage="grpo")
    here, there = (
        [percent(rows, name) for name in ("fresh", "fresh_sampled", "fresh_pass@8")]
        for rows in (longer, students)
    )
    families = [percent(rows, "fresh_families") for rows in (students, longer)]
    return (
        f"the time of {min(costs):.0f} to {max(costs):.0f} steps of GRPO. After 60 steps (three "
        "seeds, the table Warm start and GRPO), GRPO itself is about level: "
        f"{here[0]}% with greedy decoding against the students' {there[0]}, and "
        f"{here[1]}% at temperature 1 against {there[1]}. GRPO's pass@8 is {here[2]}% against "
        f"{there[2]}. On the two new families the students stay ahead, "
        f"{families[0]} against {families[1]}%."
    )


def fresh(file: str, stage: str, lr: str) -> dict[str, float]:
    """Of each seed of a table, in percent: correct on the fresh problems."""
    rows = rows_of(f"studies/{file}.csv", stage=stage, lr=lr)
    return {row["seed"]: 100 * float(row["fresh"]) for row in rows if row["seed"] in "012"}


def seconds(file: str, stage: str, lr: str) -> dict[str, float]:
    rows = rows_of(f"studies/{file}.csv", stage=stage, lr=lr)
    return {row["seed"]: float(row["seconds"]) for row in rows}


def worked_solutions_at_two_rates() -> str:
    grpo = fresh("experiment_24_steps_bfloat16", "grpo", "3e-05")
    chosen = fresh("experiment_rates", "solutions", "6e-05")
    carried_over = fresh("experiment_24_steps_bfloat16", "solutions", "0.0002")
    ahead, before = (
        [round(found[seed] - grpo[seed]) for seed in "12"] for found in (chosen, carried_over)
    )
    took = seconds("experiment_rates", "solutions", "6e-05")
    grpo_took = seconds("experiment_24_steps_bfloat16", "grpo", "3e-05")
    more = [round(100 * (took[seed] / grpo_took[seed] - 1)) for seed in "12"]
    return (
        f"At 6e-5 they are {ahead[0]} and {ahead[1]} points ahead of GRPO. They take {more[0]} and "
        f"{more[1]}% more time. At "
        "2e-4, which we had carried over from the warm start, they led by "
        f"{before[0]} and {before[1]}"
    )


def students_and_their_teacher() -> str:
    grpo = fresh("experiment_24_steps_bfloat16", "grpo", "3e-05")
    students = fresh("experiment_rates", "from-teacher", "6e-05")
    (gain,) = {round(students[seed] - grpo[seed]) for seed in "012"}
    longer = mean(fresh("experiment", "grpo", "3e-05").values())
    return (
        f"In each of three seeds they end {gain} points above this teacher. But its "
        "steps cost time as well. With a little more time, GRPO itself gets about as far: "
        f"{longer:.1f}% after 60 steps, against the students' {mean(students.values()):.1f}% "
        "(means of three seeds)."
    )


def smollm2_in_chapter_8() -> str:
    warm, longer = (
        mean(fresh("experiment", stage, lr).values())
        for stage, lr in (("warm-start", "0.0002"), ("grpo", "3e-05"))
    )
    return (
        f"512 worked solutions take it to {warm:.0f}%, and 60 steps of GRPO to {longer:.0f}% "
        "(three seeds)"
    )


def other_text() -> str:
    before, after = (rows_of(GSM8K, **which)[0]["perplexity"] for which in (BASE, SEEDS[0]))
    rise = f"from {float(before):.0f} to {float(after):.0f}"
    return f"raise the perplexity of section 8.6's Qwen {rise}"


def fresh_rows() -> str:
    count = sum(bool(row["fresh"]) for name in STAGES for row in rows_of(f"studies/{name}.csv"))
    return f"By now {count} rows have been measured on them"


def rivals_seconds() -> str:
    """Where both ran for the choice of their learning rates, at those that were chosen."""
    rows = rows_of("studies/regimes.csv", regime="rivals")
    took = [
        mean(
            float(row["seconds"])
            for row in rows
            if row["arm"] == arm and row["lr"] == lr and 100 <= int(row["seed"]) < 103
        )
        for arm, lr in (("GRPO", "0.0004"), ("worked solutions", "0.0002"))
    ]
    of_grpo = [
        float(row["seconds"]) for row in rows if row["arm"] == "GRPO" and int(row["seed"]) < 100
    ]
    return (
        f"took anywhere from {min(of_grpo):.0f} to {max(of_grpo):.0f} seconds, so they do not say "
        "which method is faster. Where GRPO and worked solutions ran side by side, to choose their "
        f"learning rates, they took {took[0]:.0f} and {took[1]:.0f} seconds"
    )


def no_reward_without_a_warm_start() -> str:
    (row,) = rows_of("studies/experiment.csv", stage="grpo-untrained")
    assert float(row["sampled"]) == 0
    return f"None of its {int(row['steps']) * 16 * 8:,} answers was rewarded. So every"


def arithmetic(step: str) -> list[dict[str, str]]:
    settings = dict(lr="2e-05", problems="64", lora="0", step=step)
    return rows_of("studies/real_model_arithmetic.csv", **settings)


def a_real_model() -> str:
    before, after = arithmetic("0"), arithmetic("200")
    hours = [seconds / 3600 for seconds in numbers(after, "seconds")]
    names = "lr problems rollouts schedule lora".split()
    tried = rows_of("studies/real_model_arithmetic.csv", lora="0", step="0")
    settings = len({tuple(row[name] for name in names) for row in tried})
    words = {5: "five", 6: "six", 7: "seven"}[settings + 1]  # the file lacks one of the tried
    sampled, greedy = (
        [f"{100 * mean(numbers(rows, column)):.0f}" for rows in (before, after)]
        for column in ("sampled", "greedy")
    )
    ends = [100 * share for share in numbers(after, "sampled")]
    return (
        f"{min(hours):.1f} to {max(hours):.1f} hours on one core. Accuracy at temperature 1 "
        f"rises from {sampled[0]} to {sampled[1]}% (three seeds: {min(ends):.1f} to "
        f"{max(ends):.1f}%), with greedy decoding from {greedy[0]} to {greedy[1]}%. "
        f"The run's settings were the best of {words} tried"
    )


def four_examples() -> str:
    (row,) = rows_of("studies/experiment.csv", stage="untrained")
    in_steps, alone = (100 * float(row[name]) for name in ("fresh", "fresh_answer_only"))
    return f"{in_steps:.0f}% if it writes steps, {alone:.0f}% if it gives the answer alone"


def more_solutions() -> str:
    rates = rows_of("studies/experiment_rates.csv", stage="solutions", lr="6e-05")
    grpo = rows_of("studies/experiment_24_steps_bfloat16.csv", stage="grpo")
    better = [f"{100 * float(row['fresh']):.0f}" for row in rates if row["seed"] in "12"]
    behind = {f"{100 * float(row['fresh']):.0f}" for row in grpo if row["seed"] in "12"}
    assert len(behind) == 1
    return (
        f"{better[0]} and {better[1]}% (two seeds) in about the time of 24 steps of GRPO, which "
        f"reach {behind.pop()}%"
    )


def short_questions() -> str:
    file = "studies/first_questions.csv"
    plain, mixed = (
        rows_of(file, model=model, problems="tiny-test")
        for model in ("the quickstart", "short questions mixed in")
    )
    means = [
        f"{100 * sum(numbers(rows, 'correct')) / sum(numbers(rows, 'asked')):.1f}"
        for rows in (mixed, plain)
    ]
    return f"({means[0]}% instead of {means[1]}%, each the mean of three seeds)"


def products() -> str:
    asked = rows_of("studies/first_questions.csv", model="the quickstart", problems="a * b")
    shares = sorted(2 * int(row["correct"]) for row in asked)
    return "After the quickstart it solves {}, {} or {}%, depending on the seed".format(*shares)


def swapped() -> str:
    """How many of the measured products and sums may be trained on the other way round."""
    products, sums = (
        sum(not is_measured(" ".join(one.problem[8:-1].split()[::-1])) for one in measured(table))
        for table in ("a * b", "a + b")
    )
    return (
        f"Of the 50 products, {products} may come up in training with their numbers swapped, and "
        f"of the sums {sums}"
    )


def begun(page: str) -> str:
    rows = text_of("checkpoints/tiny-base/README.md")
    share = rows.split("greedy accuracy, solution begun for the model | ")[1].split("%")[0]
    if page == "README.md":
        return f'"Let\'s see.", the model already solves {float(share):.1f}% before this run'
    return f'"Let\'s see." and the untrained model solves {float(share):.1f}%'


GSM8K = "studies/gsm8k.csv"
BASE = {"arm": "base, four examples, no template"}
SEEDS = [{"arm": "grpo", "seed": seed} for seed in "30"]  # in the order of the page


def before_and_after(column: str) -> list[str]:
    return [percent(rows_of(GSM8K, **which), column) for which in (BASE, *SEEDS)]


def table_line(cells: Sequence[str]) -> str:
    """As `text_of` has it: an empty cell is a single space."""
    return " ".join(f"| {' | '.join(cells)} |".split())


def gsm8k_row(column: str) -> str:
    """The end of a line of the page's tables."""
    return "| " + " | ".join(f"{share}%" for share in before_and_after(column)) + " |"


def gains_of(which: dict[str, str]) -> list[float]:
    """For each test problem: 1 if it is solved only after training, -1 if only before, else 0."""
    return differences(answered(which, "greedy"), answered(BASE, "greedy"))


def points(gains: Sequence[float]) -> tuple[str, str]:
    """Their mean and its standard error."""
    return f"{100 * mean(gains):.1f}", f"{100 * stdev(gains) / len(gains) ** 0.5:.1f}"


def gsm8k_gains() -> str:
    return " | ".join("{} ({})".format(*points(gains_of(seed))) for seed in SEEDS)


def gsm8k_gained_and_lost() -> str:
    return " | ".join(f"{gains_of(seed).count(1)}, {gains_of(seed).count(-1)}" for seed in SEEDS)


def gsm8k_in_chapter_6() -> str:
    before, first, second = before_and_after("test_greedy")
    (gain, error), (other, same) = (points(gains_of(seed)) for seed in SEEDS)
    assert error == same
    return (
        f"With seed 3, accuracy on the test problems rises from {before} to {first}%; with seed 0, "
        f"to {second}%. The gains are {gain} and {other} points (standard error {error} each"
    )


def prompts_of_the_untrained() -> list[str]:
    """The figures of each line of the page's table, from the second column on."""
    lines = []
    for name, limit in (("four examples, no template", 200), ("four examples", 200), ("qwen", 320)):
        rows = rows_of(GSM8K, arm=f"base, {name}")
        longer = percent(rows, "greedy_longer") + "%" if rows[0]["greedy_longer"] else ""
        first, *rest = [percent(rows, column) + "%" for column in ("greedy", "box", "latex")]
        shares = [first, longer, *rest]
        tokens = f"{float(rows[0]['tokens']):.0f}"
        cut_off = f"{limit} tokens: {percent(rows, 'cut_off')}%"
        lines.append(table_line([*shares, tokens, cut_off]))
    return lines


CONTINUED = "held_back, cut-off answers continued"


def above_the_better_prompt(with_640_tokens: bool) -> str:
    """How far the trained models are above the untrained one with Qwen's own prompt."""
    qwen = answered({"arm": "base, qwen"}, CONTINUED if with_640_tokens else "held_back")
    gaps = " and ".join(
        "{} points ({})".format(*gap(answered(seed, "held_back"), qwen)) for seed in SEEDS
    ).replace("-", MINUS)
    return f"differences are {gaps}" if with_640_tokens else f"end {gaps} above Qwen's own prompt"


def at_temperature_1_with_its_own_prompt() -> str:
    qwen, examples = (
        [percent(rows_of(GSM8K, **which), column) for column in ("sampled", "pass@8")]
        for which in ({"arm": "base, qwen"}, BASE)
    )
    return (
        f"it solves {qwen[0]}% with its own prompt and {examples[0]}% with the examples; at least "
        f"one of the eight is correct for {float(qwen[1]):.0f} and {float(examples[1]):.0f}% of"
    )


QWENS = {"arm": "base, qwen"}
CROSSED = {"arm": "grpo, asked with Qwen's prompt", "seed": "3"}


def carries_over(with_640_tokens: bool) -> str:
    """What was learned with one prompt, asked with another."""
    read = CONTINUED if with_640_tokens else "held_back"
    before, after = (answered(one, read) for one in (QWENS, CROSSED))
    points_more, error = gap(after, before)
    late, early = (f"{100 * mean(one):.1f}" for one in (after, before))
    if with_640_tokens:
        return f"it solves {late} instead of {early}%, again {points_more} points more ({error})"
    return f"solves {late}% instead of {early}%: {points_more} points more ({error})"


def carries_over_at_temperature_1() -> str:
    before, after = (answered(one, "held_back_sampled", tries=8) for one in (QWENS, CROSSED))
    once = [f"{100 * mean(share > 0 for share in one):.0f}" for one in (after, before)]
    return (
        f"it solves {100 * mean(after):.1f} instead of {100 * mean(before):.1f}% of the first 50 "
        "problems, {} points more ({}), and at least one of eight answers is correct for "
        "{} instead of {}% of them"
    ).format(*gap(after, before), *once)


def on_the_test_set() -> list[tuple[str, str]]:
    """What is left there of the gain with Qwen's own prompt."""
    before, after = (answered(one, "greedy") for one in (QWENS, CROSSED))
    trained = [answered(one, "greedy") for one in SEEDS]
    early, late, third, first = (f"{100 * mean(one):.1f}" for one in (before, after, *trained))
    points_more, error = gap(after, before)
    (ahead, its), (behind, others) = (gap(one, before) for one in trained)
    behind = behind.removeprefix("-")
    more = f"{points_more} points more ({error})"
    assert its == others
    there = [answered(one, "held_back") for one in (CROSSED, QWENS)]
    gains = differences(*there), differences(after, before)
    half, half_error = gap(after[:660], before[:660])
    rest = "{} points apart ({})".format(*gap(after[660:], before[660:]))
    boxes, correct = (
        [percent(rows_of(GSM8K, **one), column) for one in (QWENS, CROSSED)]
        for column in ("test_box", "test_correct_in_box")
    )
    shown = points(gains_of(SEEDS[0]))[0]  # with the prompt of the training run
    apart = 100 * (mean(gains[0]) - mean(gains[1]))
    its_error = 100 * sum(stdev(some) ** 2 / len(some) for some in gains) ** 0.5
    return [
        (
            "docs/gsm8k.md",
            f"There the untrained model solves {early}%. With the four examples, the model of "
            f"seed 3 solves {third}% of them and that of seed 0 {first}%: they are {ahead} points "
            f"({its}) above and {behind} points ({others}) below",
        ),
        (
            "docs/gsm8k.md",
            f"Of the test problems it solves {late}% and the untrained model {early}%: {more}",
        ),
        (
            "docs/gsm8k.md",
            f"(The two gains differ by {apart:.1f} points, standard error {its_error:.1f},",
        ),
        (
            "docs/gsm8k.md",
            f"a third of the gain carries over: {points_more} points with Qwen's prompt, where the "
            f"prompt of the training run shows {shown}.",
        ),
        (
            "docs/gsm8k.md",
            f"{boxes[0]}% of the untrained model's answers have a box and {boxes[1]}% of the "
            f"trained one's; of these, {correct[0]} and {correct[1]}% are correct",
        ),
        (
            "docs/gsm8k.md",
            f"After its first 660 problems the two models were {half} points apart ({half_error}), "
            "and this page said that hardly any of the gain carries over. On the other 659 they "
            f"are {rest}",
        ),
        (
            "docs/gsm8k.md",
            f"seed 3 gained only {points_more} points ({error}) on the test problems",
        ),
        (
            CH06,
            f"with Qwen's prompt, the trained model solves {late}% and the untrained one "
            f"{early}%: {more}, where the examples show {shown}",
        ),
        (CH06, f"after its first 660 problems the difference was {half} points ({half_error})"),
        (
            CH08,
            f"But of the test problems it solves {late}%, and the untrained model {early}%: {more}",
        ),
        (
            CH08,
            f"it solves {third}% of them, {ahead} points ({its}) more than the untrained model "
            f"with Qwen's prompt. Seed 0's model solves {behind} points ({others}) fewer",
        ),
        (
            "checkpoints/qwen-gsm8k/README.md",
            f"of its 1,319 problems, it solves {late}% with the adapter and {early}% without "
            f"(standard error of the difference {error} points)",
        ),
        (
            "README.md",
            f"the untrained model solves {early}% of the test problems, {ahead} points fewer than "
            f"the first of the two trained ones with the examples, and {behind} points more than "
            f"the second (standard errors {its}). Asked with Qwen's prompt, which "
            f"its training never used, the first one solves {late}% (standard error of its gain "
            f"{error})",
        ),
    ]


def with_qwens_prompt_in_chapter_6() -> str:
    late, early = (
        [
            f"{100 * mean(answered(one, read, tries)):.1f}"
            for read, tries in ((CONTINUED, 1), ("held_back_sampled", 8))
        ]
        for one in (CROSSED, QWENS)
    )
    return (
        f"With 640 tokens it solves {late[0]} instead of {early[0]}%. At temperature 1, with eight "
        f"answers to each of the first 50 problems, it solves {late[1]} instead of {early[1]}%"
    )


def own_prompt_in_chapter_6() -> str:
    qwen, examples = (answered(one, "held_back") for one in (QWENS, BASE))
    after = [answered(seed, "held_back") for seed in SEEDS]
    (third, its_error), (first, error) = (gap(one, qwen) for one in after)
    better, worse, *trained = (f"{100 * mean(one):.1f}%" for one in (qwen, examples, *after))
    return (
        f"it solves {better} of the 200 held-out problems, and with the examples {worse}. The two "
        f"trained models solve {trained[0]} (seed 3) and {trained[1]} (seed 0) of them: {third} "
        f"and {first} points more than the untrained model with the better prompt (standard errors "
        f"{its_error} and {error})"
    )


def gsm8k_in_readme() -> list[str]:
    """A sentence, and the lines of the table."""
    before, first, second = (float(share) for share in before_and_after("test_greedy"))
    lines = [
        f"it goes from {before:.0f} to {first:.0f}% of the 1,319 test problems with one seed, and "
        f"to {second:.0f}% with another"
    ]
    for rows in (
        rows_of(GSM8K, **BASE),
        rows_of(GSM8K, **QWENS),
        [row for seed in SEEDS for row in rows_of(GSM8K, **seed)],
        rows_of(GSM8K, arm="solutions"),
        rows_of(GSM8K, arm="distilled"),
    ):
        shares = (
            ", ".join(percent([row], column) for row in rows) for column in ("greedy", "sampled")
        )
        hours = ", ".join(f"{float(row['seconds']) / 3600:.1f}" for row in rows if row["seconds"])
        lines.append(table_line([*(f"{share}%" for share in shares), hours]))
    return lines


def gsm8k_elsewhere() -> dict[str, str]:
    before, first, second = before_and_after("test_greedy")
    return {
        "index.md": f"took Qwen2.5-Coder-0.5B from {before} to {first}% of GSM8K's 1,319 test "
        f"problems. With a second seed it was {second}%",
        "docs/real_tasks.md": f"take Qwen2.5-Coder-0.5B from {before} to {first}% of the test "
        f"problems with one seed, and to {second}% with another",
        "checkpoints/README.md": f"solves {first}% of the test problems instead of {before}% (the "
        f"same settings with another seed: {second}%)",
    }


def a_falling_rate() -> str:
    arms = ("grpo-falling", "grpo")
    falling, constant = (
        [100 * float(row[column]) for column in ("sampled", "greedy")]
        for arm in arms
        for row in rows_of(GSM8K, arm=arm, seed="3")
    )
    late, plain = (
        answered({"arm": arm, "seed": "3"}, "held_back_sampled", tries=8) for arm in arms
    )
    return (
        f"it ends at {falling[0]:.2f}% at temperature 1, and at {falling[1]:.1f}% with greedy "
        f"decoding; with a constant rate it was {constant[0]:.1f} and {constant[1]:.1f}%. The "
        f"difference at temperature 1 is {100 * (mean(plain) - mean(late)):.2f} points "
        f"({gap(plain, late)[1]})"
    )


def last_steps() -> str:
    """Both runs of seed 3 drop where both have the same problems."""
    drops = []
    for arm, seed in (("grpo", "3"), ("grpo-falling", "3")):
        curve = rows_of("studies/gsm8k_curves.csv", arm=arm, seed=seed)
        before, last = (mean(float(row["reward"]) for row in curve[a : a + 5]) for a in (40, 45))
        drops.append(before - last)
    assert min(drops) > 0.04
    return "both drop there"


def answered(which: dict[str, str], read: str, tries: int = 1) -> list[float]:
    """For each problem of a set, the share of its answers that are correct."""
    (row,) = rows_of("studies/gsm8k_problems.csv", set=read, **which)
    return [int(count) / tries for count in row["correct"]]


def differences(after: Sequence[float], before: Sequence[float]) -> list[float]:
    return [late - early for late, early in zip(after, before, strict=True)]


def gap(after: Sequence[float], before: Sequence[float]) -> tuple[str, str]:
    """The mean difference over the same problems, in points, and its standard error."""
    return points(differences(after, before))


def in_latex(chapter: bool) -> str:
    """How the answers to the test problems are written, before and after."""
    before, plain, latex = (
        f"{100 * mean(answered(one, 'greedy, in LaTeX')):.0f}%" for one in (BASE, *SEEDS)
    )
    assert before_and_after("test_latex")[1:] == ["25.2", "93.6"]
    if chapter:
        return f"After training, the share is {plain} with seed 3 and {latex} with seed 0"
    return f"{before} of the answers to the test problems have steps like"


def where_they_write_differently() -> list[str]:
    """The lines of the table: the test problems by how the two trained models write."""
    untrained, third, first = (answered(one, "greedy") for one in (BASE, *SEEDS))
    ways = list(zip(*(answered(one, "greedy, in LaTeX") for one in SEEDS), strict=True))
    lines = []
    for chosen in ({(1, 1)}, {(0, 1)}, {(0, 0), (1, 0)}):
        places = [place for place, way in enumerate(ways) if way in chosen]
        shares = [100 * mean(some[place] for place in places) for some in (untrained, third, first)]
        gap, error = points([third[place] - first[place] for place in places])
        cells = " | ".join(f"{share:.1f}%" for share in shares)
        lines.append(f"| {len(places)} | {cells} | {gap} ({error}) |")
    return lines


def advantage_of_latex(steps: Sequence[dict[str, str]]) -> tuple[float, float]:
    """The mean advantage of the LaTeX answers that had rivals, and its error over the steps."""
    some = [(float(row["rivals"]), float(row["advantage"])) for row in steps if row["advantage"]]
    every = sum(rivals for rivals, _ in some)
    average = sum(rivals * advantage for rivals, advantage in some) / every
    squares = sum((rivals * (advantage - average)) ** 2 for rivals, advantage in some)
    return average, (squares * len(some) / (len(some) - 1)) ** 0.5 / every


def advantages_of_latex() -> str:
    curve = rows_of("studies/gsm8k_curves.csv", arm="grpo", seed="0")
    means = [advantage_of_latex(curve[a : a + 10])[0] for a in range(0, 50, 10)]
    assert max(means[:2]) < 0
    return f"between {min(means):.2f} and {max(means):.2f} in each block of ten steps".replace(
        "-", MINUS
    )


def latex_spread_twice() -> str:
    curve = rows_of("studies/gsm8k_curves.csv", arm="grpo", seed="0")
    start, middle, low, high = (
        f"{100 * mean(numbers(curve[a : a + 5], 'latex')):.0f}" for a in (0, 15, 25, 35)
    )
    (first, error), (second, its_error) = (
        advantage_of_latex(curve[a:b]) for a, b in ((0, 20), (30, 40))
    )
    return (
        f"in the first twenty steps from {start} to {middle}% of the answers, with a mean "
        f"advantage of {first:.2f} (standard error over the steps {error:.2f}), and in steps 31 "
        f"to 40 from {low} to {high}%, with a mean advantage of {second:.2f} ({its_error:.2f})"
    ).replace("-", MINUS)


def style_at_a_falling_rate() -> str:
    (row,) = rows_of(GSM8K, arm="grpo-falling", seed="3")
    return f"{100 * float(row['latex']):.0f}% of the answers to the held-out problems are in LaTeX"


def rivals_of_grpo() -> list[str]:
    """The figures of each row of the page's table."""
    lines = []
    for row in rivals().to_dict("records"):
        hours, gap = row["hours"], row["minus GRPO"]
        cells = (
            "" if isnan(hours) else f"{hours:.1f}",
            f"{row['greedy']:.1f}%",
            "" if isnan(gap) else f"{gap:+.1f} ({row['error']:.1f})".replace("-", MINUS),
            f"{row['temperature 1']:.1f}%",
            f"{row['one of eight']:.0f}%",
        )
        lines.append(table_line(cells))
    return lines


def beyond_gsm8k(problems: str) -> tuple[str, ...]:
    """Of other problems: correct after and before, the gain, its error, how many won and lost."""
    after, before = (answered(one, problems) for one in (SEEDS[0], BASE))
    gains = differences(after, before)
    shares = (f"{100 * mean(some):.1f}" for some in (after, before))
    return (*shares, *points(gains), f"{gains.count(1)}", f"{gains.count(-1)}")


SIXTEEN = "sixteen, first 50"  # at temperature 1
COOLER = "sixteen at temperature 0.6, first 50"
TRIES = (1, 2, 4, 8, 16)


def solved_within(which: dict[str, str], read: str, tries: int) -> list[float]:
    """For each problem, pass@tries, estimated from its sixteen answers."""
    (row,) = rows_of("studies/gsm8k_problems.csv", set=read, **which)
    return [pass_at_k(16, int(count, 17), tries) for count in row["correct"]]


def sixteen_tries() -> list[str]:
    """The lines of the page's two tables."""
    untrained, cooler, trained, with_qwens, trained_with_qwens = (
        [solved_within(which, read, tries) for tries in TRIES]
        for which, read in (
            (BASE, SIXTEEN), (BASE, COOLER), (SEEDS[0], SIXTEEN), (QWENS, COOLER), (CROSSED, COOLER)
        )
    )  # fmt: skip
    shares = [
        table_line([f"{100 * mean(solved):.1f}%" for solved in line])
        for line in (untrained, cooler, trained, with_qwens, trained_with_qwens)
    ]
    gaps = [
        table_line(["{} ({})".format(*gap(*pair)) for pair in zip(after, before, strict=True)])
        for after, before in (
            (trained, untrained),
            (trained, cooler),
            (trained_with_qwens, with_qwens),
            (trained, with_qwens),
        )
    ]
    return [*shares, *gaps]


def only_after_and_only_before(after: list[float], before: list[float]) -> tuple[int, int]:
    """How many problems are solved only after training, and how many only before it."""
    gains = differences(after, before)
    return gains.count(1), gains.count(-1)


def sixteen_tries_in_words() -> dict[str, list[str]]:
    """With the examples: the pages, and what they say of them."""
    cooler, trained = (
        solved_within(which, read, 16) for which, read in ((BASE, COOLER), (SEEDS[0], SIXTEEN))
    )
    early, before, after = (
        f"{100 * mean(solved):.1f}%"
        for solved in (solved_within(BASE, SIXTEEN, 16), cooler, trained)
    )
    more, error = gap(trained, cooler)
    assert only_after_and_only_before(trained, cooler) == (10, 0)
    first_tries = [
        sum(solved_within(which, read, 1)) / sum(solved_within(which, f"{read}, with a box", 1))
        for which, read in ((BASE, COOLER), (SEEDS[0], SIXTEEN))
    ]
    in_box = " and ".join(
        f"{100 * share:.1f}% {when}"
        for share, when in zip(
            first_tries, ("are correct before (at temperature 0.6)", "after"), strict=True
        )
    )
    ten = "Ten problems are solved only after training, and none only before it."
    return {
        "docs/gsm8k.md": [
            f"finds a correct answer to {before} of the problems, after training the model finds "
            f"one to {after}. {ten}",
            f"of the answers with a box, {in_box}",
        ],
        CH06: [
            f"solves {early} of them at temperature 1, and {before} at 0.6, where it is less "
            f"random. The model trained with seed 3 solves {after}: {more} points more ({error}) "
            f"than the better of the two. {ten}"
        ],
        CH08: [f"With the examples the two are {more} points apart ({error})"],
    }


def sixteen_tries_with_qwens_prompt() -> dict[str, list[str]]:
    """With Qwen's own prompt: the pages, and what they say of them."""
    before, after = (solved_within(which, COOLER, 16) for which in (QWENS, CROSSED))
    old, new = (f"{100 * mean(solved):.1f}%" for solved in (before, after))
    more, error = gap(after, before)
    once = "by {} points ({})".format(
        *gap(*(solved_within(which, COOLER, 1) for which in (CROSSED, QWENS)))
    )
    assert only_after_and_only_before(after, before) == (5, 3)
    examples = solved_within(SEEDS[0], SIXTEEN, 16)
    assert only_after_and_only_before(examples, before) == (8, 3)
    by_prompt = gap(before, solved_within(BASE, COOLER, 16))
    return {
        "docs/gsm8k.md": [
            f"it finds a correct answer to {old} of the problems, and the trained model, asked in "
            f"the same way, to {new}. Five problems are solved only after training, and three only "
            f"before it. With one try the trained model leads {once}; with sixteen, by {more} "
            f"({error})",
            "The prompt alone adds {} points ({})".format(*by_prompt),
        ],
        CH06: [
            f"the untrained model solves {old} within sixteen tries, and the trained one {new}, "
            f"{more} points more ({error}). With one try the trained model leads {once}"
        ],
        CH08: [
            f"finds a correct answer to {old} of 50 test problems, and GRPO's model (seed 3) to "
            f"{new}, {more} points more ({error})"
        ],
        "README.md": [
            f"finds a correct answer to {old} of 50 test problems, the trained one to {new} "
            f"(standard error of the difference {error})"
        ],
    }


SOLUTIONS = {"arm": "solutions", "seed": "3"}


def rivals_in_chapter_8() -> list[str]:
    third, first, solutions, its_own, distilled, untrained = (
        rows_of(GSM8K, **which)[0]
        for which in (
            *SEEDS,
            *({"arm": arm, "seed": "3"} for arm in ("solutions", "own-answers", "distilled")),
            BASE,
        )
    )
    behind, error = gap(*(answered(one, "held_back") for one in (SOLUTIONS, SEEDS[0])))
    hours = [float(row["seconds"]) / 3600 for row in (solutions, third)]
    halfway = [
        rows_of("studies/gsm8k_curves.csv", held_back_after="25", lr="0.0001", **seed)[0]
        for seed in SEEDS
    ]
    until_then = [
        sum(float(row["processor_seconds"]) for row in steps[:25]) / 3600
        for steps in (rows_of("studies/gsm8k_curves.csv", **seed) for seed in SEEDS)
    ]
    same_50 = [100 * mean(answered(one, "held_back")[:50]) for one in (SOLUTIONS, SEEDS[0])]
    sampled = [100 * float(row["sampled"]) for row in (solutions, third, first, its_own, distilled)]
    less, its_error = gap(
        *(
            answered({"arm": arm, "seed": "3"}, "held_back_sampled", tries=8)
            for arm in ("distilled", "solutions")
        )
    )
    below, of_200 = gap(*(answered(seed, "held_back") for seed in SEEDS))
    below_there, of_all = gap(*(answered(seed, "greedy") for seed in SEEDS))
    prompt, its = gap(*(answered(one, "held_back") for one in (QWENS, BASE)))
    new, old, _, of_new, *_ = beyond_gsm8k("gym")
    assert float(rows_of(GSM8K, **QWENS)[0]["tokens"]) / float(untrained["tokens"]) > 2.35
    return [
        f"They end {behind.removeprefix('-')} points behind it (standard error {error}), after "
        f"{hours[0]:.1f} hours instead of {hours[1]:.1f}. But after {min(until_then):.1f} to "
        f"{max(until_then):.1f} hours GRPO is at {percent(halfway[:1], 'held_back')}% with seed 3 "
        f"and at {percent(halfway[1:], 'held_back')}% with seed 0.",
        f"with {sampled[0]:.0f} against {sampled[1]:.1f} and {sampled[2]:.1f}%.",
        f"greedy decoding solves {same_50[0]:.0f}% after worked solutions and {same_50[1]:.0f}%",
        f"it ends at {sampled[3]:.0f}% at temperature 1 and at "
        f"{100 * float(its_own['greedy']):.0f}% with greedy decoding",
        f"take the student to {sampled[4]:.0f}%, and 2,592 solutions by people to "
        f"{sampled[0]:.0f}%, {less} points less ({its_error}).",
        f"Seed 0 ends {below} points ({of_200}) below seed 3, and {below_there} ({of_all}) below "
        f"it on the 1,319 test problems. Qwen's prompt alone is worth {prompt} points ({its})",
        f"seed 3's model solves {new}%, the untrained one {old}% (with the four examples; standard "
        f"error of the difference {of_new})",
    ]


def beyond_gsm8k_lines() -> list[str]:
    """The lines of the page's table."""
    lines = []
    for problems in ("greedy", "gym", "math500"):
        after, before, gain, error, won, lost = beyond_gsm8k(problems)
        lines.append(table_line([f"{before}%", f"{after}%", f"{gain} ({error})", f"{won}, {lost}"]))
    before, after = (float(rows_of(GSM8K, **which)[0]["perplexity"]) for which in (BASE, SEEDS[0]))
    return [*lines, table_line([f"{before:.0f}", f"{after:.0f}", "", ""]), math_by_form()]


def math_by_form() -> str:
    sets = ("math500, with a box", "math500")
    (box, correct), (box_after, correct_after) = (
        [answered(one, name) for name in sets] for one in (BASE, SEEDS[0])
    )
    return (
        f"{100 * mean(box):.0f}% of the answers have a box before and {100 * mean(box_after):.0f}% "
        f"after, and of those, {100 * sum(correct) / sum(box):.1f} and "
        f"{100 * sum(correct_after) / sum(box_after):.1f}% are correct"
    )


def new_problems_in_chapter_6() -> str:
    after, before, gain, error, *_ = beyond_gsm8k("gym")
    of_math = beyond_gsm8k("math500")
    return (
        f"solves {before}% of them, and the model trained with seed 3 solves {after}%: {gain} "
        f"points more ({error}), about as many as on the test set. So the gain is not memory. On "
        "MATH-500, which is harder and which no step trained on, accuracy goes from "
        f"{of_math[1]} to {of_math[0]}%"
    )


def new_problems_in_readme() -> str:
    after, before, _, error, *_ = beyond_gsm8k("gym")
    return (
        f"on 200 newly generated problems, the first seed goes from {before} to {after}% (standard "
        f"error of the difference {error} points)"
    )


def rivals_in_readme() -> str:
    gaps = [
        gap(*(answered({"arm": arm, "seed": "3"}, "held_back") for arm in (rival, "grpo")))
        for rival in ("solutions", "distilled")
    ]
    assert all(abs(float(points_more)) < float(error) for points_more, error in gaps)
    return (
        "cannot be told apart from GRPO's first seed "
        f"(standard errors {gaps[0][1]} and {gaps[1][1]} points"
    )


def with_twice_as_many_tokens() -> str:
    third, first = (rows_of(GSM8K, **seed) for seed in SEEDS)
    assert percent(first, "greedy_longer") == percent(first, "greedy")
    return (
        f"still solves {percent(first, 'greedy_longer')}% of the held-out problems, and seed 3's "
        f"solves {percent(third, 'greedy_longer')} instead of {percent(third, 'greedy')}%"
    )


def ahead_at_temperature_1() -> str:
    grpo, solutions = (
        answered({"arm": arm, "seed": "3"}, "held_back_sampled", tries=8)
        for arm in ("grpo", "solutions")
    )
    return "far ahead of the worked solutions: by {} points ({})".format(*gap(grpo, solutions))


def falling_rate_in_chapter_7() -> str:
    found = {}
    for read, tries in (("held_back", 1), ("held_back_sampled", 8)):
        constant, falling = (
            answered({"arm": arm, "seed": "3"}, read, tries) for arm in ("grpo", "grpo-falling")
        )
        found[read] = gap(constant, falling)
    assert found == {"held_back": ("4.0", "2.9"), "held_back_sampled": ("11.2", "3.0")}
    return (
        "With greedy decoding, Qwen on GSM8K solves 28.5% of the held-out problems instead of "
        "32.5%; at temperature 1, 19.2% instead of 30.5% (standard errors of the differences 2.9 "
        "and 3.0"
    )


def gsm8k_in_the_card() -> str:
    return f"with seed 0 the same settings end at {before_and_after('test_greedy')[2]}% of the test"


@pytest.mark.parametrize(
    "page, sentence",
    [
        ("docs/gsm8k.md", f"| correct {gsm8k_row('test_greedy')}"),
        ("docs/gsm8k.md", f"| answers with a box {gsm8k_row('test_box')}"),
        ("docs/gsm8k.md", f"| correct among those {gsm8k_row('test_correct_in_box')}"),
        ("docs/gsm8k.md", f"| cut off at the limit {gsm8k_row('test_cut_off')}"),
        ("docs/gsm8k.md", gsm8k_row("test_last_number")),
        ("docs/gsm8k.md", gsm8k_gains()),
        ("docs/gsm8k.md", gsm8k_gained_and_lost()),
        (CH06, gsm8k_in_chapter_6()),
        ("checkpoints/qwen-gsm8k/README.md", gsm8k_in_the_card()),
        ("docs/gsm8k.md", f"| correct, greedy decoding {gsm8k_row('greedy')}"),
        ("docs/gsm8k.md", f"| correct among the answers with a box {gsm8k_row('correct_in_box')}"),
        ("docs/gsm8k.md", f"| answers with a box {gsm8k_row('box')}"),
        ("docs/gsm8k.md", f"| answers cut off at the limit {gsm8k_row('cut_off')}"),
        ("docs/gsm8k.md", gsm8k_row("sampled")),
        ("docs/gsm8k.md", a_falling_rate()),
        ("docs/gsm8k.md", last_steps()),
        ("docs/gsm8k.md", in_latex(chapter=False)),
        (CH06, in_latex(chapter=True)),
        *(("docs/gsm8k.md", line) for line in where_they_write_differently()),
        ("docs/gsm8k.md", advantages_of_latex()),
        (CH06, advantages_of_latex()),
        ("docs/gsm8k.md", latex_spread_twice()),
        ("docs/gsm8k.md", style_at_a_falling_rate()),
        *(("docs/gsm8k.md", line) for line in rivals_of_grpo()),
        *(("docs/gsm8k.md", line) for line in sixteen_tries()),
        *(
            (page, line)
            for words in (sixteen_tries_in_words(), sixteen_tries_with_qwens_prompt())
            for page, lines in words.items()
            for line in lines
        ),
        ("docs/gsm8k.md", ahead_at_temperature_1()),
        ("docs/gsm8k.md", with_twice_as_many_tokens()),
        ("docs/gsm8k.md", f"| at least one of the eight correct {gsm8k_row('pass@8')}"),
        *(("README.md", line) for line in gsm8k_in_readme()),
        *gsm8k_elsewhere().items(),
        *(("docs/gsm8k.md", line) for line in prompts_of_the_untrained()),
        ("docs/gsm8k.md", above_the_better_prompt(with_640_tokens=False)),
        ("docs/gsm8k.md", above_the_better_prompt(with_640_tokens=True)),
        (CH06, own_prompt_in_chapter_6()),
        ("docs/gsm8k.md", at_temperature_1_with_its_own_prompt()),
        ("docs/gsm8k.md", carries_over(with_640_tokens=False)),
        (CH06, carries_over(with_640_tokens=False)),
        ("docs/gsm8k.md", carries_over(with_640_tokens=True)),
        ("docs/gsm8k.md", carries_over_at_temperature_1()),
        (CH06, with_qwens_prompt_in_chapter_6()),
        *on_the_test_set(),
        *((CH08, sentence) for sentence in rivals_in_chapter_8()),
        ("README.md", rivals_in_readme()),
        ("README.md", new_problems_in_readme()),
        (CH06, new_problems_in_chapter_6()),
        *(("docs/gsm8k.md", line) for line in beyond_gsm8k_lines()),
        *(
            ("checkpoints/qwen-gsm8k/README.md", f"| {before}% | {after}% |")
            for after, before, *_ in map(beyond_gsm8k, ("gym", "math500"))
        ),
        (CH07, falling_rate_in_chapter_7()),
        (CH06, short_questions()),
        (CH06, products()),
        (CH06, swapped()),
        (SMOLLM2, from_teacher()),
        (SMOLLM2, fresh_rows()),
        (CH08, rivals_seconds()),
        (SMOLLM2, worked_solutions_at_two_rates()),
        (SMOLLM2, students_and_their_teacher()),
        (CH08, smollm2_in_chapter_8()),
        (CH08, other_text()),
        (SMOLLM2, no_reward_without_a_warm_start()),
        ("README.md", a_real_model()),
        ("README.md", four_examples()),
        ("README.md", more_solutions()),
        ("README.md", begun("README.md")),
        ("index.md", begun("index.md")),
    ],
)
def test_a_sentence_has_the_numbers_of_its_file(page, sentence):
    assert sentence.replace("*", "") in text_of(page)


@pytest.mark.parametrize(
    "page, words",
    [
        (CH08, "surpass their teacher by"),  # its own steps were not counted
        (CH08, "why distillation is cheap"),  # shown nowhere
        (CH08, "much cheaper"),
        (CH08, "the cheapest way"),  # no other was tried
        (CH08, "with each of two other seeds"),  # there are no such rows
        (CH08, "Nor could RL start"),
        (CH08, "necessary but not sufficient"),  # one tiny model, and 24 problems
        (CH08, "less than the accuracy at temperature 1"),  # not from 64 problems
        (CH08, "only on stories like those in training"),
        (CH08, "more than on anything else"),
        (CH08, "it is nothing"),
        (CH07, "that adds up"),  # the laboratory did not separate it from another reason
        (CH06, "a little over an hour on one core"),
        ("README.md", "4 to 7%"),  # of other problems than the 49 and 64%
    ],
)
def test_what_no_file_shows_is_not_said(page, words):
    assert words not in text_of(page)
