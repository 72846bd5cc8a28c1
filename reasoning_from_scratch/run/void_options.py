"""Options that do nothing by themselves: given without what they need, they are refused.

What a recipe brings along is not given: `--recipe grpo_kl --kl none` leaves its kl-coef unused.
"""

from collections.abc import Callable

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.losses import CLIPPING
from reasoning_from_scratch.run.config_checks import flag


def clips(config) -> bool:
    return config.objective in CLIPPING


def updates_again(config) -> bool:
    """Whether a step's rollouts meet a policy that has moved since the step began."""
    return config.epochs * config.num_substeps > 1


def off_policy(config) -> bool:
    """Whether they meet one that has moved since it sampled them."""
    return updates_again(config) or config.max_steps_off_policy > 0


def pays_for_form(config) -> bool:
    return bool(set(config.reward_parts) - {"correct", "wrong"})


# In these words, the end of "--kl-coef does nothing ..."
NO_KL = "without a place for the penalty: add --kl reward, k2 or k3"
NO_CLIP = "in an objective without a clip: it is for --objective ppo, cispo and gspo"
ONE_UPDATE = (
    "where each rollout serves one update: all ratios p / p_start are 1; add --epochs "
    "or --num-substeps"
)
ON_POLICY = (
    "where each rollout serves one update of the policy that sampled it, which has not "
    "drifted; add --epochs, --num-substeps or --max-steps-off-policy"
)
NO_MUON = "without --optimizer muon"
NO_LORA = "without --lora-rank"
LORA_MUON = "where --lora-rank trains matrices only, and muon takes them all"

# Field, what must hold for it to do something, and what to say if it does not.
NEEDS: tuple[tuple[str, Callable[..., bool], str], ...] = (
    ("kl_coef", lambda c: c.kl != "none", NO_KL),
    (
        "kl_importance_weighted",
        lambda c: c.kl in ("k2", "k3"),
        "without a KL term in the loss: add --kl k2 or k3 with --kl-coef",
    ),
    ("clip_low", clips, NO_CLIP),
    ("clip_high", clips, NO_CLIP),
    ("clip_low", updates_again, ONE_UPDATE),
    ("clip_high", updates_again, ONE_UPDATE),
    ("dro_beta", lambda c: c.objective == "dro", "in another objective than --objective dro"),
    ("dro_beta", off_policy, ON_POLICY),
    ("sequence_mask_threshold", off_policy, ON_POLICY),
    # A run's config.json has the value that this length stands for.
    (
        "length_constant",
        lambda c: c.aggregate == "constant" or c.length_constant == c.max_new_tokens,
        "without --aggregate constant",
    ),
    (
        "conditional_format",
        pays_for_form,
        "without a reward for form: add a part, e.g. --reward-parts correct=1 format=1",
    ),
    ("num_samplers", lambda c: c.sampler == "ray", "without --sampler ray"),
    ("matrix_lr", lambda c: c.optimizer == "muon", NO_MUON),
    ("embedding_lr", lambda c: c.optimizer == "muon", NO_MUON),
    ("unembedding_lr", lambda c: c.optimizer == "muon", NO_MUON),
    ("lora_alpha", lambda c: c.lora_rank > 0, NO_LORA),
    *(
        (name, lambda c: c.optimizer != "muon" or c.lora_rank == 0, LORA_MUON)
        for name in ("embedding_lr", "unembedding_lr", "beta1", "beta2", "weight_decay")
    ),
    *(
        (name, lambda c: c.eval_every != 0, "without --eval-every")
        for name in ("eval_problems", "eval_limit", "eval_samples")
    ),
    ("keep_last", lambda c: c.save_every > 0, "without --save-every"),
)


def check_void(config, before) -> None:
    """Refuse what `config` gives in vain; `before` is the same without what was given. A default
    asks for nothing: it may be said to undo what a recipe brings along."""
    default = type(config)()
    for name, holds, why in NEEDS:
        value = getattr(config, name)
        asked = value not in (getattr(before, name), getattr(default, name))
        if asked and not holds(config):
            raise UserError(f"{flag(name)} {value} does nothing {why}")
