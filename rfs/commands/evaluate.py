"""`rfs evaluate`: models on problem sets, their scores, and pass@k as a table and a picture."""

import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from reasoning_from_scratch.config import fields_marked
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.facts import AS_TRAINED
from reasoning_from_scratch.files.model_names import trained_folder
from reasoning_from_scratch.problems import (
    PLACEHOLDER,
    PROMPT_FILE,
    PROMPTS,
    PromptFormat,
    check_prompt_kind,
    load_prompt_format,
    read_prompt_file,
    render_prompt,
)
from reasoning_from_scratch.text import counted
from rfs.config import RunConfig
from rfs.evaluation.answer_file import card_path
from rfs.evaluation.evaluate import evaluate_from_options, open_model
from rfs.evaluation.options import EvaluateOptions
from rfs.evaluation.pass_curves import curve_with_band, pass_rates, pass_table
from rfs.files.models import check_model_name
from rfs.files.saved_models import run_and_save, which_weights
from rfs.report.iteration import safe_name
from rfs.report.pass_picture import save_pass_curves
from rfs.report.picture_files import picture_path
from rfs.run.chosen_problems import solved_examples
from rfs.run.folder import RunFolder
from rfs.run.option_checks import UNMET_NEEDS_GREEDY, check_needs, flag
from rfs.run.options import GAMES, configure, preset, resolved
from rfs.tasks.environments.conversation import environment_factory
from rfs.tasks.judge import named_verifier
from rfs.tasks.problem_sets import held_out, load_problems, source_of

NOT_ON_WINDOWS = frozenset('<>:"/\\|?*')  # in the name of a file


def evaluate_command(options: EvaluateOptions, given: set[str]) -> None:
    """Prints the scores; progress goes to stderr. `given`: the options on the command line."""
    options, examples = prompted_as_trained(options, given)
    if options.problems is None:
        options = replace(options, problems=default_problems(options))
    refuse_unmeasurable(options, given)
    figure = picture_path(options.figure) if options.figure else None
    rates = measure_pass_rates(options, examples)
    if figure or len(options.model) > 1:
        for title, by_model in rates.items():
            print(f"\npass@k on {title}, with 95% intervals\n\n{pass_table(by_model)}")
    if figure:
        curves = {
            title: {name: curve_with_band(own_rates) for name, own_rates in by_model.items()}
            for title, by_model in rates.items()
        }
        save_pass_curves(curves, figure)
        print(f"\npicture: {figure}, its numbers: {figure.with_suffix('.csv')}")


# --- a run is prompted the way it was trained ---


def training_config(name: str) -> RunConfig | None:
    """The configuration of a run. For a game's player, recognized by its name: what suits the game.
    None for what `rfs serve` trained, which has no problems of its own, and for other models."""
    run, _ = run_and_save(name)
    if run:
        config = RunFolder(run).read_config()
        return config if config.problems else None
    for environment, game in GAMES.items():
        if Path(name).name.startswith(game["model"]):
            usual_length = EvaluateOptions.max_new_tokens  # the player's own is not recorded
            return resolved(configure(environment=environment, max_new_tokens=usual_length))
    return None


def prompted_as_trained(options: EvaluateOptions, given: set[str]) -> tuple[EvaluateOptions, str]:
    """The options, completed with the settings that the models were trained with, and the solved
    problems that come before each question. One printed line says what was filled in."""
    game = GAMES.get(options.environment)
    if game and "model" not in given:
        options = replace(options, model=(game["model"],))
    trained = {name: config for name in options.model if (config := training_config(name))}
    if given & {"environment", "reward"}:  # either one replaces the other
        given = given | {"environment", "reward"}
    filled_in: dict[str, Any] = {}
    for name in fields_marked(RunConfig, AS_TRAINED):
        values = [
            training_prompt(model, config) if name == "prompt" else getattr(config, name)
            for model, config in trained.items()
        ]
        if name in given or not values:
            continue
        if values.count(values[0]) < len(values):
            raise UserError(
                f"these models were trained with different values of {flag(name)}: choose one"
            )
        if values[0] != getattr(options, name):
            filled_in[name] = values[0]
    options = replace(options, **filled_in)
    prefixes = {solved_examples(config) for config in trained.values()} or {""}
    if len(prefixes) > 1:
        raise UserError("these models were shown different solved problems: evaluate one at a time")
    (examples,) = prefixes
    if examples and options.prompt != "book":
        raise UserError(
            "the run was trained with --few-shot, whose solved problems are in the book's prompt: "
            "drop --prompt"
        )
    options = prompted_as_saved(
        options, given | filled_in.keys(), [n for n in options.model if n not in trained]
    )
    if filled_in or examples:
        words = [option_text(name, value) for name, value in filled_in.items()]
        words += ["the solved problems of --few-shot"] if examples else []
        print(f"{', '.join(trained)}: prompted as in training, with {' '.join(words)}")
    return options, examples


def prompted_as_saved(
    options: EvaluateOptions, given: set[str], names: Sequence[str]
) -> EvaluateOptions:
    """The same for models that are no runs, if their folders say how they were prompted."""
    asked = {name: saved for name in names if (saved := load_prompt_format(trained_folder(name)))}
    usual = PromptFormat(render_prompt(PLACEHOLDER))
    if all(replace(saved, chat_template=False) == usual for saved in asked.values()):
        return options
    if len(asked) < len(options.model) or len(set(asked.values())) > 1:
        if {"prompt", "stop"} <= given:
            return options
        raise UserError(
            "these models were asked in different ways: choose one with --prompt and --stop, or "
            "evaluate one at a time"
        )
    (saved,) = set(asked.values())
    as_saved = {"prompt": str(trained_folder(names[0]) / PROMPT_FILE), "stop": saved.stop}
    filled_in: dict[str, Any] = {n: v for n, v in as_saved.items() if n not in given and v}
    if filled_in:
        words = " ".join(option_text(name, value) for name, value in filled_in.items())
        print(f"{', '.join(asked)}: asked as in training, with {words}")
    return replace(options, **filled_in)


def training_prompt(model: str, config: RunConfig) -> str | None:
    """The prompt of a run. If its file has changed since, or is on another machine, it is read from
    the folder of the weights."""
    prompt = config.prompt or ("book" if config.few_shot else None)
    if prompt is None or prompt in PROMPTS:
        return prompt
    folder = Path(which_weights(model, lambda words: None))
    saved = load_prompt_format(folder)
    if saved is None:  # of an earlier version
        return prompt
    with suppress(UserError):  # there is no such file, or no prompt in it any more
        if replace(read_prompt_file(prompt), stop=saved.stop) == saved:
            return prompt
    return str(folder / PROMPT_FILE)


def option_text(name: str, value: object) -> str:
    """As it would be written on the command line."""
    if value is True:
        return flag(name)
    return f"{flag(name)} {value if str(value).isprintable() else repr(value)}"


def default_problems(options: EvaluateOptions) -> tuple[str, ...]:
    """The problems that belong to the models; any others would measure a different task."""
    by_model = {}
    for name in options.model:
        config = training_config(name)
        if not config:
            check_model_name(name)
        by_model[name] = (
            tuple(config.eval_problems)
            if config
            else (held_out((GAMES.get(options.environment) or preset(name))["problems"]),)
        )
    if len(set(by_model.values())) > 1:
        raise UserError(
            "these models were made for different problems: choose some with --problems"
        )
    return by_model[options.model[0]] if by_model else ()


# --- measuring ---


def measure_pass_rates(
    options: EvaluateOptions, examples: str = ""
) -> dict[str, dict[str, Tensor]]:
    """Problem set, with its size -> model -> pass@k of each problem. Prints the other scores.
    `examples` come before each question."""
    verifier = named_verifier(options.reward)
    paths = answer_paths(options)
    weights = {name: which_weights(name) for name in options.model}  # as the card names them
    sets = {name: load_problems(name, limit=options.limit) for name in options.problems}
    if examples:
        sets = {
            name: [replace(problem, prefix=examples) for problem in problems]
            for name, problems in sets.items()
        }
    titles = {name: f"{name}, {counted(len(sets[name]), 'problem')}" for name in sets}
    rates: dict[str, dict[str, Tensor]] = {title: {} for title in titles.values()}
    for name, folder in weights.items():
        model, tokenizer = open_model(folder, options.device, options.dtype)
        for problem_set, problems in sets.items():
            title, path = titles[problem_set], paths.get((problem_set, name))
            print(f"{folder} on {title}")
            try:
                result = evaluate_from_options(
                    options, model, tokenizer, problems, verifier, problem_set, folder, path
                )
            except KeyboardInterrupt:
                if path is not None:
                    print("run the same command again to continue from here", file=sys.stderr)
                raise
            print(result.report())
            if path is not None:
                print(f"answers: {path}, card: {card_path(path)}")
            rates[title][name] = pass_rates(result)
    return rates


def refuse_unmeasurable(options: EvaluateOptions, given: set[str]) -> None:
    """Refuses what cannot be measured, before anything is loaded."""
    if not options.model or not options.problems:
        raise UserError("nothing to do: give a --model and a set of --problems")
    if options.samples > 1 and options.temperature == 0:
        raise UserError(
            "--samples above 1 needs --temperature above 0: greedy answers are all the same"
        )
    check_needs(options, given, UNMET_NEEDS_GREEDY)
    if options.prompt is not None:
        check_prompt_kind(options.prompt)
    refuse_in_environment(options)
    if options.figure and options.samples == 1:
        raise UserError("--figure draws pass@k, which needs --samples above 1, such as 64")
    refuse_figure_over_answers(options)
    rules = next((name for name in options.problems if source_of(name).rules), None)
    if rules and options.fallback != "none":
        raise UserError(
            f"--fallback {options.fallback} is for the grader, and {rules} has its own rules: "
            "drop it"
        )
    if options.reward and options.fallback != "none":
        raise UserError(
            f"--fallback {options.fallback} is for the grader, and --reward {options.reward} reads "
            "the whole text: drop one"
        )


def refuse_in_environment(options: EvaluateOptions) -> None:
    """Refuses what has no effect in an environment."""
    if options.environment is None:
        return
    environment_factory(options.environment)
    if options.reward:
        raise UserError(
            "--environment sets the reward of an answer, and so does --reward: drop one"
        )
    if options.fallback != "none":
        raise UserError(
            f"--fallback {options.fallback} is for the grader, and --environment "
            f"{options.environment} judges by itself: drop one"
        )


def refuse_figure_over_answers(options: EvaluateOptions) -> None:
    """Refuses a picture whose files would replace a file of answers."""
    if options.figure is None:
        return
    written = {options.figure.resolve(), options.figure.with_suffix(".csv").resolve()}
    for path in answer_paths(options).values():
        if path.resolve() in written:
            raise UserError(
                f"--figure {options.figure} writes to {path}, too, which --out keeps for the "
                "answers: rename one"
            )


def answer_paths(options: EvaluateOptions) -> dict[tuple[str, str], Path]:
    """(problem set, model) -> its file of answers: --out itself, if there is only one."""
    path = options.out_path
    paths: dict[tuple[str, str], Path] = {}
    if path is None:
        return paths
    set_parts = file_name_parts(options.problems)
    for problem_set in options.problems:
        for model in options.model:
            parts = [path.stem]
            parts += [set_parts[problem_set]] if len(options.problems) > 1 else []
            parts += [Path(model).name] if len(options.model) > 1 else []
            paths[problem_set, model] = path.with_name("-".join(parts) + path.suffix)
    if len(set(paths.values())) < len(paths):
        raise UserError("--out: two models or sets of one name would share a file; rename one")
    return paths


def file_name_parts(names: Sequence[str]) -> dict[str, str]:
    """The part of a file's name that says which set its answers are for: the set's name, without
    folder and ending. If another set shares that, or Windows does not allow it, the set's name in
    metrics."""
    stems = [Path(name).stem for name in names]
    return {
        name: safe_name(source_of(name).short_name)
        if stems.count(stem) > 1 or NOT_ON_WINDOWS & {*stem}
        else stem
        for name, stem in zip(names, stems, strict=True)
    }
