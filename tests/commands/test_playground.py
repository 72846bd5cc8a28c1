"""rfs playground: one page that samples, scores and trains as the package does.

What the page computes is compared in a headless Chromium with what the package computes.
"""

import base64
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from browser import Browser, chromium

from reasoning_from_scratch.advantages import advantages
from reasoning_from_scratch.commands.playground import PlaygroundOptions, playground, rounded
from reasoning_from_scratch.evaluation.evaluate import evaluate
from reasoning_from_scratch.files.problem_sets import load_problems
from reasoning_from_scratch.files.weights import load_model_and_tokenizer
from reasoning_from_scratch.logprobs import padded_logprobs
from reasoning_from_scratch.losses import Loss, policy_loss, step_denominator
from reasoning_from_scratch.problems import render_prompt
from reasoning_from_scratch.rewards import score_parts
from reasoning_from_scratch.rollouts import make_batch
from reasoning_from_scratch.sampling import Rollout, Sampling, generate, greedy
from reasoning_from_scratch.tokenizer import stop_ids_of

MODELS = ("tiny-base", "tiny-grpo")
needs_browser = pytest.mark.skipif(
    chromium() is None, reason="there is no Chromium or Chrome here to open the page in"
)


@pytest.fixture(scope="module")
def page_file(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("page") / "index.html"
    assert playground(PlaygroundOptions(MODELS, out=str(out))) == 0
    return out


@pytest.fixture(scope="module")
def page(page_file, tmp_path_factory):
    """The page, opened once for the tests of this file; the models are read by then."""
    browser = Browser(tmp_path_factory.mktemp("profile"))
    browser.open(page_file)
    browser.run("opened")
    yield browser
    browser.close()


@pytest.fixture(scope="module")
def models():
    return [load_model_and_tokenizer(name) for name in MODELS]


def ask(page, what: str, **request):
    """The worker's reply."""
    return page.run(f"ask({json.dumps(what)}, {json.dumps(request)})")


# --- the same numbers ---


@needs_browser
@pytest.mark.parametrize("which", [0, 1])
def test_logits_are_pytorchs(page, models, which):
    model, tokenizer = models[which]
    for problem in load_problems("tiny-test", limit=20):
        ids = tokenizer.encode(render_prompt(problem.problem))
        asked = f"ask('logits', {{model: {which}, ids: {ids}}}).then((x) => Array.from(x))"
        with torch.no_grad():
            expected = model(torch.tensor([ids]))[0]
        found = torch.tensor(page.run(asked)).view_as(expected)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-3)


def answers_of(page, which: int, count: int, **sampling) -> list[str]:
    """One answer of the page to each of the first test problems."""
    request = {"model": which, "max_new_tokens": 128, **sampling}
    return page.run(f"""(async () => {{
      const texts = [];
      for (let k = 0; k < {count}; k++) {{
        const stream = [{sampling.get("seed", 0)}, 0, k];
        const request = {{...{json.dumps(request)}, problem: data.test[k][0], stream}};
        texts.push((await ask("answer", request)).answers[0].text);
      }}
      return texts;
    }})()""")


@needs_browser
@pytest.mark.parametrize("which", [0, 1])
def test_greedy_answers_are_those_of_an_evaluation(page, models, which):
    result = evaluate(*models[which], load_problems("tiny-test", limit=100), greedy(128))
    expected = [row["generated_text"] for row in result.rows]
    assert answers_of(page, which, 100, temperature=0, top_p=1) == expected


@needs_browser
@pytest.mark.parametrize("which, temperature, top_p", [(0, 1.0, 1.0), (1, 0.8, 0.9), (0, 1.3, 0.7)])
def test_a_seed_draws_the_packages_answers(page, models, which, temperature, top_p):
    sampling = Sampling(128, temperature=temperature, top_p=top_p, rollouts=1, seed=12345)
    result = evaluate(*models[which], load_problems("tiny-test", limit=40), sampling)
    expected = [row["generated_text"] for row in result.rows]
    options = {"temperature": temperature, "top_p": top_p, "seed": 12345}
    assert answers_of(page, which, 40, **options) == expected
    graded = page.run(
        f"{json.dumps(expected)}.map((text, k) => score_parts(text, data.test[k][1], true).correct)"
    )
    assert graded == [float(row["correct"]) for row in result.rows]


TEXTS = [
    "",
    "Ana has 12 pens.\n\n  \\boxed{\\frac{3}{4}}  ",
    "don'T I'LL ſ's '\u017f we've\u00a0x",
    "e\u0301 e\u0301\u0323 \u1e69 日本語 😀👩\u200d👩\u200d👧 مرحبا ١٢٣",
    "a\u0085b \ufeffc \u200b \u2028 \t \r\n x  ",
    "<|im_end|>x<think><|im_end|> <|im_",
    "<script>alert(1)</script>",
]


@needs_browser
def test_the_tokenizer_is_the_packages(page, models):
    _, tokenizer = models[0]
    problems = [render_prompt(p.problem) for p in load_problems("tiny-test", limit=100)]
    for text in [*TEXTS, *problems]:
        ids = tokenizer.encode(text)
        assert ask(page, "encode", text=text) == ids
        assert ask(page, "decode", ids=ids) == tokenizer.decode(ids)
    parts = tokenizer.encode("日😀")[:-1]  # the last character's bytes are not complete
    assert ask(page, "decode", ids=parts) == tokenizer.decode(parts)


GRADED = [
    ("\\boxed{12}", "12", True),
    ("\\boxed{ 12 } and \\boxed{13}", "12", True),
    ("\\boxed{6/8}", "\\frac{3}{4}", True),
    ("\\boxed{\\frac{3}{4}}", "\\frac{3}{4}", True),
    ("\\boxed{\\frac{-3}{4}}", "\\frac{3}{4}", True),
    ("\\boxed{0.75}", "\\frac{3}{4}", True),
    ("\\boxed{1,200}", "1200", True),
    ("\\boxed{012}", "12", True),
    ("\\boxed{12", "12", False),
    ("\\boxed{}", "12", True),
    ("12", "12", True),
    ("\\boxed{12}", "12", False),
]


@needs_browser
def test_the_pages_checker_agrees_with_the_grader(page):
    for text, answer, finished in GRADED:
        words = ", ".join(json.dumps(value) for value in (text, answer, finished))
        found = page.run(f"score_parts({words})")
        assert {name: found[name] for name in ("correct", "format")} == score_parts(
            text, answer, finished
        ), text


RECIPES = """
    grpo dapo cispo dr_grpo gspo dro ch06 importance_sampling reinforce olmo3
""".split()


@needs_browser
@pytest.mark.parametrize("number", range(20))
def test_advantages_and_gradients_are_the_packages(page, models, number):
    """Each group's log-probabilities when the step began are moved, so that the clips bite."""
    recipe = page.run(f"data.recipes[{json.dumps(RECIPES[number % len(RECIPES)])}]")
    model, tokenizer = as_the_page_has_it(models[0][0]), models[0][1]
    problem = load_problems("tiny-test", limit=20)[number]
    prompt = tokenizer.encode(render_prompt(problem.problem))
    sampling = Sampling(24, rollouts=4, seed=number)
    (rollouts,) = generate(model, [prompt], sampling, stop_ids=stop_ids_of(tokenizer))
    random = torch.Generator().manual_seed(number)
    rewards = torch.randn(4, generator=random)
    expected = advantages(rewards, recipe["advantage"])
    name = json.dumps(recipe["advantage"])
    found = page.run(f"ADVANTAGES[{name}]({rewards.tolist()})")
    torch.testing.assert_close(torch.tensor(found), expected)

    old = []
    for rollout, advantage in zip(rollouts, expected.tolist(), strict=True):
        rollout.advantage = advantage
        noise = 0.3 * torch.randn(len(rollout.logprobs), generator=random)
        rollout.logprobs = (torch.tensor(rollout.logprobs) + noise).tolist()
        old.append(rollout.logprobs)
    packages_gradient(model, rollouts, recipe)
    group = {
        "prompt_ids": prompt,
        "answers": [rollout.response_ids for rollout in rollouts],
        "rewards": rewards.tolist(),
    }
    gradient = pages_gradient(page, {"groups": [group], "config": recipe, "old": [old]})
    for name, parameter in model.named_parameters():
        ours, theirs = gradient[name].view_as(parameter), parameter.grad
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4 * float(theirs.abs().max()))


def as_the_page_has_it(model):
    """The model with the weights that the page has: rounded to 16 bits."""
    state = {}
    for name, tensor in model.state_dict().items():
        scales, whole = rounded(tensor.numpy())
        state[name] = torch.from_numpy(whole * scales[:, None]).view_as(tensor)
    copy = type(model)(model.cfg)
    copy.load_state_dict(state)
    return copy


def packages_gradient(model, rollouts: list[Rollout], recipe: dict) -> None:
    fields = ("objective", "aggregate", "clip_low", "clip_high", "dro_beta", "length_constant")
    config = Loss(**{name: recipe[name] for name in fields})
    batch = make_batch(rollouts, torch.device("cpu"))
    tokens = sum(len(rollout.response_ids) for rollout in rollouts)
    counts = (len(rollouts), tokens, config.length_constant)
    loss, _ = policy_loss(
        padded_logprobs(model, batch),
        batch.old_logprobs,
        batch.advantages,
        batch.mask,
        config,
        step_denominator(config.aggregate, *counts),
        start_logprobs=batch.old_logprobs,
    )
    loss.backward()


def pages_gradient(page, request: dict) -> dict[str, torch.Tensor]:
    found = page.run(f"""(async () => {{
      const {{ grads }} = await ask("gradient", {json.dumps({"model": 0, **request})});
      const text = (bytes) => {{
        let all = "";
        for (let i = 0; i < bytes.length; i += 32768)
          all += String.fromCharCode(...bytes.subarray(i, i + 32768));
        return btoa(all);
      }};
      return Object.fromEntries(Object.entries(grads).map(
        ([name, grad]) => [name, text(new Uint8Array(grad.buffer))]));
    }})()""")
    return {
        name: torch.from_numpy(np.frombuffer(base64.b64decode(text), "<f4").copy())
        for name, text in found.items()
    }


# --- the page itself ---


@needs_browser
def test_nothing_was_requested_and_nothing_went_wrong(page, page_file):
    assert set(page.addresses) - {page_file.resolve().as_uri()} <= {
        address for address in page.addresses if address.startswith("blob:null/")
    }
    assert page.errors == []
