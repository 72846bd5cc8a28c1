"""What a policy over HTTP costs: rows for benchmarks/README.md.

    python benchmarks/serve_rows.py            # with the extra serve and Tinker's client

Three things, in one run: 64 single requests at once against one `generate` of 64; the loop of ch07
through Tinker's client against the same loop on a `LocalPolicy`, in processor time of server and
client, all on one core; and the first token of a lone request against `rfs chat`.
"""

import json
import os
import re
import resource
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

os.environ["OMP_NUM_THREADS"] = "1"  # here and in the server: a second core has the other process

import torch

from reasoning_from_scratch.config import Loss
from reasoning_from_scratch.fast.engine import generate
from reasoning_from_scratch.problems import render_prompt
from reasoning_from_scratch.rewards import correctness
from reasoning_from_scratch.sampling import Sampling
from reasoning_from_scratch.tokenizer import stop_ids_of
from rfs.commands.chat import stream
from rfs.own_policy import Policy
from rfs.tasks.problem_sets import load_problems

STEPS, PROBLEMS, SAMPLES, TOKENS, LEARNING_RATE = 20, 8, 8, 160, 1e-4
REPEATS = 7
# Its answers are worked out. Those of tiny are so short that 64 of them take no longer than
# Tinker's client needs to ask for them, 0.25 s.
REASONING_MODEL = "tiny-grpo"


def main() -> None:
    import tinker

    with TemporaryDirectory() as folder:
        words = ["serve", "--model", "tiny", REASONING_MODEL, "--port", "0", "--all-weights"]
        words += ["--device", "cpu", "--log-path", folder]
        server = subprocess.Popen(
            [sys.executable, "-m", "rfs", *words],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            address = re.search(r"http://\S+", server.stdout.readline())[0]
            torch.set_num_threads(1)
            with tinker.ServiceClient(base_url=address, api_key="tml-local") as service:
                compare_64_requests(tinker, service, address)
                compare_loops(tinker, service, server.pid)
                compare_first_token(address)
        finally:
            server.kill()


def make_prompts(policy: Policy, count: int) -> list[list[int]]:
    problems = load_problems("tiny", limit=count)
    return [policy.tokenizer.encode(render_prompt(problem.problem)) for problem in problems]


def compare_64_requests(tinker, service, address: str) -> None:
    """By turns: one generate of 64 prompts, a request for each from Tinker's client, which needs
    some milliseconds for each, and a request for each from 64 threads, all at the same moment."""
    policy = Policy.load(REASONING_MODEL, device="cpu")
    sampler = service.create_sampling_client(base_model=REASONING_MODEL).result()
    params = tinker.SamplingParams(max_tokens=TOKENS)
    prompts, stop_ids = make_prompts(policy, 64), stop_ids_of(policy.tokenizer)

    def generated(seed: int) -> int:
        sampling = Sampling(TOKENS, rollouts=1, seed=seed)
        groups = generate(policy.model, prompts, sampling, stop_ids=stop_ids)
        return sum(len(rollout.response_ids) for group in groups for rollout in group)

    def through_tinker(seed: int) -> int:
        futures = [
            sampler.sample(tinker.ModelInput.from_ints(prompt), 1, params) for prompt in prompts
        ]
        return sum(len(future.result().sequences[0].tokens) for future in futures)

    def at_one_moment(seed: int) -> int:
        with ThreadPoolExecutor(len(prompts)) as pool:
            return sum(pool.map(lambda prompt: completion_tokens(address, prompt), prompts))

    methods = {"generate": generated, "Tinker's": through_tinker, "plain": at_one_moment}
    speeds: dict[str, list[float]] = {name: [] for name in methods}
    for seed in range(REPEATS):
        for name, method in methods.items():
            start = time.perf_counter()
            count = method(seed)
            speeds[name].append(count / (time.perf_counter() - start))
    a, b, c = map(median, speeds.values())
    print(
        f"64 at once: generate {a:,.0f} tokens/s; 64 requests of Tinker's client {b:,.0f}, "
        f"{b / a:.2f} of it; 64 of plain HTTP {c:,.0f}, {c / a:.2f} of it"
    )


def completion_tokens(address: str, prompt: list[int]) -> int:
    call = {"model": REASONING_MODEL, "prompt": prompt, "max_tokens": TOKENS}
    body = json.dumps(call).encode()
    kind = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{address}/v1/completions", body, kind)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["usage"]["completion_tokens"]


def compare_loops(tinker, service, pid: int) -> None:
    problems = load_problems("tiny", limit=(STEPS + 1) * PROBLEMS)
    client_of_loop = service.create_lora_training_client("tiny").result()
    step_through_server(tinker, client_of_loop, problems, 0)  # warms up
    policy = Policy.load("tiny", device="cpu")
    step_on_local_policy(policy, problems, 0)
    microseconds: dict[str, list[float]] = {"server": [], "client": [], "local": []}  # us per token
    with on_one_core(os.getpid(), pid):
        for step in range(1, 1 + STEPS):  # by turns, for the machine may grow slower or faster
            server, client = processor_seconds(pid), own_processor_seconds()
            count = step_through_server(tinker, client_of_loop, problems, step)
            microseconds["server"].append((processor_seconds(pid) - server) / count * 1e6)
            microseconds["client"].append((own_processor_seconds() - client) / count * 1e6)
            start = own_processor_seconds()
            count = step_on_local_policy(policy, problems, step)
            microseconds["local"].append((own_processor_seconds() - start) / count * 1e6)
    pairs = zip(microseconds["server"], microseconds["local"], strict=True)
    extra = median(server / local for server, local in pairs) - 1
    server, client, local = map(median, microseconds.values())
    print(
        f"{STEPS} steps of {PROBLEMS} x {SAMPLES}, processor time per token: LocalPolicy "
        f"{local:.0f} us; the server {server:.0f} us, {extra:+.1%} (median of the steps), and the "
        f"client {client:.0f} us"
    )


def step_problems(problems, step: int):
    return problems[step * PROBLEMS : (step + 1) * PROBLEMS]


def advantages(rewards: list[float]) -> list[float]:
    return [reward - sum(rewards) / len(rewards) for reward in rewards]


def step_through_server(tinker, client, problems, step: int) -> int:
    """The loop of Tinker's documentation."""
    sampler = client.save_weights_and_get_sampling_client().result()
    tokenizer, params = TOKENIZER, tinker.SamplingParams(max_tokens=TOKENS)
    batch = step_problems(problems, step)
    ids = [tokenizer.encode(render_prompt(problem.problem)) for problem in batch]
    futures = [
        sampler.sample(tinker.ModelInput.from_ints(prompt), SAMPLES, params) for prompt in ids
    ]
    data, count = [], 0
    for problem, prompt, future in zip(batch, ids, futures, strict=True):
        sequences = future.result().sequences
        texts = [tokenizer.decode(list(sequence.tokens)[:-1]) for sequence in sequences]
        rewards = [correctness(text, problem.answer) for text in texts]
        for sequence, advantage in zip(sequences, advantages(rewards), strict=True):
            tokens, before = list(sequence.tokens), len(prompt) - 1
            count += len(tokens)
            if advantage == 0:
                continue
            inputs = {
                "target_tokens": [0] * before + tokens,
                "logprobs": [0.0] * before + list(sequence.logprobs),
                "advantages": [0.0] * before + [advantage] * len(tokens),
            }
            read = tinker.ModelInput.from_ints(prompt + tokens[:-1])
            data.append(tinker.Datum(model_input=read, loss_fn_inputs=inputs))
    gradient = client.forward_backward(data, "importance_sampling")
    client.optim_step(tinker.AdamParams(learning_rate=LEARNING_RATE)).result()
    gradient.result()
    return count


def step_on_local_policy(policy: Policy, problems, step: int) -> int:
    """The same step with a policy's methods."""
    groups = policy.sample(step_problems(problems, step), Sampling(TOKENS, rollouts=SAMPLES), step)
    trained_rollouts = []
    for group in groups:
        rewards = [correctness(rollout.text, group.problem.answer) for rollout in group.rollouts]
        for rollout, advantage in zip(group.rollouts, advantages(rewards), strict=True):
            rollout.advantage = advantage
            if advantage:
                trained_rollouts.append(rollout)
    loss = Loss(objective="importance_sampling", aggregate="sum")
    policy.forward_backward(trained_rollouts, loss, 1.0)
    policy.optim_step(LEARNING_RATE)
    return sum(len(rollout.response_ids) for group in groups for rollout in group.rollouts)


def compare_first_token(address: str) -> None:
    policy = Policy.load("tiny", device="cpu")
    (ids,) = make_prompts(policy, 1)
    call = {"model": "tiny", "prompt": ids, "max_tokens": 20, "stream": True, "temperature": 0}
    ours, theirs = [], []
    for _ in range(5 * REPEATS):
        start = time.perf_counter()
        next(stream(policy.model, ids, Sampling(20, temperature=0), set()))
        ours.append(time.perf_counter() - start)
        kind = {"Content-Type": "application/json"}
        body = json.dumps(call).encode()
        request = urllib.request.Request(f"{address}/v1/completions", body, kind)
        start = time.perf_counter()
        with urllib.request.urlopen(request) as answer:
            answer.readline()
            theirs.append(time.perf_counter() - start)
            answer.read()
    a, b = median(ours) * 1000, median(theirs) * 1000
    print(f"first token: rfs chat {a:.1f} ms, a stream {b:.1f} ms, {b / a:.2f} times")


@contextmanager
def on_one_core(*pids: int) -> Iterator[None]:
    """Processor time is only comparable so: two of a machine's processors are often one core, and
    a second of either is longer while both are busy. (On Linux.)"""
    before = os.sched_getaffinity(0)

    def pin_threads(cores: set[int]) -> None:
        for thread in (thread for pid in pids for thread in Path(f"/proc/{pid}/task").iterdir()):
            os.sched_setaffinity(int(thread.name), cores)

    pin_threads({min(before)})
    try:
        yield
    finally:
        pin_threads(before)


def own_processor_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def processor_seconds(pid: int) -> float:
    """Processor time of another process, on Linux."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    TOKENIZER = Policy.load("tiny", device="cpu").tokenizer
    main()
