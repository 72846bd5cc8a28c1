"""Rollout, Group, Batch, and the iterator that the trainer loops over."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache, partial

import torch
from torch import Tensor

from reasoning_from_scratch.files.own_task import own_verifier
from reasoning_from_scratch.problems import Problem, problem_prompt
from reasoning_from_scratch.report.clock import Clock
from reasoning_from_scratch.rewards import (
    overlong_penalty,
    score_parts,
    total_reward,
)
from reasoning_from_scratch.sampling import Sample, generate
from reasoning_from_scratch.tokenizer import stop_ids_of

# Active sampling gives up after so many rounds: a set without a signal must not loop for ever.
ACTIVE_SAMPLING_ROUNDS = 4


@dataclass
class Rollout:
    """One sampled answer to one problem, and what became of it."""

    problem: Problem
    prompt_ids: list[int]
    response_ids: list[int]  # the stop token included
    logprobs: list[float]  # of each response token, under the distribution it was drawn from
    entropies: list[float]  # of that distribution
    text: str
    finished: bool  # False: cut off at the length limit or the end of the context
    kept: list[list[int]] | None = None  # per token, what top-p and top-k left over; []: all
    rewards: dict[str, float] = field(default_factory=dict)
    failure: str = ""  # how a verifier of one's own failed on it
    reward: float = 0.0
    advantage: float = 0.0
    policy_version: int = 0  # updates the weights had seen when sampling began
    place: tuple[int, int] = (0, 0)  # problem within the step, rollout within the group

    @property
    def stop_reason(self) -> str:
        return "stop" if self.finished else "length"

    def __len__(self) -> int:
        return len(self.prompt_ids) + len(self.response_ids)


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
        """All rewards equal: no rollout is better than another, there is nothing to learn."""
        return min(self.rewards) == max(self.rewards)

    @property
    def mixed(self) -> bool:
        """Some answers are right, others are not. Lengths and format have no say in this."""
        return len({rollout.rewards["correct"] for rollout in self.rollouts}) > 1

    @property
    def live(self) -> bool:
        """Some rollout has an advantage, so the group has a gradient."""
        return any(rollout.advantage != 0 for rollout in self.rollouts)


@dataclass
class Batch:
    """Rollouts as tensors, right-padded. Masks come from lengths, never from token values."""

    token_ids: Tensor  # (B, T) prompt, then response, then padding
    mask: Tensor  # (B, T) 1 = sampled token
    old_logprobs: Tensor  # (B, T) the sampler's record; 0 where the mask is 0
    advantages: Tensor  # (B,)
    lengths: Tensor  # (B,) real tokens
    ref_logprobs: Tensor | None = None  # (B, T) of the reference model
    start_logprobs: Tensor | None = None  # (B, T) of the trainer before its first update
    kept: list[list[list[int]]] | None = None  # per row and sampled token, what top-p left over

    def __len__(self) -> int:
        return len(self.token_ids)

    def rows(self, index: list[int]) -> "Batch":
        """Some rows, cut to the longest of them."""
        longest = int(self.lengths[index].max())
        picked = {}
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, list):
                value = [value[row] for row in index]
            elif value is not None:
                value = value[index] if value.dim() == 1 else value[index, :longest]
            picked[item.name] = value
        return Batch(**picked)


def make_batch(rollouts: Sequence[Rollout], device: torch.device | str = "cpu") -> Batch:
    """Pad rollouts on the right into one Batch. Padding is token 0; nothing ever reads it."""
    shape = (len(rollouts), max(map(len, rollouts)))
    token_ids = torch.zeros(shape, dtype=torch.long)  # (B, T)
    mask = torch.zeros(shape)  # (B, T)
    old_logprobs = torch.zeros(shape)  # (B, T)
    for row, rollout in enumerate(rollouts):
        start, end = len(rollout.prompt_ids), len(rollout)
        token_ids[row, :end] = torch.tensor(rollout.prompt_ids + rollout.response_ids)
        mask[row, start:end] = 1
        old_logprobs[row, start:end] = torch.tensor(rollout.logprobs)
    advantages = torch.tensor([rollout.advantage for rollout in rollouts])  # (B,)
    lengths = torch.tensor([len(rollout) for rollout in rollouts])  # (B,)
    tensors = (token_ids, mask, old_logprobs, advantages, lengths)
    recorded = all(rollout.kept is not None for rollout in rollouts)
    kept = [rollout.kept for rollout in rollouts] if recorded else None
    return Batch(*(tensor.to(device) for tensor in tensors), kept=kept)


def micro_batches(lengths: Sequence[int], max_tokens: int) -> list[list[int]]:
    """Row numbers in parts of at most `max_tokens` tokens; the pass computes no padding.

    Longest first: neighbours have similar lengths, which attention likes, and a shape that does
    not fit into memory fails at once. A single row over the budget is a part of its own.
    """
    parts: list[list[int]] = []
    taken = max_tokens
    for row in sorted(range(len(lengths)), key=lambda row: (-lengths[row], row)):
        if taken + lengths[row] > max_tokens:
            parts.append([])
            taken = 0
        parts[-1].append(row)
        taken += lengths[row]
    return parts


@lru_cache(maxsize=2)
def epoch_order(seed: int, epoch: int, size: int) -> list[int]:
    order = list(range(size))
    random.Random(f"problems {seed} {epoch}").shuffle(order)
    return order


def problem_index(seed: int, position: int, size: int) -> int:
    """The problem at a position of the endless sequence: each pass is a fresh permutation."""
    epoch, place = divmod(position, size)
    return epoch_order(seed, epoch, size)[place]


def step_problems(problems: Sequence[Problem], config, step: int, round: int = 0) -> list[Problem]:
    """The problems of a step, a pure function of (seed, step): resuming needs no state.

    Active sampling asks for further rounds; those follow a sequence of their own, so that a
    step which needs more problems does not shift the problems of the steps after it.
    """
    seed = config.seed if round == 0 else f"{config.seed} round {round}"
    first = step * config.problems_per_step
    positions = range(first, first + config.problems_per_step)
    return [problems[problem_index(seed, position, len(problems))] for position in positions]


def sample_groups(
    model,
    tokenizer,
    problems: Sequence[Problem],
    config,
    step: int,
    places: Sequence[int] | None = None,
    on_group: Callable[[Group], None] | None = None,
    version: int | None = None,
    before_step: Callable[[], None] | None = None,
) -> list[Group]:
    """Stage 2: sample a group of rollouts for each problem, without gradient.

    `places` are the problems' places within the step (default: 0, 1, ...): together with `step`
    they choose the random streams, whoever samples. `version` is the policy's (default: `step`).
    `on_group` gets each group as soon as its last rollout has ended. What `before_step` raises
    ends the sampling, also in the middle of a rollout.
    """
    groups: dict[int, Group] = {}
    prompts = [tokenizer.encode(problem_prompt(problem)) for problem in problems]
    places = range(len(problems)) if places is None else places
    version = step if version is None else version

    def finished(i: int, drawn: list[Sample]) -> None:
        groups[i] = as_group(tokenizer, problems[i], prompts[i], drawn, version, places[i])
        if on_group:
            on_group(groups[i])

    generate(
        model,
        prompts,
        config.rollouts,
        max_new_tokens=config.max_new_tokens,
        temperature=config.temperature,
        top_p=config.top_p,
        top_k=config.top_k,
        seed=config.seed,
        streams=[(step, place) for place in places],
        stop_ids=stop_ids_of(tokenizer),
        max_rows=config.sample_rows,
        keep_sets=config.keep_sampling_mask,
        on_group=finished,
        before_step=before_step,
    )
    return [groups[i] for i in range(len(problems))]


def as_group(
    tokenizer, problem: Problem, prompt: list[int], samples: list[Sample], version: int, place: int
) -> Group:
    rollouts = []
    for number, sample in enumerate(samples):
        text_ids = sample.ids[:-1] if sample.finished else sample.ids  # text without stop token
        rollouts.append(
            Rollout(
                problem=problem,
                prompt_ids=prompt,
                response_ids=sample.ids,
                logprobs=sample.logprobs,
                entropies=sample.entropies,
                text=tokenizer.decode(text_ids),
                finished=sample.finished,
                kept=sample.kept,
                policy_version=version,
                place=(place, number),
            )
        )
    return Group(problem, rollouts)


def think_token_ids(tokenizer) -> tuple[int, int]:
    """Each vocabulary has ids of its own for <think> and </think>; both are single tokens."""
    return tokenizer.encode("<think>")[-1], tokenizer.encode("</think>")[-1]


def reward_groups(groups: Sequence[Group], config, tokenizer) -> None:
    """Stage 3: judge every rollout. Reward and advantage are different fields."""
    weights = config.reward_parts
    think_ids = think_token_ids(tokenizer) if "think" in weights else ()
    for group in groups:
        for rollout in group.rollouts:
            rollout.rewards = score_parts(
                rollout.text,
                rollout.problem.answer,
                rollout.finished,
                rollout.response_ids,
                tuple(weights),
                think_ids,
            )
            if config.reward:
                correct, rollout.failure = own_verifier(config.reward)(
                    rollout.text, rollout.problem
                )
                failed = float(bool(rollout.failure))
                rollout.rewards |= {"correct": correct, "reward_failed": failed}
                if "wrong" in weights:
                    rollout.rewards["wrong"] = 1.0 - correct
            rollout.reward = total_reward(rollout.rewards, weights, config.conditional_format)
            if config.overlong_penalty:
                late = overlong_penalty(
                    len(rollout.response_ids), config.max_new_tokens, config.overlong_penalty
                )
                rollout.rewards["overlong"] = late
                rollout.reward += late


Together = Callable[[Callable[[], list[Group]]], list[Group]]


def alone(sample: Callable[[], list[Group]]) -> list[Group]:
    """On a single rank, what it samples is all there is."""
    return sample()


def sample_step(
    model,
    tokenizer,
    problems: Sequence[Problem],
    config,
    step: int,
    clock: Clock,
    on_group: Callable[[Group], None] | None = None,
    version: int | None = None,
    own: Callable[[Sequence[int]], Sequence[int]] = list,
    together: Together = alone,
    before_step: Callable[[], None] | None = None,
) -> list[Group]:
    """Stages 1 to 3 of one step: its problems, their rollouts, the rewards.

    `on_group` gets each group, with its rewards, while others may still be sampled. On several
    ranks, `own` chooses the places that are sampled here, and `together` gathers all groups.
    """

    def rewarded(group: Group) -> None:
        with clock("reward"):
            reward_groups([group], config, tokenizer)
        if on_group:
            on_group(group)

    groups: list[Group] = []
    rounds = ACTIVE_SAMPLING_ROUNDS if config.active_sampling else 1
    for round in range(rounds):
        chosen = dict(enumerate(step_problems(problems, config, step, round), len(groups)))
        places = own(list(chosen))
        sample = partial(
            sample_groups,
            model,
            tokenizer,
            [chosen[place] for place in places],
            config,
            step,
            places,
            rewarded,
            version,
            before_step,
        )
        with clock("sampling"):
            groups += together(sample)
        if sum(group.mixed for group in groups) >= config.problems_per_step:
            break
    return groups


def on_policy_rollouts(
    model,
    tokenizer,
    problems: Sequence[Problem],
    config,
    first_step: int = 0,
    clock: Clock | None = None,
    on_group: Callable[[Group], None] | None = None,
    own: Callable[[Sequence[int]], Sequence[int]] = list,
    together: Together = alone,
) -> Iterator[list[Group]]:
    """The groups of one step after another, always sampled by the model as it is now.

    The trainer sees no more than this iterator: streaming, asynchronous and many-machine
    sampling are other functions that yield the same.
    """
    clock = clock or Clock()
    for step in range(first_step, config.steps):
        yield sample_step(
            model, tokenizer, problems, config, step, clock, on_group, own=own, together=together
        )
