"""Whatever a problem, an answer or a model says, pages show it and nothing acts on it.

An HTML parser checks that a page written from hostile text has the very same tags and attributes as
one written from harmless text: then nothing in the text became markup.
"""

import json
import os
import re
from html.parser import HTMLParser

import pytest
from report_groups import ByteTokenizer, make_rollout

from reasoning_from_scratch.problems import Problem
from reasoning_from_scratch.rollouts import Group
from reasoning_from_scratch.text import visible
from rfs.report import write_iteration, write_run_report

RUN = "document.title='owned';document.documentElement.id='owned';fetch('/leak-fetch')"
HOSTILE = {
    "script": f"<script>{RUN}</script>",
    "closing": f"</textarea></title></style></script><script>{RUN}</script>",
    "handler": f'"\'><img src=/leak-image onerror="{RUN}"><svg/onload="{RUN}">',
    "frame": f'<iframe srcdoc="<script>{RUN}</script>"></iframe><object data=/leak-object>',
    "head": '<base href="/leak/"><meta http-equiv=refresh content="0;url=/leak-meta">',
    "style": "<link rel=stylesheet href=/leak-link><style>@import url(/leak-import)</style>",
    "link": f'<a href="javascript:{RUN}" autofocus onfocus="{RUN}">x</a>',
    "comment": "<!-- <![CDATA[ ]]> --> <?php ?> </div></main></body></html>",
    "template": "{{ 7 * 191 }} {% raw %} {{ ''.__class__ }} ${7*191}%s %(x)s",
    "entity": "&lt;b&gt; &#x3c;script&#x3e; \\u003cscript\\u003e",
    "surrogate": "\ud83d alone, \udfff\ud800 reversed",
    "ansi": "\x1b[2J\x1b[31mred\x1b]0;owned\x07\x9b5A\x08\x7f\r gone",
    "bidi": "\u202egnirts desrever\u2066\u200f \u061c 1 + 2 = 3",
    "nul": "before\0after\x0b\x0c\x85\u2028\u2029\ufeff\uffff",
}
PLAIN = "nothing special"
ACTING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def write_run(folder, text: str) -> None:
    """A whole run in which everything that can be a text is this one."""
    problem = Problem(f"id {text}", text, f"7 {text}", level=text, type=text)
    tokenizer = ByteTokenizer()
    for step in (0, 1):
        rollouts = [
            make_rollout(problem, f"{text}\\boxed{{{text}}}", float(i == step), float(i))
            for i in range(2)
        ]
        bare = make_rollout(problem, text)
        bare.logprobs = bare.entropies = []  # shown without shading
        groups = [Group(problem, [*rollouts, bare])]
        write_iteration(folder, "train", step, groups, tokenizer)
        write_iteration(folder, f"eval/{text}", step, [Group(problem, rollouts[:1])], tokenizer)
        write_probe(folder, step, text)
    metrics = {"step": 0, "env/all/reward/total": 0.5, "time/sampling": 1.0, "time/total": 2.0}
    (folder / "metrics.jsonl").write_text(json.dumps(metrics) + "\n")
    config = {"recipe": text, "model": text, "steps": 2, text: {text: text}}
    (folder / "config.json").write_text(json.dumps(config))
    write_run_report(folder)


def write_probe(folder, step: int, text: str) -> None:
    top = [[text, 0.5], ["b", 0.2]]
    probe = dict.fromkeys(("problem_id", "problem", "answer", "text"), text)
    probe |= {"correct": False, "finished": True, "tokens": [text, "b"], "top": [top, top]}
    with open(folder / "probes.jsonl", "a") as file:
        file.write(json.dumps({"step": step, "probes": [probe]}) + "\n")


def as_name(text: str) -> str:
    """Of a folder: as much of the text as a file system takes."""
    text = re.sub("[\ud800-\udfff]", "\udcff", text.replace("/", "\u2215").replace("\0", ""))
    return os.fsdecode(os.fsencode(text)[:200])


class Shape(HTMLParser):
    """The tags of a page with the names of their attributes, and its texts."""

    def __init__(self, html: str):
        super().__init__()
        self.tags: list[tuple[str, tuple[str, ...]]] = []
        self.addresses: list[str] = []
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, tuple(name for name, _ in attrs)))
        self.addresses += [v or "" for name, v in attrs if name in ("src", "href", "srcdoc")]

    def handle_data(self, data):
        self.text += data

    def handle_comment(self, data):
        self.tags.append(("comment", ()))

    def structure(self) -> list:
        """Without tokens and runs of characters, of which there are as many as the text is long."""
        return [tag for tag in self.tags if tag[0] != "i"]


def written(base, text: str):
    """A run, and beside it another one, of a name and with settings that are no kinder."""
    for name, its_text in ((as_name(text), f"other {text}"), ("run", text)):
        (base / name).mkdir()
        write_run(base / name, its_text)
    return base / "run"


@pytest.fixture(scope="module")
def harmless(tmp_path_factory):
    return written(tmp_path_factory.mktemp("harmless"), PLAIN)


@pytest.fixture(scope="module", params=HOSTILE)
def hostile(request, tmp_path_factory):
    """The run, and the text in it."""
    text = HOSTILE[request.param]
    return written(tmp_path_factory.mktemp("hostile"), text), text


def test_hostile_text_never_becomes_markup(harmless, hostile):
    run, said = hostile
    for pattern in ("train_iteration_000001.html", "eval_*_iteration_000001.html", "report.html"):
        plain, page = (
            Shape(next(folder.glob(pattern)).read_text("utf-8")) for folder in (harmless, run)
        )
        assert page.structure() == plain.structure()
        tokens = {attrs for tag, attrs in page.tags if tag == "i"}
        assert tokens <= {(), ("class",)}
        local = re.compile(
            r"#[gm]\w+|data:,|[a-z]+\.(jsonl?|html)|(train|eval)_[\w.-]+|\.\./[\w.~%-]+/report\.html"
        )
        assert all(local.fullmatch(address) for address in page.addresses)
        # ... and it is still there to be read.
        assert visible(said).replace("\r", "") in page.text.replace("\r", "")


def test_every_file_is_readable_and_harmless_to_show(hostile):
    folder, said = hostile
    for path in folder.rglob("*"):
        if path.is_dir():
            continue
        text = path.read_text("utf-8")  # strictly UTF-8, surrogates would fail
        assert not ACTING.search(text), path.name  # `cat` of any file changes no terminal
        if path.suffix == ".json":
            json.loads(text, parse_constant=pytest.fail)
        if path.suffix == ".jsonl":
            assert text.endswith("\n")
            for line in text.splitlines():
                json.loads(line, parse_constant=pytest.fail)
    rows = (folder / "train_iteration_000000_rollout_summaries.jsonl").read_text().splitlines()
    expected = re.sub("[\ud800-\udfff]", "\ufffd", said)
    assert json.loads(rows[0])["steps"][0]["logs"]["problem"] == expected
