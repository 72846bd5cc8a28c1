"""A recipe of your own: an advantage, an objective, and which of the trainer's choices go with
them. This one is REINFORCE++. Copy this file and change it; `rfs train` and `rfs compare` read it.

    rfs train --recipe ch07/my_recipe.py:recipe --steps 40 --eval-every 20
    rfs compare --recipes grpo ch07/my_recipe.py:recipe --seeds 2 --steps 30
"""

from reasoning_from_scratch.losses import ppo


def over_the_step(rewards):
    """An advantage gets the rewards of a step, a row for each problem, (P, G), and returns the
    advantages, also (P, G). Here all problems share one mean and one standard deviation."""
    return (rewards - rewards.mean()) / (rewards.std() + 1e-4)


def clipped(logprobs, start_logprobs, advantages):
    """An objective names what it needs, each (B, T): logprobs (now, with gradient),
    start_logprobs (the trainer's when the step began), old_logprobs (the sampler's), advantages,
    mask. It returns a value for each token, to be maximized."""
    return ppo((logprobs - start_logprobs).exp(), advantages, 0.8, 1.2)


# Any field of TrainConfig may go here; `rfs train --help-all` explains them.
recipe = {
    "advantage": over_the_step,
    "objective": clipped,
    "aggregate": "token",
    "epochs": 2,
    "kl": "token",
    "kl_coef": 0.01,
    "kl_discount_factor": 1.0,
}


if __name__ == "__main__":  # there is nothing to run here: say what this is
    print(__doc__)
