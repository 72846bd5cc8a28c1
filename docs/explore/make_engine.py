"""Makes engine.js, which the pages train.html and step.html need: the tiny model, the playground's
code, problems and recipes (3.9 MB; 2.9 MB compressed). It is in no repository; `rfs book` makes one
for the site.

    uv run python docs/explore/make_engine.py
"""

from pathlib import Path

from rfs.commands.playground import engine_script

if __name__ == "__main__":
    Path(__file__).with_name("engine.js").write_text(engine_script(), encoding="utf-8")
