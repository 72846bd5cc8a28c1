"""The `rfs` command: a table of sub-commands, each imported only when it is called."""

import gc
import importlib
import inspect
import io
import os
import re
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, get_type_hints

from reasoning_from_scratch import __version__
from reasoning_from_scratch.config import check_numbers
from reasoning_from_scratch.errors import UserError, unknown_name
from rfs.commands.other_words import OPTION_NAMES, as_flags, as_option, flags_of, in_our_words

# name -> (one line of help, "module:function"). The function takes the options that OPTIONS has for
# it, or nothing. `rfs --help` reads only this table, so it never waits for torch. A test imports
# every row.
COMMANDS: dict[str, tuple[str, str]] = {
    "quickstart": (
        "Watch a small model learn to reason, right now.",
        "commands.quickstart:quickstart",
    ),
    "train": (
        "Train a model with a recipe (`rfs recipes` lists them), or resume a run.",
        "commands.train:train_command",
    ),
    "recipes": (
        "List the recipes: what each changes, and its paper.",
        "commands.recipes:recipes_command",
    ),
    "compare": (
        "Train recipes with several seeds and compare them in a table and pictures.",
        "commands.compare:compare_command",
    ),
    "plot": ("Plot the curves of one or more runs.", "commands.plot:plot_command"),
    "report": ("Write a report of a run as one page.", "commands.report:report_command"),
    "evaluate": (
        "Measure models' accuracy on problem sets; draw pass@k.",
        "commands.evaluate:evaluate_command",
    ),
    "chat": ("Talk to a model.", "commands.chat:chat"),
    "serve": (
        "Serve models to Tinker and OpenAI clients, which sample and train here.",
        "serve.app:serve",
    ),
    "export": (
        "Export a model to a folder for transformers, vLLM and llama.cpp.",
        "commands.export:export",
    ),
    "push": ("Upload a model to the Hugging Face Hub.", "commands.export:push"),
    "playground": (
        "Write a page that runs and trains the tiny model in a browser.",
        "commands.playground:playground",
    ),
    "book": (
        "Write the book as a website: its chapters and docs.",
        "commands.book:book",
    ),
    "preflight": (
        "Can training work with these flags of `rfs train`? Nothing is written.",
        "commands.preflight:preflight",
    ),
    "doctor": (
        "Check this machine: what works, what does not, what to do.",
        "commands.doctor:doctor",
    ),
}

# Commands that import torch, and the dataclass that holds their options. That import takes seconds
# and reading options does not. So a mistyped option is refused first; then a line says what is
# loading.
OPTIONS = {
    "quickstart": "commands.options:QuickstartOptions",
    "train": "commands.train_options:TrainOptions",
    "compare": "commands.compare_options:CompareOptions",
    "plot": "commands.positional_options:PlotOptions",
    "report": "commands.positional_options:ReportOptions",
    "evaluate": "evaluation.options:EvaluateOptions",
    "chat": "commands.options:ChatOptions",
    "serve": "serve.options:ServeOptions",
    "export": "commands.positional_options:ExportOptions",
    "push": "commands.positional_options:PushOptions",
    "playground": "commands.options:PlaygroundOptions",
    "book": "commands.options:BookOptions",
    "preflight": "commands.preflight_options:PreflightOptions",
    "doctor": "commands.options:DoctorOptions",
}

# A command's model or run may be its first word or come after --model: people try both. These
# commands read it as their first word; the others that have one, as an option.
MODEL_FIRST = ("export", "push", "plot", "report")
MODEL_NAMED = {
    **dict.fromkeys(("train", "evaluate", "chat", "serve", "compare", "preflight"), "--model"),
    "playground": "--models",
}

START_OF_PATH = re.compile(r"^((?:-*[\w-]+=)?)~(?=[/\\]|$)")  # ~/x, --flag=~/x, flag=~/x


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code; a user's mistake is one line, not a traceback."""
    argv = with_home(sys.argv[1:] if argv is None else argv)
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(overview())
        return 0
    if argv[0] == "--version":
        print(__version__)
        return 0
    name, rest = argv[0], with_model_where_expected(argv[0], argv[1:])
    return guarded(f"rfs {name}", lambda: run_command(name, rest))


def with_model_where_expected(name: str, args: list[str]) -> list[str]:
    """Moves the model or run in a command line to where the command reads it."""
    if name in MODEL_NAMED and args and not args[0].startswith("-"):
        return [MODEL_NAMED[name], *args]
    flag_index = next((index for index, word in enumerate(args) if is_model_flag(word)), None)
    if name not in MODEL_FIRST or flag_index is None:
        return args
    _, equals, value = args[flag_index].partition("=")
    model = [value] if equals else args[flag_index + 1 : flag_index + 2]
    after = flag_index + 1 if equals else flag_index + 1 + len(model)
    return [*model, *args[:flag_index], *args[after:]]


def is_model_flag(word: str) -> bool:
    return word.partition("=")[0] in ("--model", "--run")


def run_script(function: Callable, words: bool = False) -> int:
    """Does for a chapter's script what `main` does for `rfs`. If it has a model, that may be its
    first word, too. With `words`, it also takes key=value."""
    from tyro.conf import FlagCreatePairsOff

    from rfs.commands.reading import read

    options, name = single_dataclass(function), Path(sys.argv[0]).name
    names = flags_of(options or function)
    about = inspect.getdoc(inspect.getmodule(function))
    help_texts: dict[str, Any] = {"prog": name, "about": about}

    def call() -> int:
        argv = with_home(sys.argv[1:])
        if "model" in names and argv and not argv[0].startswith("-") and "=" not in argv[0]:
            argv = ["--model", *argv]
        args = as_flags(argv, names) if words else in_our_words(argv, names)
        return function(read(options, args, config=(FlagCreatePairsOff,), **help_texts)) or 0

    return guarded(name, call)


def with_home(argv: Sequence[str]) -> list[str]:
    """A command line in which each ~ that begins a path is the home folder. Shells do that, too,
    but not in --out=~/x."""
    home = os.path.expanduser("~")
    return [START_OF_PATH.sub(lambda match: match[1] + home, word) for word in argv]


def guarded(name: str, call: Callable[[], int]) -> int:
    """The exit code of a command, even after a user's mistake or Ctrl-C. One of several ranks
    ends its process here."""
    for stream in (sys.stdout, sys.stderr):  # on Windows a file may lack a letter: it becomes ?
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    code = exit_code(name, call)
    if "rfs.scale.torchrun" in sys.modules:
        sys.modules["rfs.scale.torchrun"].end_rank(code)
    return code


def exit_code(name: str, call: Callable[[], int]) -> int:
    try:
        code = call()
        sys.stdout.flush()  # so that a closed pipe shows up here and not at interpreter exit
        return code
    except UserError as error:
        sys.stderr.write(f"{name}: {error}\n")  # in one piece: other ranks write there too
        return 2
    except KeyboardInterrupt:
        sys.stderr.write(f"{name}: interrupted\n")
        return 130
    except BrokenPipeError:
        # `rfs ... | head` closed our output; Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def overview() -> str:
    """What `rfs --help` prints."""
    width = max(map(len, COMMANDS), default=0)
    rows = [f"  {name:<{width}}  {text}" for name, (text, _) in COMMANDS.items()]
    lines = ["usage: rfs COMMAND [OPTIONS]", "", "commands:", *rows, ""]
    return "\n".join([*lines, "rfs COMMAND --help lists the options of one command."])


def run_command(name: str, args: Sequence[str]) -> int:
    """Parses `args` for command `name` and calls it; an int that it returns is the exit code."""
    if name not in COMMANDS:
        raise unknown_name("command", name, COMMANDS)
    if name != "train" and os.environ.get("WORLD_SIZE", "1") != "1":
        raise UserError(f"{name} is for one process: start it without torchrun")
    from rfs.commands.reading import read

    help_line, target = COMMANDS[name]
    help_texts: dict[str, Any] = {"prog": f"rfs {name}", "about": help_line}
    if name in OPTIONS:
        kind = load_function(OPTIONS[name])
        if hasattr(kind, "read"):  # its defaults depend on --recipe and --resume
            options = kind.read(args, **help_texts)
        else:
            args = in_our_words(args, flags_of(kind))
            options = read(kind, args, **help_texts)
        check_numbers(options, spelled=as_option)
        say_loading(options.check())
        function = load_function(target)
        takes_given = "given" in inspect.signature(function).parameters
        result = function(options, given=given_fields(args)) if takes_given else function(options)
    else:
        function = load_function(target)
        result = read(function, in_our_words(args, flags_of(function)), **help_texts)
    return result if isinstance(result, int) else 0


def given_fields(args: Sequence[str]) -> set[str]:
    """The fields that a command line names."""
    flags = {word.partition("=")[0] for word in args if word.startswith("--")}
    names = {name[2:].replace("-", "_").removeprefix("no_") for name in flags}
    return names | {field for field, flag in OPTION_NAMES.items() if flag in names}


def say_loading(what: str) -> None:
    """Prints a command's first line, before the seconds that importing torch takes. Of several
    ranks only rank 0 prints it."""
    if os.environ.get("RANK", "0") == "0":
        print(f"loading {what} ...", file=sys.stderr, flush=True)


def load_function(target: str) -> Callable:
    """The function that "module:function" names, in rfs."""
    module, function = target.split(":")
    gc.disable()  # nothing imported is garbage, and looking for some takes a quarter of the time
    # Ctrl-C waits: torch swallows it while it imports numpy, and goes on without numpy.
    blocked = {signal.SIGINT} if hasattr(signal, "pthread_sigmask") else set()
    if blocked:
        signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
    try:
        return getattr(importlib.import_module(f"rfs.{module}"), function)
    finally:
        gc.enable()
        if blocked:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, blocked)


def single_dataclass(function: Callable) -> type | None:
    """The dataclass that is the function's only parameter, or None."""
    names = list(inspect.signature(function).parameters)
    if len(names) != 1:
        return None
    annotation = get_type_hints(function).get(names[0])
    return annotation if isinstance(annotation, type) and is_dataclass(annotation) else None


if __name__ == "__main__":
    sys.exit(main())
