"""Saves: what a run saves, when, and in which form; checkpoints.py writes it to the disk."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from reasoning_from_scratch.files.disk import write_atomically
from reasoning_from_scratch.files.model_names import is_model_name
from reasoning_from_scratch.files.weights import save_hf_folder
from reasoning_from_scratch.optim.lora import lora_state, merge_lora, save_peft
from reasoning_from_scratch.policy import LocalPolicy
from reasoning_from_scratch.problems import PLACEHOLDER, PROMPT_FILE, prompt_format_of
from reasoning_from_scratch.qwen3 import Qwen3Model
from rfs.config import PLACES, RunConfig, to_json
from rfs.files.saved_models import CARD_FILE
from rfs.report.clock import Clock
from rfs.run.folder import RunFolder
from rfs.run.model_card import model_card
from rfs.scale.ranks import Ranks


@dataclass
class Saves:
    """Saves the policy of a run. All ranks call these methods, and one of them writes."""

    config: RunConfig
    policy: LocalPolicy
    folder: RunFolder
    ranks: Ranks
    clock: Clock
    # Of the last evaluation: after how many steps, and per set its accuracy and its size.
    scores: tuple[int, dict[str, tuple[float, int]]] = (-1, {})

    def save(
        self, batch: int, with_state: bool = True, prune: bool = True, **extras: object
    ) -> None:
        """Save the weights after `batch` steps, and `with_state` also what resuming needs. Extras
        (final, rolling, best, ...) become keys of the line in checkpoints.jsonl."""
        with self.clock("save"):
            model = self.policy.model_to_save()
            optimizer = self.policy.optimizer_state() if with_state else None
            if not self.ranks.writes:
                return
            if with_state:
                optimizer |= lora_state(model)
            config = {k: v for k, v in to_json(self.config).items() if k not in PLACES}
            state = {"batch": batch, "updates": self.policy.optimizer.updates, "config": config}
            self.folder.sync()
            write = partial(self.write_weights, model)
            self.folder.checkpoints.save(batch, write, optimizer, state, **extras)
            if prune:
                self.folder.checkpoints.prune(self.config.keep_last)

    def save_if_best(
        self, batch: int, accuracy: float, scores: dict[str, tuple[float, int]]
    ) -> None:
        """Save the weights if their accuracy is higher than in all evaluations so far. If they are
        saved, now or before, their card gets the scores."""
        self.scores = batch, scores
        best = self.folder.checkpoints.best()
        higher = best is None or best.eval_acc is None or accuracy > best.eval_acc
        if self.ranks.value_of_first(higher):
            self.save(batch, best=True, eval_acc=accuracy, with_state=False)
        if self.ranks.writes and (save := self.folder.checkpoints.save_after(batch)):
            self.write_card(self.folder.checkpoints.weights_folder(save))

    def rewrite_weights(self, batch: int) -> None:
        """Write the weights of the last save again, after files of it were lost."""
        model = self.policy.model_to_save()
        if self.ranks.writes:
            self.write_weights(model, self.folder.checkpoints.folder / f"{batch:06d}")

    def write_weights(self, model: Qwen3Model, path: Path) -> None:
        """Write weights that any program loads, with LoRA merged; it is also alone in adapter/."""
        self.write_card(path)
        tokenizer = self.policy.tokenizer
        if not self.config.lora_rank:
            save_hf_folder(model, tokenizer, path)
            return
        first_weights = self.folder.checkpoints.first_weights()
        is_published = is_model_name(self.config.model) and not self.config.load_checkpoint_path
        use_name = is_published or first_weights is None
        base = self.config.model if use_name else str(first_weights.absolute())
        adapter = save_peft(model, self.folder.path / "adapter", base)
        if PROMPT_FILE in tokenizer.files:
            (adapter / PROMPT_FILE).write_bytes(tokenizer.files[PROMPT_FILE])
        save_hf_folder(merge_lora(model), tokenizer, path)

    def write_card(self, path: Path) -> None:
        batch, (scores_batch, scores) = int(path.name), self.scores
        if scores_batch != batch:
            scores = {}
        rows = [row for row in self.folder.rows if row["step"] < batch]
        episodes = sum(row["env/all/total_episodes"] for row in rows)
        tokenizer, name = self.policy.tokenizer, self.folder.path.resolve().name
        asked = prompt_format_of(tokenizer)
        prompt = asked.render(tokenizer, PLACEHOLDER) if asked else ""
        card = model_card(self.config, name, batch, episodes, scores, prompt)
        write_atomically(path / CARD_FILE, card)
