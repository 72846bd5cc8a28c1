"""Makes museum.js, what the page museum.html shows: the runs of studies/museum.py, each one trained
anew, with the words of the notebook. It takes a quarter of an hour on two CPU cores.

    uv run python docs/explore/make_museum.py
    uv run python docs/explore/make_museum.py words
"""

import json
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
CHAPTER = HERE.parents[1] / "ch07"
sys.path.insert(0, str(HERE.parents[1] / "studies"))
import museum  # noqa: E402


def notebook_cells() -> dict[str, str]:
    notebook = json.loads((CHAPTER / "ch07_museum.ipynb").read_text("utf-8"))
    return {cell["id"]: "".join(cell["source"]) for cell in notebook["cells"]}


def strip_markdown(markdown: str) -> str:
    """Without the marks of Markdown, and without what a link leads to."""
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", markdown)
    return re.sub(r"[*`]", "", text)


def room_texts(number: int) -> dict:
    texts, room = notebook_cells(), museum.ROOMS[number]
    question = texts[f"room-{number}-question"]
    paragraphs = texts[f"room-{number}-seen"].split("\n\n")
    return {
        "lead": strip_markdown(texts[f"room-{number}"].split("\n\n", 1)[1]),
        "choices": {k: strip_markdown(v) for k, v in re.findall(r"- \*\*(\w)\*\* (.*)", question)},
        "said": room.replies,
        "truth": room.correct_letter,
        "repair": describe_repair(number),
        "seen": [strip_markdown(paragraph) for paragraph in paragraphs],
    }


def describe_repair(number: int) -> str:
    room = museum.ROOMS[number]
    (name, value), *_ = room.repair.items()
    before, after = (
        getattr(setting, "__name__", str(setting).rpartition("/")[2])
        for setting in (room.sick.get(name, museum.SETTINGS.get(name)), value)
    )
    return f"{name} = {before}, repaired to {name} = {after}"


def run_data(number: int, repaired: bool) -> dict:
    """Its curves, numbers as they were measured, and three of its last answers."""
    run = museum.trained(number, repaired)
    rows = museum.with_right(run)
    return {
        "curves": {
            name: [None if row.get(name) is None else round(row[name], 5) for row in rows]
            for name in museum.shown_curves(museum.trained(number))
        },
        "answers": [
            {
                "problem": row["steps"][0]["logs"]["problem"],
                "answer": row["steps"][0]["logs"]["answer"],
                "text": row["text"].strip(),
                "paid": round(row["total_reward"], 2),
                "cut": row["stop_reason"] != "stop",
            }
            for row in museum.three_answers(run)
        ],
    }


def main() -> None:
    """With the word `words` the runs stay as they are: after a change of the notebook's text."""
    head = "// Made by make_museum.py: what museum.py trained, and the words of its notebook.\n"
    file, rooms = HERE / "museum.js", {}
    stored = json.loads(file.read_text("utf-8").split("const MUSEUM = ")[1].rstrip(";\n"))
    for number in museum.ROOMS:
        if "words" in sys.argv:
            runs = {name: stored["rooms"][str(number)][name] for name in ("sick", "repaired")}
        else:
            runs = {name: run_data(number, name == "repaired") for name in ("sick", "repaired")}
            print(f"room {number} is done", flush=True)
        rooms[number] = room_texts(number) | runs
    text = json.dumps({"labels": museum.CURVES, "rooms": rooms}, indent=1, ensure_ascii=False)
    # Lists of numbers stay on a line of their own.
    text = re.sub(r"\[[\d\s,.e+null-]*\]", lambda match: " ".join(match[0].split()), text)
    file.write_text(f"{head}const MUSEUM = {text};\n", "utf-8")


if __name__ == "__main__":
    main()
