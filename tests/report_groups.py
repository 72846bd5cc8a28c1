"""Made-up groups for the tests of reports, and two tokenizers that are hard to show."""

import random

from tokenizers import decoders

from reasoning_from_scratch.problems import Problem
from reasoning_from_scratch.rollouts import Group, Rollout


class ByteTokenizer:
    """One token per byte, so that most characters outside of ASCII take several tokens."""

    eos_token_id = 256

    def encode(self, text: str) -> list[int]:
        return list(text.encode("utf-8", "replace"))

    def decode(self, ids: list[int]) -> str:
        text = bytes(i for i in ids if i < 256).decode("utf-8", "replace")
        return text + "<|endoftext|>" * (256 in ids)


class Llama2Tokenizer:
    """Decodes as Llama 2's does: a text's first space is dropped, since encoding added it."""

    pieces = ["\u2581the", "\u2581cat", "s", "\u2581", "\u2581\u2581", "<0xC3>", "<0xA9>"]
    parts = decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()
    decoder = decoders.Sequence([*parts, decoders.Strip(" ", 1, 0)])

    def decode(self, ids: list[int]) -> str:
        return self.decoder.decode([self.pieces[i] for i in ids])


def make_rollout(
    problem: Problem,
    text: str,
    reward: float = 0.0,
    advantage: float = 0.0,
    finished: bool = True,
    logprobs: list[float] | None = None,
) -> Rollout:
    tokenizer = ByteTokenizer()
    ids = tokenizer.encode(text) + ([256] if finished else [])
    return Rollout(
        problem=problem,
        prompt_ids=tokenizer.encode(f"Question:\n{problem.problem}\n\nAnswer:"),
        response_ids=ids,
        logprobs=[-0.25] * len(ids) if logprobs is None else logprobs,
        entropies=[0.5] * len(ids),
        text=text,
        finished=finished,
        rewards={"correct": reward, "format": float(finished)},
        reward=reward,
        advantage=advantage,
        policy_version=7,
    )


def make_groups(count: int = 6, size: int = 4, seed: int = 0) -> list[Group]:
    rng = random.Random(seed)
    groups = []
    for number in range(count):
        a, b = rng.randrange(10, 99), rng.randrange(10, 99)
        problem = Problem(f"sum/{number}", f"What is {a} + {b}?", str(a + b), "Level 1", "sums")
        rollouts = []
        for sample in range(size):
            right = sample % 2 == 0
            text = f"Let's see.\n{a} + {b} = {a + b}\n\\boxed{{{a + b if right else a - b}}}"
            lp = [-rng.expovariate(2.0) for _ in range(len(text) + 1)]
            sign = 1.0 if right else -1.0
            rollouts.append(make_rollout(problem, text, float(right), sign, logprobs=lp))
        groups.append(Group(problem, rollouts))
    return groups
