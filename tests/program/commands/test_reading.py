"""What help says of each option: whole sentences, a value's kind, a default once."""

import re
from dataclasses import dataclass

import pytest

from rfs.commands import cli
from rfs.commands.reading import field_texts, read

# The others explain all of their options at once.
SHORT = ("train", "evaluate", "compare", "preflight")


def help_of(words, capsys):
    """The text, without the frame around it and with a line for each option."""
    with pytest.raises(SystemExit) as end:
        cli.main(words)
    assert not end.value.code
    return " ".join(re.sub("[│╭╮╰╯─]", " ", capsys.readouterr().out).split())


@pytest.mark.parametrize(
    "words",
    [[name, "--help"] for name in cli.COMMANDS] + [[name, "--help-all"] for name in SHORT],
    ids=" ".join,
)
def test_nothing_in_help_is_about_our_code(words, capsys):
    shown = help_of(words, capsys)
    for odd in ("{None}", "[STR [STR", "(default: None)", "(default: )", "(default: '')"):
        assert odd not in shown
    for text in re.split(r" --[a-z0-9-]+ ", shown):
        assert text.count("(default:") <= 1, text  # not twice for the same option


# What an option does to a run. A new option may need another one.
VERBS = """
    add answer ask average begin bound cap check compare compile compute continue count cut
    delete divide download draw drop end estimate evaluate export find give insert keep learn
    let list listen load log make maximize measure move multiply name open order pass play plot
    print put raise read recompute refuse replace report require review reward run sample save
    scale serve show shrink skip start store stream subtract surround take talk train try turn
    upload use warm weight write z-score
""".split()
# "Also log to ...", "With kl=token, give ...", "Under torchrun, fsdp keeps ..."
BEFORE = re.compile(r"^(also|only|(with|of|under|for|before|instead|after)\b[^,]*,)+ (fsdp )?")


def is_sentence(text):
    """Whether it is whole, and begins with what the option does."""
    first = re.match(r"[a-z-]+", BEFORE.sub("", text[:1].lower() + text[1:]))
    whole = text[0].isupper() and text.endswith((".", ")"))
    return whole and first and bool({first[0], first[0].removesuffix("s")} & set(VERBS))


@pytest.mark.parametrize("name", cli.OPTIONS)
def test_what_help_says_of_an_option_is_a_sentence(name):
    texts = field_texts(cli.load_function(cli.OPTIONS[name])).values()
    assert len(texts) >= 1 and [text for text in texts if not is_sentence(text)] == []


@pytest.mark.parametrize("name", SHORT)
def test_the_short_help_names_what_people_bring(name, capsys):
    shown = help_of([name, "--help"], capsys)
    assert "--reward STR" in shown and ".jsonl" in shown
    count = int(re.search(r"These (\d+) options", shown)[1])
    assert len({*re.findall(r"--[a-z-]+(?= [A-Z])", shown)}) == count


@dataclass
class Options:
    rate: float | None = None
    """Speed,
    in words (default: what suits)."""
    often: bool = False
    """Again."""
    kinds: tuple[str, ...] = ("a", "b")
    """Which ones."""


def test_an_option_has_its_text_its_kind_and_its_default(capsys):
    with pytest.raises(SystemExit):
        read(Options, ["--help"], prog="it", about="About.")
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "--rate FLOAT Speed, in words (default: what suits)." in shown
    assert "--kinds STR ... Which ones. (default: a b)" in shown
    with pytest.raises(SystemExit):  # of a run that is resumed, say
        read(Options, ["--help"], prog="it", about="About.", default=Options(rate=0.5))
    assert "(default: what suits). (here: 0.5)" in " ".join(
        capsys.readouterr().out.replace("│", " ").split()
    )


def test_options_are_read():
    words = "--rate 0.5 --kinds x y --often".split()
    assert vars(read(Options, words, prog="it", about="")) == {
        "rate": 0.5, "often": True, "kinds": ("x", "y"),
    }  # fmt: skip
    assert read(Options, ["--rate", "None"], prog="it", about="").rate is None
