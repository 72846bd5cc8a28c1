"""A study: arms x rates x seeds, each made once, and gone on with where it was."""

import pytest
from toy import toy_config, toy_world

from reasoning_from_scratch.run import study
from reasoning_from_scratch.run.folder import RunFolder
from reasoning_from_scratch.run.start import train
from reasoning_from_scratch.run.study import Trial, make, trials, whole_run
from tests.run.test_interrupts import press_at


def test_whole_seeds_come_first_and_an_arm_has_its_own_rates():
    def rates(arm, seed):
        return (1e-3, 1e-4) if arm == "tuned" and seed == 0 else (1e-4,)

    assert list(map(str, trials(["tuned", "plain"], rates, range(2)))) == [
        "tuned, lr 0.001, seed 0",
        "tuned, lr 0.0001, seed 0",
        "plain, lr 0.0001, seed 0",
        "tuned, lr 0.0001, seed 1",
        "plain, lr 0.0001, seed 1",
    ]
    assert str(Trial("grpo", None, 0)) == "grpo, seed 0"


def test_each_is_kept_as_soon_as_it_is_made(capsys):
    every, kept = trials("ab", lambda *_: (None,), range(1)), []

    def keep(trial, result):
        kept.append((trial.arm, result))
        return "well"

    make(lambda trial: trial.arm * 2, every, keep, jobs=1, tiny=True)
    assert kept == [("a", "aa"), ("b", "bb")]
    assert capsys.readouterr().out == "1 of 2: a, seed 0: well\n2 of 2: b, seed 0: well\n"


def test_ctrl_c_keeps_what_is_done_and_says_that_it_goes_on(capsys):
    kept = []

    def work(trial):
        if trial.arm == "b":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make(
            work,
            trials("abc", lambda *_: (None,), range(1)),
            lambda t, _: kept.append(t.arm),
            1,
            True,
        )
    assert kept == ["a"] and "the same command goes on" in capsys.readouterr().err


def test_a_run_that_was_interrupted_goes_on_to_the_same_end(tmp_path, monkeypatch):
    def toy_train(config, **more):
        return train(config, **more, **toy_world(tmp_path))

    monkeypatch.setattr(study, "train", toy_train)
    config = toy_config(str(tmp_path / "run"), steps=3, rolling_every=1)
    with monkeypatch.context() as patch:
        press_at("trainer.train_step", 2, patch)
        with pytest.raises(KeyboardInterrupt):
            whole_run(config)
    assert RunFolder(tmp_path / "run").used()
    rows = whole_run(config).rows
    straight = whole_run(toy_config(str(tmp_path / "straight"), steps=3)).rows
    names = ("optim/loss", "env/all/reward/total", "optim/grad_norm")
    assert [[row.get(n) for n in names] for row in rows] == [
        [row.get(n) for n in names] for row in straight
    ]
    assert len(rows) == 3
