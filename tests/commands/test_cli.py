"""The `rfs` command: its table, its exit codes, and that its help never imports torch."""

import os
import runpy
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from reasoning_from_scratch.commands import cli
from reasoning_from_scratch.commands.other_words import NEAR, SAME, as_flags
from reasoning_from_scratch.config import TrainConfig
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.run.folder import RunFolder
from tests.commands.test_compare import toy_everywhere  # noqa: F401


@dataclass
class Options:
    """Options of the stand-in command."""

    size: int = 3
    """How many."""
    word: str = "a"
    """Which one."""


def stand_in(options: Options) -> None:
    print(options.word * options.size)


def stand_in_keywords(size: int = 2) -> int:
    return size


def raises(error):
    def function(options: Options) -> None:
        raise error

    return function


@pytest.fixture
def table(monkeypatch):
    """Replaces the commands by functions given here."""

    def install(**functions):
        monkeypatch.setattr(cli, "COMMANDS", {n: ("One line.", n) for n in functions})
        monkeypatch.setattr(cli, "load_function", functions.__getitem__)

    return install


def run_rfs(*args, **kwargs):
    command = [sys.executable, "-m", "reasoning_from_scratch", *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **kwargs)


def test_help_lists_every_command_quickly_and_without_torch():
    code = "import sys; from reasoning_from_scratch.commands.cli import main; main(['--help']); "
    code += "print('heavy:', sorted({'torch', 'tyro', 'sympy'} & set(sys.modules)))"
    before = os.times()
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
    after = os.times()  # of a processor: it may have had to wait for one
    assert after.children_user - before.children_user < 1.0
    assert "heavy: []" in out
    for name, (text, _) in cli.COMMANDS.items():
        assert f"  {name} " in out and text in out


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_row_imports_and_its_help_works(name, capsys):
    text, target = cli.COMMANDS[name]
    assert callable(cli.load_function(target))
    assert "\n" not in text and len(text) <= 76
    with pytest.raises(SystemExit) as stop:
        cli.main([name, "--help"])
    assert stop.value.code == 0
    assert f"rfs {name}" in capsys.readouterr().out


def test_dataclass_and_keyword_functions_get_their_flags(table, capsys):
    table(plain=stand_in, keywords=stand_in_keywords)
    assert cli.main(["plain", "--size", "2", "--word", "ha"]) == 0
    assert capsys.readouterr().out == "haha\n"
    assert cli.main(["keywords", "--size", "7"]) == 7


def test_wrong_option_exits_2(table, capsys):
    table(plain=stand_in)
    with pytest.raises(SystemExit) as stop:
        cli.main(["plain", "--siez", "2"])
    assert stop.value.code == 2
    assert "--size" in capsys.readouterr().err


def test_user_error_is_one_line_and_exit_2(table, capsys):
    table(bad=raises(UserError("no such file: x.json; check --data-path")))
    assert cli.main(["bad"]) == 2
    captured = capsys.readouterr()
    assert captured.err == "rfs bad: no such file: x.json; check --data-path\n"
    assert captured.out == ""


def test_interrupt_is_one_line_and_exit_130(table, capsys):
    table(long=raises(KeyboardInterrupt()))
    assert cli.main(["long"]) == 130
    assert capsys.readouterr().err == "rfs long: interrupted\n"


def test_other_exceptions_keep_their_traceback(table):
    table(broken=raises(ZeroDivisionError("ours, not the user's")))
    with pytest.raises(ZeroDivisionError):
        cli.main(["broken"])


def test_unknown_command_names_the_nearest(table, capsys):
    table(evaluate=stand_in, chat=stand_in)
    assert cli.main(["evalute"]) == 2
    assert "did you mean 'evaluate'?" in capsys.readouterr().err
    assert cli.main(["zzzz"]) == 2
    assert "Expected one of: evaluate, chat" in capsys.readouterr().err


def test_version(capsys):
    from reasoning_from_scratch import __version__

    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == __version__


def test_closed_pipe_is_quiet():
    code = "import sys; from reasoning_from_scratch.commands import cli\n"
    code += "cli.COMMANDS = {'flood': ('', '')}\n"
    code += "cli.load_function = lambda t: lambda: [print('x' * 100) for _ in range(20000)]\n"
    code += "sys.exit(cli.main(['flood']))"
    run = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    run.stdout.readline()
    run.stdout.close()
    assert run.stderr.read() == b""
    assert run.wait(timeout=60) == 141


def test_runs_as_a_module():
    assert run_rfs("nonsense").returncode == 2
    assert run_rfs("--help").returncode == 0


def test_only_train_is_for_several_ranks(monkeypatch, capsys):
    """Two ranks that compare would both write the same folders."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert cli.main(["compare", "--help"]) == 2
    assert "compare is for one process: start it without torchrun" in capsys.readouterr().err
    with pytest.raises(SystemExit) as left:
        cli.main(["train", "--help"])
    assert left.value.code == 0


# ---- ~ in a path


ROOT = Path(__file__).parents[2]
TELL_ONLY = {"my_task.py", "my_recipe.py", "countdown.py"}  # no flags: they say what they are
SCRIPTS = [
    path
    for path in sorted([*ROOT.glob("ch0*/*.py"), *ROOT.glob("benchmarks/*.py")])
    if '__name__ == "__main__"' in (text := path.read_text(encoding="utf-8"))
    and ("ch0" in path.parent.name or "type=Path" in text)
    and path.name not in TELL_ONLY
]


@pytest.fixture
def parsed(monkeypatch, tmp_path):
    """The words that reach whoever reads flags: what a command is given with --place=~/x."""
    monkeypatch.setenv("HOME", str(tmp_path))
    seen = []

    def stop(*_, args=None, **__):
        seen.append(args)
        raise SystemExit(0)

    monkeypatch.setattr("tyro.cli", stop)
    monkeypatch.setattr(
        "argparse.ArgumentParser.parse_args", lambda self, args=None: stop(args=args)
    )

    def call(function, *arguments):
        with pytest.raises(SystemExit):
            function(*arguments)
        return seen.pop()

    return call


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_a_tilde_is_the_home_folder_in_every_script(path, parsed, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", [str(path), "--place=~/x", "~/a.py:f"])
    monkeypatch.syspath_prepend(path.parent)
    words = parsed(lambda: runpy.run_path(str(path), run_name="__main__"))
    assert words == [f"--place={tmp_path}/x", f"{tmp_path}/a.py:f"]


@pytest.mark.parametrize(
    "word, read",
    [
        ("~", "HOME"),
        ("~/runs/a@best", "HOME/runs/a@best"),
        ("--out_path=~", "--out_path=HOME"),
        ("log_path=~/x", "log_path=HOME/x"),
        ("--out=~other/x", "--out=~other/x"),
        ("a~/x", "a~/x"),
        ("--prompt=Is 3 ~/= 4?", "--prompt=Is 3 ~/= 4?"),
    ],
)
def test_only_a_tilde_that_begins_a_path_is_the_home_folder(word, read, monkeypatch):
    monkeypatch.setenv("HOME", "/my/home")
    assert cli.with_home([word]) == [read.replace("HOME", "/my/home")]


def test_a_run_may_be_named_from_the_home_folder(toy_everywhere, monkeypatch, tmp_path):  # noqa: F811
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    small = "--steps 1 --problems-per-step 2 --rollouts 2 --max-new-tokens 2 --device cpu"
    assert cli.main(["train", *small.split(), "--log-path=~/mine"]) == 0
    assert RunFolder("~/mine").read_config().log_path == str(tmp_path / "mine")
    assert not (tmp_path / "~").exists()


# ---- key=value words beside --flags


KINDS: dict[str, type] = {
    "model": str,
    "steps": int,
    "clip": float,
    "often": bool,
    "usual": bool,
    "kl_reference": str,
    "rollouts": int,
}


@pytest.mark.parametrize(
    "words, flags",
    [
        ("steps=7 --model x clip=None", "--steps=7 --model x --clip=None"),
        ("--model a=b --steps=2", "--model a=b --steps=2"),  # the value of a flag
        ("--often steps=2 --no_usual", "--often --steps=2 --no_usual"),
        ("often=True usual=true", "--often --usual"),
        ("often=False usual=False", "--no-often --no-usual"),
        ("loss_fn_config.clip=0.5", "--clip=0.5"),
        ("model_name=base --model-name base --max_steps=4", "--model=base --model base --steps=4"),
        ("--group_size 4 group_size=5", "--rollouts 4 --rollouts=5"),
        ("kl_reference_config.load_checkpoint_path=x", "--kl-reference=x"),
        ("--help", "--help"),
        ("-h", "-h"),
        ("--unknown 3 stray --more=2", "--unknown 3 stray --more=2"),  # tyro says what is wrong
    ],
)
def test_words_become_flags(words, flags):
    assert as_flags(words.split(), KINDS) == flags.split()


@pytest.mark.parametrize(
    "word, says",
    [("stesp=3", "did you mean 'steps'"), ("often=2", "often=2 is neither True nor False")],
)
def test_a_word_that_is_none_is_named(word, says):
    with pytest.raises(UserError, match=says):
        as_flags([word], KINDS)


def test_no_word_is_taken_for_ours_and_hinted_at_too():
    """Every name on the right is a flag somewhere; none on the left is one of `rfs train`."""
    train = vars(TrainConfig())
    assert not {*SAME, *NEAR} & train.keys() - {"lr", "data_path"}
    for names in SAME.values():
        assert {"samples", "limit", "out", "out_path", "groups_per_batch", *train} >= {*names}
