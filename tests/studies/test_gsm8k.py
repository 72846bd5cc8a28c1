"""The study of GSM8K, on a tiny model and on sums that look like GSM8K's file."""

import json
import os
import shutil

import pytest

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.problems import PLACEHOLDER
from reasoning_from_scratch.sampling import Sampling
from rfs.files.tables import read_table, write_table
from tests.studies.made_data import write_gsm8k, write_rows

import costs  # isort: skip
import gsm8k  # isort: skip
import gsm8k_lessons  # isort: skip
import gsm8k_picture  # isort: skip
import gsm8k_questions as questions  # isort: skip
import gsm8k_styles  # isort: skip
import gsm8k_table  # isort: skip
import gsm8k_measurements  # isort: skip

# The rows of what was trained: most are asked with a second prompt, too.
CROSSED = [
    arm + gsm8k.ASKED_WITH_QWEN_PROMPT for arm in gsm8k.RATES if arm not in gsm8k.OTHER_PROMPTS
]
TRAINED = [*gsm8k.RATES, *CROSSED]
LEARNED = ("own-answers", "solutions", "distilled", "distilled-grpo", "on-policy")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """The two files, in the folder that everything below runs in."""
    folder, before = tmp_path_factory.mktemp("gsm8k"), os.getcwd()
    write_gsm8k(folder)
    write_rows(folder / "other.jsonl", [{"problem": "1 + 1?", "answer": "2"}] * 3)
    os.chdir(folder)
    questions.split.cache_clear()
    yield folder
    questions.split.cache_clear()
    os.chdir(before)


@pytest.fixture(scope="module")
def small():
    """Sizes with which an arm takes a second. The tiny model solves none of these problems, so its
    answers pass as correct where answers are learned."""
    with pytest.MonkeyPatch.context() as patch:
        every = gsm8k_measurements.load_problems
        patch.setattr(questions, "HELD_BACK", 4)
        patch.setattr(questions, "MAX_NEW_TOKENS", 32)
        patch.setattr(questions, "MAX_NEW_TOKENS_FREE", 32)
        patch.setattr(gsm8k, "MAX_NEW_TOKENS", 64)
        patch.setattr(gsm8k_lessons, "SAMPLING", Sampling(32, rollouts=2, temperature=0.7))
        patch.setattr(gsm8k_lessons, "correctness", lambda text, answer: 1.0)
        patch.setattr(gsm8k_measurements, "load_problems", lambda name: every(name)[:6])
        patch.setattr(gsm8k_measurements, "PROBLEMS_ANSWERED_8_TIMES", 2)
        patch.setattr(gsm8k_measurements, "PROBLEMS_ANSWERED_16_TIMES", 2)
        patch.setattr(gsm8k_measurements, "PROBLEMS_TO_READ", 3)
        others = dict.fromkeys(gsm8k_measurements.TRANSFER, ("other.jsonl", 32))
        patch.setattr(gsm8k_measurements, "TRANSFER", others)
        yield


@pytest.fixture(scope="module")
def all_arms(data, small):
    """Every arm, with the test set."""
    questions.split.cache_clear()
    options = gsm8k.Options(
        seeds=(3,), model="tiny-base", teacher="tiny-grpo", out=data / "rows.csv",
        folder=data / "runs", steps=2, problems_per_step=2, solutions_per_step=4, eval_every=2,
        final=True,
    )  # fmt: skip
    gsm8k.main(options)
    yield options
    questions.split.cache_clear()


def test_examples_held_back_and_trained_are_apart(data):
    shown, held_back, rest = questions.split()
    assert (len(shown), len(held_back), len(rest)) == (4, 200, 7473 - 204)
    assert len({p.problem for p in (*shown, *held_back, *rest)}) == 7473
    assert questions.in_one_line(shown[0]) == "Ann has 3 = 3 pens. \\boxed{3}"


def test_every_prompt_has_a_place_for_the_problem(data):
    for make in questions.PROMPTS.values():
        assert make().count(PLACEHOLDER) == 1
    assert questions.four_examples().count("\\boxed") == 4


def test_a_solution_to_learn_ends_as_the_examples_do(data):
    lesson = next(questions.worked_solutions())
    assert lesson["solution"].endswith("}\n\n")
    assert questions.four_examples().count("}\n\nProblem:") == 4


def test_a_run_of_grpo_keeps_the_settings_that_it_began_with(data, tmp_path):
    """Runs that were begun before the other arms were written must go on."""
    options = gsm8k.Options(folder=tmp_path)
    trial = gsm8k.Trial(options, "grpo", 3, 1e-4)
    assert trial.folder == tmp_path / "qwen-0.5b" / "grpo-3-0.0001"
    settings = gsm8k.grpo_settings(trial, "plain:prompt.txt")
    assert settings == dict(
        recipe="grpo", model="qwen-0.5b", problems=f"{gsm8k.HERE}:problems", steps=50, seed=3,
        prompt="plain:prompt.txt", stop="\\n", max_new_tokens=200, problems_per_step=16,
        rollouts=8, lora_rank=8, lr=1e-4, preflight=False, eval_every=25, micro_batch_tokens=4096,
        eval_limit=200, sample_rows=128, rolling_every=5,
    )  # fmt: skip


def test_each_arm_is_a_row_and_is_not_repeated(all_arms):
    options, names = all_arms, [f"base, {name}" for name in questions.PROMPTS]
    rows = read_table(options.out)
    assert [row["arm"] for row in rows[: len(names)]] == names
    assert sorted(row["arm"] for row in rows[len(names) :]) == sorted(TRAINED)
    for row in rows:
        own_prompt = row["seed"] and row["arm"] not in CROSSED
        whole = row["arm"] == f"base, {questions.TRAINED_WITH}" or own_prompt
        for name in ("test_sampled", "test_majority", "test_pass@16", "math500", "gym"):
            assert bool(row[name]) == bool(whole)
        assert row["test_greedy"] and row["majority"] and float(row["test_tokens"]) > 0
        assert bool(row["seconds"]) == bool(own_prompt)
    written = {
        path: path.stat().st_mtime_ns for path in options.folder.rglob("*") if path.is_file()
    }
    text = sorted(map(str, rows))
    gsm8k.main(options)
    assert sorted(map(str, read_table(options.out))) == text
    prompts = {path for path in written if path.suffix == ".txt"}  # written each time, the same
    for path in written.keys() - prompts:
        assert path.stat().st_mtime_ns == written[path]


def test_a_call_without_the_test_set_keeps_what_was_measured_on_it(all_arms):
    before = {str(row) for row in read_table(all_arms.out)}
    gsm8k.main(gsm8k.Options(**{**vars(all_arms), "arms": ("base", "grpo"), "final": False}))
    assert {str(row) for row in read_table(all_arms.out)} == before


def test_a_finished_arm_is_not_taken_for_one_with_other_options(all_arms):
    for arm, change, words in (
        ("grpo", {"steps": 3}, "grpo-3-0.0001 was made with --steps 2, not 3; choose another"),
        ("dr-grpo", {"problems_per_step": 4}, "with --problems-per-step 2, not 4"),
        ("distilled", {"teacher": "tiny-grpo-longer"}, "--teacher tiny-grpo, not tiny-grpo-longer"),
        ("solutions", {"solutions_per_step": 8}, "--solutions-per-step 4, not 8"),
    ):
        with pytest.raises(UserError, match=words):
            gsm8k.main(gsm8k.Options(**{**vars(all_arms), "arms": (arm,), **change}))
    # Its steps follow from its budget.
    gsm8k.main(gsm8k.Options(**{**vars(all_arms), "arms": ("solutions",), "steps": 3}))


def test_each_run_of_rollouts_keeps_its_curve(all_arms):
    rows = read_table(all_arms.out.with_name("rows_curves.csv"))
    steps = {}
    for row in rows:
        steps.setdefault(row["arm"], []).append(row)
    assert set(steps) == {
        "grpo",
        "grpo-falling",
        "dr-grpo",
        "grpo-kl",
        "grpo-qwen",
        "format",
        "half-trained",
        "int8-rollouts",
        "distilled-grpo",
        "on-policy",
    }
    for row in steps["grpo"]:
        assert 0 <= float(row["reward"]) <= 1 and float(row["tokens"]) > 0
    assert [row["step"] for row in steps["grpo"]] == ["0", "1"]
    assert all_arms.out.with_suffix(".png").stat().st_size > 10_000
    assert steps["grpo"][0]["held_back"] and float(steps["grpo"][1]["processor_seconds"]) > 0
    assert steps["grpo"][0]["latex"] == "0" and steps["grpo"][0]["plain_reward"]


def test_runs_at_two_learning_rates_are_two_lines_of_the_picture():
    def row(arm, lr, step):
        return {"arm": arm, "seed": "3", "lr": lr, "step": step}

    tried = [row("grpo", lr, step) for lr in ("0.0001", "0.0002") for step in "01"]
    once = [row("dr-grpo", "0.0001", step) for step in "01"]
    found = gsm8k_picture.group_by_run([*tried, *once])
    assert found == {
        "grpo, seed 3, lr 0.0001": tried[:2],
        "grpo, seed 3, lr 0.0002": tried[2:],
        "dr-grpo, seed 3": once,
    }


@pytest.mark.parametrize(
    "text, expected",
    [
        (r"He pays 3 * 4 = 12. \boxed{12}", False),
        (r"He pays 3 * 4 = 12, so the result is \(\boxed{12}\).", False),
        (r"He pays \(3 \times 4 = 12\). \boxed{12}", True),
        (r"He pays 3 * 4 = 12. \boxed{12} or \(12\)", False),
        (r"He pays \frac{12}{", True),
    ],
)
def test_an_answer_is_in_latex_if_its_steps_are(text, expected):
    assert gsm8k_styles.in_latex(text) is expected


def test_what_each_way_of_writing_earns(tmp_path):
    """Where a problem has answers in both, their advantages are compared. An incorrect answer that
    is short costs more per token, so its rival is pushed up by more than its advantage."""
    rows = [
        {"group_idx": group, "text": text, "total_reward": reward, "advantage": advantage}
        | {"stop_reason": end, "steps": [{"ac_len": length}]}
        for group, text, reward, advantage, end, length in (
            (0, "\\(1\\) \\boxed{1}", 1.0, 0.5, "stop", 30),
            (0, "1 \\boxed{2}", 0.0, -0.5, "stop", 10),
            (1, "\\frac{1}", 0.0, -0.25, "length", 50),
            (1, "\\frac{1}{1} \\boxed{1}", 1.0, 0.25, "stop", 40),
        )
    ]
    path = tmp_path / "train_iteration_000007_rollout_summaries.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = gsm8k_styles.measure_styles(tmp_path, 7)
    assert found == {
        "latex": 0.75, "latex_reward": 2 / 3, "latex_tokens": 40.0, "latex_cut_off": 1 / 3,
        "plain_reward": 0.0, "plain_tokens": 10.0, "plain_cut_off": 0.0,
        "rivals": 1, "advantage": 0.5, "push": pytest.approx(13 / 12),
    }  # fmt: skip
    assert set(found) == set(gsm8k_styles.STYLE_COLUMNS)


def test_rivals_cost_what_grpo_costs_with_what_prepares_them(all_arms):
    folder = all_arms.folder / "tiny-base"
    rows = {row["arm"]: row for row in read_table(all_arms.out)}
    for arm in LEARNED:
        lr = gsm8k.RATES[arm][0]
        run = folder / f"{arm}-3-{lr:g}" / "run"
        config = json.loads((run / "config.json").read_text())
        plan = json.loads((run.with_name("run_plan.json")).read_text())
        assert config["steps"] == plan["steps"] == int(rows[arm]["steps"]) >= 1
        assert config["lora_rank"] == 8 and config["lr"] == lr
        assert not run.with_name("pace").exists()
    taught = json.loads((folder / "on-policy-3-0.0001/run/config.json").read_text())
    assert taught["kl_reference"] == "tiny-grpo" and taught["rollouts"] == 4
    after = json.loads((folder / "distilled-grpo-3-0.0001/run/config.json").read_text())
    assert "distilled-grpo-3-0.0001/distilled/run/checkpoints" in after["model"]
    last = json.loads((folder / "own-answers-3-0.0002/run/config.json").read_text())
    assert "own-answers-3-0.0002/round-2/run/checkpoints" in last["model"]
    first = folder / "own-answers-3-0.0002/round-1/lessons.jsonl"
    assert len(first.read_text().splitlines()) < float(rows["own-answers"]["lessons"])


def test_what_is_kept_of_each_problem_and_to_read(all_arms):
    problems = read_table(all_arms.out.with_name("rows_problems.csv"))
    sizes = {
        "held_back": 4,
        "held_back_sampled": 2,
        gsm8k_measurements.LAST_NUMBER: 6,
        gsm8k_measurements.IN_LATEX: 6,
        "greedy": 6,
        "sampled": 6,
        "sixteen": 2,
        "math500": 3,
        "gym": 3,
    }
    sizes |= {gsm8k_measurements.WITH_BOX.format(name): sizes[name] for name in ("math500", "gym")}
    found = {row["set"]: row["correct"] for row in problems if row["arm"] == "grpo"}
    assert {name: len(correct) for name, correct in found.items()} == sizes
    to_read = json.loads(all_arms.out.with_name("rows_answers.json").read_text())
    assert len(to_read) == 3
    for one in to_read:
        assert len(one["said"]) == len(questions.PROMPTS) + len(TRAINED)
        assert set(one["said"]["tiny-base, grpo, 3, 0.0001"]) == {"text", "correct"}


def test_a_call_that_was_killed_goes_on_with_what_is_there(all_arms, data):
    """Measuring again takes the answers from their files, and a lost row costs no training."""
    folder = all_arms.folder / "tiny-base" / "solutions-3-0.0002"
    before = json.loads((folder / "test.json").read_text())
    answers = (folder / "greedy.jsonl").read_text()
    (folder / "greedy.jsonl").write_text(answers.splitlines(keepends=True)[0] + "{")
    for name in ("test.json", "row.json"):
        (folder / name).unlink()
    row, metrics = read_table(all_arms.out), (folder / "run" / "metrics.jsonl").read_text()
    gsm8k.main(gsm8k.Options(**{**vars(all_arms), "arms": ("solutions",)}))
    assert (folder / "greedy.jsonl").read_text() == answers
    after = json.loads((folder / "test.json").read_text())
    assert {**before, "took": 0} == {**after, "took": 0}
    assert (folder / "run" / "metrics.jsonl").read_text() == metrics
    assert sorted(map(str, read_table(all_arms.out))) == sorted(map(str, row))


def test_rounds_that_were_killed_go_on_where_they_were(all_arms, monkeypatch):
    """A kill in the second round costs neither the first nor the answers of the second."""
    options = gsm8k.Options(**{**vars(all_arms), "arms": ("own-answers",), "budget": 1.0})
    options.folder, options.final = all_arms.folder.with_name("killed"), False
    options.out = options.folder / "rows.csv"
    folder = options.folder / "tiny-base" / "own-answers-3-0.0002"

    def killed(seconds, settings, place):
        if place == folder / "round-2" / "run":
            raise KeyboardInterrupt
        return costs.train_for_seconds(seconds, settings, place)

    with monkeypatch.context() as patch:
        patch.setattr(gsm8k, "train_for_seconds", killed)
        with pytest.raises(KeyboardInterrupt):
            gsm8k.main(options)
    files = [*folder.glob("round-1/run/metrics.jsonl"), *folder.glob("round-*/answers.jsonl")]
    before = {path: path.read_text() for path in files}
    assert len(before) == 3
    gsm8k.main(options)
    assert before == {path: path.read_text() for path in files}
    assert read_table(options.out)[0]["arm"] == "own-answers"
    # The models that rounds began with are gone: a rank-8 adapter is all that is left of them.
    assert [path.parent.parent for path in folder.rglob("checkpoints")] == [folder]
    assert len([*folder.rglob("adapter_model.safetensors")]) == 3


def test_the_table_has_every_arm(all_arms, capsys):
    gsm8k.main(gsm8k.Options(out=all_arms.out, table=True))
    prompts, arms = (text.splitlines() for text in capsys.readouterr().out.split("\n\n"))
    assert len(prompts) == 2 + len(questions.PROMPTS)
    assert len(arms) == len(prompts) + len(TRAINED)
    for lines, header in ((prompts, gsm8k_table.PROMPT_HEADER), (arms, gsm8k_table.HEADER)):
        assert all(line.count("|") == len(header) + 1 for line in lines)


def test_errors_are_paired_over_problems_and_the_range_is_over_seeds():
    def row(arm, seed, greedy):
        return {"model": "m", "arm": arm, "seed": seed, "lr": "1" * bool(seed)} | {
            "test_greedy": str(greedy), "seconds": "7200", "greedy": "0.1", "box": "1",
        }  # fmt: skip

    rows = [row("base, a", "", 0.25), row("base, b", "", 0.5)]
    rows += [row("grpo", "3", 0.25), row("grpo", "0", 0.75), row("grpo", "1", 1.0)]
    read, last = "greedy", gsm8k_measurements.LAST_NUMBER
    names = [("base, a", "", "0100", read), ("base, b", "", "1000", read)]
    names += [("base, b", "", "1100", last), ("base, a", "", "0001", last)]
    names += [("grpo", "3", "1000", read), ("grpo", "0", "1110", read), ("grpo", "1", "1111", read)]
    problems = [
        {"model": "m", "arm": arm, "seed": seed, "lr": "1" * bool(seed), "set": kind}
        | {"correct": correct}
        for arm, seed, correct, kind in names
    ]
    *_, a, b, grpo, chose = gsm8k_table.arms_table(rows, problems).splitlines()
    cells = [cell.strip() for cell in grpo.split("|")[1:-1]]
    assert cells[:4] == ["m", "grpo (lr 1)", "0 1", "87.5 (75.0 to 100.0)"]
    # The line to beat is b with the last number read. Problem by problem, grpo has 0, 0, 1 and 0.5
    # more; their standard error is 0.2394.
    assert cells[4] == "+37.5 +/- 23.9" and cells[5] == "" and cells[-1] == "2.00"
    assert all("-25.0 +/- 25.0" in line for line in (a, b))
    # The seed that chose the settings is in no mean.
    assert "| grpo (lr 1) | 3 | 25.0 | -25.0 +/- 25.0 | -62.5 +/- 23.9 |" in chose


def test_a_model_that_was_not_asked_the_test_set_is_compared_on_the_held_out_problems():
    def row(arm, seed, **figures):
        return {"model": "m", "arm": arm, "seed": seed, "lr": "1" * bool(seed), **figures}

    test, held = {"test_greedy": "0.5"}, {"greedy": "0.5"}
    rows = [row("base, a", "", **test), row("grpo", "0", **test), row("grpo", "3", **test)]
    rows += [row("solutions", "3", **held)]
    problems = [
        row(arm, seed, set=kind, correct=correct)
        for arm, seed, kind, correct in (
            ("base, a", "", "held_back", "1000"),
            ("grpo", "0", "greedy", "1111"),
            ("grpo", "0", "held_back", "0000"),
            ("grpo", "3", "held_back", "1110"),
            ("solutions", "3", "held_back", "0111"),
        )
    ]
    last = gsm8k_table.arms_table(rows, problems).splitlines()[-1]
    # It has 0 and 0.5 more than the two; seed 0 of grpo, which chose nothing, is not among them.
    assert "| solutions (lr 1) | 3 | 50.0* | +50.0 +/- 50.0* | +0.0 +/- 40.8* |" in last


def test_costs_are_the_processors_and_leave_out_what_is_measured():
    row = {"time/total": 10.0, "time/sampling": 4.0, "time/reward": 0.5, "time/train": 3.5}
    # By the clock, in a run that did not count the processor's time.
    assert costs.processor_seconds([row]) == 8
    # The processor waited half of the time.
    assert costs.processor_seconds([row | {"time/processor": 5.0}] * 2) == 8
    assert costs.processor_seconds([row | {"time/train": None, "time/processor": 10.0}]) == 4.5


def test_what_cannot_be_run_is_refused(data, small, tmp_path):
    asked = {"out": tmp_path / "a.csv", "folder": tmp_path / "runs", "seeds": (0,)}
    for arm, changes, message in (
        ("solution", {}, "unknown arm 'solution': did you mean 'solutions'"),
        (
            "solutions",
            {"model": "tiny-base"},
            "run that first, with --arms grpo --seeds 0, or give",
        ),
        ("distilled", {"model": "tiny-base", "teacher": "tiny-base"}, "is the student itself"),
    ):
        with pytest.raises(UserError, match=message):
            gsm8k.main(gsm8k.Options(**asked, **changes, arms=(arm,)))


def test_a_set_that_cannot_be_made_is_refused_before_anything_trains(data, tmp_path, monkeypatch):
    monkeypatch.setattr(gsm8k_measurements, "TRANSFER", {"gym": ("nowhere.jsonl", 32)})
    options = gsm8k.Options(arms=("grpo",), folder=tmp_path / "runs", final=True)
    with pytest.raises(UserError, match="there is no file nowhere.jsonl"):
        gsm8k.main(options)
    assert not options.folder.exists()


def test_a_teacher_with_other_tokens_is_refused(data, tmp_path, monkeypatch):
    class Letters:
        eos_token_id = 0

        def __init__(self, name):
            self.shift = len(name)

        def encode(self, text, chat_wrapped):
            return [ord(letter) + self.shift for letter in text]

    monkeypatch.setattr(gsm8k_lessons, "load_tokenizer_only", Letters)
    gsm8k_lessons.check_teacher("ab", "cd", ())
    with pytest.raises(UserError, match="cuts texts into other tokens"):
        gsm8k_lessons.check_teacher("ab", "cde", ())


def test_a_model_that_solves_nothing_teaches_nothing(tmp_path):
    chunks = [{"seconds": 1.0, "answers": 64, "lessons": []}]
    with pytest.raises(UserError, match="solved none of 64 training problems"):
        gsm8k_lessons.write_lessons(tmp_path / "lessons.jsonl", chunks, "tiny")


def test_answers_are_collected_until_the_time_is_spent(data, small, tmp_path):
    """A second call with more time adds chunks, and one with none opens no model."""
    prompt, path = questions.prompt_in(tmp_path, questions.TRAINED_WITH), tmp_path / "answers.jsonl"
    made = []

    def model():
        made.append(1)
        return questions.load_model("tiny-base")

    first = gsm8k_lessons.collect_chunks(model, prompt, path, 1e-9, "7")
    assert len(first) == 1 and first[0]["answers"] == 2 * gsm8k_lessons.PROBLEMS_PER_CHUNK
    assert gsm8k_lessons.collect_chunks(model, prompt, path, 1e-9, "7") == first and len(made) == 1
    more = gsm8k_lessons.collect_chunks(model, prompt, path, 1.5 * first[0]["seconds"], "7")
    assert more[0] == first[0] and len(more) > 1


def test_smoke_says_how_long_it_takes(data, small, tmp_path, capsys):
    options = gsm8k.Options(
        arms=("base", "grpo", "solutions"), model="tiny-base", folder=tmp_path, smoke=True,
        out=tmp_path / "a.csv", lr=(1e-4, 2e-4),
    )  # fmt: skip
    gsm8k.main(options)
    said = capsys.readouterr().out
    assert "32 answers of" in said and "50 steps of 16 x 8 answers" in said
    assert "The 12 runs asked for take at most" in said  # two arms, three seeds, two rates
    assert not options.out.exists()


def test_a_row_of_an_earlier_version_with_fewer_columns_is_replaced(all_arms, tmp_path):
    rows = read_table(all_arms.out)
    write_table(tmp_path / "old.csv", [{"model": "tiny-base", "arm": "format", "seed": "9"}])
    shutil.copy(gsm8k.beside_table(all_arms, "problems.csv"), tmp_path / "old_problems.csv")
    gsm8k.main(gsm8k.Options(**{**vars(all_arms), "arms": ("grpo",), "out": tmp_path / "old.csv"}))
    found = read_table(tmp_path / "old.csv")
    assert [row["arm"] for row in found] == [
        "format",
        "grpo",
        "grpo" + gsm8k.ASKED_WITH_QWEN_PROMPT,
    ]
    assert found[1] == next(row for row in rows if row["arm"] == "grpo")
