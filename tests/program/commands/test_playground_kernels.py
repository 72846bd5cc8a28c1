"""The playground's arithmetic in WebAssembly: the same numbers as in plain JavaScript."""

import hashlib
from importlib.resources import files
from pathlib import Path

import pytest
from browser import Browser

from rfs.commands.playground import WORKER_FILES, read_source

# Numbers for products, attention and a whole step of a small model, by whichever kernels there are.
SCRIPT = """
let state = 1;
const random = () => (state = (state * 48271) % 2147483647) / 2147483647 - 0.5;
const some = (length) => Float32Array.from({ length }, random);
const list = (x) => Array.from(x);

function products(N, O, I) {
  const x = some(N * I), w = some(O * I), dy = some(N * O);
  return [kernels.forward(x, w, N, O, I), kernels.to_input(dy, w, N, O, I),
    kernels.to_weight(dy, x, N, O, I)].map(list);
}

function attention(head_dim) {
  const cfg = { n_heads: 4, n_kv_groups: 2, head_dim }, plan = prompt_plan(7);
  for (let n = 7; n < 12; n++) plan.add(n, n, 7);
  const [q, k, v, dfound] = [4, 2, 2, 4].map((heads) => some(12 * heads * head_dim));
  const [found, weights] = kernels.attend(q, k, v, plan.lists(), cfg, false);
  const back = kernels.attend_back(q, k, v, weights, dfound, plan.lists(), cfg);
  return [found, weights, ...back].map(list);
}

// Two answers are drawn with the cache, and two updates made of them: the weights afterwards.
async function training() {
  const cfg = { vocab_size: 29, context_length: 40, emb_dim: 12, n_heads: 4, n_layers: 2,
    hidden_dim: 18, head_dim: 8, n_kv_groups: 2, rope_base: 10000, tie_embeddings: true };
  const of_block = { "att.W_query": [32, 12], "att.W_key": [16, 12], "att.W_value": [16, 12],
    "att.out_proj": [12, 32], "ff.fc1": [18, 12], "ff.fc2": [18, 12], "ff.fc3": [12, 18] };
  const norms = { "att.q_norm": 8, "att.k_norm": 8, norm1: 12, norm2: 12 };
  const tensors = { "tok_emb.weight": { data: some(29 * 12), shape: [29, 12] },
    "final_norm.scale": { data: some(12), shape: [12] } };
  for (const layer of [0, 1]) {
    const put = (name, shape) => {
      const length = shape[0] * (shape[1] ?? 1);
      tensors[`trf_blocks.${layer}.${name}`] = { data: some(length), shape };
    };
    for (const [name, shape] of Object.entries(of_block)) put(name + ".weight", shape);
    for (const [name, width] of Object.entries(norms)) put(name + ".scale", [width]);
  }
  const model = new Qwen3Model(cfg, tensors), optimizer = new AdamW(model);
  const prompt = [3, 1, 4, 1, 5];
  const config = { advantage: "zscore", objective: "ppo", aggregate: "token", clip_low: 0.8,
    clip_high: 1.2, train_temperature: 1, grad_clip: 1 };
  const options = { max_new_tokens: 9, temperature: 1, top_p: 1, stop_ids: [] };
  const answers = [], norms_found = [];
  for (let step = 0; step < 2; step++) {
    const keys = [0, 1].map((i) => stream_key(0, step, 0, i));
    const drawn = await generate(model, prompt, keys, options, async () => true);
    answers.push(drawn.map((answer) => answer.response_ids));
    const group = { prompt_ids: prompt, answers: answers[step], rewards: [1, 0] };
    norms_found.push(train_step(model, optimizer, [group], config, 0.01));
  }
  const weights = Object.values(model.parameters).map(({ data }) => list(data));
  return { answers, norms: norms_found, weights };
}
"""


def test_the_compiled_kernels_are_those_of_the_source():
    """After a change of kernels.c, run build_kernels.sh."""
    code = (files("rfs") / "playground" / "kernels.c").read_bytes()
    assert hashlib.sha256(code).hexdigest() in read_source("kernels.wasm.js")


def page(folder: Path, before: str = "") -> Browser:
    code = "\n".join(map(read_source, WORKER_FILES))
    file = folder / "page.html"
    scripts = f"<script>{before}</script><script>{code}{SCRIPT}</script>"
    file.write_text("<!doctype html><meta charset=utf-8>" + scripts, encoding="utf-8")
    browser = Browser(folder / "profile")
    browser.open(file)
    return browser


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """With WebAssembly, and where there is none."""
    compiled = page(tmp_path_factory.mktemp("compiled"))
    plain = page(tmp_path_factory.mktemp("plain"), "delete window.WebAssembly;")
    assert compiled.run("kernels.constructor.name") == "CompiledKernels"
    assert plain.run("kernels === PLAIN_KERNELS")
    yield compiled, plain
    compiled.close()
    plain.close()


def same(found, expected, close: float = 1e-5) -> None:
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        largest = max(map(abs, theirs))
        assert ours == pytest.approx(theirs, rel=close, abs=close * largest)


@pytest.mark.parametrize("sizes", [(1, 4, 8), (8, 384, 256), (37, 30, 29), (5, 7, 3), (64, 96, 40)])
def test_products(both, sizes):
    compiled, plain = (browser.run(f"products({str(sizes)[1:-1]})") for browser in both)
    same(compiled, plain)


@pytest.mark.parametrize("head_dim", [4, 12, 64, 6])
def test_attention(both, head_dim):
    compiled, plain = (browser.run(f"attention({head_dim})") for browser in both)
    same(compiled, plain)


def test_weights_that_do_not_fit_are_copied_again(both):
    """More weights than there is room to stay: each product is with those that were meant."""
    compiled, plain = (
        browser.run("""(() => {
          const many = Array.from({ length: 24 }, () => some(1024 * 1024)), x = some(1024);
          const some_of = (w) => list(kernels.forward(x, w, 1, 1024, 1024)).slice(0, 9);
          return [...many, ...many].map(some_of);
        })()""")
        for browser in both
    )
    same(compiled, plain, 1e-4)
    assert compiled[:24] == compiled[24:]


def test_two_steps_of_training(both):
    compiled, plain = (browser.run("training()") for browser in both)
    assert compiled["answers"] == plain["answers"]
    assert compiled["norms"] == pytest.approx(plain["norms"], rel=1e-5)
    same(compiled["weights"], plain["weights"], 1e-4)
