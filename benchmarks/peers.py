"""The peers: transformers' generate, trl's GRPOTrainer, llama.cpp; our weights, our rollouts.

None is a dependency of the project; `benchmarks/run.py --help` says how to have them.
"""

import contextlib
import io
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from statistics import median

import torch
from duel import synchronize

from answer_grader import answer_verdict, extract_final_candidate
from reasoning_from_scratch.files.tensor_files import to_hf_names
from reasoning_from_scratch.problems import Problem, render_prompt
from reasoning_from_scratch.qwen3 import Qwen3Model
from reasoning_from_scratch.rollouts import Group


def are_installed(*names: str) -> bool:
    return all(find_spec(name) for name in names)


def hf_model(model: Qwen3Model):
    """transformers' Qwen3 with the same weights."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    cfg = model.cfg
    config = Qwen3Config(
        vocab_size=cfg["vocab_size"],
        hidden_size=cfg["emb_dim"],
        intermediate_size=cfg["hidden_dim"],
        num_hidden_layers=cfg["n_layers"],
        num_attention_heads=cfg["n_heads"],
        num_key_value_heads=cfg["n_kv_groups"],
        head_dim=cfg["head_dim"],
        max_position_embeddings=cfg["context_length"],
        rope_parameters={"rope_type": "default", "rope_theta": cfg["rope_base"]},
        tie_word_embeddings=cfg["tie_embeddings"],
        pad_token_id=0,
        eos_token_id=None,
    )
    peer = Qwen3ForCausalLM._from_config(config, dtype=cfg["dtype"]).to(model.tok_emb.weight.device)
    peer.load_state_dict(to_hf_names(model.state_dict()), strict=not cfg["tie_embeddings"])
    return peer.eval()


@torch.no_grad()
def hf_generate(
    peer, prompts: list[list[int]], rollouts: int, new_tokens: int, top_p: float, cache: str
):
    """Exactly `new_tokens` tokens for each rollout of each prompt."""
    longest = max(map(len, prompts))
    rows = [[0] * (longest - len(prompt)) + prompt for prompt in prompts]
    ids = torch.tensor(rows, device=peer.device)  # (B, T), padded on the left
    start = torch.tensor([[longest - len(prompt)] for prompt in prompts], device=peer.device)
    return peer.generate(
        ids,
        attention_mask=(torch.arange(longest, device=peer.device) >= start).long(),
        do_sample=True,
        temperature=1.0,
        top_p=top_p,
        top_k=0,
        num_return_sequences=rollouts,
        max_new_tokens=new_tokens,
        min_new_tokens=new_tokens,
        cache_implementation=None if cache == "dynamic" else cache,
        disable_compile=True,  # of a static cache; it takes longer than the benchmark
    )


@contextlib.contextmanager
def silence_output():
    """trl prints its metrics at the end, transformers a bar while it loads."""
    nothing = io.StringIO()
    with contextlib.redirect_stdout(nothing), contextlib.redirect_stderr(nothing):
        yield


def time_grpo_steps(
    peer,
    tokenizer,
    rows: list[dict],
    our_step: Callable[[int], None],
    steps: int,
    settings: dict,
    fixed_batch: dict | None = None,
    reward: Callable[..., list[float]] | None = None,
    adapter=None,
    count_first_step: bool = False,
) -> tuple[float, float]:
    """Median seconds of our step and of trl's, in turn: ours runs before each of trl's begins.
    With `fixed_batch`, trl trains on these tensors instead of sampling; with `adapter`, peft's
    configuration of a LoRA, it trains that."""
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    times: dict[str, list[float]] = {"ours": [], "trl": []}

    class InTurn(TrainerCallback):
        def on_step_begin(self, args, state, control, **_):
            synchronize()
            start = time.perf_counter()
            our_step(state.global_step)
            synchronize()
            self.start = time.perf_counter()
            times["ours"].append(self.start - start)

        def on_step_end(self, *_, **__):
            synchronize()
            times["trl"].append(time.perf_counter() - self.start)

    class OnFixedRollouts(GRPOTrainer):
        def _generate_and_score_completions(self, inputs):
            return fixed_batch

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), silence_output():
        warnings.simplefilter("ignore")
        arguments = GRPOConfig(
            output_dir=folder,
            max_steps=steps + 1,
            use_cpu=peer.device.type == "cpu",
            bf16=False,
            gradient_checkpointing=False,
            logging_strategy="no",
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            beta=0.0,
            loss_type="grpo",
            temperature=1.0,
            top_p=1.0,
            top_k=0,
            learning_rate=1e-6,
            lr_scheduler_type="constant",
            adam_beta2=0.95,
            max_grad_norm=1.0,
            shuffle_dataset=False,
            **settings,
        )
        trainer = (OnFixedRollouts if fixed_batch else GRPOTrainer)(
            peer,
            reward or grade_completions,
            arguments,
            train_dataset=Dataset.from_list(rows),
            processing_class=tokenizer,
            callbacks=[InTurn()],
            peft_config=adapter,
        )
        trainer.train()
    first = 0 if count_first_step else 1  # else the first step warms up
    return median(times["ours"][first:]), median(times["trl"][first:])


def grade_completions(completions: list[str], answer: list[str], **_) -> list[float]:
    """Our own grader as trl's reward function."""
    finals = [extract_final_candidate(text, fallback=None) for text in completions]
    return [
        float(bool(text) and answer_verdict(text, truth) == "correct")
        for text, truth in zip(finals, answer, strict=True)
    ]


def dataset_rows(problems: Sequence[Problem]) -> list[dict]:
    return [{"prompt": render_prompt(p.problem), "answer": p.answer} for p in problems]


def trl_batch(group: Group, device: str = "cpu") -> dict:
    """The rollouts of one group, all of the same length, as GRPOTrainer prepares them."""
    prompts = torch.tensor([rollout.prompt_ids for rollout in group.rollouts])  # (B, P)
    answers = torch.tensor([rollout.response_ids for rollout in group.rollouts])  # (B, T)
    batch = {
        "prompt_ids": prompts,
        "prompt_mask": torch.ones_like(prompts),
        "completion_ids": answers,
        "completion_mask": torch.ones_like(answers),
        "advantages": torch.tensor([rollout.advantage for rollout in group.rollouts]),
        "num_items_in_batch": torch.tensor(answers.numel()),
    }
    return {name: values.to(device) for name, values in batch.items()}


class LlamaCpp:
    """llama.cpp's server in this process, by the wheel xllamacpp: it decodes `rows` answers of at
    most `length` tokens, prompt included, in one batch, with the file's 4-bit weights."""

    def __init__(self, file: Path, rows: int, length: int) -> None:
        import xllamacpp

        params = xllamacpp.CommonParams()
        params.model.path = str(file)
        params.n_parallel, params.n_ctx = rows, rows * (-(-length // 256) * 256)
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = torch.get_num_threads()
        params.verbosity = 0
        self.server = xllamacpp.Server(params)

    def generate(self, prompts: list[list[int]], rollouts: int, new_tokens: int) -> None:
        """Exactly `new_tokens` tokens for each rollout, from the whole distribution."""
        answer = self.server.handle_completions(
            {
                "prompt": prompts,
                "n_cmpl": rollouts,
                "n_predict": new_tokens,
                "ignore_eos": True,
                "samplers": ["temperature"],
                "temperature": 1.0,
                "cache_prompt": False,
            }
        )
        ends = [choice["finish_reason"] for choice in answer["choices"]]
        assert ends == ["length"] * rollouts * len(prompts), "the sides must do the same work"
