"""rfs playground: one page that samples, scores and trains as the package does.

What the page computes is compared in a headless Chromium with what the package computes.
"""

import base64
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from browser import Browser, as_a_page_has_it
from small_model import FAMILIES, small_model
from toy import score_parts

from reasoning_from_scratch.advantages import advantages
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files.weights import save_hf_folder, shipped_checkpoint
from reasoning_from_scratch.logprobs import padded_logprobs
from reasoning_from_scratch.losses import Loss, policy_loss, step_denominator
from reasoning_from_scratch.problems import (
    problem_prompt,
    prompt_format_of,
    render_prompt,
    store_prompt_format,
)
from reasoning_from_scratch.recipes import RECIPES as RECIPE_TABLE
from reasoning_from_scratch.rollouts import make_batch
from reasoning_from_scratch.sampling import Rollout, Sampling, generate
from reasoning_from_scratch.text import percent
from reasoning_from_scratch.tiny.guessing import guess_problem
from reasoning_from_scratch.tiny.world import parts, why_out_of_scope
from reasoning_from_scratch.tokenizer import stop_ids_of
from rfs.commands.cli import main
from rfs.commands.playground import (
    ANSWER_TOKENS,
    GAME,
    LOSS,
    PAGE_BITS,
    Entry,
    PlaygroundOptions,
    page_data,
    playground,
    recipe_rows,
)
from rfs.engine import FAST
from rfs.evaluation.evaluate import evaluate
from rfs.files.models import load_model_and_tokenizer
from rfs.tasks.problem_sets import load_problems

MODELS = ("tiny-base", "tiny-grpo", "tiny-grpo-longer")
PLAYERS = ("tiny-player", "tiny-player-grpo")


@pytest.fixture(scope="module")
def page_file(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("page") / "index.html"
    assert playground(PlaygroundOptions(MODELS, PLAYERS, out=str(out))) == 0
    return out


@pytest.fixture(scope="module")
def page(page_file, tmp_path_factory):
    """The page, opened once for the tests of this file; the models are read by then."""
    browser = Browser(tmp_path_factory.mktemp("profile"))
    open_page(browser, page_file)
    yield browser
    browser.close()


def open_page(browser, file: Path) -> None:
    """Until it has answered its first problem, which it does by itself."""
    browser.open(file)
    browser.run("opened")
    browser.wait("!by_id('ask').disabled")


@pytest.fixture(scope="module")
def models():
    return [load_model_and_tokenizer(name) for name in MODELS + PLAYERS]


def ask(page, what: str, **request):
    """The worker's reply."""
    return page.run(f"ask({json.dumps(what)}, {json.dumps(request)})")


# --- the same numbers ---


@pytest.mark.parametrize("which", [0, 1, 2])
def test_logits_are_pytorchs(page, models, which):
    model, tokenizer = models[which]
    for problem in load_problems("tiny-test", limit=8):
        ids = tokenizer.encode(render_prompt(problem.problem))
        asked = f"ask('logits', {{model: {which}, ids: {ids}}}).then((x) => Array.from(x))"
        with torch.no_grad():
            expected = model(torch.tensor([ids]))[0]
        found = torch.tensor(page.run(asked)).view_as(expected)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-3)


def answers_of(page, which: int, count: int, rows: str, seed: int, **policy) -> list[str]:
    """One answer of the page to each of the first problems of a set."""
    request = {"model": which, "max_new_tokens": ANSWER_TOKENS, **policy}
    return page.run(f"""(async () => {{
      const texts = [];
      for (let k = 0; k < {count}; k++) {{
        const stream = [{seed}, 0, k];
        const request = {{...{json.dumps(request)}, problem: data.{rows}[k][0], stream}};
        texts.push((await ask("answer", request)).answers[0].text);
      }}
      return texts;
    }})()""")


@pytest.mark.parametrize(
    "which, rows, temperature, top_p",
    [
        (0, "test", 0.0, 1.0),
        (1, "test", 0.0, 1.0),
        (2, "longer", 0.0, 1.0),
        (0, "test", 1.0, 1.0),
        (1, "test", 0.8, 0.9),
        (0, "test", 1.3, 0.7),
    ],
)
def test_answers_are_those_of_an_evaluation(page, models, which, rows, temperature, top_p):
    policy = {"temperature": temperature, "top_p": top_p, "seed": 12345}
    problems = load_problems(f"tiny-{rows}", limit=20 if rows == "test" else 10)
    result = evaluate(*models[which], problems, Sampling(ANSWER_TOKENS, rollouts=1, **policy))
    expected = [row["generated_text"] for row in result.rows]
    assert answers_of(page, which, len(problems), rows, **policy) == expected
    graded = page.run(
        f"{json.dumps(expected)}.map((x, k) => score_parts(x, data.{rows}[k][1], true).correct)"
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
    ("\\boxed{.75}", "\\frac{3}{4}", True),
    ("\\boxed{\u22125}", "-5", True),
    ("\\boxed{.}", "5", True),
    ("\\boxed{1,200}", "1200", True),
    ("\\boxed{012}", "12", True),
    ("\\boxed{12", "12", False),
    ("\\boxed{}", "12", True),
    ("12", "12", True),
    ("\\boxed{12}", "12", False),
]


def test_the_pages_checker_agrees_with_the_grader(page):
    for graded in GRADED:
        found = page.run(f"score_parts(...{json.dumps(graded)})")
        assert {name: found[name] for name in ("correct", "format")} == score_parts(*graded), graded


RECIPES = """
    grpo dapo cispo dr_grpo gspo dro ch06 importance_sampling reinforce olmo3 dppo maxrl
""".split()


def test_a_recipe_that_the_page_cannot_compute_is_left_out(page):
    assert page.run("left_out") == []
    known = {"objective": "ppo", "advantage": "mean"}
    assert page.run(f"computed({json.dumps(known)})")
    for part in known:
        assert not page.run(f"computed({json.dumps(known | {part: 'of-tomorrow'})})")


def test_a_recipe_on_the_page_changes_nothing_that_the_page_does_not_compute():
    # The page trains with the weights that drew the answers, so a weight for their gap is 1.
    without_effect = {"truncate_importance", "mask_importance", "importance_level"}
    known = {*LOSS, "active_sampling"} | without_effect  # the page says that it omits the second
    known |= {"logprob_temperature", "keep_sampling_mask"}  # ch06's: as train_temperature says
    for name in recipe_rows():
        assert set(RECIPE_TABLE[name].changes) <= known, name


@pytest.mark.parametrize("number, recipe", list(enumerate(RECIPES)))
def test_advantages_and_gradients_are_the_packages(page, models, number, recipe):
    recipe = page.run(f"data.recipes[{json.dumps(recipe)}]")
    model, tokenizer = as_a_page_has_it(models[0][0], PAGE_BITS), models[0][1]
    problem = load_problems("tiny-test", limit=20)[number]
    prompt = tokenizer.encode(render_prompt(problem.problem))
    sampling = Sampling(24, rollouts=4, seed=number)
    (rollouts,) = generate(model, [prompt], sampling, stop_ids=stop_ids_of(tokenizer))
    random = torch.Generator().manual_seed(number)
    rewards = torch.rand(4, generator=random)
    expected = advantages(rewards, recipe["advantage"])
    name = json.dumps(recipe["advantage"])
    found = page.run(f"ADVANTAGES[{name}]({rewards.tolist()})")
    torch.testing.assert_close(torch.tensor(found), expected)
    same_gradients(page, 0, model, rollouts, rewards, recipe, random)


def same_gradients(page, which: int, model, rollouts: list[Rollout], rewards, recipe, random):
    """Of a group. Its log-probabilities when the step began are moved, so that the clips bite."""
    old = []
    for rollout, advantage in zip(rollouts, advantages(rewards, recipe["advantage"]), strict=True):
        rollout.advantage = float(advantage)
        noise = 0.3 * torch.randn(len(rollout.logprobs), generator=random)
        rollout.logprobs = (torch.tensor(rollout.logprobs) + noise).tolist()
        old.append(rollout.select_sampled(rollout.logprobs))
    packages_gradient(model, rollouts, recipe)
    group = {
        "prompt_ids": rollouts[0].prompt_ids,
        "answers": [rollout.response_ids for rollout in rollouts],
        "forced": [rollout.forced for rollout in rollouts],
        "rewards": rewards.tolist(),
    }
    request = {"model": which, "groups": [group], "config": recipe, "old": [old]}
    found = pages_gradient(page, request)
    for name, parameter in model.named_parameters():
        ours, theirs = found[name].view_as(parameter), parameter.grad
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4 * float(theirs.abs().max()))


def packages_gradient(model, rollouts: list[Rollout], recipe: dict) -> None:
    """Into the model's parameters."""
    fields = "objective aggregate clip_low clip_high dro_beta divergence_limit length_constant"
    config = Loss(**{name: recipe[name] for name in fields.split()})
    batch = make_batch(rollouts, torch.device("cpu"))
    tokens = sum(rollout.num_sampled for rollout in rollouts)
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
      const {{ grads }} = await ask("gradient", {json.dumps(request)});
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


def click(page, button: str, seconds: float = 240) -> str:
    """Press a button and wait for what it does: the line that is said beside it."""
    page.run(f"by_id({json.dumps(button)}).click()")
    page.wait("!by_id('ask').disabled", seconds)
    said = f"by_id({json.dumps(button)}).closest('.buttons').querySelector('[role=status]')"
    return page.run(f"({said} || by_id('answer-state')).textContent")


def fill(page, **values) -> None:
    """Fields by their ids, in which _ stands for -."""
    for name, value in values.items():
        put(page, f"by_id({json.dumps(name.replace('_', '-'))})", value)


def put(page, field: str, value: str) -> None:
    page.run(f"{field}.value = {json.dumps(value)}")
    for event in ("input", "change"):
        page.run(f"{field}.dispatchEvent(new Event('{event}'))")


FIRST_REWARD = "by_id('rollouts').querySelectorAll('input')[0]"


def texts(page, selector: str) -> list[str]:
    found = f"[...document.querySelectorAll({json.dumps(selector)})]"
    return page.run(f"{found}.map((x) => x.textContent)")


PENS = {"problem": "Ana has 12 pens, buys 9 more and loses 5. How many pens does Ana have now?"}


def test_the_models_answer_and_those_that_were_trained_are_right(page):
    fill(page, **PENS, truth="16")
    said = click(page, "ask")
    assert re.fullmatch(r"2 of 3 answers correct, \d+ tokens in \d+\.\d s\.", said)
    badges = [re.sub(r", \d+ tokens", "", text) for text in texts(page, "#answers h3")]
    trained = [f"{name} ✓ correct checked" for name in MODELS[1:]]
    assert badges == ["tiny-base ✗ incorrect answer only", *trained]
    guess, working, _ = texts(page, "#answers .text")
    assert guess.endswith("}■") and "12 + 9 = 21? Yes" in working
    assert "\n" in working
    assert page.run("by_id('speed').textContent").endswith("on one core of this machine.")


def test_what_is_typed_while_the_models_answer_is_not_what_they_answered(page):
    fill(page, **PENS, truth="16")
    page.run("by_id('ask').click()")
    fill(page, problem="What is the capital of Fra")
    page.wait("!by_id('ask').disabled")
    assert page.run("by_id('answer-state').textContent").startswith("2 of 3 answers correct")


def test_an_answer_that_was_stopped_is_not_judged(page):
    fill(page, **PENS, truth="16")
    page.run("(by_id('ask').click(), by_id('stop').click())")
    page.wait("!by_id('ask').disabled")
    assert page.run("by_id('answer-state').textContent") == "stopped"
    assert texts(page, "#answers .verdict") == ["stopped"]
    assert click(page, "ask").startswith("2 of 3 answers correct")


def test_while_a_group_is_drawn_nothing_is_shown_of_the_one_before(page):
    draw_group(page)
    shown = "['advantages', 'ways'].map((id) => !by_id(id).hidden)"
    assert page.run(shown) == [True, True]
    assert page.run(f"(by_id('draw').click(), {shown})") == [False, False]
    page.wait("!by_id('ask').disabled")
    assert page.run(shown) == [True, True]


def test_a_group_is_there_with_its_tokens_or_not_at_all(page):
    """A recipe that was chosen in between met answers without tokens."""
    page.run("""(() => {
      let held = null;
      window.whole = [];
      Object.defineProperty(group, "answers", { configurable: true, get: () => held, set(answers) {
        held = answers;
        if (answers) whole.push(answers.every(({ tokens }) => tokens));
      } });
    })()""")
    draw_group(page)
    assert page.run("whole") == [True]
    page.run("Object.defineProperty(group, 'answers', { value: group.answers, writable: true })")


def test_what_is_typed_stays_text(page):
    hostile = "<script>window.harm = 1</script><img src=x onerror='window.harm = 1'>"
    fill(page, problem=hostile, truth="1")
    click(page, "ask")
    click(page, "draw")
    assert hostile in page.run("by_id('group-problem').textContent")
    assert page.run("window.harm === undefined && !document.querySelector('main img, main script')")


TYPED = [
    PENS["problem"],
    "What is 6 * 7?",
    "Zora has 12345 pens, buys 3 more.",
    "What is the capital of France?",
    "How many pens?",
    "Solve for x: x + 5 = 12",
    "x٣ é 日本 _ 😀 3-4",
    "",
]


def test_the_page_knows_what_the_models_have_read(page):
    asked = [*TYPED, *(problem.problem for problem in load_problems("tiny-longer", limit=100))]
    assert page.run(f"{json.dumps(asked)}.map(parts)") == [
        [list(part) for part in parts(question)] for question in asked
    ]
    found = page.run(f"{json.dumps(asked[:-100])}.map(beyond)")
    assert [bool(why) for why in found] == [bool(why_out_of_scope(question)) for question in TYPED]
    fill(page, problem="What is 6 * 7?", truth="41")
    assert "they have read nothing like “is 6 * 7?”" in click(page, "ask")
    assert "a kind of problem it has not read" in texts(page, "#answers .verdict")[0]


def draw_group(page) -> str:
    fill(page, **PENS, truth="16", group_model="0", group_seed="3")
    return click(page, "draw")


def table(page) -> dict[str, list[float]]:
    rows = texts(page, "#advantages tbody tr th")
    cells = [float(text.replace("−", "-")) for text in texts(page, "#advantages tbody td")]
    return {name: cells[8 * i : 8 * i + 8] for i, name in enumerate(rows)}


def test_a_group_has_rewards_and_advantages_and_both_follow_ones_hand(page):
    said = draw_group(page)
    shown = table(page)
    correct = int(sum(shown["reward"]))
    assert said.startswith(f"{correct} of 8 are correct.") and 0 < correct < 8
    put(page, FIRST_REWARD, "0.5")
    changed = table(page)
    assert changed["reward"] == [0.5, *shown["reward"][1:]]
    for kind in ("zscore", "mean", "leave-one-out"):
        expected = advantages(torch.tensor(changed["reward"]), kind)
        torch.testing.assert_close(torch.tensor(changed[kind]), expected, rtol=0, atol=0.0051)
    page.run("by_id('all-correct').click()")
    assert all(set(values) <= {0.0, 1.0} for values in table(page).values())
    assert "learns nothing from this group" in page.run("by_id('verdict-of-group').textContent")
    assert texts(page, "#rollouts .text i[class]:not([class=''])") == []
    page.run("by_id('graded').click()")
    assert table(page) == shown


def test_maxrl_takes_no_rewards_below_zero(page):
    draw_group(page)
    page.run("by_id('graded').click()")
    fill(page, advantage="maxrl")
    put(page, FIRST_REWARD, "-1")
    assert "no reward may be below 0" in page.run("by_id('verdict-of-group').textContent")
    assert texts(page, "#advantages tbody td")[-8:] == ["–"] * 8
    assert "no reward may be below 0" in click(page, "step")
    fill(page, advantage="zscore")
    page.run("by_id('graded').click()")


def test_a_share_is_shown_as_everywhere(page):
    shares = [0, 0.0004, 0.0006, 1 / 3, 0.9996, 1, 1 / 16, 5 / 16, 3 / 16]
    assert page.run(f"{shares}.map(percent)") == [percent(share) for share in shares]


def test_two_probabilities_are_told_apart(page):
    """The learning rate is small: 76.5% -> 76.5% would look like no step at all."""
    cases = [(0.765, 0.7652), (0.2, 0.4), (0.5, 0.5), (0, 1)]
    shown = ["76.50% → 76.52%", "20.0% → 40.0%", "50.0% → 50.0%", "0.0% → 100.0%"]
    assert [page.run(f"change({was}, {now})") for was, now in cases] == shown


def test_a_step_makes_what_was_rewarded_more_probable(page):
    draw_group(page)
    fill(page, passes="2")
    said = click(page, "step")
    assert said.startswith("Gradient norm") and "Part 1 can now ask" in said
    before, after = page.run(
        "group.result.logprobs.map((g) => g.map((a) => a.reduce((s, x) => s + x)))"
    )
    shown = table(page)
    change = torch.tensor(after) - torch.tensor(before)
    assert all(change[torch.tensor(shown["reward"]) == 1] > 0)
    assert (change * torch.tensor(shown["zscore"])).sum() > 0  # incorrect ones may share words
    # What the sampler wrote down is what the training pass finds again.
    drawn = page.run("group.answers.map((a) => a.logprobs.reduce((s, x) => s + x))")
    torch.testing.assert_close(torch.tensor(before), torch.tensor(drawn), rtol=0, atol=1e-3)
    assert page.run("document.querySelector('#models input[value=step]') !== null")


def test_training_in_the_page_tells_how_far_it_is_and_keeps_its_model(page):
    """Ten steps are too few to see a rise; that a step is the package's, the gradients say."""
    fill(page, steps="10", per_step="1")
    page.run("""lefts = new Set(); new MutationObserver(() => lefts.add(
        by_id("train-left").innerText.trim())).observe(by_id("train-left"),
        { childList: true, subtree: true })""")
    said = click(page, "start-training", 900)
    begun, *lefts = page.run("[...lefts]")
    assert begun == "step 1 of 10" and len(lefts) == 10
    for step, left in enumerate(lefts, 1):
        assert re.fullmatch(rf"step {step} of 10, about \d+ (s|min) left", left)
    assert page.run("by_id('train-left').hidden")
    assert said.startswith("10 steps in")
    heights = page.run(
        "[...document.querySelectorAll('#curve circle')].map((c) => +c.getAttribute('cy'))"
    )
    shares = [(210 - height) / 190 for height in heights]
    assert len(shares) == 10 and all(-1e-9 <= share <= 1 for share in shares)
    assert max(shares) > 0
    line = page.run("document.querySelector('#curve polyline').getAttribute('points')")
    ends = (210 - float(line.split(",")[-1])) / 190
    assert ends == pytest.approx(sum(shares[-5:]) / 5, abs=1e-3)  # not on the last step's luck
    assert f"mean of the last 5: {100 * ends:.1f}%" in texts(page, "#curve-text")[0]
    assert re.search(
        r"Sampled at step 1: \d+ answer only.*; at step 10: ", texts(page, "#curve-text")[0]
    )
    assert "trained in this tab" in texts(page, "#models label")


# --- the game of part 5 ---


def packages_games(model, tokenizer, numbers: list[int], sampling: Sampling) -> list[Rollout]:
    """A game about each number, each drawn as an evaluation of the set draws it."""
    order = [int(problem.answer) for problem in load_problems("guess")]
    problems = [guess_problem(number) for number in numbers]
    groups = generate(
        model,
        [tokenizer.encode(problem_prompt(problem)) for problem in problems],
        sampling,
        stop_ids=stop_ids_of(tokenizer),
        streams=[(0, order.index(number)) for number in numbers],
        engine=FAST.with_partners(sampling, tokenizer, problems),
    )
    return [rollout for group in groups for rollout in group]


def pages_games(page, which: int, numbers: list[int], sampling: Sampling) -> list[dict]:
    limits = {key: getattr(sampling, key) for key in GAME}
    request = {"model": which, "numbers": numbers}
    request |= {"seed": sampling.seed, "temperature": sampling.temperature}
    game = f"{{...data.game, ...{json.dumps(limits)}}}"
    return page.run(f"ask('games', {{...{json.dumps(request)}, game: {game}}})")


@pytest.mark.parametrize(
    "which, temperature, limits",
    [
        (3, 1.0, {}),
        (4, 1.0, {}),
        (3, 0.0, {}),
        (4, 0.0, {}),
        (3, 2.0, {}),  # now and then no number at all
        (4, 1.0, {"max_turns": 3}),
        (3, 1.0, {"max_turn_tokens": 2}),  # numbers of two digits are cut off before their end
        (3, 1.0, {"max_new_tokens": 25}),  # the third turn does not fit any more
    ],
)
def test_games_are_the_packages_token_for_token(page, models, which, temperature, limits):
    model, tokenizer = as_a_page_has_it(models[which][0], PAGE_BITS), models[which][1]
    options = GAME | limits
    sampling = Sampling(environment="guess", temperature=temperature, rollouts=1, seed=7, **options)
    numbers = list(range(1, 65, 2))
    expected = packages_games(model, tokenizer, numbers, sampling)
    found = pages_games(page, which, numbers, sampling)
    assert [game["response_ids"] for game in found] == [game.response_ids for game in expected]
    assert [game["forced"] for game in found] == [game.forced for game in expected]
    assert [game["finished"] for game in found] == [game.finished for game in expected]
    assert [game["rewards"] for game in found] == [game.outcome for game in expected]
    for ours, theirs in zip(found, expected, strict=True):
        drawn = torch.tensor(theirs.select_sampled(theirs.logprobs))
        torch.testing.assert_close(torch.tensor(ours["logprobs"]), drawn, rtol=0, atol=1e-3)
        assert len(ours["said"]) == theirs.turns
    assert any(game.forced for game in expected)


@pytest.mark.parametrize("number, recipe", list(enumerate(["grpo", "cispo", "dro", "gspo"])))
def test_a_games_replies_are_read_and_only_guesses_are_trained(page, models, number, recipe):
    recipe = page.run(f"data.recipes[{json.dumps(recipe)}]")
    model, tokenizer = as_a_page_has_it(models[3][0], PAGE_BITS), models[3][1]
    sampling = Sampling(environment="guess", rollouts=4, seed=number, **GAME)
    rollouts = packages_games(model, tokenizer, [10 + number], sampling)
    random = torch.Generator().manual_seed(number)
    rewards = torch.randn(4, generator=random)
    same_gradients(page, 3, model, rollouts, rewards, recipe, random)
    assert any(rollout.forced for rollout in rollouts)


def test_a_player_trained_in_the_page_plays_with_the_others(page):
    fill(page, player_steps="40", numbers_per_step="2")
    page.run("by_id('train-player').click()")
    page.wait("document.querySelectorAll('#player-curve circle').length >= 3", 300)
    page.run("by_id('stop-player').click()")
    page.wait("!by_id('ask').disabled")
    assert re.fullmatch(r"stopped after \d+ steps", page.run("by_id('player-state').textContent"))
    assert "Its first guess after step" in texts(page, "#first-guess")[0]
    assert "trained in this tab: " in click(page, "play")
    assert page.run("by_id('games').children.length") == 3
    changed = page.run("""Promise.all([3, "player"].map((model) =>
        ask("games", {model, numbers: [42], seed: 0, temperature: 1, game: data.game})
    )).then((games) => games.map(([game]) => game.logprobs[0]))""")
    assert changed[0] != changed[1]


def test_the_saved_steps_of_a_run_are_a_slider(tmp_path):
    """A run's saves beside a model that is not of it."""
    sizes = ["--problems-per-step", "1", "--rollouts", "2", "--max-new-tokens", "8"]
    words = ["--steps", "2", "--save-every", "1", "--no-preflight", *sizes]
    run = tmp_path / "mine"
    assert main(["train", "--model", "tiny-base", "--log-path", str(run), *words]) == 0
    out = tmp_path / "page.html"
    assert playground(PlaygroundOptions(("tiny-base",), (), run=str(run), out=str(out))) == 0
    browser = Browser(tmp_path / "profile")
    open_page(browser, out)
    slider = "by_id('models').querySelector('input[type=range]')"
    assert texts(browser, "#models label") == ["tiny-base: before GRPO", "mine, step 2"]
    put(browser, slider, "0")
    assert texts(browser, "#models label") == ["tiny-base: before GRPO", "mine, step 1"]
    fill(browser, **PENS, truth="16")
    assert " of 2 answers correct" in click(browser, "ask")
    assert browser.run("state.runs.map((run) => run.model)") == [0, 1]
    assert browser.run("by_id('play') === null")  # nobody in it plays
    assert browser.errors == []
    browser.close()


def test_nothing_was_requested_and_nothing_went_wrong(page, page_file):
    """Of all that the tests above did: this one stays the last."""
    own = [page_file.resolve().as_uri(), "blob:null/"]
    assert [url for url in page.addresses if not url.startswith(tuple(own))] == []
    assert page.errors == []


# --- the command ---


def test_what_the_page_cannot_hold_is_refused_with_a_sentence(tmp_path):
    other = shutil.copytree(shipped_checkpoint("tiny-base"), tmp_path / "other")
    file = json.loads((other / "tokenizer.json").read_text())
    file["model"]["merges"].pop()
    (other / "tokenizer.json").write_text(json.dumps(file))
    out, another = tmp_path / "page.html", "has another tokenizer than tiny-base"
    for options, says in (
        (PlaygroundOptions(("tiny-base",), run=str(tmp_path)), "is not a run folder"),
        (PlaygroundOptions(("tiny-bse",)), "tiny-base"),
        (PlaygroundOptions(("tiny-base", str(other))), another),
        (PlaygroundOptions(("tiny-base",), (str(other),)), another),
        (PlaygroundOptions(()), "name a model"),
    ):
        with pytest.raises(UserError, match=says):
            playground(replace(options, out=str(out)))
    assert not out.exists()


def saved(folder: Path, model, tokenizer) -> Entry:
    save_hf_folder(model, tokenizer, folder)
    return Entry(folder.name, None, str(folder))


@pytest.mark.parametrize("kind", ["book", "question", "chat"])
def test_a_model_is_asked_as_it_was_in_training(tmp_path, kind):
    model, tokenizer = load_model_and_tokenizer("tiny-base")
    store_prompt_format(tokenizer, kind, load_problems("tiny", limit=1))
    expected = prompt_format_of(tokenizer).render(tokenizer, "What is 6 * 7?")
    data, _ = page_data([saved(tmp_path / "mine", model, tokenizer)])
    assert "What is 6 * 7?".join(data["models"][0]["prompt"]) == expected


def test_a_model_that_the_page_cannot_compute_or_stop_is_refused(tmp_path):
    model, tokenizer = load_model_and_tokenizer("tiny-base")
    for family, differs in FAMILIES.items():
        other = small_model(vocab_size=model.cfg["vocab_size"], **differs)
        with pytest.raises(UserError, match=f"{family} is not a Qwen3"):
            page_data([saved(tmp_path / family, other, tokenizer)])
    tokenizer.end_answers_at("Question:")
    store_prompt_format(tokenizer, "book", load_problems("tiny", limit=1))
    with pytest.raises(UserError, match="mine was trained with --stop 'Question:'"):
        page_data([saved(tmp_path / "mine", model, tokenizer)])
