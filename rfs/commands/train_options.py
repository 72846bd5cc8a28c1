"""Options of `rfs train`, which `rfs preflight` and `rfs compare` take, too.

What is given overrides the recipe, or a resumed run's settings; these override the defaults.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.problems import is_file_function
from reasoning_from_scratch.recipes import LossFn
from rfs.commands.cli import given_fields
from rfs.commands.other_words import decided_by_command, flags_of, in_our_words
from rfs.commands.reading import read
from rfs.config import PARTS, YOU, RunConfig, default_of, part_of
from rfs.files.models import check_model_name
from rfs.run.option_checks import check_loss_fn, refuse_ineffective
from rfs.run.options import configure, resolved, resumed_config
from rfs.tasks.own_task import check_functions
from rfs.tasks.problem_sets import source_of
from rfs.tasks.source import HELD_OUT_SUFFIX

Kind = TypeVar("Kind", bound="TrainOptions")


@dataclass
class TrainOptions(RunConfig):
    """Options of `rfs train`: every choice of a run, and a short word for some of them."""

    FIRST = (
        "model problems reward recipe steps lr rollouts max_new_tokens eval_every log_path"
    ).split()
    PARTS = PARTS

    loss_fn: LossFn | None = None
    """Take the loss as Tinker documents it: objective, summed, with its bounds; overrides the
    recipe."""

    @classmethod
    def read(
        cls: type[Kind], argv: Sequence[str], prog: str = "rfs train", about: str = ""
    ) -> Kind:
        """The options that a command line describes."""
        argv = in_our_words(argv, flags_of(cls), decided_by_command(cls))
        default = cls.default_options(argv)
        options = read(cls, argv, prog=prog, about=about, default=default)
        given = given_fields(argv) & {*vars(RunConfig())}
        other_layers = {name: layer for name, layer in default.set_by.items() if layer != YOU}
        options = replace(options, set_by=other_layers | dict.fromkeys(given, YOU))
        check_loss_fn(options.loss_fn, options)
        if options.resume:
            options.check_resumed(options.resume)
        return options

    @classmethod
    def default_options(cls: type[Kind], argv: Sequence[str]) -> Kind:
        """The values of options that a command line does not give: those of the run to resume, or
        of the recipe."""
        flags = ("--resume", "--recipe", "--loss-fn", "--environment")
        resume, recipe, loss_fn, environment = (last_value(flag, argv) for flag in flags)
        if resume and (recipe or loss_fn):
            given = "--recipe" if recipe else "--loss-fn"
            raise UserError(f"--resume keeps the run's recipe and loss; drop {given}")
        if resume:
            return part_of(resumed_config(resume), cls)
        named = {"recipe": recipe, "environment": environment}
        named = {name: value for name, value in named.items() if value}
        return part_of(configure(loss_fn=loss_fn, **(cls.own_defaults() | named)), cls)

    @classmethod
    def own_defaults(cls) -> dict[str, Any]:
        """The defaults that differ from those of `rfs train`."""
        usual = vars(RunConfig())
        defaults = {item.name: default_of(item) for item in fields(cls) if item.name in usual}
        return {k: v for k, v in defaults.items() if k != "set_by" and v != usual[k]}

    def check_resumed(self, run: str) -> None:
        """Refuse what cannot be given to a run that is resumed."""
        refuse_ineffective(self)
        moved = self.log_path and Path(self.log_path).resolve() != Path(run).resolve()
        if self.overwrite or ("log_path" in self.given and moved):
            raise UserError(
                "--resume continues a run in its own folder: drop --overwrite and --out, or "
                f"begin another run with its weights: --model {run} --out FOLDER"
            )

    def check(self) -> str:
        """Refuses mistakes that can be recognized without torch, before anything is loaded; returns
        the model's name."""
        checked = resolved(part_of(self, RunConfig))
        if not self.resume:  # it may continue on a machine without its first model or problems
            check_names(checked)
        return self.model


def check_names(config: RunConfig) -> None:
    """Refuse a model, problem set or function that a resolved configuration names and that does not
    exist."""
    check_model_name(config.model)
    source_of(config.problems, config.data_path).check()
    for name in config.eval_problems:
        if name != config.problems + HELD_OUT_SUFFIX:
            source_of(name).check()
    check_functions(config.reward, *(config.evaluators or []))
    if is_file_function(config.environment):
        check_functions(config.environment)


def last_value(name: str, argv: Sequence[str]) -> str | None:
    """The value of a flag, written as --flag VALUE or --flag=VALUE."""
    value = None
    for word, following in zip(argv, [*argv, ""][1:], strict=True):
        flag, equals, given = word.partition("=")
        if flag.replace("_", "-") == name:
            value = given if equals else following
    return value
