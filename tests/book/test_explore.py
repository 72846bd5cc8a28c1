"""The explorable pages: what they show is what the package computes, and nothing is fetched."""

import math
from itertools import product
from pathlib import Path

import pytest
import torch
from browser import Browser, chromium

from reasoning_from_scratch.advantages import advantages
from reasoning_from_scratch.config import Loss
from reasoning_from_scratch.losses import policy_loss

PAGES = sorted((Path(__file__).parents[2] / "docs" / "explore").glob("*.html"))
pytestmark = pytest.mark.skipif(
    chromium() is None, reason="there is no Chromium or Chrome here to open the pages in"
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    opened = Browser(tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()


def page(browser, name):
    browser.open(next(path for path in PAGES if path.stem == name))
    return browser


def moved(browser, **controls):
    """What the page shows once its controls, which are JavaScript's names, have these values."""
    for name, value in controls.items():
        browser.run(f"{name}.set({value})")
    return browser.run("(draw(), shown)")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
@pytest.mark.parametrize("width", [390, 1280])
def test_a_page_opens_from_the_disk_and_fits(browser, path, width):
    browser.errors.clear()
    browser.addresses.clear()
    screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 800}
    browser.send("Emulation.setDeviceMetricsOverride", **screen)
    browser.open(path)
    assert browser.errors == []
    assert all(address.startswith("file:") for address in browser.addresses)
    assert browser.run("document.documentElement.scrollWidth") <= width
    unnamed = "[...document.querySelectorAll('svg')].filter((x) => !x.getAttribute('aria-label'))"
    assert browser.run(f"{unnamed}.length") == 0


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


@pytest.mark.parametrize("ratio", [0.3, 0.79, 1.0, 1.21, 1.49, 1.8])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("p", [0.05, 0.5])
def test_ratio_and_clip(browser, ratio, sign, p):
    page(browser, "clip")
    browser.run(f"document.querySelector('[value=\"{sign}\"]').click()")
    found = moved(browser, before=p, ratio=ratio)
    old = torch.tensor([[math.log(p)]])
    for name, config in LOSSES.items():
        now = (old + math.log(ratio)).requires_grad_()
        mask = torch.ones(1, 1)
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
