"""The explorable pages: what they show is what the package computes, and nothing is fetched."""

import gzip
import json
import math
import runpy
import shutil
from itertools import product
from pathlib import Path

import museum
import pytest
import torch
from browser import Browser, as_a_page_has_it, chromium

from reasoning_from_scratch.advantages import advantages
from reasoning_from_scratch.config import Loss
from reasoning_from_scratch.logprobs import padded_logprobs
from reasoning_from_scratch.losses import policy_loss, step_denominator
from reasoning_from_scratch.optim.adamw import AdamW
from reasoning_from_scratch.problems import render_prompt
from reasoning_from_scratch.rollouts import make_batch
from reasoning_from_scratch.sampling import Rollout
from rfs.commands.playground import ENGINE_BITS, engine_script
from rfs.files.models import load_model_and_tokenizer
from tests.conftest import ROOT

NAMES = sorted(path.stem for path in (ROOT / "docs" / "explore").glob("*.html"))
WITH_A_MODEL = ("step", "train")
pytestmark = pytest.mark.skipif(
    chromium() is None, reason="there is no Chromium or Chrome here to open the pages in"
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    opened = Browser(tmp_path_factory.mktemp("profile"))
    opened.pages = pages_with_engine(tmp_path_factory.mktemp("site"))
    yield opened
    opened.close()


def pages_with_engine(folder: Path) -> Path:
    """The pages as they lie in a clone or on the site, beside the model that two of them run."""
    pages = folder / "docs/explore"
    shutil.copytree(ROOT / "docs/explore", pages)
    for name in ("rfs/playground", "rfs/report/templates"):
        shutil.copytree(ROOT / name, folder / name)
    (pages / "engine.js").write_text(engine_script(), encoding="utf-8")
    return pages


def page(browser, name):
    browser.open(browser.pages / f"{name}.html")
    if name in WITH_A_MODEL:
        browser.run("opened.then(() => 0)")
    return browser


def moved(browser, **controls):
    """What the page shows once its controls, which are JavaScript's names, have these values."""
    for name, value in controls.items():
        browser.run(f"{name}.set({value})")
    return browser.run("(draw(), shown)")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("width", [390, 1280])
def test_a_page_opens_from_the_disk_and_fits(browser, name, width):
    browser.errors.clear()
    browser.addresses.clear()
    screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 800}
    browser.send("Emulation.setDeviceMetricsOverride", **screen)
    page(browser, name)
    assert browser.errors == []
    assert all(address.startswith(("file:", "blob:null/")) for address in browser.addresses)
    assert browser.run("document.documentElement.scrollWidth") <= width
    unnamed = "[...document.querySelectorAll('svg')].filter((x) => !x.getAttribute('aria-label'))"
    assert browser.run(f"{unnamed}.length") == 0


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_serious_fault_for_those_who_see_badly_or_use_no_mouse(browser, name, scheme):
    axe = pytest.importorskip("axe_core_python", reason="the test group is not installed")
    code = (Path(axe.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
    colors = {"name": "prefers-color-scheme", "value": scheme}
    browser.send("Emulation.setEmulatedMedia", features=[colors])
    page(browser, name)
    browser.run(f"{code}; 0")
    found = browser.run("axe.run(document).then((done) => done.violations)")
    browser.send("Emulation.setEmulatedMedia", features=[])
    serious = [fault for fault in found if fault["impact"] in ("serious", "critical")]
    assert [(fault["id"], fault["nodes"][0]["html"]) for fault in serious] == []


def test_the_pages_are_small(browser):
    """All of them with all that they load, compressed as a web server sends it."""
    files = (path.read_bytes() for path in browser.pages.iterdir())
    assert sum(len(gzip.compress(content)) for content in files) < 3_000_000


def test_without_its_model_a_page_says_how_to_get_it(browser, tmp_path):
    shutil.copytree(browser.pages, tmp_path / "docs/explore")
    (tmp_path / "docs/explore/engine.js").unlink()
    for name in WITH_A_MODEL:
        browser.open(tmp_path / f"docs/explore/{name}.html")
        said = browser.run("document.getElementById('says').textContent")
        assert "uv run python docs/explore/make_engine.py" in said
        assert browser.run("[...document.querySelectorAll('button')].every((x) => x.disabled)")
    browser.errors.clear()  # that there is no such file


@pytest.mark.parametrize("method", ["zscore", "mean", "leave-one-out"])
def test_advantages(browser, method):
    page(browser, "advantages")
    for rewards in ([1, 0, 0, 1], [0, 0, 0], [1, 1, 1, 1, 1, 0]):
        browser.run(f"rewards = {rewards}; document.querySelector('[value={method}]').click()")
        found = moved(browser)["advantages"]
        expected = advantages(torch.tensor(rewards, dtype=torch.float32), method).tolist()
        assert found == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("p", [0.01, 0.3, 0.9])
def test_the_average_push_counts_all_groups(browser, p):
    page(browser, "advantages")
    found = moved(browser, size=4, solved=p)
    assert found["rewards"] and found["uniform"] == pytest.approx(p**8 + (1 - p) ** 8, abs=1e-3)
    browser.run("rewards.length = 4")
    found = moved(browser)
    for method in ("zscore", "mean"):
        push = 0.0
        for rewards in product((0.0, 1.0), repeat=4):
            chance = math.prod(p if reward else 1 - p for reward in rewards)
            values = advantages(torch.tensor(rewards), method)
            push += chance * float((values * torch.tensor(rewards)).sum()) / 4
        assert found["push"][method] == pytest.approx(push, abs=1e-3)


@pytest.mark.parametrize("drawn, advantage", [(0, 1.0), (1, -2.0), (4, 0.5)])
def test_the_push_is_the_gradient_of_the_logits(browser, drawn, advantage):
    page(browser, "push")
    browser.run(f"drawn = {drawn}")
    logits = torch.tensor(browser.run("logits")).requires_grad_()
    (advantage * logits.log_softmax(0)[drawn]).backward()
    found = moved(browser, advantage=advantage, rate=0.5)
    assert found["push"] == pytest.approx(logits.grad.tolist(), abs=1e-3)
    browser.run("take(1)")
    after = (logits + 0.5 * logits.grad).softmax(0).tolist()
    assert browser.run("shown.p") == pytest.approx(after, abs=1e-3)


LOSSES = {
    "PPO": Loss(objective="ppo", clip_low=0.8, clip_high=1.2),
    "CISPO": Loss(objective="cispo", clip_low=0.0, clip_high=1.5),
    "DPPO": Loss(objective="dppo", divergence_limit=0.2),
}


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("p", [0.05, 0.5])
def test_ratio_and_clip(browser, sign, p):
    page(browser, "clip")
    browser.run(f"document.querySelector('[value=\"{sign}\"]').click()")
    old, mask = torch.tensor([[math.log(p)]]), torch.ones(1, 1)
    for ratio in (0.3, 0.79, 1.0, 1.21, 1.49, 1.8):
        found = moved(browser, before=p, ratio=ratio)
        for name, config in LOSSES.items():
            now = (old + math.log(ratio)).requires_grad_()
            given = now, old, torch.tensor([float(sign)]), mask, config, 1.0
            loss, _ = policy_loss(*given, start_logprobs=old)
            loss.backward()
            assert found["gradient"][name] == pytest.approx(-now.grad.item(), abs=1e-3), name
            assert found["value"][name] == pytest.approx(-loss.item(), abs=1e-3), name


@pytest.mark.parametrize("d", [-1.5, 0.0, 0.7])
def test_three_estimates_of_a_kl(browser, d):
    page(browser, "kl")
    found = moved(browser, difference=d)
    now = torch.tensor(d).requires_grad_()
    for kind, value in zip(("k2", "k3"), found["values"][1:], strict=True):
        config = Loss(kl=kind, kl_coef=1.0)
        given = now.view(1, 1), now.detach().view(1, 1), torch.zeros(1), torch.ones(1, 1), config
        loss, _ = policy_loss(*given, 1.0, ref_logprobs=torch.zeros(1, 1))
        (slope,) = torch.autograd.grad(loss, now)
        assert value == pytest.approx(loss.item(), abs=1e-3)
        assert found["slopes"][("k1", "k2", "k3").index(kind)] == pytest.approx(
            slope.item(), abs=1e-3
        )


def test_the_averages_are_those_of_autograd(browser):
    page(browser, "kl")
    found = moved(browser, first=1.2, second=-0.4)
    logits = torch.tensor([1.2, -0.4, 0.0]).requires_grad_()
    p = logits.softmax(0)
    exact = (p * (p * 3).log()).sum()
    (gradient,) = torch.autograd.grad(exact, logits)
    assert found["rows"]["exact"]["mean"] == pytest.approx(exact.item(), abs=1e-3)
    for name in ("exact", "k2"):
        assert found["rows"][name]["gradient"] == pytest.approx(gradient.tolist(), abs=1e-3)
    assert found["rows"]["k1"]["gradient"] == pytest.approx([0, 0, 0], abs=1e-6)


# --- the pages that run the model ---


@pytest.fixture(scope="module")
def tiny_base():
    return load_model_and_tokenizer("tiny-base")


@pytest.fixture(scope="module")
def tiny(tiny_base):
    """With the weights that the pages have."""
    model, tokenizer = tiny_base
    return as_a_page_has_it(model, ENGINE_BITS), tokenizer


def rollouts_of(tokenizer, problem: str, answers: list[list[int]], old=None) -> list[Rollout]:
    prompt = tokenizer.encode(render_prompt(problem))
    return [
        Rollout(prompt_ids=prompt, response_ids=ids, logprobs=logprobs)
        for ids, logprobs in zip(answers, old or [[0.0] * len(ids) for ids in answers], strict=True)
    ]


def logprobs_of(model, rollouts: list[Rollout]) -> list[list[float]]:
    """Of each answer's tokens."""
    batch = make_batch(rollouts)
    with torch.no_grad():
        found = padded_logprobs(model, batch)
    return [row[mask.bool()].tolist() for row, mask in zip(found, batch.mask, strict=True)]


def loss_of(recipe: dict, rollouts: list[Rollout], logprobs: torch.Tensor) -> torch.Tensor:
    """A step of these rollouts alone; `logprobs` is padded, as the batch's are."""
    fields = "objective aggregate clip_low clip_high dro_beta divergence_limit length_constant"
    config, batch = Loss(**{name: recipe[name] for name in fields.split()}), make_batch(rollouts)
    counts = len(rollouts), sum(len(each.response_ids) for each in rollouts), config.length_constant
    denominator = step_denominator(config.aggregate, *counts)
    given = batch.old_logprobs, batch.advantages, batch.mask, config, denominator
    return policy_loss(logprobs, *given, start_logprobs=batch.old_logprobs)[0]


def close(found: list[list[float]], expected: list[list[float]]) -> None:
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours == pytest.approx(theirs, abs=1e-3)


def updated(model, recipe: dict, groups: list[list[Rollout]], rewards: list[list[float]], lr):
    """A copy of the model after one update; and the gradient's norm."""
    copy = type(model)(model.cfg)
    copy.load_state_dict(model.state_dict())
    for group, paid in zip(groups, rewards, strict=True):
        values = advantages(torch.tensor(paid, dtype=torch.float32), recipe["advantage"]).tolist()
        for rollout, value, logprobs in zip(group, values, logprobs_of(model, group), strict=True):
            rollout.advantage, rollout.logprobs = value, logprobs
    everything = [rollout for group in groups for rollout in group]
    loss_of(recipe, everything, padded_logprobs(copy, make_batch(everything))).backward()
    optimizer = AdamW(copy)
    norm = optimizer.clip_gradient(recipe["grad_clip"])
    optimizer.step(lr)
    return copy, float(norm)


def test_rounding_the_weights_changes_little(tiny, tiny_base):
    """On the first rollouts of a run: no token's probability moves by more than two points."""
    (rounded, tokenizer), (model, _) = tiny, tiny_base
    name = "train_iteration_000000_rollout_summaries.jsonl"
    file = ROOT / "checkpoints/tiny-grpo/run" / name
    moves = []
    for row in map(json.loads, file.read_text(encoding="utf-8").splitlines()):
        ids = [*tokenizer.encode(row["text"]), tokenizer.eos_token_id]
        group = rollouts_of(tokenizer, row["steps"][0]["logs"]["problem"], [ids])
        (before,), (after,) = logprobs_of(model, group), logprobs_of(rounded, group)
        moves += [abs(math.exp(p) - math.exp(q)) for p, q in zip(before, after, strict=True)]
    assert max(moves) < 0.02 and sum(moves) / len(moves) < 0.001


@pytest.mark.parametrize("updates", [0, 1])
def test_a_tokens_weight_is_the_gradient_of_the_packages_loss(browser, tiny, updates):
    """Six recipes on the same answers, before and after the model has moved."""
    (model, tokenizer), recipes = tiny, ["reinforce", "grpo", "dr_grpo", "dapo", "cispo", "gspo"]
    page(browser, "step")
    browser.run(f"(updates.set({updates}), update())")
    group = browser.run("group")
    answers = [answer["response_ids"] for answer in group["answers"]]
    rollouts = rollouts_of(tokenizer, group["text"], answers, group["old"])
    close(group["old"], logprobs_of(model, rollouts))
    if updates:
        grpo = browser.run("ENGINE.data.recipes.grpo")
        rewards = browser.run("rewards_of(ENGINE.data.recipes.grpo)")
        copy, _ = updated(model, grpo, [rollouts], [rewards], browser.run("RATE"))
        close(group["now"], logprobs_of(copy, rollouts))
    for name in recipes:
        recipe = browser.run(f"ENGINE.data.recipes.{name}")
        rows = browser.run(f"numbers_of('{name}')")
        paid = torch.tensor([float(row["reward"]) for row in rows])
        values = advantages(paid, recipe["advantage"]).tolist()
        for rollout, value, logprobs in zip(rollouts, values, group["old"], strict=True):
            rollout.advantage, rollout.logprobs = value, logprobs
        batch = make_batch(rollouts)
        now = torch.zeros_like(batch.old_logprobs)
        now[batch.mask.bool()] = torch.tensor([p for each in group["now"] for p in each])
        loss_of(recipe, rollouts, now.requires_grad_()).backward()
        expected = -now.grad[batch.mask.bool()]
        found = torch.tensor([float(weight) for row in rows for weight in row["weights"]])
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-7)
        # GSPO's range is so narrow that one update leaves it with every answer.
        assert (float(expected.abs().max()) > 0) == (name != "gspo" or not updates)


def test_keys_lead_from_token_to_token(browser):
    page(browser, "step")
    press = """((key) => document.activeElement.dispatchEvent(
        new KeyboardEvent("keydown", { key, bubbles: true })))"""
    browser.run("document.querySelector('.token[tabindex=\"0\"]').focus()")
    for key in ("ArrowRight", "ArrowRight", "ArrowDown", "ArrowLeft"):
        browser.run(f"{press}('{key}')")
    assert browser.run("chosen") == {"answer": 1, "token": 1}
    assert browser.run("at('which').textContent").endswith("token 2 of answer 2")
    assert browser.run("document.querySelectorAll('button.token[tabindex=\"0\"]').length") == 2


def test_the_rollouts_of_a_run_open(browser, tiny):
    page(browser, "step")
    name = "train_iteration_000010_rollout_summaries.jsonl"
    file = ROOT / "checkpoints/tiny-grpo/run" / name
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]

    def opened(text: str) -> str:
        browser.run(f"""(() => {{
          const files = new DataTransfer();
          files.items.add(new File([{json.dumps(text)}], "{name}"));
          at("file").files = files.files;
          at("file").dispatchEvent(new Event("change"));
        }})()""")
        browser.wait("!at('file').disabled")
        return browser.run("at('says').textContent")

    alone = {row["group_idx"]: row for row in rows}.values()
    for unfit, says in (
        ([row | {"forced": [2, 3]} for row in rows], "something answered the model"),
        (alone, "There is one answer to each problem"),
    ):
        assert says in opened("".join(json.dumps(row) + "\n" for row in unfit))
    assert opened(file.read_text(encoding="utf-8")).startswith("8 rollouts of step 11")
    group = browser.run("group")
    first = next(row for row in rows if row["text"] == group["answers"][0]["text"])
    assert group["text"] == first["steps"][0]["logs"]["problem"]
    _, tokenizer = tiny
    ids = group["answers"][0]["response_ids"]
    assert tokenizer.decode(ids[:-1]) == first["text"] and len(ids) == first["steps"][0]["ac_len"]
    shown = browser.run("numbers_of('grpo')")
    of_group = [row for row in rows if row["group_idx"] == first["group_idx"]]
    paid = [row["advantage"] for row in of_group]
    assert [row["advantage"] for row in shown] == pytest.approx(paid, abs=1e-3)
    assert opened('{"no": "rollout"}\n').startswith("This file has no rollouts")
    assert opened("no JSON at all").startswith("This file has no rollouts")


def test_training_in_the_page_is_the_packages_step(browser, tiny):
    model, tokenizer = tiny
    page(browser, "train")
    browser.run("go(1)")
    (event,) = browser.run("shown.steps")
    groups = [rollouts_of(tokenizer, each["problem"], each["answers"]) for each in event["groups"]]
    rewards = [each["rewards"] for each in event["groups"]]
    recipe = browser.run("ENGINE.data.recipes.grpo")
    copy, norm = updated(model, recipe, groups, rewards, browser.run("Number(rate.value())"))
    assert event["grad_norm"] == pytest.approx(norm, rel=1e-3)
    assert event["correct"] == pytest.approx(sum(map(sum, rewards)) / 16, abs=1e-3)
    problem, answers = event["groups"][0]["problem"], event["groups"][0]["answers"]
    asked = {"model": "lesson", "problem": problem, "answers": answers, "rewards": rewards[0]}
    asked |= {"config": recipe, "lr": 0, "passes": 0}
    found = browser.run(f"ask('step', {json.dumps(asked)})")
    close(found["logprobs"][0], logprobs_of(copy, groups[0]))


def test_a_step_can_be_undone_and_made_again(browser):
    page(browser, "train")
    assert browser.run("at('back').disabled")
    browser.run("go(2)")
    once = browser.run("shown.steps")
    browser.run("undo()")
    assert browser.run("[shown.step, steps.length, undoable]") == [1, 1, 1]
    browser.run("go(1)")
    again = browser.run("shown.steps")
    assert [step["grad_norm"] for step in again] == [step["grad_norm"] for step in once]
    assert again[1]["groups"] == once[1]["groups"]
    browser.run("look.set(0); draw()")
    assert browser.run("at('when').textContent") == "Before training"
    browser.run("at('train').click()")
    browser.wait("steps.length >= 3")
    browser.run("at('train').click()")
    browser.wait("!running && !at('one').disabled")
    assert browser.run("at('says').textContent").startswith(browser.run("`${steps.length} step`"))


def test_pause_twice_makes_no_second_loop(browser):
    page(browser, "train")
    browser.run("at('train').click()")
    browser.wait("steps.length >= 1")
    browser.run("(at('train').click(), at('train').click(), 0)")
    browser.wait("!at('train').disabled")
    assert not browser.run("running")
    made = browser.run("shown.steps.length")
    browser.run("(at('back').click(), at('back').click(), 0)")
    browser.wait("!at('train').disabled")
    assert browser.run("steps.length") == made - 1 and not browser.errors
    assert [step["step"] for step in browser.run("steps.map(({event}) => event)")] == list(
        range(made - 1)
    )


def test_the_last_number_of_updates_is_shown(browser):
    page(browser, "step")
    browser.run(
        "(updates.set(2), window.slow = update(), updates.set(0), window.fast = update(), 0)"
    )
    browser.run("Promise.all([slow, fast]).then(() => 0)")
    assert browser.run("JSON.stringify(group.old) === JSON.stringify(group.now)")


def test_the_ratio_never_leaves_what_is_possible(browser):
    page(browser, "clip")
    for hundredths in range(5, 91):
        p = hundredths / 100
        ratio = browser.run(f"(before.set({p}), ratio.set(2.5), draw(), shown.ratio)")
        assert ratio * browser.run("shown.p") <= 1.0000001
        assert browser.run("document.querySelectorAll('#panels circle').length") == 6


@pytest.mark.parametrize("name", ["advantages", "clip", "kl", "push"])
def test_after_the_back_button_controls_and_numbers_agree(browser, name):
    page(browser, name)
    fields = "[...document.querySelectorAll('input, select')]"
    first = browser.run(f"{fields}.map((x) => x.type === 'radio' ? x.checked : x.value)")
    browser.run(
        f"{fields}.forEach((x) => {{ if (x.type === 'range') x.value = x.max; else x.click(); }})"
    )
    browser.send("Page.navigate", url="about:blank")
    browser.wait("location.href === 'about:blank'")
    browser.back()
    browser.wait("typeof at === 'function'")
    assert browser.run(f"{fields}.map((x) => x.type === 'radio' ? x.checked : x.value)") == first


# --- the museum ---


def test_the_museum_has_the_words_of_its_notebook(browser):
    """After a change of the notebook or of museum.py: make_museum.py words."""
    made = runpy.run_path(str(ROOT / "docs/explore/make_museum.py"))
    page(browser, "museum")
    shown = browser.run("MUSEUM")
    assert shown["labels"] == museum.CURVES
    assert list(map(int, shown["rooms"])) == list(museum.ROOMS)
    for number, room in shown["rooms"].items():
        words = made["room_texts"](int(number))
        assert {name: room[name] for name in words} == words
        for run in (room["sick"], room["repaired"]):
            assert set(run["curves"]) <= set(museum.CURVES)


def test_a_room_opens_behind_the_right_guess_alone(browser):
    page(browser, "museum")
    for number, room in browser.run("MUSEUM.rooms").items():
        browser.run(f"room.set('{number}'); draw()")
        for letter in sorted(room["choices"], key=lambda one: one == room["truth"]):
            choice = f"document.querySelector('[name=guess][value={letter}]')"
            browser.run(f"{choice}.click()")
            assert browser.run("at('says').textContent") == room["said"][letter]
            behind = browser.run("!at('behind').hidden")
            assert behind == browser.run("shown.solved") == (letter == room["truth"])
        assert browser.run("document.querySelectorAll('#curves .blue').length") > 0


def test_the_museums_runs_are_those_of_the_package(browser):
    """The first step of a sick run: later ones depend on how a processor rounds."""
    page(browser, "museum")
    for number in (1, 2, 3):
        plan, edit = museum.room_settings(number, False)
        row = museum.with_right(museum.train_settings(plan | {"steps": 1}, edit))[0]
        curves = browser.run(f"MUSEUM.rooms[{number}].sick.curves")
        first = {name: values[0] for name, values in curves.items() if values[0] is not None}
        assert first and {name: row[name] for name in first} == pytest.approx(first, abs=1e-3)
