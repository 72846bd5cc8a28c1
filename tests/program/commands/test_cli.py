"""The `rfs` command: its table, its exit codes, and that its help never imports torch."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from reasoning_from_scratch.config import field_facts
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.facts import AtLeast
from reasoning_from_scratch.files import weights
from rfs.commands import cli, other_words
from rfs.commands.other_words import SIMILAR, SYNONYMS, as_flags, as_option, flags_of
from rfs.config import RunConfig


def test_help_lists_every_command_quickly_and_without_torch():
    code = "import sys; from rfs.commands.cli import main; main(['--help']); "
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


@pytest.mark.parametrize(
    "words, says",
    [
        ("plot absent", "rfs plot: absent"),
        ("evalute", "did you mean 'evaluate'?"),
        ("zzzz", f"Expected one of: {', '.join(cli.COMMANDS)}"),
        ("evaluate nowhere", "unknown model 'nowhere'"),  # a model may be the first word
        ("chat nowhere --seed 1", "unknown model 'nowhere'"),
        ("export --to x --model nowhere", "unknown model 'nowhere'"),
        ("push --model=nowhere me/mine", "unknown model 'nowhere'"),
        ("train nowhere", "unknown model 'nowhere'"),
        ("preflight nowhere", "unknown model 'nowhere'"),
        ("serve tiny nowhere", "unknown model 'nowhere'"),
        ("compare nowhere", "unknown model 'nowhere'"),
        ("playground nowhere", "unknown model 'nowhere'"),
        ("train empty --problems math-train", "empty is not the folder of a model"),
        ("chat empty", "empty is not the folder of a model"),
        ("report --model nowhere", "nowhere"),
        ("plot --run nowhere", "nowhere"),
        ("plot --otu 2", "there is no option --otu: did you mean --out?"),
        ("train --stpes 4", "there is no option --stpes: did you mean --steps?"),
        ("train --learning-rat 4", "did you mean --lr?"),
        ("train --eval 4", "did you mean --eval-every?"),
        ("train --recipe grop", "unknown recipe 'grop': did you mean 'grpo'?"),
        ("evaluate --qqqq", "there is no option --qqqq; --help lists the options"),
        ("train --lr abc", "--lr abc: expected a number"),
        ("train --problems mien.jsonl", "there is no file mien.jsonl: did you mean 'mine.jsonl'?"),
        ("train --problems your.csv", "your.csv, line 2: the field 'problem'"),
        ("evaluate --problems gone.jsonl", "there is no file gone.jsonl; give the path"),
        ("preflight --problems mine.jsonl@held-out --reward no.py:f", "there is no file no.py"),
        ("compare --problems mine.jsonl --reward no.py:f", "there is no file no.py"),
        ("train --eval-problems gone.json", "there is no file gone.json"),
        ("train --data-path gone.json", "there is no file gone.json"),
        ("train --reward mine.py:rewrad", "did you mean 'reward'?"),
        ("train --reward mine.py", "mine.py is a file: name the function in it"),
        ("train --evaluators no.py:f", "there is no file no.py"),
        ("train --environment no.py:F", "there is no file no.py"),
        ("train --problems mine.py:problmes", "did you mean 'problems'?"),
        ("evaluate --prompt no.txt", "unknown prompt 'no.txt'"),
        ("preflight --prompt no.txt", "unknown prompt 'no.txt'"),
        ("train --eval-every=2.5", "--eval-every 2.5: expected a whole number"),
        ("evaluate --dtype f16", "--dtype f16: expected one of auto, float32, bfloat16"),
        ("train --steps", "--steps needs a value: a whole number"),
        ("train --steps 3 4", "--steps takes one value, but '4' follows it"),
        ("train --smoke 3", "--smoke takes no value, but '3' follows it"),
        ("doctor fast", "'fast' is neither an option nor the value of one"),
        ("export tiny", "--out is missing: Write this folder"),
        ("push tiny", "REPOSITORY is missing: Upload to OWNER/NAME"),
    ],
)
def test_user_error_is_one_line_and_exit_2(words, says, capsys, tmp_path, monkeypatch):
    """Before a model, and mostly before torch, is loaded."""
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    Path("mine.jsonl").write_text('{"problem": "p", "answer": "1"}\n')
    Path("your.csv").write_text("text,answer\np,1\n")
    Path("mine.py").write_text("def problems(): yield {}\ndef reward(text, problem): return 1\n")
    monkeypatch.setattr(weights, "load_state", None)
    assert cli.main(words.split()) == 2
    captured = capsys.readouterr()
    (line,) = (x for x in captured.err.splitlines() if not x.startswith("loading "))
    assert says in line and captured.out == ""


@pytest.mark.parametrize("name", ["train", "quickstart", "serve", "evaluate", "export", "compare"])
def test_what_a_command_writes_is_named_by_one_word(name, capsys):
    """Other words, such as --log-path, are taken, too, and help does not show them."""
    with pytest.raises(SystemExit):
        cli.main([name, "--help"])
    shown = capsys.readouterr().out
    assert "--out " in shown
    assert not any(word in shown for word in ("--log-path", "--out-path", "--to "))
    for word in ("--log-path", "--out-path", "--to", "--output-dir"):
        assert other_words.in_our_words([f"{word}=x"], {"out"}) == ["--out=x"]


# Each option with a smallest value, of each command that reads its options into a dataclass; those
# of a run are tested in tests/program/run/test_option_checks.py.
OF_RUNS = ("train", "compare", "preflight")
BOUNDED = [
    (command, name, fact.number)
    for command, target in cli.OPTIONS.items()
    for name, facts in field_facts(cli.load_function(target)).items()
    for fact in facts
    if isinstance(fact, AtLeast)
    and (command not in OF_RUNS or fact not in field_facts(RunConfig).get(name, ()))
]


@pytest.mark.parametrize("command, name, least", BOUNDED)
def test_a_number_out_of_its_bounds_is_refused_by_name(command, name, least, capsys):
    flag = as_option(name)
    assert cli.main([command, f"{flag}={least - 1}"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"rfs {command}: {flag} is {least - 1}")
    assert f"but must be at least {least}" in said and said.count("\n") == 1


def test_bounds_say_why(capsys):
    assert len(BOUNDED) > 15
    assert cli.main(["serve", "--port", "70000"]) == 2
    said = "--port is 70000, but must be at least 0 and below 65536 (0 takes any free one)"
    assert said in capsys.readouterr().err
    assert cli.main(["compare", "--eval-every", "0"]) == 2
    assert "must be at least 1 (the table needs evaluations)" in capsys.readouterr().err


def raising(error):
    def load_function(target):
        raise error

    return load_function


def test_interrupt_is_one_line_and_exit_130(monkeypatch, capsys):
    monkeypatch.setattr(cli, "load_function", raising(KeyboardInterrupt()))
    assert cli.main(["plot"]) == 130
    assert capsys.readouterr().err == "rfs plot: interrupted\n"


def test_other_exceptions_keep_their_traceback(monkeypatch):
    monkeypatch.setattr(cli, "load_function", raising(ZeroDivisionError("ours")))
    with pytest.raises(ZeroDivisionError):
        cli.main(["plot"])


def python_of(command: str) -> list[str]:
    """A Python in which `rfs try` evaluates this."""
    code = "import sys; from rfs.commands import cli\n"
    code += "cli.COMMANDS = {'try': ('', '')}\n"
    code += f"cli.load_function = lambda t: lambda: {command}\n"
    return [sys.executable, "-c", code + "sys.exit(cli.main(['try']))"]


def test_closed_pipe_is_quiet():
    flood = python_of("[print('x' * 100) for _ in range(20000)]")
    run = subprocess.Popen(flood, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    run.stdout.readline()
    run.stdout.close()
    assert run.stderr.read() == b""
    assert run.wait(timeout=60) == 141


def test_a_letter_that_the_output_lacks_becomes_a_question_mark():
    """As where Windows writes the output of a command into a file."""
    as_on_windows = os.environ | {"PYTHONIOENCODING": "cp1252"}
    arrow = python_of("print('2 \\u2192 3')")
    done = subprocess.run(arrow, capture_output=True, env=as_on_windows)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, b"2 ? 3", b"")


def test_only_train_is_for_several_ranks(monkeypatch, capsys):
    """Two ranks that compare would both write the same folders."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert cli.main(["compare", "--help"]) == 2
    assert "start it without torchrun" in capsys.readouterr().err
    with pytest.raises(SystemExit) as left:
        cli.main(["train", "--help"])
    assert left.value.code == 0


# ---- ~ in a path


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


# ---- key=value words beside --flags


KINDS: dict[str, type] = {"model": str, "kl_reference": str, "steps": int, "rollouts": int}
KINDS |= {"clip": float, "often": bool, "usual": bool}


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
    ],
)
def test_words_become_flags(words, flags):
    assert as_flags(words.split(), KINDS) == flags.split()


@pytest.mark.parametrize(
    "word, says",
    [
        ("stesp=3", "did you mean 'steps'"),
        ("--stesp=3", "did you mean --steps"),
        ("often=2", "often=2 is neither True nor False"),
    ],
)
def test_a_word_that_is_none_is_named(word, says):
    with pytest.raises(UserError, match=says):
        as_flags([word], KINDS)


def test_no_word_is_taken_for_ours_and_hinted_at_too():
    """Every name on the right is a flag somewhere; none on the left is one of `rfs train`, but for
    some that other commands have not."""
    train = flags_of(RunConfig)
    assert not {*SYNONYMS, *SIMILAR} & train.keys() - {"lr", "data_path", "kl", "problems"}
    for names in SYNONYMS.values():
        assert {"samples", "limit", *train} >= {*names}
