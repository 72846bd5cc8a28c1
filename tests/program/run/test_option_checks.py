"""What is refused: pairs that contradict, values out of range, what would do nothing.

Every field of RunConfig, one at a time against the defaults: it changes the run, or it is
refused with a sentence, or it is named below with the reason why it changes no result."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from toy import timeless, toy_config, toy_model, toy_problems, toy_tokenizer, train, written

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files.tensor_files import load_state
from reasoning_from_scratch.files.weights import save_hf_folder
from rfs.commands.train_options import TrainOptions
from rfs.config import RunConfig
from rfs.run.options import resolved, resumed_config

# What by its nature changes no result. NOT_HERE: other tests run it, because of what it needs.
NOT_HERE = object()
NO_RESULT = {
    "sample_rows": (3, "memory: a rollout depends on its seed, step and place alone"),
    "micro_batch_tokens": (40, "memory: gradients of parts add up"),
    "micro_batch_rows": (3, "memory: gradients of parts add up"),
    "calculator": (True, "no answer calls it here; tests/program/tasks/test_calculator.py"),
    "environment": (NOT_HERE, "it answers the model; tests/program/tasks/"),
    "num_minibatches": (2, "speed: the same update, begun while others are still sampled"),
    "gradient_checkpointing": (True, "memory: computed twice"),
    "shard": ("fsdp", "memory: each rank keeps a slice"),
    "drop_uniform_groups": (False, "speed: those groups have no gradient"),
    "truncate_importance": (2.0, "its weights are 1 where sampler and trainer agree, as here"),
    "mask_importance": (2.0, "its weights are 1 where sampler and trainer agree, as here"),
    "compile": (NOT_HERE, "speed"),
    "device": ("cpu", "a place"),
    "sampler": (NOT_HERE, "a place: Ray's actors sample the same"),
    "ray_address": (NOT_HERE, "a place"),
    "log_path": ("elsewhere", "a place"),
    "resume": (NOT_HERE, "a place: the run that goes on"),
    "overwrite": (True, "a place: it may hold a run, which is deleted"),
    "preflight": (True, "a report: a line of the log"),
    "rolling_every": (1, "a save for a run that is killed: the last one takes its place"),
    "wandb": (NOT_HERE, "a report"),
    "trackio": (NOT_HERE, "a report"),
    "tensorboard": (NOT_HERE, "a report"),
}
# A value that is not the default; those marked with a word are refused, with it in the sentence.
ALONE = {
    "model": "{other}",
    "load_checkpoint_path": "{other}",
    "problems": "{other}/more.jsonl",
    "reward": "{other}/mine.py:paid",
    "problem_limit": 3,
    "few_shot": 1,
    "prompt": "question",
    "stop": "e",
    "steps": 3,
    "smoke": True,
    "problems_per_step": 2,
    "rollouts": 4,
    "train_rollouts": 3,
    "seed": 1,
    "max_new_tokens": 3,
    "temperature": 0.5,
    "logprob_temperature": 0.5,
    "top_p": 0.5,
    "top_k": 5,
    "advantage": "mean",
    "advantage_per_part": True,
    "objective": "reinforce",
    "aggregate": "token",
    "active_sampling": True,
    "reward_parts": {"correct": 1.0, "unformatted": -0.1},
    "overlong_penalty": 2,
    "epochs": 2,
    "num_substeps": 2,
    "max_steps_off_policy": 1,
    "compute_post_kl": True,
    "iteration_folders": True,
    "lr": 1e-4,
    "lr_at_problems": 1,
    "optimizer": "muon",
    "lora_rank": 2,
    "lr_schedule": "linear",
    "warmup_steps": 2,
    "weight_decay": 0.5,
    "beta1": 0.5,
    "beta2": 0.5,
    "grad_clip": 1e-6,
    "dtype": "bfloat16",
    "eval_every": 1,
    "eval_problems": "{other}/more.jsonl",
    "eval_limit": 2,
    "eval_samples": 2,
    "evaluators": "{other}/mine.py:measured",
    "save_every": 1,
    "report_every": 1,
    "num_groups_to_log": 0,
}
REFUSED = {
    "data_path": ("{other}/more.jsonl", "some.jsonl has its own problems: drop one"),
    "recipe": ("dr_grpo", "none of its choices"),
    "length_constant": (7.0, "without --aggregate constant"),
    "clip_low": (0.5, "used for one update:"),
    "clip_high": (1.5, "used for one update:"),
    "dro_beta": (0.1, "without --objective dro"),
    "divergence_limit": (0.01, "without --objective dppo"),
    "importance_level": ("sequence", "without a weight"),
    "kl_solution": (True, "add --kl"),
    "kl": ("k3", "without --kl-coef"),
    "kl_coef": (0.1, "add --kl"),
    "kl_importance_weighted": (True, "add --kl"),
    "kl_discount_factor": (0.5, "without --kl token"),
    "kl_reference": ("{other}", "add --kl"),
    "kl_schedule": ("linear", "add --kl"),
    "sequence_mask_threshold": (0.1, "has not drifted"),
    "keep_sampling_mask": (True, "needs --top-p"),
    "conditional_format": (True, "add a part"),
    "num_samplers": (3, "without --sampler ray"),
    "matrix_lr": (0.1, "without --optimizer muon"),
    "embedding_lr": (0.1, "without --optimizer muon"),
    "unembedding_lr": (0.1, "without --optimizer muon"),
    "lora_alpha": (8.0, "without --lora-rank"),
    "low_precision_updates": ("stochastic", "add --dtype bfloat16"),
    "keep_last": (1, "without --save-every"),
    "max_turns": (3, "without --environment"),
    "max_turn_tokens": (3, "without --environment"),
    "sampling_weights": ("int8", "multiples of 32"),  # of this model; test_sampling_weights.py
}
# What is refused alone changes the run where it has a meaning.
FAST = {"epochs": 3, "lr": 1e-2}
LAGS = {"steps": 4, "max_steps_off_policy": 1, "lr": 1e-2}
TOGETHER = {
    "data_path": {"problems": "tiny"},
    "length_constant": {"aggregate": "constant"},
    "clip_low": FAST | {"clip_low": 0.99},
    "clip_high": FAST | {"clip_high": 1.01},
    "dro_beta": FAST | {"objective": "dro", "aggregate": "token"},
    "divergence_limit": FAST | {"objective": "dppo", "divergence_limit": 1e-4},
    "importance_level": LAGS | {"truncate_importance": 1.001},
    "kl_solution": {"kl": "token", "kl_coef": 1.0},
    "kl": {"kl": "k2", "kl_coef": 1.0, "steps": 3},
    "kl_coef": {"kl": "reward", "kl_coef": 0.5, "steps": 3},
    "kl_importance_weighted": FAST | {"kl": "k3", "kl_coef": 1.0},
    "kl_discount_factor": FAST | {"kl": "token", "kl_coef": 1.0, "steps": 3},
    "kl_reference": {"kl": "token", "kl_coef": 1.0},
    "kl_schedule": FAST | {"kl": "k2", "kl_coef": 10.0},
    "sequence_mask_threshold": FAST | {"sequence_mask_threshold": 1e-4},
    "keep_sampling_mask": {"top_p": 0.5, "keep_sampling_mask": False},
    "conditional_format": {"reward_parts": {"correct": 0.1, "unformatted": 1.0}},
    "matrix_lr": {"optimizer": "muon"},
    "embedding_lr": {"optimizer": "muon"},
    "unembedding_lr": {"optimizer": "muon"},
    "lora_alpha": {"lora_rank": 2},
    "low_precision_updates": {"dtype": "bfloat16"},
    "keep_last": {"save_every": 1, "steps": 4},
}


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """Two toy models on disk, with problems and a verifier."""
    folder = tmp_path_factory.mktemp("options")
    tokenizer = toy_tokenizer(folder)
    for seed, name in enumerate(("tiny-start", "tiny-other")):
        save_hf_folder(toy_model(seed), tokenizer, folder / name)
    problem_sets = {"tiny-start/some": toy_problems(), "tiny-other/more": toy_problems(20)[7:]}
    for name, problems in problem_sets.items():
        Path(written(problems, folder, "rows")).rename(folder / f"{name}.jsonl")
    (folder / "tiny-other/mine.py").write_text(
        "def paid(text, problem):\n    return float('a' in text)\n\n"
        "def measured(model, tokenizer):\n    return {'one': 1}\n"
    )
    return folder


class Outcome:
    """What a run leaves behind, but for times."""

    def __init__(self, place: Path, folder: Path, **changes) -> None:
        given = {
            name: value.format(other=place / "tiny-other") if isinstance(value, str) else value
            for name, value in changes.items()
        }
        problems = str(place / "tiny-start/some.jsonl")
        start = {"model": str(place / "tiny-start"), "steps": 2, "problems": problems}
        if any(name.startswith("eval") for name in changes):  # too few to keep some aside
            start |= {"eval_every": 2, "eval_problems": problems}
        result = train(toy_config(folder / "run", **(start | given)), quiet=True)
        run = result.folder
        self.files = sorted(str(path.relative_to(run)) for path in run.rglob("*"))
        for name in ("checkpoints.jsonl", "probes.jsonl"):
            self.files += [line[:60] for line in (run / name).read_text().splitlines()]
        self.metrics = timeless(result.rows)
        state = load_state(run / f"checkpoints/{len(result.rows):06d}")
        self.weights = torch.cat([tensor.float().flatten() for tensor in state.values()])

    def differs(self, other: "Outcome") -> bool:
        """By more than sums in another order do."""
        if self.files != other.files or len(self.metrics) != len(other.metrics):
            return True
        if not torch.allclose(self.weights, other.weights, rtol=0, atol=2e-6):
            return True
        close = [pytest.approx(row, rel=1e-3, abs=1e-5) for row in other.metrics]
        return self.metrics != close


@pytest.fixture(scope="module")
def plain(place, tmp_path_factory) -> Outcome:
    return Outcome(place, tmp_path_factory.mktemp("plain"))


def test_two_runs_of_the_defaults_do_not_differ(place, plain, tmp_path):
    again = Outcome(place, tmp_path)
    assert not again.differs(plain) and torch.equal(again.weights, plain.weights)


def test_every_field_is_in_one_of_the_tables():
    tables = [*NO_RESULT, *ALONE, *REFUSED]
    every = {field.name for field in dataclasses.fields(RunConfig)}
    assert sorted(tables) == sorted(every - {"set_by"})
    assert TOGETHER.keys() <= REFUSED.keys()


@pytest.mark.parametrize("name", ALONE)
def test_alone_it_changes_the_run(name, place, plain, tmp_path):
    assert Outcome(place, tmp_path, **{name: ALONE[name]}).differs(plain)


@pytest.mark.parametrize("name", REFUSED)
def test_alone_it_is_refused_before_anything_is_written(name, place, tmp_path):
    value, says = REFUSED[name]
    with pytest.raises(UserError, match=says):
        Outcome(place, tmp_path, **{name: value})
    assert not list(tmp_path.glob("run/*"))


@pytest.mark.parametrize("name", TOGETHER)
def test_where_it_has_a_meaning_it_changes_the_run(name, place, tmp_path):
    others = dict(TOGETHER[name])
    value = others.pop(name, REFUSED[name][0])
    if name in ("kl", "kl_coef"):  # each is void without the other
        others = {"steps": others["steps"]}
    without = Outcome(place, tmp_path / "without", **others)
    others |= TOGETHER[name]
    assert Outcome(place, tmp_path / "with", **others | {name: value}).differs(without)


@pytest.mark.parametrize("name", [n for n, (value, _) in NO_RESULT.items() if value != NOT_HERE])
def test_it_changes_no_result(name, place, plain, tmp_path):
    value = str(tmp_path / "elsewhere") if name == "log_path" else NO_RESULT[name][0]
    found = Outcome(place, tmp_path, **{name: value})
    rows = (plain.metrics, found.metrics)
    same = [
        {key: row[key] for key in ("step", "optim/grad_norm", "env/all/correct")} for row in rows[0]
    ]
    assert same == [pytest.approx({key: row[key] for key in same[0]}, rel=1e-3) for row in rows[1]]
    torch.testing.assert_close(found.weights, plain.weights, rtol=0, atol=2e-6)


@pytest.mark.parametrize(
    "changes, says",
    [
        # pairs of which one leaves nothing for the other
        ({"clip_high": 3.0, "objective": "reinforce", "epochs": 2}, "without a clip"),
        ({"clip_low": 0.5, "max_steps_off_policy": 1}, "all ratios p / p_start are 1"),
        ({"kl_importance_weighted": True, "kl": "reward", "kl_coef": 0.1}, "KL term in the loss"),
        (
            {"conditional_format": True, "reward_parts": {"correct": 1.0, "wrong": -1.0}},
            "add a part",
        ),
        ({"advantage_per_part": True, "advantage": "mean"}, "z-scores each part"),
        ({"active_sampling": True, "reward_parts": {"format": 1.0}}, "add correct=1"),
        ({"reward": "mine.py:paid", "reward_parts": {"format": 1.0}}, "add correct=1"),
        ({"problems": "mine.py:all", "data_path": "x.jsonl"}, "drop one"),
        ({"kl_discount_factor": 0.5, "kl": "reward", "kl_coef": 0.1}, "without --kl token"),
        ({"optimizer": "muon", "lora_rank": 4, "embedding_lr": 0.1}, "muon takes them all"),
        ({"optimizer": "muon", "lora_rank": 4, "beta2": 0.9}, "muon takes them all"),
        ({"reward_parts": {"correct": 0.0}}, "rewards nothing"),
        # out of range, or of another kind
        ({"clip_low": 1.3, "clip_high": 1.2}, "--clip-low 1.3 and --clip-high 1.2"),
        ({"clip_high": 0.28}, "epsilon 0.2 is 0.8 and 1.2"),
        ({"overlong_penalty": 200, "max_new_tokens": 100}, "--overlong-penalty 200"),
        ({"kl": "k1"}, "unknown --kl 'k1'.*k2"),
        ({"objective": "pp0"}, "did you mean 'ppo'"),
        ({"steps": "5"}, "--steps is '5', but must be a whole number"),
        ({"steps": 2.5}, "--steps is 2.5, but must be a whole number"),
        ({"lr": "fast"}, "--lr is 'fast', but must be a number"),
        ({"reward_parts": {"corect": 1.0}}, "did you mean 'correct'"),
        ({"reward_parts": {"correct": float("inf")}}, "--reward-parts correct has the weight inf"),
        ({"recipe": "dapoo"}, "did you mean 'dapo'"),
        ({"environment": "guess", "max_turns": 0}, "--max-turns is 0, but must be at least 1"),
        ({"environment": "guess", "max_turn_tokens": -1}, "--max-turn-tokens is -1"),
        ({"problems_per_step": 8, "num_substeps": 3}, "does not divide"),
        ({"objective": "dro", "truncate_importance": 2.0}, "dro's penalty covers that"),
        ({"objective": "dppo", "mask_importance": 2.0}, "--mask-importance .* dppo's limit covers"),
        ({"truncate_importance": 2.0, "mask_importance": 2.0}, "caps the weight that --mask"),
        ({"advantage": "maxrl", "reward_parts": {"correct": 1, "wrong": -1}}, "maxrl divides by"),
        ({"advantage": "maxrl", "overlong_penalty": 2}, "drop --overlong-penalty"),
        ({"problems": ""}, "--problems is empty: give a value, or drop it"),
        ({"resume": ""}, "--resume is empty"),
        # evaluations
        ({"eval_problems": []}, "--eval-problems names no set"),
        ({"eval_problems": ["a/x.jsonl", "b/x.jsonl"]}, "a/x.jsonl and b/x.jsonl would both be"),
        ({"eval_problems": ["tiny-test", "tiny-test"]}, "would both be tiny-test"),
        ({"evaluators": ["a.py:f", "b.py:f"]}, "a.py:f and b.py:f would both be f"),
        ({"evaluators": "a.py:f", "eval_every": 0}, "--evaluators a.py:f does nothing without"),
        ({"eval_every": 0, "eval_limit": 8}, "--eval-limit 8 does nothing"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(changes, says):
    with pytest.raises(UserError, match=says):
        resolved(RunConfig(**changes))


OUT_OF_RANGE = """
    --steps=0 --steps=-3 --problems-per-step=0 --rollouts=1 --max-new-tokens=0 --lr-at-problems=0
    --micro-batch-tokens=0 --lr=-1.0 --lr=nan --temperature=0.0 --top-p=0.0 --top-p=1.5
    --beta1=1.0 --beta1=-0.1 --beta1=nan --beta2=1.5 --clip-low=-0.1 --kl-discount-factor=1.1
    --logprob-temperature=-1.0 --logprob-temperature=0.0 --length-constant=-5.0
    --truncate-importance=-2.0 --sequence-mask-threshold=-0.1
""".split()


@pytest.mark.parametrize("flag", OUT_OF_RANGE)
def test_a_number_out_of_range_is_refused_by_name(flag):
    with pytest.raises(UserError, match=f"{flag.replace('=', ' is ')}, but must be"):
        resolved(TrainOptions.read([flag]))


def test_a_resumed_run_is_asked_only_about_what_is_new(place, tmp_path):
    run = tmp_path / "run"
    Outcome(place, tmp_path)
    # As a run of an earlier version, whose rates had other defaults.
    config = json.loads((run / "config.json").read_text()) | {"matrix_lr": 0.02}
    (run / "config.json").write_text(json.dumps(config))
    assert resolved(resumed_config(run, steps=3)).steps == 3
    assert TrainOptions.read(["--resume", str(run), "--steps", "3"]).matrix_lr == 0.02
    with pytest.raises(UserError, match="--optimizer muon"):
        resumed_config(run, matrix_lr=0.3)
    with pytest.raises(UserError, match="--kl-coef 0.1 does nothing"):
        TrainOptions.read(["--resume", str(run), "--kl-penalty-coef", "0.1"])
