"""Groups of rollouts: a step's problems, how they are sampled and judged, and batches of them."""

import random
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from itertools import pairwise
from os.path import commonprefix

import torch
from torch import Tensor

from reasoning_from_scratch.config import Rewards, TrainConfig
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.problems import Problem, problem_prompt, solution_text, told_prompt
from reasoning_from_scratch.rewards import (
    correctness,
    format_parts,
    overlong_penalty,
    total_reward,
)
from reasoning_from_scratch.sampling import (
    PLAIN_ENGINE,
    WORTH_SHARING,
    Rollout,
    Sampling,
    SamplingEngine,
    generate_each,
)
from reasoning_from_scratch.tokenizer import answer_stops, answer_text


@dataclass
class Group:
    """The rollouts of one problem."""

    problem: Problem
    rollouts: list[Rollout]

    @property
    def rewards(self) -> list[float]:
        return [rollout.reward for rollout in self.rollouts]

    @property
    def uniform(self) -> bool:
        """All rewards equal: no rollout is better than another of its group."""
        return min(self.rewards) == max(self.rewards)

    @property
    def solved_sometimes(self) -> bool:
        """Some answers are correct, others are not, or less so, if a verifier gives fractions.
        Lengths and format do not matter here."""
        return len({rollout.rewards["correct"] for rollout in self.rollouts}) > 1

    @property
    def live(self) -> bool:
        """Some rollout has a nonzero advantage, so the group has a gradient."""
        return any(rollout.advantage != 0 for rollout in self.rollouts)


@dataclass
class Batch:
    """Rollouts as tensors, right-padded. Masks come from lengths, never from token values."""

    token_ids: Tensor  # (B, T) prompt, then response, then padding
    mask: Tensor  # (B, T) 1 = sampled token
    old_logprobs: Tensor  # (B, T) the sampler's record; 0 where the mask is 0
    advantages: Tensor  # (B,), or (B, T) where each token has its own
    lengths: Tensor  # (B,) real tokens
    ref_logprobs: Tensor | None = None  # (B, T) of the reference model
    start_logprobs: Tensor | None = None  # (B, T) of the trainer before its first update
    kept: list[list[list[int]]] | None = None  # per row and sampled token: what the cut kept
    targets: Tensor | None = None  # (B, T) tokens to predict, if not those of the row itself
    cpu_copy: "Batch | None" = None  # the same batch, read without waiting for a GPU

    @property
    def predicted(self) -> Tensor:
        """(B, T), the tokens whose log-probabilities are computed."""
        return self.token_ids if self.targets is None else self.targets

    def __len__(self) -> int:
        return len(self.token_ids)

    def rows(self, index: list[int]) -> "Batch":
        """A batch of only these rows, cut to the length of the longest."""
        longest = int(self.lengths[index].max())
        picked = {}
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, list):
                value = [value[row] for row in index]
            elif isinstance(value, Batch):
                value = value.rows(index)
            elif value is not None:
                value = value[index] if value.dim() == 1 else value[index, :longest]
            picked[item.name] = value
        return Batch(**picked)

    def to(self, device: torch.device | str) -> "Batch":
        """A copy on a GPU, made without waiting for what the GPU is still computing. On a CPU,
        where batches are made, the batch itself."""
        device = torch.device(device)
        if device.type == "cpu":
            return self
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        # CUDA sets numbers aside before it returns. MPS reads them later, when they may have been
        # freed (pytorch/pytorch issue 189690), so there we wait.
        moved = {
            name: value.to(device, non_blocking=device.type == "cuda")
            for name, value in values.items()
            if isinstance(value, Tensor)
        }
        return Batch(**values | moved | {"cpu_copy": self})


def make_batch(rollouts: Sequence[Rollout], device: torch.device | str = "cpu") -> Batch:
    """One Batch of rollouts, padded on the right with token 0. No real token attends to padding."""
    shape = (len(rollouts), max(map(len, rollouts)))  # B, T

    def pad_responses(name: str, per_rollout: list[Tensor | None]) -> Tensor | None:
        """(B, T) with each response's values (T,) in its positions; None if any are missing."""
        if any(values is None for values in per_rollout):
            return None
        padded = torch.zeros(shape)  # (B, T)
        for row, (rollout, values) in enumerate(zip(rollouts, per_rollout, strict=True)):
            if len(values) != len(rollout.response_ids):  # a single one would be repeated
                count = len(rollout.response_ids)
                raise UserError(f"{name}: {len(values)} numbers for an answer of {count} tokens")
            padded[row, len(rollout.prompt_ids) : len(rollout)] = values
        return padded

    token_ids = torch.zeros(shape, dtype=torch.long)  # (B, T)
    for row, rollout in enumerate(rollouts):
        token_ids[row, : len(rollout)] = torch.tensor(rollout.prompt_ids + rollout.response_ids)
    advantages = pad_responses(
        "token_advantages", [rollout.token_advantages for rollout in rollouts]
    )  # (B, T)
    if advantages is None:
        advantages = torch.tensor([rollout.advantage for rollout in rollouts])  # (B,)
    targets = None
    if any(rollout.targets is not None for rollout in rollouts):
        targets = token_ids.clone()  # (B, T)
        for row, rollout in enumerate(rollouts):
            if rollout.targets is not None:
                targets[row, len(rollout.prompt_ids) : len(rollout)] = rollout.targets
    lengths = torch.tensor([len(rollout) for rollout in rollouts])  # (B,)
    has_kept = all(rollout.kept is not None for rollout in rollouts)
    batch = Batch(
        token_ids,
        mask=pad_responses("mask", [rollout.sampled_mask() for rollout in rollouts]),
        old_logprobs=pad_responses(
            "logprobs", [torch.tensor(rollout.logprobs) for rollout in rollouts]
        ),
        advantages=advantages,
        lengths=lengths,
        ref_logprobs=pad_responses("ref_logprobs", [rollout.ref_logprobs for rollout in rollouts]),
        start_logprobs=pad_responses(
            "start_logprobs", [rollout.start_logprobs for rollout in rollouts]
        ),
        kept=[rollout.select_sampled(rollout.kept) for rollout in rollouts] if has_kept else None,
        targets=targets,
    )
    return batch.to(device)


def micro_batches(
    lengths: Sequence[int],
    max_tokens: int,
    max_rows: int = 0,
    prompts: Sequence[list[int]] | None = None,
) -> list[list[int]]:
    """Row numbers in parts of at most `max_tokens` tokens and `max_rows` rows (0: any number).
    Only real tokens count; the padding of a plain pass comes on top.

    Longest first: rows of similar length share a part, which makes attention faster, and a part
    that does not fit into memory fails right away. A single row over the budget is a separate part.

    `prompts` are those of the rows, if the pass stores only once what several rows begin with. The
    rows that share a long prompt then follow each other, and only what each adds to it counts: a
    part that had room for little more than the prompt would compute that again for every row.
    """
    order = sorted(range(len(lengths)), key=lambda row: (-lengths[row], row))
    if prompts is not None and max(map(len, prompts), default=0) >= WORTH_SHARING:
        first: dict[tuple, int] = {}  # the place of each prompt's longest row
        for place, row in enumerate(order):
            first.setdefault(tuple(prompts[row]), place)
        order.sort(key=lambda row: first[tuple(prompts[row])])
    parts: list[list[int]] = []
    part_tokens = 0  # of the last part
    for row in order:
        previous = parts[-1][-1] if parts else row
        row_tokens = lengths[row] - shared_prompt_tokens(prompts, previous, row)
        if not parts or part_tokens + row_tokens > max_tokens or len(parts[-1]) == max_rows > 0:
            parts.append([])
            part_tokens, row_tokens = 0, lengths[row] - shared_prompt_tokens(prompts, row, row)
        parts[-1].append(row)
        part_tokens += row_tokens
    return parts


def shared_prompt_tokens(prompts: Sequence[list[int]] | None, previous: int, row: int) -> int:
    """How many tokens the prompts of two rows begin with in common; 0 if too few to store once."""
    if prompts is None:
        return 0
    count = len(commonprefix([prompts[previous], prompts[row]]))
    return count if count >= WORTH_SHARING else 0


def count_tokens(
    lengths: Sequence[int], rows: Sequence[int], prompts: Sequence[list[int]] | None = None
) -> int:
    """The tokens of a part, as `micro_batches` counts them."""
    pairs = pairwise([rows[0], *rows])
    return sum(lengths[row] - shared_prompt_tokens(prompts, before, row) for before, row in pairs)


@lru_cache(maxsize=2)
def epoch_order(seed: int | str, epoch: int, size: int) -> list[int]:
    order = list(range(size))
    random.Random(f"problems {seed} {epoch}").shuffle(order)
    return order


def problem_index(seed: int | str, position: int, size: int) -> int:
    """The problem at a position of the endless sequence: each pass is a fresh permutation."""
    epoch, place = divmod(position, size)
    return epoch_order(seed, epoch, size)[place]


def step_problems(
    problems: Sequence[Problem], config: TrainConfig, step: int, round: int = 0
) -> list[Problem]:
    """The problems of a step, a pure function of (seed, step): resuming needs no state.

    Active sampling needs further rounds; those follow a separate sequence, so that a step which
    needs more problems does not shift the problems of later steps.
    """
    seed = config.seed if round == 0 else f"{config.seed} round {round}"
    first = step * config.problems_per_step
    positions = range(first, first + config.problems_per_step)
    return [problems[problem_index(seed, position, len(problems))] for position in positions]


# Active sampling gives up after this many rounds: a set without a signal must not loop forever.
ACTIVE_SAMPLING_ROUNDS = 4


def next_problems(
    problems: Sequence[Problem], config: TrainConfig, step: int, groups: Collection[Group]
) -> list[Problem]:
    """Stage 1: the next problems of a step, given the `groups` that it has sampled so far; none
    once it has enough. The result does not depend on which process samples, or where."""
    round = len(groups) // config.problems_per_step
    rounds = ACTIVE_SAMPLING_ROUNDS if config.active_sampling else 1
    mixed = sum(group.solved_sometimes for group in groups)
    if round == rounds or mixed >= config.problems_per_step:
        return []
    return step_problems(problems, config, step, round)


def sample_groups(
    model,
    tokenizer,
    problems: Sequence[Problem],
    config: Sampling,
    step: int = 0,
    places: Sequence[int] | None = None,
    version: int | None = None,
    engine: SamplingEngine = PLAIN_ENGINE,
) -> list[Group]:
    """Stage 2: sample a group of rollouts for each problem, without gradient.

    `places` are the problems' places within the step (default: 0, 1, ...). Together with `step`
    they determine the random streams, whichever process samples. `version` is the policy's
    (default: `step`).
    """
    return sort_by_place(
        sample_each(model, tokenizer, problems, config, step, places, version, engine)
    )


def sort_by_place(groups: Iterable[Group]) -> list[Group]:
    """The groups sorted by their problems' places within the step, not by which ended first."""
    return sorted(groups, key=lambda group: group.rollouts[0].place)


def sample_each(
    model,
    tokenizer,
    problems: Sequence[Problem],
    config: Sampling,
    step: int,
    places: Sequence[int] | None = None,
    version: int | None = None,
    engine: SamplingEngine = PLAIN_ENGINE,
) -> Iterator[Group]:
    """The groups of `sample_groups`, each as soon as its last rollout has ended."""
    places = range(len(problems)) if places is None else places
    ended = generate_each(
        model,
        [tokenizer.encode(problem_prompt(problem)) for problem in problems],
        config,
        stop_ids=answer_stops(tokenizer),
        streams=[(step, place) for place in places],
        engine=engine.with_partners(config, tokenizer, problems),
    )
    for i, rollouts in ended:
        for number, rollout in enumerate(rollouts):
            rollout.problem, rollout.place = problems[i], (places[i], number)
            rollout.policy_version = step if version is None else version
            rollout.text = answer_text(tokenizer, rollout)
        yield Group(problems[i], rollouts)


def worked_rollout(problem: Problem, tokenizer) -> Rollout:
    """The problem's own solution as a finished rollout, after the same prompt as every answer. It
    was written, not sampled, so the log-probabilities recorded in it are meaningless."""
    prompt_ids = tokenizer.encode(problem_prompt(problem))
    text = solution_text(problem)
    ends_line = tokenizer.decode(prompt_ids[-1:]).endswith(("\n", " ", "|>"))
    if not (tokenizer.apply_chat_template or ends_line or text[:1].isspace()):
        text = f" {text}"  # "Answer:" is followed by a space, as in any text
    response_ids = [*tokenizer.encode(text, chat_wrapped=False), tokenizer.eos_token_id]
    rollout = Rollout(problem, prompt_ids, response_ids, [0.0] * len(response_ids), finished=True)
    rollout.text = answer_text(tokenizer, rollout)
    return rollout


def told_rollouts(rollouts: Sequence[Rollout], tokenizer) -> list[Rollout]:
    """The same answers, after a prompt that also shows the problem's solution: for a teacher that
    scores each of their tokens."""
    return [
        replace(rollout, prompt_ids=tokenizer.encode(told_prompt(rollout.problem)))
        for rollout in rollouts
    ]


def think_token_ids(tokenizer) -> tuple[int, int]:
    """Each vocabulary has its own ids for <think> and </think>."""
    start, end = tokenizer.encode("<think>"), tokenizer.encode("</think>")
    if len(start) != 1 or len(end) != 1:
        raise UserError("the reward part think needs a model with the tokens <think> and </think>")
    return start[0], end[0]


# --- stage 3: one interface for judges. The grader, a verifier from a file, the rules of a set and
# an environment (tasks/judge.py) all return the parts of a rollout's reward: `correct`, and any
# others that they have.

Judge = Callable[[Rollout, Problem], dict[str, float]]


def grader(rollout: Rollout, problem: Problem) -> dict[str, float]:
    """The judge of most problems: is the content of the last box the same as the answer?"""
    return {"correct": correctness(rollout.text, problem.answer)}


def reward_groups(
    groups: Sequence[Group], config: Rewards, tokenizer, judge: Judge = grader
) -> None:
    """Stage 3: the reward of every rollout. Reward and advantage are different fields."""
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    required = config.reward or next((g.problem.rules for g in groups if g.problem.rules), "")
    if any(rollout.outcome is not None for rollout in rollouts):
        required = "an environment"
    if required and judge is grader:
        raise ValueError(f"{required} must judge these: pass judge=tasks.judge.judge_of(config)")
    weights = config.reward_parts
    think_ids = think_token_ids(tokenizer) if "think" in weights else (0, 0)  # unread
    for rollout in rollouts:
        verdict = judge(rollout, rollout.problem)
        form = format_parts(rollout.text, rollout.finished, rollout.text_ids, weights, think_ids)
        rollout.rewards = {"correct": verdict["correct"]} | form
        if "wrong" in weights:
            rollout.rewards["wrong"] = 1.0 - verdict["correct"]
        rollout.rewards |= verdict
        rollout.reward = total_reward(rollout.rewards, weights, config.conditional_format)
        if config.overlong_penalty:
            assert isinstance(config, Sampling)
            penalty = overlong_penalty(
                len(rollout.response_ids), config.max_new_tokens, config.overlong_penalty
            )
            rollout.rewards["overlong"] = penalty
            rollout.reward += penalty
