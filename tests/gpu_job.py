"""The same work on the CPU and on a GPU: `gpu_job.py FOLDER DEVICE`, where the device is "cuda", or
"pretend" for the one of pretend_gpu.py. Prints a JSON object: per piece of work what both found,
and in which functions the pretended GPU made the host wait.

A process of its own, because the pretended device stays for as long as the process lives."""

import json
import sys
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from toy import toy_config, toy_model, toy_problems, toy_tokenizer, toy_world, train

from reasoning_from_scratch import ch02, ch04, ch06, ch07
from reasoning_from_scratch.fast.decoding import Decoder
from reasoning_from_scratch.fast.device import parity_problem
from reasoning_from_scratch.fast.graphs import GraphDecoder, GraphDraw
from reasoning_from_scratch.files import tensor_files
from reasoning_from_scratch.problems import Problem
from reasoning_from_scratch.recipes import RECIPES
from reasoning_from_scratch.sampling import Sampling, SamplingEngine, generate
from rfs.commands.chat import stream
from rfs.engine import FAST
from rfs.evaluation.evaluate import evaluate
from rfs.run import start
from rfs.run.options import resumed_config

PROMPTS = [[5, 6, 7], [8, 9, 10, 11], [5, 6, 7, 8, 9]]
RUNS = {
    "plain": {"eval_every": 2, "save_every": 1, "preflight": True},
    "cut": {
        "top_p": 0.8,
        "top_k": 30,
        "keep_sampling_mask": True,
        "kl": "k3",
        "kl_coef": 0.1,
        "gradient_checkpointing": True,
    },
    "substeps": {"num_substeps": 2, "epochs": 2, "compute_post_kl": True}
    | {"recipe": "gspo"}
    | RECIPES["gspo"].changes,
    "lora": {"lora_rank": 4, "active_sampling": True, "eval_every": 2, "eval_samples": 2},
    "stream": {"num_minibatches": 2},
    "async": {"max_steps_off_policy": 1} | {"recipe": "cispo"} | RECIPES["cispo"].changes,
}


def pretend() -> list[str]:
    """Switches the pretended GPU on; returns the list of its waits."""
    import pretend_gpu

    save_file = tensor_files.save_file

    def save_from_cpu(tensors, *arguments, **options):
        """safetensors fetches from a real GPU by itself, but looks for a real one's memory."""
        save_file({name: tensor.cpu() for name, tensor in tensors.items()}, *arguments, **options)

    tensor_files.save_file = save_from_cpu
    return pretend_gpu.waits


def trained(device: str, folder: Path, **changes) -> list[dict]:
    """Metrics of three steps; the third resumes the other two."""
    folder.mkdir()
    rows = []
    for steps in (2, 3):
        run, values = folder / "run", {"save_every": 1} | changes
        start.trusted_device = lambda name: torch.device(device)  # "pretend" is no option's word
        config = toy_config(run, steps=2, **values) if steps == 2 else resumed_config(run, steps=3)
        rows = train(config, quiet=True, **toy_world(folder)).rows
    return rows


def sampled(device: str, engine: SamplingEngine = FAST, **policy) -> list:
    """Rollouts from a vocabulary that is wide enough for candidates to be looked at first."""
    model = toy_model(vocab_size=4096).to(device)
    sampling = Sampling(33, rollouts=2, sample_rows=4, **policy)
    groups = generate(model, PROMPTS, sampling, stop_ids=set(range(50)), engine=engine)
    return [[r.response_ids, r.logprobs, r.kept] for group in groups for r in group]


def sampled_by_recordings(device: str) -> list:
    """Steps and draws are recorded as on a CUDA GPU, there by one, here by calling them again."""
    record = None if device == "cuda" else lambda step: step
    engine = replace(
        FAST,
        make_decoder=lambda model, rows, steps: GraphDecoder(Decoder(model), record),
        make_draw=lambda model, rows, steps, keeps: partial(GraphDraw(record), keeps=keeps),
    )
    return sampled(device, engine, top_p=0.9, top_k=30)


def multinomial_on_cpu(probs, *arguments, **options):
    """The chapters draw torch's own random numbers: each kind of device has others."""
    return MULTINOMIAL(probs.cpu(), *arguments, **options).to(probs.device)


MULTINOMIAL, torch.multinomial = torch.multinomial, multinomial_on_cpu


def chapters(device: str, folder: Path) -> list:
    """What readers call in the notebooks."""
    torch.manual_seed(0)
    model, tokenizer = toy_model().to(device), toy_tokenizer(folder)
    ids = torch.tensor([[5, 6, 7]], device=device)
    example = {"problem": "abc", "answer": "2"}
    found = [ch02.generate_text_basic_cache(model, ids, 5).tolist()]
    found += [
        [
            int(token)
            for token in ch04.generate_text_top_p_stream_cache(
                model, ids, 5, temperature=0.9, top_p=0.8
            )
        ]
    ]
    stats = ch06.compute_grpo_loss(model, tokenizer, example, device, 4, max_new_tokens=5)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    ch06.update_weights(model, optimizer, stats)
    found += [[stats["loss"], *stats["advantages"]]]
    found += [[float(x) for x in ch07.sequence_logprob_and_entropy(model, ids[0], 1)]]
    found += [list(stream(model, PROMPTS[1], Sampling(9, top_p=0.9), set()))]
    problems = [Problem("one", "abc", "2"), *toy_problems(3)]
    result = evaluate(model, tokenizer, problems, Sampling(4, rollouts=2))
    return [*found, [row["tokens"] for row in result.rows]]


def mixed(device: str) -> str:
    """What is said of a tensor that was left on the CPU."""
    try:
        return str(torch.ones(3, device=device) + torch.ones(3))
    except RuntimeError as error:
        return str(error)


def main(folder: Path, device: str) -> None:
    waits = pretend() if device == "pretend" else []

    def both(work) -> dict:
        """`work` here and there."""
        here = work("cpu")
        waits.clear()
        there = work(device)
        return {"cpu": here, "gpu": there, "waits": Counter(waits)}

    found = {}
    for name, policy in {
        "all": {},
        "top_p": {"top_p": 0.9},
        "sets": {"top_p": 0.9, "top_k": 9, "keep_sampling_mask": True},
        "greedy": {"temperature": 0.0},
    }.items():
        found[f"sampled {name}"] = both(lambda device, policy=policy: sampled(device, **policy))
    found["sampled recorded"] = both(sampled_by_recordings)
    found["chapters"] = both(lambda device: chapters(device, folder))
    for name, changes in RUNS.items():
        found[f"trained {name}"] = both(
            lambda device, name=name, changes=changes: trained(
                device, folder / f"{name}-{device}", **changes
            )
        )
    found["parity"] = {"cpu": None, "gpu": parity_problem(torch.device(device)), "waits": {}}
    found["mixed"] = mixed(device)
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
