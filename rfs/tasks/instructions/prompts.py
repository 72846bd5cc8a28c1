"""Prompts: a topic and one or two constraints. The reward is 1 if all are kept, else 0.

"Only lowercase" is kept by an empty answer, and "exactly 8 words" by one word eight times. Training
finds such ways, so only what is an answer is rewarded (`is_answer`):

    it mentions the topic, so that no sentence suits every prompt
    it has three different words that are words: two letters or more, a vowel among them
    no word makes up more than a fifth of it, beyond two of each
    no line and no sentence of three words or more comes twice
    it does not repeat four words of the prompt in a row
"""

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from itertools import count
from random import Random

from reasoning_from_scratch.errors import unknown_name
from reasoning_from_scratch.problems import Problem
from rfs.tasks.source import Source

from .constraints import CONSTRAINTS, lower_words

SETS = ("instructions", "instructions@held-out", "instructions@new-constraints")
SIZES = {"instructions": 2_000}  # problems, where no limit is given
HELD_OUT_SIZE = 200
MAX_SIZE = 20_000  # problems, whatever the limit: a set has only so many different ones

FORMS = (
    "Write something short about {}.",
    "Tell me briefly about {}.",
    "Say something about {}.",
    "Describe {} briefly.",
)
# Topic, and how words begin that mention it.
TOPICS = {
    "the sea": "sea ocean wave beach",
    "rain": "rain",
    "a cat": "cat",
    "a dog": "dog pup",
    "winter": "winter snow cold",
    "the moon": "moon",
    "a garden": "garden flower plant",
    "a train": "train rail",
    "bread": "bread bak loaf",
    "a school": "school student teach class",
    "music": "music song melod",
    "a river": "river water stream",
    "friendship": "friend",
    "a market": "market shop sell",
    "the night": "night dark star",
    "a birthday": "birthday cake",
    "coffee": "coffee caffein",
    "a library": "librar book",
    "the wind": "wind breez",
    "a bicycle": "bicycl bik cycl",
    "football": "football soccer ball team",
    "a mountain": "mountain peak climb",
    "a letter": "letter writ",
    "the future": "future",
    "a farm": "farm",
    "chocolate": "chocolate cocoa",
    "sleep": "sleep rest dream",
    "a bridge": "bridge",
    "the city": "city cities town urban",
    "a tree": "tree leaf leaves branch",
    "money": "money cash coin",
    "a doctor": "doctor patient physician",
    "the kitchen": "kitchen cook",
    "a robot": "robot machine",
    "spring": "spring bloom",
    "a clock": "clock time",
    "cheese": "chees",
    "a painting": "paint art",
    "the desert": "desert sand",
    "a bird": "bird",
}
HELD_OUT_TOPICS = {
    "the sun": "sun",
    "a horse": "horse",
    "autumn": "autumn fall leaves",
    "a lake": "lake water",
    "tea": "tea",
    "an airplane": "airplane plane air fly flight",
    "a window": "window glass",
    "dancing": "danc",
    "a castle": "castle",
    "a baker": "bak bread",
    "honey": "honey bee",
    "a storm": "storm thunder lightning",
    "an island": "island",
    "a neighbor": "neighbor neighbour",
    "the forest": "forest wood tree",
    "a camera": "camera photo picture",
    "apples": "apple",
    "a museum": "museum exhibit",
    "a fish": "fish",
    "traveling": "travel journey trip",
}


def draw_problem(name: str, index: int) -> Problem:
    """The problem at `index` of a set, a pure function of both."""
    random = Random(f"{name} {index}")
    topics = HELD_OUT_TOPICS if name == "instructions@held-out" else TOPICS
    kinds = [
        kind
        for kind, constraint in CONSTRAINTS.items()
        if constraint.trained == (name != "instructions@new-constraints")
    ]
    topic = random.choice(list(topics))
    chosen_kinds = [random.choice(kinds)]
    if random.random() < 1 / 3:
        family = CONSTRAINTS[chosen_kinds[0]].family
        chosen_kinds.append(random.choice([k for k in kinds if CONSTRAINTS[k].family != family]))
    constraints = [(kind, random.choice(CONSTRAINTS[kind].values)) for kind in chosen_kinds]
    sentences = [CONSTRAINTS[kind].sentence.format(value) for kind, value in constraints]
    return Problem(
        id=f"{name}/{index}",
        problem=" ".join([random.choice(FORMS).format(topic), *sentences]),
        answer="",
        level=f"Level {len(constraints)}",
        type=chosen_kinds[0] if len(constraints) == 1 else "two at once",
        rules="instructions",
        facts=json.dumps({"topic": topic, "constraints": constraints}),
    )


def is_possible(problem: Problem) -> bool:
    """Impossible are "about a bird, without the letter b" and '"home" at the end, without m'."""
    facts = json.loads(problem.facts)
    values_by_kind = dict(facts["constraints"])
    letter = values_by_kind.pop("without_letter", None)
    if letter is None:
        return True
    stems = TOPIC_STEMS[facts["topic"]].split()
    words = [value for value in values_by_kind.values() if isinstance(value, str)]
    return not all(letter in word for word in stems) and not any(letter in w for w in words)


def score(text: str, problem: Problem) -> float:
    """1 if the text is an answer (`is_answer`) and all its constraints hold, else 0."""
    facts = json.loads(problem.facts)
    holds = [CONSTRAINTS[kind].holds(text, value) for kind, value in facts["constraints"]]
    return float(all(holds) and is_answer(text, problem.problem, facts["topic"]))


class Instructions(Source):
    """One of SETS."""

    NAME_PATTERN = re.compile(r"instructions([:@].*)?", re.DOTALL)
    LISTED_NAMES = (SETS[0], SETS[2])
    rules = "instructions"
    score = staticmethod(score)

    def problems(self, limit: int | None = None) -> list[Problem]:
        """The first problems; no text twice. A smaller limit gives the start of the same list."""
        if self.name not in SETS:
            raise unknown_name("problem set", self.name, SETS)
        by_text: dict[str, Problem] = {}
        size = min(limit or SIZES.get(self.name, HELD_OUT_SIZE), MAX_SIZE)
        indices = count()
        while len(by_text) < size:
            problem = draw_problem(self.name, next(indices))
            if is_possible(problem):
                by_text.setdefault(problem.problem, problem)
        return list(by_text.values())

    def contains_held_out(self) -> bool:
        return False


# --- what counts as an answer ---

TOPIC_STEMS = TOPICS | HELD_OUT_TOPICS
_PIECE_END = re.compile(r"[.!?…\n]+")


def is_answer(text: str, prompt: str, topic: str) -> bool:
    """See above."""
    words = lower_words(text)
    real_words = {word for word in words if is_word(word)}
    stems = tuple(TOPIC_STEMS[topic].split())
    if len(real_words) < 3 or not any(word.startswith(stems) for word in words):
        return False
    if Counter(words).most_common(1)[0][1] > max(2, len(words) / 5):
        return False
    pieces = [tuple(lower_words(piece)) for piece in _PIECE_END.split(text)]
    pieces = [piece for piece in pieces if len(piece) >= 3]
    if len(set(pieces)) < len(pieces):
        return False
    return not set(ngrams(words, 4)) & set(ngrams(lower_words(prompt), 4))


def is_word(word: str) -> bool:
    """Two letters or more, with a vowel; accents do not matter."""
    letters = [c for c in unicodedata.normalize("NFKD", word) if c.isalpha()]
    return len(letters) >= 2 and bool(set(letters) & set("aeiouy"))


def ngrams(words: list[str], length: int) -> Iterable[tuple[str, ...]]:
    """All sequences of `length` words in a row."""
    return zip(*(words[start:] for start in range(length)), strict=False)
