"""`rfs evaluate`: models on problem sets, their scores, and pass@k as a table and a picture."""

import sys
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.evaluation.answer_file import card_path
from reasoning_from_scratch.evaluation.evaluate import evaluate_with, open_model
from reasoning_from_scratch.evaluation.options import EvaluateOptions
from reasoning_from_scratch.evaluation.pass_curves import curve, pass_rates, pass_table
from reasoning_from_scratch.files.made_sets import made_set, own_verifier
from reasoning_from_scratch.files.model_names import check_model_name
from reasoning_from_scratch.files.problem_sets import held_out, load_problems
from reasoning_from_scratch.files.saved_models import run_and_save, which_weights
from reasoning_from_scratch.report.pass_picture import save_pass_curves
from reasoning_from_scratch.report.plots import picture_path
from reasoning_from_scratch.run.folder import RunFolder
from reasoning_from_scratch.run.options import preset
from reasoning_from_scratch.text import counted


def evaluate_command(options: EvaluateOptions) -> None:
    """Prints the scores; how far it is goes to stderr."""
    if options.problems is None:
        options = replace(options, problems=default_problems(options))
    refuse_unmeasurable(options)
    figure = picture_path(options.figure) if options.figure else None
    rates = measured_rates(options)
    if figure or len(options.model) > 1:
        for title, by_model in rates.items():
            print(f"\npass@k on {title}, with 95 % intervals\n\n{pass_table(by_model)}")
    if figure:
        curves = {
            title: {name: curve(own) for name, own in by_model.items()}
            for title, by_model in rates.items()
        }
        save_pass_curves(curves, figure)
        print(f"\npicture: {figure}, its numbers: {figure.with_suffix('.csv')}")


def default_problems(options: EvaluateOptions) -> tuple[str, ...]:
    """The problems that belong to the models; other ones would measure another task."""
    named = {}
    for name in options.model:
        check_model_name(name)
        run, _ = run_and_save(name)
        named[name] = (
            tuple(RunFolder(run).read_config().eval_problems)
            if run
            else (held_out(preset(name)["problems"]),)
        )
    if len(set(named.values())) > 1:
        raise UserError("these models were made for different problems: name some in --problems")
    return named[options.model[0]] if named else ()


def measured_rates(options: EvaluateOptions) -> dict[str, dict[str, Tensor]]:
    """Problem set, with its size -> model -> pass@k of each problem. Prints the other scores."""
    verifier = own_verifier(options.reward)
    paths = answer_paths(options)
    weights = {name: which_weights(name) for name in options.model}  # as the card names them
    sets = {n: load_problems(n, limit=options.limit) for n in options.problems}
    titles = {name: f"{name}, {counted(len(sets[name]), 'problem')}" for name in sets}
    rates: dict[str, dict[str, Tensor]] = {title: {} for title in titles.values()}
    for name, place in weights.items():
        model, tokenizer = open_model(place, options.device, options.dtype)
        for problem_set, problems in sets.items():
            title, path = titles[problem_set], paths.get((problem_set, name))
            print(f"{place} on {title}")
            try:
                result = evaluate_with(
                    options, model, tokenizer, problems, verifier, problem_set, place, path
                )
            except KeyboardInterrupt:
                if path is not None:
                    print("the same command goes on where it was", file=sys.stderr)
                raise
            print(result.report())
            if path is not None:
                print(f"answers: {path}, card: {card_path(path)}")
            rates[title][name] = pass_rates(result)
    return rates


def refuse_unmeasurable(options: EvaluateOptions) -> None:
    """Refuses what cannot be measured, before anything is loaded."""
    if not options.model or not options.problems:
        raise UserError("nothing to do: name a --model and a set of --problems")
    if options.samples < 1:
        raise UserError(f"--samples is {options.samples}, but must be at least 1")
    if options.samples > 1 and options.temperature == 0:
        raise UserError("--samples above 1 needs --temperature above 0: greedy answers are equal")
    if options.figure and options.samples == 1:
        raise UserError("--figure draws pass@k, which needs --samples above 1, such as 64")
    rules = next((name for name in options.problems if made_set(name)), None)
    if rules and options.fallback != "none":
        raise UserError(
            f"--fallback {options.fallback} is for the grader, and {rules} has rules of its own: "
            "leave it out"
        )
    if options.reward and options.fallback != "none":
        raise UserError(
            f"--fallback {options.fallback} is for the grader, and --reward {options.reward} reads "
            "the whole text: leave one out"
        )


def answer_paths(options: EvaluateOptions) -> dict[tuple[str, str], Path]:
    """(problem set, model) -> its file of answers: --out-path itself, if there is only one."""
    path = options.out_path
    paths: dict[tuple[str, str], Path] = {}
    if path is None:
        return paths
    for problem_set in options.problems:
        for model in options.model:
            words = [path.stem]
            words += [Path(problem_set).stem] if len(options.problems) > 1 else []
            words += [Path(model).name] if len(options.model) > 1 else []
            paths[problem_set, model] = path.with_name("-".join(words) + path.suffix)
    if len(set(paths.values())) < len(paths):
        raise UserError("--out-path: two models, or two sets, of one name would share a file")
    return paths
